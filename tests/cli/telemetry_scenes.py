"""Scenes that make the package emit every metric, event and span."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.cli.scene import commit_in_between, create_table, rows
from tests.unit.doubles import ManualClock, ScriptedStore, answer, failing, landing
from tests.unit.txn.bench import Bench, draft
from tests.unit.txn.test_external_commits import java_commit
from tidelock.core.errors import Conflict, HoldingLost, StoreUnreachable, TidelockError
from tidelock.core.outcome import Unknown
from tidelock.core.system import SystemClock, SystemIds
from tidelock.core.telemetry import PROCESS, Metrics
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.lock.alerts import Alerts
from tidelock.lock.client import Lock
from tidelock.lock.heartbeat import Renewable, Renewals
from tidelock.lock.lease import Lease, RenewalSchedule
from tidelock.lock.record import LockRecord, encode
from tidelock.lock.record_store import LOCK_KEY
from tidelock.lock.server.auth import Principal
from tidelock.lock.server.component import Component, LockRequest
from tidelock.lock.server.journal import LockJournal
from tidelock.lock.server.resource import KeyPrefix
from tidelock.lock.server.service import LockService
from tidelock.lock.server.shard import LockShard
from tidelock.lock.server.telemetry import service_metrics
from tidelock.operations.report import WriteReport
from tidelock.services.plans import claimed
from tidelock.services.runner import compaction
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import Busy, Overwrite, Refused, Unclear
from tidelock.storage.memory import MemoryStore
from tidelock.streamer.batch import SyncResult
from tidelock.streamer.telemetry import record_batch_metrics
from tidelock.telemetry.tracing import tracing
from tidelock.txn import heartbeats as heartbeat
from tidelock.txn.app_transactions import AppliedTransaction, AppTransaction
from tidelock.txn.conflicts import (
    Abort,
    CheckKeys,
    Conflicted,
    ConflictingTxn,
    ConflictReport,
    Preempted,
    Rebase,
    Repeated,
    ReplanReplaced,
)
from tidelock.txn.footprint import CommitKind
from tidelock.txn.heartbeats import HeartbeatThread
from tidelock.txn.queueing import LocalQueue
from tidelock.txn.telemetry import TransactionTelemetry


@dataclass
class Telemetry:
    """Telemetry collected in a block."""

    metrics: set[str] = field(default_factory=set)
    events: dict[str, dict[str, object]] = field(default_factory=dict)
    spans: set[str] = field(default_factory=set)


class _EventCollector(logging.Handler):
    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__()
        self.heard = telemetry

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "event"):
            self.heard.events[str(record.event)] = {**record.fields}  # type: ignore[attr-defined]


@contextmanager
def collecting() -> Iterator[Telemetry]:
    """Collect all telemetry emitted in the block."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    telemetry, exporter, provider = Telemetry(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    collector, root = _EventCollector(telemetry), logging.getLogger("tidelock")
    level = root.level
    root.addHandler(collector)
    root.setLevel(logging.DEBUG)
    # Also catches a gauge that is set to the value another test left.
    for gauge in PROCESS.snapshot().gauges:
        PROCESS.gauge(gauge, -1)
    before = _numbers()
    try:
        with tracing(provider):
            yield telemetry
    finally:
        root.removeHandler(collector)
        root.setLevel(level)
        telemetry.metrics = {
            name for name, value in _numbers().items() if before.get(name) != value
        }
        telemetry.spans = {span.name for span in exporter.get_finished_spans()}
        provider.shutdown()


def _numbers() -> dict[str, object]:
    snapshot = PROCESS.snapshot()
    timers = {name: timer.count for name, timer in snapshot.timers.items()}
    return {**snapshot.counters, **snapshot.gauges, **timers}


def a_table_at_work(folder: Path) -> None:
    """Write, conflict, plan, execute, read."""
    with create_table(folder) as table:
        table.upsert(rows(1, 2, ts=1, day="d1"))
        commit_in_between(folder, table)
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
    """Wait for the table's lock, and in the queue for its ledger."""
    provider = "tidelock.lock.providers.storage.StorageLockProvider"
    settings = {"hoodie.write.lock.provider": provider}
    with (
        create_table(folder, **settings) as table,
        LocalQueue(table.writer().store, SystemClock()).held(),
    ):
        pass


def a_streamer_at_work() -> None:
    """Let a streamer ingest a batch, and find one that another has ingested."""
    metrics = Metrics()
    mine = WriteReport("upsert", "1", "2", rows_inserted=3)
    done = SyncResult(0, "end", 9, 3, 1, mine, duration_ms=5, lag_ms=7)
    record_batch_metrics(metrics, done, limit=100)
    record_batch_metrics(metrics, replace(done, report=replace(mine, repeated=True)), limit=100)


