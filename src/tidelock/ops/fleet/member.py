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
from enum import Enum
from pathlib import Path

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import Conflict, TidelockError
from tidelock.ops.fleet.articles import Articles
from tidelock.ops.fleet.hands import Hand, PythonHand, SparkHand, SqlHand, spark_session
from tidelock.ops.fleet.journal import Journal
from tidelock.tableservice.running import Ran
from tidelock.tableservice.table import Table
from tidelock.txn.mark import Applied, Mark

_SERVICES = ("compact", "cluster", "clean", "archive")
_AFTER_FAILURE_MS = 300


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
        while is_wanted():
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
            took_ms = self._now_ms() - began_ms
            self._journal.note(
                "wrote",
                step=applied.mark.version,
                completion=applied.completion,
                took_ms=took_ms,
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
            if not is_wanted():
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
        """Read the table over and over: no key twice, and no row older than it was."""
        self._journal.note("starts")
        last: dict[int, str] = {}
        while is_wanted():
            began_ms = self._now_ms()
            try:
                table.refresh()
                found = table.read(columns=["id"], meta_columns=True)
            except TidelockError as error:
                self._journal.note("failed", says=str(error))
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
                continue
            ids = found.column("id").to_pylist()
            times = dict(zip(ids, found.column("_hoodie_commit_time").to_pylist(), strict=True))
            back = [key for key, time in times.items() if time < last.get(key, "")]
            self._journal.note(
                "read",
                rows=len(ids),
                twice=len(ids) - len(times),
                back=len(back),
                took_ms=self._now_ms() - began_ms,
            )
            last = times
            self._clock.sleep_ms(self._articles.service_pause_ms)

    def _now_ms(self) -> int:
        return self._clock.now().monotonic_ms


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
