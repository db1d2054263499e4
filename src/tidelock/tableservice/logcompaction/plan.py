"""Which file groups have so many log blocks that merging these alone is worth it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.metadata import CompactionPlan, CompactionStrategy
from tidelock.tableservice.compaction.plan import operation_of

EXECUTOR: Final = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"
"""What Hudi's own executors are to carry the plan out with; by default they would compact."""


def plan_log_compaction(
    slices: Iterable[FileSlice],
    blocks: Callable[[FileSlice], int],
    *,
    threshold: int,
    busy: Collection[GroupId] = (),
) -> CompactionPlan | None:
    """Return the plan for the latest slices of a table; None if no group has enough blocks.

    `blocks` says how many blocks a reader of a slice merges. It is asked only where there are
    enough log files: those that a log compaction has replaced lie beside its own. File groups in
    `busy` belong to another pending plan.
    """
    chosen = [
        piece
        for piece in sorted(slices, key=lambda each: (each.partition, each.file_id))
        if len(piece.logs) >= max(2, threshold)
        and (piece.partition, piece.file_id) not in busy
        and blocks(piece) >= max(2, threshold)
    ]
    if not chosen:
        return None
    return CompactionPlan(
        operations=tuple(operation_of(piece) for piece in chosen),
        strategy=CompactionStrategy(EXECUTOR, {}),
    )
