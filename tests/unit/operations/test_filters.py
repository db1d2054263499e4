"""Filtered reads return the right rows, and skip files and row groups that cannot match."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelock as tl
from tests.unit.operations.model import TYPES, create_table, ordered, row, rows
from tidelock.core.errors import InvalidInput
from tidelock.execution.filegroup import read
from tidelock.operations.query import prune_partitions, row_filter_of

FIELD = pc.field


def found(table: tl.Table, given: Any) -> list[dict[str, Any]]:
    return ordered(table.read(filter=given).to_pylist())


@pytest.mark.parametrize("by", [None, "region"])
@pytest.mark.parametrize("kind", TYPES)
def test_matching_rows_are_returned_including_updates(kind: str, by: str | None) -> None:
    table = create_table(kind, by)
    table.upsert(rows(range(12)))
    table.upsert([row(3, 9), row(4, 0)])
    assert found(table, ("ts", ">", 5)) == [row(3, 9)]
    assert found(table, [("id", ">=", "k009"), ("region", "=", "a")]) == [row(9)]
    assert found(table, FIELD("region") == "b") == [row(n) for n in (1, 4, 7, 10)]
    assert found(table, ("id", "in", ["k001", "k999"])) == [row(1)]
    assert found(table, ("id", "not in", [f"k{n:03}" for n in range(11)])) == [row(11)]
    assert found(table, ("v", "is null", None)) == []
    assert len(found(table, ("v", "is not null", None))) == 12


def test_filter_can_use_columns_that_are_not_returned() -> None:
    table = create_table()
    table.upsert(rows(range(6)))
    assert table.read(["id"], filter=("ts", "=", 1), partitions=None).column_names == ["id"]
    assert table.read(["id"], filter=("region", "=", "a")).to_pylist() == [
        {"id": "k000"},
        {"id": "k003"},
    ]
    batches = list(table.batches(["id"], filter=FIELD("v") > 3))
    assert sum(batch.num_rows for batch in batches) == 3


def test_old_rows_of_an_added_column_match_only_as_nulls() -> None:
    table = create_table(options={"hoodie.parquet.small.file.limit": 0})
    table.upsert([row(1)])
    table.upsert([row(2, note="x")])
    assert [item["id"] for item in found(table, ("note", "is null", None))] == ["k001"]
    assert [item["id"] for item in found(table, ("note", "=", "x"))] == ["k002"]


@pytest.mark.parametrize("hive", ["true", "false"])
def test_excluded_partitions_are_skipped(hive: str) -> None:
    options = {"hoodie.datasource.write.hive_style_partitioning": hive}
    table = create_table(partition_by="region", options=options)
    table.upsert([*rows(range(6)), row(9, region=None), row(10, region="")])
    schema = pa.schema([*table.schema])
    names = {piece.partition for piece in table.files()}
    assert len(names) == 4

    def left(given: Any) -> set[str]:
        passing = row_filter_of(given, schema)
        kept = prune_partitions(table.files(), passing, table.properties)
        return {piece.partition.removeprefix("region=") for piece in kept}

    # The default partition has nulls and empty strings, so it is always read.
    unsure = "__HIVE_DEFAULT_PARTITION__"
    assert left(("region", "=", "a")) == {"a", unsure}
    assert left([("region", "!=", "a"), ("ts", ">", 0)]) == {"b", "c", unsure}
    assert left((FIELD("region") == "a") | (FIELD("ts") > 0)) == {"a", "b", "c", unsure}
    assert found(table, ("region", "=", "")) == [row(10, region="")]


def test_dates_and_numbers_are_compared_as_such_not_as_text() -> None:
    table = tl.Table.create(
        "memory://days",
        [("id", "string"), ("day", pa.date32()), ("n", pa.int64())],
        key="id",
        partition_by=["day", "n"],
    )
    table.upsert(
        [
            {"id": "a", "day": date(2026, 1, 9), "n": 9},
            {"id": "b", "day": date(2026, 1, 10), "n": 10},
        ]
    )
    for given in (("day", ">", date(2026, 1, 9)), ("n", ">", 9), FIELD("n") == 10):
        passing = row_filter_of(given, table.schema)
        kept = prune_partitions(table.files(), passing, table.properties)
        assert [piece.partition for piece in kept] == ["2026-01-10/10"]
        assert [item["id"] for item in table.read(filter=given).to_pylist()] == ["b"]


def test_excluded_row_groups_are_not_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read, "SINGLE_GET_BYTES_MAX", 0)  # as if the file were a large one
    table = create_table(
        options={
            "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",
            "hoodie.parquet.block.size": 20_000,
        }
    )
    table.bulk_insert(rows(range(4_000)))
    fetched: list[int] = []
    store = table._store
    real = store.get

    def counting(key: str, **ranges: Any) -> Any:
        body = real(key, **ranges)
        if body is not None and key.endswith(".parquet"):
            fetched.append(len(body.body))
        return body

    store.get = counting  # type: ignore[method-assign]
    assert table.read(filter=("id", "=", "k017")).num_rows == 1
    some = sum(fetched)
    fetched.clear()
    assert table.read().num_rows == 4_000
    assert some < sum(fetched) / 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("nobody", "=", 1), "unknown column 'nobody'"),
        (("ts", "~", 1), "unknown operator '~'"),
        (("ts", "in", "abc"), r"expected a list of values, got 'abc'"),
        (FIELD("nobody") == 1, "does not match the table"),
        ([], "expected an Arrow expression"),
        ([("ts", "=")], "expected an Arrow expression"),
    ],
)
def test_invalid_filter_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        create_table().read(filter=given)
