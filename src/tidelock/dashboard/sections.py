"""The data of the page as JSON values, with versions so that only changes are sent.

Times are sent as they are; the page computes ages itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tidelock.core.errors import DataCorrupt
from tidelock.core.formatting import fields_of
from tidelock.hudi.properties import TableProperties
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import CommitMetadata, ReplaceCommitMetadata, decode
from tidelock.inspect.ledger_facts import group_names
from tidelock.services.pending import PendingService
from tidelock.txn import entries as e
from tidelock.txn.heartbeats import JAVA_LIFETIME_MS, HeartbeatStatus
from tidelock.txn.state import LedgerState, WaitingWriter
from tidelock.txn.writers import ActiveWriter, ConflictRecord

_GROUPS_SHOWN: Final = 50


def table(uri: str, properties: TableProperties, state: LedgerState) -> dict[str, object]:
    """Return the properties of a table and the position of its ledger."""
    return {
        "name": properties.name,
        "uri": uri,
        "type": properties.type.value,
        "version": properties.version,
        "key": list(properties.record_keys),
        "partitioned_by": list(properties.partition_fields),
        **fields_of(state, "position", "boundary", "archived"),
        "foreign": state.external,
    }


def writer(active: ActiveWriter, heartbeats: Mapping[str, HeartbeatStatus]) -> dict[str, object]:
    """Return an active writer."""
    return {
        **fields_of(active, "instant", "action", "state", "owner", "operation", "host", "pid"),
        "since": active.since_epoch_ms,
        **_heartbeat(heartbeats.get(active.instant)),
        **_groups(active.groups),
    }


def service(
    plan: PendingService, heartbeats: Mapping[str, HeartbeatStatus], writers: Sequence[ActiveWriter]
) -> dict[str, object]:
    """Return a pending plan, its executor, and the writers that it conflicts with."""
    conflicting = [
        fields_of(each, "instant", "owner", "operation")
        for each in writers
        if each.instant != plan.instant and each.groups & plan.groups
    ]
    return {
        **fields_of(plan, "instant", "action", "state", "removable", "attempt", "owner", "host"),
        **fields_of(plan, "pid", "ours", "scheduled_by", "next_step"),
        "meets": conflicting,
        **_heartbeat(heartbeats.get(plan.instant)),
        **_groups(plan.groups),
    }


def ticket(waiting: WaitingWriter) -> dict[str, object]:
    """Return a conflicted writer that holds a priority ticket."""
    return {
        **fields_of(waiting, "position", "instant", "owner"),
        "partitions": sorted(waiting.partitions)[:_GROUPS_SHOWN],
        **_groups(waiting.groups),
    }


def conflict(found: ConflictRecord) -> dict[str, object]:
    """Return one conflict and its resolution."""
    return {
        **fields_of(found, "position", "time", "instant", "owner", "reason"),
        "overtaken_by": list(found.conflicts_with),
        "rivals": list(found.conflicting_owners),
        "ended": found.ended,
        "solved": found.resolution,
        **_groups(found.groups),
    }


def _heartbeat(heartbeat: HeartbeatStatus | None) -> dict[str, object]:
    if heartbeat is None:
        return {"beat": None, "life": 0}
    lifetime_ms = heartbeat.record.lifetime_ms if heartbeat.record is not None else JAVA_LIFETIME_MS
    return {"beat": heartbeat.modified_epoch_ms, "life": lifetime_ms}


def _groups(groups: Iterable[tuple[str, str]]) -> dict[str, object]:
    names = group_names(groups)
    return {"groups": names[:_GROUPS_SHOWN], "group_count": len(names)}


Key = tuple[int, str]
"""The position of a ledger entry, and its instant."""


@dataclass(slots=True)
class Section:
    """A part of the page that is sent as a whole when it changed."""

    value: object = None
    version: int = 0
    text: str = ""

    def put(self, value: object, version: int) -> None:
        """Set the value; the version only changes if the value does."""
        text = json.dumps(value, sort_keys=True)
        if text != self.text:
            self.value, self.version, self.text = value, version, text


@dataclass(slots=True)
class SectionFeed:
    """A list of which only changed items are sent; pages merge them by key.

    Items that are trimmed here are not announced: pages limit their lists themselves.
    """

    items: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    versions: dict[Key, int] = field(default_factory=dict)

    def put(self, key: Key, item: Mapping[str, Any], version: int) -> None:
        """Add or replace an item."""
        if self.items.get(key) != item:
            self.items[key] = item
            self.versions[key] = version

    def trim(self, limit: int) -> None:
        """Keep only the `limit` items with the largest keys."""
        for key in sorted(self.items)[:-limit]:
            del self.items[key], self.versions[key]

    def after(self, version: int) -> list[Mapping[str, Any]]:
        """Return the items that changed after `version`, largest keys first."""
        fresh = sorted((k for k, at in self.versions.items() if at > version), reverse=True)
        return [self.items[key] for key in fresh]


INSTANTS_MAX: Final = 10_000
"""Instants that a page shows; older ones stay on the timeline."""

REMOVED_MAX: Final = 2_000
"""Removed instants that are remembered for pages that still show them."""

ROLLED_BACK: Final = "undone"
"""The state of an instant that was rolled back, as sent to the page."""


class InstantRow(NamedTuple):
    """One instant: its state, its writer, and how much it wrote.

    The page gets its fields as a list, in this order.
    """

    requested: str
    action: str
    state: str
    completion: str = ""
    owner: str = ""
    operation: str = ""
    rebased: int = 0
    position: int = 0
    external: bool = False
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


@dataclass(slots=True)
class InstantRows:
    """All rows, each with the version of its last change."""

    version: int = 1
    rows: dict[str, InstantRow] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    removed: list[tuple[int, str]] = field(default_factory=list)
    oldest_version: int = 0
    """Pages with an older version have to reload everything."""

    def put(self, row: InstantRow) -> None:
        """Add or replace a row."""
        if self.rows.get(row.requested) != row:
            self.rows[row.requested] = row
            self.changed[row.requested] = self.version

    def remove(self, requested: str) -> None:
        """Remove a row."""
        if self.rows.pop(requested, None) is not None:
            del self.changed[requested]
            self.removed.append((self.version, requested))
            if len(self.removed) > REMOVED_MAX:
                self.oldest_version = self.removed[-REMOVED_MAX][0]
                del self.removed[:-REMOVED_MAX]

    def update(self, instant: Instant) -> None:
        """Update the row of an instant from the timeline."""
        known, state = self.rows.get(instant.requested), _STATES[instant.state]
        action, completion = instant.action.value, instant.completion
        if known is None:
            self.put(InstantRow(instant.requested, action, state, completion))
            return
        # A savepoint has the requested time of the commit that it retains.
        if instant.action is Action.SAVEPOINT:
            return
        action = known.action if known.action in _PLANNED else action
        if (known.action, known.state, known.completion) != (action, state, completion):
            self.put(known._replace(action=action, state=state, completion=completion))

    def replace_all(self, instants: Iterable[Instant]) -> None:
        """Update all rows from a listing of the timeline; remove rows that are not in it."""
        seen: set[str] = set()
        for instant in instants:
            seen.add(instant.requested)
            self.update(instant)
        for key in [k for k, row in self.rows.items() if k not in seen]:
            if self.rows[key].state != ROLLED_BACK:
                self.remove(key)
        for key in sorted(self.rows)[:-INSTANTS_MAX]:
            self.remove(key)

    def apply(self, entry: e.LedgerEntry) -> None:
        """Update the rows that a ledger entry affects."""
        fact = entry.fact
        match fact:
            case e.Commit():
                self._committed(entry, fact)
            case e.ExternalCommit(instant):
                if (row := self.rows.get(instant)) is not None:
                    self.put(row._replace(external=True, position=entry.position))
            case e.Plan(action):
                if (row := self.rows.get(entry.time)) is not None:
                    self.put(row._replace(action=action.value, owner=row.owner or entry.owner))
            case e.Claim(instant):
                row = self.rows.get(instant)
                if row is not None and not row.completion:
                    self.put(row._replace(owner=entry.owner))
            case e.Rollback(instant, reason, attempt=None, conflicts_with=others):
                self._rolled_back(entry, instant, "conflicted" if others else reason)
            case e.PlanRollback(instants=instants, reason=reason):
                for instant in instants:
                    self._rolled_back(entry, instant, reason)
            case _:
                pass

    def _rolled_back(self, entry: e.LedgerEntry, instant: str, reason: str) -> None:
        known = self.rows.get(instant) or InstantRow(instant, "", ROLLED_BACK)
        self.put(
            known._replace(
                state=ROLLED_BACK,
                completion=entry.time,
                owner=known.owner or entry.owner,
                operation=known.operation or reason[:80],
                position=entry.position,
            )
        )

    def _committed(self, entry: e.LedgerEntry, fact: e.Commit) -> None:
        row = self.rows.get(fact.instant)
        if row is None or fact.action is Action.SAVEPOINT:
            return
        rows, size, files = _commit_counts(fact)
        self.put(
            row._replace(
                owner=entry.owner,
                operation=fact.footprint.commit_kind.value,
                rebased=fact.rebased,
                position=entry.position,
                rows=rows,
                bytes=size,
                files=files,
            )
        )

    def after(self, version: int) -> tuple[bool, list[list[object]], list[str]]:
        """Return whether a page must reload everything, the changed rows, and the removed ones."""
        if version < self.oldest_version or version > self.version or version == 0:
            return True, [list(row) for _, row in sorted(self.rows.items())], []
        keys = sorted(key for key, at in self.changed.items() if at > version)
        removed = [key for at, key in self.removed if at > version and key not in self.rows]
        return False, [list(self.rows[key]) for key in keys], removed


_STATES: Final = {state: state.name.lower() for state in InstantState}
_PLANNED: Final = frozenset(
    {Action.COMPACTION.value, Action.LOG_COMPACTION.value, Action.CLUSTERING.value}
)


def _commit_counts(fact: e.Commit) -> tuple[int | None, int | None, int | None]:
    """Return rows, bytes and files of a commit; None if they are not inline in the entry."""
    if not isinstance(fact.content, e.InlineContent) or not fact.action.writes_data:
        return None, None, None
    replaces = fact.action is Action.REPLACE_COMMIT
    try:
        found = decode(
            ReplaceCommitMetadata if replaces else CommitMetadata,
            fact.content.data,
            where=fact.instant,
        )
    except DataCorrupt:
        return None, None, None
    stats = [stat for each in found.partition_to_write_stats.values() for stat in each]
    return (
        sum(stat.num_writes or 0 for stat in stats),
        sum(stat.total_write_bytes or 0 for stat in stats),
        len(stats),
    )
