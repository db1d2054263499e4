"""Reading a file slice: merge modes, columns, and corrupt files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from testkit.slices import read_slice
from tests.unit.execution.filegroup.slices import SCHEMA, Row, SliceBuilder, rows
from tests.unit.hudi.table_builder import rollback_block
from tidelock.core.errors import DataCorrupt, InvalidInput, NotFound, Unsupported
from tidelock.execution.filegroup.filtering import RowFilter
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.filegroup.read import slice_batches
from tidelock.hudi.log_blocks import (
    Block,
    BlockType,
    CorruptBlock,
    Header,
    Ordering,
    avro_block,
    parquet_block,
)
from tidelock.hudi.properties import MergeMode
from tidelock.hudi.schema import render_schema, with_meta
from tidelock.storage.contract import Overwrite

COMMIT = MergeRule()
EVENT = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts",))
BOTH = pytest.mark.parametrize("rule", [COMMIT, EVENT], ids=["commit", "event"])
BASE: list[Row] = [("a", 10, "a1"), ("b", 10, "b1"), ("c", 10, "c1")]


def names(slice_: SliceBuilder, rule: MergeRule, **options: object) -> list[str]:
    """Return the names in a slice, sorted."""
    table = read_slice(slice_.store, slice_.piece, slice_.schema, rule=rule, **options)  # type: ignore[arg-type]
    found: list[str] = sorted(table.column("name").to_pylist())
    return found


# --- precedence -----------------------------------------------------------------------------------


@BOTH
def test_slice_without_logs_is_its_base_file(rule: MergeRule) -> None:
    assert names(SliceBuilder().with_base(BASE), rule) == ["a1", "b1", "c1"]


@BOTH
@pytest.mark.parametrize("as_parquet", [False, True])
def test_updates_replace_inserts_add_and_deletes_remove(rule: MergeRule, as_parquet: bool) -> None:
    builder = SliceBuilder().with_base(BASE)
    builder.upsert("2", ("a", 11, "a2"), ("d", 1, "d2"), as_parquet=as_parquet).delete("3", "b")
    assert names(builder, rule) == ["a2", "c1", "d2"]


@BOTH
def test_slice_without_a_base_file_is_its_logs(rule: MergeRule) -> None:
    builder = SliceBuilder().upsert("2", ("a", 1, "a2"), ("b", 1, "b2")).delete("3", "b")
    assert names(builder, rule) == ["a2"]


@BOTH
def test_later_write_wins_with_equal_ordering_values(rule: MergeRule) -> None:
    builder = (
        SliceBuilder().with_base(BASE).upsert("2", ("a", 10, "a2")).upsert("3", ("a", 10, "a3"))
    )
    assert names(builder, rule) == ["a3", "b1", "c1"]


def test_smaller_ordering_value_loses_in_event_time_only() -> None:
    builder = SliceBuilder().with_base(BASE).upsert("2", ("a", 9, "a2"))
    assert names(builder, EVENT) == ["a1", "b1", "c1"]
    assert names(builder, COMMIT) == ["a2", "b1", "c1"]


def test_largest_ordering_value_of_several_logs_wins_in_event_time() -> None:
    builder = SliceBuilder().with_base(BASE)
    builder.upsert("2", ("a", 30, "a2")).upsert("3", ("a", 20, "a3"), ("b", 5, "b3"))
    assert names(builder, EVENT) == ["a2", "b1", "c1"]
    assert names(builder, COMMIT) == ["a3", "b3", "c1"]


def test_duplicate_key_in_one_block_is_one_row() -> None:
    builder = SliceBuilder().upsert("2", ("a", 9, "first"), ("a", 5, "second"))
    assert names(builder, EVENT) == ["first"]
    assert names(builder, COMMIT) == ["second"]


@pytest.mark.parametrize(
    ("ordering", "deleted"),
    [
        (None, True),
        (Ordering("Int", 0), True),
        (Ordering("Int", 99), True),
        (Ordering("Long", 0), False),
        (Ordering("Long", 5), False),
        (Ordering("Long", 10), True),
        (Ordering("Long", 99), True),
    ],
)
def test_delete_wins_by_its_ordering_value_and_always_in_natural_order(
    ordering: Ordering | None, deleted: bool
) -> None:
    builder = SliceBuilder().with_base(BASE).delete("2", "a", ordering=ordering)
    assert names(builder, EVENT) == (["b1", "c1"] if deleted else ["a1", "b1", "c1"])
    assert names(builder, COMMIT) == ["b1", "c1"]


def test_row_after_a_natural_delete_is_compared_with_the_base_row() -> None:
    # As in Hudi: log files are merged first, and the remaining row no longer has the delete.
    builder = SliceBuilder().with_base(BASE).delete("2", "a").upsert("3", ("a", 1, "a3"))
    assert names(builder, EVENT) == ["a1", "b1", "c1"]
    assert names(builder.upsert("4", ("a", 10, "a4")), EVENT) == ["a4", "b1", "c1"]


def test_natural_delete_discards_earlier_versions_in_the_logs_too() -> None:
    builder = (
        SliceBuilder().upsert("2", ("a", 99, "a2")).delete("3", "a").upsert("4", ("a", 1, "a4"))
    )
    assert names(builder, EVENT) == ["a4"]
    assert names(builder.delete("5", "a"), EVENT) == []


def test_row_older_than_a_delete_in_event_time_stays_deleted() -> None:
    builder = SliceBuilder().with_base(BASE).delete("2", "a", ordering=Ordering("Long", 20))
    assert names(builder.upsert("3", ("a", 15, "a3")), EVENT) == ["b1", "c1"]
    assert names(builder.upsert("4", ("a", 20, "a4")), EVENT) == ["a4", "b1", "c1"]


def test_timed_delete_of_a_deleted_key_sets_no_time() -> None:
    # As in Hudi: after the natural delete there is nothing to delete, so a later row is not older.
    builder = SliceBuilder().with_base(BASE).delete("2", "a")
    builder.delete("3", "a", ordering=Ordering("Long", 50)).upsert("4", ("a", 12, "a4"))
    assert names(builder, EVENT) == ["a4", "b1", "c1"]


def test_event_time_without_an_ordering_field_is_commit_time() -> None:
    builder = SliceBuilder().with_base(BASE).upsert("2", ("a", 1, "a2"))
    assert names(builder, MergeRule(MergeMode.EVENT_TIME_ORDERING)) == ["a2", "b1", "c1"]


def test_row_without_an_ordering_value_is_older_than_any_with_one() -> None:
    builder = SliceBuilder().with_base([("a", 10, "a1"), ("b", None, "b1"), ("c", None, "c1")])
    builder.upsert("2", ("a", None, "a2"), ("b", 1, "b2"), ("c", None, "c2"))
    assert names(builder, EVENT) == ["a1", "b2", "c2"]


def test_several_ordering_fields_are_compared_in_turn() -> None:
    rule = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts", "name"))
    builder = SliceBuilder().with_base([("a", 10, "m"), ("b", 10, "m"), ("c", 10, "m")])
    builder.upsert("2", ("a", 10, "l"), ("b", 10, "n"), ("c", 9, "z"))
    assert names(builder, rule) == ["m", "m", "n"]
    several = Ordering("Array", (Ordering("Long", 10), Ordering("String", "a")))
    assert names(builder.delete("3", "a", ordering=several), rule) == ["m", "m", "n"]
    later = Ordering("Array", (Ordering("Long", 10), Ordering("String", "zz")))
    assert names(builder.delete("4", "a", ordering=later), rule) == ["m", "n"]


# --- valid blocks ---------------------------------------------------------------------------------


def test_log_blocks_after_the_requested_instant_are_ignored() -> None:
    builder = (
        SliceBuilder().with_base(BASE).upsert("2", ("a", 11, "a2")).upsert("3", ("b", 11, "b3"))
    )
    assert names(builder, EVENT, as_of="2") == ["a2", "b1", "c1"]


def test_rolled_back_write_is_ignored() -> None:
    builder = (
        SliceBuilder().with_base(BASE).upsert("2", ("a", 11, "a2")).upsert("3", ("b", 11, "b3"))
    )
    builder.with_log("4", rollback_block(instant="4", target="2"))
    assert names(builder, EVENT) == ["a1", "b3", "c1"]


def test_incremental_read_returns_rows_last_changed_by_the_given_commits() -> None:
    builder = SliceBuilder().with_base(BASE)
    builder.upsert("2", ("a", 11, "a2"), ("b", 11, "b2"), ("c", 1, "late")).upsert(
        "3", ("b", 12, "b3")
    )
    assert names(builder, EVENT, commit_times={"2"}) == ["a2"]
    assert names(builder, EVENT, commit_times={"1", "3"}) == ["b3", "c1"]
    assert names(builder, EVENT, commit_times={"2"}, columns=["name"]) == ["a2"]
    assert names(builder, EVENT, commit_times=set()) == []


def test_repeated_strings_are_plain_in_selected_rows() -> None:
    many: list[Row] = [(f"k{i:05}", i, f"n{i % 3}") for i in range(12_000)]
    builder = SliceBuilder().with_base(many)
    few = RowFilter.of((pc.field("ts") >= 100) & (pc.field("ts") < 104), builder.schema)
    (part,) = slice_batches(
        builder.store, builder.piece, builder.schema, rule=COMMIT, row_filter=few
    )
    assert part.column("name").to_pylist() == ["n1", "n2", "n0", "n1"]
    assert part.schema.field("name").type == pa.string()
    named = RowFilter.of(pc.field("name") == "n2", builder.schema)
    found = slice_batches(
        builder.store, builder.piece, builder.schema, rule=COMMIT, row_filter=named
    )
    assert sum(part.num_rows for part in found) == 4_000
    assert len(names(builder, COMMIT, commit_times={"1"})) == 12_000
    assert names(builder, COMMIT, commit_times={"2"}) == []


def test_change_data_files_are_not_read_as_rows() -> None:
    builder = SliceBuilder().with_base(BASE).with_log_bytes("2", b"anything")
    log = builder.logs.pop()
    builder.logs.append(
        type(log)(log.partition, log.name, "f-0", "0-0-0", "2", 1, 8, suffix=".cdc")
    )
    assert names(builder, EVENT) == ["a1", "b1", "c1"]


# --- deletes that are rows ------------------------------------------------------------------------


def flagged(column: str, kind: pa.DataType, value: object, ts: int | None = 11) -> SliceBuilder:
    """Return a slice whose log has a row for `a` with `value` in another column."""
    schema = pa.schema([*SCHEMA, pa.field(column, kind)])
    builder = SliceBuilder(schema).with_base(BASE)
    row = rows([("a", ts, "a2")], "2").append_column(column, pa.array([value], kind))
    return builder.with_log("2", avro_block(row, instant="2", schema=builder.avro))


@BOTH
def test_row_with_the_deleted_flag_is_a_delete(rule: MergeRule) -> None:
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), True), rule) == ["b1", "c1"]
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), False), rule) == ["a2", "b1", "c1"]
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), None), rule) == ["a2", "b1", "c1"]


def test_deleted_row_is_compared_by_its_ordering_value() -> None:
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), True, ts=9), EVENT) == ["a1", "b1", "c1"]
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), True, ts=0), EVENT) == ["a1", "b1", "c1"]
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), True, ts=None), EVENT) == ["b1", "c1"]


def test_deleted_row_is_natural_with_the_integer_zero_but_not_with_the_long() -> None:
    schema = with_meta(
        pa.schema([("ts", pa.int32()), ("name", pa.string()), ("_hoodie_is_deleted", pa.bool_())])
    )
    builder = SliceBuilder(schema).with_base_table(rows(BASE, "1").cast(_narrow()))
    row = rows([("a", 0, "a2")], "2").cast(_narrow())
    row = row.append_column("_hoodie_is_deleted", pa.array([True])).drop_columns(["id"])
    builder.with_log("2", parquet_block(row, instant="2", schema=builder.avro))
    assert names(builder, EVENT) == ["b1", "c1"]


def _narrow() -> pa.Schema:
    at = SCHEMA.get_field_index("ts")
    return SCHEMA.set(at, pa.field("ts", pa.int32()))


def test_change_log_row_with_operation_d_is_a_delete() -> None:
    assert names(flagged("_hoodie_operation", pa.string(), "D"), EVENT) == ["b1", "c1"]
    assert names(flagged("_hoodie_operation", pa.string(), "U"), EVENT) == ["a2", "b1", "c1"]


def test_custom_delete_marker_makes_a_delete() -> None:
    rule = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts",), "op", "gone")
    assert names(flagged("op", pa.string(), "gone"), rule) == ["b1", "c1"]
    assert names(flagged("op", pa.string(), "kept"), rule) == ["a2", "b1", "c1"]
    number = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts",), "op", "7")
    assert names(flagged("op", pa.int32(), 7), number) == ["b1", "c1"]


def test_delete_markers_are_read_without_being_requested() -> None:
    builder = flagged("_hoodie_is_deleted", pa.bool_(), True)
    assert names(builder, EVENT, columns=["name"]) == ["b1", "c1"]


# --- columns and types ----------------------------------------------------------------------------


def test_requested_columns_are_returned_in_that_order() -> None:
    builder = SliceBuilder().with_base(BASE).upsert("2", ("a", 11, "a2"), as_parquet=True)
    found = read_slice(builder.store, builder.piece, SCHEMA, rule=EVENT, columns=["name", "id"])
    assert found.column_names == ["name", "id"]
    assert sorted(found.column("id").to_pylist()) == ["a", "b", "c"]


def test_unknown_column_is_reported() -> None:
    builder = SliceBuilder().with_base(BASE)
    with pytest.raises(InvalidInput, match=r"no column 'nmae'.*name"):
        read_slice(builder.store, builder.piece, SCHEMA, rule=EVENT, columns=["nmae"])


def test_unknown_ordering_field_is_reported() -> None:
    builder = SliceBuilder().with_base(BASE).upsert("2", ("a", 1, "a2"))
    rule = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("when",))
    with pytest.raises(InvalidInput, match="ordering field 'when'"):
        names(builder, rule)


def test_files_older_than_a_column_or_a_wider_type_are_read_with_the_table_schema() -> None:
    old = SliceBuilder(_narrow()).with_base(BASE).upsert("2", ("a", 11, "a2"))
    grown = pa.schema([*SCHEMA, ("late", pa.decimal128(10, 2))])
    row = rows([("b", 2**40, "b3")], "3").append_column(
        "late", pa.array([Decimal("1.50")], pa.decimal128(10, 2))
    )
    old.schema = grown
    old.with_log("3", avro_block(row, instant="3", schema=old.avro))
    found = read_slice(old.store, old.piece, grown, rule=EVENT)
    assert found.schema.types == grown.types
    cells = {row["id"]: (row["ts"], row["late"]) for row in found.to_pylist()}
    assert cells == {"a": (11, None), "b": (2**40, Decimal("1.50")), "c": (10, None)}


def test_columns_newer_than_the_file_are_null_in_every_row() -> None:
    builder = SliceBuilder().with_base(BASE)
    grown = pa.schema([*SCHEMA, ("late", pa.int64())])
    found = read_slice(builder.store, builder.piece, grown, rule=EVENT, columns=["late"])
    assert found.column("late").to_pylist() == [None, None, None]


def test_incompatible_type_is_reported_with_file_column_and_both_types() -> None:
    builder = SliceBuilder().with_base(BASE)
    at = SCHEMA.get_field_index("name")
    other = SCHEMA.set(at, pa.field("name", pa.date32()))
    with pytest.raises(InvalidInput, match=r"f-0_0-0-0_1\.parquet: column name: .*string.*date32"):
        read_slice(builder.store, builder.piece, other, rule=EVENT)


# --- streaming ------------------------------------------------------------------------------------


def test_streamed_batches_add_up_to_the_slice() -> None:
    many: list[Row] = [(f"k{i:03d}", 1, f"n{i}") for i in range(100)]
    builder = SliceBuilder().with_base(many, row_group_size=30)
    builder.upsert("2", ("k005", 2, "changed"), ("x", 1, "added")).delete("3", "k099")
    batches = list(
        slice_batches(
            builder.store, builder.piece, SCHEMA, rule=EVENT, columns=["name"], batch_rows=10
        )
    )
    assert max(batch.num_rows for batch in batches) == 10
    expected = {f"n{i}" for i in range(99) if i != 5} | {"changed", "added"}
    assert {name for batch in batches for name in batch.column("name").to_pylist()} == expected
    assert sum(batch.num_rows for batch in batches) == len(expected)


def test_empty_slice_has_columns_and_no_rows() -> None:
    found = read_slice(SliceBuilder().store, SliceBuilder().piece, SCHEMA, rule=EVENT)
    assert (found.num_rows, found.schema.names) == (0, SCHEMA.names)
    empty = SliceBuilder().with_base([])
    assert read_slice(empty.store, empty.piece, SCHEMA, rule=EVENT).num_rows == 0


def test_read_without_columns_returns_the_row_count() -> None:
    builder = SliceBuilder().with_base(BASE)
    for expected in (3, 2):
        batches = slice_batches(builder.store, builder.piece, SCHEMA, rule=EVENT, columns=[])
        assert sum(batch.num_rows for batch in batches) == expected
        builder.delete("2", "a")


# --- damage ---------------------------------------------------------------------------------------


def truncated(body: bytes) -> bytes:
    """Remove the end."""
    return body[:-10]


def scrambled(body: bytes) -> bytes:
    """Damage the pages, but not the footer."""
    return body[:4] + bytes(200) + body[204:]


@pytest.mark.parametrize("damage", [truncated, scrambled, lambda _: b"", lambda _: b"PAR1"])
def test_damaged_base_file_is_corrupt_and_named(damage: Callable[[bytes], bytes]) -> None:
    builder = SliceBuilder().with_base([(f"k{i}", i, f"name {i}") for i in range(500)])
    assert builder.base is not None
    found = builder.store.get(builder.base.key)
    assert found is not None
    builder.store.put(builder.base.key, damage(found.body), Overwrite())
    with pytest.raises(DataCorrupt, match=r"memory://lake/p/f-0_0-0-0_1\.parquet"):
        names(builder, EVENT)


def test_missing_base_file_is_named() -> None:
    builder = SliceBuilder().with_base(BASE)
    assert builder.base is not None
    builder.store.delete(builder.base.key)
    with pytest.raises(NotFound, match=r"f-0_0-0-0_1\.parquet.*open the table again"):
        names(builder, EVENT)


def test_corrupt_log_block_is_skipped_and_reported() -> None:
    builder = (
        SliceBuilder().with_base(BASE).upsert("2", ("a", 11, "a2")).upsert("3", ("b", 11, "b3"))
    )
    torn = builder.store.get(builder.logs[1].key)
    assert torn is not None
    builder.store.put(builder.logs[1].key, torn.body[:-1], Overwrite())
    builder.logs[1] = replace(builder.logs[1], size_bytes=len(torn.body) - 1)
    reported: list[CorruptBlock] = []
    assert names(builder, EVENT, on_corrupt=reported.append) == ["a2", "b1", "c1"]
    assert [(block.where, block.offset) for block in reported] == [
        ("memory://lake/p/.f-0_3.log.1_0-0-0", 0)
    ]


@pytest.mark.parametrize(
    ("headers", "content", "message"),
    [
        ({0: "2"}, bytes.fromhex("0000000300000000"), "has no schema"),
        ({0: "2", 2: "{"}, bytes.fromhex("0000000300000000"), "not JSON"),
        ({0: "2", 2: "{}"}, b"", "not a record"),
    ],
)
def test_damaged_data_block_is_corrupt_and_named(
    headers: dict[int, str], content: bytes, message: str
) -> None:
    builder = SliceBuilder().with_base(BASE).with_log("2", Block(BlockType.AVRO, headers, content))
    with pytest.raises(DataCorrupt, match=rf"\.f-0_2\.log.*{message}"):
        names(builder, EVENT)


def test_many_logs_with_rows_and_deletes_are_applied_in_order() -> None:
    builder = SliceBuilder().with_base(BASE)
    for step in range(2, 6):
        builder.upsert(str(step), ("a", 10 + step, f"a{step}"), (f"n{step}", 1, f"n{step}"))
    builder.delete("6", "a", "n2").upsert("7", ("n2", 1, "n2 again"), as_parquet=True)
    builder.upsert("8", ("b", 90, "b8")).upsert("9", ("b", 91, "b9"))
    expected = ["b9", "c1", "n2 again", "n3", "n4", "n5"]
    assert sorted(names(builder, EVENT)) == sorted(names(builder, COMMIT)) == expected


def test_damaged_block_among_others_is_the_named_one() -> None:
    builder = SliceBuilder().upsert("2", ("a", 1, "a2")).upsert("3", ("a", 2, "a3"))
    schema = render_schema(builder.avro)
    builder.with_log(
        "4", Block(BlockType.AVRO, {0: "4", 2: schema}, bytes.fromhex("0000000300000009"))
    )
    with pytest.raises(DataCorrupt, match=r"block of 4.*lengths of 9 records"):
        names(builder, EVENT)


def test_partial_updates_are_refused_and_not_read_as_full_rows() -> None:
    builder = SliceBuilder().with_base(BASE)
    complete = avro_block(rows([("a", 11, "a2")], "2"), instant="2", schema=builder.avro)
    headers = {**complete.headers, int(Header.IS_PARTIAL): "true"}
    builder.with_log("2", Block(complete.type, headers, complete.content))
    with pytest.raises(Unsupported, match=r"\.f-0_2\.log.*partial updates"):
        names(builder, EVENT)


def test_log_rows_without_keys_cannot_be_merged() -> None:
    builder = SliceBuilder().with_base(BASE)
    nameless = rows([("a", 11, "a2")], "2").drop_columns(["_hoodie_record_key"])
    builder.with_log("2", parquet_block(nameless, instant="2", schema=builder.avro))
    with pytest.raises(Unsupported, match="without _hoodie_record_key"):
        names(builder, EVENT)


def test_log_rows_of_a_table_without_meta_columns_are_not_read_as_inserts() -> None:
    at = SCHEMA.get_field_index("_hoodie_record_key")
    nulls = pa.nulls(2, pa.string())
    builder = SliceBuilder().with_base(BASE)
    empty = rows([("a", 11, "a2"), ("b", 11, "b2")], "2").set_column(at, SCHEMA.field(at), nulls)
    builder.with_log("2", parquet_block(empty, instant="2", schema=builder.avro))
    with pytest.raises(Unsupported, match=r"hoodie\.populate\.meta\.fields=false"):
        names(builder, EVENT)


def test_log_row_without_a_key_among_others_is_corrupt() -> None:
    at = SCHEMA.get_field_index("_hoodie_record_key")
    builder = SliceBuilder().with_base(BASE)
    some = rows([("a", 11, "a2"), ("b", 11, "b2")], "2").set_column(
        at, SCHEMA.field(at), pa.array(["a", None])
    )
    builder.with_log("2", parquet_block(some, instant="2", schema=builder.avro))
    with pytest.raises(DataCorrupt, match="_hoodie_record_key is null in 1 rows"):
        names(builder, EVENT)


def test_delete_with_a_non_numeric_ordering_value_is_corrupt_for_a_numeric_field() -> None:
    builder = SliceBuilder().with_base(BASE).delete("2", "a", ordering=Ordering("String", "x"))
    with pytest.raises(DataCorrupt, match=r"expected int64 for ts"):
        names(builder, EVENT)
    assert names(builder, COMMIT) == ["b1", "c1"]
