"""Merging with a user-defined merger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from testkit.slices import read_slice
from tests.unit.execution.filegroup.slices import SCHEMA, Row, SliceBuilder
from tidelock.core.errors import InvalidInput, Unsupported
from tidelock.execution.filegroup.merge import Merger, MergeRule
from tidelock.hudi.properties import MergeMode

BASE: list[Row] = [("a", 1, "a1"), ("b", 2, "b1"), ("c", 3, "c1")]


@dataclass(frozen=True)
class Summing:
    """Adds up `ts`, joins names, and deletes rows whose sum is negative."""

    columns: Sequence[str] = ("ts", "name")

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Return the sums, in another order."""
        ts = pc.add(older.column("ts"), newer.column("ts"))
        name = pc.binary_join_element_wise(older.column("name"), newer.column("name"), "+")
        at = older.schema.get_field_index
        merged = older.set_column(at("ts"), older.schema.field("ts"), ts)
        merged = merged.set_column(at("name"), older.schema.field("name"), name)
        kept = merged.filter(pc.greater_equal(ts, 0))
        return kept.take(pa.array(range(kept.num_rows - 1, -1, -1), pa.int64()))


def left(builder: SliceBuilder, merger: Merger, columns: list[str] | None = None) -> list[str]:
    """Return `name=ts` of each row, sorted."""
    rule = MergeRule(MergeMode.CUSTOM, ("ts",), merger=merger)
    found = read_slice(builder.store, builder.piece, SCHEMA, rule=rule, columns=columns)
    cells = zip(found.column("name").to_pylist(), found.column("ts").to_pylist(), strict=True)
    return sorted(f"{name}={ts}" for name, ts in cells)


def test_pairs_are_merged_and_other_rows_stay() -> None:
    builder = (
        SliceBuilder().with_base(BASE).upsert("2", ("b", 10, "b2"), ("a", 5, "a2"), ("d", 7, "d2"))
    )
    assert left(builder, Summing()) == ["a1+a2=6", "b1+b2=12", "c1=3", "d2=7"]


def test_several_logs_are_merged_oldest_first() -> None:
    builder = SliceBuilder().with_base(BASE).upsert("2", ("a", 10, "a2"), ("d", 1, "d2"))
    builder.upsert("3", ("d", 2, "d3"), ("a", 20, "a3")).upsert("4", ("d", 3, "d4"))
    assert left(builder, Summing()) == ["a1+a2+a3=31", "b1=2", "c1=3", "d2+d3+d4=6"]


def test_key_omitted_by_the_merger_is_deleted() -> None:
    builder = SliceBuilder().with_base(BASE).upsert("2", ("a", -5, "a2"), ("d", 1, "d2"))
    assert left(builder, Summing()) == ["b1=2", "c1=3", "d2=1"]
    builder.upsert("3", ("d", -9, "d3"))
    assert left(builder, Summing()) == ["b1=2", "c1=3"]


def test_delete_discards_earlier_versions() -> None:
    builder = SliceBuilder().with_base(BASE).upsert("2", ("a", 10, "a2")).delete("3", "a", "b", "x")
    assert left(builder, Summing()) == ["c1=3"]
    builder.upsert("4", ("a", 100, "a4")).upsert("5", ("a", 1, "a5"))
    assert left(builder, Summing()) == ["a4+a5=101", "c1=3"]


def test_key_deleted_by_the_merger_in_the_log_is_not_merged_with_base_rows() -> None:
    builder = (
        SliceBuilder().with_base(BASE).upsert("2", ("a", 2, "a2")).upsert("3", ("a", -5, "a3"))
    )
    builder.upsert("4", ("a", 7, "a4"))
    assert left(builder, Summing()) == ["a4=7", "b1=2", "c1=3"]


def test_columns_needed_by_the_merger_are_read_without_being_requested() -> None:
    builder = SliceBuilder().with_base(BASE).upsert("2", ("a", 5, "a2"))
    rule = MergeRule(MergeMode.CUSTOM, merger=Summing())
    found = read_slice(builder.store, builder.piece, SCHEMA, rule=rule, columns=["name"])
    assert found.column_names == ["name"]
    assert sorted(found.column("name").to_pylist()) == ["a1+a2", "b1", "c1"]


def test_table_with_a_custom_merger_is_not_merged_without_it() -> None:
    builder = SliceBuilder().with_base(BASE).upsert("2", ("a", 5, "a2"))
    with pytest.raises(Unsupported, match=r"\.f-0_2\.log.*custom merge class"):
        read_slice(builder.store, builder.piece, SCHEMA, rule=MergeRule(MergeMode.CUSTOM))


def test_slice_without_logs_needs_no_merger() -> None:
    builder = SliceBuilder().with_base(BASE)
    found = read_slice(builder.store, builder.piece, SCHEMA, rule=MergeRule(MergeMode.CUSTOM))
    assert found.num_rows == 3


@dataclass(frozen=True)
class Careless:
    """Returns what the test tells it to."""

    make: Callable[[pa.Table], pa.Table]
    columns: Sequence[str] = ()

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Return rows that break the contract."""
        del newer
        return self.make(older)


@pytest.mark.parametrize(
    "make",
    [
        lambda older: older.drop_columns(["name"]),
        lambda older: pa.concat_tables([older, older]),
        lambda older: older.set_column(2, older.schema.field(2), pa.array(["z"] * older.num_rows)),
    ],
    ids=["columns", "twice", "stranger"],
)
def test_merger_that_breaks_its_contract_is_reported(make: Callable[[pa.Table], pa.Table]) -> None:
    builder = SliceBuilder().with_base(BASE).upsert("2", ("a", 5, "a2"))
    with pytest.raises(InvalidInput, match="merger Careless returned"):
        left(builder, Careless(make))
