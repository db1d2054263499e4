"""Clustering: rows of several file groups are written to new groups, in the order of a layout.

Sorting holds a bounded part of the rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.execution.filegroup.base_file_writer import RollingWriter, stored_columns
from tidelock.execution.filegroup.context import FileResult, FileTarget, WriteContext
from tidelock.execution.filegroup.parquet_footer import Footer
from tidelock.execution.filegroup.parquet_splice import (
    GROUP_BYTES_MIN,
    SplicedWriter,
    copyable_footer,
)
from tidelock.execution.filegroup.read import read_stored_slice
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.schema import dictionary_decoded
from tidelock.storage.contract import ObjectStore

Numbers = npt.NDArray[np.uint64]

_KEY_BITS: Final = 64

_AXIS_BITS_MAX: Final = 21
"""Two million steps along a column: more than the files of a clustering."""

COLUMNS_MAX: Final = _KEY_BITS // 2
"""With more columns, fewer than four steps would remain for each."""


class LayoutStrategy(StrEnum):
    """The order of rows by several columns; the names are Hudi's."""

    LINEAR = "linear"
    Z_ORDER = "z-order"
    HILBERT = "hilbert"


def curve_positions(columns: pa.Table, layout: LayoutStrategy) -> Numbers:
    """Return the position of each row on the curve of a layout other than `LINEAR`.

    Nulls come last.
    """
    bits = min(_AXIS_BITS_MAX, _KEY_BITS // columns.num_columns)
    axes = [_axis_steps(column, bits) for column in columns.columns]
    positions = z_positions if layout is LayoutStrategy.Z_ORDER else hilbert_positions
    return positions(axes, bits)


def z_positions(axes: Sequence[Numbers], bits: int) -> Numbers:
    """Interleave the bits of all axes, the highest first."""
    found = np.zeros_like(axes[0])
    for bit in reversed(range(bits)):
        for axis in axes:
            found <<= np.uint64(1)
            found |= (axis >> np.uint64(bit)) & np.uint64(1)
    return found


def hilbert_positions(axes: Sequence[Numbers], bits: int) -> Numbers:
    """Return distances along the Hilbert curve, by Skilling's transposition of the axes.

    J. Skilling, Programming the Hilbert curve, AIP Conference Proceedings 707 (2004).
    """
    x = [axis.copy() for axis in axes]
    for bit in reversed(range(1, bits)):
        high, low = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for axis in x:
            turns = (axis & high) != 0
            swapped = np.where(turns, np.uint64(0), (x[0] ^ axis) & low)
            axis ^= swapped  # noqa: PLW2901 - in place
            x[0] ^= np.where(turns, low, swapped)
    for before, axis in pairwise(x):
        axis ^= before  # noqa: PLW2901 - in place
    rest = np.zeros_like(x[0])
    for bit in reversed(range(1, bits)):
        turns = (x[-1] & np.uint64(1 << bit)) != 0
        rest ^= np.where(turns, np.uint64((1 << bit) - 1), np.uint64(0))
    return z_positions([axis ^ rest for axis in x], bits)


def _axis_steps(column: pa.ChunkedArray, bits: int) -> Numbers:
    """Map each value to one of 2**bits steps with equal numbers of rows."""
    if pa.types.is_null(column.type) or not len(column):
        return np.zeros(len(column), np.uint64)
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min").to_numpy()
    shares: npt.NDArray[np.float64] = (ranks.astype(np.float64) - 1) / len(column)
    return (shares * (1 << bits)).astype(np.uint64)


SORTED_BYTES_MAX: Final = 512 * 1024 * 1024
"""The maximum size in memory of rows sorted together."""


def sort_rows(
    read: Callable[[], Iterable[pa.Table]],
    by: Sequence[str],
    *,
    layout: LayoutStrategy = LayoutStrategy.LINEAR,
    bytes_max: int = SORTED_BYTES_MAX,
) -> Iterator[pa.Table]:
    """Yield the rows that `read` yields in ascending order of `by`, nulls last; the sort is stable.

    Another `layout` orders them along its curve through the columns `by`.

    Rows that exceed `bytes_max` are read again for each part of that size; `read` must always yield
    the same order. Only the columns `by` are held in memory as a whole.
    """
    held: list[pa.Table] = []
    sort_columns: list[pa.Table] = []
    size_bytes = 0
    for batch in read():
        rows = dictionary_decoded(batch)
        size_bytes += rows.nbytes
        sort_columns.append(rows.select(list(by)))
        if size_bytes <= bytes_max:
            held.append(rows)
        else:
            held.clear()
    if not sort_columns:
        return
    order = _sort_order(pa.concat_tables(sort_columns, promote_options="default"), layout)
    sort_columns.clear()
    if size_bytes <= bytes_max:
        yield pa.concat_tables(held, promote_options="default").take(pa.array(order))
        return
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    parts = -(-size_bytes // bytes_max)
    bounds = [len(ranks) * part // parts for part in range(parts + 1)]
    for low, high in pairwise(bounds):
        if low < high:
            yield _rows_in_rank_range(read(), ranks, low, high)


def _sort_order(columns: pa.Table, layout: LayoutStrategy) -> npt.NDArray[np.int64]:
    if layout is not LayoutStrategy.LINEAR and columns.num_columns > 1:
        return np.argsort(curve_positions(columns, layout), kind="stable").astype(np.int64)
    # The row number as the last sort key makes the order deterministic.
    numbers = pa.array(np.arange(columns.num_rows))
    numbered = columns.append_column(_ROW_NUMBER, numbers)
    keys = [(name, "ascending") for name in numbered.column_names]
    found: npt.NDArray[np.int64] = numbered.sort_by(keys).column(_ROW_NUMBER).to_numpy()
    return found.astype(np.int64)


def _rows_in_rank_range(
    batches: Iterable[pa.Table], ranks: npt.NDArray[np.int64], low: int, high: int
) -> pa.Table:
    """Return the rows of ranks `low` to `high`, in order."""
    chosen: list[pa.Table] = []
    batch_ranks: list[npt.NDArray[np.int64]] = []
    start = 0
    for batch in batches:
        ranks_here = ranks[start : start + batch.num_rows]
        start += batch.num_rows
        inside = (ranks_here >= low) & (ranks_here < high)
        if inside.any():
            chosen.append(dictionary_decoded(batch.filter(pa.array(inside))))
            batch_ranks.append(ranks_here[inside])
    order = np.argsort(np.concatenate(batch_ranks), kind="stable")
    return pa.concat_tables(chosen, promote_options="default").take(pa.array(order))


_ROW_NUMBER: Final = "_tidelock_row"


def cluster_base(
    store: ObjectStore,
    ctx: WriteContext,
    file_slices: Sequence[FileSlice],
    *,
    file_id: str,
    slot: int,
    sort_by: Sequence[str] = (),
    layout: LayoutStrategy = LayoutStrategy.LINEAR,
    group_bytes_min: int = GROUP_BYTES_MIN,
) -> tuple[FileResult, ...]:
    """Write the merged rows of slices of one partition as base files of new groups.

    Every row keeps its commit, sequence number and key. With `sort_by`, rows are sorted over all
    files in the order of `layout`. Otherwise they are written slice by slice: row groups of at
    least `group_bytes_min` are copied where possible, and other rows stream. Raises: as reading and
    uploading.
    """
    target = FileTarget(file_slices[0].partition, file_id, slot)
    if not sort_by:
        footers = [movable_footer(store, ctx, each, group_bytes_min) for each in file_slices]
        if any(footers):
            return _splice(store, ctx, list(zip(file_slices, footers, strict=True)), target)

    def stored() -> Iterator[pa.Table]:
        for file_slice in file_slices:
            yield from _stored_rows(store, ctx, file_slice)

    rows = sort_rows(stored, sort_by, layout=layout) if sort_by else stored()
    with RollingWriter(store, ctx, target, keep_meta=True) as writer:
        for table in rows:
            writer.write(table)
        return writer.finish()


def movable_footer(
    store: ObjectStore, ctx: WriteContext, file_slice: FileSlice, group_bytes_min: int
) -> Footer | None:
    """Return the footer of a slice's base file if its row groups can be copied; None otherwise.

    Raises: `NotFound`, `DataCorrupt`.
    """

    def is_large(footer: Footer) -> bool:
        return sum(group.size for group in footer.groups) >= group_bytes_min * len(footer.groups)

    if file_slice.base is None or file_slice.logs:
        return None
    return copyable_footer(store, ctx, file_slice.base, is_large)


def _splice(
    store: ObjectStore,
    ctx: WriteContext,
    pairs: Sequence[tuple[FileSlice, Footer | None]],
    first: FileTarget,
) -> tuple[FileResult, ...]:
    with SplicedWriter(store, ctx, first) as writer:
        for file_slice, footer in pairs:
            if footer is not None and file_slice.base is not None:
                writer.move(file_slice.base, footer)
                continue
            for rows in _stored_rows(store, ctx, file_slice):
                writer.write(rows)
        return writer.finish()


def _stored_rows(
    store: ObjectStore, ctx: WriteContext, file_slice: FileSlice
) -> Iterator[pa.Table]:
    yield from read_stored_slice(store, file_slice, stored_columns(ctx.schema), ctx.rule).batches
