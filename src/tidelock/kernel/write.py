"""Writing one file group: rows in Arrow tables come in, one finished file goes out.

Rows have the table's columns and their record key; a row's partition is that of its file. Nothing
of a file can be seen before it is whole, and running the same task again gives the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.errors import InvalidInput
from tidelock.kernel.basefile import read_base
from tidelock.kernel.basewriter import BaseWriter, BaseWritten, stored_columns
from tidelock.kernel.columns import stamped
from tidelock.kernel.context import WriteContext
from tidelock.kernel.incoming import Tally, laid_over, laid_over_by
from tidelock.kernel.layers import check_ordering, deletes_layer, read_layers, row_layer
from tidelock.kernel.logwriter import write_log
from tidelock.kernel.merge import Layer, base_wins, folded, places_in
from tidelock.kernel.patch import patched_base
from tidelock.kernel.results import KEYS_INLINE_MAX, FileKind, FileResult
from tidelock.kernel.rolling import RollingWriter, incoming_schema
from tidelock.kernel.stats import compacted_stat, merged_stat
from tidelock.kernel.stored import no_merger, stored_slice
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.markers import IoType
from tidelock.table.properties import MergeMode
from tidelock.table.schema.evolution import conformed
from tidelock.table.schema.meta import RECORD_KEY
from tidelock.table.timeline.metadata import WriteStat


class Group(Protocol):
    """What names a file group: a slice of it will do."""

    @property
    def partition(self) -> str:
        """Its partition."""
        ...

    @property
    def file_id(self) -> str:
        """Its id."""
        ...


def create_base(
    store: ObjectStore,
    ctx: WriteContext,
    *,
    partition: str,
    file_id: str,
    slot: int,
    rows: Iterable[pa.Table],
) -> tuple[FileResult, ...]:
    """Write rows as the first base file of a group, and of more groups as files fill up.

    `file_id` ends in a number, from which the further groups count on. Without any row one file
    without rows is written.

    Raises: what an upload raises, `InvalidInput` for rows that do not fit the schema.
    """
    with RollingWriter(store, ctx, partition=partition, file_id=file_id, slot=slot) as writer:
        for table in rows:
            writer.write(table)
        return writer.finish()


def merge_base(
    store: ObjectStore,
    ctx: WriteContext,
    piece: FileSlice,
    *,
    slot: int,
    rows: pa.Table | None,
    deletes: pa.Array | None = None,
) -> FileResult:
    """Write a group anew with rows added, updated and deleted.

    Stored rows stream; rows no change touches keep the commit that wrote them. Deletes are in
    natural order: they beat whatever is stored.

    Raises: what reading and uploading raise, `InvalidInput` for rows that do not fit the schema.
    """
    schema = stored_columns(ctx.schema)
    layers = _layers(ctx, schema, rows, deletes, slot)
    tally = Tally()
    if ctx.rule.mode is not MergeMode.CUSTOM and not deletes:
        changes = folded(layers, schema)
        patched = patched_base(store, ctx, piece, changes, slot=slot, tally=tally)
        if patched is not None:
            return _merged(piece, patched, merged_stat(piece, patched, tally), tally)
    stored = stored_slice(store, piece, schema, ctx.rule)
    if ctx.rule.mode is not MergeMode.CUSTOM:
        batches = laid_over(
            stored.batches, layers, ctx.rule, schema=schema, before=stored.changes, tally=tally
        )
    elif ctx.rule.merger is None:
        raise no_merger(f"{store.uri}/{piece.partition}")
    else:
        merger = ctx.rule.merger
        batches = laid_over_by(merger, stored.batches, layers, schema=schema, tally=tally)
    written = _written(store, ctx, piece, slot, batches)
    return _merged(piece, written, merged_stat(piece, written, tally), tally)


def concat_base(
    store: ObjectStore, ctx: WriteContext, piece: FileSlice, *, slot: int, rows: pa.Table
) -> FileResult:
    """Write a group anew with rows added as they are, even beside rows that have their key.

    Raises: what reading and uploading raise, `InvalidInput` for rows that do not fit the schema.
    """
    schema = stored_columns(ctx.schema)
    fitted = conformed(rows, incoming_schema(ctx.schema), where=f"rows of {ctx.instant}")
    fresh = stamped(fitted, instant=ctx.instant, slot=slot, start=0, schema=schema)
    stored = stored_slice(store, piece, schema, ctx.rule)
    written = _written(store, ctx, piece, slot, chain(stored.batches, [fresh]))
    keys = fitted.column(RECORD_KEY).combine_chunks()
    tally = Tally(inserted=len(keys), inserted_keys=keys)
    return _merged(piece, written, merged_stat(piece, written, tally), tally)


def rewrite_base(
    store: ObjectStore, ctx: WriteContext, piece: FileSlice, *, slot: int
) -> FileResult:
    """Write the merged rows of a slice as its next base file: a compaction.

    Every row keeps the commit that wrote it.

    Raises: what reading and uploading raise.
    """
    stored = stored_slice(store, piece, stored_columns(ctx.schema), ctx.rule)
    written = None
    if stored.changes is not None and ctx.rule.mode is not MergeMode.CUSTOM:
        bare = replace(piece, logs=())
        written = patched_base(store, ctx, bare, stored.changes, slot=slot, tally=Tally())
    if written is None:
        written = _written(store, ctx, piece, slot, stored.batches)
    stat = compacted_stat(piece, written, stored)
    return _merged(piece, written, stat, Tally())


def append_log(
    store: ObjectStore,
    ctx: WriteContext,
    group: Group,
    *,
    slot: int,
    rows: pa.Table | None,
    deletes: pa.Array | None = None,
    inserted: pa.Array | None = None,
) -> FileResult:
    """Write rows, and then deletes in natural order, as a log file on top of a group.

    `inserted` are the keys of those rows that the group does not have; the others are updates.

    Raises: what an upload raises, `InvalidInput` for rows that do not fit the schema.
    """
    fresh = None
    if rows is not None and rows.num_rows:
        fitted = conformed(rows, incoming_schema(ctx.schema), where=f"rows for {group.file_id}")
        fresh = stamped(fitted, instant=ctx.instant, slot=slot, start=0, schema=ctx.schema)
    return write_log(
        store,
        ctx,
        partition=group.partition,
        file_id=group.file_id,
        slot=slot,
        first=not (isinstance(group, FileSlice) and (group.base or group.logs)),
        rows=fresh,
        deletes=deletes,
        inserted=inserted,
        base_file=group.base.name if isinstance(group, FileSlice) and group.base else "",
    )


def revives_older(
    store: ObjectStore, ctx: WriteContext, piece: FileSlice, rows: pa.Table | None
) -> bool:
    """Tell whether a key comes again, after a delete in a log file, below the row it deleted.

    In a log file such a row would bring the deleted one back: Hudi's readers fold the log files
    first, where the row beats the delete, and then compare it with the base file by event time.

    Raises: what reading raises.
    """
    names = ctx.rule.ordered_by
    if not names or piece.base is None or not piece.logs or rows is None or not rows.num_rows:
        return False
    schema = pa.schema([ctx.schema.field(name) for name in (RECORD_KEY, *names)])
    stored = folded(read_layers(store, piece.logs, schema, ctx.rule), schema)
    dead = stored.keys.filter(pc.and_(stored.row.is_null(), stored.final))
    again = rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=dead))
    if not again.num_rows:
        return False
    layer = row_layer(again, schema, ctx.rule, f"rows of {ctx.instant}")
    changes = folded([layer], schema)
    return any(
        pc.any(base_wins(batch, changes, places_in(batch, changes), ctx.rule)).as_py()
        for batch in read_base(store, piece.base, schema)
    )


def _layers(
    ctx: WriteContext,
    schema: pa.Schema,
    rows: pa.Table | None,
    deletes: pa.Array | None,
    slot: int,
) -> list[Layer]:
    check_ordering(ctx.rule, schema)
    where = f"rows of {ctx.instant}"
    layers = []
    if rows is not None and rows.num_rows:
        if RECORD_KEY not in rows.column_names:
            raise InvalidInput(f"{where}: there is no column {RECORD_KEY}")
        fitted = conformed(rows, incoming_schema(ctx.schema), where=where)
        fresh = stamped(fitted, instant=ctx.instant, slot=slot, start=0, schema=schema)
        layers.append(row_layer(fresh, schema, ctx.rule, where))
    if deletes is not None and len(deletes):
        whole = deletes.combine_chunks() if isinstance(deletes, pa.ChunkedArray) else deletes
        layers.append(deletes_layer(whole.cast(pa.string()), schema, ctx.rule))
    return layers


def _written(
    store: ObjectStore, ctx: WriteContext, piece: FileSlice, slot: int, rows: Iterable[pa.Table]
) -> BaseWritten:
    with BaseWriter(
        store,
        ctx,
        partition=piece.partition,
        file_id=piece.file_id,
        slot=slot,
        first=piece.base is None,
    ) as writer:
        for batch in rows:
            writer.write(batch)
        return writer.finish()


def _merged(piece: FileSlice, written: BaseWritten, stat: WriteStat, tally: Tally) -> FileResult:
    inserted = tally.inserted_keys
    return FileResult(
        stat,
        piece.partition,
        piece.file_id,
        FileKind.MERGED,
        replaced_base=None if piece.base is None else piece.base.name,
        min_key=written.min_key,
        max_key=written.max_key,
        written_keys=tuple(inserted.to_pylist()) if len(inserted) <= KEYS_INLINE_MAX else None,
        announced=IoType.CREATE if piece.base is None else IoType.MERGE,
        ignored=tally.ignored,
    )
