"""A base file written anew with only those columns encoded again that a write changed.

Most updates change a few columns of a few rows. Rows keep their places; columns in which every row
keeps its value are copied as they lie in the file, and so are row groups that no change is for.
What is inserted becomes a last row group, together with whatever the last writes left there, so
that a file does not become one of many small row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pt

from tidelock.base.errors import DataCorrupt
from tidelock.kernel.basefile import (
    ALONE_BYTES,
    BATCH_BYTES,
    UNREADABLE,
    opened,
    strings_of_few,
)
from tidelock.kernel.basewriter import BaseWritten, stored_columns
from tidelock.kernel.context import WriteContext
from tidelock.kernel.footer import Footer, RowGroup
from tidelock.kernel.groupfile import GroupFile, footer_of, own_footer
from tidelock.kernel.incoming import Tally, counted
from tidelock.kernel.keynotes import can_include
from tidelock.kernel.merge import Overlay, base_wins, places_in
from tidelock.kernel.newbase import NewBase
from tidelock.kernel.objectfile import opened_input
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile, FileSlice
from tidelock.table.schema.evolution import conformed
from tidelock.table.schema.meta import RECORD_KEY

FILE_BYTES_MIN: Final = 512 * 1024
"""Smaller files are decoded and encoded before it is found out what changed."""

_GROUPS_MAX: Final = 16
_SMALL: Final = 4
"""A row group of less than this part of the largest one's rows is joined with what is inserted."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One row group, and for each of its rows which change replaces it, null for most."""

    number: int
    group: RowGroup
    at: pa.Array

    @property
    def is_touched(self) -> bool:
        return bool(self.at.null_count < len(self.at))


def patched_base(
    store: ObjectStore,
    ctx: WriteContext,
    piece: FileSlice,
    changes: Overlay,
    *,
    slot: int,
    tally: Tally,
) -> BaseWritten | None:
    """Write a slice without log files anew with its changes; `tally` then has their counts.

    Returns None, and has written nothing, where the file must be decoded as a whole: rows are
    deleted or stored twice, its columns are not those of the table any more, or it is small.

    Raises: what reading and uploading raise.
    """
    base = piece.base
    if base is None or piece.logs or base.size_bytes < FILE_BYTES_MIN:
        return None
    where = f"{store.uri}/{base.key}"
    like = own_footer(ctx)
    footer = _fitting(store, ctx, base, like, where)
    if footer is None:
        return None
    with opened(store, base, where) as plain:
        idle = set(ctx.schema.names) - {RECORD_KEY, *ctx.rule.ordered_by}
        few = strings_of_few(plain, ctx.schema, idle)
        metadata = plain.metadata
    with opened(store, base, where, metadata=metadata, few=few) as file:
        patch = _Patch(ctx, file, footer, changes, where)
        if not patch.is_possible():
            return None
        target = NewBase(
            store, ctx, partition=piece.partition, file_id=piece.file_id, slot=slot, first=False
        )
        with target, opened_input(store, base.key, base.size_bytes) as source:
            written = patch.write(GroupFile(target, ctx, like), source, piece.partition)
    counted(tally, changes, patch.found, patch.beaten)
    return written


def _fitting(
    store: ObjectStore, ctx: WriteContext, base: BaseFile, like: Footer, where: str
) -> Footer | None:
    """Return the file's footer if its row groups can join a file like ours."""
    footer = footer_of(store, base, where)
    if footer is None or not footer.is_plain or footer.layout != like.layout:
        return None
    if not 0 < len(footer.groups) <= _GROUPS_MAX:
        return None
    return footer if can_include(footer.pairs, ctx.settings.bloom, where=where) else None


