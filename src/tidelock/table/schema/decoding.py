"""Avro records as Arrow columns, all records at once: field by field, each record at its own place.

Records stand one behind the other, and the place of each is known. A field is read from all of them
together, which tells where the next field of each begins. Nested and rare types cannot be read so;
blocks with such columns are left to fastavro.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from tidelock.base.errors import DataCorrupt
from tidelock.table.schema.avro import AvroType, arrow_schema

Octets = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

_VARINT_BYTES_MAX: Final = 10


def can_decode(schema: Mapping[str, Any]) -> bool:
    """Tell whether every column of a schema is of a type that is decoded here."""
    return all(_branches(field["type"]) is not None for field in schema["fields"])


def decode_columns(
    content: bytes | memoryview,
    places: Sequence[int],
    schema: Mapping[str, Any],
    *,
    gap_bytes: int,
    columns: Collection[str] | None = None,
    where: str,
) -> pa.Table:
    """Return records, each the Avro binary of one `schema` record, as a table.

    `places` are where the records begin in `content`, and where one after the last would; between
    two of them lie `gap_bytes` that belong to neither. Of `columns`, those that the schema has are
    returned; all if None.

    Raises: `DataCorrupt` when bytes and schema do not fit.
    """
    starts = np.asarray(places, np.int64)
    ends = starts[1:] - gap_bytes
    cursor = _Cursor(np.frombuffer(content, np.uint8), starts[:-1])
    meant = arrow_schema(schema, where=where)
    wanted = [name for name in meant.names if columns is None or name in columns]
    if not len(ends):
        return meant.empty_table().select(wanted)
    found = {}
    try:
        for field, kind in zip(schema["fields"], meant.types, strict=True):
            column = cursor.column(field["type"], kind, skip=field["name"] not in wanted)
            if column is not None:
                found[field["name"]] = column
    except (IndexError, ValueError, OverflowError, pa.ArrowInvalid) as error:
        raise DataCorrupt(
            f"{where}: {len(ends)} Avro records do not fit their schema: {error}"
        ) from error
    if not np.array_equal(cursor.at, ends):
        wrong = int(np.flatnonzero(cursor.at != ends)[0])
        raise DataCorrupt(f"{where}: record {wrong} is longer or shorter than its schema says")
    fields = [meant.field(name) for name in wanted]
    return pa.Table.from_arrays([found[name] for name in wanted], schema=pa.schema(fields))


def _branches(avro: AvroType) -> tuple[AvroType, int, int | None] | None:
    """Return the type in a union with null, its number and that of null; None for another union."""
    branches = avro if isinstance(avro, list) else [avro]
    inner = [branch for branch in branches if branch != "null"]
    if len(inner) != 1 or len(branches) > 2 or _shape(inner[0]) is None:
        return None
    null = branches.index("null") if len(branches) == 2 else None
    return inner[0], branches.index(inner[0]), null


def _shape(avro: AvroType) -> str | None:
    """Return how values of a type stand in a record; None for those that are not read here."""
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


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of all records: its types, the rows that have a value (None: all), and its use."""

    avro: AvroType
    kind: pa.DataType
    rows: Places | None
    skip: bool


