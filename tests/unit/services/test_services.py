"""Compaction, clean and archive on real tables in memory and on disk: rows are unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tidelock.core.errors import Conflict, DataCorrupt, NotFound
from tidelock.execution.engine import PreparedRows, TaggedRows, TagRule
from tidelock.execution.local.write import LocalWriter
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.services.clean import Clean, Retention
from tidelock.services.compaction import Compaction, CompactionRule
from tidelock.services.plans import claimed
from tidelock.services.runner import ServiceRun, Skipped
from tidelock.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def rows(*values: tuple[int, str, int]) -> pa.Table:
    return pa.table(list(zip(*values, strict=True)), schema=SCHEMA)


def content(table: Table) -> list[dict[str, object]]:
    found: list[dict[str, object]] = table.read().sort_by("id").to_pylist()
    return found


@pytest.fixture
def mor(tmp_path: Path) -> Iterator[Table]:
    with Table.create(
        str(tmp_path / "t"), SCHEMA, key="id", ordering="ts", type="MERGE_ON_READ", options=QUIET
    ) as table:
        table.insert(rows((1, "a", 1), (2, "b", 1), (3, "c", 1)))
        table.upsert(rows((1, "a2", 2)))
        table.delete([3])
        yield table


def logs(table: Table) -> int:
    return sum(len(piece.logs) for piece in table.files())


def test_compaction_merges_logs_and_keeps_the_rows(mor: Table) -> None:
    before = content(mor)
    assert logs(mor) == 2
    (done,) = mor.compact().executed
    assert done.files_written == 1
    assert logs(mor) == 0
    assert content(mor) == before
    assert mor.compact() == ServiceRun()


def test_deprecated_name_of_skipped_plans_works_and_warns() -> None:
    run = ServiceRun(skipped=(Skipped("1", "another process executes it"),))
    with pytest.warns(DeprecationWarning, match="use 'skipped'"):
        assert run.left == run.skipped


def test_rows_keep_their_commit(mor: Table) -> None:
    before = mor.read(["id", "_hoodie_commit_time"]).sort_by("id")
    mor.compact()
    assert mor.read(["id", "_hoodie_commit_time"]).sort_by("id") == before


def test_incremental_read_returns_nothing_from_a_compaction(mor: Table) -> None:
    since = mor.latest_completion
    assert since is not None
    mor.compact()
    assert mor.changes(since).num_rows == 0


def test_writes_between_plan_and_execution_stay_on_top(mor: Table) -> None:
    service = Compaction(mor.writer())
    planned = service.schedule(CompactionRule())
    assert planned is not None
    mor.upsert(rows((2, "between", 9), (4, "new", 9)))
    service.execute(planned)
    mor.refresh()
    assert [(r["id"], r["v"]) for r in content(mor)] == [(1, "a2"), (2, "between"), (4, "new")]
    mor.upsert(rows((1, "after", 10)))
    assert content(mor)[0]["v"] == "after"


def test_file_group_is_in_one_plan_at_a_time(mor: Table) -> None:
    service = Compaction(mor.writer())
    assert service.schedule(CompactionRule()) is not None
    mor.upsert(rows((1, "more", 5)))
    assert service.schedule(CompactionRule()) is None


def test_plan_is_executed_by_one_process_at_a_time(mor: Table) -> None:
    service = Compaction(mor.writer())
    planned = service.schedule(CompactionRule())
    assert planned is not None
    with Table.open(mor.uri, options=QUIET) as other:
        mine = claimed(mor.writer().transactions, planned, OperationType.COMPACT)
        with mine, pytest.raises(Conflict, match="executing it"):
            Compaction(other.writer()).execute(planned)
        # An uncommitted plan is released, so another process may claim it.
        assert Compaction(other.writer()).execute(planned).files_written == 1
        with pytest.raises(Conflict, match="not pending"):
            service.execute(planned)


def test_plan_with_a_missing_file_is_reported(mor: Table) -> None:
    service = Compaction(mor.writer())
    planned = service.schedule(CompactionRule())
    assert planned is not None
    log = mor.files()[0].logs[0]
    Path(mor.uri.removeprefix("file://"), log.key).unlink()
    with pytest.raises(
        DataCorrupt, match="the compaction plan reads this file, and it does not exist"
    ):
        service.execute(planned)
    assert service.pending() == (planned,)


def test_clean_removes_files_needed_only_by_old_readers(tmp_path: Path) -> None:
    options = {**QUIET, "hoodie.clean.commits.retained": "2"}
    with Table.create(str(tmp_path / "t"), SCHEMA, key="id", options=options) as table:
        reports = [table.upsert(rows((1, f"v{n}", n))) for n in range(6)]
        assert len(list((tmp_path / "t").glob("*.parquet"))) == 6
        table.clean()
        kept = [path.name for path in (tmp_path / "t").glob("*.parquet")]
        assert sorted(name.rpartition("_")[2].partition(".")[0] for name in kept) == [
            report.instant for report in reports[-2:]
        ]
        assert content(table) == [{"id": 1, "v": "v5", "ts": 5}]
        assert table.read(as_of=reports[4].instant).to_pylist()[0]["v"] == "v4"
        assert table.clean() == ServiceRun()


def test_clean_keeps_files_read_by_a_pending_compaction(mor: Table) -> None:
    planned = Compaction(mor.writer()).schedule(CompactionRule())
    assert planned is not None
    for number in range(4):
        mor.upsert(rows((1, f"x{number}", 10 + number)))
    clean = Clean(mor.writer())
    assert clean.plan(Retention(commits=1)) is None
    Compaction(mor.writer()).execute(planned)
    assert clean.plan(Retention(commits=1)) is not None


def test_archived_instants_stay_in_the_history(tmp_path: Path) -> None:
    options = {
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.clean.commits.retained": "2",
        "hoodie.keep.min.commits": "4",
        "hoodie.keep.max.commits": "6",
    }
    with Table.create(str(tmp_path / "t"), SCHEMA, key="id", options=options) as table:
        first = table.insert(rows((1, "one", 1)))
        for number in range(2, 10):
            table.upsert(rows((number, "more", number)))
        before = content(table)
        moved = table.archive()
        assert moved.instants > 0
        writes = [i for i in table.timeline if i.action is Action.COMMIT]
        assert len(writes) == 4
        assert content(table) == before
        assert first.instant in [entry.requested for entry in table.history()]
        assert table.archive().instants == 0
    with Table.open(str(tmp_path / "t"), options=options) as again:
        assert content(again) == before
        again.upsert(rows((1, "uno", 2)))
        assert content(again)[0]["v"] == "uno"


def test_pending_instants_are_not_archived(tmp_path: Path) -> None:
    options = {**QUIET, "hoodie.clean.commits.retained": "1"}
    options |= {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"}
    with (
        Table.create(str(tmp_path / "t"), SCHEMA, key="id", options=options) as table,
        Table.open(str(tmp_path / "t"), options=options) as slow,
    ):
        table.insert(rows((1, "one", 1)))
        with slow.writer().transactions.begin(Action.COMMIT, OperationType.UPSERT):
            for number in range(2, 8):
                table.upsert(rows((number, "more", number)))
            table.archive()
            writes = [i for i in table.timeline if i.is_completed and i.action.writes_data]
            assert len(writes) >= 6
        assert table.archive().instants > 0


def test_clean_in_progress_is_not_archived(tmp_path: Path) -> None:
    options = {**QUIET, "hoodie.clean.commits.retained": "1"}
    options |= {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"}
    with Table.create(str(tmp_path / "t"), SCHEMA, key="id", options=options) as table:
        for number in range(4):
            table.upsert(rows((1, f"v{number}", number)))
        clean = Clean(table.writer())
        planned = clean.schedule(Retention(commits=1))
        assert planned is not None
        for number in range(4, 10):
            table.upsert(rows((1, f"v{number}", number)))
        table.archive()
        assert clean.execute(planned).instant == planned
        assert table.archive().instants > 0
        assert content(table)[0]["v"] == "v9"


def test_leftovers_of_a_dead_write_are_deleted_before_it_is_archived(tmp_path: Path) -> None:
    options = {**QUIET, "hoodie.clean.commits.retained": "1"}
    options |= {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"}
    with Table.create(str(tmp_path / "t"), SCHEMA, key="id", options=options) as table:
        table.insert(rows((1, "one", 1)))
        with table.writer().transactions.begin(Action.COMMIT, OperationType.UPSERT) as given_up:
            pass
        # A task that was suspended during the rollback writes its file afterwards.
        (base,) = (piece.base for piece in table.files())
        assert base is not None
        late = base.name.replace(base.instant, given_up.instant)
        stored = tmp_path / "t" / base.name
        (tmp_path / "t" / late).write_bytes(stored.read_bytes())
        table.refresh()
        assert len(content(table)) == 1
        for number in range(2, 8):
            table.upsert(rows((number, "more", number)))
        assert table.archive().instants > 0
        assert not (tmp_path / "t" / late).exists()
        assert len(content(table)) == 7


def test_inline_services_keep_the_timeline_short(tmp_path: Path) -> None:
    options = {
        "hoodie.clean.commits.retained": "2",
        "hoodie.keep.min.commits": "4",
        "hoodie.keep.max.commits": "6",
        "hoodie.clean.trigger.max.commits": "3",
    }
    with Table.create(str(tmp_path / "t"), SCHEMA, key="id", options=options) as table:
        for number in range(20):
            table.upsert(rows((1, f"v{number}", number)))
        assert len(list((tmp_path / "t").glob("*.parquet"))) <= 6
        writes = [i for i in table.timeline if i.action is Action.COMMIT]
        assert len(writes) <= 9
        assert content(table) == [{"id": 1, "v": "v19", "ts": 19}]


def test_inline_compaction_runs_when_due(tmp_path: Path) -> None:
    options = {**QUIET, "hoodie.compact.inline": "true"}
    options["hoodie.compact.inline.max.delta.commits"] = "3"
    with Table.create(
        str(tmp_path / "t"), SCHEMA, key="id", ordering="ts", type="MERGE_ON_READ", options=options
    ) as table:
        table.insert(rows((1, "a", 1)))
        depth = []
        for number in range(8):
            table.upsert(rows((1, f"v{number}", number + 2)))
            table.refresh()
            depth.append(logs(table))
        assert max(depth) <= 3
        assert 0 in depth
        assert content(table)[0]["v"] == "v7"


def test_no_inline_service_runs_when_services_are_disabled(tmp_path: Path) -> None:
    options = {
        "hoodie.table.services.enabled": "false",
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "1",
        "hoodie.datasource.compaction.async.enable": "true",
        "hoodie.clean.trigger.max.commits": "1",
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
    }
    uri = str(tmp_path / "t")
    with Table.create(uri, SCHEMA, key="id", type="MERGE_ON_READ", options=options) as table:
        for number in range(6):
            table.upsert(rows((1, f"v{number}", number)))
        done = {instant.action for instant in table.timeline if instant.is_completed}
    assert done == {Action.DELTA_COMMIT}


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_writer_whose_files_were_cleaned_retries(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**QUIET, "hoodie.clean.commits.retained": "1"}
    with (
        Table.create(str(tmp_path / "t"), SCHEMA, key="id", type=kind, options=options) as table,
        Table.open(str(tmp_path / "t"), options=options) as slow,
    ):
        table.insert(rows((1, "a", 1), (2, "b", 1)))

        def overtake() -> None:
            for number in range(3):
                table.upsert(rows((1, f"v{number}", number)))
                table.compact()
            assert table.clean().executed

        inner, once = LocalWriter.tag, [overtake]

        def late(self: LocalWriter, prepared: PreparedRows, rule: TagRule) -> TaggedRows:
            if once:
                once.pop()()
            return inner(self, prepared, rule)

        monkeypatch.setattr(LocalWriter, "tag", late)
        assert slow.upsert(rows((2, "late", 9))).rebases == 1
        assert [row["v"] for row in content(slow)] == ["v2", "late"]


def test_missing_file_is_named(tmp_path: Path) -> None:
    with Table.create(str(tmp_path / "t"), SCHEMA, key="id", options=QUIET) as table:
        table.insert(rows((1, "a", 1)))
        for path in (tmp_path / "t").glob("*.parquet"):
            path.unlink()
        with pytest.raises(NotFound, match="parquet"):
            table.upsert(rows((1, "b", 2)))
