"""Key lookup finds keys, and reads no more than needed."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.execution.filegroup.slices import SCHEMA
from tidelock.core.errors import Unsupported
from tidelock.execution.filegroup import read
from tidelock.execution.filegroup.context import BloomSettings, FileSettings, WriteContext
from tidelock.execution.filegroup.key_lookup import (
    BucketRule,
    IndexKind,
    bucket_groups,
    find_keys,
    key_range,
    read_slice_keys,
)
from tidelock.execution.filegroup.log_files import append_log
from tidelock.execution.filegroup.write import create_base
from tidelock.hudi.bucket_index import fixed_file_id
from tidelock.hudi.file_groups import BaseFile, FileSlice, data_file
from tidelock.hudi.schema import (
    PARTITION_PATH,
    RECORD_KEY,
    avro_schema,
    render_schema,
    with_meta,
    without_meta,
)
from tidelock.storage.memory import MemoryStore

USER = without_meta(SCHEMA)
CONTEXT = WriteContext(
    "20260101000000000",
    1,
    with_meta(USER),
    render_schema(avro_schema(USER, table="t")),
    settings=FileSettings(bloom=BloomSettings(entries=1_000, rate=0.001)),
)


def rows(keys: list[str]) -> pa.Table:
    lead = pa.table({RECORD_KEY: keys, PARTITION_PATH: [""] * len(keys)})
    for field in USER:
        lead = lead.append_column(field, pa.nulls(len(keys), field.type))
    return lead


def written(store: MemoryStore, keys: list[str]) -> FileSlice:
    (made,) = create_base(store, CONTEXT, partition="", file_id="f-0", slot=0, rows=[rows(keys)])
    file = data_file("", made.stat.path or "", made.stat.file_size_in_bytes or 0)
    assert isinstance(file, BaseFile)
    return FileSlice("", "f-0", file.instant, file)


@pytest.mark.parametrize("kind", [IndexKind.SIMPLE, IndexKind.BLOOM])
def test_keys_of_a_base_file_are_found_by_position(kind: IndexKind) -> None:
    store = MemoryStore()
    piece = written(store, [f"k{n}" for n in range(20)])
    requested = pa.array(["nobody", "k7", "zzz", "k19"])
    assert sorted(find_keys(store, piece, requested, kind).to_pylist()) == [1, 3]
    assert find_keys(store, piece, pa.array([], pa.string()), kind).to_pylist() == []


def test_filter_that_excludes_every_key_avoids_reading_the_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read, "SINGLE_GET_BYTES_MAX", 0)  # as if the file were a large one
    requested: list[str] = []
    store = MemoryStore(observe=requested.append)
    piece = written(store, [f"k{n}" for n in range(20)])
    requested.clear()
    assert find_keys(store, piece, pa.array(["k7x"]), IndexKind.BLOOM).to_pylist() == []
    by_filter = requested.count("get")
    requested.clear()
    find_keys(store, piece, pa.array(["k7x"]), IndexKind.SIMPLE)
    assert by_filter < requested.count("get")


def test_row_groups_outside_the_key_range_are_not_read() -> None:
    store = MemoryStore()
    sink = pa.BufferOutputStream()
    table = pa.table({RECORD_KEY: [f"k{n:02}" for n in range(40)]})
    pq.write_table(table, sink, row_group_size=10)
    body = sink.getvalue().to_pybytes()
    with store.upload("f-0_0-0-0_1.parquet") as upload:
        upload.write(body)
        upload.finish()
    file = data_file("", "f-0_0-0-0_1.parquet", len(body))
    assert isinstance(file, BaseFile)
    piece = FileSlice("", "f-0", "1", file)
    within = key_range(pa.array(["k15", "k21"]))
    found = [key for chunk in read_slice_keys(store, piece, within) for key in chunk.to_pylist()]
    assert found == [f"k{n}" for n in range(10, 30)]
    assert sum(len(chunk) for chunk in read_slice_keys(store, piece)) == 40


def test_group_without_a_base_file_has_the_keys_of_its_logs() -> None:
    store = MemoryStore()
    group = FileSlice("", "f-0", CONTEXT.instant, None)
    made = append_log(store, CONTEXT, group, slot=0, rows=rows(["a", "b"]))
    log = data_file("", made.stat.path or "", made.stat.file_size_in_bytes or 0)
    piece = FileSlice("", "f-0", CONTEXT.instant, None, (log,))  # type: ignore[arg-type]
    assert find_keys(store, piece, pa.array(["x", "b"]), IndexKind.SIMPLE).to_pylist() == [1]


def test_keys_of_a_base_file_and_its_logs_are_yielded_once() -> None:
    store = MemoryStore()
    base = written(store, ["a", "b"])
    made = append_log(store, CONTEXT, base, slot=1, rows=rows(["b", "c"]))
    log = data_file("", made.stat.path or "", made.stat.file_size_in_bytes or 0)
    piece = replace(base, logs=(log,))  # type: ignore[arg-type]
    for kind in (IndexKind.SIMPLE, IndexKind.BLOOM, IndexKind.BUCKET):
        requested = pa.array(["x", "c", "b", "a"])
        assert sorted(find_keys(store, piece, requested, kind).to_pylist()) == [1, 2, 3]
        found = [key for keys in read_slice_keys(store, piece) for key in keys.to_pylist()]
        assert sorted(found) == ["a", "b", "c"]


def test_base_file_without_keys_is_refused() -> None:
    store = MemoryStore()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ["a"]}), sink)
    body = sink.getvalue().to_pybytes()
    with store.upload("f-0_0-0-0_1.parquet") as upload:
        upload.write(body)
        upload.finish()
    file = BaseFile("", "f-0_0-0-0_1.parquet", "f-0", "0-0-0", "1", len(body))
    with pytest.raises(Unsupported, match="keys cannot be looked up"):
        find_keys(store, FileSlice("", "f-0", "1", file), pa.array(["a"]), IndexKind.SIMPLE)


def test_buckets_have_their_fixed_group_unless_another_is_known() -> None:
    rule = BucketRule(8, (), ("id",), {("p", 5): "00000005-else-0"})
    keyed = pa.table({RECORD_KEY: ["1", "TXN-001", "TXN-001"], PARTITION_PATH: ["p", "p", "q"]})
    assert bucket_groups(keyed, rule).to_pylist() == [
        fixed_file_id(0),
        "00000005-else-0",
        fixed_file_id(5),
    ]


def test_bucket_can_depend_on_some_fields_of_a_composite_key() -> None:
    keyed = pa.table(
        {RECORD_KEY: ["id:TXN-001,acc:A", "id:TXN-001,acc:B"], PARTITION_PATH: ["", ""]}
    )
    by_one = bucket_groups(keyed, BucketRule(8, ("id",), ("id", "acc")))
    assert by_one.to_pylist() == [fixed_file_id(5), fixed_file_id(5)]
    by_all = bucket_groups(keyed, BucketRule(8, (), ("id", "acc")))
    assert by_all[0] != by_all[1]
