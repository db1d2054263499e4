"""Log files: their blocks, the content of blocks, and which blocks a reader merges.

A block is framed by a magic, its length, typed headers, its content, and the length again.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import IntEnum
from itertools import pairwise
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.core.errors import DataCorrupt, InvalidInput, NotFound, RecordFromFuture, Unsupported
from tidelock.hudi.avro_records import encode_framed
from tidelock.hudi.file_groups import LogFile
from tidelock.hudi.schema import render_schema
from tidelock.storage.contract import ObjectStore

MAGIC: Final = b"#HUDI#"
FORMAT_VERSION: Final = 1
BLOCK_BYTES_MAX: Final = 2**31 - 1
"""Java reads a block into one byte array."""

_FRAME: Final = struct.Struct(">qii")
_INT: Final = struct.Struct(">i")
_PAIR: Final = struct.Struct(">ii")
_LONG: Final = struct.Struct(">q")


class BlockType(IntEnum):
    """The type of a block; the numbers are part of the format."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO = 3
    HFILE = 4
    PARQUET = 5
    CDC = 6


class Header(IntEnum):
    """The header types of a block; the numbers are part of the format."""

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
    """An intact block. Headers keep their order, so that encoding reproduces the bytes."""

    type: BlockType
    headers: Mapping[int, str]
    content: bytes | memoryview
    footers: Mapping[int, str] = field(default_factory=dict)

    @property
    def instant(self) -> str:
        """The request time of the write that wrote this block."""
        return self.headers.get(Header.INSTANT_TIME, "")


