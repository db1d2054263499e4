"""Log compaction on real tables: rows are unchanged, for every reader and later service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from testkit.judges.hudi_rs import HudiRs
from tidelock.core.errors import Conflict, DataCorrupt, Unsupported, WriteConflict
from tidelock.execution.filegroup.log_files import count_merged_blocks
from tidelock.execution.local.write import LocalWriter
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.schema import FILE_NAME
from tidelock.hudi.timeline.instant import Action, InstantState
from tidelock.inspect.validate import validate
from tidelock.services.compaction import Compaction, CompactionRule, load_plan
from tidelock.services.inline import commits_since_log_merge
from tidelock.services.log_compaction import LogCompaction
from tidelock.table import Table
from tidelock.txn.writers import conflicts

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.string())])
OPTIONS = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
ORDERINGS = (None, "ts")


def rows(*ids: int, ts: int = 1, v: str = "x") -> pa.Table:
    return pa.table([list(ids), [ts] * len(ids), [f"{v}{i}" for i in ids]], schema=SCHEMA)


def create_table(folder: Path, ordering: str | None = None, **more: str) -> Table:
    """Return a table with one file group and eight log files."""
    table = Table.create(
        str(folder),
        SCHEMA,
        key="id",
        ordering=ordering,
        type="MERGE_ON_READ",
        options={**OPTIONS, **more},
    )
    table.insert(rows(*range(20), ts=10))
    table.upsert(rows(1, 2, 3, ts=11, v="a"))
    table.upsert(rows(2, 4, ts=5, v="old"))
    table.delete(rows(3, 5))
    table.upsert(rows(5, ts=10, v="again"))
    table.delete(rows(6))
    table.upsert(rows(7, 8, ts=12, v="b"))
    table.upsert(rows(7, ts=13, v="c"))
    table.upsert(rows(4, ts=20, v="d"))
    return table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with create_table(tmp_path / "t") as found:
        yield found


def content(table: Table) -> list[dict[str, Any]]:
    table.refresh()
    found: list[dict[str, Any]] = table.read(meta_columns=True).sort_by("id").to_pylist()
    return [{name: row[name] for name in row if name != FILE_NAME} for row in found]


def only_slice(table: Table) -> FileSlice:
    (piece,) = table.files()
    return piece


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_rows_are_unchanged_and_one_log_file_replaces_all(
    tmp_path: Path, ordering: str | None
) -> None:
    with create_table(tmp_path / "t", ordering) as table:
        before, since = content(table), table.latest_completion
        assert since is not None
        assert len(only_slice(table).logs) == 8
        ran = table.log_compact()
        assert [done.files_written for done in ran.executed] == [1]
        assert content(table) == before
        piece = only_slice(table)
        assert len(piece.logs) == 9
        # The rows are one block, the deletes another, and deletes followed by rows a third.
        assert count_merged_blocks(table._store, piece.logs) <= 3
        assert table.changes(since).num_rows == 0
        assert table.log_compact().scheduled is None
        assert validate(table._store).findings == ()


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_independent_reader_reads_the_same_rows(tmp_path: Path, ordering: str | None) -> None:
    with create_table(tmp_path / "t", ordering) as table:
        expected = {row["id"]: row["v"] for row in HudiRs().snapshot(table.uri)}
        table.log_compact()
        table.upsert(rows(9, ts=30, v="later"))
        found = HudiRs().snapshot(table.uri)
        assert {row["id"]: row["v"] for row in found} == {**expected, 9: "later9"}


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_later_writes_and_services_build_on_it(tmp_path: Path, ordering: str | None) -> None:
    with (
        create_table(tmp_path / "t", ordering) as table,
        create_table(tmp_path / "plain", ordering) as plain,
    ):
        table.log_compact()
        for each in (table, plain):
            # A row below the deleted one would be merged into a base file.
            each.upsert(rows(1, ts=1, v="late"))
            each.delete(rows(7))
            each.upsert(rows(3, 6, 7, ts=14, v="revived"))
            for _ in range(4):
                each.upsert(rows(11, ts=40, v="z"))
        second = table.log_compact()
        assert len(second.executed) == 1
        for each in (table, plain):
            each.upsert(rows(5, 12, ts=1, v="last"))
        assert _values(table) == _values(plain)
        table.compact()
        assert only_slice(table).logs == ()
        assert _values(table) == _values(plain)


def _values(table: Table) -> dict[int, tuple[int, str]]:
    table.refresh()
    return {row["id"]: (row["ts"], row["v"]) for row in table.read().to_pylist()}


def test_time_travel_reads_the_earlier_log_files(table: Table) -> None:
    instants = [i.requested for i in table.timeline if i.is_completed]
    before = [table.read(as_of=instant).sort_by("id").to_pylist() for instant in instants]
    table.log_compact()
    table.refresh()
    assert [table.read(as_of=i).sort_by("id").to_pylist() for i in instants] == before


def test_plan_is_one_that_java_would_execute_as_a_log_compaction(table: Table) -> None:
    planned = LogCompaction(table.writer()).schedule(5)
    assert planned is not None
    table.refresh()
    (instant,) = [i for i in table.timeline if i.requested == planned]
    assert (instant.action, instant.state) == (Action.LOG_COMPACTION, InstantState.REQUESTED)
    plan = load_plan(table.writer(), planned, Action.LOG_COMPACTION)
    assert plan.strategy is not None
    assert (plan.strategy.compactor_class_name or "").endswith(".LogCompactionExecutionHelper")
    (operation,) = plan.operations or ()
    assert operation.delta_file_paths == tuple(log.name for log in only_slice(table).logs)


def test_nothing_is_scheduled_below_the_threshold(table: Table) -> None:
    assert LogCompaction(table.writer()).schedule(9) is None
    assert LogCompaction(table.writer()).plan(8) is not None


def test_file_group_is_in_one_plan_at_a_time(table: Table) -> None:
    writer = table.writer()
    assert Compaction(writer).schedule(CompactionRule()) is not None
    assert LogCompaction(writer).schedule(2) is None
    table.compact()
    table.upsert(rows(1, ts=50))
    table.upsert(rows(1, ts=51))
    assert LogCompaction(writer).schedule(2) is not None
    assert Compaction(writer).schedule(CompactionRule()) is None


def test_writer_that_began_before_the_plan_is_not_hidden(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log file comes first in the order of logs, although its values are newer."""
    planned: list[str | None] = []
    with Table.open(table.uri, options=OPTIONS) as other:
        service = LogCompaction(other.writer())
        inner = LocalWriter.write

        def writes(self: LocalWriter, *args: Any, **more: Any) -> Any:
            results = inner(self, *args, **more)
            if not planned:
                planned.append(service.schedule(5))
            return results

        monkeypatch.setattr(LocalWriter, "write", writes)
        table.upsert(rows(1, ts=60, v="newest"))
        (instant,) = planned
        assert instant is not None
        with pytest.raises(WriteConflict, match="log files were added in between"):
            service.execute(instant)
        assert _values(other)[1] == (60, "newest1")
        assert service.pending() == ()
        assert len(list(conflicts(other._store))) == 1


