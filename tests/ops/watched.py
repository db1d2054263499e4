"""Scenes that make the package tell everything it can tell: metrics, events and spans."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.ops.scene import made, overtake, rows
from tests.unit.doubles import ManualClock, ScriptedStore, answer, failing, landing
from tests.unit.txn.bench import Bench, draft
from tests.unit.txn.test_foreign import java_commit
from tidelock.base.clock import SystemClock
from tidelock.base.errors import Conflict, HoldingLost, StoreUnreachable, TidelockError
from tidelock.base.ids import SystemIds
from tidelock.base.metrics import PROCESS, Metrics
from tidelock.base.outcome import Unknown
from tidelock.lock.alerting import Alerts
from tidelock.lock.driver import Lock
from tidelock.lock.heartbeat import Heartbeat
from tidelock.lock.lease import Lease
from tidelock.lock.objects import LOCK_KEY
from tidelock.lock.record import Record, encode
from tidelock.lock.renewal import Renewable, Renewals
from tidelock.lockservice.auth import Principal
from tidelock.lockservice.cell import Cell
from tidelock.lockservice.component import Component, LockRequest
from tidelock.lockservice.exposition import exposition
from tidelock.lockservice.journal import Journal
from tidelock.lockservice.resource import KeyPrefix
from tidelock.lockservice.service import LockService
from tidelock.operation.report import WriteReport
from tidelock.ops.telemetry.tracing import tracing
from tidelock.pipeline.streamer.observing import told_batch
from tidelock.pipeline.streamer.sync import Synced
from tidelock.store.contract import Busy, Overwrite, Refused, Unclear
from tidelock.store.memory import MemoryStore
from tidelock.store.readback import Patience
from tidelock.table.timeline.metadata import OperationType
from tidelock.tableservice.guard import claimed
from tidelock.tableservice.running import compaction
from tidelock.txn import heartbeat
from tidelock.txn.beating import Beating
from tidelock.txn.draft import Overtaken
from tidelock.txn.footprint import Deed
from tidelock.txn.lining import Line
from tidelock.txn.mark import Applied, Mark
from tidelock.txn.observing import Observing
from tidelock.txn.verdict import (
    CheckKeys,
    Party,
    Rebase,
    Refuse,
    Repeated,
    ReplanReplaced,
    Report,
    Yield,
)


@dataclass
class Heard:
    """What was told while somebody listened."""

    metrics: set[str] = field(default_factory=set)
    events: dict[str, dict[str, object]] = field(default_factory=dict)
    spans: set[str] = field(default_factory=set)


class _Ear(logging.Handler):
    def __init__(self, heard: Heard) -> None:
        super().__init__()
        self.heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "event"):
            self.heard.events[str(record.event)] = {**record.fields}  # type: ignore[attr-defined]


@contextmanager
def listening() -> Iterator[Heard]:
    """Hear everything that is told in the block."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    heard, exporter, provider = Heard(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ear, root = _Ear(heard), logging.getLogger("tidelock")
    level = root.level
    root.addHandler(ear)
    root.setLevel(logging.DEBUG)
    # A gauge that is set to what another test left it at is heard all the same.
    for gauge in PROCESS.snapshot().gauges:
        PROCESS.gauge(gauge, -1)
    before = _numbers()
    try:
        with tracing(provider):
            yield heard
    finally:
        root.removeHandler(ear)
        root.setLevel(level)
        heard.metrics = {name for name, value in _numbers().items() if before.get(name) != value}
        heard.spans = {span.name for span in exporter.get_finished_spans()}
        provider.shutdown()


def _numbers() -> dict[str, object]:
    snapshot = PROCESS.snapshot()
    timers = {name: timer.count for name, timer in snapshot.timers.items()}
    return {**snapshot.counters, **snapshot.gauges, **timers}


def a_table_at_work(folder: Path) -> None:
    """Write, conflict, plan, execute, read."""
    with made(folder) as table:
        table.upsert(rows(1, 2, ts=1, day="d1"))
        overtake(folder, table)
        with suppress(TidelockError):
            table.upsert([{"id": "no number"}])
        table.read()
        service = compaction(table.writer(), {})
        planned = service.schedule()
        assert planned is not None
        transactions = table.writer().transactions
        with suppress(ZeroDivisionError), claimed(transactions, planned, OperationType.COMPACT):
            raise ZeroDivisionError
        service.execute_pending()
        with suppress(Conflict), claimed(transactions, planned, OperationType.COMPACT):
            pass


def waits(folder: Path) -> None:
    """Wait for the table's lock, and in the line before its ledger."""
    provider = "tidelock.lockproviders.storage.StorageLockProvider"
    settings = {"hoodie.write.lock.provider": provider}
    with made(folder, **settings) as table, Line(table.writer().store, SystemClock()).held():
        pass


def a_streamer_at_work() -> None:
    """Let a streamer take a batch, and find one that another has taken."""
    metrics = Metrics()
    mine = WriteReport("upsert", "1", "2", rows_inserted=3)
    done = Synced(0, "end", 9, 3, 1, mine, duration_ms=5, lag_ms=7)
    told_batch(metrics, done, limit=100)
    told_batch(metrics, replace(done, report=replace(mine, repeated=True)), limit=100)


