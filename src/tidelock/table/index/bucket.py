"""The bucket index: which file group a key belongs to, by Java's hash of it.

A string's hash is taken over its UTF-16 code units, a list's over the hashes of its strings, both
with 31 as factor and 32 bits that wrap. Here all strings are hashed at once: short ones by the
first unit of each, the second, and so on. For long ones 31 has an inverse modulo 2^64, so a running
sum of units, each divided by 31 to the power of its place, holds every string's hash as the
difference of two of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.errors import DataCorrupt, InvalidInput
from tidelock.table.keys import EMPTY_PART, NULL_PART

_WORD: Final = 2**64
_FACTOR: Final = 31
_INVERSE: Final = pow(_FACTOR, -1, _WORD)
_CHUNK_ROWS: Final = 32 * 1024
"""Running sums take 8 bytes for each letter, so keys are hashed in portions."""

_SHORT: Final = 48
"""Strings up to this length are hashed letter by letter, all of them at once."""

_FIXED_TAIL: Final = "-0000-0000-0000-000000000000-0"


def bucket_ids(parts: Sequence[pa.Array], buckets: int) -> pa.Array:
    """Return the bucket of each row; `parts` has the text of each hash field, null for null.

    A table hashed by its whole record key gives one part, the record keys.
    """
    if buckets < 1:
        raise InvalidInput(f"{buckets} buckets", hint="give at least one")
    hashes = pc.bit_wise_and(list_hashes(parts), _u64(0x7FFF_FFFF))
    whole = pc.divide(hashes, _u64(buckets))
    return pc.subtract(hashes, pc.multiply(whole, _u64(buckets))).cast(pa.int32())


def list_hashes(parts: Sequence[pa.Array]) -> pa.Array:
    """Return Java's `List.hashCode` of each row's parts, as 32 bits in a uint64."""
    hashes = pa.repeat(_u64(1), len(parts[0]))
    for part in parts:
        hashes = pc.add(pc.multiply(hashes, _u64(_FACTOR)), string_hashes(part))
    return _low_bits(hashes)


def string_hashes(strings: pa.Array) -> pa.Array:
    """Return Java's `String.hashCode` of each string, as 32 bits in a uint64; 0 for null."""
    plain = pc.fill_null(strings.cast(pa.string()), "")
    chunks = [
        _hashes(plain.slice(start, _CHUNK_ROWS)) for start in range(0, len(plain), _CHUNK_ROWS)
    ]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.uint64())


def _hashes(strings: pa.Array) -> pa.Array:
    joined = _bytes_of(strings)
    if joined.isascii():
        lengths = pc.binary_length(strings).to_numpy(zero_copy_only=False)
        if len(joined) and lengths.max() <= _SHORT:
            return _short_hashes(np.frombuffer(joined, np.uint8), lengths)
    units, ends = _code_units(strings)
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends.slice(0, len(ends) - 1)])
    inverse = _powers(_INVERSE, len(units))
    sums = pc.cumulative_sum(pc.multiply(units.cast(pa.uint64()), inverse))
    sums = pa.concat_arrays([pa.array([0], pa.uint64()), sums])
    between = pc.subtract(sums.take(ends), sums.take(starts))
    # The last unit counts once, so the sum is scaled by 31 to the power of its place.
    last = pc.max_element_wise(pc.subtract(ends, 1), pa.scalar(0, pa.int64()))
    scale = _powers(_FACTOR, len(units) + 1).take(last)
    return _low_bits(pc.multiply(between, scale))


def _short_hashes(letters: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int32]) -> pa.Array:
    """Return the hashes of short strings, by the first letter of all, the second, and so on."""
    starts = np.zeros(len(lengths), np.int64)
    np.cumsum(lengths[:-1], out=starts[1:])
    found = np.zeros(len(lengths), np.uint32)
    for place in range(int(lengths.max())):
        longer = lengths > place
        if longer.all():
            found = found * np.uint32(_FACTOR) + letters[starts + place]
        else:
            at = np.flatnonzero(longer)
            found[at] = found[at] * np.uint32(_FACTOR) + letters[starts[at] + place]
    return pa.array(found.astype(np.uint64))


