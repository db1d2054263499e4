"""HFile: sorted key-value pairs, the format of the metadata table's files and data blocks. Pure.

    data blocks | meta blocks | index of data blocks | index of meta blocks | file info | trailer

Numbers are big-endian. A block is a header of 33 bytes, its payload, compressed by the codec named
in the trailer, and checksums, which Hudi's readers skip. The trailer is the last 4096 bytes and
locates the index. Only what Hudi writes is supported: a single-level index, and gzip or
uncompressed blocks. Keys are found through the index, as in Hudi's readers: data that the index
does not reference does not exist.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tidelock.core.errors import DataCorrupt, Unsupported

TRAILER_BYTES: Final = 4096
MAJOR_VERSION: Final = 3

_HEADER: Final = struct.Struct(">8siiqbii")
_INDEX_ENTRY: Final = struct.Struct(">qi")
_LENGTHS: Final = struct.Struct(">ii")
_SHORT: Final = struct.Struct(">h")

_DATA: Final = b"DATABLK*"
_ROOT_INDEX: Final = b"IDXROOT2"
_FILE_INFO: Final = b"FILEINF2"
_TRAILER: Final = b'TRABLK"$'
_PROTOBUF: Final = b"PBUF"
_GZIP_WINDOW: Final = 31


class Codec(IntEnum):
    """The compression of blocks; the numbers are part of the format. Hudi supports only these."""

    GZIP = 1
    NONE = 2


@dataclass(frozen=True, slots=True)
class BlockAddress:
    """A data block, as referenced by the index."""

    offset: int
    size_bytes: int
    first_key: bytes


@dataclass(frozen=True, slots=True)
class HFile:
    """An open file: index and file info are decoded, data blocks are decoded on demand."""

    data: memoryview
    where: str
    codec: Codec
    entry_count: int
    index: tuple[BlockAddress, ...]
    info: Mapping[str, bytes]

    def entries(self) -> Iterator[tuple[bytes, memoryview]]:
        """Yield each key with its value, in key order.

        Raises: `DataCorrupt` for blocks or entries that cannot be decoded, keys out of order, and a
        number of entries that differs from the trailer.
        """
        count, last = 0, None
        for address in self.index:
            where = f"{self.where} at byte {address.offset}"
            entries = _entries(_block(self, address.offset, _DATA), where)
            if not entries or entries[0][0] != address.first_key:
                raise DataCorrupt(
                    f"{where}: expected the block to begin with {address.first_key!r}"
                )
            for key, value in entries:
                if last is not None and key <= last:
                    raise DataCorrupt(f"{self.where}: keys out of order: {key!r} after {last!r}")
                count, last = count + 1, key
                yield key, value
        if count != self.entry_count:
            raise DataCorrupt(f"{self.where}: expected {self.entry_count} entries, found {count}")


def open_hfile(data: bytes | memoryview, *, where: str) -> HFile:
    """Open an HFile. Raises: `DataCorrupt`, `Unsupported` for what Hudi does not write."""
    view = memoryview(data)
    try:
        return _open(view, where)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DataCorrupt(f"{where}: the HFile cannot be parsed: {error}") from error


def _open(view: memoryview, where: str) -> HFile:
    trailer = _trailer(view, where)
    file = HFile(view, where, _codec(trailer, where), _int_field(trailer, 7), (), {})
    levels, start = _int_field(trailer, 8), _int_field(trailer, 2)
    if levels != 1 and file.entry_count:
        raise Unsupported(
            f"{where}: expected an index of one level, found {levels}",
            hint="compact the metadata table with Hudi 1.1 or later, which writes one level",
        )
    index = _index(_block(file, start, _ROOT_INDEX), _int_field(trailer, 5), where)
    info = _file_info(_block(file, _int_field(trailer, 1), _FILE_INFO), where)
    return HFile(view, where, file.codec, file.entry_count, index, info)


def _trailer(view: memoryview, where: str) -> dict[int, int | bytes]:
    if len(view) < TRAILER_BYTES:
        raise DataCorrupt(f"{where}: {len(view)} bytes are too few for an HFile")
    trailer = view[-TRAILER_BYTES:]
    if bytes(trailer[:8]) != _TRAILER:
        raise DataCorrupt(f"{where}: the HFile trailer is missing")
    # The upper byte is the minor version, which HBase sets and Hudi does not.
    version = int.from_bytes(trailer[-3:], "big")
    if version != MAJOR_VERSION:
        raise Unsupported(f"{where}: expected HFile version {MAJOR_VERSION}, found {version}")
    size, at = _varint(trailer, 8)
    return dict(_fields(trailer[at : at + size]))


def _codec(trailer: Mapping[int, int | bytes], where: str) -> Codec:
    number = _int_field(trailer, 12)
    try:
        return Codec(number)
    except ValueError:
        raise Unsupported(
            f"{where}: unsupported block codec {number}",
            hint="Hudi supports only gzip (1) and none (2)",
        ) from None


def _block(file: HFile, offset: int, kind: bytes) -> memoryview:
    """Return the payload of the block at `offset`, uncompressed."""
    where = f"{file.where} at byte {offset}"
    if not 0 <= offset <= len(file.data) - _HEADER.size:
        raise DataCorrupt(f"{where}: the offset exceeds the file of {len(file.data)} bytes")
    magic, _, size, _, _, _, on_disk = _HEADER.unpack_from(file.data, offset)
    if magic != kind:
        raise DataCorrupt(f"{where}: expected a block {kind!r}, found {magic!r}")
    stored = file.data[offset + _HEADER.size : offset + on_disk]
    if size < 0 or len(stored) != on_disk - _HEADER.size:
        raise DataCorrupt(f"{where}: the block of {on_disk} bytes exceeds the file")
    if file.codec is Codec.GZIP:
        stored = _inflate(stored, size, where)
    if len(stored) != size:
        raise DataCorrupt(f"{where}: expected a block of {size} bytes, found {len(stored)}")
    return stored


def _inflate(stored: memoryview, size: int, where: str) -> memoryview:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        found = stream.decompress(stored, size + 1)
    except zlib.error as error:
        raise DataCorrupt(f"{where}: the block is not gzip: {error}") from error
    if not stream.eof:
        raise DataCorrupt(f"{where}: the block does not decompress to {size} bytes")
    return memoryview(found)


def _index(payload: memoryview, count: int, where: str) -> tuple[BlockAddress, ...]:
    found, at = [], 0
    for _ in range(count):
        offset, size = _INDEX_ENTRY.unpack_from(payload, at)
        length, at = _hadoop_varint(payload, at + _INDEX_ENTRY.size)
        # HBase appends the rest of an entry's key, which is not needed here.
        key = _key(payload[at : at + max(length, 0)])
        if key is None or at + length > len(payload):
            raise DataCorrupt(
                f"{where}: a key of {length} bytes in the index cannot be read",
                hint="Hudi 1.1 writes an unreadable index if a key has 126 bytes or more: delete"
                " the metadata table, and rebuild it with Hudi 1.2",
            )
        found.append(BlockAddress(offset, size, key))
        at += length
    if at != len(payload):
        raise DataCorrupt(f"{where}: {len(payload) - at} bytes follow the index of {count} blocks")
    return tuple(found)


def _key(framed: memoryview) -> bytes | None:
    """Return the key after its length; None if it is incomplete."""
    if len(framed) < _SHORT.size:
        return None
    (size,) = _SHORT.unpack_from(framed)
    key = bytes(framed[_SHORT.size : _SHORT.size + max(size, 0)])
    return key if len(key) == size else None


def _entries(payload: memoryview, where: str) -> list[tuple[bytes, memoryview]]:
    """Return the entries of a data block.

    Each consists of the lengths of key and value, the key (prefixed with its own length, and
    followed by HBase's version fields), the value, and a number that Hudi does not use.
    """
    found, at = [], 0
    try:
        while at < len(payload):
            key_size, value_size = _LENGTHS.unpack_from(payload, at)
            start = at + _LENGTHS.size
            middle, end = start + key_size, start + key_size + value_size
            key = _key(payload[start : max(start, middle)])
            if value_size < 0 or end > len(payload) or key is None:
                raise DataCorrupt(f"{where}: the entry at {at} exceeds the block")
            found.append((key, payload[middle:end]))
            _, at = _hadoop_varint(payload, end)
    except (struct.error, IndexError) as error:
        raise DataCorrupt(f"{where}: truncated entry: {error}") from error
    return found


def _file_info(payload: memoryview, where: str) -> dict[str, bytes]:
    if bytes(payload[:4]) != _PROTOBUF:
        raise DataCorrupt(f"{where}: expected file info to begin with {_PROTOBUF!r}")
    size, at = _varint(payload, 4)
    found: dict[str, bytes] = {}
    for _, pair in _fields(payload[at : at + size]):
        if isinstance(pair, bytes):
            both = dict(_fields(memoryview(pair)))
            found[_bytes_field(both, 1).decode()] = _bytes_field(both, 2)
    return found


def _int_field(fields: Mapping[int, int | bytes], number: int) -> int:
    found = fields.get(number, 0)
    return found if isinstance(found, int) else 0


def _bytes_field(fields: Mapping[int, int | bytes], number: int) -> bytes:
    found = fields.get(number, b"")
    return found if isinstance(found, bytes) else b""


def _fields(message: memoryview) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: integers and byte strings."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value, at = _varint(message, at)
        match tag & 7:
            case 0:
                yield tag >> 3, value
            case 2:
                yield tag >> 3, bytes(message[at : at + value])
                at += value
            case wire:
                raise IndexError(f"unknown protobuf wire type {wire}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the protobuf varint at a position, and the position after it."""
    value = shift = 0
    while True:
        octet = data[at]
        value |= (octet & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if octet < 0x80:
            return value, at


def _hadoop_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the Hadoop varint at a position, and the position after it.

    Numbers from -112 to 127 take one byte. For others the first byte encodes length and sign.
    """
    (first,) = struct.unpack_from(">b", data, at)
    if first >= -112:
        return first, at + 1
    negative = first < -120
    end = at + 1 + ((-120 if negative else -112) - first)
    if end > len(data):
        raise IndexError("truncated number")
    value = int.from_bytes(data[at + 1 : end], "big")
    return (~value if negative else value), end
