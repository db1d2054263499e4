"""docs/metrics.md, from the list of metrics."""

from __future__ import annotations

from tidelock.base.telemetry import MetricName
from tidelock.lock.metric_names import NOT_EMITTED
from tidelock.ops.telemetry.names import METRICS

_HEAD = """# Metrics

Generated from the code by `make docs`. Everything is counted in memory: `lock.metrics.snapshot()`
gives a lock's counters, gauges and timers at one moment, `tidelock.base.metrics.PROCESS` those of
the whole process. `hoodie.metrics.reporter.metricsname.prefix` and a dot go before a lock's names.
Timers keep their last 100 samples.

`tidelock --metrics-port PORT COMMAND` serves them for Prometheus while a command runs, and
`--metrics-push URL` sends them to a push gateway; `tidelock metrics URI` tells of tables from
outside. There a name begins with `tidelock_`, has `_` for every dot, and ends with `_total` for
counters and `_ms_sum` and `_ms_count` for timers.
"""


def metrics_page() -> str:
    """Return the page."""
    hudis = [metric for _, metrics in METRICS for metric in metrics if metric.is_hudis]
    parts = [_HEAD, "\n## Under Hudi's names\n\n", _table(hudis)]
    for title, metrics in METRICS:
        ours = [metric for metric in metrics if not metric.is_hudis]
        parts += [f"\n## {title}\n\n", _table(ours)]
    parts.append("\n## In Hudi only\n\n")
    parts += [f"- `{name}`: {reason}.\n" for name, reason in NOT_EMITTED.items()]
    return "".join(parts)


def _table(metrics: list[MetricName]) -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind.value} | {metric.doc} |\n"
        for metric in sorted(metrics, key=lambda metric: metric.name)
    ]
    return "| metric | kind | moves when |\n|---|---|---|\n" + "".join(rows)
