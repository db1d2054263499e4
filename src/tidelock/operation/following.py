"""The changes of a table, commit by commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelock.engine.local import Scan
from tidelock.kernel.merge import Merger
from tidelock.operation.query import changes_scan
from tidelock.store.contract import ObjectStore
from tidelock.table.snapshot import TableSnapshot, open_table
from tidelock.table.timeline.instant import Instant

BEFORE_ALL = "00010101000000000"
"""Before every completion time."""


def settled_writes(store: ObjectStore, after: str) -> tuple[TableSnapshot, tuple[Instant, ...]]:
    """Return the writes completed after `after` that none can come before any more, in order."""
    snapshot = open_table(store)
    found = [each for each in snapshot.timeline.writes() if after < each.completion]
    return snapshot, tuple(sorted(found, key=lambda each: each.completion))


def changes_by_commit(
    snapshot: TableSnapshot,
    since: str | None,
    *,
    columns: Sequence[str] | None = None,
    meta_columns: bool = False,
    merger: Merger | None = None,
) -> Iterator[tuple[str, Scan]]:
    """Yield completion time and read of each write that completed after `since`, in their order.

    What was archived is read as one: its commits cannot be told apart by their files for long.
    """
    before = BEFORE_ALL if since is None else since
    ends = sorted(
        instant.completion for instant in snapshot.timeline.writes() if instant.completion > before
    )
    for end in ends:
        scan = changes_scan(
            snapshot, before, end, columns=columns, meta_columns=meta_columns, merger=merger
        )
        yield end, scan
        before = end
