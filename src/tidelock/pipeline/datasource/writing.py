"""`df.write.format("tidelock").mode(...).save(uri)`: one write, as Hudi's options and modes say."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from tidelock.base.errors import ConfigInvalid, Conflict, NotFound
from tidelock.operation import options as o
from tidelock.operation.report import WriteReport
from tidelock.pipeline.datasource.options import split_path
from tidelock.table.properties import TableProperties
from tidelock.tableservice.table import Table

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
    uri, others = split_path(options, path)
    chosen = save_mode(mode)
    operation = _operation(others)
    schema = _schema(frame)
    try:
        table = Table.open(uri, options=others)
    except NotFound:
        if operation in (Operation.DELETE, Operation.DELETE_PARTITION):
            raise
        table = Table.create(uri, schema, options=others, exist_ok=chosen is SaveMode.APPEND)
    else:
        if chosen is SaveMode.ERROR:
            table.close()
            raise Conflict(f"{uri} is a table already", hint='save with mode("append")')
        if chosen is SaveMode.IGNORE:
            table.close()
            return None
        if chosen is SaveMode.OVERWRITE:
            check_same(table.properties, others)
            operation = _overwriting(operation)
    with table:
        report = run(table, operation, frame, others)
    logger.info("%s: %s", uri, report)
    return report


def run(
    table: Table, operation: Operation, frame: DataFrame, options: Mapping[str, object]
) -> WriteReport:
    """Carry out one operation on an open table."""
    match operation:
        case Operation.UPSERT:
            return table.upsert(frame)
        case Operation.INSERT:
            return table.insert(frame)
        case Operation.BULK_INSERT:
            return table.bulk_insert(frame)
        case Operation.DELETE:
            return table.delete(frame)
        case Operation.INSERT_OVERWRITE:
            return table.insert_overwrite(frame)
        case Operation.INSERT_OVERWRITE_TABLE:
            return table.insert_overwrite_table(frame)
        case Operation.DELETE_PARTITION:
            named = o.DELETE_PARTITIONS.value(options)
            if not named:
                raise ConfigInvalid(
                    "delete_partition needs the partitions to delete",
                    hint=f"give {o.DELETE_PARTITIONS.key}, such as day=2024-01-31",
                )
            return table.delete_partition(named)


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


def check_same(known: TableProperties, options: Mapping[str, object]) -> None:
    """Refuse options that say that the table is another than it is. Raises: `ConfigInvalid`."""
    given = {key for key in options if options[key] is not None}
    claims = (
        (o.RECORD_KEY_FIELDS, known.record_keys),
        (o.PARTITION_PATH_FIELDS, known.partition_fields),
        (o.ORDERING, known.ordering_fields),
        (o.TABLE_TYPE, known.type.value),
    )
    for key, value in claims:
        if not given & {key.key, *key.aliases}:
            continue
        wanted = key.value(options)
        if wanted != value:
            raise ConfigInvalid(
                f"{known.where}: the table has {key.key} = {value}, and the write says {wanted}",
                hint="leave the option out, or write to another path",
            )


def _overwriting(operation: Operation) -> Operation:
    kept = (Operation.INSERT_OVERWRITE, Operation.DELETE_PARTITION)
    return operation if operation in kept else Operation.INSERT_OVERWRITE_TABLE


def _operation(options: Mapping[str, object]) -> Operation:
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
