"""The options of writes: Hudi's names and defaults, and what becomes of unknown names."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tidelock.base.config import ConfigKey, boolean, declare, declared, unknown_keys
from tidelock.base.errors import ConfigInvalid
from tidelock.table.schema.evolution import EVOLUTION_OPTION

logger = logging.getLogger(__name__)

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


_WITHOUT_EFFECT: Final = frozenset(
    {
        "hoodie.datasource.write.reconcile.schema",
        "hoodie.datasource.write.row.writer.enable",
        "hoodie.datasource.write.streaming.disable.compaction",
        "hoodie.parquet.compression.ratio",
        "hoodie.parquet.dictionary.enabled",
        "hoodie.parquet.field_id.write.enabled",
        "hoodie.parquet.page.size",
        "hoodie.parquet.writelegacyformat.enabled",
    }
)
"""Names of Hudi's below those that say how it works inside: no table is different for them."""


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
    aliases=("hoodie.table.type",),
)
TABLE_VERSION = _option(
    "Tables",
    "hoodie.write.table.version",
    int,
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
    """Refuse names that are mistakes, and say which name is nearest.

    Names of Hudi's that have no effect here pass with a warning, so that the properties of a Hudi
    job can be used as they are. Raises: `ConfigInvalid`.
    """
    for name, near in unknown_keys(options, prefixes=_CHECKED).items():
        if name not in _WITHOUT_EFFECT:
            raise _unknown(name, near)
    for name in options:
        if name in _WITHOUT_EFFECT:
            logger.warning("%s has no effect here", name)
            continue
        if name in _known() or name.startswith(_CHECKED):
            continue
        foreign = not name.startswith(("hoodie.", "fs."))
        matches = difflib.get_close_matches(name, _known(), n=1, cutoff=0.3 if foreign else 0.9)
        if matches or foreign:
            raise _unknown(name, matches[0] if matches else "")
        logger.warning("%s has no effect here", name)


def _known() -> frozenset[str]:
    return frozenset(name for key in declared() for name in (key.key, *key.aliases))


def _unknown(name: str, near: str) -> ConfigInvalid:
    hint = f"did you mean {near}?" if near else "see docs/configuration.md"
    return ConfigInvalid(f"unknown option {name}", hint=hint)
