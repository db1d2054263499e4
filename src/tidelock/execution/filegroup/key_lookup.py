"""Key lookup: the file group of each row, by the table's index.

SIMPLE reads the key column of the base files in a row's partition, and skips row groups by their
minimum and maximum key. BLOOM checks the filter in each footer first. BUCKET computes the group
from the key and reads nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelock.core.errors import DataCorrupt, Unsupported
from tidelock.core.threads import ParallelMap, sequential_map
from tidelock.execution.filegroup.log_layers import read_layers
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.filegroup.read import READ_ERRORS, open_base_file, slice_batches
from tidelock.hudi.bloom_filter import (
    DYNAMIC,
    FOOTER_FILTER,
    FOOTER_MAX_KEY,
    FOOTER_MIN_KEY,
    FOOTER_TYPE,
    decode_filter,
)
from tidelock.hudi.bucket_index import bucket_ids, fixed_file_id, key_parts
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY, as_array, dictionary_encoded
from tidelock.storage.contract import ObjectStore

_HASH_ROWS_MAX: Final = 256 * 1024
"""The number of keys hashed together, which bounds the memory for intermediate values."""

KeyRange = tuple[str, str]
"""The minimum and maximum key."""


class IndexKind(StrEnum):
    """The supported indexes; NONE treats every row as an insert."""

    SIMPLE = "SIMPLE"
    BLOOM = "BLOOM"
    BUCKET = "BUCKET"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class BucketRule:
    """How keys map to buckets, and buckets to file groups.

    `groups` has the existing groups, and those of buckets whose fixed id is taken, by partition and
    bucket; every other bucket has its fixed id.
    """

    buckets: int
    hash_fields: tuple[str, ...]
    key_fields: tuple[str, ...]
    groups: Mapping[tuple[str, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Liveness:
    """What is needed to determine which keys in a slice's files are live.

    A log file deletes a key, but the base file has it until it is compacted. `logged` are the
    slices that have log files, with all of them, by partition and file id. `schema` has the table's
    columns and the meta columns.
    """

    logged: Mapping[tuple[str, str], FileSlice]
    schema: pa.Schema
    rule: MergeRule


def key_range(keys: pa.Array) -> KeyRange | None:
    """Return the minimum and maximum key; None without keys."""
    if not len(keys):
        return None
    found = pc.min_max(keys)
    return found["min"].as_py(), found["max"].as_py()


def find_keys(
    store: ObjectStore, file_slice: FileSlice, keys: pa.Array, kind: IndexKind
) -> pa.Array:
    """Return which of `keys` (as int64 positions) are in a slice, in its base file or log files.

    Log files are read completely: if the base file is known to have all keys of a log file, pass a
    slice without it. Raises: `NotFound`, `DataCorrupt`, `Unsupported`.
    """
    if not len(keys):
        return pa.array([], pa.int64())
    if file_slice.base is None:
        return _positions(_logged_keys(store, file_slice), keys)
    if file_slice.logs:
        base, logs = replace(file_slice, logs=()), replace(file_slice, base=None)
        found_parts = [find_keys(store, part, keys, kind) for part in (base, logs)]
        return pa.concat_arrays(found_parts).unique()
    where = f"{store.uri}/{file_slice.base.key}"
    with open_base_file(store, file_slice.base, where) as file:
        if kind is not IndexKind.BLOOM:
            return _positions(_base_keys(file, where, key_range(keys)), keys)
        at = pc.indices_nonzero(_bloom_candidates(file, keys, where)).cast(pa.int64())
        if not len(at):
            return at
        candidates = keys.take(at)
        return at.take(_positions(_base_keys(file, where, key_range(candidates)), candidates))


def read_live_keys(store: ObjectStore, file_slice: FileSlice, live: Liveness) -> Iterator[pa.Array]:
    """Yield the keys of the rows that readers see in a slice.

    Raises: `NotFound`, `DataCorrupt`, `Unsupported` for a custom merge without a merger.
    """
    batches = slice_batches(store, file_slice, live.schema, rule=live.rule, columns=[RECORD_KEY])
    for batch in batches:
        yield from batch.column(RECORD_KEY).chunks


def find_live_keys(
    store: ObjectStore, file_slice: FileSlice, keys: pa.Array, live: Liveness
) -> pa.Array:
    """Return which of `keys` (as int64 positions) have a row that readers see in a slice.

    Reads all keys of the base file and the complete log files. Raises: as `read_live_keys`.
    """
    return _positions(read_live_keys(store, file_slice, live), keys)


def read_slice_keys(
    store: ObjectStore, file_slice: FileSlice, within: KeyRange | None = None
) -> Iterator[pa.Array]:
    """Yield the keys in a slice, in its base file or log files, each once.

    Row groups of the base file without keys in the range `within` are skipped. A key deleted in a
    log file still belongs to the base file: if it is inserted again, it goes there.
    """
    logs = _logged_keys(store, file_slice) if file_slice.logs else ()
    logged = pa.concat_arrays([pa.array([], pa.string()), *logs])
    if file_slice.base is not None:
        where = f"{store.uri}/{file_slice.base.key}"
        with open_base_file(store, file_slice.base, where) as file:
            for keys in _base_keys(file, where, within):
                if len(logged):
                    logged = logged.filter(pc.invert(pc.is_in(logged, value_set=keys)))
                yield keys
    if len(logged):
        yield logged.unique()


def bucket_groups(
    rows: pa.Table, rule: BucketRule, each: ParallelMap = sequential_map
) -> pa.DictionaryArray:
    """Return the file id of each row's bucket, whether or not the group exists.

    Keys are hashed in portions, by `each`. The result is dictionary-encoded, since ids are few.
    """
    keys = rows.column(RECORD_KEY)
    starts = range(0, max(1, len(keys)), _HASH_ROWS_MAX)
    portions = [keys.slice(start, _HASH_ROWS_MAX) for start in starts]
    found = each(lambda part: bucket_ids(_hash_parts(part, rule), rule.buckets), portions)
    pairs = pa.concat_arrays(found)
    paths = dictionary_encoded(as_array(rows.column(PARTITION_PATH)))
    if len(paths.dictionary) > 1:
        pairs = pc.add(pc.multiply(paths.indices.cast(pa.int64()), rule.buckets), pairs)
    codes = pairs.dictionary_encode()
    names = []
    for pair in codes.dictionary.to_pylist():
        path, bucket = divmod(pair, rule.buckets)
        existing = rule.groups.get((paths.dictionary[path].as_py(), bucket))
        names.append(existing or fixed_file_id(bucket))
    return pa.DictionaryArray.from_arrays(codes.indices, pa.array(names, pa.string()))


def groups_of_keys(
    keys: Mapping[str, Collection[str]], rule: BucketRule
) -> frozenset[tuple[str, str]]:
    """Return the partitions and file ids of the buckets of keys, given by partition."""
    pairs = [(path, key) for path, found in keys.items() for key in sorted(found)]
    if not pairs:
        return frozenset()
    paths, names = (pa.array(column, pa.string()) for column in zip(*pairs, strict=True))
    rows = pa.table({RECORD_KEY: names, PARTITION_PATH: paths})
    ids = bucket_groups(rows, rule).to_pylist()
    return frozenset(zip(paths.to_pylist(), ids, strict=True))


def _hash_parts(keys: pa.ChunkedArray, rule: BucketRule) -> Sequence[pa.Array]:
    """Return the strings to hash: the whole key, or the parts of a composite one."""
    array = keys.combine_chunks()
    if len(rule.key_fields) <= 1:
        return [array]
    fields = rule.hash_fields or rule.key_fields
    rows = [key_parts(key, fields) for key in array.to_pylist()]
    width = max((len(row) for row in rows), default=1)
    if any(len(row) != width for row in rows):
        raise Unsupported(
            "record keys have different numbers of parts, so their buckets are ambiguous",
            hint="key values must not contain both ',' and ':'",
        )
    return [pa.array([row[i] for row in rows], pa.string()) for i in range(width)]


def _positions(found: Iterator[pa.Array], keys: pa.Array) -> pa.Array:
    """Return the positions of the keys that are among those found."""
    hits = []
    for chunk in found:
        at = pc.index_in(chunk, value_set=keys).drop_null()
        if len(at):
            hits.append(at)
    return pa.concat_arrays(hits).unique().cast(pa.int64()) if hits else pa.array([], pa.int64())


def _logged_keys(store: ObjectStore, file_slice: FileSlice) -> Iterator[pa.Array]:
    """Yield the keys of rows in log files.

    Whether a row or a delete wins depends on ordering values, which are not read. A key that may be
    live counts, so that its row is not stored in another file group as well.
    """
    schema = pa.schema([pa.field(RECORD_KEY, pa.string())])
    for layer in read_layers(store, file_slice.logs, schema, MergeRule()):
        if layer.rows is not None:
            yield layer.keys


def _base_keys(file: pq.ParquetFile, where: str, within: KeyRange | None) -> Iterator[pa.Array]:
    if RECORD_KEY not in file.schema_arrow.names:
        raise Unsupported(
            f"{where} has no {RECORD_KEY}, so keys cannot be looked up",
            hint="tables with hoodie.populate.meta.fields=false support only inserts",
        )
    try:
        for group in _row_groups_within(file, within):
            column = file.read_row_group(group, columns=[RECORD_KEY], use_threads=False).column(0)
            yield from column.cast(pa.string()).chunks
    except READ_ERRORS as error:
        raise DataCorrupt(f"{where}: the base file cannot be read: {error}") from error


def _row_groups_within(file: pq.ParquetFile, within: KeyRange | None) -> Iterator[int]:
    footer = file.metadata
    number = footer.schema.to_arrow_schema().names.index(RECORD_KEY)
    for group in range(footer.num_row_groups):
        stats = footer.row_group(group).column(number).statistics
        known = stats is not None and stats.has_min_max
        if within and known and (stats.max < within[0] or stats.min > within[1]):
            continue
        yield group


def _bloom_candidates(file: pq.ParquetFile, keys: pa.Array, where: str) -> pa.Array:
    """Mark the keys that a base file may have, by its footer; all of them without a filter."""
    footer = {
        key.decode(): value.decode()
        for key, value in (file.metadata.metadata or {}).items()
        if key.decode() in (FOOTER_FILTER, FOOTER_TYPE, FOOTER_MIN_KEY, FOOTER_MAX_KEY)
    }
    if FOOTER_FILTER not in footer:
        return pa.repeat(pa.scalar(value=True), len(keys))
    kind = footer.get(FOOTER_TYPE, DYNAMIC)
    candidates = decode_filter(footer[FOOTER_FILTER], kind=kind, where=where).might_contain(keys)
    if FOOTER_MIN_KEY in footer and FOOTER_MAX_KEY in footer:
        low = pc.greater_equal(keys, footer[FOOTER_MIN_KEY])
        candidates = pc.and_(candidates, pc.and_(low, pc.less_equal(keys, footer[FOOTER_MAX_KEY])))
    return candidates
