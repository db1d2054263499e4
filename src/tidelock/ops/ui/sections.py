"""The parts of the page as it is sent them: times as they are, so that ages go on by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidelock.ops.cli.ledger import group_names
from tidelock.table.properties import TableProperties
from tidelock.tableservice.overview import PendingService
from tidelock.txn.fold import Fold, Waiting
from tidelock.txn.heartbeat import Pulse
from tidelock.txn.writers import Met, Writer

_GROUPS_SHOWN: Final = 50
_JAVA_LIFE_MS: Final = 600_000


def table(uri: str, properties: TableProperties, fold: Fold) -> dict[str, object]:
    """Return what a table is, and how far its ledger is."""
    return {
        "name": properties.name,
        "uri": uri,
        "type": properties.type.value,
        "version": properties.version,
        "key": list(properties.record_keys),
        "partitioned_by": list(properties.partition_fields),
        "position": fold.position,
        "boundary": fold.boundary,
        "archived": fold.archived,
        "foreign": fold.foreign,
    }


def writer(seen: Writer, pulses: Mapping[str, Pulse]) -> dict[str, object]:
    """Return a write that is under way."""
    return {
        "instant": seen.instant,
        "action": seen.action,
        "state": seen.state,
        "owner": seen.owner,
        "operation": seen.operation,
        "host": seen.host,
        "pid": seen.pid,
        "since": seen.since_epoch_ms,
        **_beat(pulses.get(seen.instant)),
        **_groups(seen.groups),
    }


def service(
    plan: PendingService, pulses: Mapping[str, Pulse], writers: Sequence[Writer]
) -> dict[str, object]:
    """Return a pending plan, who is at it, and what waits for it."""
    met = [
        {"instant": each.instant, "owner": each.owner, "operation": each.operation}
        for each in writers
        if each.instant != plan.instant and each.groups & plan.groups
    ]
    return {
        "instant": plan.instant,
        "action": plan.action,
        "state": plan.state,
        "removable": plan.removable,
        "attempt": plan.attempt,
        "owner": plan.owner,
        "host": plan.host,
        "pid": plan.pid,
        "ours": plan.ours,
        "scheduled_by": plan.scheduled_by,
        "next_step": plan.next_step,
        "meets": met,
        **_beat(pulses.get(plan.instant)),
        **_groups(plan.groups),
    }


def turn(waiting: Waiting) -> dict[str, object]:
    """Return a writer that was overtaken and asked to go next."""
    return {
        "position": waiting.position,
        "instant": waiting.instant,
        "owner": waiting.owner,
        "partitions": sorted(waiting.partitions)[:_GROUPS_SHOWN],
        **_groups(waiting.groups),
    }


def met(found: Met) -> dict[str, object]:
    """Return one time that somebody was overtaken, and how it was solved."""
    return {
        "position": found.position,
        "time": found.time,
        "instant": found.instant,
        "owner": found.owner,
        "reason": found.reason,
        "overtaken_by": list(found.overtaken_by),
        "rivals": list(found.rivals),
        "ended": found.ended,
        "solved": _solved(found),
        **_groups(found.groups),
    }


def _solved(found: Met) -> str:
    if found.ended:
        return "merged again and committed"
    if found.overtaken_by:
        service = found.reason.startswith(("clustering", "compaction", "log_compaction"))
        return "gave way" if service else "not committed yet"
    return "waits for its turn" if found.reason == "asked for a turn" else "undone"


def _beat(pulse: Pulse | None) -> dict[str, object]:
    if pulse is None:
        return {"beat": None, "life": 0}
    life_ms = pulse.says.life_ms if pulse.says is not None else _JAVA_LIFE_MS
    return {"beat": pulse.modified_epoch_ms, "life": life_ms}


def _groups(groups: Iterable[tuple[str, str]]) -> dict[str, object]:
    names = group_names(groups)
    return {"groups": names[:_GROUPS_SHOWN], "group_count": len(names)}
