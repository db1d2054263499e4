"""The place of rows on a curve through the space of several columns: z-order and Hilbert. Pure.

Rows that are near each other in every column lie near each other on the curve, so that a file of
neighbours has narrow bounds in each of the columns, not in the first alone. Values count by their
rank: what type a column has, and how unevenly its values are spread, makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.uint64]

_KEY_BITS: Final = 64
_AXIS_BITS_MAX: Final = 21
"""Two million steps along a column: more than a clustering has files."""

COLUMNS_MAX: Final = _KEY_BITS // 2
"""With more columns than these, less than four steps would be left for each."""


class Layout(StrEnum):
    """How rows are ordered by several columns; the names are Hudi's."""

    LINEAR = "linear"
    Z_ORDER = "z-order"
    HILBERT = "hilbert"


def curve_places(columns: pa.Table, layout: Layout) -> Numbers:
    """Return where each row lies on the curve of a layout, which is not `LINEAR`.

    Rows without a value in a column come after all that have one.
    """
    bits = min(_AXIS_BITS_MAX, _KEY_BITS // columns.num_columns)
    axes = [_steps(column, bits) for column in columns.columns]
    return z_places(axes, bits) if layout is Layout.Z_ORDER else hilbert_places(axes, bits)


def z_places(axes: Sequence[Numbers], bits: int) -> Numbers:
    """Return the bits of all axes by turns, the highest first."""
    found = np.zeros_like(axes[0])
    for bit in reversed(range(bits)):
        for axis in axes:
            found <<= np.uint64(1)
            found |= (axis >> np.uint64(bit)) & np.uint64(1)
    return found


def hilbert_places(axes: Sequence[Numbers], bits: int) -> Numbers:
    """Return the distances along the Hilbert curve, by Skilling's transposition of the axes.

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
    return z_places([axis ^ rest for axis in x], bits)


def _steps(column: pa.ChunkedArray, bits: int) -> Numbers:
    """Return which of 2**bits steps each value is on, if as many rows lie on each."""
    if pa.types.is_null(column.type) or not len(column):
        return np.zeros(len(column), np.uint64)
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min").to_numpy()
    shares: npt.NDArray[np.float64] = (ranks.astype(np.float64) - 1) / len(column)
    return (shares * (1 << bits)).astype(np.uint64)
