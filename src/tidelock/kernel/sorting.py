"""Rows in the order of some columns, with a bounded part of them in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from tidelock.kernel.curve import Layout, curve_places

SORTED_BYTES_MAX: Final = 512 * 1024 * 1024
"""Rows that are sorted at once, as they are in memory."""


def sorted_rows(
    read: Callable[[], Iterable[pa.Table]],
    by: Sequence[str],
    *,
    layout: Layout = Layout.LINEAR,
    bytes_max: int = SORTED_BYTES_MAX,
) -> Iterator[pa.Table]:
    """Yield the rows that `read` yields in ascending order of `by`, nulls last; ties as they come.

    With another layout they are in the order of its curve through the columns `by`.

    Rows that do not fit into `bytes_max` are read again for each part of that size, always in the
    same order: only the columns of `by` are held as a whole.
    """
    kept: list[pa.Table] = []
    sort_columns: list[pa.Table] = []
    size_bytes = 0
    for batch in read():
        rows = plain_strings(batch)
        size_bytes += rows.nbytes
        sort_columns.append(rows.select(list(by)))
        if size_bytes <= bytes_max:
            kept.append(rows)
        else:
            kept.clear()
    if not sort_columns:
        return
    order = _order(pa.concat_tables(sort_columns), layout)
    sort_columns.clear()
    if size_bytes <= bytes_max:
        yield pa.concat_tables(kept).take(pa.array(order))
        return
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    parts = -(-size_bytes // bytes_max)
    bounds = [len(ranks) * part // parts for part in range(parts + 1)]
    for low, high in pairwise(bounds):
        if low < high:
            yield _ranked(read(), ranks, low, high)


def _order(columns: pa.Table, layout: Layout) -> npt.NDArray[np.int64]:
    if layout is not Layout.LINEAR and columns.num_columns > 1:
        return np.argsort(curve_places(columns, layout), kind="stable").astype(np.int64)
    # The number of a row as the last column makes the order one that comes out again.
    numbers = pa.array(np.arange(columns.num_rows))
    numbered = columns.append_column(_NUMBER, numbers)
    keys = [(name, "ascending") for name in numbered.column_names]
    found: npt.NDArray[np.int64] = (
        numbered.sort_by(keys).column(_NUMBER).to_numpy().astype(np.int64)
    )
    return found


def _ranked(
    batches: Iterable[pa.Table], ranks: npt.NDArray[np.int64], low: int, high: int
) -> pa.Table:
    """Return the rows of ranks `low` to `high` in their order."""
    chosen: list[pa.Table] = []
    places: list[npt.NDArray[np.int64]] = []
    start = 0
    for batch in batches:
        mine = ranks[start : start + batch.num_rows]
        start += batch.num_rows
        inside = (mine >= low) & (mine < high)
        if inside.any():
            chosen.append(plain_strings(batch.filter(pa.array(inside))))
            places.append(mine[inside])
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_tables(chosen).take(pa.array(order))


def plain_strings(rows: pa.Table) -> pa.Table:
    """Return rows without dictionaries, which differ from batch to batch."""
    columns = [
        column.cast(column.type.value_type) if pt.is_dictionary(column.type) else column
        for column in rows.columns
    ]
    return pa.Table.from_arrays(columns, names=rows.column_names)


_NUMBER: Final = "_tidelock_row"
