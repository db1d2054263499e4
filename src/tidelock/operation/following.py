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
    """Return the writes completed after `after` that none can come before any more, in order.

    One look at the timeline may find a write and miss one that completed before it, if both appear
    while it is being listed. What one look has found, a second one finds with all before it (C29).
    """
    until = open_table(store).latest_completion or after
    snapshot = open_table(store)
    found = [each for each in snapshot.timeline.writes() if after < each.completion <= until]
    return snapshot, tuple(sorted(found, key=lambda each: each.completion))


def changes_by_commit(
    snapshot: TableSnapshot,
    since: str | None,
    *,
    until: str | None = None,
    columns: Sequence[str] | None = None,
    meta_columns: bool = False,
    merger: Merger | None = None,
) -> Iterator[tuple[str, Scan]]:
    """Yield completion time and read of each write that completed after `since`, in their order.

    Those up to `until`, if it is given: later ones may appear with an earlier one still missing.
    What was archived is read as one: its commits cannot be told apart by their files for long.
    """
    before = BEFORE_ALL if since is None else since
    ends = sorted(
        instant.completion
        for instant in snapshot.timeline.writes()
        if instant.completion > before and (until is None or instant.completion <= until)
    )
    for end in ends:
        scan = changes_scan(
            snapshot, before, end, columns=columns, meta_columns=meta_columns, merger=merger
        )
        yield end, scan
        before = end
