"""What is known of tables from outside, as metrics: for a process that looks and does not write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidelock.base.exposition import label, metric
from tidelock.ops.telemetry.names import TABLES
from tidelock.ops.ui.watching import TableWatch
from tidelock.table.timeline.instant import parse_time


def table_lines(watches: Sequence[TableWatch]) -> list[str]:
    """Look at each table and return its gauges, with the table as a label."""
    seen = [(watch.store.uri, gauges(watch)) for watch in watches]
    return list(_lines(seen))


def gauges(watch: TableWatch) -> dict[str, float]:
    """Look at a table and return its numbers by name."""
    watch.look()
    now_ms = watch.clock.now().wall_epoch_ms
    found: dict[str, float] = {"table.readable": 0.0 if watch.problem else 1.0}
    parts: dict[str, Any] = {name: section.value for name, section in watch.sections.items()}
    if "table" not in parts:
        return found
    writers, plans = parts["writers"], parts["services"]
    alive = sum(w["beat"] is not None and now_ms - w["beat"] <= w["life"] for w in writers)
    ages = [now_ms - parse_time(plan["instant"]) for plan in plans]
    done = [row.completion for row in watch.rows.rows.values() if row.state == "completed"]
    found |= {
        "table.ledger.position": parts["table"]["position"],
        "table.instants": len(watch.rows.rows),
        "table.writers.alive": alive,
        "table.writers.dead": len(writers) - alive,
        "table.plans.pending": len(plans),
        "table.plans.oldest.age": max(ages, default=0),
        "table.conflicts": watch.ledger.conflict_count,
        "table.lock.held": float(parts["lock"]["condition"] == "held"),
        "table.lock.waiters": parts["lock"]["waiters"] or 0,
    }
    if done:
        found["table.commit.age"] = max(0, now_ms - parse_time(max(done)))
    return found


def _lines(seen: Sequence[tuple[str, dict[str, float]]]) -> Iterator[str]:
    for name in (each.name for each in TABLES):
        values = [(uri, found[name]) for uri, found in seen if name in found]
        if values:
            yield f"# TYPE {metric(name)} gauge"
        for uri, value in values:
            yield f'{metric(name)}{{table="{label(uri)}"}} {value:.15g}'
