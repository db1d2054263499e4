"""The work on one file group, as every engine runs it: a task, its rows, and the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.errors import InvariantBroken
from tidelock.engine.contract import GroupTask, TaskKind, WritePlan
from tidelock.kernel.context import WriteContext
from tidelock.kernel.results import FileKind, FileResult
from tidelock.kernel.route import FILE_ID, SLOT, TOMBSTONE
from tidelock.kernel.write import (
    append_log,
    concat_base,
    create_base,
    merge_base,
    revives_older,
)
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.schema.meta import RECORD_KEY


def run_task(
    store: ObjectStore, context: WriteContext, task: GroupTask, rows: pa.Table
) -> tuple[FileResult, ...]:
    """Write the rows of one task and return what was written. It may be run again, or twice.

    Raises: `NotFound`, `DataCorrupt`, `InvalidInput`, `StoreUnreachable`, each naming the object.
    """
    plain, deletes = _plain(rows), None
    if task.deletes:
        deletes, changes = plain.column(RECORD_KEY).combine_chunks(), None
    elif TOMBSTONE in rows.column_names:
        gone = pc.fill_null(rows.column(TOMBSTONE), fill_value=False)
        deletes = plain.filter(gone).column(RECORD_KEY).combine_chunks()
        changes = plain = plain.filter(pc.invert(gone))
    else:
        changes = plain
    kind = task.kind
    appends = kind is TaskKind.APPEND and task.has_deletes
    if appends and revives_older(store, context, _piece(task), changes):
        kind = TaskKind.MERGE
    match kind:
        case TaskKind.CREATE:
            return _created(store, context, task, [plain])
        case TaskKind.REPLACE:
            return tuple(
                _in_place_of(task.piece, each) for each in _created(store, context, task, [plain])
            )
        case TaskKind.MERGE:
            piece = _piece(task)
            return (
                merge_base(store, context, piece, slot=task.slot, rows=changes, deletes=deletes),
            )
        case TaskKind.CONCAT:
            return (concat_base(store, context, _piece(task), slot=task.slot, rows=plain),)
        case TaskKind.APPEND:
            return (_appended(store, context, task, changes, deletes),)
        case other:
            assert_never(other)


def run_stream(
    store: ObjectStore, context: WriteContext, task: GroupTask, batches: Iterable[pa.Table]
) -> tuple[FileResult, ...]:
    """Run a task on rows that come a part at a time.

    Rows that are merged are in memory as a whole; rows of new files are not.
    """
    if task.kind is TaskKind.CREATE:
        return _created(store, context, task, (_plain(rows) for rows in batches))
    return run_task(store, context, task, pa.concat_tables(batches))


def _plain(rows: pa.Table) -> pa.Table:
    ours = (FILE_ID, SLOT, TOMBSTONE)
    return rows.drop_columns([name for name in ours if name in rows.column_names])


def _created(
    store: ObjectStore, context: WriteContext, task: GroupTask, rows: Iterable[pa.Table]
) -> tuple[FileResult, ...]:
    if not task.rolls_over:
        # A bucket has one group, however large it grows.
        context = replace(context, settings=replace(context.settings, file_bytes_max=None))
    return create_base(
        store,
        context,
        partition=task.partition,
        file_id=task.file_id,
        slot=task.slot,
        rows=rows,
    )


def _in_place_of(piece: FileSlice | None, result: FileResult) -> FileResult:
    """Return the result of a base file that stands for a group without what it had."""
    if piece is None:
        return result
    if piece.base is None:
        return replace(result, kind=FileKind.MERGED)
    stat = replace(result.stat, prev_commit=piece.base.instant, prev_base_file=piece.base.name)
    return replace(result, stat=stat, kind=FileKind.MERGED, replaced_base=piece.base.name)


def _appended(
    store: ObjectStore,
    context: WriteContext,
    task: GroupTask,
    rows: pa.Table | None,
    deletes: pa.Array | None,
) -> FileResult:
    group, inserted = task.piece, None
    if group is None:
        # Nothing was in this group before, so every row is an insert.
        group = FileSlice(task.partition, task.file_id, context.instant, None)
        inserted = None if rows is None else rows.column(RECORD_KEY).combine_chunks()
    return append_log(
        store, context, group, slot=task.slot, rows=rows, deletes=deletes, inserted=inserted
    )


def runs_without_rows(task: GroupTask) -> bool:
    """Tell whether a task is run even if no row came to it."""
    return task.kind is TaskKind.REPLACE


def in_order(rows: pa.Table, plan: WritePlan) -> pa.Table:
    """Return the rows of one slot in the order that the plan asks for."""
    if not plan.order_by or rows.num_rows < 2:
        return rows
    return rows.sort_by([(name, "ascending") for name in plan.order_by])


def by_slot(results: Sequence[tuple[int, tuple[FileResult, ...]]]) -> tuple[FileResult, ...]:
    """Return the results of all tasks in the order of their slots."""
    return tuple(each for _, found in sorted(results, key=_slot) for each in found)


def _slot(pair: tuple[int, tuple[FileResult, ...]]) -> int:
    return pair[0]


def _piece(task: GroupTask) -> FileSlice:
    if task.piece is None:
        raise InvariantBroken(f"the file group {task.file_id} is to be merged and does not exist")
    return task.piece
