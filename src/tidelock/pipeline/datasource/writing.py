"""`df.write.format("tidelock").mode(...).save(uri)`: one write, as Hudi's options and modes say."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from tidelock.base.errors import ConfigInvalid, Conflict, NotFound
from tidelock.operation import options as o
from tidelock.operation.report import WriteReport
from tidelock.pipeline.datasource.options import (
    TXN_APPLICATION,
    TXN_VERSION,
    split_metadata,
    split_path,
)
from tidelock.tableservice.table import Table
from tidelock.txn.mark import Mark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


class SaveMode(StrEnum):
    """What a save does when the table is there; each creates one that is not."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"
    ERROR = "error"


class Operation(StrEnum):
    """What `hoodie.datasource.write.operation` may be."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"
    DELETE_PARTITION = "delete_partition"


def save(
    frame: DataFrame, path: str | None, mode: str | None, options: Mapping[str, object]
) -> WriteReport | None:
    """Write a frame; None when the mode is `ignore` and there is a table.

    `overwrite` replaces all rows in one commit: readers see the rows before or the rows after, and
    earlier versions stay for time travel. (Hudi's data source removes the folder and begins a new
    table.) It keeps what the table is, so options that say otherwise are refused.

    Raises: `Conflict` for mode `error` and a table that is there, `ConfigInvalid`, `NotFound` when
    rows of a missing table are to be deleted, and what `Table.upsert` raises.
    """
    metadata, told = split_metadata(options)
    uri, others = split_path(told, path)
    chosen = save_mode(mode)
    operation = asked_operation(others)
    mark = asked_mark(others)
    try:
        table = Table.open(uri, options=others)
    except NotFound:
        table = created(uri, frame, operation, others, exist_ok=chosen is SaveMode.APPEND)
    else:
        if chosen is SaveMode.ERROR:
            table.close()
            raise Conflict(f"{uri} is a table already", hint='save with mode("append")')
        if chosen is SaveMode.IGNORE:
            table.close()
            return None
        if chosen is SaveMode.OVERWRITE:
            operation = _overwriting(operation)
    with table:
        report = run(table, operation, frame, others, mark=mark, metadata=metadata)
    logger.info("%s: %s", uri, report)
    return report


def opened(
    uri: str, frame: DataFrame, operation: Operation, options: Mapping[str, object]
) -> Table:
    """Return the table at `uri`, made for the frame's columns if there is none.

    Raises: `NotFound` when rows of a missing table are to be deleted, `ConfigInvalid`.
    """
    try:
        return Table.open(uri, options=options)
    except NotFound:
        return created(uri, frame, operation, options, exist_ok=True)


def created(
    uri: str,
    frame: DataFrame,
    operation: Operation,
    options: Mapping[str, object],
    *,
    exist_ok: bool,
) -> Table:
    """Make the table that a frame is to be written to. Raises: as `opened`."""
    if operation in (Operation.DELETE, Operation.DELETE_PARTITION):
        raise NotFound(f"there is no table at {uri}, so nothing of it can be deleted")
    return Table.create(uri, _schema(frame), options=options, exist_ok=exist_ok)


def run(
    table: Table,
    operation: Operation,
    frame: DataFrame,
    options: Mapping[str, object],
    *,
    mark: Mark | None = None,
    metadata: Mapping[str, str] | None = None,
) -> WriteReport:
    """Carry out one operation on an open table."""
    match operation:
        case Operation.UPSERT:
            return table.upsert(frame, metadata=metadata, mark=mark)
        case Operation.INSERT:
            return table.insert(frame, metadata=metadata, mark=mark)
        case Operation.BULK_INSERT:
            return table.bulk_insert(frame, metadata=metadata, mark=mark)
        case Operation.DELETE:
            return table.delete(frame, metadata=metadata, mark=mark)
        case Operation.INSERT_OVERWRITE:
            return table.insert_overwrite(frame, metadata=metadata, mark=mark)
        case Operation.INSERT_OVERWRITE_TABLE:
            return table.insert_overwrite_table(frame, metadata=metadata, mark=mark)
        case Operation.DELETE_PARTITION:
            named = o.DELETE_PARTITIONS.value(options)
            if not named:
                raise ConfigInvalid(
                    "delete_partition needs the partitions to delete",
                    hint=f"give {o.DELETE_PARTITIONS.key}, such as day=2024-01-31",
                )
            return table.delete_partition(named, metadata=metadata, mark=mark)


def save_mode(mode: str | None) -> SaveMode:
    """Return the mode of a save by any of Spark's names. Raises: `ConfigInvalid`."""
    names = {None: "error", "errorifexists": "error", "default": "error"}
    named = names.get(mode and mode.lower(), mode and mode.lower())
    try:
        return SaveMode(str(named))
    except ValueError:
        raise ConfigInvalid(
            f"{mode!r} is no save mode", hint="use append, overwrite, ignore or errorifexists"
        ) from None


def _overwriting(operation: Operation) -> Operation:
    kept = (Operation.INSERT_OVERWRITE, Operation.DELETE_PARTITION)
    return operation if operation in kept else Operation.INSERT_OVERWRITE_TABLE


def asked_mark(options: Mapping[str, object]) -> Mark | None:
    """Return which batch of which application a write says it is. Raises: `ConfigInvalid`."""
    application, version = TXN_APPLICATION.value(options), TXN_VERSION.value(options)
    if (application is None) != (version is None):
        given, missing = (
            (TXN_APPLICATION, TXN_VERSION) if version is None else (TXN_VERSION, TXN_APPLICATION)
        )
        raise ConfigInvalid(f"{given.key} is given without {missing.key}", hint="give both")
    return None if application is None or version is None else Mark(application, version)


def asked_operation(options: Mapping[str, object]) -> Operation:
    """Return what a write is to do. Raises: `ConfigInvalid`."""
    named = o.OPERATION.required(options)
    try:
        return Operation(named)
    except ValueError:
        raise ConfigInvalid(
            f"{o.OPERATION.key} = {named} is not known", hint=f"use {', '.join(Operation)}"
        ) from None


def _schema(frame: DataFrame) -> pa.Schema:
    from tidelock.engine.spark.schema import arrow_schema_of
    from tidelock.table.schema.meta import without_meta

    return without_meta(arrow_schema_of(frame.schema))
