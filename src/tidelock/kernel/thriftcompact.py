"""Thrift's compact protocol, which Parquet footers are written in. Pure.

Structs are read without knowing what their fields mean, and are written as they were read: fields
that only a later version of Parquet gives a meaning come through unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple

from tidelock.base.errors import DataCorrupt


class Kind(IntEnum):
    """The type of a value, as it stands in the bytes; a boolean field's type is its value."""

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


class Sequence(NamedTuple):
    """A list or set, with the type of its items."""

    kind: int
    items: list[Any]


class Mapped(NamedTuple):
    """A map, with the types of its keys and values."""

    key_kind: int
    value_kind: int
    items: list[tuple[Any, Any]]


Struct = dict[int, tuple[int, Any]]
"""Fields by their number: the type and the value of each."""

DEPTH_MAX: Final = 64
_DOUBLE: Final = struct.Struct("<d")


def decode(data: bytes | memoryview, *, where: str) -> Struct:
    """Return the struct that `data` holds, and nothing after it.

    Raises: `DataCorrupt`.
    """
    reader = _Reader(memoryview(data).cast("B"))
    try:
        found = reader.struct(0)
    except (IndexError, ValueError, struct.error) as error:
        raise DataCorrupt(f"{where}: the footer cannot be parsed: {error}") from error
    if reader.position != len(data):
        raise DataCorrupt(f"{where}: the footer has {len(data) - reader.position} stray bytes")
    return found


def encode(value: Struct) -> bytes:
    """Return the bytes of a struct."""
    out = bytearray()
    _put_struct(out, value)
    return bytes(out)


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.position = 0

    def struct(self, depth: int) -> Struct:
        if depth > DEPTH_MAX:
            raise ValueError(f"structs are nested more than {DEPTH_MAX} deep")
        found: Struct = {}
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return found
            kind, step = head & 0x0F, head >> 4
            number = number + step if step else self._signed()
            found[number] = (kind, self._field(kind, depth))

    def _field(self, kind: int, depth: int) -> Any:
        if kind in (Kind.TRUE, Kind.FALSE):
            return kind == Kind.TRUE
        return self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        read = self._READS.get(kind)
        if read is not None:
            return read(self)
        match kind:
            case Kind.STRUCT:
                return self.struct(depth + 1)
            case Kind.LIST | Kind.SET:
                return self._sequence(depth)
            case Kind.MAP:
                return self._map(depth)
            case _:
                raise ValueError(f"there is no type {kind}")

    def _sequence(self, depth: int) -> Sequence:
        head = self._byte()
        size, kind = head >> 4, head & 0x0F
        if size == 0x0F:
            size = self._varint()
        self._check(size)
        return Sequence(kind, [self._value(kind, depth + 1) for _ in range(size)])

    def _map(self, depth: int) -> Mapped:
        size = self._varint()
        self._check(size)
        if not size:
            return Mapped(0, 0, [])
        kinds = self._byte()
        keys, values = kinds >> 4, kinds & 0x0F
        items = [
            (self._value(keys, depth + 1), self._value(values, depth + 1)) for _ in range(size)
        ]
        return Mapped(keys, values, items)

    def _check(self, size: int) -> None:
        # Each item takes a byte at least: a length that cannot be is not worth a list for it.
        if size > len(self._data) - self.position:
            raise ValueError(f"{size} items do not fit into what is left")

    def _byte(self) -> int:
        found = self._data[self.position]
        self.position += 1
        return found

    def _flag(self) -> bool:
        return self._byte() == Kind.TRUE

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
            raise ValueError(f"{size} bytes run past the end")
        found = bytes(self._data[self.position : end])
        self.position = end
        return found

    _READS: Final[dict[int, Callable[[_Reader], Any]]] = {
        Kind.TRUE: _flag,
        Kind.FALSE: _flag,
        Kind.BYTE: _octet,
        Kind.I16: _signed,
        Kind.I32: _signed,
        Kind.I64: _signed,
        Kind.DOUBLE: _double,
        Kind.BINARY: _binary,
        Kind.UUID: _uuid,
    }


def _put_struct(out: bytearray, value: Struct) -> None:
    before = 0
    for number, (kind, content) in sorted(value.items()):
        step = number - before
        flag = kind in (Kind.TRUE, Kind.FALSE)
        said = kind if not flag else Kind.TRUE if content else Kind.FALSE
        if 0 < step < 16:
            out.append(step << 4 | said)
        else:
            out.append(said)
            _put_varint(out, _zigzag(number))
        before = number
        if not flag:
            _put(out, kind, content)
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    match kind:
        case Kind.TRUE | Kind.FALSE:
            out.append(Kind.TRUE if value else Kind.FALSE)
        case Kind.BYTE:
            out.append(value & 0xFF)
        case Kind.I16 | Kind.I32 | Kind.I64:
            _put_varint(out, _zigzag(value))
        case Kind.DOUBLE:
            out += _DOUBLE.pack(value)
        case Kind.BINARY:
            _put_varint(out, len(value))
            out += value
        case Kind.UUID:
            out += value
        case Kind.LIST | Kind.SET:
            _put_sequence(out, value)
        case Kind.MAP:
            _put_map(out, value)
        case _:
            _put_struct(out, value)


def _put_sequence(out: bytearray, value: Sequence) -> None:
    size = len(value.items)
    if size < 0x0F:
        out.append(size << 4 | value.kind)
    else:
        out.append(0xF0 | value.kind)
        _put_varint(out, size)
    for item in value.items:
        _put(out, value.kind, item)


def _put_map(out: bytearray, value: Mapped) -> None:
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