def encode_block(block: Block) -> bytes:
    """Encode a block with its frame."""
    headers, footers = _encode_pairs(block.headers), _encode_pairs(block.footers)
    size = 8 + len(headers) + 8 + len(block.content) + len(footers) + 8
    if size > BLOCK_BYTES_MAX:
        raise InvalidInput(
            f"log block of {size} bytes exceeds {BLOCK_BYTES_MAX}", hint="write several blocks"
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
    """Decode a block; `frame` is everything after magic and length, trailing length included.

    Raises: `DataCorrupt`, `RecordFromFuture`.
    """
    try:
        version, kind = _PAIR.unpack_from(frame, 0)
        if version != FORMAT_VERSION:
            raise RecordFromFuture(
                f"{where}: expected log format version {FORMAT_VERSION}, found {version}",
                hint="use a release of tidelock that supports this version",
            )
        headers, position = _decode_pairs(frame, 8)
        (size,) = _LONG.unpack_from(frame, position)
        start, end = position + 8, position + 8 + size
        if size < 0 or end + 12 > len(frame):
            raise DataCorrupt(f"{where}: the block content of {size} bytes exceeds the block")
        footers, position = _decode_pairs(frame, end)
        if position + 8 != len(frame):
            raise DataCorrupt(f"{where}: the block has {len(frame) - position - 8} extra bytes")
        return Block(BlockType(kind), headers, frame[start:end], footers)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise DataCorrupt(f"{where}: the block cannot be parsed: {error}") from error


def decode_headers(frame: memoryview, *, where: str) -> Block:
    """Decode a block without content, after magic and length. Raises: `DataCorrupt`."""
    try:
        _, kind = _PAIR.unpack_from(frame, 0)
        headers, _ = _decode_pairs(frame, 8)
        return Block(BlockType(kind), headers, b"")
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise DataCorrupt(f"{where}: the block headers cannot be parsed: {error}") from error


def _encode_pairs(pairs: Mapping[int, str]) -> bytes:
    parts = [_INT.pack(len(pairs))]
    for key, value in pairs.items():
        data = value.encode()
        parts += [_PAIR.pack(key, len(data)), data]
    return b"".join(parts)


def _decode_pairs(frame: memoryview, position: int) -> tuple[dict[int, str], int]:
    (count,) = _INT.unpack_from(frame, position)
    position += 4
    pairs: dict[int, str] = {}
    for _ in range(count):
        key, size = _PAIR.unpack_from(frame, position)
        position += 8
        if size < 0 or position + size > len(frame):
            raise ValueError(f"header {key} of {size} bytes exceeds the block")
        pairs[key] = str(frame[position : position + size], "utf-8")
        position += size
    return pairs, position


RECORD_HEAD_BYTES: Final = 4
"""The length before each record."""

RECORDS_HEAD_BYTES: Final = 8
"""The version and the count before all records."""

_SINGLE_THREAD_BYTES_MAX: Final = 1024 * 1024
"""Smaller blocks are read without Arrow's threads, which cost more than they save."""

CONTENT_VERSION: Final = 3
"""The content version of Avro and delete blocks in table versions 8 and 9."""


def frame_records(count: int, framed: bytes) -> bytes:
    """Encode the content of an Avro block from records, each after its length in 4 bytes."""
    return _PAIR.pack(CONTENT_VERSION, count) + framed


def record_offsets(content: bytes | memoryview, *, where: str) -> list[int]:
    """Return the offsets of the records in an Avro block, and of the end.

    Raises: `DataCorrupt`, `RecordFromFuture`.
    """
    view = memoryview(content)
    count, position = _content_size(view, where), RECORDS_HEAD_BYTES
    problem = f"{where}: the lengths of {count} records do not match the block"
    if count > (len(view) - RECORDS_HEAD_BYTES) // RECORD_HEAD_BYTES:
        raise DataCorrupt(problem)
    offsets, size_of = [], _INT.unpack_from
    try:
        for _ in range(count):
            (size,) = size_of(view, position)
            position += RECORD_HEAD_BYTES
            offsets.append(position)
            position += size
    except struct.error:
        position = -1
    offsets.append(position + RECORD_HEAD_BYTES)
    backwards = any(after - start < RECORD_HEAD_BYTES for start, after in pairwise(offsets))
    if position != len(view) or backwards:
        raise DataCorrupt(problem)
    return offsets


def decode_records(content: bytes | memoryview, *, where: str) -> list[memoryview]:
    """Return the records of an Avro block. Raises: `DataCorrupt`, `RecordFromFuture`."""
    view, offsets = memoryview(content), record_offsets(content, where=where)
    return [view[start : after - RECORD_HEAD_BYTES] for start, after in pairwise(offsets)]


def encode_parquet(table: pa.Table) -> bytes:
    """Encode the content of a Parquet block: a complete Parquet file."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="snappy", store_schema=False) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode_parquet(
    content: bytes | memoryview, *, columns: Sequence[str] | None = None, where: str
) -> pa.Table:
    """Return the rows of a Parquet block, those of `columns` that it has. Raises: `DataCorrupt`."""
    try:
        with pq.ParquetFile(pa.BufferReader(pa.py_buffer(content))) as file:
            names = None
            if columns is not None:
                names = [name for name in columns if name in file.schema_arrow.names]
            return file.read(columns=names, use_threads=len(content) > _SINGLE_THREAD_BYTES_MAX)
    except (pa.ArrowException, OSError) as error:
        raise DataCorrupt(f"{where}: the Parquet block cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Ordering:
    """The ordering value of a delete, and the wrapper that identifies its Java class."""

    wrapper: str
    value: object


NATURAL: Final = Ordering("Int", 0)
"""Hudi's "natural order": the delete wins over all earlier versions, in every merge mode."""


@dataclass(frozen=True, slots=True)
class DeleteRecord:
    """A delete of one row."""

    key: str
    partition: str | None
    ordering: Ordering | None = NATURAL


_WRAPPERS: Final[dict[str, Any]] = {
    "Boolean": "boolean",
    "Int": "int",
    "Long": "long",
    "Float": "float",
    "Double": "double",
    "Bytes": "bytes",
    "String": "string",
    "Date": {"type": "int"},
    "Decimal": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicros": {"type": "long"},
    "TimestampMicros": {"type": "long"},
}
"""The union of ordering values; the order defines the branch numbers in the format. Dates and times
are numbers: days and microseconds."""


def _wrapper(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": f"{name}Wrapper", "fields": [{"name": "value", "type": kind}]}


def _delete_schema() -> dict[str, Any]:
    wrappers = [_wrapper(name, kind) for name, kind in _WRAPPERS.items()]
    array_items = {"type": "array", "items": ["null", *(f"{name}Wrapper" for name in _WRAPPERS)]}
    union = ["null", *wrappers, _wrapper("Array", array_items)]
    fields = [
        {"name": "recordKey", "type": ["null", "string"]},
        {"name": "partitionPath", "type": ["null", "string"]},
        {"name": "orderingVal", "type": union},
    ]
    record = {"type": "record", "name": "HoodieDeleteRecord", "fields": fields}
    return {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "fields": [{"name": "deleteRecordList", "type": {"type": "array", "items": record}}],
    }


_DELETES = fastavro.parse_schema(_delete_schema())


def encode_deletes(deletes: Sequence[DeleteRecord]) -> bytes:
    """Encode the content of a delete block.

    Raises: `InvalidInput` for an ordering value that its wrapper cannot hold.
    """
    records = [
        {
            "recordKey": delete.key,
            "partitionPath": delete.partition,
            "orderingVal": _wrap(delete.ordering),
        }
        for delete in deletes
    ]
    sink = io.BytesIO()
    try:
        fastavro.schemaless_writer(sink, _DELETES, {"deleteRecordList": records})
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"delete record: invalid ordering value: {error}") from error
    body = sink.getvalue()
    return _PAIR.pack(CONTENT_VERSION, len(body)) + body


def decode_deletes(content: bytes | memoryview, *, where: str) -> list[DeleteRecord]:
    """Return the deletes of a delete block. Raises: `DataCorrupt`, `RecordFromFuture`."""
    view = memoryview(content)
    size = _content_size(view, where)
    if size + 8 != len(view):
        raise DataCorrupt(
            f"{where}: expected a delete block of {size} bytes, found {len(view) - 8}"
        )
    try:
        found: Any = fastavro.schemaless_reader(
            io.BytesIO(view[8:]), _DELETES, None, return_record_name=True
        )
        return [
            DeleteRecord(item["recordKey"], item["partitionPath"], _unwrap(item["orderingVal"]))
            for item in found["deleteRecordList"]
        ]
    except (ValueError, EOFError, IndexError, KeyError, TypeError, struct.error) as error:
        raise DataCorrupt(f"{where}: the delete block cannot be parsed: {error!r}") from error


def _wrap(ordering: Ordering | None) -> Any:
    if ordering is None:
        return None
    value = ordering.value
    if ordering.wrapper == "Array":
        assert isinstance(value, (list, tuple))
        value = [_wrap(part) for part in value]
    elif isinstance(value, Decimal):
        value = value.quantize(Decimal(1).scaleb(-15))
    return f"{ordering.wrapper}Wrapper", {"value": value}


def _unwrap(found: Any) -> Ordering | None:
    if found is None:
        return None
    name, record = found
    wrapper = name.removesuffix("Wrapper")
    if wrapper == "Array":
        return Ordering(wrapper, tuple(_unwrap(part) for part in record["value"]))
    return Ordering(wrapper, record["value"])


def _content_size(view: memoryview, where: str) -> int:
    """Check the version of a block's content, and return the number after it."""
    if len(view) < 8:
        raise DataCorrupt(f"{where}: the block content of {len(view)} bytes is too short")
    version, number = _PAIR.unpack_from(view, 0)
    if version > CONTENT_VERSION:
        raise RecordFromFuture(
            f"{where}: expected content version {CONTENT_VERSION}, found {version}"
        )
    if version != CONTENT_VERSION or number < 0:
        raise DataCorrupt(
            f"{where}: invalid block content: version {version}, size {number}",
            hint="tables before version 8 have older content versions, which are not supported",
        )
    return int(number)


@dataclass(frozen=True, slots=True)
class CorruptBlock:
    """Bytes that are not a block: the rest of an unfinished write. Readers skip them."""

    where: str
    offset: int
    size_bytes: int
    reason: str


def read_log(store: ObjectStore, log: LogFile) -> Iterator[Block | CorruptBlock]:
    """Yield the blocks of a log file.

    Corrupt blocks within the bytes recorded by a completed write are errors; others are left by
    unfinished writes. Raises: `NotFound`, `DataCorrupt`.
    """
    found = store.get(log.key)
    if found is None:
        raise NotFound(
            f"{store.uri}/{log.key} does not exist",
            hint="a clean may have deleted it; open the table again",
        )
    where = f"{store.uri}/{log.key}"
    if len(found.body) < log.size_bytes:
        raise DataCorrupt(
            f"{where}: expected {log.size_bytes:,} bytes, found {len(found.body):,}",
            hint="the file was truncated: restore it from a copy, or roll back its write",
        )
    for block in parse_log(found.body, where=where):
        if isinstance(block, CorruptBlock) and block.offset < log.committed_bytes:
            raise DataCorrupt(
                f"{where}: corrupt block of {block.size_bytes:,} bytes at byte {block.offset:,},"
                f" recorded by commit {log.instant}: {block.reason}",
                hint="restore the file from a copy, or restore the table to an earlier commit",
            )
        yield block


def parse_log(data: bytes | memoryview, *, where: str) -> Iterator[Block | CorruptBlock]:
    """Yield the blocks of a log file's bytes.

    A block is corrupt, by Hudi's rule, if its length exceeds the file, its two lengths differ, or
    it is not followed by a magic. Reading continues at the next magic. Fewer bytes than a magic at
    the end are ignored.

    Raises: `DataCorrupt` if the file does not start with a block, or the content of an intact block
    contradicts its frame.
    """
    view, body, position = memoryview(data), bytes(data), 0
    while position + len(MAGIC) <= len(view):
        if not body.startswith(MAGIC, position):
            raise DataCorrupt(
                f"{where}: expected a log block at byte {position}",
                hint="it is not a log file, or its format is not supported",
            )
        start = position + len(MAGIC) + 8
        size = int.from_bytes(view[position + len(MAGIC) : start], "big", signed=True)
        reason = _problem(view, start, size)
        if reason:
            after = body.find(MAGIC, position + len(MAGIC))
            after = len(view) if after < 0 else after
            yield CorruptBlock(where, position, after - position, reason)
            position = after
        else:
            yield decode_block(view[start : start + size], where=f"{where} at byte {position}")
            position = start + size


def _problem(view: memoryview, start: int, size: int) -> str:
    """Return what is wrong with the frame of a block; empty if nothing is."""
    end = start + size
    if start > len(view) or end > len(view):
        return "it exceeds the file"
    if size < 28:
        return f"its length {size} is too small for a block"
    trailer = int.from_bytes(view[end - 8 : end], "big", signed=True)
    if trailer - len(MAGIC) != size:
        return f"its lengths differ: {size} before, {trailer - len(MAGIC)} after the content"
    following = bytes(view[end : end + len(MAGIC)])
    if len(following) == len(MAGIC) and following != MAGIC:
        return "it is not followed by a block"
    return ""


_SINGLE_GET_BYTES_MAX: Final = 64 * 1024
"""Files up to this size are read with one request; otherwise, so much is read of each block."""

_LENGTH_AT: Final = len(MAGIC)
_FRAME_BYTES: Final = len(MAGIC) + 8


def read_block_headers(store: ObjectStore, log: LogFile) -> Iterator[Block]:
    """Yield the blocks of a log file without their content. Raises: `NotFound`, `DataCorrupt`."""
    found = None if log.size_bytes <= _SINGLE_GET_BYTES_MAX else _read_headers_by_range(store, log)
    if found is not None:
        yield from found
        return
    for block in read_log(store, log):
        if isinstance(block, Block):
            yield replace(block, content=b"")


def _read_headers_by_range(store: ObjectStore, log: LogFile) -> list[Block] | None:
    """Read headers block by block; None if the file is not a sequence of intact blocks."""
    blocks: list[Block] = []
    position = 0
    where = f"{store.uri}/{log.key}"
    while position < log.size_bytes:
        end = min(log.size_bytes, position + _SINGLE_GET_BYTES_MAX)
        part = store.get(log.key, start=position, end=end)
        if part is None or len(part.body) <= _FRAME_BYTES or not part.body.startswith(MAGIC):
            return None
        size = int.from_bytes(part.body[_LENGTH_AT:_FRAME_BYTES], "big", signed=True)
        after = position + _FRAME_BYTES + size
        if size < 28 or after > log.size_bytes:
            return None
        try:
            blocks.append(decode_headers(memoryview(part.body)[_FRAME_BYTES:], where=where))
        except DataCorrupt:
            # The headers are longer than the fetched range, or it is not a block.
            return None
        position = after
    return blocks


_DATA_BLOCKS = (BlockType.AVRO, BlockType.PARQUET, BlockType.DELETE)
_ROLLBACK = "0"


def blocks_to_merge(
    blocks: Iterable[Block],
    *,
    as_of: str | None,
    where: str,
    kinds: Collection[BlockType] = _DATA_BLOCKS,
) -> list[Block]:
    """Return the blocks to merge, oldest first, from the blocks of a slice in log order.

    `kinds` are the block types that the table may have: those of the metadata table differ.

    Omitted are blocks of instants after `as_of`, blocks rolled back by a later command, and blocks
    replaced by a log compaction, whose own block takes the position of the newest of them.

    Raises: `Unsupported` for another block type, `DataCorrupt`.
    """
    by_instant: dict[str, list[Block]] = {}
    for block in blocks:
        if block.type == BlockType.COMMAND:
            _roll_back(block, by_instant, where)
        elif block.type not in kinds:
            expected = ", ".join(kind.name for kind in kinds)
            raise Unsupported(
                f"{where}: expected a block of type {expected}, found {block.type.name}"
            )
        elif not block.instant:
            raise DataCorrupt(f"{where}: a {block.type.name} block has no instant")
        elif as_of is None or block.instant <= as_of:
            by_instant.setdefault(block.instant, []).append(block)
    return _apply_log_compactions(by_instant)


def _roll_back(block: Block, by_instant: dict[str, list[Block]], where: str) -> None:
    command = block.headers.get(Header.COMMAND_BLOCK_TYPE)
    if command != _ROLLBACK:
        raise Unsupported(f"{where}: unknown command {command!r} in a command block")
    by_instant.pop(block.headers.get(Header.TARGET_INSTANT_TIME, ""), None)


def _apply_log_compactions(by_instant: dict[str, list[Block]]) -> list[Block]:
    """Drop compacted blocks, from the newest instant on: a compaction is newer than its inputs."""
    final: dict[str, str] = {}
    chosen: list[str] = []
    for instant, blocks in reversed(by_instant.items()):
        replaced = blocks[0].headers.get(Header.COMPACTED_BLOCK_TIMES)
        if replaced is not None:
            for original in replaced.split(","):
                final[original] = final.get(instant, instant)
        else:
            position = final.get(instant, instant)
            if position not in chosen:
                chosen.append(position)
    return [block for instant in reversed(chosen) for block in by_instant[instant]]


def avro_block(rows: pa.Table, *, instant: str, schema: Mapping[str, Any]) -> Block:
    """Return rows, including meta columns, as an Avro data block."""
    framed = encode_framed(rows, schema, where=f"log block of {instant}")
    content = frame_records(rows.num_rows, framed)
    return Block(BlockType.AVRO, _headers(instant, schema), content)


def parquet_block(rows: pa.Table, *, instant: str, schema: Mapping[str, Any]) -> Block:
    """Return rows, including meta columns, as a Parquet data block."""
    return Block(BlockType.PARQUET, _headers(instant, schema), encode_parquet(rows))


def delete_block(
    deletes: Sequence[DeleteRecord], *, instant: str, schema: Mapping[str, Any]
) -> Block:
    """Return a delete block; like Hudi's writers, it carries the table's schema."""
    return Block(BlockType.DELETE, _headers(instant, schema), encode_deletes(deletes))


def log_bytes(blocks: Sequence[Block]) -> bytes:
    """Return the log file of these blocks; Hudi orders the data of one write before its deletes."""
    return b"".join(encode_block(block) for block in blocks)


def _headers(instant: str, schema: Mapping[str, Any]) -> dict[int, str]:
    return {int(Header.INSTANT_TIME): instant, int(Header.SCHEMA): render_schema(schema)}
