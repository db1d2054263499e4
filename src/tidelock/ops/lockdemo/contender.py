"""One writer of the demo, a process of its own.

It works on after a loss, as a program does that never asks its lock: what stops it is the token.
It ends when its standard input does, so it never outlives the demo.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
from contextlib import closing
from pathlib import Path

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import AcquireTimeout, HoldingLost, OutcomeUnknown, TidelockError
from tidelock.base.ids import IdSource, SystemIds
from tidelock.lock.driver import Lock
from tidelock.lock.lease import Lease
from tidelock.ops.lockdemo.counters import FencedCounter, PlainCounter, StaleToken
from tidelock.ops.lockdemo.journal import Did, Journal
from tidelock.ops.lockdemo.plan import Plan
from tidelock.store.local import LocalStore

_SLICE_MS = 20
_WAIT_S = 1.0


class Contender:
    """Takes the lock, counts, releases the lock, over and over."""

    def __init__(self, lock: Lock, plan: Plan, folder: Path, journal: Journal) -> None:
        """Fight for `lock` on the terms of `plan`."""
        store = LocalStore(folder / "counters", fsync=False)
        self._lock = lock
        self._plan = plan
        self._journal = journal
        self._fenced = FencedCounter(store)
        self._plain = PlainCounter(store)
        self._clock: Clock = SystemClock()
        self._ids: IdSource = SystemIds()

    def fight(self) -> None:
        """Go on until the demo ends."""
        while _is_wanted():
            self._journal.note(Did.WAITING)
            try:
                token = self._lock.acquire(_WAIT_S)
            except AcquireTimeout:
                continue
            except TidelockError as error:
                self._journal.note(Did.FAILED, says=str(error))
                self._clock.sleep_ms(200)
                continue
            self._journal.note(Did.GRANTED, token=token)
            self._critical_section(token)
            self._give_back(token)
            self._clock.sleep_ms(self._drawn(self._plan.pause_ms))

    def _critical_section(self, token: int) -> None:
        """Read both counters, work for a while, write both back."""
        try:
            value, plain = self._fenced.read(token), self._plain.read()
        except StaleToken as error:
            self._journal.note(Did.REFUSED, token=token, says=str(error.seen))
            return
        self._work(token)
        self._journal.note(Did.WRITING, token=token)
        try:
            self._fenced.write(token, value + 1)
            self._journal.note(Did.WROTE, token=token)
        except StaleToken as error:
            self._journal.note(Did.REFUSED, token=token, says=str(error.seen))
        self._plain.write(plain + 1)
        self._journal.note(Did.WROTE_PLAIN, token=token)

    def _work(self, token: int) -> None:
        until_ms = self._clock.now().monotonic_ms + self._drawn(self._plan.work_ms)
        while self._clock.now().monotonic_ms < until_ms:
            # Read before the check: a pause between the two must not lengthen the belief.
            at_ms = self._clock.now().monotonic_ms
            try:
                self._lock.check()
            except HoldingLost as error:
                self._journal.note(Did.LOST, token=token, says=error.message)
                return
            self._journal.note(Did.BELIEVES, token=token, at_ms=at_ms)
            self._clock.sleep_ms(_SLICE_MS)
        try:
            self._lock.check()
        except HoldingLost as error:
            self._journal.note(Did.LOST, token=token, says=error.message)

    def _give_back(self, token: int) -> None:
        self._journal.note(Did.RELEASING, token=token)
        try:
            self._lock.release()
        except (HoldingLost, OutcomeUnknown):
            return
        self._journal.note(Did.RELEASED, token=token)

    def _drawn(self, between: tuple[float, float]) -> float:
        least, most = between
        return least + (most - least) * self._ids.jitter()


def _is_wanted() -> bool:
    """Tell whether the demo still runs: it keeps our standard input open and writes nothing."""
    readable, _, _ = select.select([0], [], [], 0)
    return not readable or os.read(0, 1) != b""


def main(args: list[str]) -> None:
    """Fight for the lock below a folder, under a name, on the terms of a lease."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("validity_ms", type=int)
    parser.add_argument("renew_ms", type=int)
    given = parser.parse_args(args)
    plan = Plan(lease=Lease(validity_ms=given.validity_ms, renew_ms=given.renew_ms))
    journal = Journal(given.folder / "journals", given.name, SystemClock())
    with closing(journal), closing(Lock(LocalStore(given.folder / "table"), plan.lease)) as lock:
        Contender(lock, plan, given.folder, journal).fight()
        journal.note(Did.ENDED)


if __name__ == "__main__":
    main(sys.argv[1:])
