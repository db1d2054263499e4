"""`spark.read.format("tidelock").load(uri)`: which rows, by Hudi's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidelock.base.errors import ConfigInvalid
from tidelock.engine.local import Scan
from tidelock.operation.frames import scan_frame
from tidelock.operation.query import changes_scan, snapshot_scan
from tidelock.operation.reads import snapshot_now
from tidelock.pipeline.datasource.options import (
    AS_OF,
    BEGIN,
    COLUMNS,
    END,
    INCREMENTAL_FORMAT,
    NATIVE,
    PARTITIONS,
    QueryType,
    query_type,
    split_path,
)
from tidelock.store.uri import open_store
from tidelock.table.snapshot import TableSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(
    spark: SparkSession,
    path: str | None,
    options: Mapping[str, object],
    *,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the rows of a table as a frame. `columns` are those of a schema that was given.

    The frame has Hudi's five meta columns in front, as Hudi's own data source gives them.

    Raises: `ConfigInvalid`, `NotFound`, `Unsupported`, `DataCorrupt`.
    """
    uri, others = split_path(options, path)
    store = open_store(uri, others)
    try:
        snapshot = snapshot_now(store)
        scan = asked_scan(snapshot, others, columns)
        native = bool(NATIVE.value(others))
        from tidelock.pipeline.datasource.merged import merged_frame

        return scan_frame(spark, snapshot, scan, others, native=native, merging=merged_frame)
    finally:
        store.close()


def asked_scan(
    snapshot: TableSnapshot, options: Mapping[str, object], columns: Sequence[str] | None = None
) -> Scan:
    """Return the scan that the options ask for. Raises: `ConfigInvalid`, `InvalidInput`."""
    chosen = columns or COLUMNS.value(options)
    whole = chosen is None
    kind = query_type(options)
    if kind is not QueryType.INCREMENTAL:
        return snapshot_scan(
            snapshot,
            columns=chosen,
            partitions=PARTITIONS.value(options),
            as_of=AS_OF.value(options),
            read_optimized=kind is QueryType.READ_OPTIMIZED,
            meta_columns=whole,
        )
    begin = BEGIN.value(options)
    if begin is None:
        raise ConfigInvalid(
            f"an incremental read needs {BEGIN.key}", hint="give 0 to read from the first write"
        )
    if INCREMENTAL_FORMAT.required(options) != "latest_state":
        raise ConfigInvalid(
            f"{INCREMENTAL_FORMAT.key} = {INCREMENTAL_FORMAT.value(options)} is not supported",
            hint="leave it out: rows come as they are at the end of the range",
        )
    if AS_OF.value(options) is not None:
        raise ConfigInvalid(f"{AS_OF.key} is for snapshots", hint=f"give {END.key} instead")
    end = END.value(options)
    first = _FIRST if set(begin) <= {"0"} else begin
    return changes_scan(snapshot, first, end, columns=chosen, meta_columns=whole)


_FIRST = "00010101000000000"
"""Hudi's users write 000 for the beginning of the timeline."""
