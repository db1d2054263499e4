"""The meta columns that every row of a Hudi table carries in front of the user's columns."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

COMMIT_TIME: Final = "_hoodie_commit_time"
COMMIT_SEQNO: Final = "_hoodie_commit_seqno"
RECORD_KEY: Final = "_hoodie_record_key"
PARTITION_PATH: Final = "_hoodie_partition_path"
FILE_NAME: Final = "_hoodie_file_name"

META_COLUMNS: Final = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
"""In the order in which they lead every base file and log record."""

OPERATION: Final = "_hoodie_operation"
"""Flink's changelog mode adds it: `I`, `-U`, `U` or `D`."""

IS_DELETED: Final = "_hoodie_is_deleted"
"""A boolean column of the user's schema; a record with true in it is a delete."""


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with the meta columns in front, whether or not it has them already."""
    lead = [pa.field(name, pa.string()) for name in META_COLUMNS]
    return pa.schema([*lead, *without_meta(schema)])


def without_meta(schema: pa.Schema) -> pa.Schema:
    """Return the user's columns of `schema`."""
    return pa.schema([field for field in schema if field.name not in META_COLUMNS])
