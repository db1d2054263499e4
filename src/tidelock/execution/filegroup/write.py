"""Writing one file group: Arrow tables come in, one finished file goes out.

Rows have the table's columns and their record key; their partition is that of the file. A file
becomes visible only when it is complete, and running the same task again gives the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pt

from tidelock.core.errors import DataCorrupt, InvalidInput
from tidelock.execution.filegroup.base_file_writer import (
    BaseFileUpload,
    BaseWriter,
    RollingWriter,
    stamp_rows,
    stored_columns,
)
from tidelock.execution.filegroup.context import (
    KEYS_INLINE_MAX,
    FileKind,
    FileResult,
    FileTarget,
    WriteContext,
    WrittenBaseFile,
    compacted_stat,
    merged_stat,
)
from tidelock.execution.filegroup.log_layers import read_layers
from tidelock.execution.filegroup.merge import (
    Layer,
    Matches,
    MergeCounts,
    Overlay,
    base_wins,
    change_positions,
    check_ordering,
    count_changes,
    delete_layer,
    fold_layers,
    merge_changes,
    merge_changes_with,
    row_layer,
)
from tidelock.execution.filegroup.parquet_footer import Footer, RowGroup
from tidelock.execution.filegroup.parquet_splice import SplicedFile, copyable_footer
from tidelock.execution.filegroup.read import (
    BATCH_BYTES,
    READ_ERRORS,
    SINGLE_THREAD_BYTES_MAX,
    low_cardinality_columns,
    no_merger_error,
    open_base_file,
    open_input,
    read_base,
    read_stored_slice,
)
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.markers import IoType
from tidelock.hudi.properties import MergeMode
from tidelock.hudi.schema import RECORD_KEY, as_array, conform, row_numbers
from tidelock.hudi.timeline.metadata import WriteStat
from tidelock.storage.contract import ObjectStore

FILE_BYTES_MIN: Final = 512 * 1024
"""Smaller files are rewritten completely instead of being patched."""

_GROUPS_MAX: Final = 16
_SMALL_GROUP_RATIO: Final = 4
"""Row groups this many times smaller than the largest are rewritten together with inserts."""


@dataclass(frozen=True, slots=True)
class _GroupChanges:
    """A row group, and for each of its rows the change that replaces it, null for most."""

    number: int
    group: RowGroup
    at: pa.Array

    @property
    def is_touched(self) -> bool:
        return bool(self.at.null_count < len(self.at))


def patch_base(
    store: ObjectStore,
    ctx: WriteContext,
    file_slice: FileSlice,
    changes: Overlay,
    *,
    slot: int,
    counts: MergeCounts,
) -> WrittenBaseFile | None:
    """Write a slice without log files with its changes; `counts` then has their counts.

    Unchanged row groups and columns are copied without decoding. Returns None, without writing
    anything, if the file must be rewritten completely: rows are deleted or stored twice, its
    columns differ from the table's, or it is small. Raises: as reading and uploading.
    """
    base = file_slice.base
    if base is None or file_slice.logs or base.size_bytes < FILE_BYTES_MIN:
        return None
    where = f"{store.uri}/{base.key}"
    footer = copyable_footer(store, ctx, base, lambda found: len(found.groups) <= _GROUPS_MAX)
    if footer is None:
        return None
    with open_base_file(store, base, where) as plain:
        not_compared = set(ctx.schema.names) - {RECORD_KEY, *ctx.rule.ordered_by}
        encoded_columns = low_cardinality_columns(plain, ctx.schema, not_compared)
        metadata = plain.metadata
    with open_base_file(
        store, base, where, metadata=metadata, encoded_columns=encoded_columns
    ) as file:
        patch = _Patch(ctx, file, footer, changes, where)
        if not patch.is_possible():
            return None
        target = FileTarget(file_slice.partition, file_slice.file_id, slot)
        upload = BaseFileUpload(store, ctx, target, first=False)
        with upload, open_input(store, base.key, base.size_bytes) as source:
            written = patch.write(SplicedFile(upload, ctx), source, file_slice.partition)
    count_changes(counts, changes, patch.matches)
    return written


class _Patch:
    """The changes to one base file: the rows they apply to, and the resulting file."""

    def __init__(
        self, ctx: WriteContext, file: pq.ParquetFile, footer: Footer, changes: Overlay, where: str
    ) -> None:
        self._ctx = ctx
        self._file = file
        self._footer = footer
        self._changes = changes
        self._where = where
        self._schema = stored_columns(ctx.schema)
        self.matches = Matches()
        self._parts = [self._group_changes(*each) for each in enumerate(footer.groups)]
        rows_max = max(group.rows for group in footer.groups)
        self._copied_groups: list[_GroupChanges] = []
        self._rewritten_groups: list[_GroupChanges] = []
        for part in self._parts:
            is_large = part.group.rows * _SMALL_GROUP_RATIO >= rows_max
            (self._copied_groups if is_large else self._rewritten_groups).append(part)
        self._found = pa.concat_arrays([_NO_POSITIONS, *self.matches.found])
        positions = row_numbers(len(changes.row), pa.int32())
        is_new = pc.invert(pc.is_in(positions, value_set=self._found))
        self._inserted = changes.row.filter(is_new).drop_null()

    def is_possible(self) -> bool:
        """Return whether rows keep their positions: none is deleted, and none is stored twice."""
        if len(self._found.unique()) < len(self._found):
            return False
        if any(self._changes.row.take(part.at.drop_null()).null_count for part in self._parts):
            return False
        tail = len(self._inserted) + sum(part.group.rows for part in self._rewritten_groups)
        return tail <= sum(part.group.rows for part in self._copied_groups)

    def write(self, target: SplicedFile, source: pa.NativeFile, partition: str) -> WrittenBaseFile:
        """Copy unchanged columns, encode changed ones, and add inserts."""
        target.sources[self._where] = self._footer
        for part in self._copied_groups:
            changed = None
            if part.is_touched:
                changed = target.encoded(self._changed(part), part.group.rows)
            target.copy_group(part.group, source, changed)
        tail = self._last_rows()
        if tail.num_rows:
            target.add(tail, partition)
        return target.finish()

    def _group_changes(self, number: int, group: RowGroup) -> _GroupChanges:
        rule = self._ctx.rule
        names = [RECORD_KEY, *(name for name in rule.ordered_by if name != RECORD_KEY)]
        rows = self._read(number, names)
        at = change_positions(rows, self._changes)
        self.matches.found.append(at.drop_null())
        if rule.ordered_by and at.null_count < len(at):
            wins = base_wins(rows, self._changes, at, rule)
            self.matches.rejected.append(at.filter(wins))
            at = pc.if_else(wins, pa.scalar(None, at.type), at)
        return _GroupChanges(number, group, at)

    def _changed(self, part: _GroupChanges) -> pa.Table:
        """Return the columns of a row group in which a value changes."""
        touched = part.at.is_valid()
        new_rows = self._changes.rows.take(self._changes.row.take(part.at.drop_null()))
        # Each row is taken from its own position, or from the new rows appended at the end.
        appended = pc.add(pc.cumulative_sum(touched.cast(pa.int64())), len(touched) - 1)
        order = pc.if_else(touched, appended, row_numbers(len(touched)))
        columns, fields = [], []
        for rows in self._columns(part.number):
            for field in rows.schema:
                stored, new = rows.column(field.name), new_rows.column(field.name)
                target = self._schema.field(field.name)
                if _has_same_values(stored.filter(touched), new, target.type):
                    continue
                column = _concat_column([*stored.chunks, *new.cast(target.type).chunks]).take(order)
                columns.append(column)
                fields.append(target.with_type(column.type))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _last_rows(self) -> pa.Table:
        """Return the rows of the last row group: those of small groups, and inserts."""
        tables, replaced = [], [_NO_POSITIONS]
        for part in self._rewritten_groups:
            rows = self._read(part.number, self._schema.names)
            tables.append(_decode(rows.filter(part.at.is_null()), self._schema))
            replaced.append(part.at.drop_null())
        at = self._changes.row.take(pa.concat_arrays(replaced)).cast(pa.int64())
        new_rows = self._changes.rows.take(pa.concat_arrays([at, self._inserted]))
        return pa.concat_tables([*tables, _decode(new_rows, self._schema)])

    def _columns(self, number: int) -> Iterator[pa.Table]:
        """Yield the columns of a row group that may change, in batches of bounded size."""
        sizes: dict[str, int] = {}
        group = self._file.metadata.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            head = chunk.path_in_schema.partition(".")[0]
            name = chunk.path_in_schema if chunk.path_in_schema in self._schema.names else head
            sizes[name] = sizes.get(name, 0) + chunk.total_uncompressed_size
        names: list[str] = []
        size = 0
        for name in self._schema.names:
            if name == RECORD_KEY:
                continue  # a row that keeps its position keeps its key
            if names and size + sizes[name] > BATCH_BYTES:
                yield self._read(number, names)
                names, size = [], 0
            names.append(name)
            size += sizes[name]
        yield self._read(number, names)

    def _read(self, number: int, names: Sequence[str]) -> pa.Table:
        threads = self._file.metadata.row_group(number).total_byte_size > SINGLE_THREAD_BYTES_MAX
        try:
            rows = self._file.read_row_group(number, columns=list(names), use_threads=threads)
        except READ_ERRORS as error:
            raise DataCorrupt(f"{self._where}: the base file cannot be read: {error}") from error
        fields = [
            field.with_type(rows.schema.field(field.name).type)
            if pt.is_dictionary(rows.schema.field(field.name).type)
            else field
            for field in self._schema
            if field.name in names
        ]
        return conform(rows, pa.schema(fields), where=self._where)


_NO_POSITIONS: Final = pa.array([], pa.int32())


def _has_same_values(old: pa.ChunkedArray, new: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Return whether all values are bitwise equal; nested values are not compared."""
    if pt.is_nested(kind):
        return False
    left, right = old.cast(kind), new.cast(kind)
    if pt.is_floating(kind):
        # 0.0 and -0.0 compare as equal, but are not the same value.
        bits = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}[kind.bit_width // 8]
        left, right = (
            pa.chunked_array([chunk.view(bits) for chunk in side.chunks], bits)
            for side in (left, right)
        )
    return bool(left.equals(right))


def _concat_column(chunks: Sequence[pa.Array]) -> pa.Array:
    """Concatenate the values of a column; dictionary-encoded if the first chunk is."""
    if pt.is_dictionary(chunks[0].type):
        encoded = [
            each if pt.is_dictionary(each.type) else each.dictionary_encode() for each in chunks
        ]
        return as_array(pa.chunked_array(encoded).unify_dictionaries())
    return pa.concat_arrays(chunks)


def _decode(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows without dictionaries, in the schema's order."""
    columns = [rows.column(field.name).cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def create_base(
    store: ObjectStore,
    ctx: WriteContext,
    *,
    partition: str,
    file_id: str,
    slot: int,
    rows: Iterable[pa.Table],
) -> tuple[FileResult, ...]:
    """Write rows as the first base file of a group, and of further groups as files fill up.

    `file_id` ends in a number, from which the ids of further groups continue. Without rows, one
    empty file is written. Raises: as uploading, and `InvalidInput` for rows that do not match the
    schema.
    """
    with RollingWriter(store, ctx, FileTarget(partition, file_id, slot)) as writer:
        for table in rows:
            writer.write(table)
        return writer.finish()


def merge_base(
    store: ObjectStore,
    ctx: WriteContext,
    file_slice: FileSlice,
    *,
    slot: int,
    rows: pa.Table | None,
    deletes: pa.Array | None = None,
) -> FileResult:
    """Rewrite a group with rows inserted, updated and deleted.

    Stored rows stream; unchanged rows keep their commit. Deletes are in natural order: they win
    over all stored versions. Raises: as reading and uploading, and `InvalidInput` for rows that do
    not match the schema.
    """
    schema = stored_columns(ctx.schema)
    layers = _change_layers(ctx, schema, rows, deletes, slot)
    counts = MergeCounts()
    if ctx.rule.mode is MergeMode.CUSTOM:
        stored = read_stored_slice(store, file_slice, schema, ctx.rule)
        merger = ctx.rule.merger
        if merger is None:
            raise no_merger_error(f"{store.uri}/{file_slice.partition}")
        batches = merge_changes_with(merger, stored.batches, layers, schema=schema, counts=counts)
    else:
        changes = fold_layers(layers, schema)
        if not deletes:
            patched = patch_base(store, ctx, file_slice, changes, slot=slot, counts=counts)
            if patched is not None:
                return _merged_result(file_slice, patched, counts)
        stored = read_stored_slice(store, file_slice, schema, ctx.rule)
        before = stored.changes
        batches = merge_changes(stored.batches, changes, ctx.rule, before=before, counts=counts)
    return _merged_result(file_slice, _write_base(store, ctx, file_slice, slot, batches), counts)


def concat_base(
    store: ObjectStore, ctx: WriteContext, file_slice: FileSlice, *, slot: int, rows: pa.Table
) -> FileResult:
    """Rewrite a group with rows added without merging, even if their keys exist.

    Raises: as reading and uploading, and `InvalidInput` for rows that do not match the schema.
    """
    schema = stored_columns(ctx.schema)
    stamped = stamp_rows(rows, ctx, slot, schema, where=f"rows of {ctx.instant}")
    stored = read_stored_slice(store, file_slice, schema, ctx.rule)
    written = _write_base(store, ctx, file_slice, slot, chain(stored.batches, [stamped]))
    keys = stamped.column(RECORD_KEY).combine_chunks()
    return _merged_result(file_slice, written, MergeCounts(inserted=len(keys), inserted_keys=keys))


def rewrite_base(
    store: ObjectStore, ctx: WriteContext, file_slice: FileSlice, *, slot: int
) -> FileResult:
    """Write the merged rows of a slice as its next base file: a compaction.

    Every row keeps its commit. Raises: as reading and uploading.
    """
    stored = read_stored_slice(store, file_slice, stored_columns(ctx.schema), ctx.rule)
    written = None
    if stored.changes is not None and ctx.rule.mode is not MergeMode.CUSTOM:
        base_only = replace(file_slice, logs=())
        written = patch_base(store, ctx, base_only, stored.changes, slot=slot, counts=MergeCounts())
    if written is None:
        written = _write_base(store, ctx, file_slice, slot, stored.batches)
    stat = compacted_stat(file_slice, written, stored)
    return _merged_result(file_slice, written, MergeCounts(), stat)


def revives_older_row(
    store: ObjectStore, ctx: WriteContext, file_slice: FileSlice, rows: pa.Table | None
) -> bool:
    """Return whether a deleted key is written again with an older row than the one deleted.

    In a log file such a row would bring the deleted one back: Hudi's readers fold the log files
    first, where the row wins over the delete, and then compare it with the base file by event time.
    Raises: as reading.
    """
    names, base = ctx.rule.ordered_by, file_slice.base
    if not names or base is None or not file_slice.logs or not rows:
        return False
    schema = pa.schema([ctx.schema.field(name) for name in (RECORD_KEY, *names)])
    stored = fold_layers(read_layers(store, file_slice.logs, schema, ctx.rule), schema)
    deleted_keys = stored.keys.filter(pc.and_(stored.row.is_null(), stored.final))
    rewritten = rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=deleted_keys))
    if not rewritten.num_rows:
        return False
    layer = row_layer(rewritten, schema, ctx.rule, f"rows of {ctx.instant}")
    changes = fold_layers([layer], schema)
    return any(
        pc.any(base_wins(batch, changes, change_positions(batch, changes), ctx.rule)).as_py()
        for batch in read_base(store, base, schema)
    )


def _change_layers(
    ctx: WriteContext, schema: pa.Schema, rows: pa.Table | None, deletes: pa.Array | None, slot: int
) -> list[Layer]:
    check_ordering(ctx.rule, schema)
    where = f"rows of {ctx.instant}"
    layers = []
    if rows is not None and rows.num_rows:
        if RECORD_KEY not in rows.column_names:
            raise InvalidInput(f"{where}: column {RECORD_KEY} does not exist")
        stamped = stamp_rows(rows, ctx, slot, schema, where=where)
        layers.append(row_layer(stamped, schema, ctx.rule, where))
    if deletes is not None and len(deletes):
        layers.append(delete_layer(as_array(deletes).cast(pa.string()), schema, ctx.rule))
    return layers


def _write_base(
    store: ObjectStore,
    ctx: WriteContext,
    file_slice: FileSlice,
    slot: int,
    rows: Iterable[pa.Table],
) -> WrittenBaseFile:
    target = FileTarget(file_slice.partition, file_slice.file_id, slot)
    with BaseFileUpload(store, ctx, target, first=file_slice.base is None) as upload:
        writer = BaseWriter(upload, ctx, file_slice.partition)
        for batch in rows:
            writer.write(batch)
        return writer.finish()


def _merged_result(
    file_slice: FileSlice,
    written: WrittenBaseFile,
    counts: MergeCounts,
    stat: WriteStat | None = None,
) -> FileResult:
    inserted = counts.inserted_keys
    return FileResult(
        stat or merged_stat(file_slice, written, counts),
        file_slice.partition,
        file_slice.file_id,
        FileKind.MERGED,
        replaced_base=None if file_slice.base is None else file_slice.base.name,
        min_key=written.min_key,
        max_key=written.max_key,
        written_keys=tuple(inserted.to_pylist()) if len(inserted) <= KEYS_INLINE_MAX else None,
        marker_type=IoType.CREATE if file_slice.base is None else IoType.MERGE,
        ignored=counts.ignored,
    )
