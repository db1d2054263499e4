"""Where keys live: the file group of each row, by the table's index.

SIMPLE reads the key column of the base files of a row's partition, row groups whose least and
greatest key exclude every key aside. BLOOM asks the filter in each footer first. BUCKET computes
the group from the key and reads nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelock.base.errors import DataCorrupt, Unsupported
from tidelock.base.runtime import Each, one_by_one
from tidelock.kernel.basefile import UNREADABLE, opened
from tidelock.kernel.layers import read_layers
from tidelock.kernel.merge import MergeRule
from tidelock.kernel.read import slice_batches
from tidelock.kernel.route import coded
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile, FileSlice
from tidelock.table.index.bloom import (
    DYNAMIC,
    FOOTER_FILTER,
    FOOTER_MAX_KEY,
    FOOTER_MIN_KEY,
    FOOTER_TYPE,
    decode_filter,
)
from tidelock.table.index.bucket import bucket_ids, fixed_file_id, key_parts
from tidelock.table.schema.meta import PARTITION_PATH, RECORD_KEY

_HASHED_ROWS: Final = 256 * 1024
"""Keys that are hashed together: what it takes on the way is given back before the next ones."""

KeyRange = tuple[str, str]
"""The least and the greatest key."""


class IndexKind(StrEnum):
    """The indexes that tables are written with here; NONE takes every row for an insert."""

    SIMPLE = "SIMPLE"
    BLOOM = "BLOOM"
    BUCKET = "BUCKET"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class BucketRule:
    """How keys go to buckets, and which file group each bucket has.

    `groups` has the groups that exist, and those of buckets whose fixed id is not free, by
    partition and bucket; every other bucket has its fixed id.
    """

    buckets: int
    hash_fields: tuple[str, ...]
    key_fields: tuple[str, ...]
    groups: Mapping[tuple[str, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Liveness:
    """What it takes to tell which of the keys that a slice's files hold are alive.

    A log file deletes a key, and the base file holds it until it is compacted. `logged` are the
    slices that have log files, with all of them, by partition and file id; `schema` has the table's
    columns and the meta columns.
    """

    logged: Mapping[tuple[str, str], FileSlice]
    schema: pa.Schema
    rule: MergeRule


def key_range(keys: pa.Array) -> KeyRange | None:
    """Return the least and greatest key; None without keys."""
    if not len(keys):
        return None
    found = pc.min_max(keys)
    return found["min"].as_py(), found["max"].as_py()


def keys_found(store: ObjectStore, piece: FileSlice, keys: pa.Array, kind: IndexKind) -> pa.Array:
    """Return which of `keys` (by place, int64) live in a slice, in its base file or its log files.

    Log files cost as much as they hold: whoever knows that the base file has all of a log file's
    keys gives a slice without it.

    Raises: `NotFound`, `DataCorrupt`, `Unsupported`.
    """
    if not len(keys):
        return pa.array([], pa.int64())
    if piece.base is None:
        return _places(_logged_keys(store, piece), keys)
    if piece.logs:
        base, logs = replace(piece, logs=()), replace(piece, base=None)
        both = [keys_found(store, part, keys, kind) for part in (base, logs)]
        return pa.concat_arrays(both).unique()
    with opened(store, piece.base, f"{store.uri}/{piece.base.key}") as file:
        candidates = keys
        at: pa.Array | None = None
        if kind is IndexKind.BLOOM:
            may = _may_hold(file, keys, f"{store.uri}/{piece.base.key}")
            at = pc.indices_nonzero(may).cast(pa.int64())
            if not len(at):
                return at
            candidates = keys.take(at)
        found = _places(_base_keys(file, piece.base, store, key_range(candidates)), candidates)
        return found if at is None else at.take(found)


def live_keys(store: ObjectStore, piece: FileSlice, live: Liveness) -> Iterator[pa.Array]:
    """Yield the keys of the rows that readers see in a slice.

    Raises: `NotFound`, `DataCorrupt`, `Unsupported` for a merge that is not known here.
    """
    batches = slice_batches(store, piece, live.schema, rule=live.rule, columns=[RECORD_KEY])
    for batch in batches:
        yield from batch.column(RECORD_KEY).chunks


def keys_alive(store: ObjectStore, piece: FileSlice, keys: pa.Array, live: Liveness) -> pa.Array:
    """Return which of `keys` (by place, int64) have a row that readers see in a slice.

    Reads all keys of the base file and the whole of the log files. Raises: as `live_keys`.
    """
    return _places(live_keys(store, piece, live), keys)


def slice_keys(
    store: ObjectStore, piece: FileSlice, within: KeyRange | None = None
) -> Iterator[pa.Array]:
    """Yield the keys that live in a slice, in its base file or its log files, each of these once.

    Row groups of the base file that hold no key of `within` are left out. A key that a log file
    deleted is still its base file's: when it comes again it belongs there.
    """
    nothing = pa.array([], pa.string())
    logged = pa.concat_arrays([nothing, *_logged_keys(store, piece)]) if piece.logs else nothing
    if piece.base is not None:
        with opened(store, piece.base, f"{store.uri}/{piece.base.key}") as file:
            for keys in _base_keys(file, piece.base, store, within):
                if len(logged):
                    logged = logged.filter(pc.invert(pc.is_in(logged, value_set=keys)))
                yield keys
    if len(logged):
        yield logged.unique()


def bucket_groups(rows: pa.Table, rule: BucketRule, each: Each = one_by_one) -> pa.DictionaryArray:
    """Return the file id of each row's bucket, whether or not the group exists yet.

    Keys are hashed a portion at a time, by way of `each`. Ids are few and long, so rows have codes.
    """
    keys = rows.column(RECORD_KEY)
    starts = range(0, max(1, len(keys)), _HASHED_ROWS)
    portions = [keys.slice(start, _HASHED_ROWS) for start in starts]
    found = each(lambda part: bucket_ids(_hashed(part, rule), rule.buckets), portions)
    pairs = pa.concat_arrays(found)
    paths = coded(_whole(rows.column(PARTITION_PATH)))
    if len(paths.dictionary) > 1:
        pairs = pc.add(pc.multiply(paths.indices.cast(pa.int64()), rule.buckets), pairs)
    places = pairs.dictionary_encode()
    names = []
    for pair in places.dictionary.to_pylist():
        path, bucket = divmod(pair, rule.buckets)
        known = rule.groups.get((paths.dictionary[path].as_py(), bucket))
        names.append(known or fixed_file_id(bucket))
    return pa.DictionaryArray.from_arrays(places.indices, pa.array(names, pa.string()))


def groups_of_keys(
    keys: Mapping[str, Collection[str]], rule: BucketRule
) -> frozenset[tuple[str, str]]:
    """Return the partitions and file ids of the buckets that keys of partitions belong to."""
    pairs = [(path, key) for path, found in keys.items() for key in sorted(found)]
    if not pairs:
        return frozenset()
    paths, names = (pa.array(column, pa.string()) for column in zip(*pairs, strict=True))
    rows = pa.table({RECORD_KEY: names, PARTITION_PATH: paths})
    ids = bucket_groups(rows, rule).to_pylist()
    return frozenset(zip(paths.to_pylist(), ids, strict=True))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _hashed(keys: pa.ChunkedArray, rule: BucketRule) -> Sequence[pa.Array]:
    """Return the texts that are hashed: the whole key, or the parts of a composite one."""
    whole = keys.combine_chunks()
    if len(rule.key_fields) <= 1:
        return [whole]
    fields = rule.hash_fields or rule.key_fields
    rows = [key_parts(key, fields) for key in whole.to_pylist()]
    width = max((len(row) for row in rows), default=1)
    if any(len(row) != width for row in rows):
        raise Unsupported(
            "record keys have different numbers of parts, so their buckets are not comparable",
            hint="key values must not hold both ',' and ':'",
        )
    return [pa.array([row[i] for row in rows], pa.string()) for i in range(width)]


def _places(found: Iterator[pa.Array], keys: pa.Array) -> pa.Array:
    """Return the places of the keys that are among those found."""
    hits = []
    for chunk in found:
        at = pc.index_in(chunk, value_set=keys).drop_null()
        if len(at):
            hits.append(at)
    return pa.concat_arrays(hits).unique().cast(pa.int64()) if hits else pa.array([], pa.int64())


def _logged_keys(store: ObjectStore, piece: FileSlice) -> Iterator[pa.Array]:
    """Yield the keys that log files have rows of.

    Which of a row and a delete counts is a matter of ordering values, which are not read. A key
    counts that may be alive: its row must not come to be in another file group as well.
    """
    schema = pa.schema([pa.field(RECORD_KEY, pa.string())])
    for layer in read_layers(store, piece.logs, schema, MergeRule()):
        if layer.rows is not None:
            yield layer.keys


def _base_keys(
    file: pq.ParquetFile, base: BaseFile, store: ObjectStore, within: KeyRange | None
) -> Iterator[pa.Array]:
    if RECORD_KEY not in file.schema_arrow.names:
        raise Unsupported(
            f"{store.uri}/{base.key} has no {RECORD_KEY}, so its rows cannot be found by key",
            hint="tables with hoodie.populate.meta.fields=false take only inserts",
        )
    try:
        for group in _groups_within(file, within):
            column = file.read_row_group(group, columns=[RECORD_KEY], use_threads=False).column(0)
            yield from column.cast(pa.string()).chunks
    except UNREADABLE as error:
        raise DataCorrupt(
            f"{store.uri}/{base.key}: the base file cannot be read: {error}"
        ) from error


def _groups_within(file: pq.ParquetFile, within: KeyRange | None) -> Iterator[int]:
    footer = file.metadata
    number = footer.schema.to_arrow_schema().names.index(RECORD_KEY)
    for group in range(footer.num_row_groups):
        stats = footer.row_group(group).column(number).statistics
        known = within is not None and stats is not None and stats.has_min_max
        if known and within is not None and (stats.max < within[0] or stats.min > within[1]):
            continue
        yield group


def _may_hold(file: pq.ParquetFile, keys: pa.Array, where: str) -> pa.Array:
    """Mark the keys that a base file may hold, by its footer; all of them if it says nothing."""
    footer = {
        key.decode(): value.decode()
        for key, value in (file.metadata.metadata or {}).items()
        if key.decode() in (FOOTER_FILTER, FOOTER_TYPE, FOOTER_MIN_KEY, FOOTER_MAX_KEY)
    }
    if FOOTER_FILTER not in footer:
        return pa.repeat(pa.scalar(value=True), len(keys))
    kind = footer.get(FOOTER_TYPE, DYNAMIC)
    may = decode_filter(footer[FOOTER_FILTER], kind=kind, where=where).might_contain(keys)
    if FOOTER_MIN_KEY in footer and FOOTER_MAX_KEY in footer:
        low = pc.greater_equal(keys, footer[FOOTER_MIN_KEY])
        may = pc.and_(may, pc.and_(low, pc.less_equal(keys, footer[FOOTER_MAX_KEY])))
    return may
