"""`df.write.format("tidelock").mode(...).save(uri)`: one write operation per save."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from tidelock.core.errors import ConfigInvalid, Conflict, NotFound
from tidelock.operations import config as o
from tidelock.operations.report import WriteReport
from tidelock.spark.options import TXN_APP_ID, TXN_VERSION, split_metadata, split_path
from tidelock.table import Table
from tidelock.txn.app_transactions import AppTransaction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


class SaveMode(StrEnum):
    """Behaviour of a save if the table exists. Every mode creates a missing table."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"
    ERROR = "error"


class Operation(StrEnum):
    """The values of `hoodie.datasource.write.operation`."""

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
    """Write a frame; return None if the mode is `ignore` and the table exists.

    `overwrite` replaces all rows in one commit: readers see either the old or the new rows, and
    earlier versions remain available for time travel. (Hudi's data source deletes the directory
    and creates a new table.) The table configuration is kept; options that contradict it are
    rejected.

    Raises: `Conflict` if the mode is `error` and the table exists, `ConfigInvalid`, `NotFound` for
    a delete from a missing table, and the errors of `Table.upsert`.
    """
    metadata, write_options = split_metadata(options)
    uri, others = split_path(write_options, path)
    save_as = save_mode(mode)
    operation = o.OPERATION.member(Operation, others)
    app_transaction = requested_app_transaction(others)
    try:
        table = Table.open(uri, options=others)
    except NotFound:
        table = create_table(uri, frame, operation, others, exist_ok=save_as is SaveMode.APPEND)
    else:
        if save_as is SaveMode.ERROR:
            table.close()
            raise Conflict(f"{uri}: the table already exists", hint='save with mode("append")')
        if save_as is SaveMode.IGNORE:
            table.close()
            return None
        unchanged = (Operation.INSERT_OVERWRITE, Operation.DELETE_PARTITION)
        if save_as is SaveMode.OVERWRITE and operation not in unchanged:
            operation = Operation.INSERT_OVERWRITE_TABLE
    with table:
        report = write_frame(
            table, operation, frame, others, app_transaction=app_transaction, metadata=metadata
        )
    logger.info("%s: %s", uri, report)
    return report


def open_or_create(
    uri: str, frame: DataFrame, operation: Operation, options: Mapping[str, object]
) -> Table:
    """Return the table at `uri`; create it with the frame's columns if it is missing.

    Raises: `NotFound` for a delete from a missing table, `ConfigInvalid`.
    """
    try:
        return Table.open(uri, options=options)
    except NotFound:
        return create_table(uri, frame, operation, options, exist_ok=True)


def create_table(
    uri: str,
    frame: DataFrame,
    operation: Operation,
    options: Mapping[str, object],
    *,
    exist_ok: bool,
) -> Table:
    """Create a table with the columns of a frame. Raises: as `open_or_create`."""
    if operation in (Operation.DELETE, Operation.DELETE_PARTITION):
        raise NotFound(f"{uri}: no table to delete from", hint="use the table's base path")
    return Table.create(uri, _schema(frame), options=options, exist_ok=exist_ok)


def write_frame(
    table: Table,
    operation: Operation,
    frame: DataFrame,
    options: Mapping[str, object],
    *,
    app_transaction: AppTransaction | None = None,
    metadata: Mapping[str, str] | None = None,
) -> WriteReport:
    """Run one write operation on an open table. Raises: `ConfigInvalid`."""
    if operation is Operation.DELETE_PARTITION and not o.DELETE_PARTITIONS.value(options):
        raise ConfigInvalid(
            f"{o.DELETE_PARTITIONS.key}: required for delete_partition",
            hint="set it to partition paths, for example day=2024-01-31",
        )
    return table.write(frame, operation, metadata=metadata, app_transaction=app_transaction)


def save_mode(mode: str | None) -> SaveMode:
    """Return the save mode for any of Spark's names. Raises: `ConfigInvalid`."""
    names = {None: "error", "errorifexists": "error", "default": "error"}
    named = names.get(mode and mode.lower(), mode and mode.lower())
    try:
        return SaveMode(str(named))
    except ValueError:
        raise ConfigInvalid(
            f"save mode: expected append, overwrite, ignore or errorifexists, got {mode!r}",
            hint='set it with .mode("append") before .save()',
        ) from None


def requested_app_transaction(options: Mapping[str, object]) -> AppTransaction | None:
    """Return the application transaction of a write, if any. Raises: `ConfigInvalid`."""
    app_id, version = TXN_APP_ID.value(options), TXN_VERSION.value(options)
    if (app_id is None) != (version is None):
        missing, present = (
            (TXN_VERSION, TXN_APP_ID) if version is None else (TXN_APP_ID, TXN_VERSION)
        )
        raise ConfigInvalid(
            f"{missing.key}: required if {present.key} is set", hint="set both options or neither"
        )
    return None if app_id is None or version is None else AppTransaction(app_id, version)


def _schema(frame: DataFrame) -> pa.Schema:
    from tidelock.execution.spark.types import arrow_schema_of
    from tidelock.hudi.schema import without_meta

    return without_meta(arrow_schema_of(frame.schema))
