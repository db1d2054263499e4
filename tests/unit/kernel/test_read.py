"""Reading a file slice: what each merge mode keeps, which columns come, what damage does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.unit.kernel.slices import SCHEMA, Row, SliceBuilder, rows
from tidelock.base.errors import DataCorrupt, InvalidInput, NotFound, Unsupported
from tidelock.kernel.filtering import RowFilter
from tidelock.kernel.merge import MergeRule
from tidelock.kernel.read import read_slice, slice_batches
from tidelock.store.contract import Overwrite
from tidelock.table.logfile.block import Block, BlockType, Header
from tidelock.table.logfile.content import Ordering
from tidelock.table.logfile.reader import CorruptBlock
from tidelock.table.logfile.writer import avro_block, parquet_block, rollback_block
from tidelock.table.properties import MergeMode
from tidelock.table.schema.avro import render_schema
from tidelock.table.schema.meta import with_meta

COMMIT = MergeRule()
EVENT = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts",))
BOTH = pytest.mark.parametrize("rule", [COMMIT, EVENT], ids=["commit", "event"])
BASE: list[Row] = [("a", 10, "a1"), ("b", 10, "b1"), ("c", 10, "c1")]


def names(slice_: SliceBuilder, rule: MergeRule, **options: object) -> list[str]:
    """Return the names in a slice, sorted."""
    table = read_slice(slice_.store, slice_.piece, slice_.schema, rule=rule, **options)  # type: ignore[arg-type]
    found: list[str] = sorted(table.column("name").to_pylist())
    return found


# --- what wins ------------------------------------------------------------------------------------


@BOTH
def test_a_slice_without_logs_is_its_base_file(rule: MergeRule) -> None:
    assert names(SliceBuilder().with_base(BASE), rule) == ["a1", "b1", "c1"]


@BOTH
@pytest.mark.parametrize("as_parquet", [False, True])
def test_updates_replace_inserts_add_and_deletes_remove(rule: MergeRule, as_parquet: bool) -> None:
    made = SliceBuilder().with_base(BASE)
    made.upsert("2", ("a", 11, "a2"), ("d", 1, "d2"), as_parquet=as_parquet).delete("3", "b")
    assert names(made, rule) == ["a2", "c1", "d2"]


@BOTH
def test_a_slice_without_a_base_file_is_its_logs(rule: MergeRule) -> None:
    made = SliceBuilder().upsert("2", ("a", 1, "a2"), ("b", 1, "b2")).delete("3", "b")
    assert names(made, rule) == ["a2"]


@BOTH
def test_equal_ordering_values_let_the_later_write_win(rule: MergeRule) -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 10, "a2")).upsert("3", ("a", 10, "a3"))
    assert names(made, rule) == ["a3", "b1", "c1"]


def test_a_smaller_ordering_value_loses_in_event_time_only() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 9, "a2"))
    assert names(made, EVENT) == ["a1", "b1", "c1"]
    assert names(made, COMMIT) == ["a2", "b1", "c1"]


def test_the_largest_ordering_value_of_several_logs_wins_in_event_time() -> None:
    made = SliceBuilder().with_base(BASE)
    made.upsert("2", ("a", 30, "a2")).upsert("3", ("a", 20, "a3"), ("b", 5, "b3"))
    assert names(made, EVENT) == ["a2", "b1", "c1"]
    assert names(made, COMMIT) == ["a3", "b3", "c1"]


def test_the_same_key_twice_in_one_block_is_one_row() -> None:
    made = SliceBuilder().upsert("2", ("a", 9, "first"), ("a", 5, "second"))
    assert names(made, EVENT) == ["first"]
    assert names(made, COMMIT) == ["second"]


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
def test_a_delete_wins_by_its_ordering_value_and_always_in_natural_order(
    ordering: Ordering | None, deleted: bool
) -> None:
    made = SliceBuilder().with_base(BASE).delete("2", "a", ordering=ordering)
    assert names(made, EVENT) == (["b1", "c1"] if deleted else ["a1", "b1", "c1"])
    assert names(made, COMMIT) == ["b1", "c1"]


def test_a_row_after_a_natural_delete_is_compared_with_the_base_row() -> None:
    # As in Hudi: log files are folded first, and the row that remains does not know of the delete.
    made = SliceBuilder().with_base(BASE).delete("2", "a").upsert("3", ("a", 1, "a3"))
    assert names(made, EVENT) == ["a1", "b1", "c1"]
    assert names(made.upsert("4", ("a", 10, "a4")), EVENT) == ["a4", "b1", "c1"]


def test_a_natural_delete_ends_what_came_before_it_among_the_logs_too() -> None:
    made = SliceBuilder().upsert("2", ("a", 99, "a2")).delete("3", "a").upsert("4", ("a", 1, "a4"))
    assert names(made, EVENT) == ["a4"]
    assert names(made.delete("5", "a"), EVENT) == []


def test_a_row_older_than_a_delete_in_event_time_stays_deleted() -> None:
    made = SliceBuilder().with_base(BASE).delete("2", "a", ordering=Ordering("Long", 20))
    assert names(made.upsert("3", ("a", 15, "a3")), EVENT) == ["b1", "c1"]
    assert names(made.upsert("4", ("a", 20, "a4")), EVENT) == ["a4", "b1", "c1"]


def test_a_timed_delete_of_what_is_deleted_already_sets_no_time() -> None:
    # As in Hudi: after the natural delete there is nothing to delete, so a later row is not older.
    made = SliceBuilder().with_base(BASE).delete("2", "a")
    made.delete("3", "a", ordering=Ordering("Long", 50)).upsert("4", ("a", 12, "a4"))
    assert names(made, EVENT) == ["a4", "b1", "c1"]


def test_event_time_without_an_ordering_field_is_commit_time() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 1, "a2"))
    assert names(made, MergeRule(MergeMode.EVENT_TIME_ORDERING)) == ["a2", "b1", "c1"]


def test_a_row_without_an_ordering_value_is_older_than_any_with_one() -> None:
    made = SliceBuilder().with_base([("a", 10, "a1"), ("b", None, "b1"), ("c", None, "c1")])
    made.upsert("2", ("a", None, "a2"), ("b", 1, "b2"), ("c", None, "c2"))
    assert names(made, EVENT) == ["a1", "b2", "c2"]


def test_several_ordering_fields_are_compared_one_after_the_other() -> None:
    rule = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts", "name"))
    made = SliceBuilder().with_base([("a", 10, "m"), ("b", 10, "m"), ("c", 10, "m")])
    made.upsert("2", ("a", 10, "l"), ("b", 10, "n"), ("c", 9, "z"))
    assert names(made, rule) == ["m", "m", "n"]
    several = Ordering("Array", (Ordering("Long", 10), Ordering("String", "a")))
    assert names(made.delete("3", "a", ordering=several), rule) == ["m", "m", "n"]
    later = Ordering("Array", (Ordering("Long", 10), Ordering("String", "zz")))
    assert names(made.delete("4", "a", ordering=later), rule) == ["m", "n"]


# --- what counts ----------------------------------------------------------------------------------


def test_log_blocks_after_the_moment_asked_for_do_not_count() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 11, "a2")).upsert("3", ("b", 11, "b3"))
    assert names(made, EVENT, as_of="2") == ["a2", "b1", "c1"]


def test_a_rolled_back_write_does_not_count() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 11, "a2")).upsert("3", ("b", 11, "b3"))
    made.with_log("4", rollback_block(instant="4", target="2"))
    assert names(made, EVENT) == ["a1", "b3", "c1"]


def test_an_incremental_read_keeps_rows_whose_current_version_is_of_the_commits() -> None:
    made = SliceBuilder().with_base(BASE)
    made.upsert("2", ("a", 11, "a2"), ("b", 11, "b2"), ("c", 1, "late")).upsert(
        "3", ("b", 12, "b3")
    )
    assert names(made, EVENT, commit_times={"2"}) == ["a2"]
    assert names(made, EVENT, commit_times={"1", "3"}) == ["b3", "c1"]
    assert names(made, EVENT, commit_times={"2"}, columns=["name"]) == ["a2"]
    assert names(made, EVENT, commit_times=set()) == []


def test_strings_that_repeat_themselves_are_plain_in_rows_that_were_chosen() -> None:
    many: list[Row] = [(f"k{i:05}", i, f"n{i % 3}") for i in range(12_000)]
    made = SliceBuilder().with_base(many)
    few = RowFilter.of((pc.field("ts") >= 100) & (pc.field("ts") < 104), made.schema)
    (part,) = slice_batches(made.store, made.piece, made.schema, rule=COMMIT, passing=few)
    assert part.column("name").to_pylist() == ["n1", "n2", "n0", "n1"]
    assert part.schema.field("name").type == pa.string()
    named = RowFilter.of(pc.field("name") == "n2", made.schema)
    found = slice_batches(made.store, made.piece, made.schema, rule=COMMIT, passing=named)
    assert sum(part.num_rows for part in found) == 4_000
    assert len(names(made, COMMIT, commit_times={"1"})) == 12_000
    assert names(made, COMMIT, commit_times={"2"}) == []


def test_change_data_files_are_no_part_of_the_rows() -> None:
    made = SliceBuilder().with_base(BASE).with_log_bytes("2", b"anything")
    log = made.logs.pop()
    made.logs.append(type(log)(log.partition, log.name, "f-0", "0-0-0", "2", 1, 8, suffix=".cdc"))
    assert names(made, EVENT) == ["a1", "b1", "c1"]


# --- deletes that are rows ------------------------------------------------------------------------


def flagged(column: str, kind: pa.DataType, value: object, ts: int | None = 11) -> SliceBuilder:
    """Return a slice whose log has a row for `a` with `value` in another column."""
    schema = pa.schema([*SCHEMA, pa.field(column, kind)])
    made = SliceBuilder(schema).with_base(BASE)
    row = rows([("a", ts, "a2")], "2").append_column(column, pa.array([value], kind))
    return made.with_log("2", avro_block(row, instant="2", schema=made.avro))


@BOTH
def test_a_row_that_says_it_is_deleted_is_a_delete(rule: MergeRule) -> None:
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), True), rule) == ["b1", "c1"]
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), False), rule) == ["a2", "b1", "c1"]
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), None), rule) == ["a2", "b1", "c1"]


def test_a_deleted_row_is_compared_by_its_ordering_value() -> None:
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), True, ts=9), EVENT) == ["a1", "b1", "c1"]
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), True, ts=0), EVENT) == ["a1", "b1", "c1"]
    assert names(flagged("_hoodie_is_deleted", pa.bool_(), True, ts=None), EVENT) == ["b1", "c1"]


def test_the_integer_zero_makes_a_deleted_row_natural_and_the_long_does_not() -> None:
    schema = with_meta(
        pa.schema([("ts", pa.int32()), ("name", pa.string()), ("_hoodie_is_deleted", pa.bool_())])
    )
    made = SliceBuilder(schema).with_base_table(rows(BASE, "1").cast(_narrow()))
    row = rows([("a", 0, "a2")], "2").cast(_narrow())
    row = row.append_column("_hoodie_is_deleted", pa.array([True])).drop_columns(["id"])
    made.with_log("2", parquet_block(row, instant="2", schema=made.avro))
    assert names(made, EVENT) == ["b1", "c1"]


def _narrow() -> pa.Schema:
    at = SCHEMA.get_field_index("ts")
    return SCHEMA.set(at, pa.field("ts", pa.int32()))


def test_a_row_of_a_change_log_with_operation_d_is_a_delete() -> None:
    assert names(flagged("_hoodie_operation", pa.string(), "D"), EVENT) == ["b1", "c1"]
    assert names(flagged("_hoodie_operation", pa.string(), "U"), EVENT) == ["a2", "b1", "c1"]


def test_a_marker_of_the_users_own_makes_a_delete() -> None:
    rule = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts",), "op", "gone")
    assert names(flagged("op", pa.string(), "gone"), rule) == ["b1", "c1"]
    assert names(flagged("op", pa.string(), "kept"), rule) == ["a2", "b1", "c1"]
    number = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts",), "op", "7")
    assert names(flagged("op", pa.int32(), 7), number) == ["b1", "c1"]


def test_delete_marks_need_not_be_asked_for() -> None:
    made = flagged("_hoodie_is_deleted", pa.bool_(), True)
    assert names(made, EVENT, columns=["name"]) == ["b1", "c1"]


# --- columns and types ----------------------------------------------------------------------------


def test_only_the_columns_asked_for_come_in_that_order() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 11, "a2"), as_parquet=True)
    found = read_slice(made.store, made.piece, SCHEMA, rule=EVENT, columns=["name", "id"])
    assert found.column_names == ["name", "id"]
    assert sorted(found.column("id").to_pylist()) == ["a", "b", "c"]


def test_a_column_that_the_table_lacks_is_named() -> None:
    made = SliceBuilder().with_base(BASE)
    with pytest.raises(InvalidInput, match=r"no column 'nmae'.*name"):
        read_slice(made.store, made.piece, SCHEMA, rule=EVENT, columns=["nmae"])


def test_an_ordering_field_that_the_table_lacks_is_named() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 1, "a2"))
    rule = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("when",))
    with pytest.raises(InvalidInput, match="ordering field 'when'"):
        names(made, rule)


def test_files_from_before_a_column_or_a_wider_type_are_read_under_the_schema() -> None:
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


def test_columns_that_are_all_from_after_the_file_are_null_for_every_row() -> None:
    made = SliceBuilder().with_base(BASE)
    grown = pa.schema([*SCHEMA, ("late", pa.int64())])
    found = read_slice(made.store, made.piece, grown, rule=EVENT, columns=["late"])
    assert found.column("late").to_pylist() == [None, None, None]


def test_a_type_that_cannot_widen_names_the_file_the_column_and_both_types() -> None:
    made = SliceBuilder().with_base(BASE)
    at = SCHEMA.get_field_index("name")
    other = SCHEMA.set(at, pa.field("name", pa.date32()))
    with pytest.raises(InvalidInput, match=r"f-0_0-0-0_1\.parquet: column name .*string.*date32"):
        read_slice(made.store, made.piece, other, rule=EVENT)


# --- streaming ------------------------------------------------------------------------------------


def test_batches_stream_and_together_are_the_slice() -> None:
    many: list[Row] = [(f"k{i:03d}", 1, f"n{i}") for i in range(100)]
    made = SliceBuilder().with_base(many, row_group_size=30)
    made.upsert("2", ("k005", 2, "changed"), ("x", 1, "added")).delete("3", "k099")
    batches = list(
        slice_batches(made.store, made.piece, SCHEMA, rule=EVENT, columns=["name"], batch_rows=10)
    )
    assert max(batch.num_rows for batch in batches) == 10
    expected = {f"n{i}" for i in range(99) if i != 5} | {"changed", "added"}
    assert {name for batch in batches for name in batch.column("name").to_pylist()} == expected
    assert sum(batch.num_rows for batch in batches) == len(expected)


def test_an_empty_slice_has_the_columns_and_no_rows() -> None:
    found = read_slice(SliceBuilder().store, SliceBuilder().piece, SCHEMA, rule=EVENT)
    assert (found.num_rows, found.schema.names) == (0, SCHEMA.names)
    empty = SliceBuilder().with_base([])
    assert read_slice(empty.store, empty.piece, SCHEMA, rule=EVENT).num_rows == 0


def test_no_columns_still_tell_how_many_rows_there_are() -> None:
    made = SliceBuilder().with_base(BASE)
    for expected in (3, 2):
        batches = slice_batches(made.store, made.piece, SCHEMA, rule=EVENT, columns=[])
        assert sum(batch.num_rows for batch in batches) == expected
        made.delete("2", "a")
    with pytest.raises(InvalidInput, match="no columns are asked for"):
        read_slice(made.store, made.piece, SCHEMA, rule=EVENT, columns=[])


# --- damage ---------------------------------------------------------------------------------------


def truncated(body: bytes) -> bytes:
    """Cut the end off."""
    return body[:-10]


def scrambled(body: bytes) -> bytes:
    """Damage the pages, not the footer."""
    return body[:4] + bytes(200) + body[204:]


@pytest.mark.parametrize("damage", [truncated, scrambled, lambda _: b"", lambda _: b"PAR1"])
def test_a_damaged_base_file_is_corrupt_and_named(damage: Callable[[bytes], bytes]) -> None:
    made = SliceBuilder().with_base([(f"k{i}", i, f"name {i}") for i in range(500)])
    assert made.base is not None
    found = made.store.get(made.base.key)
    assert found is not None
    made.store.put(made.base.key, damage(found.body), Overwrite())
    with pytest.raises(DataCorrupt, match=r"memory://lake/p/f-0_0-0-0_1\.parquet"):
        names(made, EVENT)


def test_a_base_file_that_is_gone_is_named() -> None:
    made = SliceBuilder().with_base(BASE)
    assert made.base is not None
    made.store.delete(made.base.key)
    with pytest.raises(NotFound, match=r"f-0_0-0-0_1\.parquet.*open the table again"):
        names(made, EVENT)


def test_a_torn_log_block_is_skipped_and_told() -> None:
    made = SliceBuilder().with_base(BASE).upsert("2", ("a", 11, "a2")).upsert("3", ("b", 11, "b3"))
    torn = made.store.get(made.logs[1].key)
    assert torn is not None
    made.store.put(made.logs[1].key, torn.body[:-1], Overwrite())
    made.logs[1] = replace(made.logs[1], size_bytes=len(torn.body) - 1)
    told: list[CorruptBlock] = []
    assert names(made, EVENT, on_corrupt=told.append) == ["a2", "b1", "c1"]
    assert [(block.where, block.offset) for block in told] == [
        ("memory://lake/p/.f-0_3.log.1_0-0-0", 0)
    ]


@pytest.mark.parametrize(
    ("headers", "content", "message"),
    [
        ({0: "2"}, bytes.fromhex("0000000300000000"), "carries no schema"),
        ({0: "2", 2: "{"}, bytes.fromhex("0000000300000000"), "not JSON"),
        ({0: "2", 2: "{}"}, b"", "not a record"),
    ],
)
def test_a_damaged_data_block_is_corrupt_and_named(
    headers: dict[int, str], content: bytes, message: str
) -> None:
    made = SliceBuilder().with_base(BASE).with_log("2", Block(BlockType.AVRO, headers, content))
    with pytest.raises(DataCorrupt, match=rf"\.f-0_2\.log.*{message}"):
        names(made, EVENT)


def test_many_logs_with_rows_and_deletes_in_between_count_in_their_order() -> None:
    made = SliceBuilder().with_base(BASE)
    for turn in range(2, 6):
        made.upsert(str(turn), ("a", 10 + turn, f"a{turn}"), (f"n{turn}", 1, f"n{turn}"))
    made.delete("6", "a", "n2").upsert("7", ("n2", 1, "n2 again"), as_parquet=True)
    made.upsert("8", ("b", 90, "b8")).upsert("9", ("b", 91, "b9"))
    expected = ["b9", "c1", "n2 again", "n3", "n4", "n5"]
    assert sorted(names(made, EVENT)) == sorted(names(made, COMMIT)) == expected


def test_a_damaged_block_among_others_is_the_one_that_is_named() -> None:
    made = SliceBuilder().upsert("2", ("a", 1, "a2")).upsert("3", ("a", 2, "a3"))
    schema = render_schema(made.avro)
    made.with_log(
        "4", Block(BlockType.AVRO, {0: "4", 2: schema}, bytes.fromhex("0000000300000009"))
    )
    with pytest.raises(DataCorrupt, match=r"block of 4.*lengths of 9 records"):
        names(made, EVENT)


def test_partial_updates_are_refused_and_not_read_as_whole_rows() -> None:
    made = SliceBuilder().with_base(BASE)
    whole = avro_block(rows([("a", 11, "a2")], "2"), instant="2", schema=made.avro)
    headers = {**whole.headers, int(Header.IS_PARTIAL): "true"}
    made.with_log("2", Block(whole.type, headers, whole.content))
    with pytest.raises(Unsupported, match=r"\.f-0_2\.log.*partial updates"):
        names(made, EVENT)


def test_log_rows_without_keys_cannot_be_merged() -> None:
    made = SliceBuilder().with_base(BASE)
    nameless = rows([("a", 11, "a2")], "2").drop_columns(["_hoodie_record_key"])
    made.with_log("2", parquet_block(nameless, instant="2", schema=made.avro))
    with pytest.raises(Unsupported, match="no _hoodie_record_key"):
        names(made, EVENT)


def test_log_rows_of_a_table_without_meta_columns_are_not_taken_for_new_ones() -> None:
    at = SCHEMA.get_field_index("_hoodie_record_key")
    nulls = pa.nulls(2, pa.string())
    made = SliceBuilder().with_base(BASE)
    empty = rows([("a", 11, "a2"), ("b", 11, "b2")], "2").set_column(at, SCHEMA.field(at), nulls)
    made.with_log("2", parquet_block(empty, instant="2", schema=made.avro))
    with pytest.raises(Unsupported, match=r"hoodie\.populate\.meta\.fields=false"):
        names(made, EVENT)


def test_a_log_row_without_a_key_among_others_is_corrupt() -> None:
    at = SCHEMA.get_field_index("_hoodie_record_key")
    made = SliceBuilder().with_base(BASE)
    some = rows([("a", 11, "a2"), ("b", 11, "b2")], "2").set_column(
        at, SCHEMA.field(at), pa.array(["a", None])
    )
    made.with_log("2", parquet_block(some, instant="2", schema=made.avro))
    with pytest.raises(DataCorrupt, match="1 rows have no _hoodie_record_key"):
        names(made, EVENT)


def test_a_delete_whose_ordering_value_is_no_number_is_corrupt_for_a_number() -> None:
    made = SliceBuilder().with_base(BASE).delete("2", "a", ordering=Ordering("String", "x"))
    with pytest.raises(DataCorrupt, match=r"does not fit ts, a int64"):
        names(made, EVENT)
    assert names(made, COMMIT) == ["b1", "c1"]
