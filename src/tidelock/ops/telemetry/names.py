"""Every name that this package uses towards whoever watches it, layer by layer."""

from __future__ import annotations

from typing import Final

from tidelock.base.telemetry import EventName, MetricKind, MetricName, SpanName
from tidelock.lock import alerting, metric_names
from tidelock.lockservice import metric_names as of_lock_services
from tidelock.operation import observing as of_operations
from tidelock.pipeline.streamer import observing as of_streamers
from tidelock.store import metric_names as of_stores
from tidelock.tableservice import observing as of_services
from tidelock.txn import observing as of_transactions

_TABLES: Final = {
    "table.ledger.position": "the last entry of the ledger",
    "table.instants": "instants on the timeline that was read",
    "table.writers.alive": "running writes with a fresh heartbeat",
    "table.writers.dead": "writes that never ended and have no fresh heartbeat",
    "table.plans.pending": "plans of table services that wait",
    "table.plans.oldest.age": "the age of the oldest of them, in ms; 0 without one",
    "table.conflicts": "times that somebody was overtaken, as far as the ledger is kept",
    "table.lock.held": "1 while the lease of the storage lock runs",
    "table.lock.waiters": "writers that wait for it, as far as they or its provider say so",
    "table.commit.age": "how long ago the last write completed, in ms",
    "table.readable": "1 if the last look at the table succeeded",
}

TABLES: Final = tuple(
    MetricName(name, MetricKind.GAUGE, doc, is_hudis=False) for name, doc in _TABLES.items()
)
"""What `tidelock metrics` tells of each table."""

METRICS: Final[tuple[tuple[str, tuple[MetricName, ...]], ...]] = (
    ("Locks", metric_names.METRICS),
    ("Lock service", of_lock_services.METRICS),
    ("Stores", of_stores.METRICS),
    ("Transactions", of_transactions.METRICS),
    ("Writes and reads", of_operations.METRICS),
    ("Table services", of_services.METRICS),
    ("Streamers", of_streamers.METRICS),
    ("Tables", TABLES),
)

EVENTS: Final[tuple[EventName, ...]] = (
    *of_transactions.EVENTS,
    *of_operations.EVENTS,
    *of_services.EVENTS,
    *alerting.EVENTS,
)

SPANS: Final[tuple[SpanName, ...]] = (
    *of_operations.SPANS,
    *of_transactions.SPANS,
    *of_services.SPANS,
)
