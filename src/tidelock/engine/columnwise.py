"""The first files of many groups written side by side, all of them a column at a time.

A load into buckets moves every row. Moved as whole rows they would be in memory once more; of one
column after the other only that column is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.runtime import Each
from tidelock.engine.contract import GroupTask, TaskKind, WritePlan
from tidelock.engine.moving import Ordered, ordered
from tidelock.kernel.columnfile import MADE, ColumnFile
from tidelock.kernel.context import WriteContext
from tidelock.kernel.results import FileResult
from tidelock.kernel.route import TOMBSTONE
from tidelock.store.contract import ObjectStore

ROWS_BYTES_MIN: Final = 64 * 1024 * 1024
"""Fewer rows are moved as they are: each column of each file has its price."""


def goes_by_columns(rows: pa.Table, plan: WritePlan) -> bool:
    """Tell whether a write only makes new files, one for each group, of many rows in no order."""
    return bool(
        len(plan.tasks) <= FILES_MAX
        and rows.nbytes >= ROWS_BYTES_MIN
        and TOMBSTONE not in rows.column_names
        and not plan.ranged
        and not plan.order_by
        and all(task.kind is TaskKind.CREATE and not task.rolls_over for task in plan.tasks)
    )


FILES_MAX: Final = 64
"""All files are open at once, so of more than this each is written when its turn comes."""

GROUP_ROWS_MAX: Final = 128 * 1024
"""Who asks for a range of rows that came together reads row groups: these, and not whole files."""


@dataclass(frozen=True, slots=True)
class _Lane:
    """One file in the making: its slot, and how many rows it has up to the end of each portion."""

    slot: int
    file: ColumnFile
    ends: list[int]

    def within(self, span: range) -> range:
        """Return the numbers of the file's rows in `span`."""
        return range(span.start, min(span.stop, self.ends[-1]))

    def portions(self, span: range) -> range:
        """Return the portions that have its rows of `span`."""
        rows = self.within(span)
        return range(bisect_right(self.ends, rows.start), bisect_left(self.ends, rows.stop) + 1)


def write_by_columns(
    store: ObjectStore,
    context: WriteContext,
    rows: pa.Table,
    plan: WritePlan,
    *,
    each: Each,
    check: Callable[[], None],
) -> list[tuple[int, tuple[FileResult, ...]]]:
    """Write the file of every task and return the results by slot; `check` may stop it.

    Raises: what an upload raises, and `check`.
    """
    portions = ordered(rows, plan, each)
    with ExitStack() as held:

        def begun(task: GroupTask) -> _Lane:
            names = {"partition": task.partition, "file_id": task.file_id}
            file = held.enter_context(ColumnFile(store, context, **names, slot=task.slot))
            return _Lane(task.slot, file, _ends(portions, task.slot))

        check()
        some = [task for task in plan.tasks if _ends(portions, task.slot)[-1]]
        lanes = each(begun, some)
        largest = max(lane.ends[-1] for lane in lanes)
        size = _group_rows(rows, context, largest)
        for first in range(0, largest, size):
            left = [lane for lane in lanes if lane.ends[-1] > first]
            for name in context.schema.names:
                check()
                _write_column(name, left, portions, range(first, first + size), each)
            for lane in left:
                lane.file.end_group()
        return each(lambda lane: (lane.slot, (lane.file.finish(),)), lanes)


def _ends(portions: Sequence[Ordered], slot: int) -> list[int]:
    """Return how many rows of a slot there are up to the end of each portion."""
    return list(accumulate(part.start(slot + 1) - part.start(slot) for part in portions))


def _write_column(
    name: str, lanes: list[_Lane], portions: list[Ordered], span: range, each: Each
) -> None:
    """Write a column of those rows of each file whose numbers are in `span`."""
    if name in MADE:
        each(lambda lane: lane.file.make(name, len(lane.within(span))), lanes)
        return
    touched = sorted({number for lane in lanes for number in lane.portions(span)})
    parts = [portions[number] for number in touched]
    columns = each(lambda part: pc.take(part.rows.column(name), part.order), parts)
    moved = dict(zip(touched, columns, strict=True))

    def taken(lane: _Lane) -> None:
        mine, chunks = lane.portions(span), []
        for number in mine:
            start, end = (portions[number].start(lane.slot + more) for more in (0, 1))
            chunks.append(moved[number].slice(start, end - start))
        whole = pa.chunked_array(chunks)
        before = lane.ends[mine[0] - 1] if mine[0] else 0
        rows = lane.within(span)
        lane.file.add(name, whole.slice(rows.start - before, len(rows)))

    each(taken, lanes)


def _group_rows(rows: pa.Table, context: WriteContext, largest: int) -> int:
    """Return how many rows a row group has, so that those of the largest file are about equal."""
    width = max(1, rows.nbytes // max(1, rows.num_rows))
    most = min(GROUP_ROWS_MAX, max(1, context.settings.row_group_bytes // int(width)))
    groups = -(-largest // most)
    return -(-largest // groups)
