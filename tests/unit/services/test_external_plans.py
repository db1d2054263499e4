"""Plans on the timeline that are not in the ledger, such as Java's: imported, or refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.services.merge_on_read import QUIET, content, layered, rows
from tidelock.core.errors import Conflict, DataCorrupt, WriteConflict
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.instant import Action, format_time, parse_time
from tidelock.hudi.timeline.metadata import CompactionPlan, OperationType, TimelineRecord, encode
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_ledger import check_ledger
from tidelock.services.clustering import Clustering, ClusteringRule
from tidelock.services.compaction import Compaction, CompactionRule
from tidelock.services.pending import PendingService, cancel, pending_services
from tidelock.services.plans import claimed, import_external_plan
from tidelock.services.rollback import RollbackService
from tidelock.storage.contract import Create
from tidelock.table import Table

MIXED = {
    **QUIET,
    "tidelock.write.mixed": "true",
    "hoodie.time.generator.max_expected_clock_skew_ms": "1",
}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with layered(tmp_path / "t", MIXED) as made:
        yield made


def put(table: Table, action: Action, record: TimelineRecord, state: str = "requested") -> str:
    """Write a plan to the timeline as an external writer does; return its instant."""
    writer = table.writer()
    now_ms = writer.transactions.clock.now().wall_epoch_ms
    last = parse_time(writer.transactions.ledger.refresh().time)
    instant = format_time(max(now_ms, last + 1))
    key = f".hoodie/timeline/{instant}.{action}.{state}"
    writer.store.put(key, encode(record), Create())
    return instant


def compaction(table: Table) -> str:
    plan = Compaction(table.writer()).plan(CompactionRule())
    assert plan is not None
    return put(table, Action.COMPACTION, plan)


def clustering(table: Table) -> str:
    service = Clustering(table.writer())
    sizes = ClusteringRule()
    request = service._request(service.plan(sizes), sizes, ())
    return put(table, Action.CLUSTERING, request)


def shown(table: Table) -> PendingService:
    (found,) = pending_services(table.writer().store)
    return found


def check_table(table: Table, before: list[object]) -> None:
    """Check that nothing is pending, lost or invalid."""
    assert content(table) == before
    assert table.writer().transactions.ledger.refresh().plans == {}
    assert load_timeline(table.writer().store).pending() == ()
    assert validate(table.writer().store, more=[check_ledger]).problems == ()


def test_external_compaction_is_executed(table: Table) -> None:
    before = content(table)
    planned = compaction(table)
    assert (shown(table).scheduled_by, shown(table).ours) == ("an external writer", False)
    assert "can be taken over" in shown(table).next_step
    (done,) = table.compact().executed
    assert (done.instant, done.files_written) == (planned, 1)
    check_table(table, before)
    assert all(not piece.logs for piece in table.files())


def test_log_files_written_after_the_plan_stay_on_top(table: Table) -> None:
    planned = compaction(table)
    table.upsert(rows(2, ts=3))
    before = content(table)
    assert Compaction(table.writer()).execute(planned).files_written == 1
    check_table(table, before)
    assert sum(len(piece.logs) for piece in table.files()) == 1


def test_external_clustering_is_executed(table: Table) -> None:
    before = content(table)
    planned = clustering(table)
    assert [each.instant for each in table.cluster().executed] == [planned]
    check_table(table, before)
    assert len(table.files()) == 1


def test_external_plan_is_skipped_where_no_java_writer_is_configured(table: Table) -> None:
    planned = compaction(table)
    with Table.open(table.uri, options=QUIET) as alone:
        assert alone.compact().executed == ()
        with pytest.raises(Conflict, match="an external writer") as refused:
            Compaction(alone.writer()).execute(planned)
    assert "tidelock.write.mixed" in str(refused.value.hint)
    assert table.writer().transactions.ledger.refresh().plans == {}


def test_plan_whose_base_file_was_rewritten_is_refused_and_can_be_cancelled(table: Table) -> None:
    planned = compaction(table)
    plan = load_timeline(table.writer().store).compaction_plan(
        load_timeline(table.writer().store).pending()[0]
    )
    cancel(table.writer(), planned, force=True)
    table.compact()
    table.upsert(rows(1, ts=3))
    before = content(table)
    late = put(table, Action.COMPACTION, plan)
    with pytest.raises(Conflict, match="its base file has changed"):
        Compaction(table.writer()).execute(late)
    assert [skipped.instant for skipped in table.compact().skipped] == [late]
    cancel(table.writer(), late, force=True)
    check_table(table, before)


def test_plan_that_misses_a_log_file_is_refused(table: Table) -> None:
    plan = Compaction(table.writer()).plan(CompactionRule())
    assert plan is not None
    table.upsert(rows(1, ts=3))
    planned = put(table, Action.COMPACTION, plan)
    with pytest.raises(Conflict, match="log files differ from those"):
        Compaction(table.writer()).execute(planned)


def test_clustering_that_conflicts_with_a_writer_is_refused(table: Table) -> None:
    planned = clustering(table)
    table.upsert(rows(2, ts=3))
    with pytest.raises(Conflict, match="log files differ from those"):
        Clustering(table.writer()).execute(planned)


def test_writer_that_commits_during_an_imported_clustering_rolls_it_back(table: Table) -> None:
    planned = clustering(table)
    import_external_plan(table.writer(), planned, Action.CLUSTERING)
    table.upsert(rows(2, ts=3))
    before = content(table)
    with pytest.raises(WriteConflict):
        Clustering(table.writer()).execute(planned)
    check_table(table, before)


def test_file_group_of_an_external_plan_is_in_no_other_plan(table: Table) -> None:
    planned = compaction(table)
    assert Compaction(table.writer()).plan(CompactionRule()) is None
    import_external_plan(table.writer(), planned, Action.COMPACTION)
    assert Compaction(table.writer()).plan(CompactionRule()) is None
    assert shown(table).groups


def test_live_java_heartbeat_is_respected_and_an_expired_one_is_not(table: Table) -> None:
    before = content(table)
    planned = compaction(table)
    beat = Path(table.uri.removeprefix("file://")) / f".hoodie/.heartbeat/{planned}"
    table.writer().store.put(f".hoodie/.heartbeat/{planned}", b"", Create())
    with pytest.raises(Conflict, match="another writer is executing it"):
        Compaction(table.writer()).execute(planned)
    assert table.writer().transactions.ledger.refresh().plans == {}
    os.utime(beat, (1, 1))
    assert Compaction(table.writer()).execute(planned).files_written
    check_table(table, before)


def test_two_processes_execute_an_external_plan_once(table: Table) -> None:
    before = content(table)
    planned = compaction(table)
    with Table.open(table.uri, options=MIXED) as other:
        import_external_plan(other.writer(), planned, Action.COMPACTION)
        import_external_plan(table.writer(), planned, Action.COMPACTION)
        with claimed(other.writer().transactions, planned, OperationType.COMPACT):
            with pytest.raises(Conflict, match="executing it"):
                Compaction(table.writer()).execute(planned)
            assert shown(table).next_step == "is being executed"
            assert shown(table).scheduled_by == "an external writer"
        assert Compaction(table.writer()).execute(planned).files_written
    check_table(table, before)


@pytest.mark.parametrize("begun", [False, True])
def test_imported_plan_is_cancelled(table: Table, *, begun: bool) -> None:
    before = content(table)
    planned = compaction(table)
    import_external_plan(table.writer(), planned, Action.COMPACTION)
    if begun:
        with claimed(table.writer().transactions, planned, OperationType.COMPACT):
            pass
    with pytest.raises(Conflict, match="can be executed"):
        cancel(table.writer(), planned)
    assert cancel(table.writer(), planned, force=True).action == "compaction"
    check_table(table, before)
    assert table.compact().executed
    check_table(table, before)


def test_recently_started_external_plan_is_not_cancelled(table: Table) -> None:
    planned = clustering(table)
    inflight = f".hoodie/timeline/{planned}.clustering.inflight"
    table.writer().store.put(inflight, b"", Create())
    with pytest.raises(Conflict, match="alive"):
        cancel(table.writer(), planned)
    os.utime(Path(table.uri.removeprefix("file://")) / inflight, (1, 1))
    assert cancel(table.writer(), planned).instant == planned
    assert load_timeline(table.writer().store).pending() == ()


def test_imported_clustering_is_rolled_back(table: Table) -> None:
    before = content(table)
    planned = clustering(table)
    import_external_plan(table.writer(), planned, Action.CLUSTERING)
    service = RollbackService(table.writer())
    assert [gone.instant for gone in service.execute(service.schedule(planned)).rolled_back] == [
        planned
    ]
    check_table(table, before)


def test_unreadable_plan_is_not_imported(table: Table) -> None:
    planned = put(table, Action.COMPACTION, CompactionPlan())
    path = Path(table.uri.removeprefix("file://"))
    (path / f".hoodie/timeline/{planned}.compaction.requested").write_bytes(b"Obj")
    with pytest.raises(DataCorrupt):
        table.compact()
    assert cancel(table.writer(), planned).fault
