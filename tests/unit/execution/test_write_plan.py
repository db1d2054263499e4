"""Every row has one slot, and inserts are distributed by the planned shares."""

from __future__ import annotations

import pyarrow as pa

from tidelock.execution.write_plan import (
    FILE_ID,
    SHARES,
    InsertSlot,
    Routes,
    assign_slots,
    share_bounds,
    share_numbers,
)
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY


def tagged(*rows: tuple[str, str, str | None]) -> pa.Table:
    partitions, keys, groups = zip(*rows, strict=True)
    columns = {RECORD_KEY: keys, PARTITION_PATH: partitions, FILE_ID: groups}
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def test_shares_end_at_the_total() -> None:
    assert share_bounds([1, 3]) == (SHARES // 4, SHARES)
    assert share_bounds([0, 0]) == (SHARES, SHARES)
    assert share_bounds([]) == ()


def test_rows_go_to_their_group_or_to_a_slot_of_their_partition() -> None:
    routes = Routes(
        {("a", "f1"): 0, ("b", "f1"): 1},
        {"a": (InsertSlot(2, SHARES),), "b": (InsertSlot(3, SHARES // 2), InsertSlot(4, SHARES))},
    )
    rows = tagged(("a", "x", "f1"), ("b", "x", "f1"), ("a", "y", None), ("b", "y", None))
    found = assign_slots(rows, routes).to_pylist()
    assert found[:3] == [0, 1, 2]
    assert found[3] == (3 if share_numbers(pa.array(["y"]))[0].as_py() < SHARES // 2 else 4)


def test_row_unknown_to_the_plan_has_no_slot() -> None:
    rows = tagged(("a", "x", "f9"), ("b", "y", None))
    assert assign_slots(rows, Routes({("a", "f1"): 0})).to_pylist() == [None, None]


def test_inserts_are_distributed_by_their_shares() -> None:
    keys = [f"key-{number}" for number in range(20_000)]
    ends = share_bounds([1, 2, 1])
    routes = Routes({}, {"": tuple(InsertSlot(i, end) for i, end in enumerate(ends))})
    found = assign_slots(tagged(*(("", key, None) for key in keys)), routes)
    counts = {item["values"]: item["counts"] for item in found.value_counts().to_pylist()}
    for slot, expected in enumerate((5_000, 10_000, 5_000)):
        assert abs(counts[slot] - expected) < 400


def test_slot_of_a_row_does_not_depend_on_other_rows() -> None:
    ends = share_bounds([1] * 7)
    routes = Routes({}, {"": tuple(InsertSlot(i, end) for i, end in enumerate(ends))})
    rows = [("", f"key-{number}", None) for number in range(100)]
    together = assign_slots(tagged(*rows), routes).to_pylist()
    alone = [assign_slots(tagged(each), routes)[0].as_py() for each in rows]
    assert together == alone
