"""Row groups moved from file to file as they are: their bytes are copied, and no row is decoded.

Only the column of the file's own name is made anew, and the footer. What cannot be moved so is
decoded, and joins the same file as row groups of its own: rows of log files, of files with other
columns, and of row groups so small that a file made of them would be slow to read.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.base.errors import DataCorrupt
from tidelock.kernel.basewriter import SAME_IN_ALL_ROWS, BaseWritten
from tidelock.kernel.columns import constant, dictionary_columns
from tidelock.kernel.context import WriteContext
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
from tidelock.kernel.keynotes import KeyNotes, can_include
from tidelock.kernel.newbase import NewBase
from tidelock.kernel.objectfile import opened_input
from tidelock.kernel.results import FileKind, FileResult
from tidelock.kernel.rolling import Numbering
from tidelock.kernel.sorting import plain_strings
from tidelock.kernel.stats import created_stat
from tidelock.kernel.thriftcompact import Struct
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile, FileSlice
from tidelock.table.schema.meta import FILE_NAME, PARTITION_PATH, RECORD_KEY

GROUP_BYTES_MIN: Final = 1024 * 1024
"""Row groups smaller than this on average are decoded and joined: readers pay for each one."""

_COPIED_BYTES: Final = 8 * 1024 * 1024
_TAIL_GUESS: Final = 64 * 1024
"""Mostly a footer is smaller, and is there after one request."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A base file whose row groups can be moved as they are."""

    base: BaseFile
    footer: Footer


def own_footer(ctx: WriteContext) -> Footer:
    """Return the footer of a file without rows, as this process writes it."""
    sink = pa.BufferOutputStream()
    _written(sink, ctx.schema.empty_table(), ctx)
    return _footer_in(sink.getvalue(), "a file without rows")


def movable(
    store: ObjectStore,
    ctx: WriteContext,
    piece: FileSlice,
    *,
    like: Footer,
    group_bytes_min: int = GROUP_BYTES_MIN,
) -> Movable | None:
    """Return a slice's base file if its row groups can join a file `like` ours; None if not.

    Raises: `NotFound`, `DataCorrupt`.
    """
    if piece.base is None or piece.logs:
        return None
    where = f"{store.uri}/{piece.base.key}"
    footer = _footer_of(store, piece.base, where)
    if footer is None or not footer.is_plain or footer.layout != like.layout:
        return None
    size = sum(group.size for group in footer.groups)
    if not footer.groups or size < group_bytes_min * len(footer.groups):
        return None
    if not can_include(footer.pairs, ctx.settings.bloom, where=where):
        return None
    return Movable(piece.base, footer)


