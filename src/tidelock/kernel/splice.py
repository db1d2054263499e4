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

from tidelock.kernel.context import WriteContext
from tidelock.kernel.footer import Footer
from tidelock.kernel.groupfile import GroupFile, footer_of
from tidelock.kernel.keynotes import can_include
from tidelock.kernel.newbase import NewBase
from tidelock.kernel.objectfile import opened_input
from tidelock.kernel.results import FileKind, FileResult
from tidelock.kernel.rolling import Numbering
from tidelock.kernel.sorting import plain_strings
from tidelock.kernel.stats import created_stat
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile, FileSlice

GROUP_BYTES_MIN: Final = 1024 * 1024
"""Row groups smaller than this on average are decoded and joined: readers pay for each one."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A base file whose row groups can be moved as they are."""

    base: BaseFile
    footer: Footer


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
    footer = footer_of(store, piece.base, where)
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
        self._file: GroupFile | None = None
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
                    target.take(group, file)
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
        self._with_room(rows.nbytes // 2).add(rows, self._partition)

    def _with_room(self, size_bytes: int) -> GroupFile:
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
            self._file = GroupFile(self._held.enter_context(base), self._ctx, self._like)
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
