"""Rows in Spark as Arrow IPC streams in a binary column: chunks.

Spark moves rows one by one; a chunk is a single row to Spark, whatever number of rows it holds. So
rows are converted to Arrow once, when they first reach a Python worker, and a shuffle moves few
large values instead of many small ones.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st

from tidelock.hudi.schema import row_numbers

CHUNK_BYTES_MAX: Final = 4 * 1024 * 1024
"""The maximum size of a chunk, which is one value in Spark's memory and copied several times."""

_PIECES_MAX: Final = 4096
"""More than the number of chunks that any batch is split into."""

_FIELDS: Final = (
    ("part", st.IntegerType(), pa.int32()),
    ("source", st.IntegerType(), pa.int32()),
    ("number", st.LongType(), pa.int64()),
    ("rows", st.LongType(), pa.int64()),
    ("size", st.LongType(), pa.int64()),
    ("note", st.BinaryType(), pa.binary()),
    ("payload", st.BinaryType(), pa.binary()),
)
CHUNK_SCHEMA: Final = st.StructType([st.StructField(name, kind) for name, kind, _ in _FIELDS])
_ARROW_SCHEMA: Final = pa.schema([pa.field(name, kind) for name, _, kind in _FIELDS])


@dataclass(frozen=True, slots=True)
class ArrowChunk:
    """Some rows, their destination (`part`), their source and their order.

    `note` is picklable information for the driver, which does not open the rows. A negative
    `source` means that the rows are keys of the table, not the user's rows.
    """

    part: int
    source: int
    number: int
    rows: pa.Table | None
    note: object = None

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the chunk as Spark carries it: a batch of one row, or of several if it is large.

        The first one has the note.
        """
        if self.rows is None:
            yield _chunk_batch(self, self.number * _PIECES_MAX, 0, self.note, b"")
            return
        step = _rows_per_chunk(self.rows)
        for index, start in enumerate(range(0, max(1, self.rows.num_rows), step)):
            rows = self.rows.slice(start, step)
            number = self.number * _PIECES_MAX + index
            yield _chunk_batch(
                self, number, rows.num_rows, None if index else self.note, to_ipc(rows)
            )


def read_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[ArrowChunk]:
    """Yield the chunks that reached a worker."""
    for batch in batches:
        columns = {name: batch.column(name) for name, _, _ in _FIELDS}
        for i in range(batch.num_rows):
            payload = columns["payload"][i]
            rows = from_ipc(payload.as_buffer()) if columns["rows"][i].as_py() else None
            note = pickle.loads(columns["note"][i].as_py())  # noqa: S301 - our own worker wrote it
            yield ArrowChunk(
                columns["part"][i].as_py(),
                columns["source"][i].as_py(),
                columns["number"][i].as_py(),
                rows,
                note,
            )


def to_ipc(rows: pa.Table) -> bytes:
    """Return the rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def from_ipc(data: object) -> pa.Table:
    """Return the rows of an Arrow IPC stream."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def split_rows(rows: pa.Table, numbers: pa.Array) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each number, in their original order."""
    values, counts = (part.to_pylist() for part in numbers.value_counts().flatten())
    sizes: dict[int, int] = dict(zip(values, counts, strict=True))
    if len(sizes) == 1:
        (number,) = sizes
        yield number, rows
        return
    # Sorting by one key is not guaranteed to be stable, so add the position.
    keys = pa.table({"number": numbers, "position": row_numbers(len(numbers))})
    order = pc.sort_indices(keys, sort_keys=[("number", "ascending"), ("position", "ascending")])
    ordered = rows.take(order)
    start = 0
    for number in sorted(sizes):
        yield number, ordered.slice(start, sizes[number])
        start += sizes[number]


def _rows_per_chunk(rows: pa.Table) -> int:
    file_slices = max(1, -(-int(rows.nbytes) // CHUNK_BYTES_MAX))
    return max(1, -(-int(rows.num_rows) // file_slices))


def _chunk_batch(
    chunk: ArrowChunk, number: int, count: int, note: object, payload: bytes
) -> pa.RecordBatch:
    note_bytes = pickle.dumps(note)
    values = [chunk.part, chunk.source, number, count, len(payload), note_bytes, payload]
    arrays = [pa.array([v], field.type) for v, field in zip(values, _ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)
