"""One schedule with services: inject faults, heal the world, recover, and check."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from testkit.txnsim.checked_store import WriteRecord
from testkit.txnsim.plan import OLD_KEYS, Fault, Plan, draw
from testkit.txnsim.schedule import PROPERTIES, Outcome, errors_recorded, outcome_of, quiet
from testkit.txnsim.services.actors import (
    Actor,
    ArchiveProcess,
    CleanProcess,
    Executor,
    UpsertWriter,
)
from testkit.txnsim.services.checked_store import CheckedServiceStore
from testkit.txnsim.services.checking import violations
from testkit.txnsim.services.java import Java, Mutex
from testkit.txnsim.services.parameters import Parameters, draw_parameters
from testkit.txnsim.services.truth import Truth, rows_of
from testkit.txnsim.world import Process, World
from tidelock.core.errors import TidelockError
from tidelock.hudi.properties import load_properties
from tidelock.operations.read import snapshot_now
from tidelock.services import archive as archiving
from tidelock.storage.contract import Create

_DISTURBED_MS = 8_000.0
_LIVENESS_BOUND_MS = 120_000.0
_EVENTS_MAX = 30_000
_LIFE_MS = 2_000.0
_WRITERS = 2

A = TypeVar("A", bound=Actor)


def run_schedule(seed: int, trace: list[str] | None = None, *, java: bool = False) -> Outcome:
    """Run the schedule of `seed` to its end and check everything.

    With `java`, an external writer schedules and executes concurrently with them.
    """
    plan, rng = draw(seed)
    parameters = draw_parameters(rng)
    if java:
        parameters = replace(parameters, java=True, logs=True)
    scene = ServiceScene(plan, parameters, rng, trace)
    if trace is not None:
        trace.append(f"{plan} {parameters}")
    truth = scene.truth
    with quiet(), kept_entries(parameters.kept_entries), errors_recorded(scene.world, truth):
        scene.play()
    found = tuple(violations(truth, scene.store))
    replay = f"{plan.replay} --services" + (" --java" if java else "")
    return outcome_of(scene.world, truth, found, services=truth.services, replay=replay)


class Stage:
    """The processes of a table, and the fault injection."""

    events_max = _EVENTS_MAX
    clocks_ms: tuple[int, ...] = (100, 5_000, 60_000)
    """How far clocks are moved."""

    def __init__(self, plan: Plan, rng: random.Random, trace: list[str] | None) -> None:
        """Start without processes."""
        self.plan = plan
        self.world = World(plan, rng, trace)
        self.cast: list[tuple[Process, Callable[[], Process]]] = []
        self.lives = 0

    @property
    def broken(self) -> list[str]:
        """Where violations are reported."""
        raise NotImplementedError

    def play(self) -> None:
        """Fill the table, run all processes, heal, and let a final process recover the table."""
        self.fill()
        self.enter()
        world = self.world
        world.at(world.now + self.plan.nemesis_every_ms, self._inject_fault)
        until_ms = world.now + _DISTURBED_MS
        world.run(until_ms=until_ms, events_max=self.events_max, done=self._all_idle)
        world.healed = True
        world.log("world", "heals")
        until_ms = world.now + _LIVENESS_BOUND_MS
        if not world.run(until_ms=until_ms, events_max=self.events_max, done=self._all_idle):
            self.broken.append("liveness: a process does not end without faults")
        world.end()
        world.drain()
        self.recover()

    def fill(self) -> None:
        """Create the initial content of the table."""

    def enter(self) -> None:
        """Start all processes."""

    def recover(self) -> None:
        """Finish the remaining work after all processes have ended, and check."""

    def add(self, make: Callable[[], Process]) -> None:
        """Start a process, which is created again when it is killed."""
        self.cast.append((make(), make))

    def named(self, name: str) -> str:
        """Return an unused name."""
        self.lives += 1
        return f"{name}.{self.lives}"

    def alone(self, process: Process, act: Callable[[], object], *, stays: bool = False) -> None:
        """Run `act` in one reliable process while no other runs; then it ends, or `stays`."""
        process.steady, process.idle = True, False

        def life() -> None:
            act()
            process.idle = True

        process.start(life)
        if not self.world.run(
            until_ms=self.world.now + _LIVENESS_BOUND_MS,
            events_max=self.world.events + 4_000,
            done=lambda: process.idle,
        ):
            self.broken.append(f"liveness: {process.name} does not end")
        if not stays:
            process.kill()

    def abandon(self, process: Process) -> None:
        """Mark the current write of a dead process as unknown: its result is not received."""

    def _all_idle(self) -> bool:
        return all(process.idle for process, _ in self.cast)

    def _inject_fault(self) -> None:
        world = self.world
        if world.healed:
            return
        world.at(world.now + self.plan.nemesis_every_ms * 2 * world.random(), self._inject_fault)
        index = world.rng.randrange(len(self.cast))
        process, make = self.cast[index]
        if process.idle:
            return
        if Fault.CRASH in self.plan.faults and world.random() < 0.5:
            world.fire(Fault.CRASH)
            world.log(process.name, "is killed")
            process.kill()
            self.abandon(process)
            world.fire(Fault.RESTART)
            self.cast[index] = (make(), make)
        elif Fault.CLOCK in self.plan.faults:
            world.fire(Fault.CLOCK)
            process.offset_ms = (2 * world.random() - 1) * world.rng.choice(self.clocks_ms)
            world.log(process.name, f"has its clock moved to {process.offset_ms:.0f} ms off")


class ServiceScene(Stage):
    """The table, its processes, and the fault injection."""

    def __init__(
        self, plan: Plan, parameters: Parameters, rng: random.Random, trace: list[str] | None
    ) -> None:
        """Set up an empty table."""
        super().__init__(plan, rng, trace)
        self.parameters = parameters
        self.truth = Truth()
        self.store = CheckedServiceStore(self.world, self.truth, retained=parameters.retained)
        kind = b"MERGE_ON_READ" if parameters.logs else b"COPY_ON_WRITE"
        body = PROPERTIES.replace(b"COPY_ON_WRITE", kind)
        self.store.put(".hoodie/hoodie.properties", body, Create())
        self.properties = load_properties(self.store)
        self.mutex = Mutex(self.world) if parameters.java else None

    @property
    def broken(self) -> list[str]:
        """Where violations are reported."""
        return self.truth.broken

    def enter(self) -> None:
        """Start writers, executors, a clean and an archive, according to the parameters."""
        for number in range(_WRITERS):
            jobs = self.plan.jobs[number][: self.parameters.jobs]
            todo = [WriteRecord(f"w{number}x{n}", keys) for n, keys in enumerate(jobs)]
            self.truth.records += todo
            self.add(lambda number=number, todo=todo: self._writer(number, todo))  # type: ignore[misc]
        for number in range(2):
            self.add(lambda number=number: self._serving(Executor, f"x{number}"))  # type: ignore[misc]
        if self.parameters.cleans:
            self.add(lambda: self._serving(CleanProcess, "clean"))
        if self.mutex is not None:
            self.add(self._java)
        if self.parameters.archives and Fault.STALE not in self.plan.faults:
            self.add(lambda: self._serving(ArchiveProcess, "archive"))

    def _java(self) -> Java:
        assert self.mutex is not None
        java = Java(self.world, self.named("java"), self.store, self.mutex)
        java.start(java.serve, delay_ms=self.world.random() * 300)
        return java

    def _writer(self, number: int, todo: list[WriteRecord]) -> Actor:
        offset_ms = self.plan.clock_offsets_ms[number]
        name = self.named(f"w{number}")
        writer = self._made(UpsertWriter, name, offset_ms)
        writer.start(lambda: writer.work(todo), delay_ms=self.world.random() * 300)
        return writer

    def _serving(self, kind: type[Executor | CleanProcess | ArchiveProcess], name: str) -> Actor:
        offset_ms = self.plan.clock_offsets_ms[2]
        actor = self._made(kind, self.named(name), offset_ms)
        actor.start(actor.serve, delay_ms=self.world.random() * 300)
        return actor

    def _made(self, kind: type[A], name: str, offset_ms: float = 0.0) -> A:
        return kind(
            self.world,
            name,
            self.store,
            self.properties,
            self.parameters,
            offset_ms=offset_ms,
            mutex=self.mutex,
        )

    def abandon(self, process: Process) -> None:
        """Mark the current write of a dead process as unknown: its result is not received."""
        number = process.name.partition(".")[0]
        for record in self.truth.records:
            if record.write.startswith(f"{number}x") and not record.ended:
                record.unknown |= set(record.instants) - record.failed
                record.ended = bool(record.acked or record.unknown)
                return

    def fill(self) -> None:
        """Write the initial keys."""
        record = WriteRecord("first", OLD_KEYS)
        self.truth.records.append(record)
        writer = self._made(UpsertWriter, "first")
        self.alone(writer, lambda: writer.work([record]))

    def recover(self) -> None:
        """After a heartbeat's lifetime, run every service once; then write once more (S10, S9)."""
        truth = self.truth
        self.world.now += _LIFE_MS + 1_000
        before = rows_of(truth.state(), self.store.body)
        clean = self._made(CleanProcess, "recovery")
        self.alone(clean, clean.once)
        executor = self._made(Executor, "executor")
        self.alone(executor, executor.cycle)
        if self.parameters.java:
            freeing = self._made(Executor, "freeing")
            self.alone(freeing, lambda: freeing.attempt(freeing.free))
        if truth.plans:
            # The executor rolled back what it could not execute; a clean finishes that.
            again = self._made(CleanProcess, "again")
            self.alone(again, again.once)
        truth.broken += [
            f"S10: the {p.action} {i} is still pending" for i, p in truth.plans.items()
        ]
        if rows_of(truth.state(), self.store.body) != before:
            truth.broken.append("S9: a cycle of services changed the rows")
        record = WriteRecord("last", OLD_KEYS)
        truth.records.append(record)
        writer = self._made(UpsertWriter, "last")
        self.alone(writer, lambda: writer.work([record]))
        self._check_readers()

    def _check_readers(self) -> None:
        """G1, V1-V6: the table as Hudi's reader sees it is the one in the ledger."""
        truth = self.truth
        try:
            slices = snapshot_now(self.store).slices()
        except TidelockError as error:
            truth.broken.append(f"T13: the table cannot be opened: {error}")
            return
        shown = {
            piece.file_id: {piece.base.key if piece.base else "", *(log.key for log in piece.logs)}
            for piece in slices
        }
        expected = {group: {piece.base, *piece.logs} for group, piece in truth.state().items()}
        if shown != expected:
            truth.broken.append(f"G1: readers see {shown}, not {expected}")


@contextmanager
def kept_entries(count: int) -> Iterator[None]:
    """Let the production archive keep fewer entries than a simulation has."""
    kept = archiving.ENTRIES_KEPT
    archiving.ENTRIES_KEPT = count  # type: ignore[misc]
    try:
        yield
    finally:
        archiving.ENTRIES_KEPT = kept  # type: ignore[misc]
