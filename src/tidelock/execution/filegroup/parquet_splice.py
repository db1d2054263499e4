"""Row groups copied between Parquet files without decoding.

Only the column with the file name, and the footer, are rewritten. Rows that cannot be copied are
decoded and added as new row groups: those of log files, of files with other columns, and of row
groups that are too small to read efficiently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.core.errors import DataCorrupt
from tidelock.execution.filegroup.base_file_writer import (
    FILE_COLUMNS,
    BaseFileUpload,
    FileGroupsWriter,
    KeyStats,
    can_include,
    constant_column,
    parquet_options,
    sequence_numbers,
    with_file_columns,
)
from tidelock.execution.filegroup.context import (
    KEYS_INLINE_MAX,
    FileResult,
    FileSettings,
    FileTarget,
    WriteContext,
    WrittenBaseFile,
    created_result,
)
from tidelock.execution.filegroup.parquet_footer import (
    MAGIC,
    TAIL_BYTES,
    Chunk,
    Footer,
    RowGroup,
    Struct,
    footer_bytes,
    is_required,
    moved_chunk,
    moved_group,
    parse_footer,
)
from tidelock.execution.filegroup.read import open_input
from tidelock.hudi.file_groups import BaseFile
from tidelock.hudi.schema import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
    conform,
    dictionary_decoded,
)
from tidelock.storage.contract import ObjectStore

_COPY_BYTES_MAX: Final = 8 * 1024 * 1024
_TAIL_BYTES_GUESS: Final = 64 * 1024
"""Most footers are smaller, and so are read with one request."""


def template_footer(ctx: WriteContext) -> Footer:
    """Return the footer of an empty file, as this process writes it."""
    return _template_footer(ctx.schema, ctx.settings)


@lru_cache(maxsize=64)
def _template_footer(schema: pa.Schema, settings: FileSettings) -> Footer:
    sink = pa.BufferOutputStream()
    write_rows(sink, schema.empty_table(), schema, settings)
    return parse_buffer_footer(sink.getvalue(), "an empty file")


@dataclass(frozen=True, slots=True)
class EncodedColumns:
    """Encoded columns of some rows, and their entry in the footer."""

    group: RowGroup
    body: pa.Buffer

    def chunk(self, name: str) -> tuple[Chunk, memoryview]:
        """Return one column chunk and its bytes."""
        (found,) = (chunk for chunk in self.group.chunks if chunk.name == name)
        return found, memoryview(self.body)[found.start : found.start + found.size]


class SplicedFile:
    """A base file assembled from row groups."""

    def __init__(self, base: BaseFileUpload, ctx: WriteContext) -> None:
        self._base = base
        self._ctx = ctx
        self._template = template_footer(ctx)
        self.name = base.name
        self.keys = KeyStats(ctx.settings.bloom)
        self.sources: dict[str, Footer] = {}
        self.rows = 0
        self._groups: list[Struct] = []
        base.sink.write(MAGIC)

    @property
    def size_bytes(self) -> int:
        """The number of bytes written so far."""
        return self._base.size_bytes

    def add(self, rows: pa.Table, partition: str) -> None:
        """Encode rows as a row group, and collect their keys."""
        table = with_file_columns(rows, self._ctx.schema, partition, self.name)
        encoded_rows = self._encoded(table)
        self._copy(encoded_rows.group, pa.BufferReader(encoded_rows.body), {})
        self.keys.add(rows.column(RECORD_KEY))

    def copy_group(
        self, group: RowGroup, source: pa.NativeFile, changed: EncodedColumns | None = None
    ) -> None:
        """Copy a row group, with the name of this file in the file name column.

        Columns in `changed` are taken from there.
        """
        encoded_columns = self.encoded(pa.table({}), group.rows) if changed is None else changed
        names = [chunk.name for chunk in encoded_columns.group.chunks]
        self._copy(group, source, {name: encoded_columns.chunk(name) for name in names})

    def _copy(
        self,
        group: RowGroup,
        source: pa.NativeFile,
        replaced: Mapping[str, tuple[Chunk, memoryview]],
    ) -> None:
        chunks: dict[str, Struct] = {}
        run = _CopyRun(source, self._base.sink)
        for chunk in sorted(group.chunks, key=lambda each: each.start):
            if chunk.name in replaced:
                run.end()
                new_chunk, body = replaced[chunk.name]
                chunks[chunk.name] = moved_chunk(new_chunk, self.size_bytes)
                self._base.sink.write(body)
            else:
                chunks[chunk.name] = moved_chunk(chunk, run.add(chunk))
        run.end()
        self.add_group(group, [chunks[chunk.name] for chunk in group.chunks])

    def add_group(self, group: RowGroup, chunks: list[Struct]) -> None:
        """Add the footer entry of a row group, whose chunks have been written."""
        self._groups.append(moved_group(group, chunks, ordinal=len(self._groups)))
        self.rows += group.rows

    def finish(self) -> WrittenBaseFile:
        """Write the footer and complete the upload. Raises: as `resolve_upload`."""
        for where, footer in self.sources.items():
            self.keys.include(footer.pairs, where=where)
        self._base.sink.write(footer_bytes(self._template, self._groups, self.keys.footer()))
        size_bytes, keys = self._base.finish(self.rows), self.keys
        return WrittenBaseFile(self.name, self.rows, size_bytes, keys.min_key, keys.max_key)

    def encoded(self, columns: pa.Table, rows: int) -> EncodedColumns:
        """Encode columns of this number of rows, together with the file name column."""
        required = is_required(self._template, FILE_NAME)
        name = constant_column(self.name, rows)
        field = pa.field(FILE_NAME, name.type, nullable=not required)
        table = pa.Table.from_arrays(
            [*columns.columns, name], schema=pa.schema([*columns.schema, field])
        )
        return self._encoded(table)

    def _encoded(self, rows: pa.Table) -> EncodedColumns:
        sink = pa.BufferOutputStream()
        write_rows(sink, rows, self._ctx.schema, self._ctx.settings)
        body = sink.getvalue()
        (group,) = parse_buffer_footer(body, self.name).groups
        return EncodedColumns(group, body)


class _CopyRun:
    """Contiguous byte ranges of a source that are copied together to the end of a sink."""

    def __init__(self, source: pa.NativeFile, sink: pa.NativeFile) -> None:
        self._source = source
        self._sink = sink
        self._start = self._end = 0

    def add(self, chunk: Chunk) -> int:
        """Add a chunk to the run, and return its position in the sink."""
        if chunk.start != self._end:
            self.end()
            self._start = self._end = chunk.start
        position = int(self._sink.tell()) + self._end - self._start
        self._end += chunk.size
        return position

    def end(self) -> None:
        """Copy the run."""
        self._source.seek(self._start)
        while self._start < self._end:
            part = self._source.read_buffer(min(_COPY_BYTES_MAX, self._end - self._start))
            if not part.size:
                raise DataCorrupt(f"the file is truncated: a column ends at byte {self._end}")
            self._sink.write(part)
            self._start += part.size


def read_footer(store: ObjectStore, base: BaseFile, where: str) -> Footer | None:
    """Read a file's footer; None if it is encrypted."""
    with open_input(store, base.key, base.size_bytes) as file:
        size = base.size_bytes
        tail = _read_range(file, max(0, size - _TAIL_BYTES_GUESS), size)
        if tail[-4:] != MAGIC or size < TAIL_BYTES + len(MAGIC):
            return None
        length = int.from_bytes(tail[-TAIL_BYTES:-4], "little")
        start = size - TAIL_BYTES - length
        if start < len(MAGIC):
            raise DataCorrupt(f"{where}: the footer of {length} bytes exceeds the file")
        if length + TAIL_BYTES > len(tail):
            tail = _read_range(file, start, size)
        return parse_footer(tail[-TAIL_BYTES - length : -TAIL_BYTES], where=where)


