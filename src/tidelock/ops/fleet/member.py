"""One program of a fleet, a process of its own.

    python -m tidelock.ops.fleet.member ROLE NAME FOLDER

It reads `fleet.json` of the folder, keeps a journal there, and goes on until its standard input
ends, so it never outlives who started it. Killed and started again, it goes on where it was.
"""

from __future__ import annotations

import itertools
import os
import select
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from enum import Enum
from pathlib import Path

import pyarrow as pa

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import Conflict, NotFound, TidelockError
from tidelock.ops.fleet.articles import Articles
from tidelock.ops.fleet.hands import Hand, PythonHand, SparkHand, SqlHand, spark_session
from tidelock.ops.fleet.journal import Journal
from tidelock.ops.fleet.looks import Seen, compared
from tidelock.ops.fleet.tally import Tally
from tidelock.tableservice.running import Ran
from tidelock.tableservice.table import Table
from tidelock.txn.mark import Applied, Mark

_SERVICES = ("compact", "cluster", "clean", "archive")
_READ = ("id", "amount")
_AFTER_FAILURE_MS = 300
_TALLY_EVERY_MS = 1_000


class Role(Enum):
    """What a program does."""

    PYTHON = "python"
    SPARK = "spark"
    SQL = "sql"
    SERVICES = "services"
    READER = "reader"


class Member:
    """A program on its table, with its journal."""

    def __init__(self, name: str, articles: Articles, journal: Journal, clock: Clock) -> None:
        """Start nothing."""
        self._name = name
        self._articles = articles
        self._journal = journal
        self._clock = clock
        self._tally = Tally()
        self._tallied_ms = self._now_ms()

    def live(self, role: Role) -> None:
        """Do what the role says until the standard input ends."""
        with closing(self._articles.open()) as table:
            match role:
                case Role.SERVICES:
                    self._serve(table)
                case Role.READER:
                    self._read(table)
                case _:
                    with self._hand(role, table) as hand:
                        self._write(hand, table)
        self._note_requests()
        self._journal.note("ended")

    @contextmanager
    def _hand(self, role: Role, table: Table) -> Iterator[Hand]:
        if role is Role.PYTHON:
            yield PythonHand(table)
            return
        kind = SparkHand if role is Role.SPARK else SqlHand
        with spark_session(self._name) as spark:
            yield kind(spark, self._articles.uri, self._articles.all_options)

    def _write(self, hand: Hand, table: Table) -> None:
        """Do one step after the other; one whose end is not known is tried until it is."""
        number = self._resumed(table) + 1
        self._tally.spent()
        while self._goes_on():
            began_ms = self._now_ms()
            step = hand.step_of(self._articles.terms, self._name, number)
            self._journal.note("begins", step=number)
            try:
                rebases = hand.do(step, Mark(self._name, number))
            except TidelockError as error:
                self._journal.note("failed", step=number, says=str(error))
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
                continue
            applied = self._applied(table)
            assert applied is not None
            took_ms, spent = self._now_ms() - began_ms, self._tally.spent()
            self._journal.note(
                "wrote",
                step=applied.mark.version,
                completion=applied.completion,
                took_ms=took_ms,
                commit_ms=spent.commit_ms,
                wait_ms=spent.wait_ms,
                lock_ms=spent.lock_ms,
                rebases=rebases,
            )
            number = applied.mark.version + 1
            self._clock.sleep_ms(self._articles.pause_ms)

    def _resumed(self, table: Table) -> int:
        """Return how far the table says that this program had come, whatever it remembers."""
        applied = self._applied(table)
        if applied is None:
            self._journal.note("starts")
            return 0
        step = applied.mark.version
        self._journal.note("resumes", step=step, completion=applied.completion)
        return step

    def _applied(self, table: Table) -> Applied | None:
        return table.writer().transactions.ledger.refresh().marks.get(self._name)

    def _serve(self, table: Table) -> None:
        """Run one service after the other; what somebody else is at is left to them."""
        self._journal.note("starts")
        for service in itertools.cycle(_SERVICES):
            if not self._goes_on():
                return
            began_ms = self._now_ms()
            try:
                ran = getattr(table, service)()
            except Conflict:
                ran = Ran()
            except TidelockError as error:
                self._journal.note("failed", service=service, says=str(error))
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
                continue
            done = len(ran.executed) if isinstance(ran, Ran) else int(ran.instants > 0)
            gave_way = sum(left.overtaken for left in ran.left) if isinstance(ran, Ran) else 0
            if done or gave_way:
                took_ms = self._now_ms() - began_ms
                self._journal.note(
                    "served", service=service, done=done, gave_way=gave_way, took_ms=took_ms
                )
            self._clock.sleep_ms(self._articles.service_pause_ms)

    def _read(self, table: Table) -> None:
        """Read the table over and over, whole and what has changed, and compare the two."""
        self._journal.note("starts")
        last: dict[int, Seen] = {}
        since: str | None = None
        while self._goes_on():
            began_ms = self._now_ms()
            try:
                table.refresh()
                count, now = _looked(table.read(_READ, meta_columns=True))
                changed = None if since is None else _changes(table, since)
            except NotFound:
                # The clean was faster, as it may be; the next look finds other files.
                self._journal.note("late", took_ms=self._now_ms() - began_ms)
                continue
            except TidelockError as error:
                self._journal.note("failed", says=str(error))
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
                continue
            faults = compared(last, now, changed, deletes=self._articles.deletes)
            self._journal.note(
                "read",
                rows=count,
                twice=count - len(now),
                **asdict(faults),
                summed=changed is not None,
                took_ms=self._now_ms() - began_ms,
            )
            last, since = now, table.latest_completion
            self._clock.sleep_ms(self._articles.reader_pause_ms)

    def _goes_on(self) -> bool:
        """Tell whether there is more to do, and note now and then what was asked of the store."""
        if self._now_ms() >= self._tallied_ms + _TALLY_EVERY_MS:
            self._note_requests()
        return is_wanted()

    def _note_requests(self) -> None:
        self._tallied_ms = self._now_ms()
        if sent := self._tally.sent():
            self._journal.note("asked", **sent)

    def _now_ms(self) -> int:
        return self._clock.now().monotonic_ms


def _looked(found: pa.Table) -> tuple[int, dict[int, Seen]]:
    """Return how many rows there are, and the rows by key."""
    names = ("id", "_hoodie_commit_time", "amount")
    ids, times, amounts = (found.column(name).to_pylist() for name in names)
    return len(ids), dict(zip(ids, map(Seen, times, amounts), strict=True))


def _changes(table: Table, since: str) -> dict[int, Seen] | None:
    """Return what was written after `since`; None if the clean has been there already."""
    try:
        return _looked(table.changes(since, columns=_READ, meta_columns=True))[1]
    except NotFound:
        return None


def is_wanted() -> bool:
    """Tell whether who started this program still runs: our input is open, and nothing comes."""
    readable, _, _ = select.select([0], [], [], 0)
    return not readable or os.read(0, 1) != b""


def main(args: list[str]) -> None:
    """Be a member of the fleet in a folder."""
    role, name, folder = args
    with ExitStack() as held:
        clock = SystemClock()
        journal = held.enter_context(closing(Journal(Path(folder) / "journals", name, clock)))
        Member(name, Articles.load(Path(folder)), journal, clock).live(Role(role))


if __name__ == "__main__":
    main(sys.argv[1:])
