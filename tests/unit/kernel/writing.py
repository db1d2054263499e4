"""Writes made by hand into a store, for the tests of the kernel's writing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.unit.kernel.slices import SCHEMA, Row
from tidelock.kernel.context import FileSettings, WriteContext
from tidelock.kernel.merge import MergeRule
from tidelock.kernel.read import read_slice
from tidelock.kernel.results import FileResult
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile, FileSlice, LogFile
from tidelock.table.naming import data_file
from tidelock.table.properties import MergeMode
from tidelock.table.schema.avro import avro_schema, render_schema
from tidelock.table.schema.meta import PARTITION_PATH, RECORD_KEY, without_meta

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
    """Return rows (id, ts, name) as a write brings them."""
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
    """Return the file that a result is about."""
    path, size = result.stat.path, result.stat.file_size_in_bytes
    assert path is not None
    assert size is not None
    found = data_file(result.partition, path.rpartition("/")[2], size)
    assert found is not None
    return found


def slice_of(*results: FileResult) -> FileSlice:
    """Return the slice of a base file, if there is one, and log files in their order."""
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
    """Return the rows of a slice, in the order of their ids."""
    table = read_slice(store, piece, SCHEMA, rule=rule, columns=columns)
    return sorted(tuple(row.values()) for row in table.to_pylist())
