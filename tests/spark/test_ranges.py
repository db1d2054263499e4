"""Range partitioning of rows over many files, at the bounds of a sample."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.execution.spark.large_write import sample_rows, sort_ranges
from tidelock.execution.write_plan import GroupTask, Routes, TaskKind, WritePlan
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY

ORDER = (PARTITION_PATH, RECORD_KEY)


def plan(*sizes: int) -> WritePlan:
    tasks = tuple(
        GroupTask(slot, path, f"f{slot}", TaskKind.CREATE, None, size)
        for slot, (path, size) in enumerate((path, size) for path in ("p", "q") for size in sizes)
    )
    return WritePlan(tasks, Routes(), ORDER, ranged=True)


def batches(count: int) -> list[pa.Table]:
    chance = np.random.default_rng(7)
    keys = chance.permutation(count)
    table = pa.table(
        {
            RECORD_KEY: [f"k{key:06}" for key in keys],
            PARTITION_PATH: ["p" if key % 2 else "q" for key in keys],
        }
    )
    return [table.slice(start, 1000) for start in range(0, count, 1000)]


def test_ranges_do_not_overlap_and_have_about_the_planned_size() -> None:
    parts = batches(12_000)
    planned = plan(3000, 2000, 1000)
    ranges = sort_ranges(pa.concat_tables([sample_rows(part, ORDER) for part in parts]), planned)
    table = pa.concat_tables(parts)
    slots = pa.concat_arrays([ranges.slots_of(part) for part in parts])
    assert slots.null_count == 0
    for first in (0, 3):
        runs = [
            table.filter(pc.equal(slots, slot)).column(RECORD_KEY)
            for slot in range(first, first + 3)
        ]
        for run, expected in zip(runs, (3000, 2000, 1000), strict=True):
            assert abs(len(run) - expected) < 300
        for before, after in pairwise(runs):
            assert pc.max(before).as_py() < pc.min(after).as_py()
    assert set(
        slots.filter(pc.equal(table.column(PARTITION_PATH), "p").combine_chunks())
        .unique()
        .to_pylist()
    ) == {0, 1, 2}


def test_equal_rows_are_in_one_range() -> None:
    table = pa.table({RECORD_KEY: ["same"] * 500, PARTITION_PATH: ["p"] * 500})
    planned = WritePlan(plan(250, 250).tasks[:2], Routes(), ORDER, ranged=True)
    ranges = sort_ranges(sample_rows(table, ORDER), planned)
    assert len(ranges.slots_of(table).unique()) == 1
