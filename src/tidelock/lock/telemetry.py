"""Metrics of locks: name, kind and meaning.

Names taken from Hudi have Hudi's meaning, even where it is misleading, so that existing dashboards
work. `docs/metrics.md` is generated from this list.
"""

from __future__ import annotations

from tidelock.core.telemetry import MetricKind, MetricName

_C, _G, _T = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.TIMER

_HUDI = (
    ("lock.acquire.attempts", _C, "a lock was acquired; as in Hudi, not every attempt"),
    ("lock.acquire.success", _C, "a lock was acquired"),
    ("lock.acquire.failure", _C, "an acquire ended without the lock"),
    (
        "lock.acquire.duration",
        _T,
        "how long a lock was held, in ms, measured at its release; the name is Hudi's",
    ),
    ("lock.request.latency", _T, "how long one acquire took, waiting included, in ms"),
    ("lock.acquire.precondition.failure", _C, "the write of a grant was refused (412)"),
    ("lock.acquired.others.error", _C, "a renewal or release found the record of another owner"),
    ("lock.release.success", _C, "a lock was released"),
    ("lock.release.failure", _C, "a release failed, or its outcome is unknown"),
    ("lock.state.unknown", _C, "a read or write of the record had no conclusive reply"),
    (
        "lock.provider.fatal.error",
        _C,
        "a bug, a heartbeat that could not start, or the use of a closed lock",
    ),
    (
        "lock.expiration.deadline",
        _G,
        "time to the deadline of the holder, in ms, as of its last write",
    ),
    ("lock.dangling", _C, "an expired record without a release was found"),
    ("lock.throttled", _C, "the store throttled a request"),
)

METRICS: tuple[MetricName, ...] = (
    *(MetricName(*metric, is_hudi_metric=True) for metric in _HUDI),
    MetricName("lock.ghost", _C, "an unseen grant of an earlier attempt was found and released"),
    MetricName("lock.lost", _C, "a holder lost its lock and was notified"),
    MetricName("alerts.raised", _C, "an alert was raised"),
    MetricName("alerts.undelivered", _C, "an alert was not delivered to a webhook or callback"),
)

NOT_EMITTED: dict[str, str] = {
    "lock.interrupted": "Python threads are not interrupted; Ctrl-C passes through as an exception"
}
"""Metrics of Hudi that Tidelock does not emit, with the reason."""
