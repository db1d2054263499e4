"""Writes file groups to a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from testkit.slices import read_slice
from tests.unit.execution.filegroup.slices import SCHEMA, Row
from tidelock.execution.filegroup.context import FileResult, FileSettings, WriteContext
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.hudi.file_groups import BaseFile, FileSlice, LogFile, data_file
from tidelock.hudi.properties import MergeMode
from tidelock.hudi.schema import (
    PARTITION_PATH,
    RECORD_KEY,
    avro_schema,
    render_schema,
    without_meta,
)
from tidelock.storage.contract import ObjectStore

EVENT_TIME = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts",))
COMMIT_TIME = MergeRule()
GROUP = "0a1b2c-0"


def context(
    instant: str,
    *,
    schema: pa.Schema = SCHEMA,
    rule: MergeRule = COMMIT_TIME,
    attempt: int = 0,
    markers: bool = False,
    **settings: Any,
) -> WriteContext:
    """Return the context of a write at `instant`."""
    avro = render_schema(avro_schema(without_meta(schema), table="t"))
    return WriteContext(
        instant, attempt, schema, avro, rule, FileSettings(**settings), markers=markers
    )


def incoming(values: Sequence[Row], partition: str = "p") -> pa.Table:
    """Return rows (id, ts, name) as a write receives them."""
    return pa.table(
        {
            RECORD_KEY: pa.array([key for key, _, _ in values], pa.string()),
            PARTITION_PATH: pa.array([partition] * len(values), pa.string()),
            "id": pa.array([key for key, _, _ in values], pa.string()),
            "ts": pa.array([ts for _, ts, _ in values], pa.int64()),
            "name": pa.array([name for _, _, name in values], pa.string()),
        }
    )


def keys(*names: str) -> pa.Array:
    """Return keys to delete."""
    return pa.array(names, pa.string())


def file_of(result: FileResult) -> BaseFile | LogFile:
    """Return the file of a result."""
    path, size = result.stat.path, result.stat.file_size_in_bytes
    assert path is not None
    assert size is not None
    found = data_file(result.partition, path.rpartition("/")[2], size)
    assert found is not None
    return found


def slice_of(*results: FileResult) -> FileSlice:
    """Return the slice of an optional base file and log files in order."""
    files = [file_of(result) for result in results]
    base = next((file for file in files if isinstance(file, BaseFile)), None)
    logs = tuple(file for file in files if isinstance(file, LogFile))
    first = results[0]
    return FileSlice(first.partition, first.file_id, files[0].instant, base, logs)


def rows_in(
    store: ObjectStore,
    piece: FileSlice,
    *,
    rule: MergeRule = COMMIT_TIME,
    columns: Sequence[str] = ("id", "ts", "name"),
) -> list[tuple[Any, ...]]:
    """Return the rows of a slice, sorted by id."""
    table = read_slice(store, piece, SCHEMA, rule=rule, columns=columns)
    return sorted(tuple(row.values()) for row in table.to_pylist())
