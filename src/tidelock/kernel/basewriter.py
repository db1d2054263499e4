"""A base file in the making: meta columns in front, row groups of a bounded size, Hudi's footer."""

from __future__ import annotations

import io
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pt

from tidelock.kernel.columns import constant, dictionary_columns
from tidelock.kernel.context import WriteContext
from tidelock.kernel.landing import announce, rows_in_base, settled
from tidelock.store.contract import ObjectStore, Upload
from tidelock.table.index.bloom import (
    DYNAMIC,
    FOOTER_FILTER,
    FOOTER_MAX_KEY,
    FOOTER_MIN_KEY,
    FOOTER_TYPE,
    BloomFilter,
    Shape,
    encode_filter,
)
from tidelock.table.markers import IoType
from tidelock.table.schema.meta import FILE_NAME, PARTITION_PATH, RECORD_KEY

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SAME_IN_ALL_ROWS: Final = (PARTITION_PATH, FILE_NAME)
"""Meta columns whose value the writer knows for the whole file; rows need not bring them."""


@dataclass(frozen=True, slots=True)
class BaseWritten:
    """A base file that is in its place."""

    name: str
    rows: int
    size_bytes: int
    min_key: str | None
    max_key: str | None


class BaseWriter:
    """Writes one base file. Leaving the context without `finish` leaves nothing behind."""

    def __init__(
        self,
        store: ObjectStore,
        ctx: WriteContext,
        *,
        partition: str,
        file_id: str,
        slot: int,
        first: bool,
    ) -> None:
        """Announce the file, the group's `first` or one for all of it, and begin its upload."""
        self._store = store
        self._settings = ctx.settings
        self._schema = ctx.schema
        self._partition = partition
        self.name = ctx.base_name(file_id, slot)
        self._key = f"{partition}/{self.name}" if partition else self.name
        io_type = IoType.CREATE if first else IoType.MERGE
        announce(store, ctx, partition, self.name, io_type, first=first)
        self._held = ExitStack()
        self._upload = self._held.enter_context(store.upload(self._key))
        self._sink = self._held.enter_context(_sink(self._upload))
        self._writer: pq.ParquetWriter | None = None
        self._encoded: set[str] = set()
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self.rows = 0
        self._min_key: str | None = None
        self._max_key: str | None = None
        bloom = ctx.settings.bloom
        self._bloom = (
            None
            if bloom is None
            else BloomFilter(Shape.of(bloom.entries, bloom.rate), bloom.entries_max)
        )

    @property
    def size_bytes(self) -> int:
        """How much has gone to the file; rows that wait for their row group are not in it."""
        return int(self._sink.tell())

    @property
    def row_bytes(self) -> float | None:
        """What a row takes in the file so far; None before the first row group."""
        flushed = self.rows - self.pending_rows
        return self.size_bytes / flushed if flushed else None

    @property
    def pending_rows(self) -> int:
        """How many rows wait for their row group."""
        return sum(rows.num_rows for rows in self._pending)

    def write(self, rows: pa.Table) -> None:
        """Add rows with the columns of the schema; `SAME_IN_ALL_ROWS` may be missing."""
        if not rows.num_rows:
            return
        if not self.rows:
            kinds = zip(rows.column_names, rows.schema.types, strict=True)
            self._encoded = {name for name, kind in kinds if pt.is_dictionary(kind)}
        self._note_keys(rows.column(RECORD_KEY))
        self.rows += rows.num_rows
        room = self._settings.row_group_bytes
        width = max(1, rows.nbytes // rows.num_rows)
        start = 0
        while start < rows.num_rows:
            take = max(1, (room - self._pending_bytes) // width)
            part = rows.slice(start, take)
            self._pending.append(part)
            self._pending_bytes += width * part.num_rows
            start += part.num_rows
            if self._pending_bytes + width > room:
                self.flush()

    def flush(self) -> None:
        """Write the rows that wait as a row group."""
        if not self._pending:
            return
        whole = pa.concat_tables([self._fitted(rows) for rows in self._pending])
        self._pending.clear()
        self._pending_bytes = 0
        self._opened(whole).write_table(self._complete(whole), row_group_size=whole.num_rows)

    def finish(self) -> BaseWritten:
        """Write the footer and bring the file to its place.

        Raises: what `landing.settled` raises.
        """
        self.flush()
        writer = self._opened(self._schema.empty_table())
        footer = self._footer()
        if footer:
            writer.add_key_value_metadata(footer)
        writer.close()
        size_bytes = self.size_bytes
        self._sink.close()
        reply = self._upload.finish()
        size_bytes = settled(
            self._store,
            self._key,
            reply,
            size_bytes=size_bytes,
            rows=self.rows,
            count=rows_in_base,
        )
        self._held.close()
        return BaseWritten(self.name, self.rows, size_bytes, self._min_key, self._max_key)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give up what is not finished."""
        if self._writer is not None and self._writer.is_open:
            self._writer.is_open = False  # its footer would be written to a file nobody wants
        self._held.__exit__(kind, error, trace)

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            settings = self._settings
            self._writer = pq.ParquetWriter(
                self._sink,
                self._stored_schema(),
                compression=settings.compression,
                use_dictionary=dictionary_columns(first, self._schema, settings.dictionary),
                write_statistics=settings.statistics,
                coerce_timestamps="us",
                allow_truncated_timestamps=True,
                store_schema=False,
            )
        return self._writer

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the columns that repeat themselves as dictionaries, or without."""
        columns = []
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            encoded = name in self._encoded
            if encoded and not pt.is_dictionary(column.type):
                columns.append(column.dictionary_encode())
            elif not encoded and pt.is_dictionary(column.type):
                columns.append(column.cast(column.type.value_type))
            else:
                columns.append(column)
        return pa.Table.from_arrays(columns, names=rows.column_names)

    def _stored_schema(self) -> pa.Schema:
        few = pa.dictionary(pa.int32(), pa.string())
        fields = [
            field.with_type(few)
            if field.name in SAME_IN_ALL_ROWS or field.name in self._encoded
            else field
            for field in self._schema
        ]
        return pa.schema(fields)

    def _complete(self, rows: pa.Table) -> pa.Table:
        """Return the rows in the schema's order with the columns that all of them share."""
        values = {PARTITION_PATH: self._partition, FILE_NAME: self.name}
        schema = self._stored_schema()
        columns = [
            constant(values[field.name], rows.num_rows)
            if field.name in values
            else rows.column(field.name)
            for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema).unify_dictionaries()

    def _note_keys(self, keys: pa.ChunkedArray) -> None:
        bounds = pc.min_max(keys).as_py()
        low, high = bounds["min"], bounds["max"]
        self._min_key = low if self._min_key is None else min(self._min_key, low)
        self._max_key = high if self._max_key is None else max(self._max_key, high)
        if self._bloom is not None:
            for chunk in keys.chunks:
                self._bloom.add(chunk)

    def _footer(self) -> dict[str, str]:
        found = {}
        if self._min_key is not None and self._max_key is not None:
            found = {FOOTER_MIN_KEY: self._min_key, FOOTER_MAX_KEY: self._max_key}
        if self._bloom is not None:
            found |= {FOOTER_FILTER: encode_filter(self._bloom), FOOTER_TYPE: DYNAMIC}
        return found


def _sink(upload: Upload) -> pa.NativeFile:
    """Return a file that Arrow writes to, natively where the upload has a path."""
    if upload.path is not None:
        return pa.OSFile(upload.path, mode="wb")
    return pa.PythonFile(_UploadFile(upload), mode="w")


class _UploadFile(io.RawIOBase):
    """An upload as a file to write to."""

    def __init__(self, upload: Upload) -> None:
        super().__init__()
        self._upload = upload
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer) -> int:
        size = memoryview(data).nbytes
        self._upload.write(data)
        self._position += size
        return size
