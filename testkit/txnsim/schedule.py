"""Runs one schedule: inject faults, heal the world, let all processes finish, then check."""

from __future__ import annotations

import logging
import random
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from testkit.txnsim.archiver import Archiver
from testkit.txnsim.checked_store import CheckedStore, History, WriteRecord
from testkit.txnsim.checkers import violations
from testkit.txnsim.lease import Lease, LeaseLock
from testkit.txnsim.mixed import MixedWriter
from testkit.txnsim.plan import HOUR_MS, OLD_KEYS, Fault, Plan, draw
from testkit.txnsim.truth import table_at
from testkit.txnsim.world import World
from testkit.txnsim.writer import Writer
from tidelock.core.errors import TidelockError
from tidelock.hudi.properties import TableProperties, load_properties
from tidelock.hudi.snapshot import open_table
from tidelock.lock.provider import LockProvider
from tidelock.storage.contract import Create
from tidelock.txn.transaction_manager import TableLock

_DISTURBED_MS = 12_000.0
_LIVENESS_BOUND_MS = 120_000.0
_EVENTS_MAX = 30_000
_LOCK_WAIT_MS = 3_000
PROPERTIES = "".join(
    f"{key}={value}\n"
    for key, value in {
        "hoodie.table.name": "sim",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.initial.version": "9",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "p",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.table.timeline.timezone": "UTC",
    }.items()
).encode()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one schedule."""

    plan: Plan
    violations: tuple[str, ...]
    events: int
    commits: int
    rebases: int
    fired: Counter[Fault]
    services: int = 0
    replay: str = ""


def run_schedule(seed: int, trace: list[str] | None = None) -> Outcome:
    """Run the schedule of `seed` to its end and check everything."""
    plan, rng = draw(seed)
    scene = Scene(plan, rng, trace)
    if trace is not None:
        trace.append(f"{plan}")
    history = scene.history
    with quiet(), errors_recorded(scene.world, history):
        scene.play()
    found = tuple(violations(history, scene.store))
    return outcome_of(scene.world, history, found, replay=plan.replay)


def outcome_of(
    world: World, history: History, found: tuple[str, ...], *, services: int = 0, replay: str
) -> Outcome:
    """Return the result of a schedule that has ended."""
    return Outcome(
        world.plan,
        found,
        world.events,
        len(history.position),
        sum(len(record.instants) - 1 for record in history.records if record.instants),
        world.fired,
        services=services,
        replay=replay,
    )


@contextmanager
def errors_recorded(world: World, history: History) -> Iterator[None]:
    """Run a schedule and end its world; any error is a violation, reported with its seed."""
    try:
        yield
    except Exception as error:
        history.broken.append(f"{type(error).__name__}: {error}")
        if world.trace is not None:
            world.trace.append(traceback.format_exc())
    finally:
        world.end()


class Scene:
    """The table, its writers, and the fault injection."""

    def __init__(self, plan: Plan, rng: random.Random, trace: list[str] | None) -> None:
        """Set up an empty table."""
        self.plan = plan
        self.world = World(plan, rng, trace)
        self.history = History()
        self.store = CheckedStore(self.world, self.history)
        merged = PROPERTIES.replace(b"COPY_ON_WRITE", b"MERGE_ON_READ")
        properties = merged if plan.bucketed else PROPERTIES
        self.store.put(".hoodie/hoodie.properties", properties, Create())
        self.lease = Lease(plan.lease_ms)
        self.properties: TableProperties = load_properties(self.store)
        self.todo: list[list[WriteRecord]] = []
        self.writers: list[Writer] = []

    def play(self) -> None:
        """Fill the table, run all writers, heal, and let a final process recover the table."""
        self._fill()
        for index, jobs in enumerate(self.plan.jobs):
            todo = [WriteRecord(f"w{index}x{n}", keys) for n, keys in enumerate(jobs)]
            for n, record in enumerate(todo if self.plan.kinds else ()):
                record.kind = self.plan.kinds[index][n]
            self.history.records += todo
            self.todo.append(todo)
            self.writers.append(self._writer(index, delay_ms=self.world.random() * 100))
        if Fault.ARCHIVE in self.plan.faults:
            self._start_archiver()
        self.world.at(self.world.now + self.plan.nemesis_every_ms, self._inject_fault)
        until_ms = self.world.now + _DISTURBED_MS
        self.world.run(until_ms=until_ms, events_max=_EVENTS_MAX, done=self._all_idle)
        self.world.healed = True
        self.world.log("world", "heals")
        until_ms = self.world.now + _LIVENESS_BOUND_MS
        if not self.world.run(until_ms=until_ms, events_max=_EVENTS_MAX, done=self._all_idle):
            self.history.broken.append("liveness: a write does not end without faults")
        self.world.end()
        self.world.drain()
        self._recover()
        self._read_as_hudi()

    def _all_idle(self) -> bool:
        return all(writer.idle for writer in self.writers)

    def _writer(self, index: int, *, delay_ms: float, life: int = 0) -> Writer:
        name = f"w{index}" + (f".{life}" if life else "")
        writer = self._process(name, offset_ms=self.plan.clock_offsets_ms[index])
        todo = self.todo[index]
        writer.start(lambda: writer.work(todo), delay_ms=delay_ms)
        return writer

    def _process(self, name: str, *, offset_ms: float) -> Writer:
        kind = MixedWriter if self.plan.kinds else Writer
        writer = kind(
            self.world, name, self.store, self.history, self.properties, offset_ms=offset_ms
        )
        if self.plan.lease_ms:
            lock = LeaseLock(self.lease, writer)
            writer.start(lock.renew)
            provider = cast("LockProvider", lock)
            writer.txns.lock = TableLock(provider, writer, wait_ms=_LOCK_WAIT_MS, retries=0)
        return writer

    def _alone(self, name: str, record: WriteRecord | None) -> None:
        """Run a write, or a recovery, in one reliable process while no other process runs."""
        writer = self._process(name, offset_ms=0.0)
        writer.steady = True

        def life() -> None:
            if record is not None:
                writer.work([record])
            else:
                writer.txns.recover()
            writer.idle = True

        writer.start(life)
        until_ms = self.world.now + _LIVENESS_BOUND_MS
        if not self.world.run(
            until_ms=until_ms, events_max=self.world.events + 2_000, done=lambda: writer.idle
        ):
            self.history.broken.append(f"liveness: {name} does not end")
        writer.kill()

    def _fill(self) -> None:
        for name, keys in (("first", OLD_KEYS[:2]), ("second", OLD_KEYS[2:])):
            record = WriteRecord(name, keys)
            self.history.records.append(record)
            self._alone(name, record)

    def _start_archiver(self) -> None:
        archiver = Archiver(
            self.world, "archiver", self.store, self.history, self.properties, offset_ms=0.0
        )
        archiver.start(archiver.archive)

    def _inject_fault(self) -> None:
        world = self.world
        if world.healed:
            return
        world.at(world.now + self.plan.nemesis_every_ms * 2 * world.random(), self._inject_fault)
        index = world.rng.randrange(len(self.writers))
        writer = self.writers[index]
        if writer.idle:
            return
        if Fault.CRASH in self.plan.faults and world.random() < 0.5:
            world.fire(Fault.CRASH)
            world.log(writer.name, "is killed")
            writer.kill()
            self._abandon(index)
            life = int(writer.name.partition(".")[2] or 0) + 1
            world.fire(Fault.RESTART)
            self.writers[index] = self._writer(index, delay_ms=world.random() * 500, life=life)
        elif Fault.CLOCK in self.plan.faults:
            world.fire(Fault.CLOCK)
            spread_ms = world.rng.choice((100, 5_000, HOUR_MS))
            writer.offset_ms = (2 * world.random() - 1) * spread_ms
            world.log(writer.name, f"has its clock moved to {writer.offset_ms:.0f} ms off")

    def _abandon(self, index: int) -> None:
        """Mark the current write of a dead process as unknown: its result is not received."""
        for record in self.todo[index]:
            if not record.ended:
                record.unknown |= set(record.instants) - record.failed
                record.ended = bool(record.acked or record.unknown)
                return

    def _recover(self) -> None:
        """After the longest heartbeat lifetime, roll back pending writes, and write once more."""
        self.world.now += 2 * HOUR_MS
        self._alone("recovery", None)
        self._alone("recovery2", None)
        record = WriteRecord("last", OLD_KEYS)
        self.history.records.append(record)
        self._alone("last", record)

    def _read_as_hudi(self) -> None:
        """T4: the table as Hudi's reader sees it is the one in the ledger."""
        history = self.history
        latest = table_at(history).files
        try:
            slices = open_table(self.store).slices()
        except TidelockError as error:
            history.broken.append(f"T13: the table cannot be opened: {error}")
            return
        shown = {
            piece.file_id: tuple(file.key for file in (piece.base, *piece.logs) if file is not None)
            for piece in slices
        }
        if shown != latest:
            history.broken.append(f"T4: Hudi's reader sees {shown}, not {latest}")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the log messages of production code over thousands of runs."""
    logger = logging.getLogger("tidelock")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
