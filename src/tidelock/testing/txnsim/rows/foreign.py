"""Somebody without a ledger, as Java with its defaults, at a table that we have open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidelock.base.clock import Now
from tidelock.base.ids import SeededIds
from tidelock.engine.local import LocalEngine
from tidelock.operation.reads import snapshot_now
from tidelock.store.contract import Overwrite
from tidelock.table.properties_file import KEY as PROPERTIES
from tidelock.tableservice.table import Table
from tidelock.testing.txnsim.rows.actors import RowServant, RowWriter, given
from tidelock.testing.txnsim.rows.terms import KEYS, PARTITIONS, Beside, Given, Job, Op, Terms, Work
from tidelock.testing.txnsim.rows.truth import RowStore, RowTruth
from tidelock.testing.txnsim.witness import Told
from tidelock.testing.txnsim.world import Process, World

_FORBIDDING = {
    Beside.METADATA_TABLE: b"hoodie.table.metadata.partitions=files\n",
    Beside.LOCAL_TIME: b"hoodie.table.timeline.timezone=LOCAL\n",
}


class Scene(Protocol):
    """What a visit needs of the scene that it is part of."""

    world: World
    terms: Terms
    truth: RowTruth
    store: RowStore

    def told(self, job: Job) -> Told:
        """Enter a job in the history."""
        ...

    def alone(self, process: Process, act: Callable[[], object], *, stays: bool = False) -> None:
        """Let one process do something while nobody else does."""
        ...

    def made(self, kind: type[RowServant], name: str) -> RowServant:
        """Return a process."""
        ...


@dataclass(slots=True)
class Visit:
    """Somebody without a ledger comes while nobody writes, and one of ours has the table open.

    Either the rows are right for both, or what cannot be done safely is refused, and nothing of it
    is to be seen.
    """

    scene: Scene
    keeper: RowWriter

    def play(self) -> None:
        """Write, let the other do what the terms say, and write again."""
        told = self.scene.told(_job("kept", 16, 8_000, KEYS[:1]))
        self.scene.alone(self.keeper, lambda: self.keeper.work([told]), stays=True)
        if self.scene.terms.beside is Beside.COMMIT:
            self._commit()
            self._try(_job("again", 18, 8_200, KEYS[2:3]))
        else:
            self._forbid(_FORBIDDING[self.scene.terms.beside])
        self.keeper.kill()

    def _commit(self) -> None:
        """Commit as somebody does who has read the whole table and knows no ledger."""
        scene, truth = self.scene, self.scene.truth
        job = _job("java", 17, 8_100, KEYS[:2])
        others = scene.store.without_ledger()
        table = Table(
            snapshot_now(others),
            engine=LocalEngine(1),
            options=scene.terms.options(),
            clock=_Clock(scene.world),
            ids=SeededIds(scene.world.rng.getrandbits(48)),
        )
        table.writer().transactions.beating._running = True  # noqa: SLF001 - nothing takes long
        done = table.upsert(given(job))
        instant = done.instant
        scene.world.say("java", f"commits {instant}")
        truth.jobs[job.name] = job
        truth.begun[instant] = job.name
        truth.foreign[instant] = (len(truth.ledger), done.completion)
        truth.published.add(instant)
        scene.store.take(others)
        scene.world.now += 1_000

    def _try(self, job: Job) -> None:
        """Write with the table that was open all the time; it may be refused."""
        keeper, told = self.keeper, self.scene.told(job)
        keeper.told = told

        def write() -> None:
            report = keeper.attempt(job.name, lambda: keeper.write(job))
            told.acked = "" if report is None else report.instant
            if report is None:
                told.failed |= set(told.instants)
                told.doubted.add("")

        self.scene.alone(keeper, write, stays=True)

    def _forbid(self, line: bytes) -> None:
        """Make the table one that is not written here, and try everything."""
        scene = self.scene
        kept = scene.store.peek(PROPERTIES)
        assert kept is not None, "there is a table"
        scene.store.put(PROPERTIES, kept.body + line, Overwrite())
        before = scene.store.visible()
        self._try(_job("forbidden", 18, 8_300, KEYS[:3]))
        self._check_same(before, "a write")
        for work in Work:
            servant = scene.made(RowServant, f"s.{work.name}")
            scene.alone(servant, lambda s=servant, w=work: s.attempt(w.value, lambda: s.once(w)))  # type: ignore[misc]
            self._check_same(before, work.value)
        scene.store.put(PROPERTIES, kept.body, Overwrite())

    def _check_same(self, before: dict[str, bytes], what: str) -> None:
        after = self.scene.store.visible()
        changed = sorted(key for key in before.keys() | after if before.get(key) != after.get(key))
        if changed:
            beside = self.scene.terms.beside.value
            self.scene.truth.broken.append(f"R7: with {beside}, {what} changed {changed[0]}")


def _job(name: str, ts: int, value: int, keys: tuple[str, ...]) -> Job:
    rows = (Given(PARTITIONS[0], key, ts, value + at) for at, key in enumerate(keys))
    return Job(name, Op.UPSERT, tuple(rows))


@dataclass(slots=True)
class _Clock:
    """The true time, for somebody who waits for nothing."""

    world: World

    def now(self) -> Now:
        return Now(int(self.world.now), self.world.wall())

    def sleep_ms(self, duration_ms: float) -> None:
        self.world.now += duration_ms
