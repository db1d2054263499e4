"""A base file in the making: meta columns in front, row groups of a bounded size, Hudi's footer."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pt

from tidelock.kernel.columns import constant, dictionary_columns
from tidelock.kernel.context import WriteContext
from tidelock.kernel.keynotes import KeyNotes
from tidelock.kernel.newbase import NewBase
from tidelock.store.contract import ObjectStore
from tidelock.table.schema.meta import FILE_NAME, PARTITION_PATH, RECORD_KEY

SAME_IN_ALL_ROWS: Final = (PARTITION_PATH, FILE_NAME)
"""Meta columns whose value the writer knows for the whole file; rows need not bring them."""


def stored_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns that are read of stored rows: the writer knows the others."""
    return pa.schema([field for field in schema if field.name not in SAME_IN_ALL_ROWS])


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
        self._settings = ctx.settings
        self._schema = ctx.schema
        self._partition = partition
        self._held = ExitStack()
        self._file = self._held.enter_context(
            NewBase(store, ctx, partition=partition, file_id=file_id, slot=slot, first=first)
        )
        self.name = self._file.name
        self._writer: pq.ParquetWriter | None = None
        self._encoded: set[str] = set()
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self.rows = 0
        self._keys = KeyNotes(ctx.settings.bloom)

    @property
    def size_bytes(self) -> int:
        """How much has gone to the file; rows that wait for their row group are not in it."""
        return self._file.size_bytes

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
        self._keys.add(rows.column(RECORD_KEY))
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
        footer = self._keys.footer()
        if footer:
            writer.add_key_value_metadata(footer)
        writer.close()
        size_bytes = self._file.land(self.rows)
        self._held.close()
        keys = self._keys
        return BaseWritten(self.name, self.rows, size_bytes, keys.least, keys.greatest)

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
                self._file.sink,
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
