"""A read that needs files which a clean has deleted fails; it never returns fewer rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidelock.core.errors import NotFound
from tidelock.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("day", pa.string())])
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
POLICIES = {
    "commits": {"hoodie.clean.commits.retained": "2"},
    "versions": {
        "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
        "hoodie.clean.fileversions.retained": "2",
    },
}


def rows(v: str, *days: str) -> pa.Table:
    ids = list(range(len(days)))
    return pa.table([ids, [f"{v}{day}" for day in days], list(days)], schema=SCHEMA)


def cleaned_table(path: Path, policy: str) -> tuple[list[str], list[list[dict[str, object]]]]:
    """Write a table that is then cleaned; return its instants, and the rows as of each."""
    options = {**QUIET, **POLICIES[policy]}
    with Table.create(str(path), SCHEMA, key="id", partition_by="day", options=options) as table:
        table.insert(rows("0", "a", "b"))
        for number in range(1, 5):
            table.upsert(rows(str(number), "a"))
        instants = [i.requested for i in table.timeline if i.is_completed and i.action.writes_data]
        before = [sorted_rows(table, instant) for instant in instants]
        table.clean()
    return instants, before


def sorted_rows(table: Table, as_of: str | None = None) -> list[dict[str, object]]:
    found: list[dict[str, object]] = table.read(as_of=as_of).sort_by("id").to_pylist()
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_past_snapshot_is_complete_or_refused(tmp_path: Path, policy: str) -> None:
    instants, before = cleaned_table(tmp_path / "t", policy)
    with Table.open(str(tmp_path / "t")) as table:
        for instant, expected in zip(instants[-2:], before[-2:], strict=True):
            assert sorted_rows(table, instant) == expected
        with pytest.raises(NotFound, match="as of"):
            table.read(as_of=instants[2])
        # Files that were never rewritten still exist.
        assert table.read(as_of=instants[2], partitions=["b"]).num_rows == 1


def test_time_before_the_timeline_starts_is_judged_by_the_plans_in_the_history(
    tmp_path: Path,
) -> None:
    instants, _ = cleaned_table(tmp_path / "t", "commits")
    options = {**QUIET, **POLICIES["commits"]}
    options |= {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4"}
    with Table.open(str(tmp_path / "t"), options=options) as table:
        for number in range(5, 15):
            table.upsert(rows(str(number), "a"))
            table.clean()
            table.archive()
        assert table.timeline[0].requested > instants[-1]
        with pytest.raises(NotFound, match="belongs to the table as of"):
            table.read(as_of=instants[1])
        assert table.read().num_rows == 2


def test_long_open_table_reports_that_its_files_are_gone(tmp_path: Path) -> None:
    cleaned_table(tmp_path / "t", "commits")
    options = {**QUIET, **POLICIES["commits"]}
    with (
        Table.open(str(tmp_path / "t")) as reader,
        Table.open(str(tmp_path / "t"), options=options) as writer,
    ):
        before = sorted_rows(reader)
        writer.upsert(rows("new", "a"))
        writer.clean()
        assert sorted_rows(reader) == before
        for number in range(4):
            writer.upsert(rows(f"newer{number}", "a"))
        writer.clean()
        with pytest.raises(NotFound, match="refresh the table"):
            reader.read()
        reader.refresh()
        assert sorted_rows(reader)[0]["v"] == "newer3a"


def test_deleted_and_cleaned_partition_is_not_read_as_empty(tmp_path: Path) -> None:
    cleaned_table(tmp_path / "t", "commits")
    options = {**QUIET, "hoodie.clean.commits.retained": "1"}
    with (
        Table.open(str(tmp_path / "t")) as reader,
        Table.open(str(tmp_path / "t"), options=options) as writer,
    ):
        assert reader.read().num_rows == 2
        writer.delete_partition(["b"])
        writer.upsert(rows("new", "a"))
        writer.clean()
        with pytest.raises(NotFound, match="refresh the table"):
            reader.read()
        reader.refresh()
        assert reader.read().num_rows == 1


@pytest.mark.parametrize("time_travel", [False, True])
def test_reader_detects_missing_files_after_the_clean_plans_were_archived(
    tmp_path: Path, time_travel: bool
) -> None:
    instants, before = cleaned_table(tmp_path / "t", "commits")
    options = {**QUIET, **POLICIES["commits"]}
    options |= {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4"}
    with (
        Table.open(str(tmp_path / "t")) as reader,
        Table.open(str(tmp_path / "t"), options=options) as writer,
    ):
        read_at = instants[-1] if time_travel else None
        assert sorted_rows(reader, read_at) == before[-1]
        for number in range(5, 20):
            writer.upsert(rows(str(number), "a"))
            writer.clean()
            writer.archive()
        with pytest.raises(NotFound):
            reader.read(as_of=read_at)
