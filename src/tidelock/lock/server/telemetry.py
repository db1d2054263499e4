"""Metrics of the lock service: the catalogue, and their values in Prometheus' text format.

`docs/metrics.md` is generated from the catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelock.core.exposition import expose, labelled_gauge, snapshot_families
from tidelock.core.telemetry import MetricKind, MetricName, Snapshot

if TYPE_CHECKING:
    from tidelock.lock.server.service import LockService

_C, _G, _T = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.TIMER

_NAMES: Final = (
    ("lockservice.beats", _C, "checks whether another instance took over"),
    ("lockservice.journal.batches", _C, "batches of decisions written to the journal"),
    (
        "lockservice.journal.write",
        _T,
        "duration of a batch write, in ms; all requests of the batch wait for it",
    ),
    ("lockservice.opened", _C, "times an instance took over a lock store"),
    ("lockservice.granted", _C, "locks granted"),
    ("lockservice.retimed", _C, "locks whose TTL was changed"),
    ("lockservice.ended", _C, "locks released, expired, lost or forcibly released"),
    ("lockservice.held", _G, "locks held, by lock store"),
    ("lockservice.waiting", _G, "requests waiting for a lock, by lock store"),
    ("lockservice.cursor", _G, "number of the last journal entry, by lock store"),
    ("lockservice.streams", _G, "open streams"),
)

METRICS: Final = tuple(MetricName(name, kind, doc) for name, kind, doc in _NAMES)


def service_metrics(service: LockService) -> bytes:
    """Return the metrics of the service, with the locks and waiters of each lock store."""
    states = [(name, each.shard.state) for name, each in sorted(service.components.items())]
    by_store = {
        "lockservice.held": [(name, len(state.held)) for name, state in states],
        "lockservice.waiting": [(name, state.waiting) for name, state in states],
        "lockservice.cursor": [(name, state.number) for name, state in states],
    }
    streams = Snapshot({}, {"lockservice.streams": service.streams}, {})
    return expose(
        (
            *snapshot_families(service.metrics.snapshot()),
            *snapshot_families(streams),
            *(
                labelled_gauge(metric, "store", by_store[metric.name])
                for metric in METRICS
                if metric.name in by_store
            ),
        )
    )
