"""Configuration of writes: keys, checks of options, and the settings of a table's writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelock.core.config import (
    ConfigKey,
    ConfigSection,
    boolean,
    check_values,
    comma_list,
    find,
    near_misses,
    unknown_key,
    unknown_keys,
    warn_no_effect,
)
from tidelock.core.errors import ConfigInvalid, Unsupported
from tidelock.core.limits import MIB
from tidelock.execution.filegroup import context
from tidelock.execution.filegroup.context import BloomSettings, FileSettings, LogFormat
from tidelock.execution.filegroup.key_lookup import IndexKind
from tidelock.hudi import bloom_filter
from tidelock.hudi.keys import TIME_TYPES
from tidelock.hudi.properties import KeyGenerator, MergeMode, TableProperties, TableType
from tidelock.hudi.schema import EVOLUTION_OPTION, Evolution, EvolutionRule

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
"""Prefixes below which every valid key is declared, so any other name is an error."""

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

_CODECS: Final = ("gzip", "snappy", "zstd", "lz4", "brotli", "uncompressed")


KEY_GENERATORS: Final = (
    KeyGenerator.SIMPLE,
    KeyGenerator.COMPLEX,
    KeyGenerator.NON_PARTITION,
    KeyGenerator.TIMESTAMP,
)
"""The key generators of tables that can be written."""


class DuplicatePolicy(StrEnum):
    """Handling of inserted rows whose key exists."""

    NONE = "none"
    DROP = "drop"


class SortMode(StrEnum):
    """Sort modes of bulk inserts."""

    NONE = "NONE"
    GLOBAL_SORT = "GLOBAL_SORT"
    PARTITION_SORT = "PARTITION_SORT"
    PARTITION_PATH_REPARTITION = "PARTITION_PATH_REPARTITION"
    PARTITION_PATH_REPARTITION_AND_SORT = "PARTITION_PATH_REPARTITION_AND_SORT"

    @property
    def sorts(self) -> bool:
        """Whether rows are sorted within files."""
        return self not in (SortMode.NONE, SortMode.PARTITION_PATH_REPARTITION)


def _named(modes: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({mode})" for name, mode in modes.items())


def _version(text: str) -> int:
    """Parse a table version: a number, or Hudi's name for it."""
    return {"EIGHT": 8, "NINE": 9}.get(text.upper()) or int(text)


TABLE_TYPE = ConfigSection.TABLES.declare(
    "hoodie.datasource.write.table.type",
    "COPY_ON_WRITE or MERGE_ON_READ",
    default="COPY_ON_WRITE",
    parse=str.upper,
    choices=TableType,
    aliases=("hoodie.table.type", "hoodie.datasource.write.storage.type"),
)
TABLE_VERSION = ConfigSection.TABLES.declare(
    "hoodie.write.table.version",
    "version of the table format for new tables: 9 or 8",
    default=9,
    parse=_version,
    choices=("8", "9"),
    aliases=("hoodie.table.version",),
)
RECORD_KEY_FIELDS = ConfigSection.TABLES.declare(
    "hoodie.datasource.write.recordkey.field",
    "columns of the record key",
    parse=comma_list,
    aliases=("hoodie.table.recordkey.fields",),
)
PARTITION_PATH_FIELDS = ConfigSection.TABLES.declare(
    "hoodie.datasource.write.partitionpath.field",
    "columns that partition the table",
    parse=comma_list,
    aliases=("hoodie.table.partition.fields",),
)
ORDERING = ConfigSection.TABLES.declare(
    "hoodie.table.ordering.fields",
    "column whose larger value wins between rows of one key",
    parse=comma_list,
    aliases=("hoodie.datasource.write.precombine.field", "hoodie.table.precombine.field"),
)
RECORD_MERGE_MODE = ConfigSection.TABLES.declare(
    "hoodie.write.record.merge.mode",
    "COMMIT_TIME_ORDERING, EVENT_TIME_ORDERING or CUSTOM; default: EVENT_TIME_ORDERING if there is"
    " an ordering column, otherwise COMMIT_TIME_ORDERING",
    parse=str.upper,
    choices=MergeMode,
    aliases=("hoodie.record.merge.mode",),
)
PAYLOAD_CLASS = ConfigSection.TABLES.declare(
    "hoodie.datasource.write.payload.class",
    f"merge mode by Hudi's payload class: {_named(_PAYLOADS)}",
    parse=str,
    aliases=("hoodie.compaction.payload.class", "hoodie.table.legacy.payload.class"),
)
MERGE_STRATEGY = ConfigSection.TABLES.declare(
    "hoodie.write.record.merge.strategy.id",
    f"merge mode by Hudi's merge strategy: {_named(_STRATEGIES)}",
    parse=str.lower,
    aliases=(
        "hoodie.datasource.write.record.merger.strategy",
        "hoodie.record.merge.strategy.id",
        "hoodie.compaction.record.merger.strategy",
    ),
)
KEY_GENERATOR_TYPE = ConfigSection.TABLES.declare(
    "hoodie.datasource.write.keygenerator.type",
    "how record keys and partition paths are derived from columns; default: by the number of"
    " columns",
    parse=str.upper,
    choices=KEY_GENERATORS,
    aliases=("hoodie.table.keygenerator.type",),
)
KEY_GENERATOR_CLASS = ConfigSection.TABLES.declare(
    "hoodie.datasource.write.keygenerator.class",
    "class name of one of Hudi's key generators",
    parse=str,
    aliases=("hoodie.table.keygenerator.class",),
)