class _Cursor:
    """Where the next field of each record begins."""

    def __init__(self, data: Octets, at: Places) -> None:
        self._data = data
        self.at = at

    def column(self, avro: AvroType, kind: pa.DataType, *, skip: bool) -> pa.Array | None:
        """Read the next field of every record."""
        branches = _branches(avro)
        assert branches is not None, "asked before: can_decode"
        inner, value, null = branches
        rows: Places | None = None
        if null is not None:
            branch = self._data[self.at]
            self.at = self.at + 1
            known = (branch == 2 * value) | (branch == 2 * null)
            if not known.all():
                wrong = int(np.flatnonzero(~known)[0])
                raise ValueError(f"record {wrong} has the branch {branch[wrong]} in a union of 2")
            if not (branch == 2 * value).all():
                rows = np.flatnonzero(branch == 2 * value)
        field = _Field(inner, kind, rows, skip)
        match _shape(inner):
            case "varint":
                return self._varint(field)
            case "octets":
                return self._octets(field)
            case _:
                return self._text(field)

    def _varint(self, field: _Field) -> pa.Array | None:
        kind, rows = field.kind, field.rows
        numbers, sizes = self._read_varints(rows)
        self._advance(rows, sizes)
        if field.skip:
            return None
        if kind.bit_width == 32:
            if len(numbers) and (numbers.min() < -(2**31) or numbers.max() >= 2**31):
                raise OverflowError("a number has more than 32 bits")
            return self._array(kind, numbers.astype(np.int32), rows)
        return self._array(kind, numbers, rows)

    def _octets(self, field: _Field) -> pa.Array | None:
        kind, rows = field.kind, field.rows
        size = field.avro.get("size", 0) if isinstance(field.avro, Mapping) else 0
        size = size or (1 if pt.is_boolean(kind) else kind.bit_width // 8)
        at = self.at if rows is None else self.at[rows]
        values = None if field.skip else self._data[at[:, None] + np.arange(size)]
        self._advance(rows, size)
        if values is None:
            return None
        if pt.is_boolean(kind):
            flags = self._array(pa.uint8(), values.reshape(-1), rows)
            return flags.cast(pa.bool_())
        if pt.is_decimal(kind):
            values = _widened(values, kind.bit_width // 8)
        return self._array(kind, values, rows)

    def _text(self, field: _Field) -> pa.Array | None:
        kind, rows = field.kind, field.rows
        lengths, sizes = self._read_varints(rows)
        if len(lengths) and not 0 <= lengths.min() <= lengths.max() <= len(self._data):
            raise ValueError("a text is longer than the block, or has a negative length")
        self._advance(rows, sizes)
        starts = self.at
        self._advance(rows, lengths)
        if field.skip:
            return None
        # Texts and what lies between them, in turn, over the bytes as they are; then every second.
        bounds = np.zeros(2 * len(starts) + 1, np.int64)
        bounds[:-1:2] = starts
        bounds[1::2] = self.at
        bounds[-1] = bounds[-2]
        if (np.diff(bounds) < 0).any() or bounds[-1] > len(self._data):
            raise ValueError("a text runs past its record")
        # Blocks are smaller than 2 GiB, so their places fit.
        buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(self._data)]
        pairs = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
        chosen = pa.array(np.arange(0, 2 * len(starts), 2))
        if rows is not None:
            chosen = pa.Array.from_buffers(
                pa.int64(), len(starts), [self._bitmap(rows), chosen.buffers()[1]]
            )
        return pairs.take(chosen).cast(kind)

    def _read_varints(self, rows: Places | None) -> tuple[Places, Places]:
        """Return a number of each row, and how many bytes it takes."""
        at = self.at if rows is None else self.at[rows]
        octet = self._data[at]
        value = (octet & 0x7F).astype(np.uint64)
        sizes = np.ones(len(at), np.int64)
        going = np.flatnonzero(octet & 0x80)
        for place in range(1, _VARINT_BYTES_MAX):
            if not len(going):
                break
            octet = self._data[at[going] + place]
            value[going] |= (octet & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            sizes[going] += 1
            going = going[(octet & 0x80) != 0]
        if len(going):
            raise ValueError("a number has more than 64 bits")
        halves = (value >> np.uint64(1)).view(np.int64)
        return halves ^ -((value & np.uint64(1)).view(np.int64)), sizes

    def _advance(self, rows: Places | None, sizes: Places | int) -> None:
        if rows is None:
            self.at = self.at + sizes
        else:
            self.at = self.at.copy()
            self.at[rows] += sizes

    def _array(self, kind: pa.DataType, values: npt.NDArray[Any], rows: Places | None) -> pa.Array:
        bitmap = None
        if rows is not None:
            whole = np.zeros((len(self.at), *values.shape[1:]), values.dtype)
            whole[rows] = values
            values, bitmap = whole, self._bitmap(rows)
        data = pa.py_buffer(np.ascontiguousarray(values))
        return pa.Array.from_buffers(kind, len(self.at), [bitmap, data])

    def _bitmap(self, rows: Places) -> pa.Buffer:
        valid = np.zeros(len(self.at), np.bool_)
        valid[rows] = True
        return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _widened(values: Octets, width: int) -> Octets:
    """Return big-endian numbers as little-endian ones of `width` bytes, with their sign."""
    wide = np.empty((len(values), width), np.uint8)
    size = values.shape[1]
    wide[:, :size] = values[:, ::-1]
    wide[:, size:] = np.where(values[:, :1] & 0x80, 0xFF, 0)
    return wide
