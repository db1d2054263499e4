"""Rows on their way to the tasks of a write: put in the order of slots, and moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.errors import InvariantBroken
from tidelock.base.runtime import Each, one_by_one
from tidelock.engine.contract import GroupTask, WritePlan
from tidelock.engine.task import in_order, runs_without_rows
from tidelock.kernel.route import FILE_ID, slots
from tidelock.table.schema.meta import PARTITION_PATH

ORDERED_ROWS: Final = 128 * 1024
"""Rows that are put in the order of their slots together, and moved in parts of it."""

WAVE_BYTES: Final = 384 * 1024 * 1024
"""About so many bytes of rows are moved to their tasks at a time, beside those that are given."""

_CHUNK_ROWS_MIN: Final = 16 * 1024
"""Rows in smaller chunks than this are joined before they are moved."""

_SHORT_MAX: Final = 2**16


def parts(rows: pa.Table, plan: WritePlan) -> Iterator[tuple[GroupTask, pa.Table]]:
    """Yield each task to run with its rows."""
    for wave in waves(rows, plan):
        yield from wave


def waves(
    rows: pa.Table, plan: WritePlan, each: Each = one_by_one, *, tasks_min: int = 1
) -> Iterator[list[tuple[GroupTask, pa.Table]]]:
    """Yield the tasks to run with their rows, so many at a time that few rows are there twice.

    At least `tasks_min` come together, so that nobody who runs them is idle.
    """
    if plan.ranged:
        yield list(_runs(rows, plan))
        return
    if len(plan.tasks) == 1:
        _slots_of(rows, plan)
        yield list(_one(plan.tasks[0], rows.drop_columns([FILE_ID]), plan))
        return
    portions = ordered(rows, plan, each)
    schema = rows.drop_columns([FILE_ID]).schema
    tasks = sorted(plan.tasks, key=lambda task: task.slot)
    for some in _some_of(tasks, rows, tasks_min):
        first, last = some[0].slot, some[-1].slot
        moved = each(lambda part: part.moved(first, last), portions)  # noqa: B023 - used at once
        mine = {task.slot: [part.of(task.slot) for part in moved] for task in some}
        del moved
        wave: list[tuple[GroupTask, pa.Table]] = []
        for task in some:
            wave += _one(task, pa.Table.from_batches(mine.pop(task.slot), schema), plan)
        yield wave


def ordered(rows: pa.Table, plan: WritePlan, each: Each) -> list[Ordered]:
    """Return the rows in portions, each with the order of its rows by the plan's slots."""
    found = _slots_of(rows, plan)
    # Nobody asks for their groups any more.
    rows = rows.drop_columns([FILE_ID])
    if rows.num_rows < _CHUNK_ROWS_MIN * rows.column(0).num_chunks:
        rows = rows.combine_chunks()
    return each(lambda part: _ordered(*part), list(_portions(rows, found)))


def _slots_of(rows: pa.Table, plan: WritePlan) -> pa.Array:
    found = slots(rows, plan.routes)
    if found.null_count:
        raise InvariantBroken(f"{found.null_count} rows have no slot in the plan")
    return found


def _some_of(tasks: Sequence[GroupTask], rows: pa.Table, least: int) -> Iterator[list[GroupTask]]:
    """Yield runs of tasks whose rows take about `WAVE_BYTES`, by how many are expected."""
    width = rows.nbytes / max(1, rows.num_rows)
    some: list[GroupTask] = []
    size = 0.0
    for task in tasks:
        if len(some) >= least and size + task.rows * width > WAVE_BYTES:
            yield some
            some, size = [], 0.0
        some.append(task)
        size += task.rows * width
    if some:
        yield some


@dataclass(frozen=True, slots=True)
class Ordered:
    """Some rows, in which order they are by their slots, and where in it each slot begins."""

    rows: pa.RecordBatch
    order: pa.Array
    starts: tuple[int, ...]

    def moved(self, first: int, last: int) -> _Moved:
        """Return the rows of the slots from `first` to `last`, side by side."""
        start, end = self.start(first), self.start(last + 1)
        starts = tuple(self.start(slot) - start for slot in range(first, last + 2))
        return _Moved(self.rows.take(self.order.slice(start, end - start)), first, starts)

    def start(self, slot: int) -> int:
        """Return where a slot begins; slots after the last one that has rows are at the end."""
        return self.starts[min(slot, len(self.starts) - 1)]


@dataclass(frozen=True, slots=True)
class _Moved:
    """The rows of some slots, from `first` on, and where each of them begins; the last one ends."""

    rows: pa.RecordBatch
    first: int
    starts: tuple[int, ...]

    def of(self, slot: int) -> pa.RecordBatch:
        """Return the rows of a slot."""
        start, end = self.starts[slot - self.first : slot - self.first + 2]
        return self.rows.slice(start, end - start)


def _portions(rows: pa.Table, found: pa.Array) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """Yield rows with their slots, not so many that moving them would go through all memory."""
    start = 0
    for batch in rows.to_batches(max_chunksize=ORDERED_ROWS):
        yield batch, found.slice(start, batch.num_rows)
        start += batch.num_rows


def _ordered(rows: pa.RecordBatch, found: pa.Array) -> Ordered:
    slots_of = found.to_numpy(zero_copy_only=False)
    starts = (0, *(int(end) for end in np.cumsum(np.bincount(slots_of))))
    kind = np.uint16 if len(starts) <= _SHORT_MAX else np.int32
    # Numbers of two bytes are sorted by their digits, in one pass over the rows for each.
    order = np.argsort(slots_of.astype(kind), kind="stable").astype(np.int32)
    return Ordered(rows, pa.array(order), starts)


def _runs(rows: pa.Table, plan: WritePlan) -> Iterator[tuple[GroupTask, pa.Table]]:
    """Yield each task with a run of its partition's rows, sorted as a whole."""
    paths = rows.column(PARTITION_PATH)
    by_partition: dict[str, list[GroupTask]] = {}
    for task in plan.tasks:
        by_partition.setdefault(task.partition, []).append(task)
    for partition, tasks in by_partition.items():
        mine = rows if len(by_partition) == 1 else rows.filter(pc.equal(paths, partition))
        ordered, start = in_order(mine, plan), 0
        for number, task in enumerate(tasks):
            size = ordered.num_rows - start if number == len(tasks) - 1 else task.rows
            if size:
                yield task, ordered.slice(start, size)
            start += size


def _one(task: GroupTask, rows: pa.Table, plan: WritePlan) -> Iterator[tuple[GroupTask, pa.Table]]:
    if rows.num_rows or runs_without_rows(task):
        yield task, in_order(rows, plan)