class _Patch:
    """The changes to one file: which rows they are for, and the file that results."""

    def __init__(
        self, ctx: WriteContext, file: pq.ParquetFile, footer: Footer, changes: Overlay, where: str
    ) -> None:
        self._ctx = ctx
        self._file = file
        self._footer = footer
        self._changes = changes
        self._where = where
        self._schema = stored_columns(ctx.schema)
        self.found: list[pa.Array] = []
        self.beaten: list[pa.Array] = []
        self._parts = [self._part(number, group) for number, group in enumerate(footer.groups)]
        most = max(group.rows for group in footer.groups)
        self._kept = [part for part in self._parts if part.group.rows * _SMALL >= most]
        self._joined = [part for part in self._parts if part.group.rows * _SMALL < most]
        self._inserted = self._rows_without(pa.concat_arrays([_NOWHERE, *self.found]))

    def is_possible(self) -> bool:
        """Tell whether rows can keep their places: none goes, and none is there twice."""
        found = pa.concat_arrays([_NOWHERE, *self.found])
        if len(found.unique()) < len(found):
            return False
        replacing = pa.concat_arrays([_NOWHERE, *(part.at.drop_null() for part in self._parts)])
        if self._changes.row.take(replacing).null_count:
            return False
        tail = len(self._inserted) + sum(part.group.rows for part in self._joined)
        return tail <= sum(part.group.rows for part in self._kept)

    def write(self, target: GroupFile, source: pa.NativeFile, partition: str) -> BaseWritten:
        """Copy what stays, encode what changed, and add what is inserted."""
        target.sources[self._where] = self._footer
        for part in self._kept:
            changed = None
            if part.is_touched:
                changed = target.encoded(self._changed(part), part.group.rows)
            target.take(part.group, source, changed)
        tail = self._tail()
        if tail.num_rows:
            target.add(tail, partition)
        return target.finish()

    def _part(self, number: int, group: RowGroup) -> _Part:
        rule = self._ctx.rule
        names = [RECORD_KEY, *(name for name in rule.ordered_by if name != RECORD_KEY)]
        rows = self._read(number, names)
        at = places_in(rows, self._changes)
        self.found.append(at.drop_null())
        if rule.ordered_by and at.null_count < len(at):
            wins = base_wins(rows, self._changes, at, rule)
            self.beaten.append(at.filter(wins))
            at = pc.if_else(wins, pa.scalar(None, at.type), at)
        return _Part(number, group, at)

    def _changed(self, part: _Part) -> pa.Table:
        """Return the columns of a row group in which some row gets another value."""
        touched = part.at.is_valid()
        fresh = self._changes.rows.take(self._changes.row.take(part.at.drop_null()))
        # Each row is taken from where it lies, or from behind all of them.
        behind = pc.add(pc.cumulative_sum(touched.cast(pa.int64())), len(touched) - 1)
        order = pc.if_else(touched, behind, _numbers(len(touched)))
        columns, fields = [], []
        for rows in self._columns(part.number):
            for field in rows.schema:
                mine, new = rows.column(field.name), fresh.column(field.name)
                wanted = self._schema.field(field.name)
                if _is_same(mine.filter(touched), new, wanted.type):
                    continue
                column = _one_kind([*mine.chunks, *new.cast(wanted.type).chunks]).take(order)
                columns.append(column)
                fields.append(wanted.with_type(column.type))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _tail(self) -> pa.Table:
        """Return the rows of the last row group: small ones joined, and what is inserted."""
        tables, replaced = [], [_NOWHERE]
        for part in self._joined:
            rows = self._read(part.number, self._schema.names)
            tables.append(_plain(rows.filter(part.at.is_null()), self._schema))
            replaced.append(part.at.drop_null())
        at = self._changes.row.take(pa.concat_arrays(replaced)).cast(pa.int64())
        fresh = self._changes.rows.take(pa.concat_arrays([at, self._inserted]))
        return pa.concat_tables([*tables, _plain(fresh, self._schema)])

    def _rows_without(self, found: pa.Array) -> pa.Array:
        """Return which changed rows are for keys that the file does not have."""
        places = _numbers(len(self._changes.row)).cast(pa.int32())
        fresh = pc.invert(pc.is_in(places, value_set=found))
        return self._changes.row.filter(fresh).drop_null()

    def _columns(self, number: int) -> Iterator[pa.Table]:
        """Yield the columns of a row group that may change, as many at a time as fit in memory."""
        sizes: dict[str, int] = {}
        group = self._file.metadata.row_group(number)
        for place in range(group.num_columns):
            chunk = group.column(place)
            head = chunk.path_in_schema.partition(".")[0]
            name = chunk.path_in_schema if chunk.path_in_schema in self._schema.names else head
            sizes[name] = sizes.get(name, 0) + chunk.total_uncompressed_size
        names: list[str] = []
        size = 0
        for name in self._schema.names:
            if name == RECORD_KEY:
                continue  # a row that keeps its place keeps its key
            if names and size + sizes[name] > BATCH_BYTES:
                yield self._read(number, names)
                names, size = [], 0
            names.append(name)
            size += sizes[name]
        yield self._read(number, names)

    def _read(self, number: int, names: Sequence[str]) -> pa.Table:
        threads = self._file.metadata.row_group(number).total_byte_size > ALONE_BYTES
        try:
            rows = self._file.read_row_group(number, columns=list(names), use_threads=threads)
        except UNREADABLE as error:
            raise DataCorrupt(f"{self._where}: the base file cannot be read: {error}") from error
        wanted = [
            field.with_type(rows.schema.field(field.name).type)
            if pt.is_dictionary(rows.schema.field(field.name).type)
            else field
            for field in self._schema
            if field.name in names
        ]
        return conformed(rows, pa.schema(wanted), where=self._where)


_NOWHERE: Final = pa.array([], pa.int32())


def _is_same(old: pa.ChunkedArray, new: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Tell whether all values are the same, to the bit; parts of nested ones are not compared."""
    if pt.is_nested(kind):
        return False
    left, right = old.cast(kind), new.cast(kind)
    if pt.is_floating(kind):
        # Zeros of either sign are equal, and are not the same.
        bits = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}[kind.bit_width // 8]
        left, right = (
            pa.chunked_array([chunk.view(bits) for chunk in side.chunks], bits)
            for side in (left, right)
        )
    return bool(left.equals(right))


def _one_kind(chunks: Sequence[pa.Array]) -> pa.Array:
    """Return values of one column as one array; a dictionary if the first of them are one."""
    if pt.is_dictionary(chunks[0].type):
        coded = [
            each if pt.is_dictionary(each.type) else each.dictionary_encode() for each in chunks
        ]
        return _whole(pa.chunked_array(coded).unify_dictionaries())
    return pa.concat_arrays(chunks)


def _plain(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows without dictionaries, in the schema's order."""
    columns = [rows.column(field.name).cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _numbers(size: int) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), size)), 1)
