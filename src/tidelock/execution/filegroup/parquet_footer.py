"""Parquet footers: parsing and encoding, as far as row groups are copied between files. Pure.

Names and numbers follow parquet.thrift.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from tidelock.core.errors import DataCorrupt


class ThriftType(IntEnum):
    """The type of a value in the compact protocol; a boolean field's type is its value."""

    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    MAP = 11
    STRUCT = 12
    UUID = 13


class ThriftList(NamedTuple):
    """A list or set, with the type of its items."""

    kind: int
    items: list[Any]


class ThriftMap(NamedTuple):
    """A map, with the types of its keys and values."""

    key_kind: int
    value_kind: int
    items: list[tuple[Any, Any]]


Struct = dict[int, tuple[int, Any]]
"""Fields by number: the type and value of each."""

DEPTH_MAX: Final = 64
_DOUBLE: Final = struct.Struct("<d")


def decode(data: bytes | memoryview, *, where: str) -> Struct:
    """Decode the struct in `data`, which must not contain anything else. Raises: `DataCorrupt`."""
    reader = _Reader(memoryview(data).cast("B"))
    try:
        found = reader.struct(0)
    except (IndexError, ValueError, struct.error) as error:
        raise DataCorrupt(f"{where}: the footer cannot be parsed: {error}") from error
    if reader.position != len(data):
        raise DataCorrupt(f"{where}: the footer has {len(data) - reader.position} extra bytes")
    return found


def encode(value: Struct) -> bytes:
    """Encode a struct."""
    out = bytearray()
    _put_struct(out, value)
    return bytes(out)


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.position = 0

    def struct(self, depth: int) -> Struct:
        if depth > DEPTH_MAX:
            raise ValueError(f"structs are nested deeper than {DEPTH_MAX}")
        found: Struct = {}
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return found
            kind, step = head & 0x0F, head >> 4
            number = number + step if step else self._signed()
            is_bool = kind in (ThriftType.TRUE, ThriftType.FALSE)
            value = kind == ThriftType.TRUE if is_bool else self._value(kind, depth)
            found[number] = (kind, value)

    def _value(self, kind: int, depth: int) -> Any:
        read = self._READS.get(kind)
        if read is not None:
            return read(self)
        match kind:
            case ThriftType.STRUCT:
                return self.struct(depth + 1)
            case ThriftType.LIST | ThriftType.SET:
                return self._sequence(depth)
            case ThriftType.MAP:
                return self._map(depth)
            case _:
                raise ValueError(f"unknown type {kind}")

    def _sequence(self, depth: int) -> ThriftList:
        head = self._byte()
        size, kind = head >> 4, head & 0x0F
        if size == 0x0F:
            size = self._varint()
        self._check(size)
        return ThriftList(kind, [self._value(kind, depth + 1) for _ in range(size)])

    def _map(self, depth: int) -> ThriftMap:
        size = self._varint()
        self._check(size)
        if not size:
            return ThriftMap(0, 0, [])
        kinds = self._byte()
        keys, values = kinds >> 4, kinds & 0x0F
        items = [
            (self._value(keys, depth + 1), self._value(values, depth + 1)) for _ in range(size)
        ]
        return ThriftMap(keys, values, items)

    def _check(self, size: int) -> None:
        # Each item takes at least one byte: reject impossible lengths before allocating.
        if size > len(self._data) - self.position:
            raise ValueError(f"{size} items exceed the remaining bytes")

    def _byte(self) -> int:
        found = self._data[self.position]
        self.position += 1
        return found

    def _flag(self) -> bool:
        return self._byte() == ThriftType.TRUE

    def _octet(self) -> int:
        found = self._byte()
        return found - 256 if found > 127 else found

    def _varint(self) -> int:
        found = shift = 0
        data, position = self._data, self.position
        while True:
            byte = data[position]
            position += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return found
            shift += 7
            if shift > 63:
                raise ValueError("a number has more than ten bytes")

    def _signed(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)

    def _double(self) -> float:
        (found,) = _DOUBLE.unpack(self._bytes(8))
        return float(found)

    def _binary(self) -> bytes:
        return self._bytes(self._varint())

    def _uuid(self) -> bytes:
        return self._bytes(16)

    def _bytes(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self._data):
            raise ValueError(f"{size} bytes exceed the footer")
        found = bytes(self._data[self.position : end])
        self.position = end
        return found

    _READS: Final[dict[int, Callable[[_Reader], Any]]] = {
        ThriftType.TRUE: _flag,
        ThriftType.FALSE: _flag,
        ThriftType.BYTE: _octet,
        ThriftType.I16: _signed,
        ThriftType.I32: _signed,
        ThriftType.I64: _signed,
        ThriftType.DOUBLE: _double,
        ThriftType.BINARY: _binary,
        ThriftType.UUID: _uuid,
    }


