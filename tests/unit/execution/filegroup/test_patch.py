"""Upserts into a large file encode only changed columns, and copy the rest."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.execution.filegroup.writing import EVENT_TIME, context, file_of, slice_of
from tidelock.execution.filegroup import write
from tidelock.execution.filegroup.context import BloomSettings, FileResult, WriteContext
from tidelock.execution.filegroup.log_files import append_log
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.filegroup.write import create_base, merge_base, rewrite_base
from tidelock.hudi.bloom_filter import FOOTER_FILTER, decode_filter
from tidelock.hudi.file_groups import FileSlice, LogFile
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY, with_meta
from tidelock.storage.contract import ObjectStore
from tidelock.storage.memory import MemoryStore

ROWS = 12_000
PLAIN = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("text", pa.string()),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
SCHEMA = with_meta(PLAIN)
Row = dict[str, Any]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(scope="module")
def stored() -> list[Row]:
    chance = random.Random(3)
    return [
        {
            "id": f"k{number:06}",
            "ts": 100,
            "text": f"{chance.getrandbits(256):x}" if number % 7 else None,
            "city": f"city-{number % 20}",
            "price": 0.0 if number % 5 else None,
            "tags": ["a", None] if number % 3 else None,
        }
        for number in range(ROWS)
    ]


def incoming(rows: list[Row]) -> pa.Table:
    table = pa.Table.from_pylist(rows, schema=PLAIN)
    table = table.append_column(RECORD_KEY, table.column("id"))
    return table.append_column(PARTITION_PATH, pa.array(["p"] * len(rows), pa.string()))


def ctx(number: int, rule: MergeRule | None = None, **settings: Any) -> WriteContext:
    return context(f"2026010100000000{number}", schema=SCHEMA, rule=rule or MergeRule(), **settings)


def base_slice(store: ObjectStore, rows: list[Row], **settings: Any) -> FileSlice:
    (result,) = create_base(
        store, ctx(1, **settings), partition="p", file_id="f-0", slot=0, rows=[incoming(rows)]
    )
    return slice_of(result)


def upserted(
    store: ObjectStore, piece: FileSlice, rows: list[Row], number: int = 2, **options: Any
) -> FileResult:
    return merge_base(store, ctx(number, **options), piece, slot=0, rows=incoming(rows))


def opened(store: ObjectStore, piece: FileSlice) -> pq.ParquetFile:
    assert piece.base is not None
    found = store.get(piece.base.key)
    assert found is not None
    return pq.ParquetFile(pa.BufferReader(found.body))


def read(store: ObjectStore, piece: FileSlice) -> dict[str, Row]:
    rows = opened(store, piece).read().to_pylist()
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def expected(before: list[Row], changes: list[Row]) -> dict[str, Row]:
    return {row["id"]: row for row in [*before, *changes]}


def users(found: dict[str, Row]) -> dict[str, Row]:
    return {key: {name: row[name] for name in PLAIN.names} for key, row in found.items()}


def chunk(store: ObjectStore, piece: FileSlice, name: str) -> bytes:
    """Return the bytes of a column in the first row group."""
    assert piece.base is not None
    found = store.get(piece.base.key)
    assert found is not None
    group = pq.ParquetFile(pa.BufferReader(found.body)).metadata.row_group(0)
    (index,) = [n for n in range(group.num_columns) if group.column(n).path_in_schema == name]
    column = group.column(index)
    start = column.dictionary_page_offset or column.data_page_offset
    return found.body[start : start + column.total_compressed_size]


def undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a file is decoded and encoded as a whole from here on."""
    monkeypatch.setattr(write, "read_stored_slice", None)


