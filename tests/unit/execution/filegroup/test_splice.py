"""Row groups are copied completely, without decoding."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.execution.filegroup.writing import context, file_of, incoming, rows_in, slice_of
from tidelock.core.errors import DataCorrupt
from tidelock.execution.filegroup import clustering
from tidelock.execution.filegroup.clustering import cluster_base, movable_footer
from tidelock.execution.filegroup.context import BloomSettings, FileResult, WriteContext
from tidelock.execution.filegroup.log_files import append_log
from tidelock.execution.filegroup.write import create_base
from tidelock.hudi.bloom_filter import FOOTER_FILTER, decode_filter
from tidelock.hudi.file_groups import BaseFile, FileSlice
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY, with_meta
from tidelock.storage.contract import Create, ObjectStore
from tidelock.storage.memory import MemoryStore

COPIED = ("id", "ts", "name", "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key")
CLUSTERED = "20260101000000009"
FEW = BloomSettings(entries=100, rate=0.001, entries_max=200)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def base_slice(store: ObjectStore, number: int, size: int = 20, **settings: Any) -> FileSlice:
    """Return a file group whose base file has `size` rows in several row groups."""
    rows = incoming([(f"k{number}-{i:03}", i, f"n{i}" if i % 3 else None) for i in range(size)])  # type: ignore[misc]
    ctx = context(f"2026010100000000{number}", row_group_bytes=600, **settings)
    (result,) = create_base(
        store, ctx, partition="p", file_id=f"{number}aaa-0", slot=0, rows=[rows]
    )
    return slice_of(result)


def clustered(
    store: ObjectStore, pieces: list[FileSlice], ctx: WriteContext | None = None
) -> tuple[FileResult, ...]:
    return cluster_base(
        store, ctx or context(CLUSTERED), pieces, file_id="eeee-0", slot=0, group_bytes_min=0
    )


def opened(store: ObjectStore, result: FileResult) -> pq.ParquetFile:
    found = store.get(file_of(result).key)
    assert found is not None
    return pq.ParquetFile(pa.BufferReader(found.body))


def undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a row is decoded from here on."""
    monkeypatch.setattr(clustering, "read_stored_slice", None)


