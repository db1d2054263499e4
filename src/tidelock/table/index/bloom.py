"""The bloom filter in a base file's footer, byte for byte as Hudi's DYNAMIC_V0 writes it.

Keys are hashed all at once: those of one length together, a column for each four bytes. A round's
hash seeds the next round; what the rounds do to the key's bytes alone is done only once.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.errors import DataCorrupt, Unsupported

FOOTER_FILTER: Final = "org.apache.hudi.bloomfilter"
FOOTER_TYPE: Final = "hoodie_bloom_filter_type_code"
FOOTER_MIN_KEY: Final = "hoodie_min_record_key"
FOOTER_MAX_KEY: Final = "hoodie_max_record_key"
DYNAMIC: Final = "DYNAMIC_V0"

ENTRIES: Final = 60_000
FALSE_POSITIVES: Final = 1e-9
ENTRIES_MAX: Final = 100_000
"""Hudi's defaults: keys per row, rate of false positives, and keys after which no row is added."""

_HEAD: Final = struct.Struct(">iibi")
_COUNTS: Final = struct.Struct(">iii")
_FILTER_VERSION: Final = -1
_MURMUR: Final = 1
_M: Final = 0x5BD1E995


@dataclass(frozen=True, slots=True)
class Shape:
    """How many bits a row has, how many of them a key sets, and how many keys a row takes."""

    bits: int
    hashes: int
    entries: int

    @classmethod
    def of(cls, entries: int = ENTRIES, rate: float = FALSE_POSITIVES) -> Shape:
        """Return Hudi's shape for so many keys at this rate of false positives."""
        bits = math.ceil(entries * (-math.log(rate) / (math.log(2) * math.log(2))))
        return cls(bits, math.ceil(math.log(2) * bits / entries), entries)


