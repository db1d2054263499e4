"""The bloom filter in the footer of a base file, byte-compatible with Hudi's DYNAMIC_V0.

Keys are hashed in batches: those of equal length together, four bytes at a time. Each hash seeds
the next round; the part of a round that depends only on the key is computed once.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.core.errors import DataCorrupt, Unsupported

FOOTER_FILTER: Final = "org.apache.hudi.bloomfilter"
FOOTER_TYPE: Final = "hoodie_bloom_filter_type_code"
FOOTER_MIN_KEY: Final = "hoodie_min_record_key"
FOOTER_MAX_KEY: Final = "hoodie_max_record_key"
DYNAMIC: Final = "DYNAMIC_V0"

ENTRIES: Final = 60_000
FALSE_POSITIVES: Final = 1e-9
ENTRIES_MAX: Final = 100_000
"""Hudi's defaults: keys per row, false positive rate, and keys after which no row is added."""

_HEAD: Final = struct.Struct(">iibi")
_COUNTS: Final = struct.Struct(">iii")
_FILTER_VERSION: Final = -1
_MURMUR: Final = 1
_M: Final = np.uint32(0x5BD1E995)
_KEYS_PER_BATCH: Final = 8_192

Octets = npt.NDArray[np.uint8]
Index = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BloomShape:
    """The size of a filter: bits per row, hashes per key, and keys per row."""

    bits: int
    hashes: int
    entries: int

    @classmethod
    def of(cls, entries: int = ENTRIES, rate: float = FALSE_POSITIVES) -> BloomShape:
        """Return Hudi's shape for this number of keys and false positive rate."""
        bits = math.ceil(entries * (-math.log(rate) / (math.log(2) * math.log(2))))
        return cls(bits, math.ceil(math.log(2) * bits / entries), entries)