def test_unchanged_columns_are_copied_and_others_have_the_new_values(
    store: MemoryStore, stored: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = base_slice(store, stored)
    undecoded(monkeypatch)
    changes = [{**stored[number], "city": f"moved-{number}"} for number in range(5, ROWS, 100)]
    after = slice_of(upserted(store, piece, changes))
    assert users(read(store, after)) == expected(stored, changes)
    for name in ("text", "price", "id", RECORD_KEY):
        assert chunk(store, after, name) == chunk(store, piece, name)
    assert chunk(store, after, "city") != chunk(store, piece, "city")


def test_rows_keep_their_positions_and_record_their_commit(
    store: MemoryStore, stored: list[Row]
) -> None:
    piece = base_slice(store, stored)
    after = slice_of(upserted(store, piece, [{**stored[9], "ts": 101}]))
    rows = opened(store, after).read().to_pylist()
    assert [row["id"] for row in rows] == [row["id"] for row in stored]
    assert {rows[9]["_hoodie_commit_time"], rows[8]["_hoodie_commit_time"]} == {
        "20260101000000002",
        "20260101000000001",
    }
    assert after.base is not None
    assert {row["_hoodie_file_name"] for row in rows} == {after.base.name}
    assert len({row["_hoodie_commit_seqno"] for row in rows}) == ROWS


def test_inserts_are_appended_as_a_row_group_and_counted(
    store: MemoryStore, stored: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = base_slice(store, stored, bloom=BloomSettings(ROWS, 0.001, 2 * ROWS))
    undecoded(monkeypatch)
    fresh = [{**stored[0], "id": "a"}, {**stored[0], "id": "z"}]
    changes = [*fresh, {**stored[4], "ts": 7}]
    result = upserted(store, piece, changes, bloom=BloomSettings(ROWS, 0.001, 2 * ROWS))
    after = slice_of(result)
    file = opened(store, after)
    assert users(read(store, after)) == expected(stored, changes)
    assert (file.num_row_groups, result.stat.num_inserts, result.stat.num_update_writes) == (
        2, 2, 1,
    )  # fmt: skip
    assert (result.min_key, result.max_key) == ("a", "z")
    assert result.written_keys == ("a", "z")
    filter_ = decode_filter(file.metadata.metadata[FOOTER_FILTER.encode()].decode(), where="it")
    assert filter_.might_contain(pa.array(["a", "z", "k000000"])).to_pylist() == [True] * 3


def test_many_upserts_do_not_create_many_row_groups(store: MemoryStore, stored: list[Row]) -> None:
    piece, known = base_slice(store, stored), expected(stored, [])
    for number in range(2, 9):
        fresh = [{**stored[0], "id": f"new-{number}-{n}"} for n in range(50)]
        changes = [*fresh, {**stored[number], "price": 1.5}, *list(known.values())[-1:]]
        known |= {row["id"]: row for row in changes}
        piece = slice_of(upserted(store, piece, changes, number))
        assert opened(store, piece).num_row_groups == 2
    assert users(read(store, piece)) == known


def test_change_with_an_older_event_time_changes_nothing(
    store: MemoryStore, stored: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = base_slice(store, stored, rule=EVENT_TIME)
    undecoded(monkeypatch)
    older, newer = {**stored[1], "ts": 99, "city": "old"}, {**stored[2], "ts": 101, "city": "new"}
    result = upserted(store, piece, [older, newer], rule=EVENT_TIME)
    assert users(read(store, slice_of(result))) == expected(stored, [newer])
    assert result.stat.num_update_writes == 1


def test_nulls_signed_zeros_and_partial_lists_are_distinguished(
    store: MemoryStore, stored: list[Row]
) -> None:
    piece = base_slice(store, stored)
    changes = [
        {**stored[1], "price": -0.0},
        {**stored[2], "price": None, "text": None},
        {**stored[3], "tags": ["b"]},
        {**stored[4], "tags": []},
    ]
    found = read(store, slice_of(upserted(store, piece, changes)))
    assert math.copysign(1, found["k000001"]["price"]) == -1
    assert users(found) == expected(stored, changes)


def test_compaction_keeps_the_commit_of_each_row_and_copies_unchanged_columns(
    store: MemoryStore, stored: list[Row]
) -> None:
    piece = base_slice(store, stored)
    changes = [{**stored[7], "city": "x"}, {**stored[0], "id": "new"}]
    file = file_of(append_log(store, ctx(2), piece, slot=0, rows=incoming(changes)))
    assert isinstance(file, LogFile)
    after = slice_of(rewrite_base(store, ctx(3), replace(piece, logs=(file,)), slot=0))
    found = read(store, after)
    assert users(found) == expected(stored, changes)
    assert {found[key]["_hoodie_commit_time"][-1] for key in ("k000007", "new")} == {"2"}
    assert found["k000008"]["_hoodie_commit_time"][-1] == "1"
    assert chunk(store, after, "text") == chunk(store, piece, "text")


def test_compaction_removes_deleted_rows(store: MemoryStore, stored: list[Row]) -> None:
    base = base_slice(store, stored)
    log = append_log(store, ctx(2), base, slot=0, rows=None, deletes=pa.array(["k000003"]))
    file = file_of(log)
    assert isinstance(file, LogFile)
    after = slice_of(rewrite_base(store, ctx(3), replace(base, logs=(file,)), slot=0))
    assert set(read(store, after)) == {row["id"] for row in stored} - {"k000003"}


def test_delete_removes_the_row(store: MemoryStore, stored: list[Row]) -> None:
    piece = base_slice(store, stored)
    result = merge_base(
        store,
        ctx(2),
        piece,
        slot=0,
        rows=incoming([{**stored[1], "city": "x"}]),
        deletes=pa.array(["k000000"]),
    )
    found = read(store, slice_of(result))
    assert len(found) == ROWS - 1
    assert (found["k000001"]["city"], "k000000" in found) == ("x", False)


def test_duplicate_key_is_stored_once_after_an_update(
    store: MemoryStore, stored: list[Row]
) -> None:
    piece = base_slice(store, [*stored, stored[0]])
    found = read(store, slice_of(upserted(store, piece, [{**stored[0], "city": "x"}])))
    assert (len(found), found["k000000"]["city"]) == (ROWS, "x")


def test_file_with_other_columns_is_encoded_as_a_whole(
    store: MemoryStore, stored: list[Row]
) -> None:
    piece = base_slice(store, stored)
    wider = with_meta(pa.schema([*PLAIN, pa.field("more", pa.int32())]))
    rows = incoming([stored[0]]).append_column("more", pa.array([5], pa.int32()))
    result = merge_base(store, context("20260101000000002", schema=wider), piece, slot=0, rows=rows)
    found = read(store, slice_of(result))
    assert (found["k000000"]["more"], found["k000001"]["more"], len(found)) == (5, None, ROWS)


def test_repeated_upsert_finds_its_file(store: MemoryStore, stored: list[Row]) -> None:
    piece = base_slice(store, stored)
    first = upserted(store, piece, [{**stored[0], "city": "x"}])
    again = upserted(store, piece, [{**stored[0], "city": "x"}])
    assert file_of(first) == file_of(again)
