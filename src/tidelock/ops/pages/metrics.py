"""docs/metrics.md, from the list of metrics."""

from __future__ import annotations

from tidelock.lock.metric_names import METRICS, NOT_EMITTED, MetricName

_HEAD = """# Metrics

Generated from the code by `make docs`. A lock counts in memory: `lock.metrics.snapshot()` gives
counters, gauges and timers at one moment. `hoodie.metrics.reporter.metricsname.prefix` and a dot go
before every name. Timers keep their last 100 samples.
"""


def metrics_page() -> str:
    """Return the page."""
    hudis = [metric for metric in METRICS if metric.is_hudis]
    ours = [metric for metric in METRICS if not metric.is_hudis]
    parts = [_HEAD, "\n## Under Hudi's names\n\n", _table(hudis)]
    parts += ["\n## Ours\n\n", _table(ours), "\n## In Hudi only\n\n"]
    parts += [f"- `{name}`: {reason}.\n" for name, reason in NOT_EMITTED.items()]
    return "".join(parts)


def _table(metrics: list[MetricName]) -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind.value} | {metric.doc} |\n"
        for metric in sorted(metrics, key=lambda metric: metric.name)
    ]
    return "| metric | kind | moves when |\n|---|---|---|\n" + "".join(rows)
