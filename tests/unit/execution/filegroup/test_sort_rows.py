"""Sorting of rows, whether or not they fit into memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.execution.filegroup.clustering import sort_rows

ROW = st.tuples(st.integers(0, 5) | st.none(), st.text("ab", max_size=2) | st.none())


@given(st.lists(st.lists(ROW, max_size=6), max_size=5), st.sampled_from([1, 64, 10**6]))
def test_sort_is_stable(batches: list[list[tuple[int | None, str | None]]], bytes_max: int) -> None:
    numbered = iter(range(100))
    tables = [
        pa.table(
            {
                "n": pa.array([n for n, _ in batch], pa.int64()),
                "s": pa.array([s for _, s in batch], pa.string()).dictionary_encode(),
                "at": pa.array([next(numbered) for _ in batch], pa.int64()),
            }
        )
        for batch in batches
    ]
    found = list(sort_rows(lambda: tables, ["n", "s"], bytes_max=bytes_max))
    got = [tuple(row.values()) for table in found for row in table.to_pylist()]
    every = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    expected = sorted(every, key=lambda row: (row[0] is None, row[0], row[1] is None, row[1] or ""))
    assert got == expected


@pytest.mark.parametrize("parts", [1, 4])
def test_rows_that_do_not_fit_are_read_once_for_each_part(parts: int) -> None:
    table = pa.table({"n": pa.array(range(1_000, 0, -1), pa.int64())})
    reads = 0

    def read() -> Iterator[pa.Table]:
        nonlocal reads
        reads += 1
        yield table

    found = list(sort_rows(read, ["n"], bytes_max=table.nbytes // parts))
    assert [part.num_rows for part in found] == [1_000 // parts] * parts
    assert reads == (1 if parts == 1 else 1 + parts)
