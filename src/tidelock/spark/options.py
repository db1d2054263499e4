"""Options of the data source: Hudi's keys and Tidelock's own."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tidelock.core.config import ConfigSection, comma_list, known_names
from tidelock.core.errors import ConfigInvalid
from tidelock.operations.config import check_options

FORMAT: Final = "tidelock"
PATH: Final = "path"


class QueryType(StrEnum):
    """The kind of a query."""

    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"
    INCREMENTAL = "incremental"


QUERY_TYPE = ConfigSection.SPARK_READS.declare(
    "hoodie.datasource.query.type",
    "kind of query: snapshot, read_optimized or incremental",
    default="snapshot",
    parse=str.lower,
    choices=QueryType,
    aliases=("hoodie.datasource.view.type",),
)
INCREMENTAL_FORMAT = ConfigSection.SPARK_READS.declare(
    "hoodie.datasource.query.incremental.format",
    "rows of an incremental query: latest_state, as of its end; cdc is not supported",
    default="latest_state",
    parse=str.lower,
    choices=("latest_state",),
)
AS_OF = ConfigSection.SPARK_READS.declare(
    "as.of.instant",
    "time travel: read the table as of this time (17 or 14 digits, or an ISO time)",
    parse=str,
)
BEGIN = ConfigSection.SPARK_READS.declare(
    "hoodie.datasource.read.begin.instanttime",
    "begin of an incremental query: returns changes completed after this time",
    parse=str,
)
END = ConfigSection.SPARK_READS.declare(
    "hoodie.datasource.read.end.instanttime",
    "end of an incremental query: returns changes completed up to this time; default: now",
    parse=str,
)
COLUMNS = ConfigSection.SPARK_READS.declare(
    "tidelock.read.columns",
    "columns to read; file slices with log files are merged with these columns only",
    parse=comma_list,
)
PARTITIONS = ConfigSection.SPARK_READS.declare(
    "tidelock.read.partitions", "partition paths to read; default: all", parse=comma_list
)
NATIVE = ConfigSection.SPARK_READS.declare(
    "tidelock.read.native",
    "read base files without log files with Spark's own Parquet reader",
    default=True,
)

METADATA_PREFIX = ConfigSection.WRITES.declare(
    "hoodie.datasource.write.commitmeta.key.prefix",
    "write options with this prefix are stored in the metadata of the commit",
    default="_",
)
TXN_APP_ID = ConfigSection.WRITES.declare(
    "tidelock.txn.app.id",
    "application that a write belongs to; with tidelock.txn.version, a repeated write is"
    " applied once",
    parse=str,
)
TXN_VERSION = ConfigSection.WRITES.declare(
    "tidelock.txn.version",
    "version of the write within its application; must be larger than the previous one",
    parse=int,
)


def canonical_options(options: Mapping[str, str]) -> dict[str, object]:
    """Return options with the case of their keys as in the catalogue; Spark lowercases them."""
    known = {name.lower(): name for name in known_names()}
    return {known.get(name.lower(), name): value for name, value in options.items()}


def split_metadata(options: Mapping[str, object]) -> tuple[dict[str, str], dict[str, object]]:
    """Return the metadata for the commit, and the other options."""
    prefix = METADATA_PREFIX.required(options)
    metadata = {name: str(value) for name, value in options.items() if name.startswith(prefix)}
    return metadata, {name: value for name, value in options.items() if name not in metadata}


def split_path(options: Mapping[str, object], path: str | None) -> tuple[str, dict[str, object]]:
    """Return the table's path, and the other options after validation.

    Raises: `ConfigInvalid` for a missing path, and for an unknown key, with the closest match.
    """
    others = {name: value for name, value in options.items() if name != PATH}
    check_options(others)
    uri = path or options.get(PATH)
    if not uri:
        raise ConfigInvalid("path: required", hint='for example load("s3://bucket/table")')
    return str(uri), others


CHECKPOINT_LOCATION: Final = "checkpointLocation"
"""Spark's own option: the directory where a query stores its progress."""

WRITER_ID = ConfigSection.STREAMING_WRITES.declare(
    "hoodie.datasource.write.streaming.checkpoint.identifier",
    "name under which the batches of a stream are numbered; default: the query id, which is"
    " tied to its checkpointLocation",
    parse=str,
)
RETRIES = ConfigSection.STREAMING_WRITES.declare(
    "hoodie.datasource.write.streaming.retry.count",
    "how often a batch is retried if the storage does not respond",
    default=3,
)
RETRY_INTERVAL_MS = ConfigSection.STREAMING_WRITES.declare(
    "hoodie.datasource.write.streaming.retry.interval.ms",
    "wait before a batch is retried, in milliseconds; doubled each time",
    default=2000,
)
IGNORE_FAILED = ConfigSection.STREAMING_WRITES.declare(
    "hoodie.datasource.write.streaming.ignore.failed.batch",
    "continue with the next batch if one fails permanently; its rows are lost",
    default=False,
)
START = ConfigSection.STREAMING_READS.declare(
    "hoodie.datasource.streaming.startOffset",
    "start of a stream of changes: earliest, latest, or a completion time (exclusive)",
    default="earliest",
)
COMMITS_MAX = ConfigSection.STREAMING_READS.declare(
    "tidelock.stream.commits.per.trigger.max",
    "maximum number of commits per micro-batch",
    parse=int,
)
BYTES_MAX = ConfigSection.STREAMING_READS.declare(
    "tidelock.stream.bytes.per.trigger.max",
    "maximum number of bytes written by the commits of a micro-batch; at least one commit is read",
    parse=int,
)
INSERT_OPERATION = ConfigSection.SQL.declare(
    "hoodie.spark.sql.insert.into.operation",
    "write operation of INSERT INTO",
    default="insert",
    parse=str.lower,
    choices=("insert", "upsert", "bulk_insert"),
)
OVERWRITE_MODE = ConfigSection.SQL.declare(
    "hoodie.datasource.overwrite.mode",
    "what INSERT OVERWRITE without PARTITION replaces: all rows (static) or the partitions of"
    " the new rows (dynamic); default: spark.sql.sources.partitionOverwriteMode",
    parse=str.lower,
    choices=("static", "dynamic"),
)
