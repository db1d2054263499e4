"""Columns made or judged as a whole: constants, sequence numbers, and which repeat themselves."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.table.schema.meta import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    META_COLUMNS,
    PARTITION_PATH,
)

_SAMPLE_ROWS: Final = 4_096
_SAMPLE_ROWS_MIN: Final = 100
_DISTINCT_SHARE: Final = 0.7
"""Of the sampled values, so many may differ before a dictionary costs more than it saves."""


def constant(value: str, size: int) -> pa.DictionaryArray:
    """Return a column that has one value in every row, and costs nothing to encode."""
    indices = pa.repeat(pa.scalar(0, pa.int32()), size)
    return pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.string()))


def sequence_numbers(instant: str, slot: int, size: int, *, start: int) -> pa.Array:
    """Return Hudi's `<instant>_<task>_<row>` for the rows from `start` on."""
    lead = f"{instant}_{slot}_".encode()
    texts: list[npt.NDArray[np.uint8]] = []
    first, end = start, start + size
    offsets = np.zeros(size + 1, np.int32)
    while first < end:
        # Numbers of as many digits are texts of one length, so they are made together.
        last = min(end, 10 ** len(str(first)))
        table = _numbered(lead, first, last)
        texts.append(table.reshape(-1))
        offsets[first - start + 1 : last - start + 1] = table.shape[1]
        first = last
    np.cumsum(offsets, out=offsets)
    data = pa.py_buffer(np.concatenate(texts) if texts else b"")
    return pa.Array.from_buffers(pa.string(), size, [None, pa.py_buffer(offsets), data])


def _numbered(lead: bytes, first: int, last: int) -> npt.NDArray[np.uint8]:
    """Return a row of letters for each number of `first` to `last`, which have as many digits."""
    if last <= 1_000:
        letters = b"".join(lead + str(number).encode() for number in range(first, last))
        return np.frombuffer(letters, np.uint8).reshape(last - first, -1)
    # The last three digits are the same in every thousand; what is before them is made once.
    thousand = first // 1_000
    heads = _numbered(lead, thousand, (last - 1) // 1_000 + 1)
    table = np.empty((len(heads), 1_000, heads.shape[1] + 3), np.uint8)
    table[:, :, :-3] = heads[:, None, :]
    table[:, :, -3:] = _THREE_DIGITS
    flat = table.reshape(-1, table.shape[2])
    return flat[first - 1_000 * thousand : last - 1_000 * thousand]


_THREE_DIGITS: Final = np.frombuffer(
    b"".join(f"{number:03}".encode() for number in range(1_000)), np.uint8
).reshape(1_000, 3)


def stamped(rows: pa.Table, *, instant: str, slot: int, start: int, schema: pa.Schema) -> pa.Table:
    """Return rows in the columns of `schema`, marked as written by this instant.

    The commit time is a dictionary of one. The file name is left empty: whoever writes the file
    knows it.
    """
    size = rows.num_rows
    made = {
        COMMIT_TIME: lambda: constant(instant, size),
        COMMIT_SEQNO: lambda: sequence_numbers(instant, slot, size, start=start),
        FILE_NAME: lambda: pa.nulls(size, pa.string()),
    }
    columns = []
    for field in schema:
        if field.name in made:
            columns.append(made[field.name]())
        elif field.name in rows.column_names:
            columns.append(rows.column(field.name))
        else:
            columns.append(pa.nulls(size, field.type))
    return pa.Table.from_arrays(columns, names=schema.names)


def dictionary_columns(
    rows: pa.Table, schema: pa.Schema, chosen: tuple[str, ...] | None
) -> list[str]:
    """Return the columns to be dictionary-encoded: those named, or those that repeat themselves.

    Keys and sequence numbers never repeat; the other meta columns hardly do anything else.
    """
    meta = [COMMIT_TIME, PARTITION_PATH, FILE_NAME]
    if chosen is not None:
        return [*meta, *chosen]
    if rows.num_rows < _SAMPLE_ROWS_MIN:
        return [*meta, *(field.name for field in rows.schema if pt.is_dictionary(field.type))]
    sample = rows.slice(0, _SAMPLE_ROWS)
    for field in schema:
        if field.name in META_COLUMNS or pt.is_boolean(field.type):
            continue
        if pt.is_nested(field.type):
            meta += _texts_in(field.type, field.name)
        elif _repeats(sample.column(field.name)):
            meta.append(field.name)
    return meta


def _texts_in(kind: pa.DataType, path: str) -> list[str]:
    """Return the places of strings inside a nested column, by the names that Parquet has for them.

    They are not sampled; Parquet itself gives up a dictionary that grows too large.
    """
    if pt.is_struct(kind):
        return [at for part in kind for at in _texts_in(part.type, f"{path}.{part.name}")]
    if pt.is_list(kind) or pt.is_large_list(kind):
        return _texts_in(kind.value_type, f"{path}.list.element")
    if pt.is_map(kind):
        keys = _texts_in(kind.key_type, f"{path}.key_value.key")
        return keys + _texts_in(kind.item_type, f"{path}.key_value.value")
    return [path] if pt.is_string(kind) or pt.is_binary(kind) else []


def _repeats(column: pa.ChunkedArray) -> bool:
    if pt.is_dictionary(column.type):
        return True
    values = column.drop_null()
    if not len(values):
        return True
    return bool(pc.count_distinct(values).as_py() <= _DISTINCT_SHARE * len(values) + 1)
