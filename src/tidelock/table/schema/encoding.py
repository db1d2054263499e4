"""Arrow columns as Avro records, a column at a time: the records of a log block without a loop.

Each column becomes byte strings, one for each row; Arrow then joins them row by row. Columns of
nested types go through fastavro, and only those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.schema import SchemaParseException
from pyarrow import types as pt

from tidelock.base.errors import DataCorrupt, InvalidInput
from tidelock.table.schema.avro import AvroType, arrow_schema
from tidelock.table.schema.rows import encode_rows

Octets = npt.NDArray[np.uint8]


def encode_framed(table: pa.Table, schema: Mapping[str, Any], *, where: str) -> bytes:
    """Return the rows of `table` as Avro records of `schema`, each behind its length in 4 bytes.

    Raises: `InvalidInput` when a value does not fit the schema.
    """
    if not table.num_rows:
        return b""
    if table.num_rows < _MANY_ROWS:
        return _one_by_one(table, schema, where)
    try:
        parts = [part for field in schema["fields"] for part in _parts(table, field, where)]
    except (SchemaParseException, DataCorrupt):
        # A type that an earlier column defined is only mentioned in a later one.
        parts = [_binary(encode_rows(table, schema, where=where))]
    lengths = np.zeros(table.num_rows, np.int32)
    for part in parts:
        lengths += np.diff(_offsets(part))
    head = _fixed_width(lengths.astype(">i4").view(np.uint8).reshape(-1, 4))
    joined = pc.binary_join_element_wise(head, *parts, b"")
    offsets = _offsets(joined)
    return bytes(memoryview(joined.buffers()[2])[offsets[0] : offsets[-1]])


def _one_by_one(table: pa.Table, schema: Mapping[str, Any], where: str) -> bytes:
    meant = arrow_schema(schema, where=where)
    columns = []
    for field in meant:
        column = table.column(field.name)
        if column.null_count and not field.nullable:
            raise _null(where, field.name)
        try:
            columns.append(column.cast(field.type))
        except _UNFIT as error:
            raise _unfit(where, field.name, error) from error
    records = encode_rows(pa.Table.from_arrays(columns, schema=meant), schema, where=where)
    return b"".join(part for each in records for part in (len(each).to_bytes(4, "big"), each))


def _null(where: str, name: str) -> InvalidInput:
    return InvalidInput(f"{where}: the column {name} has nulls, and its schema allows none")


def _unfit(where: str, name: str, error: Exception) -> InvalidInput:
    return InvalidInput(f"{where}: column {name} does not fit its schema: {error}")


def _parts(table: pa.Table, field: Mapping[str, Any], where: str) -> list[pa.Array]:
    """Return the byte strings of one field, in one or two pieces for each row."""
    name = field["name"]
    column = table.column(name)
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else pa.concat_arrays(array.chunks)
    branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
    nullable = "null" in branches
    if array.null_count and not nullable:
        raise _null(where, name)
    inner = [branch for branch in branches if branch != "null"]
    encode = _encoder(inner[0], array.type) if len(inner) == 1 else None
    if encode is None:
        part = {"type": "record", "name": "one_column", "fields": [field]}
        return [_binary(encode_rows(table.select([name]), part, where=where))]
    lead = None
    if nullable:
        # The number of the branch in front, in zigzag.
        at, none = 2 * branches.index(inner[0]), 2 * branches.index("null")
        lead = np.where(_valid(array), at, none).astype(np.uint8)
    try:
        return encode(array, lead)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(
            f"{where}: the column {name} does not fit its schema: {error}"
        ) from error


_Encode = Callable[[pa.Array, Octets | None], list[pa.Array]]


def _encoder(avro: AvroType, kind: pa.DataType) -> _Encode | None:
    """Return how columns of this type are encoded; None for nested types and rare ones."""
    name = avro["type"] if isinstance(avro, Mapping) else avro
    if name in ("int", "long"):
        return lambda array, lead: [_varints(_numbers(array, avro), _valid(array), lead)]
    if name in ("string", "bytes"):
        return None if isinstance(avro, Mapping) and "logicalType" in avro else _texts
    if name in ("float", "double"):
        wide = pa.float32() if name == "float" else pa.float64()
        return lambda array, lead: [_octets(_values(array.cast(wide)), array, lead)]
    if name == "boolean" and pt.is_boolean(kind):
        return lambda array, lead: [_octets(_values(array.cast(pa.uint8())), array, lead)]
    if name == "fixed" and pt.is_decimal128(kind):
        size = int(avro["size"])
        return lambda array, lead: [_octets(_decimals(array, size), array, lead)]
    return None


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return _values(array.is_valid().cast(pa.uint8())).reshape(-1).view(np.bool_)


def _values(array: pa.Array) -> Octets:
    """Return the values of fixed width as rows of bytes; what stands for nulls is anything."""
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


_UNFIT: Final = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)

_MANY_ROWS: Final = 64
"""Fewer are encoded one by one: setting up whole columns takes longer."""

_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}


def _numbers(array: pa.Array, avro: AvroType) -> npt.NDArray[np.int64]:
    """Return whole numbers, dates and times as the numbers that their Avro type has for them."""
    named = avro if isinstance(avro, Mapping) else {"type": avro}
    name, logical = named["type"], named.get("logicalType", "")
    kind, unit = array.type, _UNITS.get(logical.rpartition("-")[2])
    if pt.is_timestamp(kind) and unit is not None:
        array = array.cast(pa.timestamp(unit, kind.tz))
    elif pt.is_time(kind) and unit is not None:
        array = array.cast(pa.time32(unit) if unit == "ms" else pa.time64(unit))
    elif pt.is_date(kind):
        array = array.cast(pa.date32())
    if pt.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    whole = array.cast(pa.int32() if name == "int" else pa.int64()).cast(pa.int64())
    return _values(whole).reshape(-1).view(np.int64)


def _varints(
    numbers: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_], lead: Octets | None
) -> pa.Array:
    """Return numbers in zigzag, seven bits to the byte; nothing for those that are not valid."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    zigzag = np.where(valid, zigzag, 0) if lead is not None else zigzag
    most = int(zigzag.max()).bit_length()
    width = max(1, -(-most // 7))
    counts = np.ones(len(numbers), np.int32)
    for place in range(1, width):
        counts += zigzag >= np.uint64(1 << (7 * place))
    before = 0 if lead is None else 1
    table = np.empty((len(numbers), width + before), np.uint8)
    for place in range(width):
        octet = (zigzag >> np.uint64(7 * place)).astype(np.uint8) & 0x7F
        table[:, before + place] = np.where(counts > place + 1, octet | 0x80, octet)
    if lead is not None:
        table[:, 0] = lead
        counts = np.where(valid, counts, 0) + 1
    return _cut(table, counts)


def _texts(array: pa.Array, lead: Octets | None) -> list[pa.Array]:
    binary = array.cast(pa.binary())
    lengths = pc.fill_null(pc.binary_length(binary), 0)
    sizes = _values(lengths.cast(pa.int64())).reshape(-1).view(np.int64)
    head = _varints(sizes, _valid(array), lead)
    return [head, pc.fill_null(binary, b"") if binary.null_count else binary]


def _decimals(array: pa.Array, size: int) -> Octets:
    """Return the last `size` bytes in the order of Java: the largest comes first."""
    return _values(array)[:, size - 1 :: -1] if size < 16 else _values(array)[:, ::-1]


def _octets(values: Octets, array: pa.Array, lead: Octets | None) -> pa.Array:
    if lead is None:
        return _fixed_width(values)
    table = np.empty((len(values), values.shape[1] + 1), np.uint8)
    table[:, 0] = lead
    table[:, 1:] = values
    if not array.null_count:
        return _fixed_width(table)
    return _cut(table, np.where(_valid(array), table.shape[1], 1).astype(np.int32))


def _cut(table: Octets, counts: npt.NDArray[np.int32]) -> pa.Array:
    """Return the first `counts` bytes of each row."""
    width = table.shape[1]
    data = table if width == counts.min() else table[np.arange(width) < counts[:, None]]
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return _from_buffers(offsets, data)


def _fixed_width(table: Octets) -> pa.Array:
    offsets = np.arange(len(table) + 1, dtype=np.int32) * np.int32(table.shape[1])
    return _from_buffers(offsets, np.ascontiguousarray(table))


def _from_buffers(offsets: npt.NDArray[np.int32], data: Octets) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    whole = np.frombuffer(array.buffers()[1], np.int32)
    return whole[array.offset : array.offset + len(array) + 1]


def _binary(records: list[bytes]) -> pa.Array:
    return pa.array(records, pa.binary())
