"""Assignment of rows: small files first, then new groups, deterministic for the same counts."""

from __future__ import annotations

from itertools import count

import pytest

from tidelock.execution.write_plan import SHARES, PartitionProfile, TaskKind, WritePlan
from tidelock.hudi.file_groups import BaseFile, FileSlice, LogFile
from tidelock.operations.planner import Capacity, TableShape, plan_buckets, plan_bulk, plan_write

CAPACITY = Capacity(
    file_bytes=1_000, small_bytes=800, record_bytes=10, file_rows=100, small_candidates=1
)


def names() -> object:
    numbers = count()
    return lambda: f"new{next(numbers)}"


def piece(file_id: str, size_bytes: int, *, partition: str = "", logs: int = 0) -> FileSlice:
    base = BaseFile(partition, f"{file_id}_0-0-0_1.parquet", file_id, "0-0-0", "1", size_bytes)
    written = tuple(
        LogFile(partition, f".{file_id}_2.log.{n}_0-0-0", file_id, "0-0-0", "2", n, 9)
        for n in range(1, logs + 1)
    )
    return FileSlice(partition, file_id, "1", base, written)


def planned(
    inserts: int,
    *pieces: FileSlice,
    updates: dict[str, int] | None = None,
    shape: TableShape | None = None,
) -> WritePlan:
    slices = {(each.partition, each.file_id): each for each in pieces}
    profile = {"": PartitionProfile(inserts, updates or {})}
    return plan_write(profile, slices, shape or TableShape(), CAPACITY, names())  # type: ignore[arg-type]


def kinds(plan: WritePlan) -> list[tuple[str, TaskKind, int]]:
    return [(task.file_id, task.kind, task.rows) for task in plan.tasks]


def test_inserts_fill_the_smallest_file_first_and_then_new_groups() -> None:
    plan = planned(150, piece("small", 500), piece("tiny", 100), piece("large", 900))
    assert kinds(plan) == [
        ("tiny", TaskKind.MERGE, 90),
        ("small", TaskKind.MERGE, 50),
        ("new0-0", TaskKind.CREATE, 10),
    ]
    ends = [slot.below for slot in plan.routes.inserts[""]]
    assert ends == [SHARES * 90 // 150, SHARES * 140 // 150, SHARES]


def test_new_groups_are_filled_in_turn() -> None:
    assert [task.rows for task in planned(250).tasks] == [100, 100, 50]


def test_small_file_that_is_also_updated_has_one_task() -> None:
    plan = planned(5, piece("tiny", 100), updates={"tiny": 3})
    assert kinds(plan) == [("tiny", TaskKind.MERGE, 8)]
    assert plan.routes.groups == {("", "tiny"): 0}


def test_merge_on_read_updates_are_appended_unless_the_group_gets_inserts() -> None:
    shape = TableShape(appends=True)
    plan = planned(5, piece("a", 100), piece("b", 900), updates={"a": 3, "b": 2}, shape=shape)
    assert kinds(plan) == [("a", TaskKind.MERGE, 8), ("b", TaskKind.APPEND, 2)]


@pytest.mark.parametrize(
    ("other", "shape"),
    [
        (piece("logged", 100, logs=1), TableShape(appends=True)),
        (piece("planned", 100), TableShape(appends=True, busy=frozenset({("", "planned")}))),
        (piece("planned", 100), TableShape(busy=frozenset({("", "planned")}))),
        (piece("tiny", 100), TableShape(fills_small=False)),
    ],
)
def test_groups_that_must_not_be_rewritten_get_no_inserts(
    other: FileSlice, shape: TableShape
) -> None:
    assert kinds(planned(5, other, shape=shape)) == [("new0-0", TaskKind.CREATE, 5)]


def test_merge_on_read_fills_at_most_the_configured_number_of_small_files() -> None:
    plan = planned(150, piece("a", 500), piece("b", 400), shape=TableShape(appends=True))
    assert kinds(plan) == [("b", TaskKind.MERGE, 60), ("new0-0", TaskKind.CREATE, 90)]


def test_rows_of_a_bucket_without_a_group_create_it() -> None:
    plan = planned(0, updates={"00000001-x-0": 4})
    assert kinds(plan) == [("00000001-x-0", TaskKind.CREATE, 4)]
    assert not plan.tasks[0].rolls_over
    logged = planned(
        0, updates={"00000001-x-0": 4}, shape=TableShape(appends=True, logs_inserts=True)
    )
    assert kinds(logged) == [("00000001-x-0", TaskKind.APPEND, 4)]


def test_blind_inserts_are_added_next_to_existing_rows() -> None:
    plan = planned(5, piece("tiny", 100), shape=TableShape(concat=True))
    assert kinds(plan) == [("tiny", TaskKind.CONCAT, 5)]


def test_same_counts_give_the_same_plan() -> None:
    pieces = (piece("small", 500), piece("tiny", 100))
    assert planned(250, *pieces) == planned(250, *reversed(pieces))


def test_bulk_insert_distributes_rows_evenly() -> None:
    profile = {"a": PartitionProfile(250), "b": PartitionProfile(3)}
    plan = plan_bulk(profile, CAPACITY, names())  # type: ignore[arg-type]
    assert [(task.partition, task.rows) for task in plan.tasks] == [
        ("a", 84),
        ("a", 83),
        ("a", 83),
        ("b", 3),
    ]
    wide = plan_bulk({"": PartitionProfile(10)}, CAPACITY, names(), slots_min=4)  # type: ignore[arg-type]
    assert [task.rows for task in wide.tasks] == [3, 3, 2, 2]


def test_overwritten_buckets_without_rows_get_an_empty_version() -> None:
    old = [piece("00000000-x-0", 10), piece("00000001-x-0", 10)]
    profile = {"": PartitionProfile(0, {"00000001-x-0": 2, "00000003-x-0": 1})}
    plan = plan_buckets(profile, {}, old)
    assert kinds(plan) == [
        ("00000000-x-0", TaskKind.REPLACE, 0),
        ("00000001-x-0", TaskKind.REPLACE, 2),
        ("00000003-x-0", TaskKind.CREATE, 1),
    ]
