"""The options of writes: Hudi's names and defaults, and what becomes of unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tidelock.base.config import (
    ConfigKey,
    boolean,
    check_values,
    declare,
    declared,
    effect,
    say_once,
    unknown_keys,
)
from tidelock.base.errors import ConfigInvalid
from tidelock.table.schema.evolution import EVOLUTION_OPTION

T = TypeVar("T")

_MEBIBYTE: Final = 1024 * 1024

_CHECKED: Final = (
    "tidelock.",
    "hoodie.datasource.write.",
    "hoodie.table.",
    "hoodie.parquet.",
    "hoodie.index.",
    "hoodie.bucket.",
    "hoodie.bulkinsert.",
    "hoodie.combine.",
    "hoodie.write.lock.",
)
"""Below these every name that means something is declared, so another one is a mistake."""


_EVENT_TIME: Final = "EVENT_TIME_ORDERING"
_COMMIT_TIME: Final = "COMMIT_TIME_ORDERING"
_PAYLOADS: Final = {
    "DefaultHoodieRecordPayload": _EVENT_TIME,
    "EventTimeAvroPayload": _EVENT_TIME,
    "OverwriteWithLatestAvroPayload": _COMMIT_TIME,
}
_STRATEGIES: Final = {
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": _EVENT_TIME,
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": _COMMIT_TIME,
}


def _named(modes: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({mode})" for name, mode in modes.items())


def comma_list(text: str) -> tuple[str, ...]:
    """Read names separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _option(
    group: str,
    name: str,
    parse: Callable[[str], T],
    doc: str,
    *,
    default: T | None = None,
    aliases: tuple[str, ...] = (),
) -> ConfigKey[T]:
    return declare(ConfigKey(name, parse, default, doc, aliases=aliases, group=group))


def _version(text: str) -> int:
    """Read a table version as a number, or in the words that Hudi has for some of them."""
    return {"EIGHT": 8, "NINE": 9}.get(text.upper()) or int(text)


TABLE_NAME = _option(
    "Tables",
    "hoodie.table.name",
    str,
    "name of the table",
    aliases=("hoodie.datasource.write.table.name",),
)
DATABASE_NAME = _option(
    "Tables",
    "hoodie.database.name",
    str,
    "database that the table belongs to",
    default="default",
)
TABLE_TYPE = _option(
    "Tables",
    "hoodie.datasource.write.table.type",
    str.upper,
    "COPY_ON_WRITE or MERGE_ON_READ",
    default="COPY_ON_WRITE",
    aliases=("hoodie.table.type", "hoodie.datasource.write.storage.type"),
)
TABLE_VERSION = _option(
    "Tables",
    "hoodie.write.table.version",
    _version,
    "version of the table format that a table is created with: 9 or 8",
    default=9,
    aliases=("hoodie.table.version",),
)
RECORD_KEY_FIELDS = _option(
    "Tables",
    "hoodie.datasource.write.recordkey.field",
    comma_list,
    "columns of the record key",
    aliases=("hoodie.table.recordkey.fields",),
)
PARTITION_PATH_FIELDS = _option(
    "Tables",
    "hoodie.datasource.write.partitionpath.field",
    comma_list,
    "columns that partition the table",
    aliases=("hoodie.table.partition.fields",),
)
ORDERING = _option(
    "Tables",
    "hoodie.table.ordering.fields",
    comma_list,
    "column whose larger value wins when two rows have one key",
    aliases=("hoodie.datasource.write.precombine.field", "hoodie.table.precombine.field"),
)
RECORD_MERGE_MODE = _option(
    "Tables",
    "hoodie.write.record.merge.mode",
    str.upper,
    "COMMIT_TIME_ORDERING, EVENT_TIME_ORDERING or CUSTOM; default: by whether it has an ordering",
    aliases=("hoodie.record.merge.mode",),
)
PAYLOAD_CLASS = _option(
    "Tables",
    "hoodie.datasource.write.payload.class",
    str,
    f"one of Hudi's payload classes, for the merge mode that it stands for: {_named(_PAYLOADS)}",
    aliases=("hoodie.compaction.payload.class", "hoodie.table.legacy.payload.class"),
)
MERGE_STRATEGY = _option(
    "Tables",
    "hoodie.write.record.merge.strategy.id",
    str.lower,
    f"one of Hudi's merge strategies, for the merge mode it stands for: {_named(_STRATEGIES)}",
    aliases=(
        "hoodie.datasource.write.record.merger.strategy",
        "hoodie.record.merge.strategy.id",
        "hoodie.compaction.record.merger.strategy",
    ),
)
KEY_GENERATOR_TYPE = _option(
    "Tables",
    "hoodie.datasource.write.keygenerator.type",
    str.upper,
    "SIMPLE, COMPLEX, NON_PARTITION or TIMESTAMP; default: by the number of columns",
    aliases=("hoodie.table.keygenerator.type",),
)
KEY_GENERATOR_CLASS = _option(
    "Tables",
    "hoodie.datasource.write.keygenerator.class",
    str,
    "Java class of the key generator; those of Hudi are known by name",
    aliases=("hoodie.table.keygenerator.class",),
)


