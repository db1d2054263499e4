"""Conversion between Avro records and Arrow tables, column-wise where possible.

Where rows must be handled one by one, fastavro gets a schema without logical types, so that dates,
timestamps and decimals pass as plain numbers and bytes. Whole columns are then converted to their
types, without a Python object per value.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.schema import SchemaParseException
from pyarrow import types as pt

from tidelock.core.errors import DataCorrupt, InvalidInput
from tidelock.hudi.schema import AvroType, arrow_schema, as_array, render_schema, row_numbers

_SYNC = bytes(16)


def decode_rows(
    records: Sequence[bytes | memoryview], schema: Mapping[str, Any], *, where: str
) -> pa.Table:
    """Decode records, each the Avro binary of one `schema` record, to a table.

    Raises: `DataCorrupt` if bytes and schema do not match.
    """
    plain = _plain(schema)
    try:
        rows: list[Any] = list(fastavro.reader(io.BytesIO(_object_container(records, plain))))
    except (ValueError, EOFError, IndexError, KeyError, TypeError, struct.error) as error:
        raise DataCorrupt(
            f"{where}: {len(records)} Avro records do not match their schema: {error!r}"
        ) from error
    stored = arrow_schema(plain, where=where)
    target = arrow_schema(schema, where=where)
    columns = [
        _retype(pa.array([row[field.name] for row in rows], stored.field(i).type), field.type)
        for i, field in enumerate(target)
    ]
    return pa.Table.from_arrays(columns, schema=target)


def encode_rows(table: pa.Table, schema: Mapping[str, Any], *, where: str) -> list[bytes]:
    """Encode each row as the Avro binary of one `schema` record. Raises: `InvalidInput`."""
    plain = _plain(schema)
    stored = arrow_schema(plain, where=where)
    columns = [
        _retype(_compact(table.column(field.name)), field.type).to_pylist(maps_as_pydicts="strict")
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
            raise InvalidInput(
                f"{where}: row {len(encoded)} does not match the schema: {error}"
            ) from error
        encoded.append(sink.getvalue())
    return encoded


def _plain(avro: AvroType) -> AvroType:
    """Return the schema without logical types; the encoding stays the same."""
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


def _object_container(records: Sequence[bytes | memoryview], schema: AvroType) -> bytes:
    """Return an Avro object container with the records, to decode them in one call."""
    head = {"avro.schema": render_schema(schema).encode(), "avro.codec": b"null"}
    body = b"".join(records)
    file = io.BytesIO()
    file.write(b"Obj\x01")
    fastavro.schemaless_writer(file, {"type": "map", "values": "bytes"}, head)
    file.write(_SYNC)
    for size in (len(records), len(body)):
        fastavro.schemaless_writer(file, "long", size)
    return b"".join([file.getvalue(), body, _SYNC])


def _compact(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array whose buffers begin at its first value."""
    array = as_array(column)
    return array.take(row_numbers(len(array)))