def _put_struct(out: bytearray, value: Struct) -> None:
    before = 0
    for number, (kind, content) in sorted(value.items()):
        step = number - before
        is_bool = kind in (ThriftType.TRUE, ThriftType.FALSE)
        type_code = kind if not is_bool else ThriftType.TRUE if content else ThriftType.FALSE
        if 0 < step < 16:
            out.append(step << 4 | type_code)
        else:
            out.append(type_code)
            _put_varint(out, _zigzag(number))
        before = number
        if not is_bool:
            _put(out, kind, content)
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    match kind:
        case ThriftType.TRUE | ThriftType.FALSE:
            out.append(ThriftType.TRUE if value else ThriftType.FALSE)
        case ThriftType.BYTE:
            out.append(value & 0xFF)
        case ThriftType.I16 | ThriftType.I32 | ThriftType.I64:
            _put_varint(out, _zigzag(value))
        case ThriftType.DOUBLE:
            out += _DOUBLE.pack(value)
        case ThriftType.BINARY:
            _put_varint(out, len(value))
            out += value
        case ThriftType.UUID:
            out += value
        case ThriftType.LIST | ThriftType.SET:
            _put_sequence(out, value)
        case ThriftType.MAP:
            _put_map(out, value)
        case _:
            _put_struct(out, value)


def _put_sequence(out: bytearray, value: ThriftList) -> None:
    size = len(value.items)
    if size < 0x0F:
        out.append(size << 4 | value.kind)
    else:
        out.append(0xF0 | value.kind)
        _put_varint(out, size)
    for item in value.items:
        _put(out, value.kind, item)


def _put_map(out: bytearray, value: ThriftMap) -> None:
    _put_varint(out, len(value.items))
    if value.items:
        out.append(value.key_kind << 4 | value.value_kind)
    for key, item in value.items:
        _put(out, value.key_kind, key)
        _put(out, value.value_kind, item)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


MAGIC: Final = b"PAR1"
TAIL_BYTES: Final = 8
"""The length of the footer and the magic."""

_VERSION, _SCHEMA, _ROWS, _GROUPS, _PAIRS, _CREATED_BY, _ORDERS = 1, 2, 3, 4, 5, 6, 7
_ENCRYPTION: Final = (8, 9)
_GROUP_CHUNKS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_PACKED, _GROUP_ORDINAL = (
    1, 2, 3, 5, 6, 7,
)  # fmt: skip
_CHUNK_PATH, _CHUNK_OFFSET, _CHUNK_META = 1, 2, 3
_CHUNK_INDEXES: Final = (4, 5, 6, 7)
_CHUNK_CRYPTO: Final = (8, 9)
_META_PATH, _META_UNPACKED, _META_PACKED, _META_DATA, _META_INDEX, _META_DICTIONARY = (
    3, 6, 7, 9, 10, 11,
)  # fmt: skip
_META_BLOOM: Final = (14, 15)
_ELEMENT_REPETITION, _ELEMENT_NAME, _ELEMENT_ID = 3, 4, 9
_ORDINAL_MAX: Final = 32_767

_TRUSTED_WRITERS: Final = re.compile(
    r"parquet-cpp-arrow version |parquet-rs version |parquet-mr version 1\.[1-9]\d"
)
"""Writers without known defects; readers have workarounds for others."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column chunk of a row group: its position, size and metadata."""

    raw: Struct
    name: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group and its column chunks."""

    raw: Struct
    chunks: tuple[Chunk, ...]
    rows: int

    @property
    def size(self) -> int:
        """The total size of its column chunks."""
        return sum(chunk.size for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of a Parquet file."""

    raw: Struct
    groups: tuple[RowGroup, ...]
    pairs: Mapping[str, str]

    @property
    def layout(self) -> tuple[bytes, ...]:
        """What two files must have in common for row groups to be copied between them.

        The name of the schema, and field ids assigned by other systems, are ignored.
        """
        elements = _items(self.raw, _SCHEMA)
        count = elements[0].get(5, (ThriftType.I32, 0)) if elements else (ThriftType.I32, 0)
        rest = ({k: v for k, v in each.items() if k != _ELEMENT_ID} for each in elements[1:])
        orders = encode({_ORDERS: self.raw[_ORDERS]}) if _ORDERS in self.raw else b""
        return (encode({5: count}), *(encode(each) for each in rest), orders)

    @property
    def is_plain(self) -> bool:
        """Whether it is a single file, not encrypted, from a writer without known defects."""
        chunks = [chunk.raw for group in self.groups for chunk in group.chunks]
        if any(field in self.raw for field in _ENCRYPTION):
            return False
        if any(field in raw for raw in chunks for field in (_CHUNK_PATH, *_CHUNK_CRYPTO)):
            return False
        created_by = self.raw.get(_CREATED_BY, (ThriftType.BINARY, b""))[1]
        return _TRUSTED_WRITERS.match(created_by.decode(errors="replace")) is not None


