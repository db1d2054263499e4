"""Plans that lie on the timeline and not in the ledger, as Java's do: taken over, or refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.tableservice.layered import QUIET, content, layered, rows
from tidelock.base.errors import Conflict, DataCorrupt, WriteConflict
from tidelock.ops.validate.ledger import check_ledger
from tidelock.ops.validate.validating import validate
from tidelock.store.contract import Create
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Action, format_time, parse_time
from tidelock.table.timeline.metadata import CompactionPlan, OperationType, TimelineRecord
from tidelock.tableservice.adopting import adopted
from tidelock.tableservice.cancelling import cancel
from tidelock.tableservice.clustering.execute import Clustering
from tidelock.tableservice.clustering.plan import Sizes
from tidelock.tableservice.compaction.execute import Compaction
from tidelock.tableservice.compaction.plan import Choice
from tidelock.tableservice.guard import claimed
from tidelock.tableservice.overview import PendingService, pending_services
from tidelock.tableservice.rollback.execute import Rollback
from tidelock.tableservice.table import Table

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
    """Put a plan on the timeline as a writer without a ledger does; return its instant."""
    writer = table.writer()
    now_ms = writer.transactions.clock.now().wall_epoch_ms
    last = parse_time(writer.transactions.ledger.refresh().time)
    instant = format_time(max(now_ms, last + 1))
    key = f".hoodie/timeline/{instant}.{action}.{state}"
    writer.store.put(key, encode(record), Create())
    return instant


def compaction(table: Table) -> str:
    plan = Compaction(table.writer()).plan(Choice())
    assert plan is not None
    return put(table, Action.COMPACTION, plan)


def clustering(table: Table) -> str:
    service = Clustering(table.writer())
    sizes = Sizes()
    request = service._request(service.plan(sizes), sizes, ())
    return put(table, Action.CLUSTERING, request)


def shown(table: Table) -> PendingService:
    (found,) = pending_services(table.writer().store)
    return found


def whole(table: Table, before: list[object]) -> None:
    """Nothing is pending, nothing is lost, nothing is wrong."""
    assert content(table) == before
    assert table.writer().transactions.ledger.refresh().plans == {}
    assert load_timeline(table.writer().store).pending() == ()
    assert validate(table.writer().store, more=[check_ledger]).problems == ()


def test_a_compaction_of_others_is_executed(table: Table) -> None:
    before = content(table)
    planned = compaction(table)
    assert (shown(table).scheduled_by, shown(table).ours) == ("a writer without a ledger", False)
    assert "take it over" in shown(table).next_step
    (done,) = table.compact().executed
    assert (done.instant, done.files_written) == (planned, 1)
    whole(table, before)
    assert all(not piece.logs for piece in table.files())


def test_log_files_that_came_after_the_plan_stay_on_top(table: Table) -> None:
    planned = compaction(table)
    table.upsert(rows(2, ts=3))
    before = content(table)
    assert Compaction(table.writer()).execute(planned).files_written == 1
    whole(table, before)
    assert sum(len(piece.logs) for piece in table.files()) == 1


def test_a_clustering_of_others_is_executed(table: Table) -> None:
    before = content(table)
    planned = clustering(table)
    assert [each.instant for each in table.cluster().executed] == [planned]
    whole(table, before)
    assert len(table.files()) == 1


def test_where_no_java_writer_is_announced_such_a_plan_is_left(table: Table) -> None:
    planned = compaction(table)
    with Table.open(table.uri, options=QUIET) as alone:
        assert alone.compact().executed == ()
        with pytest.raises(Conflict, match="keeps no ledger") as refused:
            Compaction(alone.writer()).execute(planned)
    assert "tidelock.write.mixed" in str(refused.value.hint)
    assert table.writer().transactions.ledger.refresh().plans == {}


def test_a_plan_whose_base_file_was_written_anew_is_refused_and_can_be_freed(table: Table) -> None:
    planned = compaction(table)
    plan = load_timeline(table.writer().store).compaction_plan(
        load_timeline(table.writer().store).pending()[0]
    )
    cancel(table.writer(), planned, force=True)
    table.compact()
    table.upsert(rows(1, ts=3))
    before = content(table)
    late = put(table, Action.COMPACTION, plan)
    with pytest.raises(Conflict, match="base file is another one"):
        Compaction(table.writer()).execute(late)
    assert [left.instant for left in table.compact().left] == [late]
    cancel(table.writer(), late, force=True)
    whole(table, before)


def test_a_plan_that_misses_a_log_file_is_refused(table: Table) -> None:
    plan = Compaction(table.writer()).plan(Choice())
    assert plan is not None
    table.upsert(rows(1, ts=3))
    planned = put(table, Action.COMPACTION, plan)
    with pytest.raises(Conflict, match="log files are not those"):
        Compaction(table.writer()).execute(planned)


def test_a_clustering_that_a_writer_overtook_is_refused(table: Table) -> None:
    planned = clustering(table)
    table.upsert(rows(2, ts=3))
    with pytest.raises(Conflict, match="log files are not those"):
        Clustering(table.writer()).execute(planned)


def test_a_writer_that_comes_while_an_adopted_clustering_runs_undoes_it(table: Table) -> None:
    planned = clustering(table)
    adopted(table.writer(), planned, Action.CLUSTERING)
    table.upsert(rows(2, ts=3))
    before = content(table)
    with pytest.raises(WriteConflict):
        Clustering(table.writer()).execute(planned)
    whole(table, before)


def test_a_file_group_of_such_a_plan_is_in_no_other(table: Table) -> None:
    planned = compaction(table)
    assert Compaction(table.writer()).plan(Choice()) is None
    adopted(table.writer(), planned, Action.COMPACTION)
    assert Compaction(table.writer()).plan(Choice()) is None
    assert shown(table).groups


def test_a_live_heartbeat_of_java_is_respected_and_a_dead_one_is_not(table: Table) -> None:
    before = content(table)
    planned = compaction(table)
    beat = Path(table.uri.removeprefix("file://")) / f".hoodie/.heartbeat/{planned}"
    table.writer().store.put(f".hoodie/.heartbeat/{planned}", b"", Create())
    with pytest.raises(Conflict, match="executed by another writer"):
        Compaction(table.writer()).execute(planned)
    assert table.writer().transactions.ledger.refresh().plans == {}
    os.utime(beat, (1, 1))
    assert Compaction(table.writer()).execute(planned).files_written
    whole(table, before)


def test_two_processes_execute_a_plan_of_others_once(table: Table) -> None:
    before = content(table)
    planned = compaction(table)
    with Table.open(table.uri, options=MIXED) as other:
        adopted(other.writer(), planned, Action.COMPACTION)
        adopted(table.writer(), planned, Action.COMPACTION)
        with claimed(other.writer().transactions, planned, OperationType.COMPACT):
            with pytest.raises(Conflict, match="executed by"):
                Compaction(table.writer()).execute(planned)
            assert shown(table).next_step == "is being executed"
            assert shown(table).scheduled_by == "a writer without a ledger"
        assert Compaction(table.writer()).execute(planned).files_written
    whole(table, before)


@pytest.mark.parametrize("begun", [False, True])
def test_an_adopted_plan_is_cancelled(table: Table, *, begun: bool) -> None:
    before = content(table)
    planned = compaction(table)
    adopted(table.writer(), planned, Action.COMPACTION)
    if begun:
        with claimed(table.writer().transactions, planned, OperationType.COMPACT):
            pass
    with pytest.raises(Conflict, match="can be executed"):
        cancel(table.writer(), planned)
    assert cancel(table.writer(), planned, force=True).action == "compaction"
    whole(table, before)
    assert table.compact().executed
    whole(table, before)


def test_a_plan_that_others_began_just_now_is_not_cancelled(table: Table) -> None:
    planned = clustering(table)
    inflight = f".hoodie/timeline/{planned}.clustering.inflight"
    table.writer().store.put(inflight, b"", Create())
    with pytest.raises(Conflict, match="alive"):
        cancel(table.writer(), planned)
    os.utime(Path(table.uri.removeprefix("file://")) / inflight, (1, 1))
    assert cancel(table.writer(), planned).instant == planned
    assert load_timeline(table.writer().store).pending() == ()


def test_an_adopted_clustering_is_rolled_back(table: Table) -> None:
    before = content(table)
    planned = clustering(table)
    adopted(table.writer(), planned, Action.CLUSTERING)
    service = Rollback(table.writer())
    assert [gone.instant for gone in service.execute(service.schedule(planned)).undone] == [planned]
    whole(table, before)


def test_a_plan_that_cannot_be_read_is_not_adopted(table: Table) -> None:
    planned = put(table, Action.COMPACTION, CompactionPlan())
    path = Path(table.uri.removeprefix("file://"))
    (path / f".hoodie/timeline/{planned}.compaction.requested").write_bytes(b"Obj")
    with pytest.raises(DataCorrupt):
        table.compact()
    assert cancel(table.writer(), planned).fault