def _time_option(name: str, doc: str) -> ConfigKey[str]:
    old = f"hoodie.deltastreamer.keygen.timebased.{name}"
    return _option("Tables", f"hoodie.keygen.timebased.{name}", str, doc, aliases=(old,))


TIME_TYPE = _time_option(
    "timestamp.type",
    "what the partition column of the TIMESTAMP key generator holds: UNIX_TIMESTAMP,"
    " EPOCHMILLISECONDS, EPOCHMICROSECONDS, SCALAR, DATE_STRING or MIXED",
)
TIME_OPTIONS = (
    TIME_TYPE,
    _time_option("timestamp.scalar.time.unit", "unit of a SCALAR, such as DAYS or SECONDS"),
    _time_option("input.dateformat", "patterns of times that are text, separated by commas"),
    _time_option("input.dateformat.list.delimiter.regex", "what separates these patterns"),
    _time_option("input.timezone", "zone of times that are text and name none"),
    _time_option("output.dateformat", "pattern of the folders, such as yyyy/MM/dd"),
    _time_option("output.timezone", "zone of the folders"),
    _time_option("timezone", "zone of both"),
)
HIVE_STYLE_PARTITIONS = _option(
    "Tables",
    "hoodie.datasource.write.hive_style_partitioning",
    boolean,
    "call partition folders field=value",
    default=False,
)
URL_ENCODED_PARTITIONS = _option(
    "Tables",
    "hoodie.datasource.write.partitionpath.urlencode",
    boolean,
    "escape partition values in folder names",
    default=False,
)
OPERATION = _option(
    "Writes",
    "hoodie.datasource.write.operation",
    str.lower,
    "what a data source write does: upsert, insert, bulk_insert, delete, insert_overwrite,"
    " insert_overwrite_table or delete_partition",
    default="upsert",
)
DROP_DUPLICATES = _option(
    "Writes",
    "hoodie.datasource.write.insert.drop.duplicates",
    boolean,
    "leave out rows of an insert whose key the table has",
    default=False,
)
DUPLICATE_POLICY = _option(
    "Writes",
    "hoodie.datasource.insert.dup.policy",
    str.lower,
    "what an insert does with rows whose key the table has: none adds them, drop leaves them out",
    default="none",
)
DELETE_PARTITIONS = _option(
    "Writes",
    "hoodie.datasource.write.partitions.to.delete",
    comma_list,
    "partitions that delete_partition deletes",
)
COMBINE_INSERT = _option(
    "Writes",
    "hoodie.combine.before.insert",
    boolean,
    "keep one row per key of an insert",
    default=False,
)
COMBINE_UPSERT = _option(
    "Writes",
    "hoodie.combine.before.upsert",
    boolean,
    "keep one row per key of an upsert",
    default=True,
)
COMBINE_DELETE = _option(
    "Writes",
    "hoodie.combine.before.delete",
    boolean,
    "keep one of equal keys of a delete",
    default=True,
)
ALLOW_DUPLICATES = _option(
    "Writes",
    "hoodie.merge.allow.duplicate.on.inserts",
    boolean,
    "let an insert add a row beside one that has its key",
    default=True,
)
RETRIES_ON_CONFLICT = _option(
    "Writes",
    "hoodie.write.num.retries.on.conflict.failures",
    int,
    "how often a write that failed by one of Hudi's conflict strategies is tried again",
    default=0,
)
REBASE_ROUNDS_MAX = _option(
    "Writes",
    "tidelock.write.rebase.rounds.max",
    int,
    "how often a write that others overtook is merged again before it fails",
    default=1000,
)
SORT_MODE = _option(
    "Writes",
    "hoodie.bulkinsert.sort.mode",
    str.upper,
    "NONE, GLOBAL_SORT, PARTITION_SORT, PARTITION_PATH_REPARTITION or"
    " PARTITION_PATH_REPARTITION_AND_SORT",
    default="NONE",
)
SORT_COLUMNS = _option(
    "Writes",
    "hoodie.bulkinsert.user.defined.partitioner.sort.columns",
    comma_list,
    "columns that a bulk insert sorts by; default with a sort mode: partition and key",
)
BULK_PARALLELISM = _option(
    "Writes",
    "hoodie.bulkinsert.shuffle.parallelism",
    int,
    "least number of files that a bulk insert spreads a flat table over; 0: by size alone",
    default=0,
)
SCHEMA_EVOLUTION = _option(
    "Writes",
    EVOLUTION_OPTION,
    str.lower,
    "what rows may change of the table's schema: strict (nothing), add (columns are added) or widen"
    " (and numeric types are widened); keys and partition columns keep their type",
    default="widen",
)
NULL_FOR_MISSING = _option(
    "Writes",
    "hoodie.write.set.null.for.missing.columns",
    boolean,
    "write null to columns of the table that rows do not have; otherwise such rows are refused",
    default=False,
)
FILE_BYTES = _option(
    "Files",
    "hoodie.parquet.max.file.size",
    int,
    "size that base files grow to, in bytes",
    default=120 * _MEBIBYTE,
)
SMALL_FILE_BYTES = _option(
    "Files",
    "hoodie.parquet.small.file.limit",
    int,
    "base files below this size take inserts; 0 takes none",
    default=100 * _MEBIBYTE,
)
ROW_GROUP_BYTES = _option(
    "Files",
    "hoodie.parquet.block.size",
    int,
    "size of a row group, in bytes",
    default=120 * _MEBIBYTE,
)
COMPRESSION = _option(
    "Files",
    "hoodie.parquet.compression.codec",
    str.lower,
    "codec of base files: snappy, zstd, gzip (Hudi's default, several times slower), lz4, brotli or"
    " uncompressed",
    default="snappy",
)
BLOOM_ENABLED = _option(
    "Files",
    "hoodie.parquet.bloom.filter.enabled",
    boolean,
    "put a bloom filter of the keys into base files; default: with the index BLOOM",
)
BLOOM_ENTRIES = _option(
    "Files",
    "hoodie.index.bloom.num_entries",
    int,
    "keys that one row of a bloom filter takes",
    default=60_000,
)
BLOOM_RATE = _option(
    "Files",
    "hoodie.index.bloom.fpp",
    float,
    "rate of false positives of bloom filters",
    default=0.000000001,
)
BLOOM_ENTRIES_MAX = _option(
    "Files",
    "hoodie.bloom.index.filter.dynamic.max.entries",
    int,
    "keys after which a bloom filter gets no more rows",
    default=100_000,
)
RECORD_BYTES = _option(
    "Files",
    "hoodie.copyonwrite.record.size.estimate",
    int,
    "size of a row in a base file while no commit tells it",
    default=1024,
)
RECORD_BYTES_THRESHOLD = _option(
    "Files",
    "hoodie.record.size.estimation.threshold",
    float,
    "share of the small file limit that a commit must have written to tell the size of a row",
    default=1.0,
)
INSERT_SPLIT = _option(
    "Files",
    "hoodie.copyonwrite.insert.split.size",
    int,
    "rows of a file group of inserts, unless the split is automatic",
    default=500_000,
)
INSERT_AUTO_SPLIT = _option(
    "Files",
    "hoodie.copyonwrite.insert.auto.split",
    boolean,
    "let the size of rows and files decide how many rows a file group gets",
    default=True,
)
SMALL_FILE_CANDIDATES = _option(
    "Files",
    "hoodie.merge.small.file.group.candidates.limit",
    int,
    "how many small file groups of a merge-on-read partition take inserts",
    default=1,
)
LOG_FORMAT = _option(
    "Files",
    "hoodie.logfile.data.block.format",
    str.lower,
    "format of rows in log files: avro or parquet",
    default="avro",
)
INDEX_TYPE = _option(
    "Indexes",
    "hoodie.index.type",
    str.upper,
    "how rows find their file group: SIMPLE, BLOOM or BUCKET",
    default="SIMPLE",
)
BUCKETS = _option(
    "Indexes",
    "hoodie.bucket.index.num.buckets",
    int,
    "buckets of each partition; every writer of a table must give the same",
    default=256,
)
BUCKET_FIELDS = _option(
    "Indexes",
    "hoodie.bucket.index.hash.field",
    comma_list,
    "key columns that choose the bucket; default: all of them",
)
BUCKET_ENGINE = _option(
    "Indexes",
    "hoodie.index.bucket.engine",
    str.upper,
    "SIMPLE; consistent hashing is not supported",
    default="SIMPLE",
)