def _time_option(name: str, doc: str, *, choices: Iterable[str] = ()) -> ConfigKey[str]:
    """Declare an option of the TIMESTAMP key generator, with the alias of Hudi's streamer."""
    return ConfigSection.TABLES.declare(
        f"hoodie.keygen.timebased.{name}",
        doc,
        parse=str,
        aliases=(f"hoodie.deltastreamer.keygen.timebased.{name}",),
        choices=choices,
    )


TIME_TYPE = _time_option(
    "timestamp.type",
    "type of the partition column of the TIMESTAMP key generator",
    choices=TIME_TYPES,
)
TIME_OPTIONS = (
    TIME_TYPE,
    _time_option("timestamp.scalar.time.unit", "unit of a SCALAR, such as DAYS or SECONDS"),
    _time_option("input.dateformat", "formats of text timestamps, separated by commas"),
    _time_option(
        "input.dateformat.list.delimiter.regex",
        "regular expression that separates the input formats",
    ),
    _time_option("input.timezone", "time zone of text timestamps that have none"),
    _time_option("output.dateformat", "format of partition paths, such as yyyy/MM/dd"),
    _time_option("output.timezone", "time zone of partition paths"),
    _time_option("timezone", "time zone of both input and output"),
)
HIVE_STYLE_PARTITIONS = ConfigSection.TABLES.declare(
    "hoodie.datasource.write.hive_style_partitioning",
    "name partition folders field=value",
    default=False,
)
URL_ENCODED_PARTITIONS = ConfigSection.TABLES.declare(
    "hoodie.datasource.write.partitionpath.urlencode",
    "escape partition values in folder names",
    default=False,
)
OPERATION = ConfigSection.WRITES.declare(
    "hoodie.datasource.write.operation",
    "operation of a data source write: upsert, insert, bulk_insert, delete, insert_overwrite,"
    " insert_overwrite_table or delete_partition",
    default="upsert",
    parse=str.lower,
)
DROP_DUPLICATES = ConfigSection.WRITES.declare(
    "hoodie.datasource.write.insert.drop.duplicates",
    "drop rows of an insert whose key exists",
    default=False,
)
DUPLICATE_POLICY = ConfigSection.WRITES.declare(
    "hoodie.datasource.insert.dup.policy",
    "handling of inserted rows whose key exists: none adds them, drop drops them",
    default="none",
    parse=str.lower,
    choices=DuplicatePolicy,
)
DELETE_PARTITIONS = ConfigSection.WRITES.declare(
    "hoodie.datasource.write.partitions.to.delete",
    "partitions that delete_partition deletes",
    parse=comma_list,
)
COMBINE_INSERT = ConfigSection.WRITES.declare(
    "hoodie.combine.before.insert", "keep one row per key of an insert", default=False
)
COMBINE_UPSERT = ConfigSection.WRITES.declare(
    "hoodie.combine.before.upsert", "keep one row per key of an upsert", default=True
)
COMBINE_DELETE = ConfigSection.WRITES.declare(
    "hoodie.combine.before.delete", "keep one row per key of a delete", default=True
)
ALLOW_DUPLICATES = ConfigSection.WRITES.declare(
    "hoodie.merge.allow.duplicate.on.inserts",
    "let an insert add rows whose key exists",
    default=True,
)
RETRIES_ON_CONFLICT = ConfigSection.WRITES.declare(
    "hoodie.write.num.retries.on.conflict.failures",
    "number of retries of a write that failed under one of Hudi's conflict strategies",
    default=0,
)
REBASE_ROUNDS_MAX = ConfigSection.WRITES.declare(
    "tidelock.write.rebase.rounds.max",
    "number of conflicts after which a write fails instead of being merged again",
    default=1000,
)
SORT_MODE = ConfigSection.WRITES.declare(
    "hoodie.bulkinsert.sort.mode",
    "NONE, GLOBAL_SORT, PARTITION_SORT, PARTITION_PATH_REPARTITION or"
    " PARTITION_PATH_REPARTITION_AND_SORT",
    default="NONE",
    parse=str.upper,
    choices=SortMode,
)
SORT_COLUMNS = ConfigSection.WRITES.declare(
    "hoodie.bulkinsert.user.defined.partitioner.sort.columns",
    "columns by which a bulk insert sorts; default with a sort mode: partition and key",
    parse=comma_list,
)
BULK_PARALLELISM = ConfigSection.WRITES.declare(
    "hoodie.bulkinsert.shuffle.parallelism",
    "minimum number of files of a bulk insert into a table without partitions; 0: by size only",
    default=0,
)
SCHEMA_EVOLUTION = ConfigSection.WRITES.declare(
    EVOLUTION_OPTION,
    "schema changes that rows may cause: strict (none), add (new columns) or widen (new columns and"
    " wider numeric types); key and partition columns keep their type",
    default="widen",
    parse=str.lower,
    choices=Evolution,
)
NULL_FOR_MISSING = ConfigSection.WRITES.declare(
    "hoodie.write.set.null.for.missing.columns",
    "write null to columns that rows lack; otherwise such rows are rejected",
    default=False,
)
FILE_BYTES = ConfigSection.FILES.declare(
    "hoodie.parquet.max.file.size",
    "target size of base files in bytes",
    default=context.FILE_BYTES_MAX,
)
SMALL_FILE_BYTES = ConfigSection.FILES.declare(
    "hoodie.parquet.small.file.limit",
    "base files below this number of bytes take inserts; 0 for none",
    default=100 * MIB,
)
ROW_GROUP_BYTES = ConfigSection.FILES.declare(
    "hoodie.parquet.block.size", "size of a row group in bytes", default=context.ROW_GROUP_BYTES
)
COMPRESSION = ConfigSection.FILES.declare(
    "hoodie.parquet.compression.codec",
    "codec of base files: snappy, zstd, gzip (Hudi's default, several times slower), lz4, brotli or"
    " uncompressed",
    default=context.COMPRESSION,
    parse=str.lower,
    choices=_CODECS,
)
BLOOM_ENABLED = ConfigSection.FILES.declare(
    "hoodie.parquet.bloom.filter.enabled",
    "write a bloom filter of the keys to base files; default: only with the BLOOM index",
    parse=boolean,
)
BLOOM_ENTRIES = ConfigSection.FILES.declare(
    "hoodie.index.bloom.num_entries",
    "number of keys per row of a bloom filter",
    default=bloom_filter.ENTRIES,
)
BLOOM_RATE = ConfigSection.FILES.declare(
    "hoodie.index.bloom.fpp",
    "false positive rate of bloom filters",
    default=bloom_filter.FALSE_POSITIVES,
)
BLOOM_ENTRIES_MAX = ConfigSection.FILES.declare(
    "hoodie.bloom.index.filter.dynamic.max.entries",
    "maximum number of keys for which a bloom filter grows",
    default=bloom_filter.ENTRIES_MAX,
)
RECORD_BYTES = ConfigSection.FILES.declare(
    "hoodie.copyonwrite.record.size.estimate",
    "estimated bytes per row, until a commit provides the actual size",
    default=1024,
)
RECORD_BYTES_THRESHOLD = ConfigSection.FILES.declare(
    "hoodie.record.size.estimation.threshold",
    "fraction of the small file limit that a commit must write to be used for the row size",
    default=1.0,
)
INSERT_SPLIT = ConfigSection.FILES.declare(
    "hoodie.copyonwrite.insert.split.size",
    "rows per new file group, unless the split is automatic",
    default=500_000,
)
INSERT_AUTO_SPLIT = ConfigSection.FILES.declare(
    "hoodie.copyonwrite.insert.auto.split",
    "derive the rows per new file group from row and file sizes",
    default=True,
)
SMALL_FILE_CANDIDATES = ConfigSection.FILES.declare(
    "hoodie.merge.small.file.group.candidates.limit",
    "number of small file groups per merge-on-read partition that take inserts",
    default=1,
)
LOG_FORMAT = ConfigSection.FILES.declare(
    "hoodie.logfile.data.block.format",
    "format of rows in log files: avro or parquet",
    default=LogFormat.AVRO.value,
    parse=str.lower,
    choices=LogFormat,
)
INDEX_TYPE = ConfigSection.INDEXES.declare(
    "hoodie.index.type",
    "index that maps keys to file groups: SIMPLE, BLOOM or BUCKET",
    default="SIMPLE",
    parse=str.upper,
    choices=("SIMPLE", "BLOOM", "BUCKET"),
)
BUCKETS = ConfigSection.INDEXES.declare(
    "hoodie.bucket.index.num.buckets",
    "number of buckets per partition; must be the same for every writer of a table",
    default=256,
)
BUCKET_FIELDS = ConfigSection.INDEXES.declare(
    "hoodie.bucket.index.hash.field",
    "key columns that determine the bucket; default: all key columns",
    parse=comma_list,
)
BUCKET_ENGINE = ConfigSection.INDEXES.declare(
    "hoodie.index.bucket.engine",
    "SIMPLE; consistent hashing is not supported",
    default="SIMPLE",
    parse=str.upper,
    choices=("SIMPLE",),
)


