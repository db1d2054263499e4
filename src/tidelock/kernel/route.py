"""Which slot of a write each row goes to: that of its file group, or one for inserts. Pure.

Inserts are spread by a hash of their key over the slots of their partition, in the shares that the
plan gave them, so that any engine sends the same row to the same file group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.table.index.bucket import string_hashes
from tidelock.table.schema.meta import PARTITION_PATH, RECORD_KEY

FILE_ID: Final = "_tidelock_file_id"
"""The column of tagged rows that names their file group; null for an insert."""

SLOT: Final = "_tidelock_slot"
"""The column of routed rows that has the number of their slot."""

TOMBSTONE: Final = "_tidelock_tombstone"
"""The column of rows some of which delete: true for a row of which only the key counts."""

SHARES: Final = 2**32
"""Shares of a partition's inserts are counted out of this many."""

_MIX: Final = 0x9E37_79B1
_LOW: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class InsertSlot:
    """A slot that takes the inserts whose share number is below `below`, and not of one before."""

    slot: int
    below: int


@dataclass(frozen=True, slots=True)
class Routes:
    """The slot of each file group, and the slots of each partition's inserts."""

    groups: Mapping[tuple[str, str], int] = field(default_factory=dict)
    inserts: Mapping[str, tuple[InsertSlot, ...]] = field(default_factory=dict)


def shares(weights: Sequence[int]) -> tuple[int, ...]:
    """Return where each weight's share ends, out of `SHARES`; the last one ends there."""
    total, upto, ends = sum(weights), 0, []
    for weight in weights:
        upto += weight
        ends.append(SHARES * upto // total if total else SHARES)
    return (*ends[:-1], SHARES) if ends else ()


def share_numbers(keys: pa.Array) -> pa.Array:
    """Return a number below `SHARES` for each key: Java's hash of it, its bits spread."""
    mixed = pc.multiply(string_hashes(keys), pa.scalar(_MIX, pa.uint64()))
    return pc.bit_wise_and(pc.bit_wise_xor(mixed, pc.shift_right(mixed, _u64(15))), _u64(_LOW))


def places(rows: pa.Table) -> tuple[pa.Array, list[tuple[str, str | None]]]:
    """Return each tagged row's partition and file group (None for an insert), as numbers of pairs.

    The second value has the pairs. They are few, so whatever is done with them is done once.
    """
    paths = _coded(rows.column(PARTITION_PATH))
    groups = _coded(rows.column(FILE_ID))
    width = len(groups.dictionary) + 1
    number = pc.fill_null(groups.indices, width - 1)
    if len(paths.dictionary) > 1:
        number = pc.add(pc.multiply(paths.indices.cast(pa.int64()), width), number)
    coded = number.dictionary_encode()
    folders = paths.dictionary.to_pylist()
    names = [*groups.dictionary.to_pylist(), None]
    pairs = [divmod(each, width) for each in coded.dictionary.to_pylist()]
    return coded.indices, [(folders[path], names[group]) for path, group in pairs]


def slots(rows: pa.Table, routes: Routes) -> pa.Array:
    """Return the slot of each tagged row; null where the plan has none for it."""
    found = pa.nulls(rows.num_rows, pa.int32())
    if routes.groups:
        at, pairs = places(rows)
        named = [
            None if group is None else routes.groups.get((path, group)) for path, group in pairs
        ]
        found = pa.array(named, pa.int32()).take(at)
    if routes.inserts:
        fresh = _whole(rows.column(FILE_ID)).is_null()
        paths = _whole(rows.column(PARTITION_PATH))
        found = pc.if_else(fresh, _insert_slots(rows, paths, routes.inserts), found)
    return found


def _insert_slots(
    rows: pa.Table, paths: pa.Array, inserts: Mapping[str, tuple[InsertSlot, ...]]
) -> pa.Array:
    several = any(len(each) > 1 for each in inserts.values())
    names = pa.array(list(inserts), pa.string())
    at = pc.index_in(paths, value_set=names)
    firsts = pa.array([each[0].slot for each in inserts.values()], pa.int32())
    found = firsts.take(at)
    if not several:
        return found
    numbers = share_numbers(_whole(rows.column(RECORD_KEY)))
    for place in range(1, max(len(each) for each in inserts.values())):
        # A row moves on to the next slot of its partition while its number is beyond the share.
        bounds = [
            each[place - 1].below if place < len(each) else SHARES for each in inserts.values()
        ]
        after = [each[min(place, len(each) - 1)].slot for each in inserts.values()]
        beyond = pc.greater_equal(numbers, pa.array(bounds, pa.uint64()).take(at))
        found = pc.if_else(beyond, pa.array(after, pa.int32()).take(at), found)
    return found


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], column.type)
    return found


def coded(strings: pa.Array) -> pa.DictionaryArray:
    """Return strings as codes, quickly if all are empty, as the paths of no partitions are."""
    letters = strings.buffers()[2]
    if strings.null_count or not len(strings) or (letters is not None and letters.size):
        return strings.dictionary_encode()
    nothing = pa.repeat(pa.scalar(0, pa.int32()), len(strings))
    return pa.DictionaryArray.from_arrays(nothing, pa.array([""], pa.string()))


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    found = _whole(column)
    return found if pt.is_dictionary(found.type) else coded(found)


def _u64(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())