def test_writer_that_began_after_the_plan_stays_on_top(table: Table) -> None:
    service = LogCompaction(table.writer())
    planned = service.schedule(5)
    assert planned is not None
    with Table.open(table.uri, options=OPTIONS) as other:
        other.upsert(rows(1, 2, ts=60, v="newest"))
    service.execute(planned)
    found = _values(table)
    assert (found[1], found[2]) == ((60, "newest1"), (60, "newest2"))
    assert {row["id"]: row["v"] for row in HudiRs().snapshot(table.uri)} == {
        key: v for key, (_, v) in found.items()
    }


def test_abandoned_plan_is_gone(table: Table) -> None:
    service = LogCompaction(table.writer())
    planned = service.schedule(5)
    assert planned is not None
    path = Path(table.uri.removeprefix("file://")) / only_slice(table).logs[0].key
    body = path.read_bytes()
    path.unlink()
    with pytest.raises(DataCorrupt, match="it does not exist"):
        service.execute(planned)
    path.write_bytes(body)
    with pytest.raises(Conflict):
        service.execute(planned)
    assert len(table.log_compact().executed) == 1


def test_table_with_a_custom_merger_is_refused(tmp_path: Path) -> None:
    class Latest:
        columns = ()

        def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
            return newer

    with (
        Table.create(
            str(tmp_path / "t"),
            SCHEMA,
            key="id",
            type="MERGE_ON_READ",
            options={**OPTIONS, "hoodie.record.merge.mode": "CUSTOM"},
        ) as table,
        pytest.raises(Unsupported, match="custom record merger"),
    ):
        table.log_compact()


def test_logs_are_merged_after_a_write_when_due(tmp_path: Path) -> None:
    more = {
        "hoodie.log.compaction.inline": "true",
        "hoodie.log.compaction.blocks.threshold": "4",
    }
    with create_table(tmp_path / "t", **more) as table:
        table.refresh()
        files = table._snapshot.timeline.files
        done = [i for i in files if i.action is Action.LOG_COMPACTION and not i.is_completed]
        assert done
        assert commits_since_log_merge(files) < 4
