"""`tl.Table` on tables written by Java, compared with the package `hudi`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tests.interop.real_tables import NAMES, unpacked

hudi = pytest.importorskip("hudi", reason="the independent reader is not installed")

ORDER = ("_hoodie_partition_path", "_hoodie_record_key", "_hoodie_commit_seqno")
BEGINNING = "00000000000000000"


@pytest.fixture(params=NAMES)
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the base path of each real table in turn."""
    return unpacked(request.param, tmp_path)


@pytest.fixture
def table(base: Path) -> Iterator[tl.Table]:
    """Return our view of the table."""
    with tl.Table.open(str(base)) as opened:
        yield opened


def theirs(base: Path, options: Any = None) -> list[dict[str, Any]]:
    judge = hudi.HudiTableBuilder.from_base_uri(str(base)).build()
    batches = judge.read(options or hudi.HudiReadOptions())
    return in_order([row for batch in batches for row in batch.to_pylist()])


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: tuple(row[name] for name in ORDER))


def test_read_has_the_rows_that_hudi_reads(base: Path, table: tl.Table) -> None:
    found = table.read(meta_columns=True)
    assert found.num_rows
    assert in_order(found.to_pylist()) == theirs(base)
    assert pa.Table.from_batches(table.batches(meta_columns=True)).equals(found)
    assert table.read().equals(found.select(table.schema.names))


def test_time_travel_and_changes_match_hudi(base: Path, table: tl.Table) -> None:
    writes = [entry for entry in reversed(table.history()) if entry.files is not None]
    middle = writes[len(writes) // 2]
    past = hudi.HudiReadOptions().with_as_of_timestamp(middle.requested)
    found = table.read(as_of=middle.requested, meta_columns=True)
    assert in_order(found.to_pylist()) == theirs(base, past)
    for since in (BEGINNING, middle.completion):
        options = hudi.HudiReadOptions().with_query_type(hudi.HudiQueryType.Incremental)
        expected = theirs(base, options.with_start_timestamp(since))
        assert in_order(table.changes(since, meta_columns=True).to_pylist()) == expected


def test_files_and_history_match_hudi(base: Path, table: tl.Table) -> None:
    judge = hudi.HudiTableBuilder.from_base_uri(str(base)).build()
    slices = {
        (piece.base_file_relative_path(), *sorted(piece.log_files_relative_paths()))
        for piece in judge.get_file_slices()
    }
    found = {
        (piece.base.key if piece.base else "", *sorted(log.key for log in piece.logs))
        for piece in table.files()
    }
    assert found == slices
    timeline = judge.get_timeline()
    commits = [*timeline.get_completed_commits(), *timeline.get_completed_deltacommits()]
    commits += timeline.get_completed_replacecommits()
    ours = {entry.requested for entry in table.history() if entry.files is not None}
    assert ours == {instant.timestamp for instant in commits}