def _retype(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the same values under another type of the same structure."""
    if array.type.equals(target):
        return array
    buffers, size = array.buffers(), len(array)
    if pt.is_struct(target):
        children = [_retype(array.field(i), f.type) for i, f in enumerate(target)]
        return pa.Array.from_buffers(target, size, buffers[:1], children=children)
    if pt.is_map(target):
        pair = pa.struct([target.key_field, target.item_field])
        inner = [array.keys, _retype(array.items, target.item_type)]
        entries = pa.StructArray.from_arrays(inner, fields=list(pair))
        return pa.Array.from_buffers(target, size, buffers[:2], children=[entries])
    if pt.is_list(target):
        children = [_retype(array.values, target.value_type)]
        return pa.Array.from_buffers(target, size, buffers[:2], children=children)
    if pt.is_decimal(target) and (pt.is_fixed_size_binary(array.type) or pt.is_binary(array.type)):
        return _to_decimal(array, target)
    if pt.is_decimal(array.type):
        return _from_decimal(array, target)
    if pt.is_primitive(array.type) and array.type.bit_width == target.bit_width:
        return array.view(target)  # dates and times are numbers
    return array.cast(target)


def _to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert Avro decimals (big-endian, minimal length) to Arrow's fixed little-endian ones."""
    numbers = (int.from_bytes(value or b"", "big", signed=True) for value in array.to_pylist())
    data = b"".join(number.to_bytes(target.byte_width, "little", signed=True) for number in numbers)
    buffers = [array.buffers()[0], pa.py_buffer(data)]
    return pa.Array.from_buffers(target, len(array), buffers)


def _from_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert Arrow decimals to Avro; a `bytes` decimal has minimal length, as in Java."""
    width = array.type.byte_width
    data = memoryview(array.buffers()[1] or b"")
    fixed = target.byte_width if pt.is_fixed_size_binary(target) else 0
    values: list[bytes | None] = []
    for i, valid in enumerate(array.is_valid().to_pylist()):
        number = int.from_bytes(data[i * width : (i + 1) * width], "little", signed=True)
        size = fixed or (number if number >= 0 else ~number).bit_length() // 8 + 1
        values.append(number.to_bytes(size, "big", signed=True) if valid else None)
    return pa.array(values, target)


Octets = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]

_VARINT_BYTES_MAX: Final = 10


def can_decode(schema: Mapping[str, Any]) -> bool:
    """Return whether `decode_columns` supports every column of a schema."""
    return all(_nullable_branches(field["type"]) is not None for field in schema["fields"])


def decode_columns(
    content: bytes | memoryview,
    offsets: Sequence[int],
    schema: Mapping[str, Any],
    *,
    gap_bytes: int,
    columns: Collection[str] | None = None,
    where: str,
) -> pa.Table:
    """Decode records, each the Avro binary of one `schema` record, to a table, column by column.

    `offsets` are the starts of the records in `content`, and where a further one would start;
    between two records are `gap_bytes` that belong to neither. Returns those of `columns` that the
    schema has; all if None.

    Raises: `DataCorrupt` if bytes and schema do not match.
    """
    starts = np.asarray(offsets, np.int64)
    ends = starts[1:] - gap_bytes
    cursor = _Cursor(np.frombuffer(content, np.uint8), starts[:-1])
    target = arrow_schema(schema, where=where)
    selected = [name for name in target.names if columns is None or name in columns]
    if not len(ends):
        return target.empty_table().select(selected)
    found = {}
    try:
        for field, kind in zip(schema["fields"], target.types, strict=True):
            column = cursor.column(field["type"], kind, skip=field["name"] not in selected)
            if column is not None:
                found[field["name"]] = column
    except (IndexError, ValueError, OverflowError, pa.ArrowInvalid) as error:
        raise DataCorrupt(
            f"{where}: {len(ends)} Avro records do not match their schema: {error}"
        ) from error
    if not np.array_equal(cursor.at, ends):
        wrong = int(np.flatnonzero(cursor.at != ends)[0])
        raise DataCorrupt(f"{where}: the length of record {wrong} does not match its schema")
    fields = [target.field(name) for name in selected]
    return pa.Table.from_arrays([found[name] for name in selected], schema=pa.schema(fields))


def _nullable_branches(avro: AvroType) -> tuple[AvroType, int, int | None] | None:
    """Return the type in a union with null, its branch and that of null; None for other unions."""
    branches = avro if isinstance(avro, list) else [avro]
    inner = [branch for branch in branches if branch != "null"]
    if len(inner) != 1 or len(branches) > 2 or _wire_shape(inner[0]) is None:
        return None
    null = branches.index("null") if len(branches) == 2 else None
    return inner[0], branches.index(inner[0]), null


def _wire_shape(avro: AvroType) -> str | None:
    """Return how values of a type are encoded in a record; None for unsupported types."""
    name = avro["type"] if isinstance(avro, Mapping) else avro
    if name in ("int", "long"):
        return "varint"
    if name in ("float", "double", "boolean"):
        return "octets"
    logical = avro.get("logicalType") if isinstance(avro, Mapping) else None
    if name in ("string", "bytes"):
        return "text" if logical is None else None
    if name == "fixed" and isinstance(avro, Mapping) and avro["size"] <= 16:
        return "octets" if logical in (None, "decimal") else None
    return None


class _Cursor:
    """The position of the next field in each record."""

    def __init__(self, data: Octets, at: Positions) -> None:
        self._data = data
        self.at = at

    def column(self, avro: AvroType, kind: pa.DataType, *, skip: bool) -> pa.Array | None:
        """Read the next field of every record."""
        branches = _nullable_branches(avro)
        assert branches is not None, "can_decode was checked before"
        inner, value, null = branches
        rows: Positions | None = None
        if null is not None:
            branch = self._data[self.at]
            self.at = self.at + 1
            known = (branch == 2 * value) | (branch == 2 * null)
            if not known.all():
                wrong = int(np.flatnonzero(~known)[0])
                raise ValueError(f"record {wrong} has branch {branch[wrong]} in a union of 2")
            if not (branch == 2 * value).all():
                rows = np.flatnonzero(branch == 2 * value)
        match _wire_shape(inner):
            case "varint":
                return self._varint(kind, rows, skip=skip)
            case "octets":
                size = inner.get("size", 0) if isinstance(inner, Mapping) else 0
                size = size or (1 if pt.is_boolean(kind) else kind.bit_width // 8)
                return self._fixed(kind, rows, size, skip=skip)
            case _:
                return self._text(kind, rows, skip=skip)

    def _varint(self, kind: pa.DataType, rows: Positions | None, *, skip: bool) -> pa.Array | None:
        """Read a varint of each of `rows` (None: all)."""
        numbers, sizes = self._read_varints(rows)
        self._advance(rows, sizes)
        if skip:
            return None
        if kind.bit_width == 32:
            if len(numbers) and (numbers.min() < -(2**31) or numbers.max() >= 2**31):
                raise OverflowError("an int has more than 32 bits")
            return self._array(kind, numbers.astype(np.int32), rows)
        return self._array(kind, numbers, rows)

    def _fixed(
        self, kind: pa.DataType, rows: Positions | None, size: int, *, skip: bool
    ) -> pa.Array | None:
        at = self.at if rows is None else self.at[rows]
        values = None if skip else self._data[at[:, None] + np.arange(size)]
        self._advance(rows, size)
        if values is None:
            return None
        if pt.is_boolean(kind):
            flags = self._array(pa.uint8(), values.reshape(-1), rows)
            return flags.cast(pa.bool_())
        if pt.is_decimal(kind):
            values = _sign_extend(values, kind.bit_width // 8)
        return self._array(kind, values, rows)

    def _text(self, kind: pa.DataType, rows: Positions | None, *, skip: bool) -> pa.Array | None:
        lengths, sizes = self._read_varints(rows)
        if len(lengths) and not 0 <= lengths.min() <= lengths.max() <= len(self._data):
            raise ValueError("a string exceeds the block, or has a negative length")
        self._advance(rows, sizes)
        starts = self.at
        self._advance(rows, lengths)
        if skip:
            return None
        # View the bytes as alternating strings and gaps, without copying; then take every second.
        bounds = np.zeros(2 * len(starts) + 1, np.int64)
        bounds[:-1:2] = starts
        bounds[1::2] = self.at
        bounds[-1] = bounds[-2]
        if (np.diff(bounds) < 0).any() or bounds[-1] > len(self._data):
            raise ValueError("a string exceeds its record")
        # Blocks are smaller than 2 GiB, so offsets fit into int32.
        buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(self._data)]
        pairs = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
        chosen = pa.array(np.arange(0, 2 * len(starts), 2))
        if rows is not None:
            chosen = pa.Array.from_buffers(
                pa.int64(), len(starts), [self._bitmap(rows), chosen.buffers()[1]]
            )
        return pairs.take(chosen).cast(kind)

    def _read_varints(self, rows: Positions | None) -> tuple[Positions, Positions]:
        """Return one number per row, and the size of each in bytes."""
        at = self.at if rows is None else self.at[rows]
        octet = self._data[at]
        value = (octet & 0x7F).astype(np.uint64)
        sizes = np.ones(len(at), np.int64)
        unfinished = np.flatnonzero(octet & 0x80)
        for position in range(1, _VARINT_BYTES_MAX):
            if not len(unfinished):
                break
            octet = self._data[at[unfinished] + position]
            value[unfinished] |= (octet & 0x7F).astype(np.uint64) << np.uint64(7 * position)
            sizes[unfinished] += 1
            unfinished = unfinished[(octet & 0x80) != 0]
        if len(unfinished):
            raise ValueError("a long has more than 64 bits")
        halves = (value >> np.uint64(1)).view(np.int64)
        return halves ^ -((value & np.uint64(1)).view(np.int64)), sizes

    def _advance(self, rows: Positions | None, sizes: Positions | int) -> None:
        if rows is None:
            self.at = self.at + sizes
        else:
            self.at = self.at.copy()
            self.at[rows] += sizes

    def _array(
        self, kind: pa.DataType, values: npt.NDArray[Any], rows: Positions | None
    ) -> pa.Array:
        bitmap = None
        if rows is not None:
            whole = np.zeros((len(self.at), *values.shape[1:]), values.dtype)
            whole[rows] = values
            values, bitmap = whole, self._bitmap(rows)
        data = pa.py_buffer(np.ascontiguousarray(values))
        return pa.Array.from_buffers(kind, len(self.at), [bitmap, data])

    def _bitmap(self, rows: Positions) -> pa.Buffer:
        valid = np.zeros(len(self.at), np.bool_)
        valid[rows] = True
        return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _sign_extend(values: Octets, width: int) -> Octets:
    """Convert big-endian numbers to little-endian ones of `width` bytes, with their sign."""
    wide = np.empty((len(values), width), np.uint8)
    size = values.shape[1]
    wide[:, :size] = values[:, ::-1]
    wide[:, size:] = np.where(values[:, :1] & 0x80, 0xFF, 0)
    return wide


def encode_framed(table: pa.Table, schema: Mapping[str, Any], *, where: str) -> bytes:
    """Encode the rows of `table` as Avro records of `schema`, each after its length in 4 bytes.

    Raises: `InvalidInput` if a value does not match the schema.
    """
    if not table.num_rows:
        return b""
    if table.num_rows < _COLUMNWISE_ROWS_MIN:
        return _encode_row_by_row(table, schema, where)
    try:
        parts = [part for field in schema["fields"] for part in _encode_field(table, field, where)]
    except (SchemaParseException, DataCorrupt):
        # A later column may refer to a type that an earlier column defines.
        parts = [pa.array(encode_rows(table, schema, where=where), pa.binary())]
    lengths = np.zeros(table.num_rows, np.int32)
    for part in parts:
        lengths += np.diff(_offsets(part))
    head = _fixed_width_rows(lengths.astype(">i4").view(np.uint8).reshape(-1, 4))
    joined = pc.binary_join_element_wise(head, *parts, b"")
    offsets = _offsets(joined)
    return bytes(memoryview(joined.buffers()[2])[offsets[0] : offsets[-1]])


def _encode_row_by_row(table: pa.Table, schema: Mapping[str, Any], where: str) -> bytes:
    target = arrow_schema(schema, where=where)
    columns = []
    for field in target:
        column = table.column(field.name)
        if column.null_count and not field.nullable:
            raise _null_error(where, field.name)
        try:
            columns.append(column.cast(field.type))
        except _MISFITS as error:
            raise _misfit_error(where, field.name, error) from error
    records = encode_rows(pa.Table.from_arrays(columns, schema=target), schema, where=where)
    return b"".join(part for each in records for part in (len(each).to_bytes(4, "big"), each))


def _null_error(where: str, name: str) -> InvalidInput:
    return InvalidInput(f"{where}: column {name} has nulls, but is not nullable")


def _misfit_error(where: str, name: str, error: Exception) -> InvalidInput:
    return InvalidInput(f"{where}: column {name} does not match its schema: {error}")


def _encode_field(table: pa.Table, field: Mapping[str, Any], where: str) -> list[pa.Array]:
    """Encode one field: one or two byte strings for each row."""
    name = field["name"]
    column = table.column(name)
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array = as_array(column)
    branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
    nullable = "null" in branches
    if array.null_count and not nullable:
        raise _null_error(where, name)
    inner = [branch for branch in branches if branch != "null"]
    encode = _encoder(inner[0], array.type) if len(inner) == 1 else None
    if encode is None:
        part = {"type": "record", "name": "one_column", "fields": [field]}
        return [pa.array(encode_rows(table.select([name]), part, where=where), pa.binary())]
    prefix = None
    if nullable:
        # The branch number before each value, in zigzag.
        at, none = 2 * branches.index(inner[0]), 2 * branches.index("null")
        prefix = np.where(_validity(array), at, none).astype(np.uint8)
    try:
        return encode(array, prefix)
    except _MISFITS as error:
        raise _misfit_error(where, name, error) from error


_Encode = Callable[[pa.Array, Octets | None], list[pa.Array]]


def _encoder(avro: AvroType, kind: pa.DataType) -> _Encode | None:
    """Return the encoder for columns of this type; None for nested and rare types."""
    name = avro["type"] if isinstance(avro, Mapping) else avro
    if name in ("int", "long"):
        return lambda array, prefix: [_varints(_as_integers(array, avro), _validity(array), prefix)]
    if name in ("string", "bytes"):
        return None if isinstance(avro, Mapping) and "logicalType" in avro else _encode_strings
    if name in ("float", "double"):
        wide = pa.float32() if name == "float" else pa.float64()
        return lambda array, prefix: [_encode_fixed(_raw_values(array.cast(wide)), array, prefix)]
    if name == "boolean" and pt.is_boolean(kind):
        return lambda array, prefix: [
            _encode_fixed(_raw_values(array.cast(pa.uint8())), array, prefix)
        ]
    if name == "fixed" and pt.is_decimal128(kind):
        size = int(avro["size"])
        return lambda array, prefix: [
            _encode_fixed(_big_endian_decimals(array, size), array, prefix)
        ]
    return None


def _validity(array: pa.Array) -> npt.NDArray[np.bool_]:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return _raw_values(array.is_valid().cast(pa.uint8())).reshape(-1).view(np.bool_)


def _raw_values(array: pa.Array) -> Octets:
    """Return fixed-width values as rows of bytes; values of null rows are undefined."""
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


_MISFITS: Final = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)

_COLUMNWISE_ROWS_MIN: Final = 64
"""Fewer rows are encoded one by one, because column-wise encoding has a fixed cost."""

_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}


def _as_integers(array: pa.Array, avro: AvroType) -> npt.NDArray[np.int64]:
    """Convert integers, dates and times to the numbers of their Avro type."""
    declared = avro if isinstance(avro, Mapping) else {"type": avro}
    name, logical = declared["type"], declared.get("logicalType", "")
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
    return _raw_values(whole).reshape(-1).view(np.int64)


def _varints(
    numbers: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_], prefix: Octets | None
) -> pa.Array:
    """Encode numbers in zigzag, seven bits per byte; nothing for rows that are not valid."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    zigzag = np.where(valid, zigzag, 0) if prefix is not None else zigzag
    bits = int(zigzag.max()).bit_length()
    width = max(1, -(-bits // 7))
    counts = np.ones(len(numbers), np.int32)
    for position in range(1, width):
        counts += zigzag >= np.uint64(1 << (7 * position))
    before = 0 if prefix is None else 1
    table = np.empty((len(numbers), width + before), np.uint8)
    for position in range(width):
        octet = (zigzag >> np.uint64(7 * position)).astype(np.uint8) & 0x7F
        table[:, before + position] = np.where(counts > position + 1, octet | 0x80, octet)
    if prefix is not None:
        table[:, 0] = prefix
        counts = np.where(valid, counts, 0) + 1
    return _trim_rows(table, counts)


def _encode_strings(array: pa.Array, prefix: Octets | None) -> list[pa.Array]:
    binary = array.cast(pa.binary())
    lengths = pc.fill_null(pc.binary_length(binary), 0)
    sizes = _raw_values(lengths.cast(pa.int64())).reshape(-1).view(np.int64)
    head = _varints(sizes, _validity(array), prefix)
    return [head, pc.fill_null(binary, b"") if binary.null_count else binary]


def _big_endian_decimals(array: pa.Array, size: int) -> Octets:
    """Return the last `size` bytes of each decimal in big-endian order."""
    return _raw_values(array)[:, size - 1 :: -1] if size < 16 else _raw_values(array)[:, ::-1]


def _encode_fixed(values: Octets, array: pa.Array, prefix: Octets | None) -> pa.Array:
    if prefix is None:
        return _fixed_width_rows(values)
    table = np.empty((len(values), values.shape[1] + 1), np.uint8)
    table[:, 0] = prefix
    table[:, 1:] = values
    if not array.null_count:
        return _fixed_width_rows(table)
    return _trim_rows(table, np.where(_validity(array), table.shape[1], 1).astype(np.int32))


def _trim_rows(table: Octets, counts: npt.NDArray[np.int32]) -> pa.Array:
    """Return the first `counts` bytes of each row."""
    width = table.shape[1]
    data = table if width == counts.min() else table[np.arange(width) < counts[:, None]]
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return _from_buffers(offsets, data)


def _fixed_width_rows(table: Octets) -> pa.Array:
    offsets = np.arange(len(table) + 1, dtype=np.int32) * np.int32(table.shape[1])
    return _from_buffers(offsets, np.ascontiguousarray(table))


def _from_buffers(offsets: npt.NDArray[np.int32], data: Octets) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    whole = np.frombuffer(array.buffers()[1], np.int32)
    return whole[array.offset : array.offset + len(array) + 1]