def check_options(options: Mapping[str, object]) -> None:
    """Check the names and values of options.

    Hudi keys without effect are accepted and logged once, so that the properties of a Hudi job can
    be used unchanged. Raises: `ConfigInvalid`, with the nearest known name.
    """
    for name, near in unknown_keys(options, prefixes=_CHECKED).items():
        raise unknown_key(name, [near] if near else [])
    for name in options:
        if find(name) is not None or name.startswith(_CHECKED):
            continue
        external = not name.startswith(("hoodie.", "fs."))
        matches = near_misses(name, count=1, cutoff=0.3 if external else 0.9)
        if matches or external:
            raise unknown_key(name, matches)
        warn_no_effect(name, "the key is unknown")
    check_values(options)
    requested_merge_mode(options)


def requested_merge_mode(options: Mapping[str, object]) -> str | None:
    """Return the merge mode given by name, payload class or strategy; None if not given.

    Raises: `ConfigInvalid` for an unsupported payload or strategy, and for different modes.
    """
    requested: dict[str, str] = {}
    named = RECORD_MERGE_MODE.value(options)
    if named is not None:
        requested[RECORD_MERGE_MODE.key] = named
    payload = PAYLOAD_CLASS.value(options)
    if payload:
        name = payload.rpartition(".")[2]
        requested[PAYLOAD_CLASS.key] = _mode_of(_PAYLOADS, name, PAYLOAD_CLASS)
    strategy = MERGE_STRATEGY.value(options)
    if strategy:
        requested[MERGE_STRATEGY.key] = _mode_of(_STRATEGIES, strategy, MERGE_STRATEGY)
    if len(set(requested.values())) > 1:
        given = ", ".join(f"{key}: {mode}" for key, mode in requested.items())
        raise ConfigInvalid(
            f"options give different merge modes: {given}", hint=f"use only {RECORD_MERGE_MODE.key}"
        )
    return next(iter(requested.values()), None)


