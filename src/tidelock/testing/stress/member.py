"""One process of a stress.

    python -m tidelock.testing.stress.member ROLE NAME FOLDER

A writer does one step after the other, a server runs table services, a reader looks. Each notes
what it did in its journal, and goes on until its standard input ends. Killed and started again, a
writer repeats the step that it was at: its mark keeps it from being applied twice.
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

from tidelock.base.clock import SystemClock
from tidelock.base.errors import Conflict, InvalidInput, NotFound, TidelockError
from tidelock.operation.moment import Moment
from tidelock.operation.report import WriteReport
from tidelock.ops.fleet.journal import Journal, JournalReader
from tidelock.ops.fleet.member import is_wanted
from tidelock.tableservice.running import clustering, compaction, log_compaction
from tidelock.tableservice.table import Table
from tidelock.testing.interleaving.oracle import Deed, Row, computed
from tidelock.testing.stress.terms import COLUMNS, STEP, Terms, schema_of
from tidelock.txn.mark import Mark

PAUSE: Final = "pause"
"""While a file of this name is in the folder, writers and servers begin nothing."""

_UNDOES: Final = 0.04
"""How often a writer takes its own write back."""
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
    """What a process does."""

    WRITER = "writer"
    SERVER = "server"
    READER = "reader"


class Member:
    """A process on its table, with its journal."""

    def __init__(self, name: str, folder: Path, terms: Terms, journal: Journal) -> None:
        """Start nothing."""
        self._name = name
        self._folder = folder
        self._terms = terms
        self._journal = journal
        self._clock = SystemClock()
        self._draw = random.Random()

    def live(self, role: Role) -> None:
        """Do what the role says until the standard input ends."""
        with closing(self._terms.open()) as table:
            match role:
                case Role.WRITER:
                    self._write(table)
                case Role.SERVER:
                    self._serve(table)
                case Role.READER:
                    self._read(table)
        self._journal.note("ended")

    # -- writing --------------------------------------------------------------------------------

    def _write(self, table: Table) -> None:
        step, unfinished = self._resumed()
        self._journal.note("starts", step=step)
        while unfinished or self._goes_on():
            deed = self._terms.deed(self._name, step)
            self._journal.note("begins", step=step, verb=deed.verb)
            try:
                report = self._done(table, deed, step)
            except Conflict as error:
                self._journal.note("refused", step=step, says=str(error))
            except TidelockError as error:
                if isinstance(error, InvalidInput) and deed.verb == "delete_partition":
                    self._journal.note("refused", step=step, says=str(error))
                    unfinished, step = False, step + 1  # there is no such partition
                    continue
                self._journal.note("failed", step=step, says=f"{type(error).__name__}: {error}")
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
                unfinished = is_wanted()
                continue
            else:
                self._journal.note(
                    "wrote",
                    step=step,
                    instant=report.instant,
                    completion=report.completion,
                    repeated=report.repeated,
                    rebases=report.rebases,
                )
                if self._draw.random() < _UNDOES:
                    self._take_back(table, report.instant)
            unfinished = False
            step += 1
            self._clock.sleep_ms(_REST_MS)

    def _resumed(self) -> tuple[int, bool]:
        """Return the step to go on with, and whether it was begun before."""
        last, unfinished = 0, False
        for noted in JournalReader(self._folder / "journals", self._name).fresh():
            if noted.did in ("begins", "wrote", "refused"):
                last, unfinished = noted.facts["step"], noted.did == "begins"
        return (last, True) if unfinished else (last + 1, False)

    def _done(self, table: Table, deed: Deed, step: int) -> WriteReport:
        mark, metadata = Mark(self._name, step), {STEP: f"{self._name}/{step}"}
        match deed.verb:
            case "delete":
                keys = [{"id": key, "region": deed.partition} for key in deed.keys]
                return table.delete(pa.Table.from_pylist(keys), metadata=metadata, mark=mark)
            case "delete_anywhere":
                return table.delete(list(deed.keys), metadata=metadata, mark=mark)
            case "delete_partition":
                return table.delete_partition([deed.partition], metadata=metadata, mark=mark)
            case "rewrite":
                compute = partial(_computed, deed)
                report = table.rewrite(compute, metadata=metadata, mark=mark)
                assert report is not None
                return report
            case _:
                rows = _arrow(deed.rows, deed.columns)
                return table.write(rows, deed.verb, metadata=metadata, mark=mark)

    def _take_back(self, table: Table, instant: str) -> None:
        self._journal.note("undoes", instant=instant)
        try:
            table.rollback(instant)
        except (Conflict, NotFound) as error:
            self._journal.note("kept", instant=instant, says=str(error))
        except TidelockError as error:
            self._journal.note("failed", instant=instant, says=f"{type(error).__name__}: {error}")
        else:
            self._journal.note("undid", instant=instant)

    # -- serving --------------------------------------------------------------------------------

    def _serve(self, table: Table) -> None:
        self._journal.note("starts")
        chosen = dict(_SERVICES)
        if self._terms.kind.type == "cow":
            for name in ("schedule", "execute", "compact", "log_compact"):
                del chosen[name]
        if self._terms.kind.index == "bucket":
            del chosen["cluster"]
        while self._goes_on():
            (service,) = self._draw.choices(list(chosen), list(chosen.values()))
            self._journal.note("serves", service=service)
            try:
                self._run(table, service)
            except (Conflict, NotFound) as error:
                self._journal.note("left", service=service, says=str(error))
            except TidelockError as error:
                says = f"{type(error).__name__}: {error}"
                self._journal.note("failed", service=service, says=says)
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
            else:
                self._journal.note("served", service=service)
            self._clock.sleep_ms(_REST_MS)

    def _run(self, table: Table, service: str) -> None:
        options = self._terms.options
        of = self._draw.choice([compaction, log_compaction, clustering])
        if self._terms.kind.index == "bucket":
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
        self._journal.note("starts")
        since: str | None = None
        while self._goes_on(pauses=False):
            try:
                since = self._look(table, since)
            except NotFound as error:
                # The clean was faster, as it may be; the next look finds other files.
                self._journal.note("late", says=str(error))
            except TidelockError as error:
                self._journal.note("failed", says=f"{type(error).__name__}: {error}")
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
            self._clock.sleep_ms(_REST_MS)

    def _look(self, table: Table, since: str | None) -> str | None:
        """Read the table, what has changed, and what it was at some moment; return where it is."""
        table.refresh()
        rows = table.read().to_pylist()
        # A read looks again when what it has seen of the table was taken back meanwhile.
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
            self._journal.note("late", says=str(error))
        self._journal.note("read", **facts)
        return until

    def _goes_on(self, *, pauses: bool = True) -> bool:
        """Tell whether there is more to do; wait while everybody is to wait."""
        waits = False
        while is_wanted():
            if not pauses or not (self._folder / PAUSE).exists():
                if waits:
                    self._journal.note("resumes")
                return True
            if not waits:
                waits = True
                self._journal.note("waits")
            self._clock.sleep_ms(_REST_MS)
        return False


def _computed(deed: Deed, now: Moment) -> pa.Table:
    return _arrow(computed(now.read(list(COLUMNS)).to_pylist(), deed), deed.columns)


def _arrow(rows: list[Row] | tuple[Row, ...], columns: Mapping[str, str]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema_of(columns))


def main(args: list[str]) -> None:
    """Be a process of the stress in a folder."""
    role, name, where = args
    folder = Path(where)
    with closing(Journal(folder / "journals", name, SystemClock())) as journal:
        Member(name, folder, Terms.load(folder), journal).live(Role(role))


if __name__ == "__main__":
    main(sys.argv[1:])
