"""One schedule with rows: disturb everybody for a while, heal the world, mend, and read."""

from __future__ import annotations

import random
import traceback
from typing import TypeVar

from tidelock.base.ids import SeededIds
from tidelock.operation.create import table_properties
from tidelock.store.readback import Patience
from tidelock.table.properties_file import create_properties
from tidelock.testing.txnsim.lease import Lease
from tidelock.testing.txnsim.plan import HOUR_MS, Fault, Plan, draw
from tidelock.testing.txnsim.rows.actors import (
    SCHEMA,
    RowProcess,
    RowReader,
    RowServant,
    RowWriter,
    inline_pools,
)
from tidelock.testing.txnsim.rows.checking import violations
from tidelock.testing.txnsim.rows.foreign import Visit
from tidelock.testing.txnsim.rows.terms import (
    KEYS,
    PARTITIONS,
    Beside,
    Given,
    Job,
    Op,
    Terms,
    Work,
    draw_rows,
    without_stale,
)
from tidelock.testing.txnsim.rows.truth import RowStore, RowTruth
from tidelock.testing.txnsim.schedule import Outcome, quiet
from tidelock.testing.txnsim.services.scene import Stage, kept_entries
from tidelock.testing.txnsim.witness import StoreClock, Told
from tidelock.testing.txnsim.world import Process

_EVENTS_MAX = 60_000
_LIFE_MS = 11_000.0
_TOKENS = 1_000
"""So many grants the lock of the table has given before, so that a new counter is behind."""

P = TypeVar("P", bound=RowProcess)


def run_schedule(seed: int, trace: list[str] | None = None, terms: Terms | None = None) -> Outcome:
    """Run the schedule of `seed` to its end and check everything that happened.

    `terms` are those that the seed draws if None.
    """
    plan, rng = draw(seed)
    scene = RowScene(without_stale(plan), terms or draw_rows(seed), rng, trace)
    if trace is not None:
        trace.append(f"{scene.plan} {scene.terms}")
    truth = scene.truth
    with quiet(), inline_pools(), kept_entries(scene.terms.kept_entries):
        try:
            scene.play()
        except Exception as error:
            # Whatever it is, the seed that leads to it must not be lost.
            truth.broken.append(f"{type(error).__name__}: {error}")
            if trace is not None:
                trace.append(traceback.format_exc())
        finally:
            scene.world.end()
        found = tuple(violations(truth, scene.store, scene.terms))
    if trace is not None:
        trace += truth.story()
    return Outcome(
        scene.plan,
        found,
        scene.world.events,
        len(truth.position),
        sum(len(told.instants) - 1 for told in truth.told if told.instants),
        scene.world.fired,
        services=truth.services,
        replay=f"{plan.replay} --rows",
    )