def _mode_of(modes: Mapping[str, str], name: str, key: ConfigKey[str]) -> str:
    if name not in modes:
        raise ConfigInvalid(
            f"{key.key}: {name!r} is not supported",
            hint=f"use one of {_named(modes)}, or {RECORD_MERGE_MODE.key}",
        )
    return modes[name]


INDEX_OPTIONS = (INDEX_TYPE, BUCKETS, BUCKET_FIELDS, BUCKET_ENGINE)
"""Options on which all writers of a table must agree; stored in tables that are created here."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """Sizes of file groups, and limits for filling small ones."""

    file_bytes: int
    small_bytes: int
    record_bytes: int
    threshold: float
    split_rows: int
    auto_split: bool
    small_candidates: int
    bulk_slots: int


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """The settings of a table's writes."""

    index: IndexKind
    buckets: int
    bucket_fields: tuple[str, ...]
    files: FileSettings
    sizing: Sizing
    combine_insert: bool
    combine_upsert: bool
    combine_delete: bool
    drop_duplicates: bool
    allow_duplicates: bool
    sort_mode: SortMode
    sort_columns: tuple[str, ...]
    conflict_retries: int
    rebase_rounds_max: int
    evolution: EvolutionRule
    null_for_missing: bool

    @classmethod
    def read(cls, options: Mapping[str, object], properties: TableProperties) -> WriteSettings:
        """Return the settings of `options`, with the index that is stored in the table.

        Raises: `ConfigInvalid`, `Unsupported`.
        """
        options = _with_index(options, properties)
        index = _index(options, properties)
        codec = COMPRESSION.required(options)
        if codec not in _CODECS:
            raise COMPRESSION.unknown_value(codec)
        bloom = BLOOM_ENABLED.value(options)
        bloom = index is IndexKind.BLOOM if bloom is None else bloom
        policy = DUPLICATE_POLICY.member(DuplicatePolicy, options)
        files = FileSettings(
            compression="none" if codec == "uncompressed" else codec,
            row_group_bytes=ROW_GROUP_BYTES.positive(options),
            bloom=_bloom(options) if bloom else None,
            log_format=LOG_FORMAT.member(LogFormat, options),
            file_bytes_max=FILE_BYTES.positive(options),
        )
        return cls(
            index=index,
            buckets=BUCKETS.positive(options),
            bucket_fields=BUCKET_FIELDS.value(options) or (),
            files=files,
            sizing=Sizing(
                file_bytes=FILE_BYTES.positive(options),
                small_bytes=SMALL_FILE_BYTES.required(options),
                record_bytes=RECORD_BYTES.positive(options),
                threshold=RECORD_BYTES_THRESHOLD.required(options),
                split_rows=INSERT_SPLIT.positive(options),
                auto_split=INSERT_AUTO_SPLIT.required(options),
                small_candidates=SMALL_FILE_CANDIDATES.required(options),
                bulk_slots=BULK_PARALLELISM.required(options),
            ),
            combine_insert=COMBINE_INSERT.required(options),
            combine_upsert=COMBINE_UPSERT.required(options),
            combine_delete=COMBINE_DELETE.required(options),
            drop_duplicates=DROP_DUPLICATES.required(options) or policy is DuplicatePolicy.DROP,
            allow_duplicates=ALLOW_DUPLICATES.required(options),
            sort_mode=SORT_MODE.member(SortMode, options),
            sort_columns=SORT_COLUMNS.value(options) or (),
            conflict_retries=RETRIES_ON_CONFLICT.required(options),
            rebase_rounds_max=REBASE_ROUNDS_MAX.positive(options),
            evolution=EvolutionRule(
                SCHEMA_EVOLUTION.member(Evolution, options),
                fixed=(*properties.record_keys, *properties.partition_fields),
                ordering=properties.ordering_fields,
            ),
            null_for_missing=NULL_FOR_MISSING.required(options),
        )


