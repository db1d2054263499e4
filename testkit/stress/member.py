"""One process of a stress test.

    python -m testkit.stress.member ROLE NAME FOLDER

A writer executes one step after the other, a server runs table services, a reader reads. Each
records its actions in its journal, and runs until its standard input ends. When it is killed and
restarted, a writer repeats its current step; its application transaction prevents it from
being applied twice.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from contextlib import closing
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from testkit.interleaving.oracle import Row, TableChange, computed
from testkit.stress.parameters import COLUMNS, STEP, Parameters, schema_of
from tidelock.core.errors import Conflict, InvalidInput, NotFound, TidelockError
from tidelock.core.system import SystemClock
from tidelock.operations.attempt import ReadSnapshot
from tidelock.operations.report import WriteReport
from tidelock.services.runner import clustering, compaction, log_compaction
from tidelock.table import Table
from tidelock.txn.app_transactions import AppTransaction
from tidelock.workload.fleet import parent_is_running
from tidelock.workload.journal import JournalReader, ProgramJournal

PAUSE: Final = "pause"
"""While a file with this name is in the folder, writers and servers are paused."""

_UNDOES: Final = 0.04
"""How often a writer rolls back its own write."""
_AFTER_FAILURE_MS: Final = 200
_REST_MS: Final = 20
_SERVICES: Final = {
    "schedule": 6,
    "execute": 6,
    "compact": 3,
    "log_compact": 4,
    "cluster": 3,
    "clean": 6,
    "archive": 6,
    "savepoint": 2,
    "rollback": 1,
}


class Role(Enum):
    """The role of a process."""

    WRITER = "writer"
    SERVER = "server"
    READER = "reader"


class Member:
    """A process on its table, with its journal."""

    def __init__(
        self, name: str, folder: Path, parameters: Parameters, journal: ProgramJournal
    ) -> None:
        """Start nothing."""
        self._name = name
        self._folder = folder
        self._parameters = parameters
        self._journal = journal
        self._clock = SystemClock()
        self._draw = random.Random()

    def live(self, role: Role) -> None:
        """Run the role until the standard input ends."""
        with closing(self._parameters.open()) as table:
            match role:
                case Role.WRITER:
                    self._write(table)
                case Role.SERVER:
                    self._serve(table)
                case Role.READER:
                    self._read(table)
        self._journal.append("ended")

    # -- writing --------------------------------------------------------------------------------

    def _write(self, table: Table) -> None:
        step, unfinished = self._resumed()
        self._journal.append("starts", step=step)
        while unfinished or self._goes_on():
            change = self._parameters.change(self._name, step)
            self._journal.append("begins", step=step, verb=change.verb)
            try:
                report = self._done(table, change, step)
            except Conflict as error:
                self._journal.append("refused", step=step, says=str(error))
            except TidelockError as error:
                if isinstance(error, InvalidInput) and change.verb == "delete_partition":
                    self._journal.append("refused", step=step, says=str(error))
                    unfinished, step = False, step + 1  # the partition does not exist
                    continue
                self._journal.append("failed", step=step, says=f"{type(error).__name__}: {error}")
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
                unfinished = parent_is_running()
                continue
            else:
                self._journal.append(
                    "wrote",
                    step=step,
                    instant=report.instant,
                    completion=report.completion,
                    repeated=report.repeated,
                    rebases=report.rebases,
                )
                if self._draw.random() < _UNDOES:
                    self._roll_back(table, report.instant)
            unfinished = False
            step += 1
            self._clock.sleep_ms(_REST_MS)

    def _resumed(self) -> tuple[int, bool]:
        """Return the step to continue with, and whether it was started before."""
        last, unfinished = 0, False
        for event in JournalReader(self._folder / "journals", self._name).read_new():
            if event.kind in ("begins", "wrote", "refused"):
                last, unfinished = event.facts["step"], event.kind == "begins"
        return (last, True) if unfinished else (last + 1, False)

    def _done(self, table: Table, change: TableChange, step: int) -> WriteReport:
        app_transaction, metadata = AppTransaction(self._name, step), {STEP: f"{self._name}/{step}"}
        match change.verb:
            case "delete":
                keys = [{"id": key, "region": change.partition} for key in change.keys]
                return table.delete(
                    pa.Table.from_pylist(keys), metadata=metadata, app_transaction=app_transaction
                )
            case "delete_anywhere":
                return table.delete(
                    list(change.keys), metadata=metadata, app_transaction=app_transaction
                )
            case "delete_partition":
                return table.delete_partition(
                    [change.partition], metadata=metadata, app_transaction=app_transaction
                )
            case "rewrite":
                compute = partial(_computed, change)
                report = table.rewrite(compute, metadata=metadata, app_transaction=app_transaction)
                assert report is not None
                return report
            case _:
                rows = _arrow(change.rows, change.columns)
                return table.write(
                    rows, change.verb, metadata=metadata, app_transaction=app_transaction
                )

    def _roll_back(self, table: Table, instant: str) -> None:
        self._journal.append("undoes", instant=instant)
        try:
            table.rollback(instant)
        except (Conflict, NotFound) as error:
            self._journal.append("kept", instant=instant, says=str(error))
        except TidelockError as error:
            self._journal.append("failed", instant=instant, says=f"{type(error).__name__}: {error}")
        else:
            self._journal.append("undid", instant=instant)

    # -- serving --------------------------------------------------------------------------------

    def _serve(self, table: Table) -> None:
        self._journal.append("starts")
        chosen = dict(_SERVICES)
        if self._parameters.kind.type == "cow":
            for name in ("schedule", "execute", "compact", "log_compact"):
                del chosen[name]
        if self._parameters.kind.index == "bucket":
            del chosen["cluster"]
        while self._goes_on():
            (service,) = self._draw.choices(list(chosen), list(chosen.values()))
            self._journal.append("serves", service=service)
            try:
                self._run(table, service)
            except (Conflict, NotFound) as error:
                self._journal.append("left", service=service, says=str(error))
            except TidelockError as error:
                says = f"{type(error).__name__}: {error}"
                self._journal.append("failed", service=service, says=says)
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
            else:
                self._journal.append("served", service=service)
            self._clock.sleep_ms(_REST_MS)

    def _run(self, table: Table, service: str) -> None:
        options = self._parameters.options
        of = self._draw.choice([compaction, log_compaction, clustering])
        if self._parameters.kind.index == "bucket":
            of = self._draw.choice([compaction, log_compaction])
        match service:
            case "schedule":
                of(table.writer(), options).schedule()
            case "execute":
                of(table.writer(), options).execute_pending()
            case "savepoint":
                for saved in table.savepoints()[:-1]:
                    table.delete_savepoint(saved.instant)
                table.savepoint()
            case _:
                getattr(table, service)()

    # -- reading --------------------------------------------------------------------------------

    def _read(self, table: Table) -> None:
        self._journal.append("starts")
        since: str | None = None
        while self._goes_on(pauses=False):
            try:
                since = self._read_once(table, since)
            except NotFound as error:
                # A clean deleted the files, which is allowed; the next read uses newer ones.
                self._journal.append("late", says=str(error))
            except TidelockError as error:
                self._journal.append("failed", says=f"{type(error).__name__}: {error}")
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
            self._clock.sleep_ms(_REST_MS)

    def _read_once(self, table: Table, since: str | None) -> str | None:
        """Read the table, its changes, and an earlier state; return the new position."""
        table.refresh()
        rows = table.read().to_pylist()
        # A read is repeated if what it read was rolled back in the meantime.
        until = table.latest_completion
        if until is None:
            return None
        facts: dict[str, Any] = {"until": until, "rows": rows}
        past = [i for i in table.timeline if i.is_completed and i.action.writes_data]
        chosen = self._draw.choice(past)
        try:
            if since is not None and since < until:
                changed = table.changes(since, until).to_pylist()
                if table.latest_completion == until:
                    facts |= {"since": since, "changed": changed}
            then = table.read(as_of=chosen.requested).to_pylist()
            if table.latest_completion == until:
                facts |= {"as_of": chosen.requested, "completed": chosen.completion, "then": then}
        except (NotFound, InvalidInput) as error:
            self._journal.append("late", says=str(error))
        self._journal.append("read", **facts)
        return until

    def _goes_on(self, *, pauses: bool = True) -> bool:
        """Return whether there is more to do; wait while all processes are paused."""
        waits = False
        while parent_is_running():
            if not pauses or not (self._folder / PAUSE).exists():
                if waits:
                    self._journal.append("resumes")
                return True
            if not waits:
                waits = True
                self._journal.append("waits")
            self._clock.sleep_ms(_REST_MS)
        return False


def _computed(change: TableChange, now: ReadSnapshot) -> pa.Table:
    return _arrow(computed(now.read(list(COLUMNS)).to_pylist(), change), change.columns)


def _arrow(rows: list[Row] | tuple[Row, ...], columns: Mapping[str, str]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema_of(columns))


def main(args: list[str]) -> None:
    """Run one process of the stress test in a folder."""
    role, name, where = args
    folder = Path(where)
    with closing(ProgramJournal(folder / "journals", name, SystemClock())) as journal:
        Member(name, folder, Parameters.load(folder), journal).live(Role(role))


if __name__ == "__main__":
    main(sys.argv[1:])