def _read_range(file: pa.NativeFile, start: int, end: int) -> bytes:
    file.seek(start)
    found: bytes = file.read(end - start)
    return found


def parse_buffer_footer(body: pa.Buffer, where: str) -> Footer:
    """Parse the footer of a Parquet file in memory."""
    data = memoryview(body).cast("B")
    length = int.from_bytes(data[-TAIL_BYTES:-4], "little")
    return parse_footer(data[-TAIL_BYTES - length : -TAIL_BYTES], where=where)


def write_rows(
    sink: pa.NativeFile, rows: pa.Table, schema: pa.Schema, settings: FileSettings
) -> None:
    """Write rows, with some or all columns, as a file of one row group."""
    columns = pa.schema([field for field in schema if field.name in rows.column_names])
    options = parquet_options(rows, columns, settings)
    pq.write_table(rows, sink, row_group_size=max(1, rows.num_rows), **options)


GROUP_BYTES_MIN: Final = 1024 * 1024
"""Row groups smaller than this on average are rewritten into larger ones."""


def copyable_footer(
    store: ObjectStore, ctx: WriteContext, base: BaseFile, accepts: Callable[[Footer], bool]
) -> Footer | None:
    """Return a file's footer if its row groups can be copied into a new file; None otherwise.

    `accepts` is asked about footers that have row groups. Raises: `NotFound`, `DataCorrupt`.
    """
    where = f"{store.uri}/{base.key}"
    footer = read_footer(store, base, where)
    if footer is None or not footer.is_plain or footer.layout != template_footer(ctx).layout:
        return None
    if not footer.groups or not accepts(footer):
        return None
    return footer if can_include(footer.pairs, ctx.settings.bloom, where=where) else None


