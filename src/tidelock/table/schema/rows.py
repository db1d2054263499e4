"""Avro records and Arrow tables, both ways: the one place that handles rows one by one in Python.

fastavro sees a schema without logical types, so that dates, timestamps and decimals cross as plain
numbers and bytes; whole columns then get their meaning back without a Python object per value.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa
from pyarrow import types as pt

from tidelock.base.errors import DataCorrupt, InvalidInput
from tidelock.table.schema.avro import AvroType, arrow_schema, render_schema

_SYNC = bytes(16)


def decode_rows(
    records: Sequence[bytes | memoryview], schema: Mapping[str, Any], *, where: str
) -> pa.Table:
    """Return the records, each the Avro binary of one `schema` record, as a table.

    Raises: `DataCorrupt` when bytes and schema do not fit.
    """
    plain = _plain(schema)
    try:
        rows: list[Any] = list(fastavro.reader(io.BytesIO(_container(records, plain))))
    except (ValueError, EOFError, IndexError, KeyError, TypeError, struct.error) as error:
        raise DataCorrupt(
            f"{where}: {len(records)} Avro records do not fit their schema: {error!r}"
        ) from error
    stored = arrow_schema(plain, where=where)
    meant = arrow_schema(schema, where=where)
    columns = [
        _relabelled(pa.array([row[field.name] for row in rows], stored.field(i).type), field.type)
        for i, field in enumerate(meant)
    ]
    return pa.Table.from_arrays(columns, schema=meant)


def encode_rows(table: pa.Table, schema: Mapping[str, Any], *, where: str) -> list[bytes]:
    """Return each row of `table` as the Avro binary of one `schema` record.

    Raises: `InvalidInput` when a value does not fit the schema.
    """
    plain = _plain(schema)
    stored = arrow_schema(plain, where=where)
    columns = [
        _relabelled(_whole(table.column(field.name)), field.type).to_pylist(
            maps_as_pydicts="strict"
        )
        for field in stored
    ]
    parsed = fastavro.parse_schema(plain)
    names = stored.names
    encoded: list[bytes] = []
    for values in zip(*columns, strict=True):
        sink = io.BytesIO()
        try:
            fastavro.schemaless_writer(sink, parsed, dict(zip(names, values, strict=True)))
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidInput(f"{where}: row {len(encoded)} does not fit: {error}") from error
        encoded.append(sink.getvalue())
    return encoded


def _plain(avro: AvroType) -> AvroType:
    """Return the schema without logical types, which leaves the bytes on disk as they are."""
    if isinstance(avro, list):
        return [_plain(branch) for branch in avro]
    if not isinstance(avro, Mapping):
        return avro
    found = {key: value for key, value in avro.items() if key not in ("logicalType", "default")}
    for key in ("type", "items", "values"):
        if isinstance(found.get(key), (Mapping, list)):
            found[key] = _plain(found[key])
    if "fields" in found:
        found["fields"] = [_plain(field) for field in found["fields"]]
    return found


def _container(records: Sequence[bytes | memoryview], schema: AvroType) -> bytes:
    """Return an Avro object container with the records, so that one call decodes them all."""
    head = {"avro.schema": render_schema(schema), "avro.codec": "null"}
    parts = [b"Obj\x01", _varint(len(head))]
    for key, value in head.items():
        parts += [_text(key), _text(value)]
    body = b"".join(records)
    return b"".join(
        [*parts, b"\x00", _SYNC, _varint(len(records)), _varint(len(body)), body, _SYNC]
    )


def _text(value: str) -> bytes:
    data = value.encode()
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """Return a number of zero or more as Avro writes it: zigzag, seven bits to the byte."""
    left, out = number << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array that owns its buffers from their first byte."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    return array.take(pa.array(range(len(array)), pa.int64()))


def _relabelled(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the same values under another type of the same shape."""
    if array.type.equals(target):
        return array
    buffers, size = array.buffers(), len(array)
    if pt.is_struct(target):
        children = [_relabelled(array.field(i), f.type) for i, f in enumerate(target)]
        return pa.Array.from_buffers(target, size, buffers[:1], children=children)
    if pt.is_map(target):
        pair = pa.struct([target.key_field, target.item_field])
        inner = [array.keys, _relabelled(array.items, target.item_type)]
        entries = pa.StructArray.from_arrays(inner, fields=list(pair))
        return pa.Array.from_buffers(target, size, buffers[:2], children=[entries])
    if pt.is_list(target):
        children = [_relabelled(array.values, target.value_type)]
        return pa.Array.from_buffers(target, size, buffers[:2], children=children)
    convert = _leaf(array.type, target)
    return convert(array, target)


def _leaf(source: pa.DataType, target: pa.DataType) -> Callable[[pa.Array, pa.DataType], pa.Array]:
    if pt.is_decimal(target) and (pt.is_fixed_size_binary(source) or pt.is_binary(source)):
        return _to_decimal
    if pt.is_decimal(source):
        return _from_decimal
    return _as_numbers


def _as_numbers(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Dates and times are numbers underneath; the rest is widened to what Avro has."""
    if pt.is_primitive(array.type) and array.type.bit_width == target.bit_width:
        return array.view(target)
    return array.cast(target)


def _to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Avro has big-endian bytes, as few as fit; Arrow has 16 or 32 little-endian ones."""
    width = target.byte_width
    data = b"".join(
        bytes(width) if value is None else _swapped(value, width) for value in array.to_pylist()
    )
    buffers = [array.buffers()[0], pa.py_buffer(data)]
    return pa.Array.from_buffers(target, len(array), buffers)


def _swapped(value: bytes, width: int) -> bytes:
    return int.from_bytes(value, "big", signed=True).to_bytes(width, "little", signed=True)


def _from_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The reverse; a plain `bytes` decimal is cut to the bytes that it needs, as Java cuts it."""
    width = array.type.byte_width
    data = memoryview(array.buffers()[1] or b"")
    fixed = target.byte_width if pt.is_fixed_size_binary(target) else 0
    values: list[bytes | None] = []
    for i, valid in enumerate(array.is_valid().to_pylist()):
        number = int.from_bytes(data[i * width : (i + 1) * width], "little", signed=True)
        size = fixed or (number if number >= 0 else ~number).bit_length() // 8 + 1
        values.append(number.to_bytes(size, "big", signed=True) if valid else None)
    return pa.array(values, target)
