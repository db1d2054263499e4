"""Rows are conformed, keyed and deduplicated before they are written."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tidelock.core.errors import InvalidInput, Unsupported
from tidelock.execution.engine import PrepareRule, prepare_rows, repeat_for_partitions
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.hudi.keys import KeyRule
from tidelock.hudi.properties import KeyGenerator, MergeMode
from tidelock.hudi.schema import IS_DELETED, PARTITION_PATH, RECORD_KEY

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("part", pa.string())])
FLAT = KeyRule(KeyGenerator.NON_PARTITION, ("id",))
FOLDERS = KeyRule(KeyGenerator.SIMPLE, ("id",), ("part",), hive_style=True)
BY_TIME = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts",))


def rule(keys: KeyRule = FLAT, merge: MergeRule | None = None, **more: object) -> PrepareRule:
    return PrepareRule(SCHEMA, keys, merge or MergeRule(), **more)  # type: ignore[arg-type]


def table(*rows: tuple[int, int, str]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, each, strict=True)) for each in rows], schema=SCHEMA
    )


def rows_kept(found: pa.Table) -> list[tuple[int, int]]:
    return [(item["id"], item["ts"]) for item in found.to_pylist()]


def test_key_and_partition_columns_are_prepended() -> None:
    found = prepare_rows(table((1, 5, "x")), rule(FOLDERS))
    assert found.column_names == [RECORD_KEY, PARTITION_PATH, "id", "ts", "part"]
    assert found.to_pylist()[0][RECORD_KEY] == "1"
    assert found.to_pylist()[0][PARTITION_PATH] == "part=x"


def test_columns_are_widened_and_missing_ones_are_null() -> None:
    narrow = pa.table({"id": pa.array([1], pa.int32()), "other": ["gone"]})
    found = prepare_rows(narrow, rule())
    assert found.schema.field("id").type == pa.int64()
    assert found.column("ts").null_count == 1
    assert "other" not in found.column_names


def test_later_of_two_rows_with_one_key_is_kept_in_commit_time_order() -> None:
    found = prepare_rows(table((1, 9, ""), (2, 1, ""), (1, 3, "")), rule())
    assert rows_kept(found) == [(2, 1), (1, 3)]


def test_larger_ordering_value_is_kept_in_event_time_order_and_ties_keep_the_later_row() -> None:
    batch = table((1, 9, "a"), (2, 1, "a"), (1, 3, "a"), (2, 1, "b"))
    found = prepare_rows(batch, rule(merge=BY_TIME))
    assert [(i["id"], i["ts"], i["part"]) for i in found.to_pylist()] == [(1, 9, "a"), (2, 1, "b")]


def test_one_key_in_two_partitions_is_two_rows() -> None:
    found = prepare_rows(table((1, 1, "x"), (1, 1, "y"), (1, 2, "y")), rule(FOLDERS))
    assert [(item["part"], item["ts"]) for item in found.to_pylist()] == [("x", 1), ("y", 2)]


def test_duplicates_stay_when_allowed() -> None:
    assert prepare_rows(table((1, 1, ""), (1, 2, "")), rule(dedupe=False)).num_rows == 2


def test_winning_delete_stays_as_a_row() -> None:
    schema = SCHEMA.append(pa.field(IS_DELETED, pa.bool_()))
    batch = pa.table({"id": [1, 1], "ts": [1, 2], "part": ["", ""], IS_DELETED: [False, True]})
    found = prepare_rows(batch, PrepareRule(schema, FLAT, BY_TIME))
    assert found.column(IS_DELETED).to_pylist() == [True]


def test_keys_to_delete_need_only_the_key() -> None:
    found = prepare_rows(pa.table({"id": [1, 2, 1]}), rule(only_keys=True))
    assert found.to_pylist() == [
        {RECORD_KEY: "2", PARTITION_PATH: ""},
        {RECORD_KEY: "1", PARTITION_PATH: ""},
    ]


def test_keys_without_a_partition_are_looked_up_in_all_partitions() -> None:
    keys = prepare_rows(pa.table({"id": [1]}), rule(FOLDERS, only_keys=True, anywhere=True))
    found = repeat_for_partitions(keys, ["part=x", "part=y"])
    assert found.column(PARTITION_PATH).to_pylist() == ["part=x", "part=y"]
    with pytest.raises(InvalidInput, match="partition column 'part' does not exist"):
        prepare_rows(pa.table({"id": [1]}), rule(FOLDERS, only_keys=True))


class Summing:
    """A merger that sums."""

    columns: Sequence[str] = ("ts",)

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        at = older.column_names.index("ts")
        total = pa.array(
            [a + b for a, b in zip(older["ts"].to_pylist(), newer["ts"].to_pylist(), strict=True)]
        )
        return newer.set_column(at, "ts", total)


def test_custom_merger_deduplicates_rows() -> None:
    custom = MergeRule(MergeMode.CUSTOM, merger=Summing())
    found = prepare_rows(table((1, 1, ""), (2, 5, ""), (1, 2, ""), (1, 4, "")), rule(merge=custom))
    assert sorted(rows_kept(found)) == [(1, 7), (2, 5)]
    with pytest.raises(Unsupported, match="duplicate keys"):
        prepare_rows(table((1, 1, ""), (1, 2, "")), rule(merge=MergeRule(MergeMode.CUSTOM)))
