"""Rows on their way through Spark as Arrow messages in a binary column: parcels.

Spark moves rows one by one; a parcel is one row to it, however many rows of the user's it holds. So
rows are turned into Arrow once, when they first reach a Python worker, and a shuffle after that
moves few large values instead of many small ones.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st

PARCEL_BYTES: Final = 4 * 1024 * 1024
"""A parcel is one value in Spark's memory, and is copied there a few times, so it is cut."""

_PIECES_MAX: Final = 4096
"""A batch is never so large that it is cut into more."""

_FIELDS: Final = (
    ("part", st.IntegerType(), pa.int32()),
    ("source", st.IntegerType(), pa.int32()),
    ("number", st.LongType(), pa.int64()),
    ("rows", st.LongType(), pa.int64()),
    ("size", st.LongType(), pa.int64()),
    ("note", st.BinaryType(), pa.binary()),
    ("payload", st.BinaryType(), pa.binary()),
)
PARCEL: Final = st.StructType([st.StructField(name, kind) for name, kind, _ in _FIELDS])
_ARROW: Final = pa.schema([pa.field(name, kind) for name, _, kind in _FIELDS])


@dataclass(frozen=True, slots=True)
class Parcel:
    """Some rows, where they go (`part`), where they came from and in which order.

    `note` is what the driver wants to know of them without opening them: anything picklable. A
    `source` below zero says that they are keys of the table, and not rows of the user's.
    """

    part: int
    source: int
    number: int
    rows: pa.Table | None
    note: object = None

    def sent(self) -> Iterator[pa.RecordBatch]:
        """Yield the parcel as Spark carries it: a batch of one row, or of several when it is big.

        The note goes with the first.
        """
        if self.rows is None:
            yield _batch(self, self.number * _PIECES_MAX, 0, self.note, b"")
            return
        step = _step(self.rows)
        for piece, start in enumerate(range(0, max(1, self.rows.num_rows), step)):
            rows = self.rows.slice(start, step)
            number = self.number * _PIECES_MAX + piece
            yield _batch(self, number, rows.num_rows, None if piece else self.note, packed(rows))


def parcels(batches: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
    """Yield the parcels that reached a worker."""
    for batch in batches:
        columns = {name: batch.column(name) for name, _, _ in _FIELDS}
        for i in range(batch.num_rows):
            payload = columns["payload"][i]
            rows = unpacked(payload.as_buffer()) if columns["rows"][i].as_py() else None
            note = pickle.loads(columns["note"][i].as_py())  # noqa: S301 - our own worker wrote it
            yield Parcel(
                columns["part"][i].as_py(),
                columns["source"][i].as_py(),
                columns["number"][i].as_py(),
                rows,
                note,
            )


def packed(rows: pa.Table) -> bytes:
    """Return the rows as one Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpacked(data: object) -> pa.Table:
    """Return the rows of an Arrow stream."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def split(rows: pa.Table, numbers: pa.Array) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each number, in the order that they had."""
    values, counts = (part.to_pylist() for part in numbers.value_counts().flatten())
    sizes: dict[int, int] = dict(zip(values, counts, strict=True))
    if len(sizes) == 1:
        (number,) = sizes
        yield number, rows
        return
    # Sorting by several keys is stable, which sorting by one alone does not promise.
    places = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(numbers))), 1)
    keys = pa.table({"number": numbers, "place": places})
    order = pc.sort_indices(keys, sort_keys=[("number", "ascending"), ("place", "ascending")])
    ordered = rows.take(order)
    start = 0
    for number in sorted(sizes):
        yield number, ordered.slice(start, sizes[number])
        start += sizes[number]


def _step(rows: pa.Table) -> int:
    pieces = max(1, -(-int(rows.nbytes) // PARCEL_BYTES))
    return max(1, -(-int(rows.num_rows) // pieces))


def _batch(parcel: Parcel, number: int, count: int, note: object, payload: bytes) -> pa.RecordBatch:
    said = pickle.dumps(note)
    values = [parcel.part, parcel.source, number, count, len(payload), said, payload]
    arrays = [pa.array([v], field.type) for v, field in zip(values, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
