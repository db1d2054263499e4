"""Writing the rows of several file groups as base files of other groups: a clustering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidelock.kernel.basewriter import stored_columns
from tidelock.kernel.context import WriteContext
from tidelock.kernel.curve import Layout
from tidelock.kernel.footer import Footer
from tidelock.kernel.groupfile import own_footer
from tidelock.kernel.results import FileResult
from tidelock.kernel.rolling import RollingWriter
from tidelock.kernel.sorting import sorted_rows
from tidelock.kernel.splice import GROUP_BYTES_MIN, Movable, SplicedWriter, movable
from tidelock.kernel.stored import stored_slice
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice


def cluster_base(
    store: ObjectStore,
    ctx: WriteContext,
    pieces: Sequence[FileSlice],
    *,
    file_id: str,
    slot: int,
    sort_by: Sequence[str] = (),
    layout: Layout = Layout.LINEAR,
    group_bytes_min: int = GROUP_BYTES_MIN,
) -> tuple[FileResult, ...]:
    """Write the merged rows of slices of one partition as base files of new groups.

    Every row keeps its commit, its sequence number and its key. With `sort_by` rows are in order
    over all files, that of `layout`. Without, they come slice by slice: row groups of
    `group_bytes_min` and more are copied as they are where the file allows it, and other rows
    stream.

    Raises: what reading and uploading raise.
    """
    if not sort_by:
        like = own_footer(ctx)
        sources = [
            movable(store, ctx, piece, like=like, group_bytes_min=group_bytes_min)
            for piece in pieces
        ]
        if any(sources):
            pairs = list(zip(pieces, sources, strict=True))
            return _spliced(store, ctx, pairs, like, file_id=file_id, slot=slot)

    def stored() -> Iterator[pa.Table]:
        for piece in pieces:
            yield from _rows(store, ctx, piece)

    rows = sorted_rows(stored, sort_by, layout=layout) if sort_by else stored()
    with RollingWriter(
        store, ctx, partition=pieces[0].partition, file_id=file_id, slot=slot, keeps_meta=True
    ) as writer:
        for table in rows:
            writer.write(table)
        return writer.finish()


def _spliced(
    store: ObjectStore,
    ctx: WriteContext,
    pairs: Sequence[tuple[FileSlice, Movable | None]],
    like: Footer,
    *,
    file_id: str,
    slot: int,
) -> tuple[FileResult, ...]:
    partition = pairs[0][0].partition
    with SplicedWriter(
        store, ctx, partition=partition, file_id=file_id, slot=slot, like=like
    ) as writer:
        for piece, source in pairs:
            if source is not None:
                writer.move(source)
                continue
            for rows in _rows(store, ctx, piece):
                writer.write(rows)
        return writer.finish()


def _rows(store: ObjectStore, ctx: WriteContext, piece: FileSlice) -> Iterator[pa.Table]:
    yield from stored_slice(store, piece, stored_columns(ctx.schema), ctx.rule).batches
