"""Writing one file group: file contents, write stats, and repeated tasks."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.unit.execution.filegroup.slices import SCHEMA, Row
from tests.unit.execution.filegroup.writing import (
    EVENT_TIME,
    GROUP,
    context,
    file_of,
    incoming,
    keys,
    rows_in,
    slice_of,
)
from tidelock.core.errors import InvalidInput
from tidelock.execution.filegroup.clustering import cluster_base
from tidelock.execution.filegroup.context import BloomSettings, FileKind, FileResult, LogFormat
from tidelock.execution.filegroup.log_files import append_log
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.filegroup.write import create_base, merge_base, rewrite_base
from tidelock.hudi.bloom_filter import FOOTER_FILTER, FOOTER_TYPE, decode_filter
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.markers import IoType, Marker, read_markers
from tidelock.hudi.properties import MergeMode
from tidelock.hudi.schema import META_COLUMNS, with_meta
from tidelock.storage.memory import MemoryStore

FIRST, SECOND, THIRD = "20260101000000001", "20260101000000002", "20260101000000003"
ABC: list[Row] = [("a", 1, "one"), ("b", 2, "two"), ("c", 3, "three")]


@pytest.fixture
def store() -> MemoryStore:
    """Return an empty store."""
    return MemoryStore("lake")


def created(store: MemoryStore, **settings: Any) -> FileResult:
    """Write the rows a, b and c as a group."""
    (result,) = create_base(
        store,
        context(FIRST, **settings),
        partition="p",
        file_id=GROUP,
        slot=7,
        rows=[incoming(ABC)],
    )
    return result


def table_of(store: MemoryStore, result: FileResult) -> pa.Table:
    """Return the contents of a base file."""
    return pq.read_table(pa.BufferReader(body(store, result)))


def body(store: MemoryStore, result: FileResult) -> bytes:
    """Return the bytes of a file."""
    found = store.get(file_of(result).key)
    assert found is not None
    return found.body


# First file of a group


def test_created_file_starts_with_the_meta_columns(store: MemoryStore) -> None:
    table = table_of(store, created(store))
    assert table.schema.equals(SCHEMA)
    assert table.column_names[:5] == list(META_COLUMNS)
    assert table.slice(1, 1).to_pylist() == [
        {
            "_hoodie_commit_time": FIRST,
            "_hoodie_commit_seqno": f"{FIRST}_7_1",
            "_hoodie_record_key": "b",
            "_hoodie_partition_path": "p",
            "_hoodie_file_name": f"{GROUP}_7-0-0_{FIRST}.parquet",
            "id": "b",
            "ts": 2,
            "name": "two",
        }
    ]


def test_created_file_is_described_by_its_stat(store: MemoryStore) -> None:
    result = created(store)
    stat = result.stat
    size = len(body(store, result))
    assert (result.kind, result.partition, result.file_id) == (FileKind.CREATED, "p", GROUP)
    assert stat.path == f"p/{GROUP}_7-0-0_{FIRST}.parquet"
    assert (stat.prev_commit, stat.prev_base_file) == ("null", None)
    assert (stat.num_writes, stat.num_inserts, stat.num_update_writes) == (3, 3, 0)
    assert (stat.file_size_in_bytes, stat.total_write_bytes) == (size, size)
    assert (result.min_key, result.max_key, result.written_keys) == ("a", "c", ("a", "b", "c"))


def test_footer_has_key_bounds_and_no_bloom_filter_by_default(store: MemoryStore) -> None:
    footer = pq.read_metadata(pa.BufferReader(body(store, created(store)))).metadata
    assert footer == {b"hoodie_min_record_key": b"a", b"hoodie_max_record_key": b"c"}


def test_footer_has_the_configured_bloom_filter(store: MemoryStore) -> None:
    result = created(store, bloom=BloomSettings(entries=100))
    footer = pq.read_metadata(pa.BufferReader(body(store, result))).metadata
    kind = footer[FOOTER_TYPE.encode()].decode()
    bloom = decode_filter(footer[FOOTER_FILTER.encode()].decode(), kind=kind, where="here")
    assert bloom.might_contain(keys("a", "c", "x")).to_pylist() == [True, True, False]


def test_file_without_rows_has_no_bounds(store: MemoryStore) -> None:
    (result,) = create_base(
        store, context(FIRST), partition="p", file_id=GROUP, slot=0, rows=[incoming([])]
    )
    assert table_of(store, result).num_rows == 0
    assert pq.read_metadata(pa.BufferReader(body(store, result))).metadata is None
    assert (result.min_key, result.stat.num_writes) == (None, 0)


def test_new_group_starts_when_a_file_is_full(store: MemoryStore) -> None:
    rows = incoming([(f"k{i:05}", i, f"name {i}") for i in range(20_000)])
    results = create_base(
        store,
        context(FIRST, file_bytes_max=100_000, row_group_bytes=50_000),
        partition="p",
        file_id=GROUP,
        slot=0,
        rows=[rows.slice(0, 7_000), rows.slice(7_000)],
    )
    assert [result.file_id for result in results][:3] == ["0a1b2c-0", "0a1b2c-1", "0a1b2c-2"]
    sizes = [result.stat.file_size_in_bytes or 0 for result in results]
    assert all(80_000 < size < 120_000 for size in sizes[:-1]), sizes
    tables = [table_of(store, result) for result in results]
    assert sum(result.stat.num_inserts or 0 for result in results) == 20_000
    all_rows = pa.concat_tables(tables)
    assert all_rows.column("id").equals(rows.column("id"))
    seqnos = all_rows.column("_hoodie_commit_seqno")
    assert seqnos.to_pylist() == [f"{FIRST}_0_{i}" for i in range(20_000)]


def test_file_can_be_smaller_than_a_row_group(store: MemoryStore) -> None:
    rows = incoming([(f"k{i:05}", i, f"name {i}") for i in range(20_000)])
    ctx = context(FIRST, file_bytes_max=100_000)
    results = create_base(store, ctx, partition="p", file_id=GROUP, slot=0, rows=[rows])
    sizes = [result.stat.file_size_in_bytes or 0 for result in results]
    assert all(60_000 < size < 120_000 for size in sizes[:-1]), sizes
    all_rows = pa.concat_tables([table_of(store, result) for result in results])
    assert all_rows.column("id").equals(rows.column("id"))


@pytest.mark.parametrize("sort_by", [(), ("name",)])
def test_clustered_rows_keep_their_commit(store: MemoryStore, sort_by: tuple[str, ...]) -> None:
    one = created(store)
    ctx = context(FIRST, attempt=1)
    (two,) = create_base(
        store, ctx, partition="p", file_id="ffff-0", slot=1, rows=[incoming([("d", 1, "Bd")])]
    )
    log = append_log(store, context(SECOND), slice_of(two), slot=0, rows=incoming([("d", 2, "Ad")]))
    pieces = [slice_of(one), slice_of(two, log)]
    before = [row for piece in pieces for row in rows_in(store, piece, columns=UNCHANGED)]
    (result,) = cluster_base(
        store, context("20260101000000009"), pieces, file_id="eeee-0", slot=0, sort_by=sort_by
    )
    assert rows_in(store, slice_of(result), columns=UNCHANGED) == sorted(before)
    assert set(table_of(store, result).column("_hoodie_file_name").to_pylist()) == {
        file_of(result).name
    }
    assert (result.kind, result.written_keys) == (FileKind.CREATED, ())
    if sort_by:
        names = table_of(store, result).column("name").to_pylist()
        assert names == sorted(names)


UNCHANGED = ("id", "name", "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key")


def test_without_a_limit_all_rows_are_in_one_file(store: MemoryStore) -> None:
    rows = incoming([(f"k{i:05}", i, "n") for i in range(5_000)])
    ctx = context(FIRST, file_bytes_max=None, row_group_bytes=50_000)
    (result,) = create_base(store, ctx, partition="", file_id="bucket", slot=0, rows=[rows])
    assert result.stat.path == f"bucket_0-0-0_{FIRST}.parquet"
    assert pq.read_metadata(pa.BufferReader(body(store, result))).num_row_groups > 3


def test_row_that_does_not_match_the_schema_leaves_no_file(store: MemoryStore) -> None:
    wrong = incoming(ABC).set_column(3, "ts", pa.array(["x", "y", "z"]))
    with pytest.raises(InvalidInput, match="ts"):
        create_base(
            store, context(FIRST), partition="p", file_id=GROUP, slot=0, rows=[incoming(ABC), wrong]
        )
    assert [meta.key for meta in store.list("")] == ["p/.hoodie_partition_metadata"]


def test_marker_is_written_before_the_file(store: MemoryStore) -> None:
    (result,) = create_base(
        store, context(FIRST, markers=True), partition="p", file_id=GROUP, slot=0, rows=[]
    )
    merge_base(store, context(SECOND, markers=True), slice_of(result), slot=1, rows=incoming(ABC))
    name = f"{GROUP}_0-0-0_{FIRST}.parquet"
    assert read_markers(store, FIRST) == {Marker("p", name, IoType.CREATE)}
    later = f"{GROUP}_1-0-0_{SECOND}.parquet"
    assert read_markers(store, SECOND) == {Marker("p", later, IoType.MERGE)}
    metadata = store.get("p/.hoodie_partition_metadata")
    assert metadata is not None
    assert f"commitTime={FIRST}".encode() in metadata.body


def test_context_can_be_sent_to_another_process() -> None:
    ctx = context(FIRST, bloom=BloomSettings(), log_format=LogFormat.PARQUET)
    assert pickle.loads(pickle.dumps(ctx)) == ctx


# Merging


def test_merge_updates_inserts_and_deletes(store: MemoryStore) -> None:
    piece = slice_of(created(store))
    rows = incoming([("b", 1, "newer"), ("d", 4, "four")])
    result = merge_base(store, context(SECOND), piece, slot=3, rows=rows, deletes=keys("c", "x"))
    assert rows_in(store, slice_of(result)) == [
        ("a", 1, "one"),
        ("b", 1, "newer"),
        ("d", 4, "four"),
    ]
    stat = result.stat
    assert (stat.num_writes, stat.num_update_writes, stat.num_inserts) == (3, 1, 1)
    assert (stat.num_deletes, stat.prev_commit) == (1, FIRST)
    assert stat.prev_base_file == result.replaced_base == f"{GROUP}_7-0-0_{FIRST}.parquet"
    assert (result.kind, result.written_keys) == (FileKind.MERGED, ("d",))
    assert (result.min_key, result.max_key) == ("a", "d")


def test_unchanged_rows_keep_their_commit_and_get_the_new_file_name(store: MemoryStore) -> None:
    piece = slice_of(created(store))
    result = merge_base(store, context(SECOND), piece, slot=3, rows=incoming([("b", 1, "newer")]))
    found = {row["id"]: row for row in table_of(store, result).to_pylist()}
    assert found["a"]["_hoodie_commit_time"] == FIRST
    assert found["a"]["_hoodie_commit_seqno"] == f"{FIRST}_7_0"
    assert found["b"]["_hoodie_commit_time"] == SECOND
    assert found["b"]["_hoodie_commit_seqno"] == f"{SECOND}_3_0"
    name = f"{GROUP}_3-0-0_{SECOND}.parquet"
    assert {row["_hoodie_file_name"] for row in found.values()} == {name}
    assert {row["_hoodie_partition_path"] for row in found.values()} == {"p"}


def test_row_older_than_the_stored_one_is_not_written(store: MemoryStore) -> None:
    piece = slice_of(created(store))
    rows = incoming([("a", 0, "late"), ("b", 2, "same"), ("c", 9, "later"), ("d", 0, "new")])
    result = merge_base(store, context(SECOND, rule=EVENT_TIME), piece, slot=0, rows=rows)
    assert rows_in(store, slice_of(result)) == [
        ("a", 1, "one"),
        ("b", 2, "same"),
        ("c", 9, "later"),
        ("d", 0, "new"),
    ]
    assert (result.stat.num_update_writes, result.stat.num_inserts) == (2, 1)
    assert result.written_keys == ("d",)


def test_delete_in_natural_order_beats_a_later_event_time(store: MemoryStore) -> None:
    piece = slice_of(created(store))
    ctx = context(SECOND, rule=EVENT_TIME)
    result = merge_base(store, ctx, piece, slot=0, rows=None, deletes=keys("c"))
    assert [row[0] for row in rows_in(store, slice_of(result))] == ["a", "b"]
    assert result.stat.num_deletes == 1


def test_row_can_be_a_delete(store: MemoryStore) -> None:
    schema = with_meta(pa.schema([*SCHEMA, pa.field("_hoodie_is_deleted", pa.bool_())]))
    marks = pa.array([False, False, False])
    ctx = context(FIRST, schema=schema)
    rows = incoming(ABC).append_column("_hoodie_is_deleted", marks)
    (result,) = create_base(store, ctx, partition="p", file_id=GROUP, slot=0, rows=[rows])
    changes = incoming([("a", 5, "x"), ("b", 5, "y")]).append_column(
        "_hoodie_is_deleted", pa.array([True, False])
    )
    merged = merge_base(
        store, context(SECOND, schema=schema), slice_of(result), slot=0, rows=changes
    )
    assert [row[0] for row in rows_in(store, slice_of(merged))] == ["b", "c"]
    assert (merged.stat.num_deletes, merged.stat.num_update_writes) == (1, 1)


def test_deleting_all_rows_leaves_an_empty_file(store: MemoryStore) -> None:
    piece = slice_of(created(store))
    result = merge_base(store, context(SECOND), piece, slot=0, rows=None, deletes=keys(*"abc"))
    assert table_of(store, result).num_rows == 0
    assert (result.stat.num_deletes, result.stat.num_writes) == (3, 0)


def test_columns_added_later_are_null_in_old_rows(store: MemoryStore) -> None:
    piece = slice_of(created(store))
    schema = with_meta(pa.schema([*SCHEMA, pa.field("extra", pa.int32())]))
    rows = incoming([("b", 2, "two")]).append_column("extra", pa.array([5], pa.int32()))
    result = merge_base(store, context(SECOND, schema=schema), piece, slot=0, rows=rows)
    assert sorted(table_of(store, result).column("extra").to_pylist(), key=str) == [5, None, None]


def test_repeated_strings_survive_every_encoding(store: MemoryStore) -> None:
    many = [(f"k{i:06}", i, f"city {i % 7}") for i in range(30_000)]
    (first,) = create_base(
        store,
        context(FIRST, row_group_bytes=300_000),
        partition="p",
        file_id=GROUP,
        slot=0,
        rows=[incoming(many)],
    )
    changes = [(f"k{i:06}", i, f"town {i}") for i in range(0, 30_000, 11)]
    piece = slice_of(first)
    second = merge_base(store, context(SECOND), piece, slot=0, rows=incoming(changes))
    expected = {**{row[0]: row for row in many}, **{row[0]: row for row in changes}}
    assert rows_in(store, slice_of(second)) == sorted(expected.values())
    assert table_of(store, second).schema.field("name").type == pa.string()


# Slices with log files


def logged(store: MemoryStore, piece: FileSlice, instant: str, **changes: Any) -> FileResult:
    """Append a log file to a slice."""
    return append_log(
        store,
        context(instant, rule=EVENT_TIME),
        piece,
        slot=0,
        **changes,
    )


def test_merge_includes_the_log_files(store: MemoryStore) -> None:
    base = created(store)
    log = logged(
        store, slice_of(base), SECOND, rows=incoming([("e", 5, "logged")]), deletes=keys("a")
    )
    rows = incoming([("e", 6, "update"), ("a", 1, "again"), ("f", 1, "insert")])
    piece = slice_of(base, log)
    result = merge_base(store, context(THIRD, rule=EVENT_TIME), piece, slot=0, rows=rows)
    assert rows_in(store, slice_of(result)) == [
        ("a", 1, "again"),
        ("b", 2, "two"),
        ("c", 3, "three"),
        ("e", 6, "update"),
        ("f", 1, "insert"),
    ]
    # `e` is only in the log, so it is an update; `a` was deleted there, so it is an insert.
    assert (result.stat.num_update_writes, result.stat.num_inserts) == (1, 2)


def test_row_older_than_a_logged_delete_stays_deleted(store: MemoryStore) -> None:
    schema = with_meta(pa.schema([*SCHEMA, pa.field("_hoodie_is_deleted", pa.bool_())]))

    def marked(values: list[Row], *marks: bool) -> pa.Table:
        return incoming(values).append_column("_hoodie_is_deleted", pa.array(marks))

    ctx = context(FIRST, schema=schema, rule=EVENT_TIME)
    rows = marked(ABC, False, False, False)
    (base,) = create_base(store, ctx, partition="p", file_id=GROUP, slot=0, rows=[rows])
    log = append_log(
        store,
        context(SECOND, schema=schema, rule=EVENT_TIME),
        slice_of(base),
        slot=0,
        rows=marked([("a", 10, ""), ("b", 10, "")], True, True),
    )
    assert log.stat.num_deletes == 2
    late = marked([("a", 9, "too late"), ("b", 11, "in time")], False, False)
    ctx = context(THIRD, schema=schema, rule=EVENT_TIME)
    result = merge_base(store, ctx, slice_of(base, log), slot=0, rows=late)
    found = rows_in(store, slice_of(result))
    assert [(row[0], row[2]) for row in found] == [("b", "in time"), ("c", "three")]
    assert (result.stat.num_inserts, result.stat.num_update_writes) == (1, 0)


def test_group_with_only_log_files_gets_its_first_base_file(store: MemoryStore) -> None:
    group = FileSlice("p", GROUP, FIRST, None)
    log = append_log(
        store, context(FIRST), group, slot=0, rows=incoming(ABC), inserted=keys("a", "b", "c")
    )
    assert log.written_keys == ("a", "b", "c")
    assert (log.stat.num_inserts, log.stat.num_update_writes) == (3, 0)
    changes = incoming([("a", 9, "x")])
    result = merge_base(store, context(SECOND), slice_of(log), slot=0, rows=changes)
    assert rows_in(store, slice_of(result))[0] == ("a", 9, "x")
    assert (result.stat.prev_commit, result.replaced_base) == ("null", None)


@pytest.mark.parametrize("form", LogFormat)
def test_log_file_contains_rows_and_then_deletes(store: MemoryStore, form: LogFormat) -> None:
    base = created(store)
    rows = incoming([("b", 9, "newer"), ("d", 4, "four")])
    ctx = context(SECOND, rule=EVENT_TIME, log_format=form)
    log = append_log(
        store, ctx, slice_of(base), slot=2, rows=rows, deletes=keys("c"), inserted=keys("d")
    )
    piece = slice_of(base, log)
    assert rows_in(store, piece, rule=EVENT_TIME) == [
        ("a", 1, "one"),
        ("b", 9, "newer"),
        ("d", 4, "four"),
    ]
    columns = ("id", "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")
    assert rows_in(store, piece, rule=EVENT_TIME, columns=columns)[1:] == [
        ("b", SECOND, f"{SECOND}_2_0", GROUP),
        ("d", SECOND, f"{SECOND}_2_1", GROUP),
    ]


def test_log_file_is_described_as_in_hudi(store: MemoryStore) -> None:
    base = created(store)
    log = append_log(
        store,
        context(SECOND),
        slice_of(base),
        slot=2,
        rows=incoming([("b", 9, "x")]),
        deletes=keys("c"),
    )
    name = f".{GROUP}_{SECOND}.log.1_2-0-0"
    stat, size = log.stat, len(body(store, log))
    assert (stat.path, stat.log_files) == (f"p/{name}", (name,))
    assert f"p/{stat.base_file}" == base.stat.path
    assert (stat.prev_commit, stat.log_version, stat.log_offset) == (SECOND, 1, 0)
    assert (stat.num_writes, stat.num_update_writes, stat.num_deletes) == (1, 1, 1)
    assert (stat.file_size_in_bytes, stat.total_write_bytes) == (size, size)
    assert (log.kind, log.min_key, log.max_key) == (FileKind.APPENDED, "b", "c")


def test_rows_of_many_blocks_are_one_log_file(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelock.execution.filegroup.log_files.BLOCK_ROWS_BYTES", 1_000)
    rows = [(f"k{i:03}", i, "name") for i in range(100)]
    group = FileSlice("p", GROUP, FIRST, None)
    log = append_log(store, context(FIRST), group, slot=0, rows=incoming(rows))
    assert body(store, log).count(b"#HUDI#") > 3
    assert rows_in(store, slice_of(log)) == rows


def test_compaction_keeps_the_commit_of_every_row(store: MemoryStore) -> None:
    base = created(store)
    log = append_log(
        store, context(SECOND), slice_of(base), slot=0, rows=incoming([("b", 9, "newer")])
    )
    result = rewrite_base(store, context(THIRD), slice_of(base, log), slot=0)
    columns = ("id", "name", "_hoodie_commit_time")
    assert rows_in(store, slice_of(result), columns=columns) == [
        ("a", "one", FIRST),
        ("b", "newer", SECOND),
        ("c", "three", FIRST),
    ]
    stat = result.stat
    assert (stat.num_writes, stat.prev_commit) == (3, FIRST)
    assert (stat.total_log_records, stat.total_log_blocks, stat.total_log_files_compacted) == (
        1,
        1,
        1,
    )
    assert stat.total_log_size_compacted == log.stat.file_size_in_bytes
    assert result.replaced_base == file_of(base).name


# Custom merger


class Sum:
    """Sums `ts`, and deletes rows whose sum is zero."""

    columns = ("ts",)

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Return the sums."""
        total = pc.add(older.column("ts"), newer.column("ts"))
        index = newer.column_names.index("ts")
        return newer.set_column(index, "ts", total).filter(pc.not_equal(total, 0))


def test_custom_merger_is_called_and_counted(store: MemoryStore) -> None:
    rule = MergeRule(MergeMode.CUSTOM, merger=Sum())
    piece = slice_of(created(store))
    rows = incoming([("a", 10, "x"), ("b", -2, "y"), ("d", 4, "z")])
    ctx = context(SECOND, rule=rule)
    result = merge_base(store, ctx, piece, slot=0, rows=rows, deletes=keys("c"))
    found = rows_in(store, slice_of(result), columns=("id", "ts", "_hoodie_commit_time"))
    assert found == [("a", 11, SECOND), ("d", 4, SECOND)]
    stat = result.stat
    assert (stat.num_update_writes, stat.num_inserts, stat.num_deletes) == (1, 1, 2)