def _code_units(strings: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the UTF-16 code units of all strings in a row, and where each string ends."""
    joined = _bytes_of(strings)
    if joined.isascii():
        units = pa.Array.from_buffers(pa.uint8(), len(joined), [None, pa.py_buffer(joined)])
        lengths = pc.binary_length(strings)
    else:
        data = joined.decode().encode("utf-16-le")
        units = pa.Array.from_buffers(pa.uint16(), len(data) // 2, [None, pa.py_buffer(data)])
        lengths = pc.add(pc.utf8_length(strings), _beyond_first_plane(strings))
    return units, pc.cumulative_sum(lengths.cast(pa.int64()))


def _bytes_of(strings: pa.Array) -> bytes:
    """Return the bytes of all strings in a row, which is how Arrow keeps them."""
    _, places, data = strings.buffers()
    if data is None:
        return b""
    offsets = memoryview(places).cast("i")
    start, end = offsets[strings.offset], offsets[strings.offset + len(strings)]
    return bytes(memoryview(data)[start:end])


def _beyond_first_plane(strings: pa.Array) -> pa.Array:
    """Return how many letters of each string take two code units."""
    return pc.count_substring_regex(strings, pattern="[\U00010000-\U0010ffff]")


def _powers(base: int, count: int) -> pa.Array:
    """Return the powers 0, 1 … of `base`, modulo 2^64."""
    ones = pa.repeat(_u64(base), max(0, count - 1))
    tail = pc.cumulative_prod(ones) if count > 1 else pa.array([], pa.uint64())
    return pa.concat_arrays([pa.array([1], pa.uint64()), tail]).slice(0, count)


def _low_bits(values: pa.Array) -> pa.Array:
    return pc.bit_wise_and(values, _u64(0xFFFF_FFFF))


def _u64(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())


def key_parts(record_key: str, fields: Sequence[str]) -> list[str | None]:
    """Return the values that a record key is hashed by: those of `fields` in it, in its order.

    A key without both `,` and `:` is one value. A value may hold either; a part ends at the last
    comma before the next `name:`.
    """
    if "," not in record_key or ":" not in record_key:
        return [record_key]
    values: list[str | None] = []
    position = 0
    while position < len(record_key):
        colon = record_key.index(":", position)
        name = record_key[position:colon]
        end = _part_end(record_key, colon)
        if name in fields:
            value = record_key[colon + 1 : end]
            values.append({NULL_PART: None, EMPTY_PART: ""}.get(value, value))
        position = len(record_key) if end is None else end + 1
    return values or [record_key]


def _part_end(record_key: str, colon: int) -> int | None:
    """Return the comma that ends the part whose value follows `colon`; None for the last part."""
    following = record_key.find(":", colon + 1)
    while following >= 0:
        comma = record_key.rfind(",", colon + 1, following)
        if comma >= 0:
            return comma
        following = record_key.find(":", following + 1)
    return None


def bucket_file_id(bucket: int, unique: str) -> str:
    """Return the id of a bucket's file group: `unique`, a UUID, with the bucket in front."""
    return f"{bucket:08d}{unique[8:]}-0"


def fixed_file_id(bucket: int) -> str:
    """Return the id that concurrent writers agree on without a word (non-blocking mode)."""
    return f"{bucket:08d}{_FIXED_TAIL}"


def bucket_of(file_id: str) -> int:
    """Return the bucket of a file group.

    Raises: `DataCorrupt` when the group was not made by a bucket index.
    """
    head = file_id[:8]
    if not (head.isascii() and head.isdigit() and len(head) == 8):
        raise DataCorrupt(
            f"the file group {file_id} is not a bucket's",
            hint="the table has another index; use the one it was written with",
        )
    return int(head)
