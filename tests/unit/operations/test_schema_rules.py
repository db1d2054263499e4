"""Schema changes by writes, and columns that rows lack."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tests.unit.operations.model import TYPES, create_table, row, stored_rows
from tidelock.core.errors import ConfigInvalid, InvalidInput

KEYED = pa.schema(
    [
        ("order_id", pa.int64()),
        ("ts", pa.int32()),
        ("day", pa.int32()),
        ("amount", pa.int32()),
        ("note", pa.string()),
    ]
)


def orders(folder: Path, kind: str = "COPY_ON_WRITE", **options: object) -> tl.Table:
    return tl.Table.create(
        str(folder / "orders"),
        KEYED,
        key="order_id",
        ordering="ts",
        partition_by="day",
        type=kind,
        options={name.replace("__", "."): value for name, value in options.items()},
    )


def order(number: int, **columns: pa.DataType) -> pa.Table:
    values = {"order_id": [number], "ts": [number], "day": [1], "amount": [5], "note": ["n"]}
    table = pa.table(values, schema=KEYED)
    for name, kind in columns.items():
        index = table.column_names.index(name)
        table = table.set_column(index, name, table.column(name).cast(kind))
    return table


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("column", ["order_id", "day"])
@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_write_never_changes_the_type_of_a_key_or_partition_column(
    tmp_path: Path, kind: str, column: str, operation: str
) -> None:
    with orders(tmp_path, kind) as table:
        table.upsert(order(1))
        before = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
        for wider in (pa.string(), pa.float64()):
            with pytest.raises(
                InvalidInput, match=rf"column {column} is int.* (needs?|require) {wider}"
            ):
                table.write(order(2, **{column: wider}), operation)
        assert table.schema.equals(KEYED)
        assert table.read().num_rows == 1
        assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == before


def test_partition_column_does_not_even_widen_to_a_longer_integer(tmp_path: Path) -> None:
    with orders(tmp_path) as table, pytest.raises(InvalidInput, match="cannot change their type"):
        table.upsert(order(1, day=pa.int64()))


def test_narrower_keys_are_converted_to_the_type_of_the_table(tmp_path: Path) -> None:
    with orders(tmp_path) as table:
        table.upsert(order(1))
        table.upsert(order(1, order_id=pa.int32()))
        assert table.read().column("order_id").to_pylist() == [1]
        assert table.schema.equals(KEYED)


def test_number_never_becomes_a_string(tmp_path: Path) -> None:
    with orders(tmp_path) as table:
        with pytest.raises(InvalidInput, match="column amount is int32 in the table") as raised:
            table.upsert(order(1, amount=pa.string()))
        assert "cast amount to int32" in raised.value.hint
        assert table.schema.equals(KEYED)


def test_ordering_column_widens_only_to_types_that_keep_its_values(tmp_path: Path) -> None:
    with orders(tmp_path) as table:
        table.upsert(order(1, ts=pa.int64()))
        assert table.schema.field("ts").type == pa.int64()
        with pytest.raises(InvalidInput, match="it is an ordering column"):
            table.upsert(order(2, ts=pa.float64()))
        with pytest.raises(InvalidInput, match="column ts"):
            table.upsert(order(2, ts=pa.string()))


def test_columns_are_added_and_numbers_widened_by_default(tmp_path: Path) -> None:
    with orders(tmp_path) as table:
        table.upsert(order(1))
        table.upsert(order(2, amount=pa.float64()).append_column("more", pa.array(["x"])))
        assert table.schema.field("amount").type == pa.float64()
        assert table.schema.names[-1] == "more"


def test_mode_add_adds_columns_and_widens_nothing(tmp_path: Path) -> None:
    with orders(tmp_path, tidelock__schema__evolution="add") as table:
        table.upsert(order(1).append_column("more", pa.array(["x"])))
        assert table.schema.names[-1] == "more"
        with pytest.raises(InvalidInput, match=r"tidelock\.schema\.evolution=add"):
            table.upsert(order(2, amount=pa.int64()).append_column("more", pa.array(["x"])))


def test_mode_strict_changes_nothing(tmp_path: Path) -> None:
    with orders(tmp_path, tidelock__schema__evolution="STRICT") as table:
        table.upsert(order(1))
        with pytest.raises(InvalidInput, match="column more does not exist in the table"):
            table.upsert(order(2).append_column("more", pa.array(["x"])))
        with pytest.raises(InvalidInput, match="column amount"):
            table.upsert(order(2, amount=pa.int64()))
        assert table.schema.equals(KEYED)


def test_unknown_evolution_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"tidelock\.schema\.evolution: expected .*'loose'"):
        orders(tmp_path, tidelock__schema__evolution="loose")
    assert not (tmp_path / "orders").exists()


def test_decimal_keys_with_another_scale_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.decimal128(12, 4)), ("v", pa.int64())])
    with tl.Table.create(str(tmp_path / "t"), schema, key="id") as table:
        table.upsert(pa.table({"id": [Decimal("1.5")], "v": [1]}, schema=schema))
        other = pa.schema([("id", pa.decimal128(10, 2)), ("v", pa.int64())])
        with pytest.raises(InvalidInput, match="different values in the record key"):
            table.upsert(pa.table({"id": [Decimal("1.5")], "v": [2]}, schema=other))
        report = table.delete(pa.table({"id": [Decimal("1.5")]}, schema=pa.schema(list(other)[:1])))
        assert report.rows_deleted == 1


@pytest.mark.parametrize("kind", TYPES)
def test_rows_without_the_ordering_column_are_refused(kind: str) -> None:
    for options in ({}, {"hoodie.write.set.null.for.missing.columns": "true"}):
        table = create_table(kind, options=options)
        table.upsert([row(1, 5)])
        late = row(1, 6)
        del late["ts"]
        with pytest.raises(InvalidInput, match="the rows have no ordering column ts"):
            table.upsert([late])
        assert stored_rows(table) == [row(1, 5)]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_rows_that_lack_a_column_are_refused_by_default(kind: str, operation: str) -> None:
    table = create_table(kind)
    table.upsert([row(1, 5)])
    short: dict[str, Any] = row(1, 6)
    del short["v"]
    with pytest.raises(InvalidInput, match="the rows have no column v") as raised:
        table.write([short], operation)
    assert "hoodie.write.set.null.for.missing.columns=true" in raised.value.hint
    assert stored_rows(table) == [row(1, 5)]


@pytest.mark.parametrize("kind", TYPES)
def test_missing_columns_are_null_if_enabled(kind: str) -> None:
    table = create_table(kind, options={"hoodie.write.set.null.for.missing.columns": "true"})
    table.upsert([row(1, 5)])
    short: dict[str, Any] = row(1, 6)
    del short["v"]
    table.upsert([short])
    assert stored_rows(table) == [row(1, 6, v=None)]


def test_missing_required_column_becomes_nullable(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string()), pa.field("v", pa.int64(), nullable=False)])
    nulls = {"hoodie.write.set.null.for.missing.columns": True}
    with tl.Table.create(str(tmp_path / "t"), schema, key="id", options=nulls) as table:
        table.upsert(pa.table({"id": ["a"], "v": [1]}, schema=schema))
        table.upsert(pa.table({"id": ["b"]}))
        assert table.read().sort_by("id").to_pylist() == [
            {"id": "a", "v": 1},
            {"id": "b", "v": None},
        ]
    strict = {**nulls, "tidelock.schema.evolution": "strict"}
    with (
        tl.Table.create(str(tmp_path / "s"), schema, key="id", options=strict) as table,
        pytest.raises(InvalidInput, match="column v is not nullable"),
    ):
        table.upsert(pa.table({"id": ["b"]}))


def test_missing_struct_field_is_a_missing_column(tmp_path: Path) -> None:
    schema = pa.schema(
        [("id", pa.string()), ("s", pa.struct([("a", pa.int64()), ("b", pa.int64())]))]
    )
    with (
        tl.Table.create(str(tmp_path / "t"), schema, key="id") as table,
        pytest.raises(InvalidInput, match=r"no column s\.b"),
    ):
        table.upsert(pa.table({"id": ["x"], "s": [{"a": 1}]}))


def test_deleted_marker_column_can_be_missing() -> None:
    table = create_table()
    table.upsert([row(1, _hoodie_is_deleted=False)])
    table.upsert([row(2)])
    assert [item["id"] for item in stored_rows(table)] == ["k001", "k002"]


def test_rows_that_lose_by_their_ordering_value_are_counted() -> None:
    table = create_table()
    table.upsert([row(1, 5), row(2, 5), row(3, 5)])
    report = table.upsert([row(1, 4), row(2, 5), row(3, 6), row(4, 1)])
    assert (report.rows_ignored, report.rows_updated, report.rows_inserted) == (1, 2, 1)
    assert stored_rows(table) == [row(1, 5), row(2, 5), row(3, 6), row(4, 1)]


def test_deletes_that_lose_by_their_ordering_value_are_counted() -> None:
    table = create_table()
    table.upsert([row(1, 5, _hoodie_is_deleted=False), row(2, 5, _hoodie_is_deleted=False)])
    report = table.upsert([row(1, 4, _hoodie_is_deleted=True), row(2, 6, _hoodie_is_deleted=True)])
    assert (report.rows_ignored, report.rows_deleted) == (1, 1)
    assert [item["id"] for item in stored_rows(table)] == ["k001"]
