"""An external writer, like Java with its defaults, on a table that our processes have open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from testkit.txnsim.checked_store import WriteRecord
from testkit.txnsim.rows.actors import RowService, RowWriter, input_rows
from testkit.txnsim.rows.parameters import (
    KEYS,
    PARTITIONS,
    ExternalAct,
    InputRow,
    Job,
    Op,
    Parameters,
    Work,
)
from testkit.txnsim.rows.truth import RowStore, RowTruth
from testkit.txnsim.world import Process, World
from tidelock.core.clock import Now
from tidelock.core.system import SeededIds
from tidelock.execution.local.read import LocalEngine
from tidelock.hudi.properties import KEY as PROPERTIES
from tidelock.operations.read import snapshot_now
from tidelock.storage.contract import Overwrite
from tidelock.table import Table

_FORBIDDING = {
    ExternalAct.METADATA_TABLE: b"hoodie.table.metadata.partitions=files\n",
    ExternalAct.LOCAL_TIME: b"hoodie.table.timeline.timezone=LOCAL\n",
}


class Scene(Protocol):
    """What the scenario needs from the simulation."""

    world: World
    parameters: Parameters
    truth: RowTruth
    store: RowStore

    def add_job(self, job: Job) -> WriteRecord:
        """Record a job in the history."""
        ...

    def alone(self, process: Process, act: Callable[[], object], *, stays: bool = False) -> None:
        """Run `act` in one process while no other process runs."""
        ...

    def made(self, kind: type[RowService], name: str) -> RowService:
        """Return a process."""
        ...


@dataclass(slots=True)
class ExternalWriterScenario:
    """An external writer commits while no other process writes and one has the table open.

    Either the rows are right for both, or what cannot be done safely is refused and leaves no
    trace.
    """

    scene: Scene
    keeper: RowWriter

    def play(self) -> None:
        """Write, let the external writer act, and write again."""
        record = self.scene.add_job(_job("kept", 16, 8_000, KEYS[:1]))
        self.scene.alone(self.keeper, lambda: self.keeper.work([record]), stays=True)
        if self.scene.parameters.external_act is ExternalAct.COMMIT:
            self._commit()
            self._try(_job("again", 18, 8_200, KEYS[2:3]))
        else:
            self._forbid(_FORBIDDING[self.scene.parameters.external_act])
        self.keeper.kill()

    def _commit(self) -> None:
        """Commit like a writer that has read the whole table and keeps no ledger."""
        scene, truth = self.scene, self.scene.truth
        job = _job("java", 17, 8_100, KEYS[:2])
        others = scene.store.without_ledger()
        table = Table(
            snapshot_now(others),
            engine=LocalEngine(1),
            options=scene.parameters.options(),
            clock=_Clock(scene.world),
            ids=SeededIds(scene.world.rng.getrandbits(48)),
        )
        table.writer().transactions.heartbeat_thread._running = True  # noqa: SLF001 - nothing takes long
        done = table.upsert(input_rows(job))
        instant = done.instant
        scene.world.log("java", f"commits {instant}")
        truth.jobs[job.name] = job
        truth.begun[instant] = job.name
        truth.external[instant] = (len(truth.ledger), done.completion)
        truth.published.add(instant)
        scene.store.take(others)
        scene.world.now += 1_000

    def _try(self, job: Job) -> None:
        """Write with the table that has been open since the start; the write may be refused."""
        keeper, record = self.keeper, self.scene.add_job(job)
        keeper.record = record

        def write() -> None:
            report = keeper.attempt(job.name, lambda: keeper.write(job))
            record.acked = "" if report is None else report.instant
            if report is None:
                record.failed |= set(record.instants)
                record.unknown.add("")

        self.scene.alone(keeper, write, stays=True)

    def _forbid(self, line: bytes) -> None:
        """Make the table unsupported, and try all operations."""
        scene = self.scene
        properties = scene.store.peek(PROPERTIES)
        assert properties is not None, "there is a table"
        scene.store.put(PROPERTIES, properties.body + line, Overwrite())
        before = scene.store.visible()
        self._try(_job("forbidden", 18, 8_300, KEYS[:3]))
        self._check_same(before, "a write")
        for work in Work:
            service = scene.made(RowService, f"s.{work.name}")
            scene.alone(service, lambda s=service, w=work: s.attempt(w.value, lambda: s.once(w)))  # type: ignore[misc]
            self._check_same(before, work.value)
        scene.store.put(PROPERTIES, properties.body, Overwrite())

    def _check_same(self, before: dict[str, bytes], what: str) -> None:
        after = self.scene.store.visible()
        changed = sorted(key for key in before.keys() | after if before.get(key) != after.get(key))
        if changed:
            act = self.scene.parameters.external_act.value
            self.scene.truth.broken.append(f"R7: with {act}, {what} changed {changed[0]}")


def _job(name: str, ts: int, value: int, keys: tuple[str, ...]) -> Job:
    rows = (InputRow(PARTITIONS[0], key, ts, value + at) for at, key in enumerate(keys))
    return Job(name, Op.UPSERT, tuple(rows))


@dataclass(slots=True)
class _Clock:
    """The true time, for a process that never waits."""

    world: World

    def now(self) -> Now:
        return Now(int(self.world.now), self.world.wall())

    def sleep_ms(self, duration_ms: float) -> None:
        self.world.now += duration_ms