@dataclass(slots=True)
class BloomFilter:
    """Rows of bits. Keys go to the last row, and to all in turn once no more rows may be added."""

    shape: BloomShape = field(default_factory=BloomShape.of)
    entries_max: int = ENTRIES_MAX
    rows: list[bytes] = field(default_factory=list)
    in_row: int = 0
    _next_row: int = -1

    def __post_init__(self) -> None:
        """Start with one empty row."""
        if not self.rows:
            self._add_row()

    def add(self, keys: pa.Array) -> None:
        """Add record keys, in this order; the batch size makes no difference."""
        start = 0
        while start < len(keys):
            if self.in_row < self.shape.entries:
                size = min(self.shape.entries - self.in_row, len(keys) - start)
                self._set(len(self.rows) - 1, keys.slice(start, size))
                self.in_row += size
                start += size
            elif len(self.rows) * self.shape.entries < self.entries_max and self._next_row < 0:
                self._add_row()
                self.in_row = 0
            else:
                self._add_round_robin(keys.slice(start))
                start = len(keys)

    def include(self, other: BloomFilter) -> None:
        """Add the keys of a filter of the same shape; rows are combined if all keys fit."""
        for number, row in enumerate(other.rows, start=1):
            size = self.shape.entries if number < len(other.rows) else other.in_row
            last = len(self.rows) - 1
            if self.in_row + size <= self.shape.entries:
                self._merge_row(last, row)
                self.in_row += size
            elif len(self.rows) * self.shape.entries < self.entries_max and self._next_row < 0:
                self.rows.append(row)
                self.in_row = size
            else:
                self._next_row = max(0, self._next_row) + 1
                self._merge_row(self._next_row % len(self.rows), row)
                self.in_row += size

    def might_contain(self, keys: pa.Array) -> pa.Array:
        """Mark the keys that may have been added; the others certainly were not."""
        found = np.zeros(len(keys), np.bool_)
        rows = [self._bits(number) for number in range(len(self.rows))]
        for at, positions in _bit_positions(keys, self.shape):
            for bits in rows:
                found[at] |= bits[positions].all(axis=0)
        return pa.array(found)

    def _add_row(self) -> None:
        self.rows.append(bytes((self.shape.bits + 7) // 8))

    def _add_round_robin(self, keys: pa.Array) -> None:
        """Add keys beyond the capacity: one to the first row, then to each row in turn."""
        # The first excess key does not advance the row.
        target_rows = np.maximum(np.arange(len(keys)) + self._next_row, 0) % len(self.rows)
        for number in range(len(self.rows)):
            self._set(number, keys.filter(pa.array(target_rows == number)))
        self._next_row += len(keys)
        self.in_row += len(keys)

    def _merge_row(self, number: int, row: bytes) -> None:
        both = np.frombuffer(self.rows[number], np.uint8) | np.frombuffer(row, np.uint8)
        self.rows[number] = both.tobytes()

    def _set(self, number: int, keys: pa.Array) -> None:
        """Set the bits of `keys` in one row. Hudi numbers the bits of a byte from the lowest."""
        if not len(keys):
            return
        bits = self._bits(number)
        for _, positions in _bit_positions(keys, self.shape):
            bits[positions.reshape(-1)] = True
        self.rows[number] = np.packbits(bits, bitorder="little").tobytes()

    def _bits(self, number: int) -> npt.NDArray[np.bool_]:
        packed = np.frombuffer(self.rows[number], np.uint8)
        return np.unpackbits(packed, count=self.shape.bits, bitorder="little").view(np.bool_)


def encode_filter(bloom: BloomFilter) -> str:
    """Encode the filter as text for a footer."""
    head = _HEAD.pack(_FILTER_VERSION, bloom.shape.hashes, _MURMUR, bloom.shape.bits)
    parts = [head, _COUNTS.pack(bloom.shape.entries, bloom.in_row, len(bloom.rows))]
    for row in bloom.rows:
        parts += [head, row]
    return base64.b64encode(b"".join(parts)).decode()


def decode_filter(text: str, *, kind: str = DYNAMIC, where: str) -> BloomFilter:
    """Decode the filter of a footer. Raises: `DataCorrupt`, `Unsupported` for another type."""
    if kind != DYNAMIC:
        raise Unsupported(f"{where}: expected a bloom filter of type {DYNAMIC}, found {kind}")
    try:
        data = base64.b64decode(text, validate=True)
        hashes, bits = _parse_header(data, 0)
        entries, in_row, count = _COUNTS.unpack_from(data, _HEAD.size)
        position, width = _HEAD.size + _COUNTS.size, (bits + 7) // 8
        rows = []
        for _ in range(count):
            _parse_header(data, position)
            position += _HEAD.size
            rows.append(data[position : position + width])
            position += width
    except (binascii.Error, struct.error, ValueError) as error:
        raise DataCorrupt(f"{where}: the bloom filter cannot be read: {error}") from error
    if position != len(data) or not rows:
        raise DataCorrupt(
            f"{where}: expected a bloom filter of {position} bytes, found {len(data)}"
        )
    return BloomFilter(BloomShape(bits, hashes, entries), rows=rows, in_row=in_row)


def _parse_header(data: bytes, position: int) -> tuple[int, int]:
    version, hashes, kind, bits = _HEAD.unpack_from(data, position)
    if (version, kind) != (_FILTER_VERSION, _MURMUR) or hashes < 1 or bits < 1:
        raise ValueError(f"version {version}, hash {kind}, {hashes} hashes of {bits} bits")
    return hashes, bits


def _bit_positions(keys: pa.Array, shape: BloomShape) -> Iterator[tuple[Index, Index]]:
    """Yield batches that fit a processor cache: indexes and bit positions, a row per hash."""
    binary = keys.cast(pa.binary())
    offsets = np.frombuffer(binary.buffers()[1], np.int32)
    offsets = offsets[binary.offset : binary.offset + len(binary) + 1]
    data = np.frombuffer(binary.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    for length in np.unique(lengths).tolist():
        same = np.flatnonzero(lengths == length)
        for start in range(0, len(same), _KEYS_PER_BATCH):
            at = same[start : start + _KEYS_PER_BATCH]
            octets = data[offsets[at][:, None] + np.arange(length)]
            yield at, _hash_rounds(octets, shape)


def _hash_rounds(octets: Octets, shape: BloomShape) -> Index:
    """Return the bit positions of keys of equal length, given as rows of `octets`."""
    count, length = octets.shape
    whole = length - length % 4
    words = np.ascontiguousarray(octets[:, :whole]).view("<u4").T.copy()
    words *= _M
    words ^= words >> 24
    words *= _M
    tail = _tail(octets, whole)
    positions = np.empty((shape.hashes, count), np.int64)
    value = np.zeros(count, np.uint32)
    for number in range(shape.hashes):
        value ^= np.uint32(length)
        for word in words:
            value *= _M
            value ^= word
        if tail is not None:
            value ^= tail
            value *= _M
        value ^= value >> 13
        value *= _M
        value ^= value >> 15
        # Java computes Math.abs(hash % bits), which equals abs(hash) % bits.
        positions[number] = np.abs(value.view(np.int32).astype(np.int64)) % shape.bits
    return positions


def _tail(octets: Octets, whole: int) -> npt.NDArray[np.uint32] | None:
    """Return the contribution of the last one to three bytes, sign-extended as in Java."""
    count, length = octets.shape
    if whole == length:
        return None
    tail = np.zeros(count, np.uint32)
    for back in range(1, length - whole + 1):
        octet = octets[:, length - back].astype(np.int8).astype(np.int32).view(np.uint32)
        tail ^= octet << np.uint32(8 * (back - 1))
    return tail
