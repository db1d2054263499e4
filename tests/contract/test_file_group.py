"""A file group is written and read on every store, in one request and in many parts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from testkit.slices import read_slice
from tests.unit.execution.filegroup.writing import context, keys, slice_of
from tidelock.core.limits import UPLOAD_PART_BYTES
from tidelock.execution.filegroup.context import LogFormat
from tidelock.execution.filegroup.log_files import append_log
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.filegroup.write import create_base, merge_base, rewrite_base
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY, with_meta
from tidelock.storage.contract import ObjectStore

SCHEMA = with_meta(pa.schema([("id", pa.string()), ("x", pa.float64()), ("y", pa.float64())]))
GROUP = "0a1b2c-0"


def rows_at(places: np.ndarray, seed: int) -> pa.Table:
    """Return incompressible rows with these numbers."""
    drawn = np.random.default_rng(seed)
    names = pa.array(np.char.add("k", np.char.zfill(places.astype("U"), 9)))
    return pa.table(
        {
            RECORD_KEY: names,
            PARTITION_PATH: pa.repeat(pa.scalar("p"), len(places)),
            "id": names,
            "x": pa.array(drawn.random(len(places))),
            "y": pa.array(drawn.random(len(places))),
        }
    )


def contents(store: ObjectStore, piece: FileSlice) -> pa.Table:
    """Return the keys and values of a slice, in key order."""
    found = read_slice(store, piece, SCHEMA, rule=MergeRule(), columns=["id", "x"])
    return found.sort_by("id").combine_chunks()


@pytest.mark.parametrize("count", [100, 500_000], ids=["small", "large"])
def test_group_is_created_merged_appended_to_and_compacted(store: ObjectStore, count: int) -> None:
    first, second = rows_at(np.arange(count), 1), rows_at(np.arange(0, count, 10), 2)
    (created,) = create_base(
        store,
        context("1", schema=SCHEMA, file_bytes_max=None, row_group_bytes=8 << 20),
        partition="p",
        file_id=GROUP,
        slot=0,
        rows=[first],
    )
    piece = slice_of(created)
    if count > 100:
        assert (created.stat.file_size_in_bytes or 0) > UPLOAD_PART_BYTES
    assert contents(store, piece).equals(first.select(["id", "x"]))

    values = first.column("x").to_numpy().copy()
    values[::10] = second.column("x").to_numpy()
    expected = pa.table({"id": first.column("id"), "x": values})
    expected = pa.concat_tables([expected.slice(0, 1), expected.slice(2)]).combine_chunks()
    gone = keys("k000000001")
    ctx = context("2", schema=SCHEMA, markers=True, log_format=LogFormat.AVRO)
    merged = merge_base(store, ctx, piece, slot=0, rows=second, deletes=gone)
    assert merged.stat.num_update_writes == second.num_rows
    assert contents(store, slice_of(merged)).equals(expected)
    assert merge_base(store, ctx, piece, slot=0, rows=second, deletes=gone) == merged

    log = append_log(store, ctx, piece, slot=0, rows=second, deletes=gone)
    assert contents(store, slice_of(created, log)).equals(expected)
    ctx = context("3", schema=SCHEMA)
    compacted = rewrite_base(store, ctx, slice_of(created, log), slot=0)
    assert contents(store, slice_of(compacted)).equals(expected)