def parse_footer(body: bytes | memoryview, *, where: str) -> Footer:
    """Parse a footer. Raises: `DataCorrupt`."""
    raw = decode(body, where=where)
    try:
        groups = tuple(_group(each) for each in _items(raw, _GROUPS))
        pairs = {_text(each, 1): _text(each, 2) for each in _items(raw, _PAIRS)}
    except (AttributeError, IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise DataCorrupt(
            f"{where}: required fields of the footer are missing: {error!r}"
        ) from error
    return Footer(raw, groups, pairs)


def footer_bytes(like: Footer, groups: list[Struct], pairs: Mapping[str, str]) -> bytes:
    """Return the end of a file with these row groups: footer, its length, and the magic.

    Everything else is copied from `like`.
    """
    rows = sum(_int(group, _GROUP_ROWS) for group in groups)
    raw: Struct = {
        **like.raw,
        _ROWS: (ThriftType.I64, rows),
        _GROUPS: (ThriftType.LIST, ThriftList(ThriftType.STRUCT, groups)),
    }
    raw.pop(_PAIRS, None)
    if pairs:
        listed: list[Any] = [
            {1: (ThriftType.BINARY, key.encode()), 2: (ThriftType.BINARY, value.encode())}
            for key, value in pairs.items()
        ]
        raw[_PAIRS] = (ThriftType.LIST, ThriftList(ThriftType.STRUCT, listed))
    body = encode(raw)
    return body + len(body).to_bytes(4, "little") + MAGIC


def moved_group(group: RowGroup, chunks: list[Struct], *, ordinal: int) -> Struct:
    """Return the footer entry of a row group with these moved chunks."""
    metas = [chunk[_CHUNK_META][1] for chunk in chunks]
    raw = dict(group.raw)
    raw[_GROUP_CHUNKS] = (ThriftType.LIST, ThriftList(ThriftType.STRUCT, chunks))
    raw[_GROUP_BYTES] = (ThriftType.I64, sum(_int(meta, _META_UNPACKED) for meta in metas))
    raw[_GROUP_PACKED] = (ThriftType.I64, sum(_int(meta, _META_PACKED) for meta in metas))
    raw[_GROUP_OFFSET] = (ThriftType.I64, min(_start(meta) for meta in metas))
    raw.pop(_GROUP_ORDINAL, None)
    if ordinal <= _ORDINAL_MAX:
        raw[_GROUP_ORDINAL] = (ThriftType.I16, ordinal)
    return raw


def moved_chunk(chunk: Chunk, start: int) -> Struct:
    """Return the footer entry of a chunk that was moved to `start` of another file.

    References to indexes and filters elsewhere in its file are dropped: they are optional.
    """
    shift = start - chunk.start
    meta: Struct = dict(chunk.raw[_CHUNK_META][1])
    for field in (_META_DATA, _META_DICTIONARY, _META_INDEX):
        if _int(meta, field) > 0:
            meta[field] = (ThriftType.I64, _int(meta, field) + shift)
    for field in _META_BLOOM:
        meta.pop(field, None)
    raw = {k: v for k, v in chunk.raw.items() if k not in _CHUNK_INDEXES}
    raw[_CHUNK_OFFSET] = (ThriftType.I64, 0)
    raw[_CHUNK_META] = (ThriftType.STRUCT, meta)
    return raw


def is_required(footer: Footer, name: str) -> bool:
    """Return whether a top-level column is not nullable."""
    for element in _items(footer.raw, _SCHEMA)[1:]:
        if _text(element, _ELEMENT_NAME) == name:
            return _int(element, _ELEMENT_REPETITION) == 0
    return False


def _group(raw: Struct) -> RowGroup:
    chunks = tuple(_chunk(each) for each in _items(raw, _GROUP_CHUNKS))
    return RowGroup(raw, chunks, _int(raw, _GROUP_ROWS))


def _chunk(raw: Struct) -> Chunk:
    meta: Struct = raw[_CHUNK_META][1]
    path = b".".join(meta[_META_PATH][1].items).decode()
    return Chunk(raw, path, _start(meta), _int(meta, _META_PACKED))


def _start(meta: Struct) -> int:
    data, dictionary = _int(meta, _META_DATA), _int(meta, _META_DICTIONARY)
    return dictionary if 0 < dictionary < data else data


def _items(raw: Struct, field: int) -> list[Any]:
    found: list[Any] = raw[field][1].items if field in raw else []
    return found


def _int(raw: Struct, field: int) -> int:
    return int(raw[field][1]) if field in raw else 0


def _text(raw: Struct, field: int) -> str:
    found: bytes = raw[field][1] if field in raw else b""
    return found.decode()
