"""One schedule with services: disturb everybody for a while, heal the world, mend, and check."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from tidelock.base.errors import TidelockError
from tidelock.operation.reads import snapshot_now
from tidelock.store.contract import Create
from tidelock.table.properties_file import load_properties
from tidelock.tableservice.archive import execute as archiving
from tidelock.testing.txnsim.plan import OLD_KEYS, Fault, Plan, draw
from tidelock.testing.txnsim.schedule import PROPERTIES, Outcome, quiet
from tidelock.testing.txnsim.services.actors import (
    Actor,
    Archivist,
    Cleaner,
    Executor,
    UpsertWriter,
)
from tidelock.testing.txnsim.services.checking import violations
from tidelock.testing.txnsim.services.java import Java, Mutex
from tidelock.testing.txnsim.services.terms import Terms, draw_terms
from tidelock.testing.txnsim.services.truth import Truth, rows_of
from tidelock.testing.txnsim.services.watching import WatchedStore
from tidelock.testing.txnsim.witness import Told
from tidelock.testing.txnsim.world import Process, World

_DISTURBED_MS = 8_000.0
_PATIENCE_MS = 120_000.0
_EVENTS_MAX = 30_000
_LIFE_MS = 2_000.0
_WRITERS = 2

A = TypeVar("A", bound=Actor)


def run_schedule(seed: int, trace: list[str] | None = None, *, java: bool = False) -> Outcome:
    """Run the schedule of `seed` to its end and check everything that happened.

    With `java`, somebody without a ledger plans and executes beside the others.
    """
    plan, rng = draw(seed)
    terms = draw_terms(rng)
    if java:
        terms = replace(terms, java=True, logs=True)
    scene = ServiceScene(plan, terms, rng, trace)
    if trace is not None:
        trace.append(f"{plan} {terms}")
    with quiet(), kept_entries(terms.kept_entries):
        try:
            scene.play()
        except Exception as error:
            # Whatever it is, the seed that leads to it must not be lost.
            scene.truth.broken.append(f"{type(error).__name__}: {error}")
            if trace is not None:
                trace.append(traceback.format_exc())
        finally:
            scene.world.end()
    truth = scene.truth
    return Outcome(
        plan,
        tuple(violations(truth, scene.store)),
        scene.world.events,
        len(truth.position),
        sum(len(told.instants) - 1 for told in truth.told if told.instants),
        scene.world.fired,
        services=truth.services,
        replay=f"{plan.replay} --services" + (" --java" if java else ""),
    )


class Stage:
    """Those who work on a table, and what strikes them."""

    events_max = _EVENTS_MAX
    clocks_ms: tuple[int, ...] = (100, 5_000, 60_000)
    """How far clocks are moved."""

    def __init__(self, plan: Plan, rng: random.Random, trace: list[str] | None) -> None:
        """Begin with nobody."""
        self.plan = plan
        self.world = World(plan, rng, trace)
        self.cast: list[tuple[Process, Callable[[], Process]]] = []
        self.lives = 0

    @property
    def broken(self) -> list[str]:
        """Where complaints go."""
        raise NotImplementedError

    def play(self) -> None:
        """Fill the table, let everybody work, heal, and let a last process mend what is left."""
        self.fill()
        self.enter()
        world = self.world
        world.at(world.now + self.plan.nemesis_every_ms, self._strike)
        until_ms = world.now + _DISTURBED_MS
        world.run(until_ms=until_ms, events_max=self.events_max, done=self._all_idle)
        world.healed = True
        world.say("world", "heals")
        until_ms = world.now + _PATIENCE_MS
        if not world.run(until_ms=until_ms, events_max=self.events_max, done=self._all_idle):
            self.broken.append("liveness: somebody does not end in a healthy world")
        world.end()
        world.drain()
        self.mend()

    def fill(self) -> None:
        """Give the table what it begins with."""

    def enter(self) -> None:
        """Let everybody begin."""

    def mend(self) -> None:
        """Do what is left to do when everybody has gone, and look."""

    def add(self, make: Callable[[], Process]) -> None:
        """Let somebody begin, who is made again when it is killed."""
        self.cast.append((make(), make))

    def named(self, name: str) -> str:
        """Return a name that nobody had."""
        self.lives += 1
        return f"{name}.{self.lives}"

    def alone(self, process: Process, act: Callable[[], object], *, stays: bool = False) -> None:
        """Let one steady process do something while nobody else does; then it ends or `stays`."""
        process.steady, process.idle = True, False

        def life() -> None:
            act()
            process.idle = True

        process.start(life)
        if not self.world.run(
            until_ms=self.world.now + _PATIENCE_MS,
            events_max=self.world.events + 4_000,
            done=lambda: process.idle,
        ):
            self.broken.append(f"liveness: {process.name} does not end")
        if not stays:
            process.kill()

    def abandon(self, process: Process) -> None:
        """Nobody is left to be told how the current write ended."""

    def _all_idle(self) -> bool:
        return all(process.idle for process, _ in self.cast)

    def _strike(self) -> None:
        world = self.world
        if world.healed:
            return
        world.at(world.now + self.plan.nemesis_every_ms * 2 * world.random(), self._strike)
        index = world.rng.randrange(len(self.cast))
        process, make = self.cast[index]
        if process.idle:
            return
        if Fault.CRASH in self.plan.faults and world.random() < 0.5:
            world.fire(Fault.CRASH)
            world.say(process.name, "is killed")
            process.kill()
            self.abandon(process)
            world.fire(Fault.RESTART)
            self.cast[index] = (make(), make)
        elif Fault.CLOCK in self.plan.faults:
            world.fire(Fault.CLOCK)
            process.offset_ms = (2 * world.random() - 1) * world.rng.choice(self.clocks_ms)
            world.say(process.name, f"has its clock moved to {process.offset_ms:.0f} ms off")


class ServiceScene(Stage):
    """The table, those who work on it, and what strikes them."""

    def __init__(
        self, plan: Plan, terms: Terms, rng: random.Random, trace: list[str] | None
    ) -> None:
        """Set up an empty table."""
        super().__init__(plan, rng, trace)
        self.terms = terms
        self.truth = Truth()
        self.store = WatchedStore(self.world, self.truth, retained=terms.retained)
        kind = b"MERGE_ON_READ" if terms.logs else b"COPY_ON_WRITE"
        body = PROPERTIES.replace(b"COPY_ON_WRITE", kind)
        self.store.put(".hoodie/hoodie.properties", body, Create())
        self.properties = load_properties(self.store)
        self.mutex = Mutex(self.world) if terms.java else None

    @property
    def broken(self) -> list[str]:
        """Where complaints go."""
        return self.truth.broken

    def enter(self) -> None:
        """Let writers, executors, a clean and an archive begin, as the terms say."""
        for number in range(_WRITERS):
            jobs = self.plan.jobs[number][: self.terms.jobs]
            todo = [Told(f"w{number}x{n}", keys) for n, keys in enumerate(jobs)]
            self.truth.told += todo
            self.add(lambda number=number, todo=todo: self._writer(number, todo))  # type: ignore[misc]
        for number in range(2):
            self.add(lambda number=number: self._serving(Executor, f"x{number}"))  # type: ignore[misc]
        if self.terms.cleans:
            self.add(lambda: self._serving(Cleaner, "clean"))
        if self.mutex is not None:
            self.add(self._java)
        if self.terms.archives and Fault.STALE not in self.plan.faults:
            self.add(lambda: self._serving(Archivist, "archive"))

    def _java(self) -> Java:
        assert self.mutex is not None
        java = Java(self.world, self.named("java"), self.store, self.mutex)
        java.start(java.serve, delay_ms=self.world.random() * 300)
        return java

    def _writer(self, number: int, todo: list[Told]) -> Actor:
        offset_ms = self.plan.clock_offsets_ms[number]
        name = self.named(f"w{number}")
        writer = self._made(UpsertWriter, name, offset_ms)
        writer.start(lambda: writer.work(todo), delay_ms=self.world.random() * 300)
        return writer

    def _serving(self, kind: type[Executor | Cleaner | Archivist], name: str) -> Actor:
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
            self.terms,
            offset_ms=offset_ms,
            mutex=self.mutex,
        )

    def abandon(self, process: Process) -> None:
        """Nobody is left to be told how the current write ended."""
        number = process.name.partition(".")[0]
        for told in self.truth.told:
            if told.write.startswith(f"{number}x") and not told.ended:
                told.doubted |= set(told.instants) - told.failed
                told.ended = bool(told.acked or told.doubted)
                return

    def fill(self) -> None:
        """Write the first keys."""
        told = Told("first", OLD_KEYS)
        self.truth.told.append(told)
        writer = self._made(UpsertWriter, "first")
        self.alone(writer, lambda: writer.work([told]))

    def mend(self) -> None:
        """A heartbeat's life later, one cycle of every service; then one more write (S10, S9)."""
        truth = self.truth
        self.world.now += _LIFE_MS + 1_000
        before = rows_of(truth.state(), self.store.body)
        mender = self._made(Cleaner, "mender")
        self.alone(mender, mender.once)
        executor = self._made(Executor, "executor")
        self.alone(executor, executor.cycle)
        if self.terms.java:
            freeing = self._made(Executor, "freeing")
            self.alone(freeing, lambda: freeing.attempt(freeing.free))
        if truth.plans:
            # What the executor could not carry out, it has given up; a clean ends that.
            again = self._made(Cleaner, "again")
            self.alone(again, again.once)
        truth.broken += [
            f"S10: the {p.action} {i} is still pending" for i, p in truth.plans.items()
        ]
        if rows_of(truth.state(), self.store.body) != before:
            truth.broken.append("S9: a cycle of services changed the rows")
        told = Told("last", OLD_KEYS)
        truth.told.append(told)
        writer = self._made(UpsertWriter, "last")
        self.alone(writer, lambda: writer.work([told]))
        self._look_as_readers_do()

    def _look_as_readers_do(self) -> None:
        """G1, V1-V6: what the format's reader takes for the table is what the ledger says it is."""
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
        wanted = {group: {piece.base, *piece.logs} for group, piece in truth.state().items()}
        if shown != wanted:
            truth.broken.append(f"G1: readers see {shown}, not {wanted}")


@contextmanager
def kept_entries(count: int) -> Iterator[None]:
    """Let the archive that ships keep fewer entries than a simulation ever has."""
    kept = archiving.ENTRIES_KEPT
    archiving.ENTRIES_KEPT = count  # type: ignore[misc]
    try:
        yield
    finally:
        archiving.ENTRIES_KEPT = kept  # type: ignore[misc]
