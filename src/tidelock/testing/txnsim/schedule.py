"""One schedule: disturb the writers for a while, heal the world, let everybody end, check."""

from __future__ import annotations

import logging
import random
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from tidelock.base.errors import TidelockError
from tidelock.lock.provider import LockProvider
from tidelock.store.contract import Create
from tidelock.table.properties import TableProperties
from tidelock.table.properties_file import load_properties
from tidelock.table.snapshot import open_table
from tidelock.testing.txnsim.archiver import Archiver
from tidelock.testing.txnsim.checkers import violations
from tidelock.testing.txnsim.lease import Lease, LeaseLock
from tidelock.testing.txnsim.mixed import MixedWriter
from tidelock.testing.txnsim.plan import HOUR_MS, OLD_KEYS, Fault, Plan, draw
from tidelock.testing.txnsim.truth import table_at
from tidelock.testing.txnsim.witness import History, Told, WitnessedStore
from tidelock.testing.txnsim.world import World
from tidelock.testing.txnsim.writer import Writer
from tidelock.txn.locking import TableLock

_DISTURBED_MS = 12_000.0
_PATIENCE_MS = 120_000.0
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
    """What became of one schedule."""

    plan: Plan
    violations: tuple[str, ...]
    events: int
    commits: int
    rebases: int
    fired: Counter[Fault]
    services: int = 0
    replay: str = ""


def run_schedule(seed: int, trace: list[str] | None = None) -> Outcome:
    """Run the schedule of `seed` to its end and check everything that happened."""
    plan, rng = draw(seed)
    scene = Scene(plan, rng, trace)
    if trace is not None:
        trace.append(f"{plan}")
    with quiet():
        try:
            scene.play()
        except Exception as error:
            # Whatever it is, the seed that leads to it must not be lost.
            scene.history.broken.append(f"{type(error).__name__}: {error}")
            if trace is not None:
                trace.append(traceback.format_exc())
        finally:
            scene.world.end()
    history = scene.history
    return Outcome(
        plan,
        tuple(violations(history, scene.store)),
        scene.world.events,
        len(history.position),
        sum(len(told.instants) - 1 for told in history.told if told.instants),
        scene.world.fired,
        replay=plan.replay,
    )


class Scene:
    """The table, its writers, and what strikes them."""

    def __init__(self, plan: Plan, rng: random.Random, trace: list[str] | None) -> None:
        """Set up an empty table."""
        self.plan = plan
        self.world = World(plan, rng, trace)
        self.history = History()
        self.store = WitnessedStore(self.world, self.history)
        merged = PROPERTIES.replace(b"COPY_ON_WRITE", b"MERGE_ON_READ")
        properties = merged if plan.bucketed else PROPERTIES
        self.store.put(".hoodie/hoodie.properties", properties, Create())
        self.lease = Lease(plan.lease_ms)
        self.properties: TableProperties = load_properties(self.store)
        self.todo: list[list[Told]] = []
        self.writers: list[Writer] = []

    def play(self) -> None:
        """Fill the table, let everybody write, heal, and let a last process mend what is left."""
        self._fill()
        for index, jobs in enumerate(self.plan.jobs):
            todo = [Told(f"w{index}x{n}", keys) for n, keys in enumerate(jobs)]
            for n, told in enumerate(todo if self.plan.kinds else ()):
                told.kind = self.plan.kinds[index][n]
            self.history.told += todo
            self.todo.append(todo)
            self.writers.append(self._writer(index, delay_ms=self.world.random() * 100))
        if Fault.ARCHIVE in self.plan.faults:
            self._start_archiver()
        self.world.at(self.world.now + self.plan.nemesis_every_ms, self._strike)
        until_ms = self.world.now + _DISTURBED_MS
        self.world.run(until_ms=until_ms, events_max=_EVENTS_MAX, done=self._all_idle)
        self.world.healed = True
        self.world.say("world", "heals")
        until_ms = self.world.now + _PATIENCE_MS
        if not self.world.run(until_ms=until_ms, events_max=_EVENTS_MAX, done=self._all_idle):
            self.history.broken.append("liveness: a write does not end in a healthy world")
        self.world.end()
        self.world.drain()
        self._mend()
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

    def _alone(self, name: str, told: Told | None) -> None:
        """Let one steady process do something while nobody else does."""
        writer = self._process(name, offset_ms=0.0)
        writer.steady = True

        def life() -> None:
            if told is not None:
                writer.work([told])
            else:
                writer.txns.recover()
            writer.idle = True

        writer.start(life)
        until_ms = self.world.now + _PATIENCE_MS
        if not self.world.run(
            until_ms=until_ms, events_max=self.world.events + 2_000, done=lambda: writer.idle
        ):
            self.history.broken.append(f"liveness: {name} does not end")
        writer.kill()

    def _fill(self) -> None:
        for name, keys in (("first", OLD_KEYS[:2]), ("second", OLD_KEYS[2:])):
            told = Told(name, keys)
            self.history.told.append(told)
            self._alone(name, told)

    def _start_archiver(self) -> None:
        archiver = Archiver(
            self.world, "archiver", self.store, self.history, self.properties, offset_ms=0.0
        )
        archiver.start(archiver.archive)

    def _strike(self) -> None:
        world = self.world
        if world.healed:
            return
        world.at(world.now + self.plan.nemesis_every_ms * 2 * world.random(), self._strike)
        index = world.rng.randrange(len(self.writers))
        writer = self.writers[index]
        if writer.idle:
            return
        if Fault.CRASH in self.plan.faults and world.random() < 0.5:
            world.fire(Fault.CRASH)
            world.say(writer.name, "is killed")
            writer.kill()
            self._abandon(index)
            life = int(writer.name.partition(".")[2] or 0) + 1
            world.fire(Fault.RESTART)
            self.writers[index] = self._writer(index, delay_ms=world.random() * 500, life=life)
        elif Fault.CLOCK in self.plan.faults:
            world.fire(Fault.CLOCK)
            spread_ms = world.rng.choice((100, 5_000, HOUR_MS))
            writer.offset_ms = (2 * world.random() - 1) * spread_ms
            world.say(writer.name, f"has its clock moved to {writer.offset_ms:.0f} ms off")

    def _abandon(self, index: int) -> None:
        """Nobody is left to be told how the current write ended."""
        for told in self.todo[index]:
            if not told.ended:
                told.doubted |= set(told.instants) - told.failed
                told.ended = bool(told.acked or told.doubted)
                return

    def _mend(self) -> None:
        """After the longest heartbeat: everything undecided is rolled back, and one more write."""
        self.world.now += 2 * HOUR_MS
        self._alone("mender", None)
        self._alone("mender2", None)
        told = Told("last", OLD_KEYS)
        self.history.told.append(told)
        self._alone("last", told)

    def _read_as_hudi(self) -> None:
        """T4: what the format's reader takes for the table is what the ledger says it is."""
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
    """Keep what production code would tell an operator out of thousands of runs."""
    logger = logging.getLogger("tidelock")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
