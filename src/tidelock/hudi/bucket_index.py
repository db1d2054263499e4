"""The bucket index: maps keys to file groups by Java's hash of the key.

The hash of a string is computed over its UTF-16 code units, that of a list over the hashes of its
strings, both with factor 31 in wrapping 32-bit arithmetic. All strings are hashed at once: short
ones by the first unit of each, then the second, and so on. For long ones, 31 has an inverse modulo
2^64: with a running sum of units, each divided by 31 to the power of its position, the hash of
every string is a scaled difference of two sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.core.errors import DataCorrupt, InvalidInput
from tidelock.hudi.keys import EMPTY_PART, NULL_PART

_WORD: Final = 2**64
_FACTOR: Final = 31
_INVERSE: Final = pow(_FACTOR, -1, _WORD)
_CHUNK_ROWS: Final = 32 * 1024
"""Running sums take 8 bytes per character, so keys are hashed in batches."""

_SHORT_BYTES_MAX: Final = 48
"""Strings up to this length are hashed by position, all at once."""

_FIXED_TAIL: Final = "-0000-0000-0000-000000000000-0"


def bucket_ids(parts: Sequence[pa.Array], buckets: int) -> pa.Array:
    """Return the bucket of each row; `parts` has the text of each hash field, null for null.

    For a table hashed by its whole record key, the only part is the record keys.
    """
    if buckets < 1:
        raise InvalidInput(f"expected at least one bucket, got {buckets}")
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
        _hash_chunk(plain.slice(start, _CHUNK_ROWS)) for start in range(0, len(plain), _CHUNK_ROWS)
    ]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.uint64())


def _hash_chunk(strings: pa.Array) -> pa.Array:
    joined = _joined_bytes(strings)
    if joined.isascii():
        lengths = pc.binary_length(strings).to_numpy(zero_copy_only=False)
        if len(joined) and lengths.max() <= _SHORT_BYTES_MAX:
            return _hash_short(np.frombuffer(joined, np.uint8), lengths)
    units, ends = _code_units(strings, joined)
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends.slice(0, len(ends) - 1)])
    inverse = _powers(_INVERSE, len(units))
    sums = pc.cumulative_sum(pc.multiply(units.cast(pa.uint64()), inverse))
    sums = pa.concat_arrays([pa.array([0], pa.uint64()), sums])
    between = pc.subtract(sums.take(ends), sums.take(starts))
    # The last unit has factor 1, so scale the sum by 31 to the power of its position.
    last = pc.max_element_wise(pc.subtract(ends, 1), pa.scalar(0, pa.int64()))
    scale = _powers(_FACTOR, len(units) + 1).take(last)
    return _low_bits(pc.multiply(between, scale))


def _hash_short(characters: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int32]) -> pa.Array:
    """Hash short strings by the first character of each, then the second, and so on."""
    starts = np.zeros(len(lengths), np.int64)
    np.cumsum(lengths[:-1], out=starts[1:])
    found = np.zeros(len(lengths), np.uint32)
    for position in range(int(lengths.max())):
        longer = lengths > position
        if longer.all():
            found = found * np.uint32(_FACTOR) + characters[starts + position]
        else:
            at = np.flatnonzero(longer)
            found[at] = found[at] * np.uint32(_FACTOR) + characters[starts[at] + position]
    return pa.array(found.astype(np.uint64))


def _code_units(strings: pa.Array, joined: bytes) -> tuple[pa.Array, pa.Array]:
    """Return the UTF-16 code units of all strings, concatenated, and the end of each string."""
    if joined.isascii():
        units = pa.Array.from_buffers(pa.uint8(), len(joined), [None, pa.py_buffer(joined)])
        lengths = pc.binary_length(strings)
    else:
        data = joined.decode().encode("utf-16-le")
        units = pa.Array.from_buffers(pa.uint16(), len(data) // 2, [None, pa.py_buffer(data)])
        # These characters take two code units.
        pairs = pc.count_substring_regex(strings, pattern="[\U00010000-\U0010ffff]")
        lengths = pc.add(pc.utf8_length(strings), pairs)
    return units, pc.cumulative_sum(lengths.cast(pa.int64()))


def _joined_bytes(strings: pa.Array) -> bytes:
    """Return the bytes of all strings, concatenated as in Arrow's buffer."""
    _, buffer, data = strings.buffers()
    if data is None:
        return b""
    offsets = memoryview(buffer).cast("i")
    start, end = offsets[strings.offset], offsets[strings.offset + len(strings)]
    return bytes(memoryview(data)[start:end])


def _powers(base: int, count: int) -> pa.Array:
    """Return the powers 0, 1 … of `base` modulo 2^64."""
    ones = pa.repeat(_u64(base), max(0, count - 1))
    tail = pc.cumulative_prod(ones) if count > 1 else pa.array([], pa.uint64())
    return pa.concat_arrays([pa.array([1], pa.uint64()), tail]).slice(0, count)


def _low_bits(values: pa.Array) -> pa.Array:
    return pc.bit_wise_and(values, _u64(0xFFFF_FFFF))


def _u64(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())


def key_parts(record_key: str, fields: Sequence[str]) -> list[str | None]:
    """Return the values by which a record key is hashed: those of `fields`, in the key's order.

    A key without both `,` and `:` is one value. A value may contain either; a part ends at the last
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
    """Return the position of the comma that ends a part; None for the last part."""
    following = record_key.find(":", colon + 1)
    while following >= 0:
        comma = record_key.rfind(",", colon + 1, following)
        if comma >= 0:
            return comma
        following = record_key.find(":", following + 1)
    return None


def bucket_file_id(bucket: int, unique: str) -> str:
    """Return the id of a bucket's file group: `unique`, a UUID, prefixed with the bucket."""
    return f"{bucket:08d}{unique[8:]}-0"


def fixed_file_id(bucket: int) -> str:
    """Return the id that concurrent writers derive without coordination (non-blocking mode)."""
    return f"{bucket:08d}{_FIXED_TAIL}"


def bucket_of(file_id: str) -> int:
    """Return the bucket of a file group. Raises: `DataCorrupt` if it has none."""
    head = file_id[:8]
    if not (head.isascii() and head.isdigit() and len(head) == 8):
        raise DataCorrupt(
            f"file group {file_id} does not belong to a bucket index",
            hint="use the index that the table was written with",
        )
    return int(head)