def check_options(options: Mapping[str, object]) -> None:
    """Refuse names that are mistakes, with the nearest, and values that ask for what is not done.

    Names of Hudi's that have no effect here pass and are logged once, so that the properties of a
    Hudi job can be used as they are. Raises: `ConfigInvalid`.
    """
    for name, near in unknown_keys(options, prefixes=_CHECKED).items():
        raise _unknown(name, near)
    for name in options:
        if effect(name) is not None or name.startswith(_CHECKED):
            continue
        foreign = not name.startswith(("hoodie.", "fs."))
        matches = difflib.get_close_matches(name, _known(), n=1, cutoff=0.3 if foreign else 0.9)
        if matches or foreign:
            raise _unknown(name, matches[0] if matches else "")
        say_once(name, "nothing here is known by that name")
    check_values(options)
    merge_mode_asked(options)


def merge_mode_asked(options: Mapping[str, object]) -> str | None:
    """Return the merge mode that the options ask for, by name, payload class or strategy.

    Raises: `ConfigInvalid` for a payload or strategy that no mode stands for, and for two modes.
    """
    asked: dict[str, str] = {}
    named = RECORD_MERGE_MODE.value(options)
    if named is not None:
        asked[RECORD_MERGE_MODE.key] = named
    payload = PAYLOAD_CLASS.value(options)
    if payload:
        asked[PAYLOAD_CLASS.key] = _stands_for(_PAYLOADS, payload.rpartition(".")[2], PAYLOAD_CLASS)
    strategy = MERGE_STRATEGY.value(options)
    if strategy:
        asked[MERGE_STRATEGY.key] = _stands_for(_STRATEGIES, strategy, MERGE_STRATEGY)
    if len(set(asked.values())) > 1:
        said = ", ".join(f"{key} asks for {mode}" for key, mode in asked.items())
        raise ConfigInvalid(f"two merge modes: {said}", hint=f"give {RECORD_MERGE_MODE.key} alone")
    return next(iter(asked.values()), None)


def _stands_for(modes: Mapping[str, str], name: str, key: ConfigKey[str]) -> str:
    if name not in modes:
        raise ConfigInvalid(
            f"{key.key} = {name}: rows are merged in none of the ways that it stands for",
            hint=f"use {_named(modes)}, or {RECORD_MERGE_MODE.key}",
        )
    return modes[name]


def _known() -> frozenset[str]:
    return frozenset(name for key in declared() for name in (key.key, *key.aliases))


def _unknown(name: str, near: str) -> ConfigInvalid:
    hint = f"did you mean {near}?" if near else "see docs/configuration.md"
    return ConfigInvalid(f"unknown option {name}", hint=hint)
