"""Broken or blocking plans can be cancelled, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.services.merge_on_read import QUIET, content, layered, rows
from tidelock.core.errors import Conflict, DataCorrupt, NotFound
from tidelock.hudi.timeline.active import ActiveTimeline, load_timeline
from tidelock.hudi.timeline.instant import Instant
from tidelock.hudi.timeline.metadata import OperationType, RequestedReplaceMetadata
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_ledger import check_ledger
from tidelock.operations.write import TableWriter
from tidelock.services.clean import Clean, Retention
from tidelock.services.clustering import Clustering, ClusteringRule
from tidelock.services.compaction import Compaction, CompactionRule
from tidelock.services.log_compaction import LogCompaction
from tidelock.services.pending import cancel
from tidelock.services.plans import claimed
from tidelock.storage.contract import Create
from tidelock.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with layered(tmp_path / "t", QUIET) as made:
        yield made


def compaction(table: Table) -> str:
    planned = Compaction(table.writer()).schedule(CompactionRule())
    assert planned is not None
    return planned


def plan_file(table: Table, instant: str, action: str) -> Path:
    folder = Path(table.uri.removeprefix("file://"))
    return folder / f".hoodie/timeline/{instant}.{action}.requested"


def freed(table: Table, before: list[object]) -> None:
    """Check that the file groups can be compacted again, and that nothing is left of the plan."""
    assert content(table) == before
    assert table.writer().transactions.ledger.refresh().plans == {}
    assert load_timeline(table.writer().store).pending() == ()
    (done,) = table.compact().executed
    assert done.files_written
    assert content(table) == before
    assert validate(table.writer().store, more=[check_ledger]).findings == ()


@pytest.mark.parametrize("left", [0, 40])
def test_empty_or_truncated_plan_is_cancelled(table: Table, left: int) -> None:
    before = content(table)
    planned = compaction(table)
    path = plan_file(table, planned, "compaction")
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(DataCorrupt):
        Compaction(table.writer()).execute(planned)
    assert cancel(table.writer(), planned).fault
    freed(table, before)


def test_missing_plan_is_cancelled(table: Table) -> None:
    before = content(table)
    planned = compaction(table)
    plan_file(table, planned, "compaction").unlink()
    assert "missing" in cancel(table.writer(), planned).fault
    freed(table, before)


def test_plan_with_missing_files_is_cancelled(table: Table) -> None:
    planned = compaction(table)
    (log,) = (log for piece in table.files() for log in piece.logs)
    store = table.writer().store
    body = store.get(log.key)
    assert body is not None
    store.delete(log.key)
    assert log.name in cancel(table.writer(), planned).fault
    store.put(log.key, body.body, Create())
    freed(table, content(table))


def test_executable_plan_is_cancelled_only_by_force(table: Table) -> None:
    before = content(table)
    planned = compaction(table)
    with pytest.raises(Conflict, match="can be executed"):
        cancel(table.writer(), planned)
    assert cancel(table.writer(), planned, force=True).fault == ""
    freed(table, before)


def test_removable_plan_is_cancelled_at_once(table: Table) -> None:
    before = content(table)
    planned = Clustering(table.writer()).schedule(ClusteringRule())
    assert planned is not None
    assert cancel(table.writer(), planned).action == "clustering"
    freed(table, before)


def test_clean_is_cancelled_and_rescheduled(table: Table) -> None:
    table.compact()
    table.upsert(rows(1, ts=3))
    before = content(table)
    planned = Clean(table.writer()).schedule(Retention(commits=1))
    assert planned is not None
    assert cancel(table.writer(), planned, force=True).action == "clean"
    assert (table.clean().executed) == ()
    freed(table, before)


def test_plan_that_is_being_executed_is_not_cancelled(table: Table) -> None:
    planned = compaction(table)
    with Table.open(table.uri, options=QUIET) as other:
        folder = other.writer().transactions
        with claimed(folder, planned, OperationType.COMPACT):
            with pytest.raises(Conflict, match="executing it"):
                cancel(table.writer(), planned, force=True)
            assert planned in folder.ledger.refresh().plans


def test_java_plan_is_cancelled_by_force_unless_its_heartbeat_is_alive(table: Table) -> None:
    planned = "20200101000000000"
    store = table.writer().store
    store.put(f".hoodie/timeline/{planned}.compaction.requested", b"Obj", Create())
    store.put(f".hoodie/.heartbeat/{planned}", b"", Create())
    with pytest.raises(Conflict, match="alive"):
        cancel(table.writer(), planned)
    beat = Path(table.uri.removeprefix("file://")) / f".hoodie/.heartbeat/{planned}"
    os.utime(beat, (1, 1))
    assert cancel(table.writer(), planned).fault
    freed(table, content(table))


def test_unknown_instant_is_not_found(table: Table) -> None:
    with pytest.raises(NotFound):
        cancel(table.writer(), "20200101000000000")


def test_live_java_heartbeat_is_respected_by_executors(table: Table) -> None:
    planned = compaction(table)
    table.writer().store.put(f".hoodie/.heartbeat/{planned}", b"", Create())
    with pytest.raises(Conflict, match="executing it"):
        Compaction(table.writer()).execute(planned)


def test_without_the_heartbeat_guard_a_plan_is_claimed_at_once(table: Table) -> None:
    planned = compaction(table)
    before = content(table)
    table.writer().store.put(f".hoodie/.heartbeat/{planned}", b"", Create())
    with Table.open(table.uri, options={**QUIET, "tidelock.table.services.guard": "false"}) as bold:
        assert Compaction(bold.writer()).execute(planned).files_written
    assert content(table) == before


SCHEDULE: dict[str, Callable[[TableWriter], str | None]] = {
    "clean": lambda writer: Clean(writer).schedule(Retention(commits=1)),
    "cluster": lambda writer: Clustering(writer).schedule(ClusteringRule()),
    "compact": lambda writer: Compaction(writer).schedule(CompactionRule()),
    "log-compact": lambda writer: LogCompaction(writer).schedule(1),
}


@pytest.mark.parametrize("service", SCHEDULE)
def test_plan_cancelled_while_another_service_reads_it_does_not_stop_that_service(
    table: Table, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.compact()
    table.upsert(rows(1, ts=3))
    other = Table.open(table.uri)
    planned = Clustering(other.writer()).schedule(ClusteringRule())
    assert planned is not None
    load = ActiveTimeline.replace_request

    def cancelled_first(timeline: ActiveTimeline, instant: Instant) -> RequestedReplaceMetadata:
        monkeypatch.setattr(ActiveTimeline, "replace_request", load)
        cancel(other.writer(), planned)
        return load(timeline, instant)

    monkeypatch.setattr(ActiveTimeline, "replace_request", cancelled_first)
    SCHEDULE[service](table.writer())
    assert planned not in table.writer().transactions.ledger.refresh().plans
