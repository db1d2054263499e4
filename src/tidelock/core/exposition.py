"""Metrics in the Prometheus text format (version 0.0.4), rendered by prometheus-client."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from tidelock.core.telemetry import MetricName, Snapshot

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def expose(families: Iterable[Metric]) -> bytes:
    """Return metric families in the text format."""
    return generate_latest(_Families(tuple(families)))


def snapshot_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield a family for each counter, gauge and timer. Durations are in ms, as in their names."""
    for name, count in sorted(snapshot.counters.items()):
        yield CounterMetricFamily(prometheus_name(name), name, value=count)
    for name, value in sorted(snapshot.gauges.items()):
        yield GaugeMetricFamily(prometheus_name(name), name, value=value)
    for name, timer in sorted(snapshot.timers.items()):
        yield SummaryMetricFamily(
            f"{prometheus_name(name)}_ms", name, count_value=timer.count, sum_value=timer.total_ms
        )


def labelled_gauge(metric: MetricName, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    """Return a gauge that has a value for each value of a label."""
    family = GaugeMetricFamily(prometheus_name(metric.name), metric.doc, labels=[label])
    for labelled, value in values:
        family.add_metric([labelled], value)
    return family


def prometheus_name(name: str) -> str:
    return "tidelock_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)


@dataclass(frozen=True, slots=True)
class _Families(Collector):
    families: tuple[Metric, ...]

    def collect(self) -> Iterable[Metric]:
        return self.families