class SplicedWriter(FileGroupsWriter):
    """Fills base files with row groups. Rows are stored rows, which keep their commit."""

    def __init__(self, store: ObjectStore, ctx: WriteContext, first: FileTarget) -> None:
        """Start with the group of `first`, whose id ends in a number to continue from."""
        super().__init__(store, ctx, first)
        self._file: SplicedFile | None = None
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0

    def move(self, base: BaseFile, footer: Footer) -> None:
        """Copy the row groups of a file, and begin further files when the current one is full."""
        where = f"{self._store.uri}/{base.key}"
        with open_input(self._store, base.key, base.size_bytes) as file:
            for group in footer.groups:
                if group.rows:
                    target = self._with_room(group.size)
                    target.copy_group(group, file)
                    target.sources[where] = footer

    def write(self, rows: pa.Table) -> None:
        """Add decoded rows; they become row groups of the configured size."""
        if not rows.num_rows:
            return
        self._pending.append(dictionary_decoded(rows))
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= self._ctx.settings.row_group_bytes:
            self._flush()

    def finish(self) -> tuple[FileResult, ...]:
        """Finish the last file and return all results."""
        self._flush()
        self._finish_file()
        return tuple(self._results)

    def _flush(self) -> None:
        if not self._pending:
            return
        rows = pa.concat_tables(self._pending, promote_options="default")
        self._pending.clear()
        self._pending_bytes = 0
        self._with_room(rows.nbytes // 2).add(rows, self._target.partition)

    def _with_room(self, size_bytes: int) -> SplicedFile:
        """Return the current file if this many bytes fit, otherwise the next one."""
        bytes_max = self._ctx.settings.file_bytes_max
        used = 0 if self._file is None else self._file.size_bytes
        if used and bytes_max is not None and used + size_bytes > bytes_max:
            self._finish_file()
        if self._file is None:
            self._file = SplicedFile(self._begin_file(), self._ctx)
        return self._file

    def _finish_file(self) -> None:
        if self._file is None:
            return
        self._add_result(self._file.finish())
        self._file = None


GENERATED_COLUMNS: tuple[str, ...] = (COMMIT_TIME, COMMIT_SEQNO, *FILE_COLUMNS)
"""Columns that the file generates itself."""


class ColumnwiseFile(ExitStack[None]):
    """A base file written column by column. Leaving the context without `finish` discards it."""

    def __init__(self, store: ObjectStore, ctx: WriteContext, target: FileTarget) -> None:
        """Create the marker and begin the upload."""
        super().__init__()
        self._ctx = ctx
        self._target = target
        self._base = self.enter_context(BaseFileUpload(store, ctx, target, first=True))
        self._file = SplicedFile(self._base, ctx)
        self._inline: list[str] = []
        self._group: RowGroup | None = None
        self._chunks: list[Struct] = []

    def add(self, name: str, column: pa.ChunkedArray) -> None:
        """Append a column of the current row group, in the schema's order."""
        field = self._ctx.schema.field(name)
        table = pa.Table.from_arrays([column], names=[name])
        if not pa.types.is_dictionary(column.type):
            table = conform(table, pa.schema([field]), where=f"rows for {self._target.file_id}")
        if name == RECORD_KEY:
            keys = table.column(0)
            self._file.keys.add(keys)
            if self._file.rows + len(keys) <= KEYS_INLINE_MAX:
                self._inline += keys.to_pylist()
        kind = field.with_type(table.schema.field(0).type)
        sink = pa.BufferOutputStream()
        rows = pa.Table.from_arrays(table.columns, schema=pa.schema([kind]))
        write_rows(sink, rows, self._ctx.schema, self._ctx.settings)
        body = sink.getvalue()
        (self._group,) = parse_buffer_footer(body, self._base.name).groups
        for chunk in self._group.chunks:
            self._chunks.append(moved_chunk(chunk, self._base.size_bytes))
            self._base.sink.write(memoryview(body)[chunk.start : chunk.start + chunk.size])

    def add_generated(self, name: str, rows: int) -> None:
        """Append one of the `GENERATED_COLUMNS`."""
        texts = {
            COMMIT_TIME: self._ctx.instant,
            PARTITION_PATH: self._target.partition,
            FILE_NAME: self._base.name,
        }
        if name == COMMIT_SEQNO:
            start, slot = self._file.rows, self._target.slot
            column = sequence_numbers(self._ctx.instant, slot, rows, start=start)
        else:
            column = constant_column(texts[name], rows)
        self.add(name, pa.chunked_array([column]))

    def end_group(self) -> None:
        """Finish the row group, once it has all columns."""
        assert self._group is not None
        self._file.add_group(self._group, self._chunks)
        self._group, self._chunks = None, []

    def finish(self) -> FileResult:
        """Write the footer and complete the upload. Raises: as `resolve_upload`."""
        written = self._file.finish()
        self.close()
        inline = tuple(self._inline) if written.rows <= KEYS_INLINE_MAX else None
        return created_result(self._target, written, inline)
