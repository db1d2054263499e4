"""Merging: order of values, the table's rule, and a row-by-row model of Hudi's rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testkit.slices import read_slice
from tests.unit.execution.filegroup.slices import SliceBuilder
from tidelock.core.errors import ConfigInvalid
from tidelock.execution.filegroup.log_layers import read_layers
from tidelock.execution.filegroup.merge import MergeRule, comparable_values
from tidelock.hudi.log_blocks import Ordering
from tidelock.hudi.properties import MergeMode, new_properties
from tidelock.hudi.schema import with_meta

EVENT = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts",))


def test_floating_point_order_matches_java() -> None:
    ordered = [-math.inf, -2.5, -1.5, -0.0, 0.0, 1e-30, 1.5, 2.5, math.inf, math.nan]
    for kind in (pa.float64(), pa.float32()):
        found = comparable_values(pa.array([*ordered, None], kind)).to_pylist()
        assert found.pop() is None
        assert sorted(set(found)) == found


def test_nan_is_the_largest_ordering_value() -> None:
    schema = with_meta(
        pa.schema([("id", pa.string()), ("ts", pa.float64()), ("name", pa.string())])
    )
    builder = SliceBuilder(schema).with_base([("a", math.nan, "a1"), ("b", 1, "b1")])  # type: ignore[list-item]
    builder.upsert("2", ("a", 10**9, "a2"), ("b", math.nan, "b2"))  # type: ignore[arg-type]
    found = read_slice(builder.store, builder.piece, schema, rule=EVENT)
    assert sorted(found.column("name").to_pylist()) == ["a1", "b2"]


@pytest.mark.parametrize(
    ("kind", "row", "older", "newer"),
    [
        (pa.int32(), 10, Ordering("Int", 9), Ordering("Int", 10)),
        (pa.float64(), 10.0, Ordering("Double", 9.5), Ordering("Double", 10.5)),
        (pa.string(), "m", Ordering("String", "l"), Ordering("String", "n")),
        (pa.date32(), date(1970, 1, 11), Ordering("Date", 9), Ordering("Date", 11)),
        (
            pa.timestamp("us", "UTC"),
            datetime(1970, 1, 1, 0, 0, 10),  # noqa: DTZ001 - Arrow takes it as UTC
            Ordering("TimestampMicros", 9_999_999),
            Ordering("TimestampMicros", 10_000_000),
        ),
        (
            pa.decimal128(10, 2),
            Decimal("10.00"),
            Ordering("Decimal", Decimal("9.99")),
            Ordering("Decimal", Decimal("10.01")),
        ),
        (pa.bool_(), True, Ordering("Boolean", False), Ordering("Boolean", True)),
    ],
)
def test_deletes_carry_ordering_values_of_every_type(
    kind: pa.DataType, row: object, older: Ordering, newer: Ordering
) -> None:
    schema = with_meta(pa.schema([("id", pa.string()), ("ts", kind), ("name", pa.string())]))
    for ordering, left in ((older, ["a1"]), (newer, [])):
        builder = SliceBuilder(schema).with_base([("a", row, "a1")])  # type: ignore[list-item]
        builder.delete("2", "a", ordering=ordering)
        found = read_slice(builder.store, builder.piece, schema, rule=EVENT)
        assert found.column("name").to_pylist() == left


def test_merge_rule_is_read_from_the_table_properties() -> None:
    properties = new_properties("t", record_keys=["id"], ordering_fields=["ts"])
    assert MergeRule.of(properties) == EVENT
    marked = properties.with_changes(
        {
            "hoodie.record.merge.property.hoodie.payload.delete.field": "op",
            "hoodie.record.merge.property.hoodie.payload.delete.marker": "d",
        }
    )
    assert MergeRule.of(marked) == MergeRule(EVENT.mode, ("ts",), "op", "d")


@pytest.mark.parametrize("half", ["field", "marker"])
def test_incomplete_delete_marker_is_refused(half: str) -> None:
    properties = new_properties("t").with_changes({f"hoodie.payload.delete.{half}": "x"})
    with pytest.raises(ConfigInvalid, match=r"hoodie\.payload\.delete\..* is not set"):
        MergeRule.of(properties)


def test_layers_are_in_block_order() -> None:
    builder = SliceBuilder().upsert("2", ("a", 1, "x")).delete("3", "b", "c")
    layers = read_layers(builder.store, builder.logs, builder.schema, EVENT)
    assert [layer.keys.to_pylist() for layer in layers] == [["a"], ["b", "c"]]
    assert [layer.rows is None for layer in layers] == [False, True]


# --- Hudi's rules, one row at a time --------------------------------------------------------------


@dataclass(frozen=True)
class Version:
    """A version of one row: its ordering value, its name, and whether it is a delete."""

    ts: int | None
    name: str
    deleted: bool = False

    @property
    def is_natural(self) -> bool:
        """Return whether this is a delete in natural order."""
        return self.deleted and self.ts is None


@dataclass(frozen=True)
class Step:
    """A write: a row, or a delete with an ordering value, or one in natural order."""

    key: str
    ts: int | None
    deletes: bool


def later_wins(old: Version, new: Version, *, block: bool) -> bool:
    """Return which of two versions Hudi's event-time merger keeps."""
    if block and old.is_natural:
        return False
    if new.is_natural or old.is_natural:
        return True
    return (new.ts is not None, new.ts or 0) >= (old.ts is not None, old.ts or 0)


def model(base: dict[str, Version], steps: list[Step], *, event: bool) -> dict[str, str]:
    """Return the names of the remaining rows, computed by applying one write after the other.

    As in Hudi, the log's own versions are merged first, and the base row comes last.
    """
    log: dict[str, Version] = {}
    for number, step in enumerate(steps):
        new = Version(step.ts, f"{step.key}{number}", step.deletes)
        old = log.get(step.key)
        if old is None or not event or later_wins(old, new, block=step.deletes):
            log[step.key] = new
    left = dict(base)
    for key, new in log.items():
        old = left.get(key)
        if old is None or not event or later_wins(old, new, block=False):
            left[key] = new
    return {key: version.name for key, version in left.items() if not version.deleted}


KEYS = st.sampled_from("abc")
TIMES = st.integers(1, 4)
STEPS = st.lists(
    st.builds(Step, KEYS, TIMES, st.just(value=False))
    | st.builds(Step, KEYS, TIMES | st.none(), st.just(value=True)),
    max_size=8,
)
BASES = st.dictionaries(KEYS, TIMES)


@given(BASES, STEPS, st.booleans(), st.booleans())
def test_columnwise_merge_equals_the_row_by_row_model(
    base: dict[str, int], steps: list[Step], event: bool, as_parquet: bool
) -> None:
    builder = SliceBuilder()
    if base:
        builder.with_base([(key, ts, f"{key}-base") for key, ts in base.items()])
    for number, step in enumerate(steps):
        instant = f"{number + 2:02d}"
        if step.deletes:
            ordering = None if step.ts is None else Ordering("Long", step.ts)
            builder.delete(instant, step.key, ordering=ordering)
        else:
            name = f"{step.key}{number}"
            builder.upsert(instant, (step.key, step.ts, name), as_parquet=as_parquet)
    rule = EVENT if event else MergeRule()
    found = read_slice(builder.store, builder.piece, builder.schema, rule=rule)
    versions = {key: Version(ts, f"{key}-base") for key, ts in base.items()}
    names = zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True)
    assert sorted(names) == sorted(model(versions, steps, event=event).items())
