"""One program of a table fleet, run as a process of its own.

    python -m tidelock.workload.table_program ROLE NAME FOLDER

It loads the spec from the folder, writes a journal there, and runs until its standard input ends,
so it never outlives its parent. A program that was killed and restarted resumes where it was.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from tidelock.core.clock import Clock
from tidelock.core.errors import Conflict, NotFound, TidelockError
from tidelock.core.system import SystemClock
from tidelock.core.telemetry import PROCESS, Metrics, Snapshot, Timer
from tidelock.lock import config as lock_config
from tidelock.services import config as services_config
from tidelock.services.runner import ServiceRun
from tidelock.storage.telemetry import VERBS
from tidelock.table import Table
from tidelock.txn import config as txn_config
from tidelock.txn.app_transactions import AppliedTransaction, AppTransaction
from tidelock.workload.fleet import SPEC_FILE, ProcessPool, parent_is_running
from tidelock.workload.journal import ProgramJournal
from tidelock.workload.steps import StepGenerator
from tidelock.workload.table_writers import (
    SCHEMA,
    PythonStepWriter,
    SparkStepWriter,
    SqlStepWriter,
    StepWriter,
    spark_session,
)

FAST_OPTIONS: Final = {
    # Dead writers are detected, and old instants are cleaned, within seconds instead of minutes.
    txn_config.HEARTBEAT_INTERVAL_MS.key: "1000",
    txn_config.HEARTBEAT_MISSES.key: "3",
    services_config.CLEAN_AUTOMATIC.key: "false",
    services_config.ARCHIVE_AUTOMATIC.key: "false",
    services_config.CLEAN_COMMITS.key: "10",
    services_config.ARCHIVE_MIN.key: "20",
    services_config.ARCHIVE_MAX.key: "30",
    services_config.COMPACT_COMMITS.key: "5",
}

LOCK_OPTIONS: Final = {
    # The options that Hudi requires of several writers, with the shortest lease that it allows:
    # a killed holder blocks the others for seconds only.
    lock_config.PROVIDER.key: "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider",
    txn_config.CONCURRENCY_MODE.key: "optimistic_concurrency_control",
    txn_config.FAILED_WRITES.key: "LAZY",
    lock_config.VALIDITY_S.key: "10",
    lock_config.RENEW_S.key: "1",
}


class Role(Enum):
    """The kind of a program."""

    PYTHON = "python"
    SPARK = "spark"
    SQL = "sql"
    SERVICES = "services"
    READER = "reader"


WRITER_ROLES: Final = frozenset({Role.PYTHON, Role.SPARK, Role.SQL})


@dataclass(frozen=True, slots=True)
class TableFleetSpec:
    """The table of a fleet, and the settings of its programs."""

    uri: str
    generator: StepGenerator = field(default_factory=StepGenerator)
    table_type: str = "MERGE_ON_READ"
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=lambda: dict(FAST_OPTIONS))
    pause_ms: int = 100
    service_pause_ms: int = 250
    reader_pause_ms: int = 250
    deletes: bool = False
    """Whether some program deletes rows."""

    @property
    def all_options(self) -> dict[str, str]:
        """The options for Spark: those of the store and those of writes."""
        return {**self.settings, **self.options}

    def save(self, folder: Path) -> None:
        """Write the spec to the folder."""
        (folder / SPEC_FILE).write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> TableFleetSpec:
        """Read the spec from the folder."""
        fields = json.loads((folder / SPEC_FILE).read_text())
        return cls(**{**fields, "generator": StepGenerator(**fields["generator"])})

    def create(self) -> None:
        """Create the table unless it exists."""
        Table.create(
            self.uri,
            SCHEMA,
            key="id",
            partition_by="region",
            type=self.table_type,
            name="orders",
            exist_ok=True,
            settings=self.settings,
            options=self.options,
        ).close()

    def open(self) -> Table:
        """Open the table."""
        return Table.open(self.uri, settings=self.settings, options=self.options)


TablePool = ProcessPool[TableFleetSpec, Role]


def table_pool(folder: Path, spec: TableFleetSpec) -> TablePool:
    """Return the process pool of a table fleet, with no program started."""
    return TablePool(folder, spec, "tidelock.workload.table_program")


class SeenRow(NamedTuple):
    """A row as one read returned it: the instant that wrote it, and its amount."""

    time: str
    amount: int


SeenRows = Mapping[int, SeenRow]
"""Rows by key."""


@dataclass(frozen=True, slots=True)
class ReadViolations:
    """The number of keys that contradict the previous read."""

    back: int = 0
    """Rows of an older write than before."""
    lost: int = 0
    """Keys that disappeared although no program deletes."""
    missed: int = 0
    """Rows that do not follow from the previous read and the changes since then."""


def compare_reads(
    before: SeenRows, now: SeenRows, changed: SeenRows | None, *, deletes: bool
) -> ReadViolations:
    """Compare two reads; `changed` is the result of an incremental read between them, if any.

    `deletes` is true if some program of the fleet deletes rows.
    """
    back = sum(key in before and row.time < before[key].time for key, row in now.items())
    lost = 0 if deletes else len(before.keys() - now.keys())
    missed = 0
    if changed is not None:
        # Every amount is known: changed rows are in the changes, all others are as before.
        missed = sum(changed.get(key, before.get(key)) != row for key, row in now.items())
        missed += len(changed.keys() - now.keys())
    return ReadViolations(back, lost, missed)


_LOCK_WAIT, _QUEUE_WAIT = "txn.lock.wait", "store.line.wait"
"""Timers of waits for other writers: for the table's lock, and in the queue of this machine."""


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """How long one write spent in its commits, and waiting for other writers."""

    commit_ms: int
    wait_ms: int
    lock_ms: int
    """The part of `wait_ms` spent waiting for the table's lock."""


