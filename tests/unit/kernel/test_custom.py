"""Merging by a rule of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.unit.kernel.slices import SCHEMA, Row, SliceBuilder
from tidelock.base.errors import InvalidInput, Unsupported
from tidelock.kernel.merge import Merger, MergeRule
from tidelock.kernel.read import read_slice
from tidelock.table.properties import MergeMode

BASE: list[Row] = [("a", 1, "a1"), ("b", 2, "b1"), ("c", 3, "c1")]


@dataclass(frozen=True)
class Summing:
    """Adds up `ts`, joins names, and deletes rows whose sum is negative."""

    columns: Sequence[str] = ("ts", "name")

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Return the sums, out of order."""
        ts = pc.add(older.column("ts"), newer.column("ts"))
        name = pc.binary_join_element_wise(older.column("name"), newer.column("name"), "+")
        at = older.schema.get_field_index
        merged = older.set_column(at("ts"), older.schema.field("ts"), ts)
        merged = merged.set_column(at("name"), older.schema.field("name"), name)
        kept = merged.filter(pc.greater_equal(ts, 0))
        return kept.take(pa.array(range(kept.num_rows - 1, -1, -1), pa.int64()))


def left(made: SliceBuilder, merger: Merger, columns: list[str] | None = None) -> list[str]:
    """Return `name=ts` of each row, sorted."""
    rule = MergeRule(MergeMode.CUSTOM, ("ts",), merger=merger)
    found = read_slice(made.store, made.piece, SCHEMA, rule=rule, columns=columns)
    cells = zip(found.column("name").to_pylist(), found.column("ts").to_pylist(), strict=True)
    return sorted(f"{name}={ts}" for name, ts in cells)


def test_pairs_are_merged_and_other_rows_stay() -> None:
    made = (
        SliceBuilder().with_base(BASE).upsert("2", ("b", 10, "b2"), ("a", 5, "a2"), ("d", 7, "d2"))
    )
    assert left(made, Summing()) == ["a1+a2=6", "b1+b2=12", "c1=3", "d2=7"]


def test_several_logs_are_merged_oldest_first() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 10, "a2"), ("d", 1, "d2"))
    made.upsert("3", ("d", 2, "d3"), ("a", 20, "a3")).upsert("4", ("d", 3, "d4"))
    assert left(made, Summing()) == ["a1+a2+a3=31", "b1=2", "c1=3", "d2+d3+d4=6"]


def test_a_key_that_the_rule_leaves_out_is_deleted() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", -5, "a2"), ("d", 1, "d2"))
    assert left(made, Summing()) == ["b1=2", "c1=3", "d2=1"]
    made.upsert("3", ("d", -9, "d3"))
    assert left(made, Summing()) == ["b1=2", "c1=3"]


def test_a_delete_ends_what_came_before_it() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 10, "a2")).delete("3", "a", "b", "x")
    assert left(made, Summing()) == ["c1=3"]
    made.upsert("4", ("a", 100, "a4")).upsert("5", ("a", 1, "a5"))
    assert left(made, Summing()) == ["a4+a5=101", "c1=3"]


def test_a_key_that_the_rule_deleted_in_the_log_does_not_merge_with_base_rows_again() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 2, "a2")).upsert("3", ("a", -5, "a3"))
    made.upsert("4", ("a", 7, "a4"))
    assert left(made, Summing()) == ["a4=7", "b1=2", "c1=3"]


def test_the_columns_the_rule_needs_are_read_though_not_asked_for() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 5, "a2"))
    rule = MergeRule(MergeMode.CUSTOM, merger=Summing())
    found = read_slice(made.store, made.piece, SCHEMA, rule=rule, columns=["name"])
    assert found.column_names == ["name"]
    assert sorted(found.column("name").to_pylist()) == ["a1+a2", "b1", "c1"]


def test_a_table_with_a_rule_of_its_own_is_not_merged_by_another() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 5, "a2"))
    with pytest.raises(Unsupported, match=r"\.f-0_2\.log.*merges by a class of its own"):
        read_slice(made.store, made.piece, SCHEMA, rule=MergeRule(MergeMode.CUSTOM))


def test_a_slice_without_logs_needs_no_rule() -> None:
    made = SliceBuilder().with_base(BASE)
    found = read_slice(made.store, made.piece, SCHEMA, rule=MergeRule(MergeMode.CUSTOM))
    assert found.num_rows == 3


@dataclass(frozen=True)
class Careless:
    """Gives back whatever it is told to."""

    make: Callable[[pa.Table], pa.Table]
    columns: Sequence[str] = ()

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Return something else than promised."""
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
def test_a_rule_that_breaks_its_promise_is_named(make: Callable[[pa.Table], pa.Table]) -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 5, "a2"))
    with pytest.raises(InvalidInput, match="the merger Careless gave back"):
        left(made, Careless(make))