def test_all_rows_are_copied_without_decoding(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [base_slice(store, number) for number in (1, 2, 3)]
    before = [row for piece in pieces for row in rows_in(store, piece, columns=COPIED)]
    groups = sum(pq.ParquetFile(_body(store, piece.base)).num_row_groups for piece in pieces)
    undecoded(monkeypatch)
    (result,) = clustered(store, pieces)
    assert rows_in(store, slice_of(result), columns=COPIED) == sorted(before)
    file = opened(store, result)
    assert file.num_row_groups == groups > 3
    assert set(file.read().column("_hoodie_file_name").to_pylist()) == {file_of(result).name}
    assert file.metadata.metadata[b"hoodie_min_record_key"] == b"k1-000"
    assert file.metadata.metadata[b"hoodie_max_record_key"] == b"k3-019"
    assert (result.min_key, result.max_key) == ("k1-000", "k3-019")
    assert (result.stat.num_writes, result.stat.num_inserts) == (60, 60)


def test_row_group_statistics_stay_correct(store: MemoryStore) -> None:
    (result,) = clustered(store, [base_slice(store, number) for number in (1, 2)])
    file = opened(store, result)
    indexes = {file.schema.column(i).path: i for i in range(len(file.schema))}
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        rows = file.read_row_group(number)
        for name in ("ts", "name", "_hoodie_file_name", RECORD_KEY):
            values = [value for value in rows.column(name).to_pylist() if value is not None]
            found = group.column(indexes[name]).statistics
            assert (found.min, found.max) == (min(values), max(values))
        assert group.total_byte_size == sum(
            group.column(i).total_uncompressed_size for i in range(group.num_columns)
        )


def test_full_files_end_between_row_groups(store: MemoryStore) -> None:
    pieces = [base_slice(store, number) for number in (1, 2, 3)]
    before = sorted(row for piece in pieces for row in rows_in(store, piece, columns=COPIED))
    assert pieces[0].base is not None
    limit = pieces[0].base.size_bytes // 2
    results = clustered(store, pieces, context(CLUSTERED, file_bytes_max=limit))
    assert len(results) > 2
    assert [result.file_id for result in results] == [f"eeee-{i}" for i in range(len(results))]
    after = [row for result in results for row in rows_in(store, slice_of(result), columns=COPIED)]
    assert sorted(after) == before


def test_rows_of_log_files_and_small_row_groups_join_the_same_file(store: MemoryStore) -> None:
    one, two, three = (base_slice(store, number) for number in (1, 2, 3))
    log = append_log(
        store, context("20260101000000007"), two, slot=0, rows=incoming([("k2-000", 99, "Z")])
    )
    found = file_of(log)
    assert not isinstance(found, BaseFile)
    two = FileSlice("p", two.file_id, two.instant, two.base, (found,))
    pieces = [one, two, three]
    before = sorted(str(row) for piece in pieces for row in rows_in(store, piece, columns=COPIED))
    (result,) = clustered(store, pieces)
    assert sorted(str(row) for row in rows_in(store, slice_of(result), columns=COPIED)) == before
    assert (result.min_key, result.max_key) == ("k1-000", "k3-019")
    assert set(opened(store, result).read().column("_hoodie_file_name").to_pylist()) == {
        file_of(result).name
    }


def test_file_with_small_row_groups_is_decoded(store: MemoryStore) -> None:
    pieces = [base_slice(store, number) for number in (1, 2)]
    ctx = context(CLUSTERED)
    (result,) = cluster_base(store, ctx, pieces, file_id="eeee-0", slot=0)
    assert opened(store, result).num_row_groups == 1


def test_bloom_filters_are_combined(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [base_slice(store, number, 90, bloom=FEW) for number in (1, 2, 3)]
    keys = [row[-1] for piece in pieces for row in rows_in(store, piece, columns=COPIED)]
    undecoded(monkeypatch)
    (result,) = clustered(store, pieces, context(CLUSTERED, bloom=FEW))
    text = opened(store, result).metadata.metadata[FOOTER_FILTER.encode()].decode()
    bloom = decode_filter(text, where="x")
    assert all(bloom.might_contain(pa.array(keys)).to_pylist())
    assert len(bloom.rows) == 2
    strangers = bloom.might_contain(pa.array([f"other{i}" for i in range(1000)]))
    assert sum(strangers.to_pylist()) < 100


def test_file_without_the_configured_bloom_filter_is_decoded(store: MemoryStore) -> None:
    pieces = [base_slice(store, 1), base_slice(store, 2, bloom=FEW)]
    (result,) = clustered(store, pieces, context(CLUSTERED, bloom=FEW))
    text = opened(store, result).metadata.metadata[FOOTER_FILTER.encode()].decode()
    keys = [row[-1] for row in rows_in(store, slice_of(result), columns=COPIED)]
    assert all(decode_filter(text, where="x").might_contain(pa.array(keys)).to_pylist())


WIDE = with_meta(
    pa.schema(
        [
            ("id", pa.string()),
            ("amount", pa.decimal128(12, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("good", pa.bool_()),
            ("raw", pa.binary()),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ]
    )
)


def wide(number: int, size: int) -> pa.Table:
    ids = [f"{number}-{i}" for i in range(size)]
    rows = [
        {
            RECORD_KEY: key,
            PARTITION_PATH: "p",
            "id": key,
            "amount": Decimal(i) / 4,
            "at": i * 1_000_001,
            "good": None if i % 5 == 0 else bool(i % 2),
            "raw": bytes([i % 256]) * (i % 4),
            "tags": None if i % 7 == 0 else [f"t{i}", None][: i % 3],
            "counts": {"n": i} if i % 3 else None,
            "place": {"city": f"Ü{i}", "zip": None} if i % 4 else None,
        }
        for i, key in enumerate(ids)
    ]
    fields = [pa.field(RECORD_KEY, pa.string()), pa.field(PARTITION_PATH, pa.string())]
    return pa.Table.from_pylist(rows, schema=pa.schema([*fields, *list(WIDE)[5:]]))


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "none"])
def test_columns_of_every_kind_are_copied(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    pieces, before = [], []
    for number in (1, 2):
        ctx = context(
            f"2026010100000000{number}", schema=WIDE, compression=codec, row_group_bytes=4_000
        )
        (result,) = create_base(
            store, ctx, partition="p", file_id=f"{number}bbb-0", slot=0, rows=[wide(number, 90)]
        )
        pieces.append(slice_of(result))
        before.append(opened(store, result).read().drop_columns(["_hoodie_file_name"]))
    undecoded(monkeypatch)
    # The next writer may compress its own columns in another way.
    (result,) = clustered(store, pieces, context(CLUSTERED, schema=WIDE, compression="snappy"))
    after = opened(store, result).read().drop_columns(["_hoodie_file_name"])
    assert after.equals(pa.concat_tables(before))


def rewritten(store: MemoryStore, piece: FileSlice, **how: Any) -> FileSlice:
    """Return the slice with its base file rewritten as by another writer."""
    assert piece.base is not None
    file = pq.ParquetFile(_body(store, piece.base))
    pairs = file.metadata.metadata or {}
    sink = pa.BufferOutputStream()
    rows = file.read()
    change = how.pop("change", None)
    rows = rows if change is None else change(rows)
    with pq.ParquetWriter(sink, rows.schema, store_schema=False, **how) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(
            {key.decode(): value.decode() for key, value in pairs.items() if b"hoodie" in key}
        )
    body = sink.getvalue().to_pybytes()
    store.delete(piece.base.key)
    store.put(piece.base.key, body, Create())
    base = replace(piece.base, size_bytes=len(body))
    return FileSlice(piece.partition, piece.file_id, piece.instant, base)


def _body(store: ObjectStore, base: BaseFile | None) -> pa.BufferReader:
    assert base is not None
    found = store.get(base.key)
    assert found is not None
    return pa.BufferReader(found.body)


def is_movable(store: MemoryStore, piece: FileSlice) -> bool:
    ctx = context(CLUSTERED)
    return movable_footer(store, ctx, piece, group_bytes_min=0) is not None


def test_page_indexes_are_not_copied(store: MemoryStore) -> None:
    piece = rewritten(store, base_slice(store, 1), write_page_index=True)
    before = rows_in(store, piece, columns=COPIED)
    assert is_movable(store, piece)
    (result,) = clustered(store, [piece])
    column = opened(store, result).metadata.row_group(0).column(0)
    assert not column.has_column_index
    assert not column.has_offset_index
    assert rows_in(store, slice_of(result), columns=COPIED) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.drop_columns(["name"]),
        lambda rows: rows.append_column("more", pa.nulls(rows.num_rows, pa.int32())),
        lambda rows: rows.set_column(6, "ts", rows.column("ts").cast(pa.int32())),
        lambda rows: rows.select([*rows.column_names[:5], "name", "ts", "id"]),
        lambda rows: rows.cast(
            pa.schema(
                [
                    field.with_nullable(False) if field.name == "id" else field
                    for field in rows.schema
                ]
            )
        ),
    ],
    ids=["one column less", "one more", "a narrower one", "another order", "one not null"],
)
def test_file_with_other_columns_is_decoded(store: MemoryStore, change: Any) -> None:
    assert not is_movable(store, rewritten(store, base_slice(store, 1), change=change))


def test_file_without_key_bounds_is_decoded(store: MemoryStore) -> None:
    piece = rewritten(store, base_slice(store, 1), change=lambda rows: rows)
    assert piece.base is not None
    rows = pq.ParquetFile(_body(store, piece.base)).read()
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, store_schema=False)
    body = sink.getvalue().to_pybytes()
    store.delete(piece.base.key)
    store.put(piece.base.key, body, Create())
    bare = replace(piece.base, size_bytes=len(body))
    assert not is_movable(store, FileSlice("p", piece.file_id, piece.instant, bare))


@pytest.mark.parametrize("created_by", [b"parquet-mr version 1.8.1", b"", b"somebody else"])
def test_file_of_a_writer_with_known_bugs_is_decoded(store: MemoryStore, created_by: bytes) -> None:
    piece = base_slice(store, 1)
    assert piece.base is not None
    ours = pq.ParquetFile(_body(store, piece.base)).metadata.created_by.encode()
    found = store.get(piece.base.key)
    assert found is not None
    body = found.body.replace(ours, created_by.ljust(len(ours)))
    assert len(body) == len(found.body)
    store.delete(piece.base.key)
    store.put(piece.base.key, body, Create())
    assert not is_movable(store, piece)


def test_truncated_file_is_rejected(store: MemoryStore) -> None:
    piece = base_slice(store, 1)
    assert piece.base is not None
    found = store.get(piece.base.key)
    assert found is not None
    torn = found.body[:100] + found.body[-8:]
    store.delete(piece.base.key)
    store.put(piece.base.key, torn, Create())
    base = replace(piece.base, size_bytes=len(torn))
    with pytest.raises(DataCorrupt, match="exceeds the file"):
        is_movable(store, FileSlice("p", piece.file_id, piece.instant, base))