@dataclass(slots=True)
class MetricDeltas:
    """Reads the metrics of this process as differences from the previous call."""

    metrics: Metrics = field(default_factory=lambda: PROCESS)
    _sent: dict[str, int] = field(default_factory=dict)
    _timed: dict[str, float] = field(default_factory=dict)

    def requests(self) -> dict[str, int]:
        """Return the number of requests by verb since the last call."""
        totals = {verb: self.metrics.counter(f"store.{verb}") for verb in VERBS}
        new = {verb: count - self._sent.get(verb, 0) for verb, count in totals.items()}
        self._sent = totals
        return {verb: count for verb, count in new.items() if count}

    def commit_times(self) -> CommitTimes:
        """Return how long commits and waits took since the last call."""
        snapshot = self.metrics.snapshot()
        commit_ms = self._new_ms(snapshot, "txn.commit.duration")
        lock_ms = self._new_ms(snapshot, _LOCK_WAIT)
        return CommitTimes(commit_ms, lock_ms + self._new_ms(snapshot, _QUEUE_WAIT), lock_ms)

    def _new_ms(self, snapshot: Snapshot, name: str) -> int:
        total_ms = snapshot.timers.get(name, Timer()).total_ms
        new_ms = total_ms - self._timed.get(name, 0.0)
        self._timed[name] = total_ms
        return round(new_ms)


_SERVICES = ("compact", "cluster", "clean", "archive")
_READ_COLUMNS = ("id", "amount")
_AFTER_FAILURE_MS = 300
_REQUESTS_EVERY_MS = 1_000


