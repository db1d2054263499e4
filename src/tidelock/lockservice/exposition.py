"""The lock service's numbers in Prometheus' text format."""

from __future__ import annotations

import re

from tidelock.lockservice.service import LockService


def exposition(service: LockService) -> str:
    """Return all counters, gauges and timers, and what is held and waited for now."""
    snapshot = service.metrics.snapshot()
    lines: list[str] = []
    for name, count in sorted(snapshot.counters.items()):
        full = f"{_metric(name)}_total"
        lines += [f"# TYPE {full} counter", f"{full} {count}"]
    for name, value in sorted(snapshot.gauges.items()):
        lines += [f"# TYPE {_metric(name)} gauge", f"{_metric(name)} {value:g}"]
    for name, timer in sorted(snapshot.timers.items()):
        full = f"{_metric(name)}_ms"
        lines += [
            f"# TYPE {full} summary",
            f"{full}_sum {timer.total_ms:g}",
            f"{full}_count {timer.count}",
        ]
    lines += _now(service)
    return "\n".join(lines) + "\n"


def _now(service: LockService) -> list[str]:
    lines = ["# TYPE tidelock_lockservice_streams gauge"]
    lines.append(f"tidelock_lockservice_streams {service.streams}")
    for what in ("held", "waiting", "cursor"):
        lines.append(f"# TYPE tidelock_lockservice_{what} gauge")
        for name, component in sorted(service.components.items()):
            desk = component.cell.desk
            value = {"held": len(desk.held), "waiting": desk.waiting, "cursor": desk.number}[what]
            label = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            lines.append(f'tidelock_lockservice_{what}{{store="{label}"}} {value}')
    return lines


def _metric(name: str) -> str:
    return "tidelock_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)
