"""The settings of one table's writes: options read once, checked, and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from tidelock.base.config import ConfigKey
from tidelock.base.errors import ConfigInvalid, Unsupported
from tidelock.kernel.context import BloomSettings, FileSettings, LogFormat
from tidelock.kernel.lookup import IndexKind
from tidelock.operation import options as o
from tidelock.table.properties import TableProperties
from tidelock.table.schema.evolution import Evolution, EvolutionRule

E = TypeVar("E", bound=StrEnum)

INDEX_OPTIONS = (o.INDEX_TYPE, o.BUCKETS, o.BUCKET_FIELDS, o.BUCKET_ENGINE)
"""What every writer of a table must agree on. Hudi keeps it nowhere; tables made here remember."""

_CODECS = ("gzip", "snappy", "zstd", "lz4", "brotli", "uncompressed")


class DuplicatePolicy(StrEnum):
    """What an insert does with rows whose key the table has."""

    NONE = "none"
    DROP = "drop"


class SortMode(StrEnum):
    """How a bulk insert arranges rows."""

    NONE = "NONE"
    GLOBAL_SORT = "GLOBAL_SORT"
    PARTITION_SORT = "PARTITION_SORT"
    PARTITION_PATH_REPARTITION = "PARTITION_PATH_REPARTITION"
    PARTITION_PATH_REPARTITION_AND_SORT = "PARTITION_PATH_REPARTITION_AND_SORT"

    @property
    def sorts(self) -> bool:
        """Tell whether rows are in order within files."""
        return self not in (SortMode.NONE, SortMode.PARTITION_PATH_REPARTITION)


@dataclass(frozen=True, slots=True)
class Sizing:
    """How many rows go into a file group, and which groups take more."""

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
    """Everything that options say about a table's writes."""

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
        """Return the settings that `options` give, with the index that the table remembers.

        Raises: `ConfigInvalid`, `Unsupported`.
        """
        options = _with_index(options, properties)
        index = _index(options, properties)
        codec = o.COMPRESSION.required(options)
        if codec not in _CODECS:
            raise ConfigInvalid(
                f"{o.COMPRESSION.key} = {codec!r} is no codec", hint=f"use {', '.join(_CODECS)}"
            )
        bloom = o.BLOOM_ENABLED.value(options)
        files = FileSettings(
            compression="none" if codec == "uncompressed" else codec,
            row_group_bytes=_positive(o.ROW_GROUP_BYTES, options),
            bloom=_bloom(options)
            if (bloom or (bloom is None and index is IndexKind.BLOOM))
            else None,
            log_format=_one_of(LogFormat, o.LOG_FORMAT, options),
            file_bytes_max=_positive(o.FILE_BYTES, options),
        )
        return cls(
            index=index,
            buckets=_positive(o.BUCKETS, options),
            bucket_fields=o.BUCKET_FIELDS.value(options) or (),
            files=files,
            sizing=_sizing(options),
            combine_insert=o.COMBINE_INSERT.required(options),
            combine_upsert=o.COMBINE_UPSERT.required(options),
            combine_delete=o.COMBINE_DELETE.required(options),
            drop_duplicates=_drops_duplicates(options),
            allow_duplicates=o.ALLOW_DUPLICATES.required(options),
            sort_mode=_one_of(SortMode, o.SORT_MODE, options),
            sort_columns=o.SORT_COLUMNS.value(options) or (),
            conflict_retries=o.RETRIES_ON_CONFLICT.required(options),
            rebase_rounds_max=_positive(o.REBASE_ROUNDS_MAX, options),
            evolution=EvolutionRule(
                _one_of(Evolution, o.SCHEMA_EVOLUTION, options),
                fixed=(*properties.record_keys, *properties.partition_fields),
                ordering=properties.ordering_fields,
            ),
            null_for_missing=o.NULL_FOR_MISSING.required(options),
        )


def _with_index(options: Mapping[str, object], properties: TableProperties) -> Mapping[str, object]:
    """Return the options with those of the index that the table was made with."""
    kept = {key.key: value for key in INDEX_OPTIONS if (value := properties.values.get(key.key))}
    for key in INDEX_OPTIONS:
        given, known = options.get(key.key), kept.get(key.key)
        if given is not None and known is not None and str(given).upper() != known.upper():
            raise ConfigInvalid(
                f"{key.key} = {given}, and {properties.name} was made with {known}",
                hint="leave it out: the table remembers its index",
            )
    return {**options, **kept}


def _index(options: Mapping[str, object], properties: TableProperties) -> IndexKind:
    named = o.INDEX_TYPE.required(options)
    if named.startswith("GLOBAL_") or named == "RECORD_INDEX":
        raise Unsupported(
            f"{o.INDEX_TYPE.key} = {named}: keys that are unique across partitions are not"
            " supported",
            hint="use SIMPLE, BLOOM or BUCKET, whose keys are unique within a partition",
        )
    kinds = (IndexKind.SIMPLE, IndexKind.BLOOM, IndexKind.BUCKET)
    if named not in kinds:
        raise ConfigInvalid(
            f"{o.INDEX_TYPE.key} = {named} is no index", hint="use SIMPLE, BLOOM or BUCKET"
        )
    if named == IndexKind.BUCKET:
        if o.BUCKET_ENGINE.required(options) != "SIMPLE":
            raise Unsupported(
                f"{o.BUCKET_ENGINE.key}: consistent hashing is not supported", hint="use SIMPLE"
            )
        keys = properties.record_keys
        strange = [name for name in o.BUCKET_FIELDS.value(options) or () if name not in keys]
        if strange:
            raise ConfigInvalid(
                f"{o.BUCKET_FIELDS.key} names {strange[0]!r}, which is no part of the record key",
                hint=f"the record key is {', '.join(keys)}",
            )
    return IndexKind(named)


def _sizing(options: Mapping[str, object]) -> Sizing:
    return Sizing(
        file_bytes=_positive(o.FILE_BYTES, options),
        small_bytes=o.SMALL_FILE_BYTES.required(options),
        record_bytes=_positive(o.RECORD_BYTES, options),
        threshold=o.RECORD_BYTES_THRESHOLD.required(options),
        split_rows=_positive(o.INSERT_SPLIT, options),
        auto_split=o.INSERT_AUTO_SPLIT.required(options),
        small_candidates=o.SMALL_FILE_CANDIDATES.required(options),
        bulk_slots=o.BULK_PARALLELISM.required(options),
    )


def _bloom(options: Mapping[str, object]) -> BloomSettings:
    return BloomSettings(
        entries=_positive(o.BLOOM_ENTRIES, options),
        rate=o.BLOOM_RATE.required(options),
        entries_max=_positive(o.BLOOM_ENTRIES_MAX, options),
    )


def _positive(key: ConfigKey[int], options: Mapping[str, object]) -> int:
    value = key.required(options)
    if value < 1:
        raise ConfigInvalid(f"{key.key} = {value} is not positive", hint=f"{key.key}: {key.doc}")
    return value


def _drops_duplicates(options: Mapping[str, object]) -> bool:
    policy = _one_of(DuplicatePolicy, o.DUPLICATE_POLICY, options)
    return o.DROP_DUPLICATES.required(options) or policy is DuplicatePolicy.DROP


def _one_of(kind: type[E], key: ConfigKey[str], options: Mapping[str, object]) -> E:
    named = key.required(options)
    try:
        return kind(named)
    except ValueError:
        raise ConfigInvalid(
            f"{key.key} = {named} is not known", hint=f"use {', '.join(kind)}"
        ) from None
