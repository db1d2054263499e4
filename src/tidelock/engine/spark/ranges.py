"""Rows in one order over many files: where each file begins, by a sample of the rows.

A plan that is `ranged` gives each slot a run of its partition's rows. The local engine sorts them
all and cuts; here runs begin at rows of a sample, so they are as long as planned but for a little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.engine.contract import WritePlan
from tidelock.table.schema.meta import PARTITION_PATH

SAMPLES: Final = 64
"""Rows of each batch that stand for the others in it."""

WEIGHT: Final = "_tidelock_weight"
_MARK: Final = "_tidelock_mark"


@dataclass(frozen=True, slots=True)
class Ranges:
    """The rows at which the runs of each partition begin, all but the first, and their slots."""

    order_by: tuple[str, ...]
    bounds: dict[str, pa.Table]
    slots: dict[str, tuple[int, ...]]

    def slots_of(self, rows: pa.Table) -> pa.Array:
        """Return the slot of each row."""
        paths = rows.column(PARTITION_PATH).combine_chunks()
        found = pa.nulls(rows.num_rows, pa.int32())
        for path in paths.unique().to_pylist():
            mine = pc.equal(paths, path)
            at = pc.indices_nonzero(mine)
            runs = self._runs(rows.take(at), self.bounds[path])
            numbers = pa.array(self.slots[path], pa.int32()).take(runs)
            found = pc.replace_with_mask(found, mine, numbers)
        return found

    def _runs(self, rows: pa.Table, bounds: pa.Table) -> pa.Array:
        """Return how many bounds are at or before each row."""
        columns = list(self.order_by)
        marked = pa.concat_tables([_marked(bounds, columns, 1), _marked(rows, columns, 0)])
        # A bound comes before rows that are equal to it: they belong to the run that it begins.
        keys = [*((name, "ascending") for name in columns), (_MARK, "descending")]
        order = pc.sort_indices(marked, sort_keys=keys)
        passed = pc.cumulative_sum(marked.column(_MARK).combine_chunks().take(order))
        return passed.take(pc.sort_indices(order)).slice(bounds.num_rows)


def sampled(rows: pa.Table, order_by: Iterable[str]) -> pa.Table:
    """Return rows that stand for all, with how many each stands for."""
    columns = list(dict.fromkeys([PARTITION_PATH, *order_by]))
    step = max(1, rows.num_rows // SAMPLES)
    ordered = rows.select(columns).sort_by([(name, "ascending") for name in columns])
    chosen = ordered.take(pa.array(range(step // 2, rows.num_rows, step), pa.int64()))
    weight = pa.repeat(pa.scalar(rows.num_rows / max(1, chosen.num_rows)), chosen.num_rows)
    return chosen.append_column(WEIGHT, weight)


def ranges_of(samples: pa.Table, plan: WritePlan) -> Ranges:
    """Return the ranges of a plan's slots, each as long as its task expects rows."""
    bounds: dict[str, pa.Table] = {}
    slots: dict[str, tuple[int, ...]] = {}
    order = [(name, "ascending") for name in plan.order_by]
    for path in sorted({task.partition for task in plan.tasks}):
        tasks = [task for task in plan.tasks if task.partition == path]
        slots[path] = tuple(task.slot for task in tasks)
        mine = samples.filter(pc.equal(samples.column(PARTITION_PATH), path)).sort_by(order)
        upto = pc.cumulative_sum(mine.column(WEIGHT)).to_pylist()
        places, wanted = [], 0
        for task in tasks[:-1]:
            wanted += task.rows
            place = sum(1 for seen in upto if seen <= wanted)
            places.append(min(place, mine.num_rows - 1))
        bounds[path] = mine.take(pa.array(places, pa.int64()))
    return Ranges(plan.order_by, bounds, slots)


def _marked(rows: pa.Table, columns: list[str], mark: int) -> pa.Table:
    marks = pa.repeat(pa.scalar(mark, pa.int64()), rows.num_rows)
    return rows.select(columns).append_column(_MARK, marks)
