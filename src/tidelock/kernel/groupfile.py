"""A base file put together from row groups, and columns of them, that were encoded elsewhere.

Their bytes are copied. Only the column of the file's own name is made anew, and the footer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.base.errors import DataCorrupt
from tidelock.kernel.basewriter import SAME_IN_ALL_ROWS, BaseWritten
from tidelock.kernel.columns import constant, dictionary_columns
from tidelock.kernel.context import FileSettings, WriteContext
from tidelock.kernel.footer import (
    MAGIC,
    TAIL_BYTES,
    Chunk,
    Footer,
    RowGroup,
    footer_bytes,
    is_required,
    moved_chunk,
    moved_group,
    parse_footer,
)
from tidelock.kernel.keynotes import KeyNotes
from tidelock.kernel.newbase import NewBase
from tidelock.kernel.objectfile import opened_input
from tidelock.kernel.thriftcompact import Struct
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile
from tidelock.table.schema.meta import FILE_NAME, PARTITION_PATH, RECORD_KEY

_COPIED_BYTES: Final = 8 * 1024 * 1024
_TAIL_GUESS: Final = 64 * 1024
"""Mostly a footer is smaller, and is there after one request."""


def own_footer(ctx: WriteContext) -> Footer:
    """Return the footer of a file without rows, as this process writes it."""
    return _own_footer(ctx.schema, ctx.settings)


@lru_cache(maxsize=64)
def _own_footer(schema: pa.Schema, settings: FileSettings) -> Footer:
    sink = pa.BufferOutputStream()
    write_rows(sink, schema.empty_table(), schema, settings)
    return footer_in(sink.getvalue(), "a file without rows")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Columns of some rows, as they stand in a file, and what the footer says of them."""

    group: RowGroup
    body: pa.Buffer

    def chunk(self, name: str) -> tuple[Chunk, memoryview]:
        """Return one column and its bytes."""
        (found,) = (chunk for chunk in self.group.chunks if chunk.name == name)
        return found, memoryview(self.body)[found.start : found.start + found.size]


class GroupFile:
    """One file of row groups that were made elsewhere."""

    def __init__(self, base: NewBase, ctx: WriteContext, like: Footer) -> None:
        """Begin the file; its columns are those of `like`."""
        self._base = base
        self._ctx = ctx
        self._like = like
        self.name = base.name
        self.keys = KeyNotes(ctx.settings.bloom)
        self.groups: list[Struct] = []
        self.sources: dict[str, Footer] = {}
        self._rows = 0
        base.sink.write(MAGIC)

    @property
    def size_bytes(self) -> int:
        """How much has gone to the file."""
        return self._base.size_bytes

    def add(self, rows: pa.Table, partition: str) -> None:
        """Encode rows as a row group, and note their keys."""
        whole = complete(rows, self._ctx.schema, partition, self.name)
        made = self._encoded(whole)
        self._copy(made.group, pa.BufferReader(made.body), {})
        self.keys.add(rows.column(RECORD_KEY))

    def take(self, group: RowGroup, source: pa.NativeFile, changed: Encoded | None = None) -> None:
        """Copy a row group, whose rows name this file from now on.

        Columns that `changed` has are taken from there.
        """
        made = self.encoded(pa.table({}), group.rows) if changed is None else changed
        names = [chunk.name for chunk in made.group.chunks]
        self._copy(group, source, {name: made.chunk(name) for name in names})

    def _copy(
        self,
        group: RowGroup,
        source: pa.NativeFile,
        replaced: Mapping[str, tuple[Chunk, memoryview]],
    ) -> None:
        chunks: dict[str, Struct] = {}
        run = _Run(source, self._base.sink)
        for chunk in sorted(group.chunks, key=lambda each: each.start):
            if chunk.name in replaced:
                run.end()
                made, body = replaced[chunk.name]
                chunks[chunk.name] = moved_chunk(made, self.size_bytes)
                self._base.sink.write(body)
            else:
                chunks[chunk.name] = moved_chunk(chunk, run.add(chunk))
        run.end()
        ordered = [chunks[chunk.name] for chunk in group.chunks]
        self.groups.append(moved_group(group, ordered, ordinal=len(self.groups)))
        self._rows += group.rows

    def finish(self) -> BaseWritten:
        """Write the footer and bring the file to its place. Raises: what `settled` raises."""
        for where, footer in self.sources.items():
            self.keys.include(footer.pairs, where=where)
        self._base.sink.write(footer_bytes(self._like, self.groups, self.keys.footer()))
        size_bytes = self._base.land(self._rows)
        return BaseWritten(self.name, self._rows, size_bytes, self.keys.least, self.keys.greatest)

    def encoded(self, columns: pa.Table, rows: int) -> Encoded:
        """Return columns of so many rows, and beside them the one of this file's name."""
        required = is_required(self._like, FILE_NAME)
        # A dictionary of one, and as many references.
        name = constant(self.name, rows)
        field = pa.field(FILE_NAME, name.type, nullable=not required)
        whole = pa.Table.from_arrays(
            [*columns.columns, name], schema=pa.schema([*columns.schema, field])
        )
        return self._encoded(whole)

    def _encoded(self, rows: pa.Table) -> Encoded:
        sink = pa.BufferOutputStream()
        write_rows(sink, rows, self._ctx.schema, self._ctx.settings)
        body = sink.getvalue()
        (group,) = footer_in(body, self.name).groups
        return Encoded(group, body)