def _with_index(options: Mapping[str, object], properties: TableProperties) -> Mapping[str, object]:
    """Return the options with the index options that are stored in the table."""
    stored = {key.key: value for key in INDEX_OPTIONS if (value := properties.values.get(key.key))}
    for key in INDEX_OPTIONS:
        given, known = options.get(key.key), stored.get(key.key)
        if given is not None and known is not None and str(given).upper() != known.upper():
            raise ConfigInvalid(
                f"{key.key}: expected {known!r} of table {properties.name}, got {str(given)!r}",
                hint="omit it",
            )
    return {**options, **stored}


def _index(options: Mapping[str, object], properties: TableProperties) -> IndexKind:
    named = INDEX_TYPE.required(options)
    if named.startswith("GLOBAL_") or named == "RECORD_INDEX":
        raise Unsupported(
            f"{INDEX_TYPE.key}: the global index {named} is not supported",
            hint="use SIMPLE, BLOOM or BUCKET, whose keys are unique within a partition",
        )
    kinds = (IndexKind.SIMPLE, IndexKind.BLOOM, IndexKind.BUCKET)
    if named not in kinds:
        raise INDEX_TYPE.unknown_value(named)
    if named == IndexKind.BUCKET:
        if BUCKET_ENGINE.required(options) != "SIMPLE":
            raise Unsupported(
                f"{BUCKET_ENGINE.key}: consistent hashing is not supported", hint="use SIMPLE"
            )
        keys = properties.record_keys
        unknown = [name for name in BUCKET_FIELDS.value(options) or () if name not in keys]
        if unknown:
            raise ConfigInvalid(
                f"{BUCKET_FIELDS.key}: expected columns of the record key, got {unknown[0]!r}",
                hint=f"the record key is {', '.join(keys)}",
            )
    return IndexKind(named)


def _bloom(options: Mapping[str, object]) -> BloomSettings:
    return BloomSettings(
        entries=BLOOM_ENTRIES.positive(options),
        rate=BLOOM_RATE.required(options),
        entries_max=BLOOM_ENTRIES_MAX.positive(options),
    )
