"""What a streamer tells whoever watches: metrics, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelock.base.metrics import Metrics
from tidelock.base.telemetry import MetricKind, MetricName

if TYPE_CHECKING:
    from tidelock.pipeline.streamer.sync import Synced

_C, _G, _T = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.TIMER


def _ours(name: str, kind: MetricKind, doc: str) -> MetricName:
    return MetricName(name, kind, doc, is_hudis=False)


METRICS: Final = (
    _ours("streamer.batches", _C, "a batch was committed"),
    _ours(
        "streamer.batches.repeated",
        _C,
        "a batch was found written by another streamer of the same id",
    ),
    _ours("streamer.rows", _C, "rows inserted, updated and deleted by batches"),
    _ours("streamer.malformed", _C, "records that were put aside"),
    _ours(
        "streamer.batch",
        _T,
        "how long a batch took from looking at the source to its commit, in ms",
    ),
    _ours(
        "streamer.limit", _G, "how much the next batch takes at most, in the units of the source"
    ),
    _ours("streamer.lag", _G, "how old the newest record was when it became visible, in ms"),
)


def told_batch(metrics: Metrics, done: Synced, *, limit: int) -> None:
    """Count a batch; of one that somebody else wrote only that it was."""
    if done.repeated:
        metrics.count("streamer.batches.repeated")
        return
    metrics.count("streamer.batches")
    metrics.count("streamer.rows", done.rows)
    metrics.count("streamer.malformed", done.malformed)
    metrics.time("streamer.batch", done.duration_ms)
    metrics.gauge("streamer.limit", limit)
    if done.lag_ms is not None:
        metrics.gauge("streamer.lag", done.lag_ms)