@dataclass(slots=True)
class BloomFilter:
    """Rows of bits; keys go to the last one, and to all in turn once there may be no more."""

    shape: Shape = field(default_factory=Shape.of)
    entries_max: int = ENTRIES_MAX
    rows: list[bytes] = field(default_factory=list)
    in_row: int = 0
    _turn: int = -1

    def __post_init__(self) -> None:
        """Start with one empty row."""
        if not self.rows:
            self._add_row()

    def add(self, keys: pa.Array) -> None:
        """Add record keys, in this order; how they are portioned makes no difference."""
        start = 0
        while start < len(keys):
            if self.in_row < self.shape.entries:
                size = min(self.shape.entries - self.in_row, len(keys) - start)
                self._set(len(self.rows) - 1, keys.slice(start, size))
                self.in_row += size
                start += size
            elif len(self.rows) * self.shape.entries < self.entries_max and self._turn < 0:
                self._add_row()
                self.in_row = 0
            else:
                self._spread(keys.slice(start))
                start = len(keys)

    def might_contain(self, keys: pa.Array) -> pa.Array:
        """Mark the keys that may have been added; the others were certainly not."""
        places = _places(keys, self.shape)
        found = pa.repeat(pa.scalar(value=False), len(keys))
        for number in range(len(self.rows)):
            bits = self._bits(number)
            here = bits.take(places[0])
            for place in places[1:]:
                here = pc.and_(here, bits.take(place))
            found = pc.or_(found, here)
        return found

    def _add_row(self) -> None:
        self.rows.append(bytes((self.shape.bits + 7) // 8))

    def _spread(self, keys: pa.Array) -> None:
        """Add keys beyond the last row's room: one to the first row, then to each row in turn."""
        # The first key too many does not count as a turn.
        place = pc.max_element_wise(pc.add(_counted(len(keys)), self._turn), 0)
        around = pc.multiply(pc.divide(place, len(self.rows)), len(self.rows))
        turns = pc.subtract(place, around)
        for number in range(len(self.rows)):
            self._set(number, keys.filter(pc.equal(turns, number)))
        self._turn += len(keys)
        self.in_row += len(keys)

    def _set(self, number: int, keys: pa.Array) -> None:
        """Set the bits of `keys` in one row. Arrow numbers bits as Hudi does, lowest first."""
        if not len(keys):
            return
        size = self.shape.bits
        places = pa.concat_arrays(_places(keys, self.shape))
        hit = pc.scatter(pa.repeat(pa.scalar(value=True), len(places)), places, max_index=size - 1)
        bits = pc.or_(self._bits(number), hit.is_valid())
        row = bytearray(memoryview(bits.buffers()[1])[: (size + 7) // 8])
        if size % 8:
            row[-1] &= (1 << size % 8) - 1
        self.rows[number] = bytes(row)

    def _bits(self, number: int) -> pa.Array:
        buffer = pa.py_buffer(self.rows[number])
        return pa.Array.from_buffers(pa.bool_(), self.shape.bits, [None, buffer])


def encode_filter(bloom: BloomFilter) -> str:
    """Return the filter as the text that stands in a footer."""
    head = _HEAD.pack(_FILTER_VERSION, bloom.shape.hashes, _MURMUR, bloom.shape.bits)
    parts = [head, _COUNTS.pack(bloom.shape.entries, bloom.in_row, len(bloom.rows))]
    for row in bloom.rows:
        parts += [head, row]
    return base64.b64encode(b"".join(parts)).decode()


def decode_filter(text: str, *, kind: str = DYNAMIC, where: str) -> BloomFilter:
    """Return the filter of a footer.

    Raises: `DataCorrupt`, `Unsupported` for another type of filter.
    """
    if kind != DYNAMIC:
        raise Unsupported(f"{where}: the bloom filter is of type {kind}, not {DYNAMIC}")
    try:
        data = base64.b64decode(text, validate=True)
        hashes, bits = _head(data, 0)
        entries, in_row, count = _COUNTS.unpack_from(data, _HEAD.size)
        position, width = _HEAD.size + _COUNTS.size, (bits + 7) // 8
        rows = []
        for _ in range(count):
            _head(data, position)
            position += _HEAD.size
            rows.append(data[position : position + width])
            position += width
    except (binascii.Error, struct.error, ValueError) as error:
        raise DataCorrupt(f"{where}: the bloom filter cannot be read: {error}") from error
    if position != len(data) or not rows:
        raise DataCorrupt(f"{where}: the bloom filter has {len(data)} bytes, not {position}")
    return BloomFilter(Shape(bits, hashes, entries), rows=rows, in_row=in_row)


def _head(data: bytes, position: int) -> tuple[int, int]:
    version, hashes, kind, bits = _HEAD.unpack_from(data, position)
    if (version, kind) != (_FILTER_VERSION, _MURMUR) or hashes < 1 or bits < 1:
        raise ValueError(f"version {version}, hash {kind}, {hashes} hashes of {bits} bits")
    return hashes, bits


def _places(keys: pa.Array, shape: Shape) -> list[pa.Array]:
    """Return for each hash which bit it stands for, for every key, in the keys' order."""
    binary = keys.cast(pa.binary())
    lengths = pc.binary_length(binary)
    order: list[pa.Array] = []
    found: list[list[pa.Array]] = [[] for _ in range(shape.hashes)]
    index = _counted(len(keys))
    for length in sorted(pc.unique(lengths).to_pylist()):
        same = pc.equal(lengths, length)
        order.append(index.filter(same))
        for number, place in enumerate(_rounds(binary.filter(same), length, shape)):
            found[number].append(place)
    if not order:
        return [pa.array([], pa.int64())] * shape.hashes
    back = pc.sort_indices(pa.concat_arrays(order))
    return [pa.concat_arrays(parts).take(back) for parts in found]


def _counted(size: int) -> pa.Array:
    """Return 0, 1, 2 … without a Python object for each."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), size)), 1)


def _rounds(keys: pa.Array, length: int, shape: Shape) -> list[pa.Array]:
    """Return the bits of keys that all have `length` bytes."""
    words = [_mixed(_word(keys, at)) for at in range(0, length - length % 4, 4)]
    tail = _tail(keys, length)
    seed = pa.repeat(_u32(0), len(keys))
    places = []
    for _ in range(shape.hashes):
        seed = _hash(seed, words, tail, length)
        # Java: Math.abs(hash % bits), with the sign of the dividend; so of the absolute value.
        number = pc.abs(seed.view(pa.int32()).cast(pa.int64()))
        whole = pc.multiply(pc.divide(number, shape.bits), shape.bits)
        places.append(pc.subtract(number, whole))
    return places


def _hash(
    seed: pa.Array, words: Sequence[pa.Array], tail: pa.Array | None, length: int
) -> pa.Array:
    """Return MurmurHash2 of every key, each with its own seed."""
    value = pc.bit_wise_xor(seed, _u32(length))
    for word in words:
        value = pc.bit_wise_xor(pc.multiply(value, _u32(_M)), word)
    if tail is not None:
        value = pc.multiply(pc.bit_wise_xor(value, tail), _u32(_M))
    value = pc.multiply(pc.bit_wise_xor(value, pc.shift_right(value, _u32(13))), _u32(_M))
    return pc.bit_wise_xor(value, pc.shift_right(value, _u32(15)))


def _word(keys: pa.Array, at: int) -> pa.Array:
    return _numbers(pc.binary_slice(keys, at, at + 4), pa.uint32())


def _mixed(word: pa.Array) -> pa.Array:
    word = pc.multiply(word, _u32(_M))
    return pc.multiply(pc.bit_wise_xor(word, pc.shift_right(word, _u32(24))), _u32(_M))


def _tail(keys: pa.Array, length: int) -> pa.Array | None:
    """Return what the last one to three bytes add. Java extends their sign, which Hudi keeps."""
    tail: pa.Array | None = None
    for back in range(1, length % 4 + 1):
        at = length - back
        octet = _numbers(pc.binary_slice(keys, at, at + 1), pa.int8()).cast(pa.int32())
        part = pc.shift_left(octet.view(pa.uint32()), _u32(8 * (back - 1)))
        tail = part if tail is None else pc.bit_wise_xor(tail, part)
    return tail


def _numbers(slices: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return byte strings of a number's width as those numbers, without copying them."""
    width = kind.bit_width // 8
    offsets = memoryview(slices.buffers()[1]).cast("i")
    start = offsets[slices.offset]
    data = slices.buffers()[2].slice(start, len(slices) * width)
    return pa.Array.from_buffers(kind, len(slices), [None, data])


def _u32(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint32())
