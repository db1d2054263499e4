"""What pending plans on the timeline will read, whoever made them."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from tidelock.operation.writer import TableWriter
from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.active import ActiveTimeline, load_timeline
from tidelock.table.timeline.instant import Action

_COMPACTIONS: Final = frozenset({Action.COMPACTION, Action.LOG_COMPACTION})


def planned_slices(
    timeline: ActiveTimeline, *, without: Container[str] = ()
) -> Iterator[tuple[GroupId, str]]:
    """Yield the slices that pending plans will read, as file group and instant.

    `without` are instants whose files are still there, though they were rolled back.
    """
    pending = [i for i in timeline.pending() if i.requested not in without]
    for instant in (i for i in pending if i.action in _COMPACTIONS):
        for operation in timeline.compaction_plan(instant).operations or ():
            group = (operation.partition_path or "", operation.file_id or "")
            yield group, operation.base_instant_time or ""
    for instant in (i for i in pending if i.action is Action.CLUSTERING):
        plan = timeline.replace_request(instant).clustering_plan
        for cluster in (plan.input_groups if plan else None) or ():
            for piece in cluster.slices or ():
                group = (piece.partition_path or "", piece.file_id or "")
                name = (piece.data_file_path or "").rpartition("/")[2]
                yield group, name.rpartition("_")[2].partition(".")[0]


def foreign_groups(writer: TableWriter) -> frozenset[GroupId]:
    """Return the file groups in pending plans that no ledger knows: those of Java writers."""
    timeline = load_timeline(writer.store, writer.properties.timeline_folder)
    void = writer.transactions.ledger.fold.void
    return frozenset(group for group, _ in planned_slices(timeline, without=void))
