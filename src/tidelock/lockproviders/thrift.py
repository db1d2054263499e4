"""Thrift's strict binary protocol over one socket: as much of it as a metastore's locks need.

A struct is written from a list of `(id, type, value)` and read into a dictionary by field id.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO, cast

from tidelock.base.errors import DataCorrupt

BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = (
    2,
    3,
    4,
    6,
    8,
    10,
    11,
    12,
    13,
    14,
    15,
)
_STOP = 0
_VERSION = 0x80010000
_CALL, _REPLY, _EXCEPTION = 1, 2, 3
_STRING_BYTES_MAX = 16 * 1024 * 1024
_ITEMS_MAX = 1_000_000
_FIXED = {BOOL: "!?", BYTE: "!b", DOUBLE: "!d", I16: "!h", I32: "!i", I64: "!q"}

Field = tuple[int, int, Any]
Struct = dict[int, Any]


class ThriftFailure(Exception):
    """The server answered that it could not: `TApplicationException`."""


class ThriftSocket:
    """A connection; one call at a time."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        """Connect. Raises: `OSError`."""
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = cast("BinaryIO", self._socket.makefile("rb"))
        self._number = 0

    def call(self, name: str, arguments: Sequence[Field]) -> Struct:
        """Call a function; return its result struct: field 0, or the exception that it declares.

        Raises: `OSError`, `EOFError` when no whole answer came; `ThriftFailure`.
        """
        self._number += 1
        head = struct.pack("!I", _VERSION | _CALL) + _string(name) + struct.pack("!i", self._number)
        self._socket.sendall(head + encoded(arguments))
        (version,) = struct.unpack("!I", self._exactly(4))
        if version & 0xFFFF0000 != _VERSION:
            raise DataCorrupt("the answer is not of Thrift's binary protocol")
        self._exactly(self._size(_STRING_BYTES_MAX))
        (number,) = struct.unpack("!i", self._exactly(4))
        answer = self._struct()
        if number != self._number:
            raise DataCorrupt(f"the answer is to call {number}, not to {self._number}")
        if version & 0xFF == _EXCEPTION:
            raise ThriftFailure(str(answer.get(1, "no message")))
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        data = self._reader.read(count)
        if len(data) < count:
            raise EOFError("the connection was closed within an answer")
        return data

    def _size(self, most: int) -> int:
        (size,) = struct.unpack("!i", self._exactly(4))
        if not 0 <= size <= most:
            raise DataCorrupt(f"the answer names a length of {size}")
        return int(size)

    def _struct(self) -> Struct:
        found: Struct = {}
        while True:
            (kind,) = struct.unpack("!b", self._exactly(1))
            if kind == _STOP:
                return found
            (number,) = struct.unpack("!h", self._exactly(2))
            found[number] = self._value(kind)

    def _value(self, kind: int) -> Any:
        if kind in _FIXED:
            layout = _FIXED[kind]
            return struct.unpack(layout, self._exactly(struct.calcsize(layout)))[0]
        match kind:
            case 11:
                return self._exactly(self._size(_STRING_BYTES_MAX)).decode(errors="replace")
            case 12:
                return self._struct()
            case 14 | 15:
                (inner,) = struct.unpack("!b", self._exactly(1))
                return [self._value(inner) for _ in range(self._size(_ITEMS_MAX))]
            case 13:
                left, right = struct.unpack("!bb", self._exactly(2))
                count = self._size(_ITEMS_MAX)
                return [(self._value(left), self._value(right)) for _ in range(count)]
            case _:
                raise DataCorrupt(f"the answer has a field of type {kind}")


def encoded(fields: Sequence[Field]) -> bytes:
    """Return a struct as bytes. The value of a list is `(inner type, items)`."""
    parts = []
    for number, kind, value in fields:
        parts += [struct.pack("!bh", kind, number), _encoded_value(kind, value)]
    return b"".join(parts) + struct.pack("!b", _STOP)


def _encoded_value(kind: int, value: Any) -> bytes:
    if kind in _FIXED:
        return struct.pack(_FIXED[kind], value)
    if kind == STRING:
        return _string(value)
    if kind == STRUCT:
        return encoded(value)
    assert kind == LIST
    inner, items = value
    body = b"".join(_encoded_value(inner, item) for item in items)
    return struct.pack("!bi", inner, len(items)) + body


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("!i", len(raw)) + raw
