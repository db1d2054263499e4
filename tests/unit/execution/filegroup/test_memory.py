"""Memory use of a merge does not grow with the file group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.merge_memory import FIRST, SECOND, context, rows_at
from tests.unit.execution.filegroup.writing import slice_of
from tidelock.execution.filegroup import read
from tidelock.execution.filegroup.context import FileSettings, WriteContext
from tidelock.execution.filegroup.write import create_base, merge_base
from tidelock.storage.local import LocalStore

MB = 2**20


def small(instant: str) -> WriteContext:
    """Return the context of a write with small row groups."""
    made = context(instant)
    settings = FileSettings(file_bytes_max=None, row_group_bytes=2 * MB)
    return WriteContext(instant, 0, made.schema, made.avro_schema, settings=settings, markers=False)


def test_merge_buffers_a_few_batches_of_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "BATCH_BYTES", MB)
    monkeypatch.setattr(read, "_FETCH_BYTES", MB)
    store = LocalStore(tmp_path, fsync=False)
    batches = [
        rows_at(np.arange(start, start + 20_000), start) for start in range(0, 200_000, 20_000)
    ]
    whole_bytes = sum(batch.nbytes for batch in batches)
    (first,) = create_base(
        store, small(FIRST), partition="p", file_id="large-0", slot=0, rows=iter(batches)
    )
    del batches
    changes = rows_at(np.arange(0, 200_000, 1_000), 7)
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counting)
    try:
        result = merge_base(store, small(SECOND), slice_of(first), slot=0, rows=changes)
    finally:
        pa.set_memory_pool(usual)
    assert result.stat.num_writes == 200_000
    assert whole_bytes > 30 * MB
    assert MB < counting.max_memory() < 12 * MB