def locks() -> None:
    """Exercise every event of a lock."""
    clock = ManualClock()
    memory = MemoryStore("watched", clock=clock)
    store = ScriptedStore(memory)
    lease = Lease(validity_ms=10_000, renew_ms=1_000)

    def lock() -> Lock:
        return Lock(store, lease, clock=clock, probe=False, renewals=_IdleHeartbeats(clock))

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
    dead = LockRecord(expired=False, valid_until_epoch_ms=0, owner="java-1")
    memory.put(LOCK_KEY, encode(dead), Overwrite())
    lost = lock()
    lost.acquire(0)
    memory.put(LOCK_KEY, encode(LockRecord(False, 10**15, "java-2")), Overwrite())
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


class _IdleHeartbeats(Renewals):
    """Registers heartbeats without running them."""

    def add(self, holding: Renewable, beat: RenewalSchedule) -> None:
        """Do nothing."""

    def remove(self, holding: Renewable) -> None:
        """Do nothing."""


def failing_transactions() -> None:
    """Let writers die, conflict in every way, run next to Java, and lose their heartbeats."""
    bench = Bench({"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"})
    txns = bench.writer(settings={**bench.settings, "tidelock.write.mixed": "true"})
    bench.commit_one(txns, "a")
    bench.begin(txns).rollback("changed my mind")
    bench.begin(bench.writer())
    bench.clock.advance(10**8)
    txns.recover()
    transaction = bench.begin(txns)
    java_commit(bench, "20990101000000000", "20990101000000001", "b")
    transaction.commit(draft(touched=("a",)))
    every_verdict()
    with suppress(HoldingLost), _observing().commit("1", rebased=0):
        raise HoldingLost("the lock is lost")
    heartbeats()


def every_verdict() -> None:
    """Make a commit end with every possible outcome."""
    report = ConflictReport(
        ConflictingTxn("1", CommitKind.UPSERT), (ConflictingTxn("2", CommitKind.UPSERT),)
    )
    applied = AppliedTransaction(AppTransaction("stream", 1), "1", "2")
    for reply in (
        Rebase(report),
        CheckKeys(report),
        ReplanReplaced(report),
        Preempted(report),
        Abort(report),
        Repeated(report, applied),
    ):
        with _observing().commit("1", rebased=0) as tried:
            tried.result = Conflicted(reply, 1, "why")
    with _observing().commit("1", rebased=0) as tried:
        tried.result = Unknown("no answer")


def heartbeats(alerts: Alerts | None = None) -> None:
    """Let a heartbeat fail, and be removed."""
    store = ScriptedStore(MemoryStore())
    heartbeat_thread = HeartbeatThread(store, 3_600_000, _observing(alerts))
    key = heartbeat.heartbeat_key("20260101000000000")
    found = store.inner.put(key, b"beat", Overwrite())
    heartbeat_thread.keep("20260101000000000", b"beat", found.version)  # type: ignore[union-attr]
    for _ in range(2):
        store.puts.append(failing(StoreUnreachable("no answer")))
        heartbeat_thread.beat()
    store.delete(key)
    heartbeat_thread.beat()
    heartbeat_thread.close()


def _observing(alerts: Alerts | None = None) -> TransactionTelemetry:
    return TransactionTelemetry("memory://t", "me", SystemClock(), alerts or Alerts.read({}))


async def a_lock_service_at_work() -> dict[str, float]:
    """Grant, renew, release and wait; return the metrics of the service in between."""
    clock, ids = SystemClock(), SystemIds()
    metrics = Metrics()
    journal = LockJournal(MemoryStore(), ids, ReadbackPolicy(clock=clock, ids=ids))
    shard = LockShard(journal, clock, ids, metrics=metrics)
    component = Component("s", "lock.tidelock", shard, KeyPrefix(), 30_000)
    service = LockService({"s": component}, metrics=metrics)
    async with asyncio.timeout(60):
        await shard.start()
        held = await component.try_lock(LockRequest("r", "p"))
        await component.renew_lock("r", "p", held.lock_id, 5_000)
        other = await component.try_lock(LockRequest("other", "p"))
        await component.unlock("other", "p", other.lock_id)
        waiter = asyncio.create_task(component.lock(LockRequest("r", "q")))
        with service.open_stream(Principal("p")):
            while not (metrics.counter("lockservice.beats") and shard.state.waiting):  # noqa: ASYNC110 - states
                await asyncio.sleep(0.05)
            exported = service_metrics(service).decode()
        waiter.cancel()
        await shard.stop()
        await asyncio.gather(waiter, return_exceptions=True)
    lines = [line.rpartition(" ") for line in exported.splitlines() if not line.startswith("#")]
    return {name.partition("{")[0]: float(value) for name, _, value in lines}