class TableProgram:
    """A program with its table and its journal."""

    def __init__(
        self, name: str, spec: TableFleetSpec, journal: ProgramJournal, clock: Clock
    ) -> None:
        self._name = name
        self._spec = spec
        self._journal = journal
        self._clock = clock
        self._deltas = MetricDeltas()
        self._requests_ms = self._now_ms()

    def run(self, role: Role) -> None:
        """Run the loop of the role until standard input ends."""
        with closing(self._spec.open()) as table:
            match role:
                case Role.SERVICES:
                    self._run_services(table)
                case Role.READER:
                    self._read(table)
                case _:
                    with self._writer(role, table) as writer:
                        self._write(writer, table)
        self._record_requests()
        self._journal.append("ended")

    @contextmanager
    def _writer(self, role: Role, table: Table) -> Iterator[StepWriter]:
        if role is Role.PYTHON:
            yield PythonStepWriter(table)
            return
        kind = SparkStepWriter if role is Role.SPARK else SqlStepWriter
        with spark_session(self._name) as spark:
            yield kind(spark, self._spec.uri, self._spec.all_options)

    def _write(self, writer: StepWriter, table: Table) -> None:
        """Apply one step after the other; retry a step whose outcome is unknown."""
        number = self._last_step(table) + 1
        self._deltas.commit_times()
        while self._continues():
            began_ms = self._now_ms()
            step = writer.step_of(self._spec.generator, self._name, number)
            self._journal.append("begins", step=number)
            try:
                rebases = writer.apply(step, AppTransaction(self._name, number))
            except TidelockError as error:
                self._journal.append("failed", step=number, says=str(error))
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
                continue
            applied = self._applied(table)
            assert applied is not None
            took_ms = self._now_ms() - began_ms
            self._journal.append(
                "wrote",
                step=applied.app_transaction.version,
                completion=applied.completion,
                took_ms=took_ms,
                **asdict(self._deltas.commit_times()),
                rebases=rebases,
            )
            number = applied.app_transaction.version + 1
            self._clock.sleep_ms(self._spec.pause_ms)

    def _last_step(self, table: Table) -> int:
        """Return the last step of this program that the table contains."""
        applied = self._applied(table)
        if applied is None:
            self._journal.append("starts")
            return 0
        step = applied.app_transaction.version
        self._journal.append("resumes", step=step, completion=applied.completion)
        return step

    def _applied(self, table: Table) -> AppliedTransaction | None:
        return table.writer().transactions.ledger.refresh().app_transactions.get(self._name)

    def _run_services(self, table: Table) -> None:
        """Run one service after the other; skip plans that another process executes."""
        self._journal.append("starts")
        for service in itertools.cycle(_SERVICES):
            if not self._continues():
                return
            began_ms = self._now_ms()
            try:
                run = getattr(table, service)()
            except Conflict:
                run = ServiceRun()
            except TidelockError as error:
                self._journal.append("failed", service=service, says=str(error))
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
                continue
            done, preempted = int(getattr(run, "instants", 0) > 0), 0
            if isinstance(run, ServiceRun):
                done, preempted = len(run.executed), sum(each.conflicted for each in run.skipped)
            if done or preempted:
                took_ms = self._now_ms() - began_ms
                self._journal.append(
                    "served", service=service, done=done, gave_way=preempted, took_ms=took_ms
                )
            self._clock.sleep_ms(self._spec.service_pause_ms)

    def _read(self, table: Table) -> None:
        """Repeat a full and an incremental read of the table, and compare the two."""
        self._journal.append("starts")
        last: dict[int, SeenRow] = {}
        since: str | None = None
        while self._continues():
            began_ms = self._now_ms()
            try:
                table.refresh()
                count, now = _by_key(table.read(_READ_COLUMNS, meta_columns=True))
                changed = None if since is None else _changes(table, since)
            except NotFound:
                # A clean removed the files first, which is allowed; the next read sees others.
                self._journal.append("late", took_ms=self._now_ms() - began_ms)
                continue
            except TidelockError as error:
                self._journal.append("failed", says=str(error))
                self._clock.sleep_ms(_AFTER_FAILURE_MS)
                continue
            violations = compare_reads(last, now, changed, deletes=self._spec.deletes)
            self._journal.append(
                "read",
                rows=count,
                twice=count - len(now),
                **asdict(violations),
                summed=changed is not None,
                took_ms=self._now_ms() - began_ms,
            )
            last, since = now, table.latest_completion
            self._clock.sleep_ms(self._spec.reader_pause_ms)

    def _continues(self) -> bool:
        """Return whether to go on; record the request counts at intervals."""
        if self._now_ms() >= self._requests_ms + _REQUESTS_EVERY_MS:
            self._record_requests()
        return parent_is_running()

    def _record_requests(self) -> None:
        self._requests_ms = self._now_ms()
        if requests := self._deltas.requests():
            self._journal.append("asked", **requests)

    def _now_ms(self) -> int:
        return self._clock.now().monotonic_ms


def _by_key(data: pa.Table) -> tuple[int, dict[int, SeenRow]]:
    """Return the number of rows, and the rows by key."""
    names = ("id", "_hoodie_commit_time", "amount")
    ids, times, amounts = (data.column(name).to_pylist() for name in names)
    return len(ids), dict(zip(ids, map(SeenRow, times, amounts), strict=True))


def _changes(table: Table, since: str) -> dict[int, SeenRow] | None:
    """Return the rows written after `since`; None if a clean has removed their files."""
    try:
        return _by_key(table.changes(since, columns=_READ_COLUMNS, meta_columns=True))[1]
    except NotFound:
        return None


def main(args: list[str]) -> None:
    """Run one program of the fleet in a folder."""
    role, name, folder = args
    clock = SystemClock()
    with closing(ProgramJournal(Path(folder) / "journals", name, clock)) as journal:
        TableProgram(name, TableFleetSpec.load(Path(folder)), journal, clock).run(Role(role))


if __name__ == "__main__":
    main(sys.argv[1:])
