"""Z-order and Hilbert curves visit every point once, and preserve locality."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelock.execution.filegroup.clustering import (
    LayoutStrategy,
    Numbers,
    curve_positions,
    hilbert_positions,
    sort_rows,
    z_positions,
)


def grid(columns: int, bits: int) -> list[Numbers]:
    """Return the coordinates of all points of a cube."""
    points = np.indices((1 << bits,) * columns).reshape(columns, -1)
    return [axis.astype(np.uint64) for axis in points]


SPACES = [(2, 1), (2, 4), (3, 2), (3, 3), (5, 2), (1, 6)]


@pytest.mark.parametrize(("columns", "bits"), SPACES)
def test_hilbert_curve_moves_one_step_at_a_time(columns: int, bits: int) -> None:
    axes = grid(columns, bits)
    positions = hilbert_positions(axes, bits)
    assert sorted(positions.tolist()) == list(range(1 << (columns * bits)))
    order = np.argsort(positions)
    path = np.stack(axes).astype(np.int64)[:, order]
    steps = np.abs(np.diff(path, axis=1)).sum(axis=0)
    assert set(steps.tolist()) == {1}


@pytest.mark.parametrize(("columns", "bits"), SPACES)
def test_z_curve_visits_every_point(columns: int, bits: int) -> None:
    positions = z_positions(grid(columns, bits), bits)
    assert sorted(positions.tolist()) == list(range(1 << (columns * bits)))


def test_z_curve_has_the_shape_of_a_z() -> None:
    positions = z_positions(
        [np.array([0, 0, 1, 1], np.uint64), np.array([0, 1, 0, 1], np.uint64)], 1
    )
    assert positions.tolist() == [0, 1, 2, 3]


def test_given_axes_are_not_modified() -> None:
    axes = grid(2, 3)
    before = [axis.copy() for axis in axes]
    hilbert_positions(axes, 3)
    assert all(np.array_equal(a, b) for a, b in zip(axes, before, strict=True))


@pytest.mark.parametrize("layout", [LayoutStrategy.Z_ORDER, LayoutStrategy.HILBERT])
@pytest.mark.parametrize(
    "values",
    [
        [3, None, 1, 2, -5],
        ["b", "ä", None, "", "a"],
        [b"\xff", b"", None, b"a", b"b"],
        [1.5, float("nan"), None, -0.0, float("-inf")],
        [True, None, False, True, False],
        [Decimal("1.25"), None, Decimal("-3.00"), Decimal("0.01"), Decimal("9.99")],
        [date(2024, 1, 1), None, date(1970, 1, 1), date(1900, 1, 1), date(2100, 1, 1)],
        [None, *(datetime(1970 + i % 4, 1, 1, tzinfo=UTC) for i in range(7))],
    ],
    ids=["int", "text", "bytes", "float", "bool", "decimal", "date", "time"],
)  # fmt: skip
def test_every_type_has_its_order_and_nulls_come_last(
    layout: LayoutStrategy, values: list[Any]
) -> None:
    """The other column is equal in all rows, so only the order of this one is left."""
    column = pa.chunked_array([pa.array(values)])
    rows = pa.table({"a": column, "b": pa.array([7] * len(values))})
    positions = curve_positions(rows, layout)
    order = [values[i] for i in np.argsort(positions, kind="stable")]
    assert order[-1] is None
    kept = [value for value in order[:-1] if value == value]  # noqa: PLR0124 - nan is not itself
    assert kept == sorted(kept)


def test_columns_of_nulls_and_empty_tables_are_supported() -> None:
    rows = pa.table({"a": pa.nulls(3), "b": pa.array([2, 1, 3])})
    assert len(set(curve_positions(rows, LayoutStrategy.HILBERT).tolist())) == 3
    assert len(curve_positions(rows.slice(0, 0), LayoutStrategy.Z_ORDER)) == 0


@pytest.mark.parametrize("layout", [LayoutStrategy.Z_ORDER, LayoutStrategy.HILBERT])
@pytest.mark.parametrize("bytes_max", [1_000, 10**9])
def test_rows_are_clustered_in_both_columns(layout: LayoutStrategy, bytes_max: int) -> None:
    size = 64
    x, y = (axis.reshape(-1).astype(np.int64) for axis in np.indices((size, size)))
    shuffled = np.random.default_rng(5).permutation(len(x))
    rows = pa.table({"x": x[shuffled], "y": y[shuffled], "at": np.arange(len(x))})
    batches = [rows.slice(start, 500) for start in range(0, len(x), 500)]
    found = pa.concat_tables(
        sort_rows(lambda: batches, ["x", "y"], layout=layout, bytes_max=bytes_max)
    )
    assert sorted(found.column("at").to_pylist()) == list(range(len(x)))
    files = [found.slice(start, 256) for start, _ in pairwise(range(0, len(x) + 1, 256))]
    for name in ("x", "y"):
        widths = [max(f.column(name).to_pylist()) - min(f.column(name).to_pylist()) for f in files]
        # Sixteen files; sorted by one column alone, the other would span all 64 values in each.
        assert max(widths) <= 16
