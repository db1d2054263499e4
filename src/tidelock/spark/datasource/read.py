"""`spark.read.format("tidelock").load(uri)`: snapshot, time travel and incremental reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from tidelock.core.errors import ConfigInvalid
from tidelock.execution.local.read import Scan
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.operations.query import changes_scan, snapshot_scan
from tidelock.operations.read import BEFORE_ALL, snapshot_now
from tidelock.operations.request import scan_frame
from tidelock.spark.options import (
    AS_OF,
    BEGIN,
    COLUMNS,
    END,
    INCREMENTAL_FORMAT,
    NATIVE,
    PARTITIONS,
    QUERY_TYPE,
    QueryType,
    split_path,
)
from tidelock.storage.uri import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(
    spark: SparkSession,
    path: str | None,
    options: Mapping[str, object],
    *,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the rows of a table as a frame; `columns` are those of a user-specified schema.

    The five meta columns come first, as in Hudi's own data source.

    Raises: `ConfigInvalid`, `NotFound`, `Unsupported`, `DataCorrupt`.
    """
    uri, others = split_path(options, path)
    from tidelock.spark.datasource.python_source import merged_frame

    with closing(open_store(uri, others)) as store:
        snapshot = snapshot_now(store)
        scan = requested_scan(snapshot, others, columns)
        native = bool(NATIVE.value(others))
        return scan_frame(spark, snapshot, scan, others, native=native, merging=merged_frame)


def requested_scan(
    snapshot: TableSnapshot, options: Mapping[str, object], columns: Sequence[str] | None = None
) -> Scan:
    """Return the scan that the options request. Raises: `ConfigInvalid`, `InvalidInput`."""
    columns = columns or COLUMNS.value(options)
    query = QUERY_TYPE.member(QueryType, options)
    if query is not QueryType.INCREMENTAL:
        return snapshot_scan(
            snapshot,
            columns=columns,
            partitions=PARTITIONS.value(options),
            as_of=AS_OF.value(options),
            read_optimized=query is QueryType.READ_OPTIMIZED,
            meta_columns=columns is None,
        )
    begin = BEGIN.value(options)
    if begin is None:
        raise ConfigInvalid(
            f"{BEGIN.key}: required for an incremental query",
            hint="set it to 0 to read from the first commit",
        )
    if INCREMENTAL_FORMAT.required(options) != "latest_state":
        raise ConfigInvalid(
            f"{INCREMENTAL_FORMAT.key}: expected 'latest_state', got"
            f" {INCREMENTAL_FORMAT.value(options)!r}",
            hint="remove the option; rows are returned as of the end of the range",
        )
    if AS_OF.value(options) is not None:
        raise ConfigInvalid(
            f"{AS_OF.key}: not allowed for an incremental query", hint=f"set {END.key} instead"
        )
    return changes_scan(
        snapshot,
        begin_time(begin),
        END.value(options),
        columns=columns,
        meta_columns=columns is None,
    )


def begin_time(text: str) -> str:
    """Return the begin time of an incremental query; Hudi's users write 000 for the earliest."""
    return BEFORE_ALL if set(text) <= {"0"} else text
