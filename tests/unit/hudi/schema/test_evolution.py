"""Schema evolution: new columns, wider types, and rejected changes."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest

from tidelock.core.errors import InvalidInput
from tidelock.hudi.schema import conform, evolve, widens

LADDER = (pa.int32(), pa.int64(), pa.float32(), pa.float64())


def one(values: list[object], kind: pa.DataType) -> pa.Table:
    """Return a table with the column `c`."""
    return pa.table({"c": pa.array(values, kind)})


def schema(kind: pa.DataType) -> pa.Schema:
    """Return a schema with the column `c`."""
    return pa.schema([("c", kind)])


@pytest.mark.parametrize(("narrow", "wide"), list(pairwise(LADDER)))
def test_numbers_widen_in_one_direction_only(narrow: pa.DataType, wide: pa.DataType) -> None:
    assert widens(narrow, wide)
    assert not widens(wide, narrow)
    assert evolve(schema(narrow), schema(wide)).field("c").type == wide
    assert evolve(schema(wide), schema(narrow)).field("c").type == wide


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        ([1, None], pa.int32(), pa.int64(), [1, None]),
        ([1, None], pa.int64(), pa.float64(), [1.0, None]),
        ([2**60 + 1], pa.int64(), pa.float32(), [float(2**60)]),
        ([7], pa.int32(), pa.string(), ["7"]),
        (["a"], pa.string(), pa.binary(), [b"a"]),
        ([b"a"], pa.binary(), pa.string(), ["a"]),
        ([Decimal("1.5")], pa.decimal128(3, 1), pa.decimal128(6, 2), [Decimal("1.50")]),
        (["x"], pa.large_string(), pa.string(), ["x"]),
        ([1], pa.list_(pa.int32()), pa.list_(pa.int64()), None),
    ],
)
def test_values_survive_widening(
    values: list[object], source: pa.DataType, target: pa.DataType, expected: list[object] | None
) -> None:
    given = [values] if pa.types.is_list(source) else values
    found = conform(one(list(given), source), schema(target), where="f")
    assert found.schema.field("c").type == target
    assert found.column("c").to_pylist() == (expected or given)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.string(), pa.int64()),
        (pa.int32(), pa.date32()),
        (pa.bool_(), pa.int32()),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")),
        (pa.struct([("a", pa.int32())]), pa.list_(pa.int32())),
    ],
)
def test_incompatible_type_is_reported_with_file_column_and_both_types(
    source: pa.DataType, target: pa.DataType
) -> None:
    with pytest.raises(InvalidInput) as caught:
        conform(one([None], source), schema(target), where="part/f.parquet")
    assert "part/f.parquet: column c" in str(caught.value)
    assert str(source) in str(caught.value)
    assert str(target) in str(caught.value)


def test_column_without_a_common_type_is_reported_with_both_types() -> None:
    with pytest.raises(InvalidInput, match=r"column c: string cannot be widened to .*date32"):
        evolve(schema(pa.date32()), schema(pa.string()))


def test_nested_column_that_cannot_widen_is_reported_by_its_path() -> None:
    table = schema(pa.struct([("items", pa.list_(pa.struct([("price", pa.date32())])))]))
    incoming = schema(pa.struct([("items", pa.list_(pa.struct([("price", pa.bool_())])))]))
    with pytest.raises(InvalidInput, match=r"column c\.items\[\]\.price"):
        evolve(table, incoming)


def test_table_columns_keep_their_order_and_new_ones_follow_as_nullable() -> None:
    table = pa.schema([("b", pa.int32()), pa.field("a", pa.string(), nullable=False)])
    incoming = pa.schema(
        [
            pa.field("new", pa.int64(), nullable=False),
            pa.field("a", pa.string(), nullable=False),
            ("b", pa.int64()),
        ]
    )
    assert evolve(table, incoming) == pa.schema(
        [("b", pa.int64()), pa.field("a", pa.string(), nullable=False), ("new", pa.int64())]
    )


def test_column_missing_from_the_rows_stays_in_the_table() -> None:
    table = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    assert evolve(table, pa.schema([("a", pa.int32())])) == table


def test_decimals_grow_on_both_sides_of_the_point() -> None:
    grown = evolve(schema(pa.decimal128(10, 2)), schema(pa.decimal128(8, 4)))
    assert grown.field("c").type == pa.decimal128(12, 4)
    with pytest.raises(InvalidInput, match="cannot be widened"):
        evolve(schema(pa.decimal128(38, 0)), schema(pa.decimal128(38, 10)))


def test_nested_columns_grow_in_every_slice_of_a_table() -> None:
    source = pa.table(
        {
            "s": pa.array([{"x": 1}, None, {"x": 2}], pa.struct([("x", pa.int32())])),
            "l": pa.array([[1], None, [2, 3]], pa.list_(pa.field("array", pa.int32()))),
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "n": pa.array([[{"x": 1}], [None], None], pa.list_(pa.struct([("x", pa.int32())]))),
        }
    )
    target = pa.schema(
        [
            ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
            ("l", pa.list_(pa.field("element", pa.int64()))),
            ("m", pa.map_(pa.string(), pa.float64())),
            (
                "n",
                pa.list_(pa.field("element", pa.struct([("y", pa.date32()), ("x", pa.int64())]))),
            ),
        ]
    )
    expected = [
        {"s": {"x": 1, "y": None}, "l": [1], "m": [("k", 1.0)], "n": [{"y": None, "x": 1}]},
        {"s": None, "l": None, "m": None, "n": [None]},
        {"s": {"x": 2, "y": None}, "l": [2, 3], "m": [], "n": None},
    ]
    for start in range(3):
        found = conform(source.slice(start), target, where="f")
        found.validate(full=True)
        assert found.schema.types == target.types
        assert found.to_pylist() == expected[start:]


def test_column_newer_than_the_file_is_null_even_if_required() -> None:
    target = pa.schema([("a", pa.int32()), pa.field("late", pa.string(), nullable=False)])
    found = conform(pa.table({"a": pa.array([1], pa.int32())}), target, where="f")
    assert found.to_pylist() == [{"a": 1, "late": None}]


def test_columns_not_in_the_schema_are_dropped() -> None:
    found = conform(pa.table({"a": [1], "dropped": [2]}), pa.schema([("a", pa.int64())]), where="f")
    assert found.column_names == ["a"]
