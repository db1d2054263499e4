"""Metrics of the streamer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelock.core.telemetry import MetricKind, MetricName, Metrics

if TYPE_CHECKING:
    from tidelock.streamer.batch import SyncResult

_C, _G, _T = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.TIMER


METRICS: Final = (
    MetricName("streamer.batches", _C, "batches committed"),
    MetricName(
        "streamer.batches.repeated",
        _C,
        "batches that another streamer with the same writer id had already committed",
    ),
    MetricName("streamer.rows", _C, "rows inserted, updated and deleted by batches"),
    MetricName("streamer.malformed", _C, "malformed records quarantined"),
    MetricName(
        "streamer.batch", _T, "duration of a batch from polling the source to its commit, in ms"
    ),
    MetricName("streamer.limit", _G, "limit of the next batch, in the units of the source"),
    MetricName("streamer.lag", _G, "age of the newest record at its commit, in ms"),
)


def record_batch_metrics(metrics: Metrics, result: SyncResult, *, limit: int) -> None:
    """Record the metrics of a batch; a repeated batch is only counted."""
    if result.repeated:
        metrics.count("streamer.batches.repeated")
        return
    metrics.count("streamer.batches")
    metrics.count("streamer.rows", result.rows)
    metrics.count("streamer.malformed", result.malformed)
    metrics.time("streamer.batch", result.duration_ms)
    metrics.gauge("streamer.limit", limit)
    if result.lag_ms is not None:
        metrics.gauge("streamer.lag", result.lag_ms)
