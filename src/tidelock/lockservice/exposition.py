"""The lock service's numbers in Prometheus' text format."""

from __future__ import annotations

from tidelock.base.exposition import exposed, label
from tidelock.lockservice.service import LockService


def exposition(service: LockService) -> str:
    """Return all counters, gauges and timers, and what is held and waited for now."""
    lines = [*exposed(service.metrics.snapshot()), *_now(service)]
    return "\n".join(lines) + "\n"


def _now(service: LockService) -> list[str]:
    lines = ["# TYPE tidelock_lockservice_streams gauge"]
    lines.append(f"tidelock_lockservice_streams {service.streams}")
    for what in ("held", "waiting", "cursor"):
        lines.append(f"# TYPE tidelock_lockservice_{what} gauge")
        for name, component in sorted(service.components.items()):
            desk = component.cell.desk
            value = {"held": len(desk.held), "waiting": desk.waiting, "cursor": desk.number}[what]
            lines.append(f'tidelock_lockservice_{what}{{store="{label(name)}"}} {value}')
    return lines
