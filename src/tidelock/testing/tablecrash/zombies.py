"""Writers that are stopped between their judgement and their commit, and wake up much later.

Meanwhile others commit to the same file groups, and may take the sleeper for dead. When it wakes it
writes again on top of them, or fails; nobody's update is lost.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from tidelock.base.errors import TidelockError
from tidelock.store.local import LocalStore
from tidelock.testing.tablecrash import story
from tidelock.testing.tablecrash.children import fork, wait
from tidelock.testing.tablecrash.stops import OffClock, Stop, StoppingStore

if TYPE_CHECKING:
    from tidelock.testing.tablecrash.harness import Report

SLEEPER: story.Rows = {"a1": "sleeper", "a2": "sleeper", "b9": "sleeper"}
RIVAL: story.Rows = {"a1": "rival", "a3": "rival", "b9": "rival"}
_SLEEP_S = 2.5 * story.HEARTBEAT_MS / 1000
_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class Case:
    """How one round goes: whose clock is how wrong, and whether the rival clears up first."""

    kind: str
    recovers: bool
    sleeper_off_ms: int = 0
    rival_off_ms: int = 0

    def __str__(self) -> str:
        """Say what is special about it."""
        return (
            f"{self.kind}, clocks off by {self.sleeper_off_ms} and {self.rival_off_ms} ms,"
            f" {'' if self.recovers else 'not '}taken for dead"
        )


@dataclass(slots=True)
class Sleeper:
    """A stopped process, its table, and where it will tell its story."""

    case: Case
    root: Path
    pid: int
    told: Path


@dataclass(slots=True)
class Zombies:
    """Rounds of sleepers, some at a time. This process must have no other threads."""

    home: Path
    report: Report

    def run(self, rounds: int) -> None:
        """Run that many rounds, over all cases in turn."""
        cases = _cases()
        while rounds > 0:
            batch = [next(cases) for _ in range(min(rounds, _AT_ONCE))]
            rounds -= len(batch)
            sleepers = [self._put_to_sleep(case) for case in batch]
            # Longer than the life of a heartbeat.
            time.sleep(_SLEEP_S)
            for sleeper in sleepers:
                self._overtake(sleeper)
            for sleeper in sleepers:
                self._wake(sleeper)

    def _put_to_sleep(self, case: Case) -> Sleeper:
        root = Path(tempfile.mkdtemp(dir=self.home)) / "table"
        told = root.parent / "told.json"
        wait(fork(lambda: story.make_table(root, case.kind)))
        stop = Stop(_is_entry, signal.SIGSTOP)

        def live() -> None:
            store = StoppingStore(LocalStore(root), stop)
            with story.open_on(store, OffClock(case.sleeper_off_ms)) as table:
                try:
                    report = table.upsert(story.rows_of(SLEEPER))
                    told.write_text(json.dumps({"rebases": report.rebases}))
                except TidelockError as error:
                    told.write_text(json.dumps({"error": str(error)}))

        pid = fork(live)
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.report.problems.append(f"{case}: the sleeper ended with {status}")
        return Sleeper(case, root, pid, told)

    def _overtake(self, sleeper: Sleeper) -> None:
        case, root = sleeper.case, sleeper.root

        def live() -> None:
            with story.open_on(LocalStore(root), OffClock(case.rival_off_ms)) as table:
                if case.recovers:
                    table.writer().transactions.recover()
                table.upsert(story.rows_of(RIVAL))

        if status := wait(fork(live)):
            self.report.problems.append(f"{case}: the rival ended with {status}")

    def _wake(self, sleeper: Sleeper) -> None:
        os.kill(sleeper.pid, signal.SIGCONT)
        status = wait(sleeper.pid)
        case = sleeper.case
        if status or not sleeper.told.exists():
            self.report.problems.append(f"{case}: the sleeper ended with {status}")
            return
        answer = json.loads(sleeper.told.read_text())
        seen = sleeper.root.parent / "seen.json"

        def look() -> None:
            with story.open_on(LocalStore(sleeper.root)) as table:
                seen.write_text(json.dumps(story.read(table)))

        wait(fork(look))
        rows = json.loads(seen.read_text()) if seen.exists() else {}
        failed = "error" in answer
        # The rival came first in the ledger; what the sleeper says happened lies on top.
        wanted = {**story.FIRST, **RIVAL, **({} if failed else SLEEPER)}
        if rows != wanted:
            self.report.problems.append(f"{case}: {rows} is seen, not {wanted} ({answer})")
        if not failed and not answer["rebases"]:
            self.report.problems.append(f"{case}: the sleeper noticed nothing")
        self.report.points["zombie failed" if failed else "zombie rebased"] += 1
        shutil.rmtree(sleeper.root.parent)


def _cases() -> Iterator[Case]:
    off = (0, story.HOUR_MS, -story.HOUR_MS)
    clocks = [(0, 0), *((ms, 0) for ms in off[1:]), *((0, ms) for ms in off[1:])]
    kinds = ("COPY_ON_WRITE", "MERGE_ON_READ")
    # The first ten have every pair of clocks, and each type of table five times.
    every = [
        Case(kinds[(turn + number + recovers) % 2], recovers, *pair)
        for turn, (number, pair), recovers in product((0, 1), enumerate(clocks), (False, True))
    ]
    while True:
        yield from every


def _is_entry(_number: int, verb: str, key: str) -> bool:
    return verb == "put" and key.startswith(".hoodie/.tidelock/ledger/")
