"""A log block and its frame: magic, length, typed headers, content, and the length once more."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from tidelock.base.errors import DataCorrupt, InvalidInput, RecordFromFuture

MAGIC: Final = b"#HUDI#"
FORMAT_VERSION: Final = 1
BLOCK_BYTES_MAX: Final = 2**31 - 1
"""Java reads a block into one array."""

_FRAME: Final = struct.Struct(">qii")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class BlockType(IntEnum):
    """What a block holds; the numbers are on disk."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO = 3
    HFILE = 4
    PARQUET = 5
    CDC = 6


class Header(IntEnum):
    """What a block says of itself; the numbers are on disk."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class Block:
    """One intact block. Headers keep their order, so that encoding gives the same bytes back."""

    type: BlockType
    headers: Mapping[int, str]
    content: bytes | memoryview
    footers: Mapping[int, str] = field(default_factory=dict)

    @property
    def instant(self) -> str:
        """The request time of the write that this block belongs to."""
        return self.headers.get(Header.INSTANT_TIME, "")


def encode_block(block: Block) -> bytes:
    """Return the block with its frame."""
    headers, footers = _encode_pairs(block.headers), _encode_pairs(block.footers)
    size = 8 + len(headers) + 8 + len(block.content) + len(footers) + 8
    if size > BLOCK_BYTES_MAX:
        raise InvalidInput(
            f"a log block of {size} bytes is too large", hint="write it as several blocks"
        )
    return b"".join(
        [
            MAGIC,
            _FRAME.pack(size, FORMAT_VERSION, block.type),
            headers,
            _LONG.pack(len(block.content)),
            block.content,
            footers,
            _LONG.pack(size + len(MAGIC)),
        ]
    )


def decode_block(frame: memoryview, *, where: str) -> Block:
    """Return the block whose bytes after magic and length are `frame`, trailing length included.

    Raises: `DataCorrupt`, `RecordFromFuture`.
    """
    try:
        version, kind = struct.unpack_from(">ii", frame, 0)
        if version != FORMAT_VERSION:
            raise RecordFromFuture(
                f"{where}: the block has log format version {version}, not {FORMAT_VERSION}",
                hint="read it with a version of tidelock that knows this format",
            )
        headers, position = _decode_pairs(frame, 8)
        (size,) = _LONG.unpack_from(frame, position)
        start, end = position + 8, position + 8 + size
        if size < 0 or end + 12 > len(frame):
            raise DataCorrupt(f"{where}: the block's content of {size} bytes runs past its end")
        footers, position = _decode_pairs(frame, end)
        if position + 8 != len(frame):
            raise DataCorrupt(f"{where}: the block has {len(frame) - position - 8} stray bytes")
        return Block(BlockType(kind), headers, frame[start:end], footers)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise DataCorrupt(f"{where}: the block cannot be parsed: {error}") from error


def decode_head(frame: memoryview, *, where: str) -> Block:
    """Return the block whose bytes after magic and length begin with `frame`, without content.

    Raises: `DataCorrupt` for what is no block, or breaks off in its head.
    """
    try:
        _, kind = struct.unpack_from(">ii", frame, 0)
        headers, _ = _decode_pairs(frame, 8)
        return Block(BlockType(kind), headers, b"")
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise DataCorrupt(f"{where}: the head of a block cannot be parsed: {error}") from error


def _encode_pairs(pairs: Mapping[int, str]) -> bytes:
    parts = [_INT.pack(len(pairs))]
    for key, value in pairs.items():
        data = value.encode()
        parts += [struct.pack(">ii", key, len(data)), data]
    return b"".join(parts)


def _decode_pairs(frame: memoryview, position: int) -> tuple[dict[int, str], int]:
    (count,) = _INT.unpack_from(frame, position)
    position += 4
    pairs: dict[int, str] = {}
    for _ in range(count):
        key, size = struct.unpack_from(">ii", frame, position)
        position += 8
        if size < 0 or position + size > len(frame):
            raise ValueError(f"header {key} of {size} bytes runs past the end")
        pairs[key] = str(frame[position : position + size], "utf-8")
        position += size
    return pairs, position
