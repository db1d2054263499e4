"""Writers that are stopped between their conflict check and their commit, and resume later.

Meanwhile others commit to the same file groups, and may treat the stopped writer as dead. When it
resumes it writes again on top of them, or fails; no update is lost.
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

from testkit.tablecrash import scenario
from testkit.tablecrash.children import fork, wait
from testkit.tablecrash.stops import OffClock, Stop, StoppingStore
from tidelock.core.errors import TidelockError
from tidelock.storage.local import LocalStore

if TYPE_CHECKING:
    from testkit.tablecrash.harness import Report

STOPPED: scenario.Rows = {"a1": "stopped", "a2": "stopped", "b9": "stopped"}
OTHER: scenario.Rows = {"a1": "other", "a3": "other", "b9": "other"}
_SLEEP_S = 2.5 * scenario.HEARTBEAT_MS / 1000
_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of round: the clock errors, and whether the other writer runs recovery first."""

    kind: str
    recovers: bool
    stopped_off_ms: int = 0
    other_off_ms: int = 0

    def __str__(self) -> str:
        """Return a short description."""
        return (
            f"{self.kind}, clocks off by {self.stopped_off_ms} and {self.other_off_ms} ms,"
            f" {'' if self.recovers else 'not '}treated as dead"
        )


@dataclass(slots=True)
class StoppedWriter:
    """A stopped process, its table, and the file for its result."""

    case: Case
    root: Path
    pid: int
    result_file: Path


@dataclass(slots=True)
class Zombies:
    """Rounds of stopped writers, several at a time. This process must have no other threads."""

    home: Path
    report: Report

    def run(self, rounds: int) -> None:
        """Run that many rounds, cycling through all cases."""
        cases = _cases()
        while rounds > 0:
            batch = [next(cases) for _ in range(min(rounds, _AT_ONCE))]
            rounds -= len(batch)
            stopped_writers = [self._stop_writer(case) for case in batch]
            # Longer than the lifetime of a heartbeat.
            time.sleep(_SLEEP_S)
            for stopped in stopped_writers:
                self._commit_others(stopped)
            for stopped in stopped_writers:
                self._resume(stopped)

    def _stop_writer(self, case: Case) -> StoppedWriter:
        root = Path(tempfile.mkdtemp(dir=self.home)) / "table"
        result_file = root.parent / "result.json"
        wait(fork(lambda: scenario.make_table(root, case.kind)))
        stop = Stop(_is_entry, signal.SIGSTOP)

        def live() -> None:
            store = StoppingStore(LocalStore(root), stop)
            with scenario.open_on(store, OffClock(case.stopped_off_ms)) as table:
                try:
                    report = table.upsert(scenario.rows_of(STOPPED))
                    result_file.write_text(json.dumps({"rebases": report.rebases}))
                except TidelockError as error:
                    result_file.write_text(json.dumps({"error": str(error)}))

        pid = fork(live)
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.report.problems.append(f"{case}: the stopped writer exited with {status}")
        return StoppedWriter(case, root, pid, result_file)

    def _commit_others(self, stopped: StoppedWriter) -> None:
        case, root = stopped.case, stopped.root

        def live() -> None:
            with scenario.open_on(LocalStore(root), OffClock(case.other_off_ms)) as table:
                if case.recovers:
                    table.writer().transactions.recover()
                table.upsert(scenario.rows_of(OTHER))

        if status := wait(fork(live)):
            self.report.problems.append(f"{case}: the other writer exited with {status}")

    def _resume(self, stopped: StoppedWriter) -> None:
        os.kill(stopped.pid, signal.SIGCONT)
        status = wait(stopped.pid)
        case = stopped.case
        if status or not stopped.result_file.exists():
            self.report.problems.append(f"{case}: the stopped writer exited with {status}")
            return
        answer = json.loads(stopped.result_file.read_text())
        rows_file = stopped.root.parent / "rows.json"

        def read_rows() -> None:
            with scenario.open_on(LocalStore(stopped.root)) as table:
                rows_file.write_text(json.dumps(scenario.read(table)))

        wait(fork(read_rows))
        rows = json.loads(rows_file.read_text()) if rows_file.exists() else {}
        failed = "error" in answer
        # The other writer is first in the ledger; the stopped writer's updates come after it.
        expected = {**scenario.FIRST, **OTHER, **({} if failed else STOPPED)}
        if rows != expected:
            message = f"expected the rows {expected}, found {rows} ({answer})"
            self.report.problems.append(f"{case}: {message}")
        if not failed and not answer["rebases"]:
            self.report.problems.append(f"{case}: the stopped writer detected no conflict")
        self.report.points["zombie failed" if failed else "zombie rebased"] += 1
        shutil.rmtree(stopped.root.parent)


def _cases() -> Iterator[Case]:
    off = (0, scenario.HOUR_MS, -scenario.HOUR_MS)
    clocks = [(0, 0), *((ms, 0) for ms in off[1:]), *((0, ms) for ms in off[1:])]
    kinds = ("COPY_ON_WRITE", "MERGE_ON_READ")
    # The first ten have every pair of clocks, and each table type five times.
    every = [
        Case(kinds[(turn + number + recovers) % 2], recovers, *pair)
        for turn, (number, pair), recovers in product((0, 1), enumerate(clocks), (False, True))
    ]
    while True:
        yield from every


def _is_entry(_number: int, verb: str, key: str) -> bool:
    return verb == "put" and key.startswith(".hoodie/.tidelock/ledger/")