class _Run:
    """Neighbouring bytes of a source that are copied together, to the end of a sink."""

    def __init__(self, source: pa.NativeFile, sink: pa.NativeFile) -> None:
        self._source = source
        self._sink = sink
        self._start = self._end = 0

    def add(self, chunk: Chunk) -> int:
        """Take a chunk into the run, and return where in the sink it will begin."""
        if chunk.start != self._end:
            self.end()
            self._start = self._end = chunk.start
        place = int(self._sink.tell()) + self._end - self._start
        self._end += chunk.size
        return place

    def end(self) -> None:
        """Copy what was taken."""
        self._source.seek(self._start)
        while self._start < self._end:
            part = self._source.read_buffer(min(_COPIED_BYTES, self._end - self._start))
            if not part.size:
                raise DataCorrupt(f"the file ends before byte {self._end}, where a column ends")
            self._sink.write(part)
            self._start += part.size


def footer_of(store: ObjectStore, base: BaseFile, where: str) -> Footer | None:
    """Return a file's footer; None for one that is encrypted."""
    with opened_input(store, base.key, base.size_bytes) as file:
        size = base.size_bytes
        tail = _read(file, max(0, size - _TAIL_GUESS), size)
        if tail[-4:] != MAGIC or size < TAIL_BYTES + len(MAGIC):
            return None
        length = int.from_bytes(tail[-TAIL_BYTES:-4], "little")
        start = size - TAIL_BYTES - length
        if start < len(MAGIC):
            raise DataCorrupt(f"{where}: the footer of {length} bytes is longer than the file")
        if length + TAIL_BYTES > len(tail):
            tail = _read(file, start, size)
        return parse_footer(tail[-TAIL_BYTES - length : -TAIL_BYTES], where=where)


def _read(file: pa.NativeFile, start: int, end: int) -> bytes:
    file.seek(start)
    found: bytes = file.read(end - start)
    return found


def footer_in(body: pa.Buffer, where: str) -> Footer:
    data = memoryview(body).cast("B")
    length = int.from_bytes(data[-TAIL_BYTES:-4], "little")
    return parse_footer(data[-TAIL_BYTES - length : -TAIL_BYTES], where=where)


def write_rows(
    sink: pa.NativeFile, rows: pa.Table, schema: pa.Schema, settings: FileSettings
) -> None:
    """Write rows, of some columns or of all, as a file of one row group."""
    columns = pa.schema([field for field in schema if field.name in rows.column_names])
    pq.write_table(
        rows,
        sink,
        row_group_size=max(1, rows.num_rows),
        compression=settings.compression,
        use_dictionary=dictionary_columns(rows, columns, settings.dictionary),
        write_statistics=settings.statistics,
        coerce_timestamps="us",
        allow_truncated_timestamps=True,
        store_schema=False,
    )


def complete(rows: pa.Table, schema: pa.Schema, partition: str, name: str) -> pa.Table:
    """Return the rows in the schema's order, with the columns that all of them share."""
    values = {PARTITION_PATH: partition, FILE_NAME: name}
    columns = [
        constant(values[field.name], rows.num_rows)
        if field.name in SAME_IN_ALL_ROWS
        else rows.column(field.name)
        for field in schema
    ]
    kinds = [column.type for column in columns]
    fields = [field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))
