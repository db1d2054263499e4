"""Sort ranges: where each file of a globally sorted write begins, estimated from a sample.

A `ranged` plan gives each slot a run of its partition's sorted rows. The local engine sorts all
rows and splits them; here runs begin at sampled rows, so their lengths are approximate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.execution.write_plan import WritePlan
from tidelock.hudi.schema import PARTITION_PATH

SAMPLES: Final = 64
"""The number of sampled rows per batch."""

WEIGHT: Final = "_tidelock_weight"
_MARK: Final = "_tidelock_mark"


@dataclass(frozen=True, slots=True)
class SortRanges:
    """The rows at which the runs of each partition begin, except the first, and their slots."""

    order_by: tuple[str, ...]
    bounds: dict[str, pa.Table]
    slots: dict[str, tuple[int, ...]]

    def slots_of(self, rows: pa.Table) -> pa.Array:
        """Return the slot of each row."""
        paths = rows.column(PARTITION_PATH).combine_chunks()
        found = pa.nulls(rows.num_rows, pa.int32())
        for path in paths.unique().to_pylist():
            selected = pc.equal(paths, path)
            at = pc.indices_nonzero(selected)
            runs = self._runs(rows.take(at), self.bounds[path])
            numbers = pa.array(self.slots[path], pa.int32()).take(runs)
            found = pc.replace_with_mask(found, selected, numbers)
        return found

    def _runs(self, rows: pa.Table, bounds: pa.Table) -> pa.Array:
        """Return the number of bounds at or before each row."""
        columns = list(self.order_by)
        marked = pa.concat_tables([_marked(bounds, columns, 1), _marked(rows, columns, 0)])
        # A bound sorts before equal rows, which belong to the run that it begins.
        keys = [*((name, "ascending") for name in columns), (_MARK, "descending")]
        order = pc.sort_indices(marked, sort_keys=keys)
        passed = pc.cumulative_sum(marked.column(_MARK).combine_chunks().take(order))
        return passed.take(pc.sort_indices(order)).slice(bounds.num_rows)


def sample_rows(rows: pa.Table, order_by: Iterable[str]) -> pa.Table:
    """Return sampled rows, with the number of rows that each represents."""
    columns = list(dict.fromkeys([PARTITION_PATH, *order_by]))
    step = max(1, rows.num_rows // SAMPLES)
    ordered = rows.select(columns).sort_by([(name, "ascending") for name in columns])
    chosen = ordered.take(pa.array(range(step // 2, rows.num_rows, step), pa.int64()))
    weight = pa.repeat(pa.scalar(rows.num_rows / max(1, chosen.num_rows)), chosen.num_rows)
    return chosen.append_column(WEIGHT, weight)


def sort_ranges(samples: pa.Table, plan: WritePlan) -> SortRanges:
    """Return the ranges of a plan's slots, with the number of rows that each task expects."""
    bounds: dict[str, pa.Table] = {}
    slots: dict[str, tuple[int, ...]] = {}
    order = [(name, "ascending") for name in plan.order_by]
    for path in sorted({task.partition for task in plan.tasks}):
        tasks = [task for task in plan.tasks if task.partition == path]
        slots[path] = tuple(task.slot for task in tasks)
        sampled = samples.filter(pc.equal(samples.column(PARTITION_PATH), path)).sort_by(order)
        cumulative = pc.cumulative_sum(sampled.column(WEIGHT)).to_pylist()
        positions, expected = [], 0
        for task in tasks[:-1]:
            expected += task.rows
            position = sum(1 for weight in cumulative if weight <= expected)
            positions.append(min(position, sampled.num_rows - 1))
        bounds[path] = sampled.take(pa.array(positions, pa.int64()))
    return SortRanges(plan.order_by, bounds, slots)


def _marked(rows: pa.Table, columns: list[str], mark: int) -> pa.Table:
    marks = pa.repeat(pa.scalar(mark, pa.int64()), rows.num_rows)
    return rows.select(columns).append_column(_MARK, marks)
