"""docs/protocol/lock-machine.md, from the table of the lock machine."""

from __future__ import annotations

from tidelock.lock import events as e
from tidelock.lock.machine import TABLE
from tidelock.lock.state import Phase

_HEAD = """# The lock machine

Generated from `src/tidelock/lock/machine.py` by `make docs`. The rules are in
[the protocol](lock.md). An event that comes in a phase without an arrow for it is a bug, and stops
the process; only time may pass in every phase.
"""
_QUIET = (e.Tick, e.Abandon)


def machine_page() -> str:
    """Return the page."""
    parts = [_HEAD, "\n## States\n\n| phase | the client is |\n|---|---|\n"]
    parts += [f"| {phase.name} | {phase.value} |\n" for phase in Phase]
    parts += ["\n## From event to phase\n\n", _diagram()]
    parts += ["\n## Cut short\n\n", _cut_short()]
    return "".join(parts)


def _diagram() -> str:
    """Draw every row except those of `Tick` and `Abandon` that lead nowhere new."""
    edges: dict[tuple[Phase, Phase], list[str]] = {}
    for (phase, event), row in TABLE.items():
        if event is e.Abandon:
            continue
        for after in row.leads_to:
            if event in _QUIET and after is phase:
                continue
            edges.setdefault((phase, after), []).append(event.__name__)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {Phase.IDLE.name}"]
    for (phase, after), events in edges.items():
        lines.append(f"    {phase.name} --> {after.name}: {', '.join(events)}")
    lines += [f"    {Phase.CLOSED.name} --> [*]", "```", ""]
    return "\n".join(lines)


def _cut_short() -> str:
    """Say where an operation that is abandoned half-way leaves the client."""
    lines = ["| abandoned while | leaves |\n|---|---|\n"]
    for (phase, event), row in TABLE.items():
        if event is e.Abandon and row.leads_to != (phase,):
            after = " or ".join(phase.name for phase in row.leads_to)
            lines.append(f"| {phase.name} | {after} |\n")
    return "".join(lines)
