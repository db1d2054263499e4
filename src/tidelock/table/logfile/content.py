"""What the blocks hold: Avro records, a Parquet file, or the keys of deleted rows."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.base.errors import DataCorrupt, InvalidInput, RecordFromFuture

RECORD_HEAD_BYTES: Final = 4
"""The length in front of each record."""

RECORDS_HEAD_BYTES: Final = 8
"""The version and the count in front of all records."""

_LENGTH: Final = struct.Struct(">i")

_ALONE_BYTES: Final = 1024 * 1024
"""So little is read without Arrow's threads: waking them takes longer, and each keeps memory."""

CONTENT_VERSION: Final = 3
"""The version that table versions 8 and 9 write into Avro and delete blocks."""


def encode_records(records: Sequence[bytes]) -> bytes:
    """Return the content of an Avro block: version, count, and each record with its length."""
    parts = [struct.pack(">ii", CONTENT_VERSION, len(records))]
    for record in records:
        parts += [struct.pack(">i", len(record)), record]
    return b"".join(parts)


def frame_records(count: int, framed: bytes) -> bytes:
    """Return the content of an Avro block whose records have their lengths in front already."""
    return struct.pack(">ii", CONTENT_VERSION, count) + framed


def record_places(content: bytes | memoryview, *, where: str) -> list[int]:
    """Return where the records of an Avro block begin, and where one after the last would.

    Raises: `DataCorrupt`, `RecordFromFuture`.
    """
    view = memoryview(content)
    count, position = _opened(view, where), RECORDS_HEAD_BYTES
    places, size_of = [], _LENGTH.unpack_from
    try:
        for _ in range(count):
            (size,) = size_of(view, position)
            position += _LENGTH.size
            places.append(position)
            position += size
    except struct.error:
        position = -1
    if position != len(view) or any(a > b for a, b in pairwise(places)):
        raise DataCorrupt(f"{where}: the lengths of {count} records do not add up to the block's")
    return [*places, position + _LENGTH.size]


def decode_records(content: bytes | memoryview, *, where: str) -> list[memoryview]:
    """Return the records of an Avro block.

    Raises: `DataCorrupt`, `RecordFromFuture`.
    """
    view = memoryview(content)
    count, position = _opened(view, where), RECORDS_HEAD_BYTES
    records = []
    for number in range(count):
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        start, position = position + 4, position + 4 + size
        if size < 0 or position > len(view):
            raise DataCorrupt(f"{where}: record {number} of {count} runs past the block's end")
        records.append(view[start:position])
    if position != len(view):
        raise DataCorrupt(f"{where}: {len(view) - position} bytes follow the last record")
    return records


def encode_parquet(table: pa.Table) -> bytes:
    """Return the content of a Parquet block: a whole Parquet file."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="snappy", store_schema=False) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode_parquet(
    content: bytes | memoryview, *, columns: Sequence[str] | None = None, where: str
) -> pa.Table:
    """Return the rows of a Parquet block; of `columns` those that it has.

    Raises: `DataCorrupt`.
    """
    try:
        with pq.ParquetFile(pa.BufferReader(pa.py_buffer(content))) as file:
            names = None
            if columns is not None:
                names = [name for name in columns if name in file.schema_arrow.names]
            return file.read(columns=names, use_threads=len(content) > _ALONE_BYTES)
    except (pa.ArrowException, OSError) as error:
        raise DataCorrupt(f"{where}: the Parquet block cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Ordering:
    """The ordering value of a delete, with the wrapper that tells its Java class."""

    wrapper: str
    value: object


NATURAL: Final = Ordering("Int", 0)
"""Hudi's "natural order": the delete beats whatever was written before it, in every merge mode."""


@dataclass(frozen=True, slots=True)
class Delete:
    """One deleted row."""

    key: str
    partition: str | None
    ordering: Ordering | None = NATURAL


_WRAPPED: Final[dict[str, Any]] = {
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
"""The union of ordering values, in the order that its branch numbers have on disk. Dates and times
stay numbers: days, and microseconds."""


def _wrapper(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": f"{name}Wrapper", "fields": [{"name": "value", "type": kind}]}


def _delete_schema() -> dict[str, Any]:
    wrappers = [_wrapper(name, kind) for name, kind in _WRAPPED.items()]
    several = {"type": "array", "items": ["null", *(f"{name}Wrapper" for name in _WRAPPED)]}
    union = ["null", *wrappers, _wrapper("Array", several)]
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


def encode_deletes(deletes: Sequence[Delete]) -> bytes:
    """Return the content of a delete block.

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
        raise InvalidInput(
            f"a delete's ordering value does not fit its wrapper: {error}"
        ) from error
    body = sink.getvalue()
    return struct.pack(">ii", CONTENT_VERSION, len(body)) + body


def decode_deletes(content: bytes | memoryview, *, where: str) -> list[Delete]:
    """Return the deletes of a delete block.

    Raises: `DataCorrupt`, `RecordFromFuture`.
    """
    view = memoryview(content)
    size = _opened(view, where)
    if size + 8 != len(view):
        raise DataCorrupt(f"{where}: the delete block holds {len(view) - 8} bytes, not {size}")
    try:
        found: Any = fastavro.schemaless_reader(
            io.BytesIO(view[8:]), _DELETES, None, return_record_name=True
        )
        return [
            Delete(item["recordKey"], item["partitionPath"], _unwrap(item["orderingVal"]))
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


def _opened(view: memoryview, where: str) -> int:
    """Check the version in front of a content, and return the number behind it."""
    if len(view) < 8:
        raise DataCorrupt(f"{where}: the block's content of {len(view)} bytes is too short")
    version, number = struct.unpack_from(">ii", view, 0)
    if version > CONTENT_VERSION:
        raise RecordFromFuture(f"{where}: the block's content has version {version}, not 3")
    if version != CONTENT_VERSION or number < 0:
        raise DataCorrupt(
            f"{where}: the block's content has version {version} and size {number}",
            hint="contents before version 3 belong to tables before version 8, which are not read",
        )
    return int(number)