class SplicedWriter:
    """Fills base files with row groups, each file of a group of its own.

    Rows are stored ones that only move: they keep the commit that wrote them.
    """

    def __init__(
        self,
        store: ObjectStore,
        ctx: WriteContext,
        *,
        partition: str,
        file_id: str,
        slot: int,
        like: Footer,
    ) -> None:
        """Begin with the group `file_id`, whose last part is a number to count on from."""
        self._numbers = Numbering(file_id)
        self._store = store
        self._ctx = ctx
        self._partition = partition
        self._slot = slot
        self._like = like
        self._held = ExitStack()
        self._file: _Spliced | None = None
        self._results: list[FileResult] = []
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    def move(self, source: Movable) -> None:
        """Add the row groups of a file, to the next file where the current one is full."""
        where = f"{self._store.uri}/{source.base.key}"
        with opened_input(self._store, source.base.key, source.base.size_bytes) as file:
            for group in source.footer.groups:
                if group.rows:
                    target = self._with_room(group.size)
                    target.take(group, file, renamed=True)
                    target.sources[where] = source.footer

    def write(self, rows: pa.Table) -> None:
        """Add decoded rows; they become row groups of the size that the settings ask for."""
        if not rows.num_rows:
            return
        self._waiting.append(plain_strings(rows))
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= self._ctx.settings.row_group_bytes:
            self._encode()

    def finish(self) -> tuple[FileResult, ...]:
        """Finish the last file and return all of them."""
        self._encode()
        self._end_file()
        return tuple(self._results)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give up the file that is not finished; those before it stay until a rollback."""
        self._held.__exit__(kind, error, trace)

    def _encode(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        target = self._with_room(rows.nbytes // 2)
        sink = pa.BufferOutputStream()
        _written(sink, _complete(rows, self._ctx.schema, self._partition, target.name), self._ctx)
        body = sink.getvalue()
        for group in _footer_in(body, target.name).groups:
            target.take(group, pa.BufferReader(body), renamed=False)
        target.keys.add(rows.column(RECORD_KEY))

    def _with_room(self, size_bytes: int) -> _Spliced:
        """Return the current file if so many bytes fit in, else the next one."""
        most = self._ctx.settings.file_bytes_max
        begun = self._file
        if begun is not None and most is not None and begun.size_bytes + size_bytes > most:
            self._end_file()
        if self._file is None:
            base = NewBase(
                self._store,
                self._ctx,
                partition=self._partition,
                file_id=self._numbers.current,
                slot=self._slot,
                first=True,
            )
            self._file = _Spliced(self._held.enter_context(base), self._ctx, self._like)
        return self._file

    def _end_file(self) -> None:
        if self._file is None:
            return
        written = self._file.finish()
        self._results.append(
            FileResult(
                created_stat(self._partition, self._numbers.current, written),
                self._partition,
                self._numbers.current,
                FileKind.CREATED,
                min_key=written.min_key,
                max_key=written.max_key,
            )
        )
        self._file = None
        self._numbers.advance()


class _Spliced:
    """One file of row groups that were made elsewhere."""

    def __init__(self, base: NewBase, ctx: WriteContext, like: Footer) -> None:
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
        return self._base.size_bytes

    def take(self, group: RowGroup, source: pa.NativeFile, *, renamed: bool) -> None:
        """Copy a row group; with `renamed` its rows name this file instead of their old one."""
        chunks: dict[str, Struct] = {}
        run = _Run(source, self._base.sink)
        for chunk in sorted(group.chunks, key=lambda each: each.start):
            if renamed and chunk.name == FILE_NAME:
                run.end()
                named, body = self._named(group.rows)
                chunks[chunk.name] = moved_chunk(named, self.size_bytes)
                self._base.sink.write(body)
            else:
                chunks[chunk.name] = moved_chunk(chunk, run.add(chunk))
        run.end()
        ordered = [chunks[chunk.name] for chunk in group.chunks]
        self.groups.append(moved_group(group, ordered, ordinal=len(self.groups)))
        self._rows += group.rows

    def finish(self) -> BaseWritten:
        for where, footer in self.sources.items():
            self.keys.include(footer.pairs, where=where)
        self._base.sink.write(footer_bytes(self._like, self.groups, self.keys.footer()))
        size_bytes = self._base.land(self._rows)
        return BaseWritten(self.name, self._rows, size_bytes, self.keys.least, self.keys.greatest)

    def _named(self, rows: int) -> tuple[Chunk, memoryview]:
        """Return the column of this file's name: a dictionary of one, and as many references."""
        required = is_required(self._like, FILE_NAME)
        field = pa.field(FILE_NAME, constant("", 0).type, nullable=not required)
        sink = pa.BufferOutputStream()
        table = pa.Table.from_arrays([constant(self.name, rows)], schema=pa.schema([field]))
        pq.write_table(
            table,
            sink,
            row_group_size=max(1, rows),
            compression=self._ctx.settings.compression,
            write_statistics=self._ctx.settings.statistics,
            store_schema=False,
        )
        body = sink.getvalue()
        (group,) = _footer_in(body, self.name).groups
        (chunk,) = group.chunks
        return chunk, memoryview(body)[chunk.start : chunk.start + chunk.size]


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


def _footer_of(store: ObjectStore, base: BaseFile, where: str) -> Footer | None:
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


def _footer_in(body: pa.Buffer, where: str) -> Footer:
    data = memoryview(body).cast("B")
    length = int.from_bytes(data[-TAIL_BYTES:-4], "little")
    return parse_footer(data[-TAIL_BYTES - length : -TAIL_BYTES], where=where)


def _written(sink: pa.NativeFile, rows: pa.Table, ctx: WriteContext) -> None:
    settings = ctx.settings
    pq.write_table(
        rows,
        sink,
        row_group_size=max(1, rows.num_rows),
        compression=settings.compression,
        use_dictionary=dictionary_columns(rows, ctx.schema, settings.dictionary),
        write_statistics=settings.statistics,
        coerce_timestamps="us",
        allow_truncated_timestamps=True,
        store_schema=False,
    )


def _complete(rows: pa.Table, schema: pa.Schema, partition: str, name: str) -> pa.Table:
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