def locks() -> None:
    """Let everything happen to a lock that can."""
    clock = ManualClock()
    memory = MemoryStore("watched", clock=clock)
    store = ScriptedStore(memory)
    lease = Lease(validity_ms=10_000, renew_ms=1_000)

    def lock() -> Lock:
        return Lock(store, lease, clock=clock, probe=False, renewals=_Shelf(clock))

    first = lock()
    first.acquire(0)
    assert not lock().try_acquire()
    first.release()
    for reply in (answer(Busy(cause="429")), answer(Refused()), answer(Unclear("reset"))):
        store.puts.append(reply)
        with suppress(TidelockError):
            assert not lock().try_acquire()
    store.puts.append(landing(Unclear("reset")))
    with suppress(TidelockError):
        lock().try_acquire()
    dead = Record(expired=False, valid_until_epoch_ms=0, owner="java-1")
    memory.put(LOCK_KEY, encode(dead), Overwrite())
    lost = lock()
    lost.acquire(0)
    memory.put(LOCK_KEY, encode(Record(False, 10**15, "java-2")), Overwrite())
    lost.renew()
    memory.put(LOCK_KEY, encode(dead), Overwrite())
    doubtful = lock()
    doubtful.acquire(0)
    store.puts.extend([answer(Unclear("reset"))] * 20)
    with suppress(TidelockError):
        doubtful.release()
    store.puts.clear()
    memory.put(LOCK_KEY, encode(dead), Overwrite())
    broken = lock()
    broken.acquire(0)
    store.puts.append(failing(KeyError("bug")))
    broken.renew()


class _Shelf(Renewals):
    """Keeps heartbeats without running them."""

    def add(self, holding: Renewable, beat: Heartbeat) -> None:
        """Remember nothing."""

    def remove(self, holding: Renewable) -> None:
        """Forget nothing."""


def transactions_in_trouble() -> None:
    """Let writers die, be overtaken in every way, meet Java, and lose their heartbeats."""
    bench = Bench({"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"})
    home = bench.writer(settings={**bench.settings, "tidelock.write.mixed": "true"})
    bench.commit_one(home, "a")
    bench.begin(home).rollback("changed my mind")
    bench.begin(bench.writer())
    bench.clock.advance(10**8)
    home.recover()
    transaction = bench.begin(home)
    java_commit(bench, "20990101000000000", "20990101000000001", "b")
    transaction.commit(draft(touched=("a",)))
    every_verdict()
    with suppress(HoldingLost), _observing().commit("1", rebased=0):
        raise HoldingLost("the lock is lost")
    heartbeats()


def every_verdict() -> None:
    """Let a commit end in every way that it can."""
    report = Report(Party("1", Deed.UPSERT), (Party("2", Deed.UPSERT),))
    applied = Applied(Mark("stream", 1), "1", "2")
    for verdict in (
        Rebase(report),
        CheckKeys(report),
        ReplanReplaced(report),
        Yield(report),
        Refuse(report),
        Repeated(report, applied),
    ):
        with _observing().commit("1", rebased=0) as tried:
            tried.result = Overtaken(verdict, 1, "why")
    with _observing().commit("1", rebased=0) as tried:
        tried.result = Unknown("no answer")


def heartbeats(alerts: Alerts | None = None) -> None:
    """Let a heartbeat fail, and be removed."""
    store = ScriptedStore(MemoryStore())
    beating = Beating(store, 3_600_000, _observing(alerts))
    key = heartbeat.heartbeat_key("20260101000000000")
    found = store.inner.put(key, b"beat", Overwrite())
    beating.keep("20260101000000000", b"beat", found.version)  # type: ignore[union-attr]
    for _ in range(2):
        store.puts.append(failing(StoreUnreachable("no answer")))
        beating.beat()
    store.delete(key)
    beating.beat()
    beating.close()


def _observing(alerts: Alerts | None = None) -> Observing:
    return Observing("memory://t", "me", SystemClock(), alerts or Alerts())


async def a_lock_service_at_work() -> dict[str, float]:
    """Grant, renew, end and wait, and return what the service tells Prometheus in the midst."""
    clock, ids = SystemClock(), SystemIds()
    metrics = Metrics()
    journal = Journal(MemoryStore(), ids, Patience(clock=clock, ids=ids))
    cell = Cell(journal, clock, ids, metrics=metrics)
    component = Component("s", "lock.tidelock", cell, KeyPrefix(), 30_000)
    service = LockService({"s": component}, metrics=metrics)
    async with asyncio.timeout(60):
        await cell.start()
        held = await component.try_lock(LockRequest("r", "p"))
        await component.renew_lock("r", "p", held.lock_id, 5_000)
        other = await component.try_lock(LockRequest("other", "p"))
        await component.unlock("other", "p", other.lock_id)
        waiter = asyncio.create_task(component.lock(LockRequest("r", "q")))
        with service.waiting(Principal("p")):
            while not (metrics.counter("lockservice.beats") and cell.desk.waiting):  # noqa: ASYNC110 - states
                await asyncio.sleep(0.05)
            told = exposition(service)
        waiter.cancel()
        await cell.stop()
        await asyncio.gather(waiter, return_exceptions=True)
    lines = [line.rpartition(" ") for line in told.splitlines() if not line.startswith("#")]
    return {name.partition("{")[0]: float(value) for name, _, value in lines}
