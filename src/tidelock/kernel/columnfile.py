"""The first base file of a group, written a column at a time while many others are.

Each column is encoded by itself and its bytes are put behind those of the one before, so whoever
writes many files of many rows needs no more memory than one column takes.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

import pyarrow as pa

from tidelock.kernel.basewriter import SAME_IN_ALL_ROWS, BaseWritten
from tidelock.kernel.columns import constant, sequence_numbers
from tidelock.kernel.context import WriteContext
from tidelock.kernel.footer import MAGIC, RowGroup, footer_bytes, moved_chunk, moved_group
from tidelock.kernel.groupfile import footer_in, own_footer, write_rows
from tidelock.kernel.keynotes import KeyNotes
from tidelock.kernel.newbase import NewBase
from tidelock.kernel.results import KEYS_INLINE_MAX, FileKind, FileResult
from tidelock.kernel.stats import created_stat
from tidelock.kernel.thriftcompact import Struct
from tidelock.store.contract import ObjectStore
from tidelock.table.schema.evolution import conformed
from tidelock.table.schema.meta import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
)

MADE: tuple[str, ...] = (COMMIT_TIME, COMMIT_SEQNO, *SAME_IN_ALL_ROWS)
"""Columns that the file makes itself; rows need not bring them."""


class ColumnFile:
    """One base file. Leaving the context without `finish` leaves nothing behind."""

    def __init__(
        self, store: ObjectStore, ctx: WriteContext, *, partition: str, file_id: str, slot: int
    ) -> None:
        """Announce the file and begin its upload."""
        self._ctx = ctx
        self._partition = partition
        self._file_id = file_id
        self._slot = slot
        self._held = ExitStack()
        self._base = self._held.enter_context(
            NewBase(store, ctx, partition=partition, file_id=file_id, slot=slot, first=True)
        )
        self._base.sink.write(MAGIC)
        self._keys = KeyNotes(ctx.settings.bloom)
        self._inline: list[str] = []
        self._rows = 0
        self._groups: list[Struct] = []
        self._group: RowGroup | None = None
        self._chunks: list[Struct] = []

    def add(self, name: str, column: pa.ChunkedArray) -> None:
        """Put a column of the current row group behind the one before it, in the schema's order."""
        field = self._ctx.schema.field(name)
        whole = pa.Table.from_arrays([column], names=[name])
        if not pa.types.is_dictionary(column.type):
            whole = conformed(whole, pa.schema([field]), where=f"rows for {self._file_id}")
        if name == RECORD_KEY:
            self._note(whole.column(0))
        kind = field.with_type(whole.schema.field(0).type)
        sink = pa.BufferOutputStream()
        rows = pa.Table.from_arrays(whole.columns, schema=pa.schema([kind]))
        write_rows(sink, rows, self._ctx.schema, self._ctx.settings)
        body = sink.getvalue()
        (self._group,) = footer_in(body, self._base.name).groups
        for chunk in self._group.chunks:
            self._chunks.append(moved_chunk(chunk, self._base.size_bytes))
            self._base.sink.write(memoryview(body)[chunk.start : chunk.start + chunk.size])

    def make(self, name: str, rows: int) -> None:
        """Put one of the columns that need no rows (`MADE`) behind the one before it."""
        texts = {
            COMMIT_TIME: self._ctx.instant,
            PARTITION_PATH: self._partition,
            FILE_NAME: self._base.name,
        }
        made = (
            sequence_numbers(self._ctx.instant, self._slot, rows, start=self._rows)
            if name == COMMIT_SEQNO
            else constant(texts[name], rows)
        )
        self.add(name, pa.chunked_array([made]))

    def end_group(self) -> None:
        """End the row group, which has all of its columns."""
        assert self._group is not None
        raw = moved_group(self._group, self._chunks, ordinal=len(self._groups))
        self._groups.append(raw)
        self._rows += self._group.rows
        self._group, self._chunks = None, []

    def finish(self) -> FileResult:
        """Write the footer and bring the file to its place. Raises: what `settled` raises."""
        keys = self._keys
        like = own_footer(self._ctx)
        self._base.sink.write(footer_bytes(like, self._groups, keys.footer()))
        size_bytes = self._base.land(self._rows)
        self._held.close()
        written = BaseWritten(self._base.name, self._rows, size_bytes, keys.least, keys.greatest)
        return FileResult(
            created_stat(self._partition, self._file_id, written),
            self._partition,
            self._file_id,
            FileKind.CREATED,
            min_key=keys.least,
            max_key=keys.greatest,
            written_keys=tuple(self._inline) if self._rows <= KEYS_INLINE_MAX else None,
        )

    def _note(self, keys: pa.ChunkedArray) -> None:
        self._keys.add(keys)
        if self._rows + len(keys) <= KEYS_INLINE_MAX:
            self._inline += keys.to_pylist()

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
        self._held.__exit__(kind, error, trace)
