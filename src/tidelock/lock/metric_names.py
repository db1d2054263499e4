"""Every metric a lock emits: its name, its kind and when it moves.

Hudi's names mean what they mean there, misleading ones included, so that dashboards made for Hudi
show ours. `docs/metrics.md` is generated from this list.
"""

from __future__ import annotations

from tidelock.base.telemetry import MetricKind, MetricName

_C, _G, _T = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.TIMER

METRICS: tuple[MetricName, ...] = (
    MetricName("lock.acquire.attempts", _C, "a lock was acquired; as in Hudi, not each attempt"),
    MetricName("lock.acquire.success", _C, "a lock was acquired"),
    MetricName("lock.acquire.failure", _C, "an acquire ended without the lock"),
    MetricName(
        "lock.acquire.duration",
        _T,
        "how long a lock was held, in ms, taken at its release; the name is Hudi's",
    ),
    MetricName("lock.request.latency", _T, "how long one acquire took, waiting included, in ms"),
    MetricName("lock.acquire.precondition.failure", _C, "the write of a grant was refused (412)"),
    MetricName("lock.acquired.others.error", _C, "a renewal or release met somebody else's record"),
    MetricName("lock.release.success", _C, "a lock was released"),
    MetricName("lock.release.failure", _C, "a release failed, or nobody can tell"),
    MetricName("lock.state.unknown", _C, "a read or write of the record had no clear answer"),
    MetricName(
        "lock.provider.fatal.error",
        _C,
        "a bug, a heartbeat that could not start, or a closed lock that was used",
    ),
    MetricName(
        "lock.expiration.deadline",
        _G,
        "how long the holder may go on without renewal, in ms, as of its last write",
    ),
    MetricName("lock.dangling", _C, "a record was found that ran out without a release"),
    MetricName("lock.throttled", _C, "the store asked to wait"),
    MetricName(
        "lock.ghost",
        _C,
        "a grant of an earlier attempt had landed unseen, was found and was given back",
        is_hudis=False,
    ),
    MetricName("lock.lost", _C, "a holder lost its lock and was told", is_hudis=False),
    MetricName("alerts.raised", _C, "an alert was raised, of whatever kind", is_hudis=False),
    MetricName(
        "alerts.undelivered", _C, "a webhook or callback did not take an alert", is_hudis=False
    ),
)

NOT_EMITTED: dict[str, str] = {
    "lock.interrupted": "Python threads are not interrupted; Ctrl-C passes through as an exception"
}
"""Names that Hudi has and we do not, each with the reason."""