class RowScene(Stage):
    """The table, those who work on it, and what strikes them."""

    events_max = _EVENTS_MAX
    clocks_ms = (100, 5_000, HOUR_MS, 8 * 24 * HOUR_MS)

    def __init__(
        self, plan: Plan, terms: Terms, rng: random.Random, trace: list[str] | None
    ) -> None:
        """Make the table, without rows."""
        super().__init__(plan, rng, trace)
        self.terms = terms
        self.truth = RowTruth(event_time=terms.event_time)
        self.store = RowStore(self.world, self.truth, terms)
        identity = {
            "hoodie.table.name": "sim",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ"
            if terms.merges
            else "COPY_ON_WRITE",
            "hoodie.datasource.write.recordkey.field": "k",
            "hoodie.datasource.write.partitionpath.field": "p",
            **({"hoodie.table.ordering.fields": "ts"} if terms.event_time else {}),
        }
        properties = table_properties(self.store.uri, SCHEMA, {**terms.options(), **identity})
        self.lease = Lease(plan.lease_ms, token=_TOKENS) if plan.lease_ms else None
        clock, ids = StoreClock(self.world), SeededIds(plan.seed)
        create_properties(self.store, properties, patience=Patience(clock=clock, ids=ids))

    @property
    def broken(self) -> list[str]:
        """Where complaints go."""
        return self.truth.broken

    def fill(self) -> None:
        """Write the first keys, to the first partition."""
        rows = tuple(Given(PARTITIONS[0], key, 5, place) for place, key in enumerate(KEYS[:3]))
        self._written(Job("first", Op.UPSERT, rows))

    def enter(self) -> None:
        """Let writers, services and a reader begin, as the terms say."""
        for number, jobs in enumerate(self.terms.jobs):
            todo = [self.told(job) for job in jobs]
            self.add(lambda number=number, todo=todo: self._writer(number, todo))  # type: ignore[misc]
        for number, works in enumerate(self.terms.services):
            turns = list(works)
            self.add(lambda number=number, turns=turns: self._servant(number, turns))  # type: ignore[misc]
        if self.terms.reads:
            looks = list(range(self.terms.reads))
            self.add(lambda: self._reader(looks))
        if self.lease is not None and self.terms.restarts:
            self.world.at(self.world.now + 3_000 * self.world.random(), self._restart)

    def _restart(self) -> None:
        """Let the counter of the lock begin anew, as when its record is deleted."""
        if self.lease is not None:
            self.world.say("world", "the lock's counter begins anew")
            self.lease.restart()

    def abandon(self, process: Process) -> None:
        """Nobody is left to be told how the current write ended."""
        number = process.name.partition(".")[0]
        for told in self.truth.told:
            if told.write.startswith(f"{number}x") and not told.ended:
                told.doubted |= set(told.instants) - told.failed
                told.ended = bool(told.acked or told.doubted)
                return

    def mend(self) -> None:
        """A heartbeat's life later, what the dead left is rolled back; then one more write."""
        self.world.now += _LIFE_MS
        mender = self.made(RowServant, "mender")
        self.alone(mender, lambda: mender.attempt("mend", mender.table().rollback))
        if self.terms.beside is not Beside.NOTHING and Fault.CLOCK not in self.plan.faults:
            Visit(self, self.made(RowWriter, "keeper")).play()
        rows = (Given(PARTITIONS[0], KEYS[0], 20, 9_000), Given(PARTITIONS[1], KEYS[1], 20, 9_001))
        self._written(Job("last", Op.UPSERT, rows))

    def told(self, job: Job) -> Told:
        """Enter a job in the history."""
        told = Told(job.name, ())
        self.truth.jobs[job.name] = job
        self.truth.told.append(told)
        return told

    def _written(self, job: Job) -> None:
        told = self.told(job)
        writer = self.made(RowWriter, job.name)
        self.alone(writer, lambda: writer.work([told]))

    def _writer(self, number: int, todo: list[Told]) -> RowWriter:
        writer = self.made(RowWriter, self.named(f"w{number}"), number)
        writer.start(lambda: writer.work(todo), delay_ms=self.world.random() * 300)
        return writer

    def _servant(self, number: int, turns: list[Work]) -> RowServant:
        servant = self.made(RowServant, self.named(f"s{number}"), 2)
        servant.start(lambda: servant.serve(turns), delay_ms=self.world.random() * 300)
        return servant

    def _reader(self, looks: list[int]) -> RowReader:
        reader = self.made(RowReader, self.named("reader"))
        reader.start(lambda: reader.serve(looks), delay_ms=self.world.random() * 300)
        return reader

    def made(self, kind: type[P], name: str, number: int | None = None) -> P:
        """Return a process with the clock of its number, or a right one."""
        offset_ms = 0.0 if number is None else self.plan.clock_offsets_ms[number]
        if kind is RowServant and number is not None and self.terms.ahead:
            offset_ms = 8 * 24 * HOUR_MS
        made = kind(self.world, name, self.store, self.terms, offset_ms=offset_ms)
        made.lease = self.lease
        return made
