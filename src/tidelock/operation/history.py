"""What was done to a table: its completed actions, newest first, the archived ones included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from tidelock.base.errors import InvalidInput
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.archive import ArchivedInstant
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import CommitMetadata, ReplaceCommitMetadata, WriteStat


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One completed action. The counts are what its writer recorded; None where it wrote no data.

    `rows_written` counts rows in the files written: a copy-on-write update writes its file's other
    rows again.
    """

    requested: str
    completion: str
    action: Action
    archived: bool = False
    operation: str | None = None
    files: int | None = None
    rows_written: int | None = None
    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    bytes_written: int | None = None


def history(snapshot: TableSnapshot, limit: int | None = None) -> tuple[HistoryEntry, ...]:
    """Return the last `limit` completed actions (all with None), newest request first.

    Raises: `InvalidInput`, `DataCorrupt`.
    """
    if limit is not None and limit < 0:
        raise InvalidInput(f"limit = {limit!r} is no number of actions", hint="give 0 or more")
    return tuple(islice(_entries(snapshot), limit))


def _entries(snapshot: TableSnapshot) -> Iterator[HistoryEntry]:
    seen = set()
    for instant in reversed(snapshot.timeline.completed()):
        seen.add(instant.identity)
        bare = HistoryEntry(instant.requested, instant.completion, instant.action)
        if instant.action.writes_data:
            yield _described(bare, snapshot.timeline.commit(instant))
        else:
            yield bare
    # The archive is read only by those who look back that far. An instant is in both places for a
    # moment while it is being archived.
    for old in reversed(snapshot.archive.instants()):
        if (old.requested, old.action) not in seen:
            bare = HistoryEntry(old.requested, old.completion, old.action, archived=True)
            yield _described(bare, _metadata(snapshot, old)) if old.action.writes_data else bare


def _metadata(snapshot: TableSnapshot, old: ArchivedInstant) -> CommitMetadata:
    kind = ReplaceCommitMetadata if old.action is Action.REPLACE_COMMIT else CommitMetadata
    where = f"{snapshot.store.uri}/{snapshot.properties.history_folder} {old.requested}"
    return decode(kind, old.metadata, where=where)


def _described(entry: HistoryEntry, commit: CommitMetadata) -> HistoryEntry:
    stats = [stat for each in commit.partition_to_write_stats.values() for stat in each]
    return HistoryEntry(
        entry.requested,
        entry.completion,
        entry.action,
        entry.archived,
        operation=commit.operation_type,
        files=len(stats),
        rows_written=_sum(stats, "num_writes"),
        rows_inserted=_sum(stats, "num_inserts"),
        rows_updated=_sum(stats, "num_update_writes"),
        rows_deleted=_sum(stats, "num_deletes"),
        bytes_written=_sum(stats, "total_write_bytes"),
    )


def _sum(stats: Iterable[WriteStat], name: str) -> int:
    return sum(getattr(stat, name) or 0 for stat in stats)
