"""One schedule with rows: inject faults, heal the world, recover, and read."""

from __future__ import annotations

import random
from typing import TypeVar

from testkit.txnsim.checked_store import StoreClock, WriteRecord
from testkit.txnsim.lease import Lease
from testkit.txnsim.plan import HOUR_MS, Fault, Plan, draw
from testkit.txnsim.rows.actors import (
    SCHEMA,
    RowProcess,
    RowReader,
    RowService,
    RowWriter,
    inline_pools,
)
from testkit.txnsim.rows.checking import violations
from testkit.txnsim.rows.external import ExternalWriterScenario
from testkit.txnsim.rows.parameters import (
    KEYS,
    PARTITIONS,
    ExternalAct,
    InputRow,
    Job,
    Op,
    Parameters,
    Work,
    draw_rows,
    without_stale,
)
from testkit.txnsim.rows.truth import RowStore, RowTruth
from testkit.txnsim.schedule import Outcome, errors_recorded, outcome_of, quiet
from testkit.txnsim.services.scene import Stage, kept_entries
from testkit.txnsim.world import Process
from tidelock.core.system import SeededIds
from tidelock.hudi.properties import create_properties
from tidelock.operations.create import table_properties
from tidelock.storage.conditional import ReadbackPolicy

_EVENTS_MAX = 60_000
_LIFE_MS = 11_000.0
_TOKENS = 1_000
"""Grants of the table's lock before the start, so that a reset counter is behind."""

P = TypeVar("P", bound=RowProcess)


def run_schedule(
    seed: int, trace: list[str] | None = None, parameters: Parameters | None = None
) -> Outcome:
    """Run the schedule of `seed` to its end and check everything.

    If `parameters` is None, they are drawn from the seed.
    """
    plan, rng = draw(seed)
    scene = RowScene(without_stale(plan), parameters or draw_rows(seed), rng, trace)
    if trace is not None:
        trace.append(f"{scene.plan} {scene.parameters}")
    truth = scene.truth
    with quiet(), inline_pools(), kept_entries(scene.parameters.kept_entries):
        with errors_recorded(scene.world, truth):
            scene.play()
        found = tuple(violations(truth, scene.store, scene.parameters))
    if trace is not None:
        trace += truth.ledger_lines()
    replay = f"{plan.replay} --rows"
    return outcome_of(scene.world, truth, found, services=truth.services, replay=replay)


class RowScene(Stage):
    """The table, its processes, and the fault injection."""

    events_max = _EVENTS_MAX
    clocks_ms = (100, 5_000, HOUR_MS, 8 * 24 * HOUR_MS)

    def __init__(
        self, plan: Plan, parameters: Parameters, rng: random.Random, trace: list[str] | None
    ) -> None:
        """Create the table, without rows."""
        super().__init__(plan, rng, trace)
        self.parameters = parameters
        self.truth = RowTruth(event_time=parameters.event_time)
        self.store = RowStore(self.world, self.truth, parameters)
        identity = {
            "hoodie.table.name": "sim",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ"
            if parameters.merges
            else "COPY_ON_WRITE",
            "hoodie.datasource.write.recordkey.field": "k",
            "hoodie.datasource.write.partitionpath.field": "p",
            **({"hoodie.table.ordering.fields": "ts"} if parameters.event_time else {}),
        }
        properties = table_properties(self.store.uri, SCHEMA, {**parameters.options(), **identity})
        self.lease = Lease(plan.lease_ms, token=_TOKENS) if plan.lease_ms else None
        clock, ids = StoreClock(self.world), SeededIds(plan.seed)
        create_properties(self.store, properties, policy=ReadbackPolicy(clock=clock, ids=ids))

    @property
    def broken(self) -> list[str]:
        """Where violations are reported."""
        return self.truth.broken

    def fill(self) -> None:
        """Write the initial keys, to the first partition."""
        rows = tuple(InputRow(PARTITIONS[0], key, 5, place) for place, key in enumerate(KEYS[:3]))
        self._written(Job("first", Op.UPSERT, rows))

    def enter(self) -> None:
        """Start writers, services and a reader, according to the parameters."""
        for number, jobs in enumerate(self.parameters.jobs):
            todo = [self.add_job(job) for job in jobs]
            self.add(lambda number=number, todo=todo: self._writer(number, todo))  # type: ignore[misc]
        for number, works in enumerate(self.parameters.services):
            turns = list(works)
            self.add(lambda number=number, turns=turns: self._service_process(number, turns))  # type: ignore[misc]
        if self.parameters.reads:
            reads = list(range(self.parameters.reads))
            self.add(lambda: self._reader(reads))
        if self.lease is not None and self.parameters.restarts:
            self.world.at(self.world.now + 3_000 * self.world.random(), self._restart)

    def _restart(self) -> None:
        """Reset the counter of the lock, as when its record is deleted."""
        if self.lease is not None:
            self.world.log("world", "the lock's counter is reset")
            self.lease.restart()

    def abandon(self, process: Process) -> None:
        """Mark the current write of a dead process as unknown: its result is not received."""
        number = process.name.partition(".")[0]
        for record in self.truth.records:
            if record.write.startswith(f"{number}x") and not record.ended:
                record.unknown |= set(record.instants) - record.failed
                record.ended = bool(record.acked or record.unknown)
                return

    def recover(self) -> None:
        """After a heartbeat's lifetime, roll back dead writes; then write once more."""
        self.world.now += _LIFE_MS
        recovery = self.made(RowService, "mender")
        self.alone(recovery, lambda: recovery.attempt("mend", recovery.table().rollback))
        if (
            self.parameters.external_act is not ExternalAct.NOTHING
            and Fault.CLOCK not in self.plan.faults
        ):
            ExternalWriterScenario(self, self.made(RowWriter, "keeper")).play()
        rows = (
            InputRow(PARTITIONS[0], KEYS[0], 20, 9_000),
            InputRow(PARTITIONS[1], KEYS[1], 20, 9_001),
        )
        self._written(Job("last", Op.UPSERT, rows))

    def add_job(self, job: Job) -> WriteRecord:
        """Record a job in the history."""
        record = WriteRecord(job.name, ())
        self.truth.jobs[job.name] = job
        self.truth.records.append(record)
        return record

    def _written(self, job: Job) -> None:
        record = self.add_job(job)
        writer = self.made(RowWriter, job.name)
        self.alone(writer, lambda: writer.work([record]))

    def _writer(self, number: int, todo: list[WriteRecord]) -> RowWriter:
        writer = self.made(RowWriter, self.named(f"w{number}"), number)
        writer.start(lambda: writer.work(todo), delay_ms=self.world.random() * 300)
        return writer

    def _service_process(self, number: int, turns: list[Work]) -> RowService:
        service = self.made(RowService, self.named(f"s{number}"), 2)
        service.start(lambda: service.serve(turns), delay_ms=self.world.random() * 300)
        return service

    def _reader(self, turns: list[int]) -> RowReader:
        reader = self.made(RowReader, self.named("reader"))
        reader.start(lambda: reader.serve(turns), delay_ms=self.world.random() * 300)
        return reader

    def made(self, kind: type[P], name: str, number: int | None = None) -> P:
        """Return a process with the clock of its number, or a correct one."""
        offset_ms = 0.0 if number is None else self.plan.clock_offsets_ms[number]
        if kind is RowService and number is not None and self.parameters.ahead:
            offset_ms = 8 * 24 * HOUR_MS
        made = kind(self.world, name, self.store, self.parameters, offset_ms=offset_ms)
        made.lease = self.lease
        return made
