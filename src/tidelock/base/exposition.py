"""Metrics in Prometheus' text format."""

from __future__ import annotations

import re

from tidelock.base.metrics import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposed(snapshot: Snapshot) -> list[str]:
    """Return the lines of all counters, gauges and timers. Durations are in ms, as their names."""
    lines: list[str] = []
    for name, count in sorted(snapshot.counters.items()):
        full = f"{metric(name)}_total"
        lines += [f"# TYPE {full} counter", f"{full} {count}"]
    for name, value in sorted(snapshot.gauges.items()):
        lines += [f"# TYPE {metric(name)} gauge", f"{metric(name)} {value:g}"]
    for name, timer in sorted(snapshot.timers.items()):
        full = f"{metric(name)}_ms"
        lines += [
            f"# TYPE {full} summary",
            f"{full}_sum {timer.total_ms:g}",
            f"{full}_count {timer.count}",
        ]
    return lines


def metric(name: str) -> str:
    """Return the name that Prometheus knows a metric by."""
    return "tidelock_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)


def label(text: str) -> str:
    """Return the value of a label, escaped."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
