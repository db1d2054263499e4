"""Rows that go to the first base files of new groups, one file after the other."""

from __future__ import annotations

import re
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from tidelock.base.errors import InvalidInput
from tidelock.kernel.basewriter import BaseWriter
from tidelock.kernel.columns import stamped
from tidelock.kernel.context import WriteContext
from tidelock.kernel.results import KEYS_INLINE_MAX, FileKind, FileResult
from tidelock.kernel.stats import created_stat
from tidelock.store.contract import ObjectStore
from tidelock.table.naming import file_id as numbered
from tidelock.table.schema.evolution import conformed
from tidelock.table.schema.meta import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, RECORD_KEY

_FIRST_ID: Final = re.compile(r"(.+)-(\d+)")
_PACKED: Final = 0.5
"""What a file's first rows are taken to shrink to, before its first row group is there to ask."""


def incoming_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns that rows bring; the rest of the meta columns is made here."""
    made = (COMMIT_TIME, COMMIT_SEQNO, FILE_NAME)
    return pa.schema([field for field in schema if field.name not in made])


class Numbering:
    """The ids of the groups that one task begins: the first one given, the others counted on."""

    def __init__(self, first: str) -> None:
        """Begin with `first`; others can follow it if its last part is a number."""
        found = _FIRST_ID.fullmatch(first)
        self.current = first
        self._prefix, self._number = (found[1], int(found[2])) if found else ("", 0)

    @property
    def goes_on(self) -> bool:
        """Whether there is a next one."""
        return bool(self._prefix)

    def advance(self) -> None:
        """Go to the next one, if there is one."""
        self._number += 1
        self.current = numbered(self._prefix, self._number) if self._prefix else self.current


class RollingWriter:
    """Fills base files up to the size that the settings allow, each of a group of its own.

    With `keeps_meta` rows are stored ones that only move: they keep the commit that wrote them.
    """

    def __init__(
        self,
        store: ObjectStore,
        ctx: WriteContext,
        *,
        partition: str,
        file_id: str,
        slot: int,
        keeps_meta: bool = False,
    ) -> None:
        """Begin with the group `file_id`, whose last part is a number to count on from."""
        self._numbers = Numbering(file_id)
        if not self._numbers.goes_on and ctx.settings.file_bytes_max is not None:
            raise InvalidInput(f"{file_id!r} ends in no number, so no group can follow it")
        self._store = store
        self._ctx = ctx
        self._partition = partition
        self._slot = slot
        self._keeps_meta = keeps_meta
        self._held = ExitStack()
        self._writer: BaseWriter | None = None
        self._keys: list[pa.ChunkedArray] = []
        self._results: list[FileResult] = []
        self._rows = 0
        self._incoming = incoming_schema(ctx.schema)

    def write(self, rows: pa.Table) -> None:
        """Add rows to the current file, and to the next ones when it is full."""
        where = f"rows for {self._numbers.current}"
        fitted = rows if self._keeps_meta else conformed(rows, self._incoming, where=where)
        start = 0
        while start < fitted.num_rows:
            part = fitted.slice(start, self._room(fitted))
            self._write(part)
            start += part.num_rows

    def finish(self) -> tuple[FileResult, ...]:
        """Finish the last file and return all of them."""
        if self._writer is not None or not self._results:
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

    def _write(self, part: pa.Table) -> None:
        if self._keeps_meta:
            self._current().write(part)
            return
        fresh = stamped(
            part,
            instant=self._ctx.instant,
            slot=self._slot,
            start=self._rows,
            schema=self._ctx.schema,
        )
        self._current().write(fresh)
        self._rows += part.num_rows
        if sum(len(keys) for keys in self._keys) <= KEYS_INLINE_MAX:
            self._keys.append(part.column(RECORD_KEY))

    def _room(self, rows: pa.Table) -> int:
        """Return how many rows the current file takes; ends it first if it is full."""
        most = self._ctx.settings.file_bytes_max
        if most is None:
            return int(rows.num_rows)
        writer = self._current()
        width = writer.row_bytes
        if width is None:
            # Nothing is known yet, so no more than a row group is taken before asking again.
            guess = max(1.0, rows.nbytes / rows.num_rows * _PACKED)
            group = self._ctx.settings.row_group_bytes * _PACKED
            left = min(most, group) / guess - writer.pending_rows
            if left < 1 and writer.pending_rows:
                # A file smaller than a row group: what it has by now tells what rows take.
                writer.flush()
                return self._room(rows)
            return max(1, int(left))
        left = (most - writer.size_bytes) / width - writer.pending_rows
        if left < 1:
            self._end_file()
            return self._room(rows)
        return int(left)

    def _current(self) -> BaseWriter:
        if self._writer is None:
            self._writer = self._held.enter_context(
                BaseWriter(
                    self._store,
                    self._ctx,
                    partition=self._partition,
                    file_id=self._numbers.current,
                    slot=self._slot,
                    first=True,
                )
            )
        return self._writer

    def _end_file(self) -> None:
        written = self._current().finish()
        named = self._keeps_meta or written.rows <= KEYS_INLINE_MAX
        # Naming the keys of a large file would take as long as encoding some of its columns.
        names = [key for keys in self._keys for key in keys.to_pylist()] if named else []
        self._results.append(
            FileResult(
                created_stat(self._partition, self._numbers.current, written),
                self._partition,
                self._numbers.current,
                FileKind.CREATED,
                min_key=written.min_key,
                max_key=written.max_key,
                written_keys=tuple(names) if named else None,
            )
        )
        self._writer = None
        self._keys.clear()
        self._numbers.advance()
