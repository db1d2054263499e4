"""Rollback, savepoint and restore on real tables: the earlier rows are back, or nothing happens."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock as tl
from tests.unit.operations.external import path_of, without_ledger
from tests.unit.txn.bench import draft
from tidelock.core.errors import Conflict, NotFound, WriteConflict
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import (
    OperationType,
    RestorePlan,
    RollbackMetadata,
    RollbackPlan,
    SavepointMetadata,
    decode,
    encode,
)
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_ledger import check_ledger
from tidelock.services.clean import Clean, Retention
from tidelock.services.compaction import Compaction, CompactionRule
from tidelock.services.restore import Restore
from tidelock.services.rollback import RollbackService
from tidelock.services.savepoint import Savepoints
from tidelock.storage.contract import Create
from tidelock.storage.local import LocalStore
from tidelock.table import Table
from tidelock.txn.conflicts import Conflicted
from tidelock.txn.rollback import rollback_plan

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])
QUIET = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
}
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
LONG_AGO_S = 1


def rows(*values: tuple[int, str, int]) -> pa.Table:
    return pa.table(list(zip(*values, strict=True)), schema=SCHEMA)


def content(table: Table) -> list[dict[str, Any]]:
    table.refresh()
    found: list[dict[str, Any]] = table.read(meta_columns=True).sort_by("id").to_pylist()
    return found


def last(table: Table) -> str:
    table.refresh()
    done = [i for i in table.timeline if i.is_completed and i.action.writes_data]
    return max(done, key=lambda each: each.completion).requested


def is_valid(table: Table) -> bool:
    store = LocalStore(Path(table.uri.removeprefix("file://")))
    return validate(store, more=[check_ledger]).findings == ()


@pytest.fixture(params=TYPES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    with Table.create(
        str(tmp_path / "t"), SCHEMA, key="id", ordering="ts", type=request.param, options=QUIET
    ) as made:
        made.insert(rows((1, "a", 1), (2, "b", 1), (3, "c", 1)))
        made.upsert(rows((1, "a2", 2)))
        yield made


def another(table: Table) -> Table:
    return Table.open(table.uri, options=QUIET)


# -- rollback ----------------------------------------------------------------------------------


def test_last_commit_is_rolled_back_with_its_rows(table: Table) -> None:
    before = content(table)
    table.upsert(rows((1, "a3", 3), (9, "z", 1)))
    gone = last(table)
    (done,) = table.rollback(gone)
    assert content(table) == before
    assert [each.instant for each in done.rolled_back] == [gone]
    timeline = load_timeline(table.writer().store)
    (shown,) = timeline.completed(Action.ROLLBACK)
    metadata = timeline.read(RollbackMetadata, shown)
    assert metadata.commits_rollback == (gone,)
    assert metadata.total_files_deleted == len(done.rolled_back[0].files) > 0
    table.upsert(rows((2, "b2", 2)))
    assert is_valid(table)


def test_schema_introduced_by_a_commit_is_rolled_back_with_it(table: Table) -> None:
    wider = pa.table(
        {"id": [5], "v": ["e"], "ts": [1], "more": ["x"]},
        schema=SCHEMA.append(pa.field("more", pa.string())),
    )
    schema = table.writer().transactions.ledger.refresh().schema_id
    table.upsert(wider)
    assert table.writer().transactions.ledger.refresh().schema_id != schema
    table.rollback(last(table))
    assert table.writer().transactions.ledger.refresh().schema_id == schema
    table.upsert(rows((6, "f", 1)))
    assert "more" not in table.read().column_names


def test_commit_followed_by_others_is_not_rolled_back(table: Table) -> None:
    first = last(table)
    table.upsert(rows((2, "b2", 2)))
    before = content(table)
    with pytest.raises(Conflict, match="completed after"):
        table.rollback(first)
    assert content(table) == before


def test_commit_whose_previous_files_were_cleaned_is_not_rolled_back(table: Table) -> None:
    table.compact()
    table.upsert(rows((1, "a3", 3)))
    table.compact()
    service = Clean(table.writer())
    planned = service.schedule(Retention(commits=1))
    assert planned is not None
    service.execute(planned)
    before = content(table)
    with pytest.raises(Conflict, match="a clean has deleted"):
        table.rollback(last(table))
    assert content(table) == before


def test_commit_read_by_a_pending_plan_is_not_rolled_back(tmp_path: Path) -> None:
    with Table.create(
        str(tmp_path / "m"), SCHEMA, key="id", ordering="ts", type=TYPES[1], options=QUIET
    ) as table:
        table.insert(rows((1, "a", 1)))
        table.upsert(rows((1, "a2", 2)))
        assert Compaction(table.writer()).schedule(CompactionRule()) is not None
        with pytest.raises(Conflict, match="planned on top"):
            table.rollback(last(table))


@pytest.fixture
def planned(tmp_path: Path) -> Iterator[Table]:
    """A table with a scheduled compaction."""
    with Table.create(
        str(tmp_path / "m"), SCHEMA, key="id", ordering="ts", type=TYPES[1], options=QUIET
    ) as table:
        table.insert(rows((1, "a", 1)))
        table.upsert(rows((1, "a2", 2)))
        assert Compaction(table.writer()).schedule(CompactionRule()) is not None
        yield table


def test_plan_scheduled_before_a_rolled_back_commit_is_executed(planned: Table) -> None:
    planned.upsert(rows((1, "a3", 3)))
    planned.rollback(last(planned))
    (done,) = planned.compact().executed
    assert done.files_written == 1
    assert [row["v"] for row in content(planned)] == ["a2"]
    assert is_valid(planned)


def test_plan_that_conflicts_with_a_java_restore_is_rolled_back_and_rescheduled(
    planned: Table,
) -> None:
    """The ledger does not contain what Java rolled back, so the plan could never be executed."""

    def restore(table: tl.Table) -> None:
        writes = [i for i in table.timeline if i.is_completed and i.action.writes_data]
        table.restore(sorted(writes, key=lambda each: each.completion)[-2].requested)

    planned.close()
    without_ledger(path_of(planned), lambda table: table.upsert(rows((1, "a3", 3))))
    without_ledger(path_of(planned), restore)
    with another(planned) as table:
        ran = table.compact()
        assert ([skipped.conflicted for skipped in ran.skipped], len(ran.executed)) == ([True], 1)
        assert [row["v"] for row in content(table)] == ["a2"]
        assert is_valid(table)


def test_missing_instant_is_not_found(table: Table) -> None:
    with pytest.raises(NotFound, match="20200101000000000"):
        table.rollback("20200101000000000")


def test_live_write_is_not_rolled_back(table: Table) -> None:
    transactions = another(table).writer().transactions
    with transactions.begin(Action.COMMIT, OperationType.UPSERT) as alive:
        with pytest.raises(Conflict, match="alive"):
            table.rollback(alive.instant)
        assert table.rollback() == ()


def test_rollback_of_a_dead_write_is_recorded_as_java_expects(table: Table) -> None:
    requested = "20200101000000000"
    store = table.writer().store
    store.put(f".hoodie/timeline/{requested}.commit.requested", b"", Create())
    leave_stopped_heartbeat(table, requested)
    service = RollbackService(table.writer())
    assert service.failed() == (requested,)
    (planned,) = service.schedule_failed()
    timeline = load_timeline(store)
    (shown,) = timeline.pending(Action.ROLLBACK)
    plan = timeline.read(RollbackPlan, shown)
    assert shown.requested == planned
    assert plan.instant_to_rollback is not None
    assert plan.instant_to_rollback.commit_time == requested
    assert service.schedule_failed() == (planned,), "one plan for each instant"
    with another(table) as other:
        (done,) = other.rollback()
        assert done.instant == planned
    assert load_timeline(store).pending() == ()


def test_rollback_left_by_java_is_finished(table: Table) -> None:
    """The rollback plan of a dead Java writer: its target is removed and the rollback completes."""
    dead, undoing = "20200101000000000", "20200101000000005"
    store = table.writer().store
    store.put(f".hoodie/timeline/{dead}.commit.requested", b"", Create())
    plan = encode(rollback_plan(dead, "commit", (), base=table.uri))
    store.put(f".hoodie/timeline/{undoing}.rollback.requested", plan, Create())
    _age(table, f"{undoing}.rollback.requested")
    recovered = table.writer().transactions.recover()
    assert [each.instant for each in recovered.rolled_back] == [dead]
    (done,) = load_timeline(store).completed(Action.ROLLBACK)
    assert done.requested == undoing
    assert load_timeline(store).pending() == ()


def test_unreadable_java_rollback_blocks_nothing(table: Table) -> None:
    dead, undoing = "20200101000000000", "20200101000000005"
    store = table.writer().store
    store.put(f".hoodie/timeline/{dead}.commit.requested", b"", Create())
    store.put(f".hoodie/timeline/{undoing}.rollback.requested", b"Obj", Create())
    leave_stopped_heartbeat(table, dead)
    _age(table, f"{undoing}.rollback.requested")
    table.writer().transactions.recover()
    assert load_timeline(store).pending() == ()


def _age(table: Table, name: str, folder: str = "timeline") -> None:
    path = Path(table.uri.removeprefix("file://")) / ".hoodie" / folder / name
    os.utime(path, (LONG_AGO_S, LONG_AGO_S))


def leave_stopped_heartbeat(table: Table, instant: str) -> None:
    """Leave the heartbeat of a dead Java writer. Without one it could be running."""
    table.writer().store.put(f".hoodie/.heartbeat/{instant}", b"", Create())
    _age(table, instant, ".heartbeat")


# -- savepoint ---------------------------------------------------------------------------------


def test_savepoint_protects_its_files_from_cleaning_until_deleted(table: Table) -> None:
    saved = table.savepoint(by="me", comment="before it all")
    kept = content(table)
    for number in range(3, 6):
        table.upsert(rows((1, f"a{number}", number)))
        table.compact()
    service = Clean(table.writer())
    planned = service.schedule(Retention(commits=1))
    if planned is not None:
        service.execute(planned)
    assert Restore(table.writer()).plan(saved.instant).completed
    assert [each.comment for each in table.savepoints()] == ["before it all"]
    table.refresh()
    then = table.read(as_of=saved.instant, meta_columns=True).sort_by("id").to_pylist()
    assert then == kept
    table.delete_savepoint(saved.instant)
    assert table.savepoints() == ()
    planned = service.schedule(Retention(commits=1))
    assert planned is not None
    service.execute(planned)
    with pytest.raises(Conflict, match="a clean has deleted"):
        table.savepoint(saved.instant)
    assert is_valid(table)


def test_savepoint_is_written_as_in_hudi(table: Table) -> None:
    saved = table.savepoint()
    store = table.writer().store
    found = store.get(f".hoodie/timeline/{saved.instant}_{saved.completion}.savepoint")
    assert found is not None
    assert store.head(f".hoodie/timeline/{saved.instant}.savepoint.inflight") is not None
    metadata = decode(SavepointMetadata, found.body, where="savepoint")
    files = {
        name for each in metadata.partition_metadata.values() for name in each.savepoint_data_file
    }
    table.refresh()
    assert files == {f.name for s in table.files() for f in (s.base, *s.logs) if f is not None}


def test_commit_has_one_savepoint(table: Table) -> None:
    saved = table.savepoint()
    with pytest.raises(Conflict, match="already"):
        table.savepoint(saved.instant)
    with pytest.raises(NotFound):
        table.savepoint("20200101000000000")
    with pytest.raises(NotFound):
        table.delete_savepoint("20200101000000000")


def test_scheduled_clean_is_executed_before_a_savepoint(table: Table) -> None:
    """H17: files that a clean is going to delete cannot be kept."""
    old = last(table)
    for number in range(3, 6):
        table.upsert(rows((1, f"a{number}", number)))
        table.compact()
    assert Clean(table.writer()).schedule(Retention(commits=1)) is not None
    with pytest.raises(Conflict, match="a clean has deleted"):
        table.savepoint(old)
    assert table.writer().transactions.ledger.refresh().plans == {}


def test_clean_is_rescheduled_after_a_savepoint(table: Table) -> None:
    """H17, the other way: the plan that was made before the savepoint is not scheduled."""
    old = last(table)
    for number in range(3, 6):
        table.upsert(rows((1, f"a{number}", number)))
        table.compact()
    transactions = table.writer().transactions
    service = Clean(table.writer())
    base = transactions.ledger.refresh()
    plan = service.plan(Retention(commits=1))
    assert plan is not None
    with another(table) as other:
        Savepoints(other.writer()).create(old)
    with pytest.raises(Conflict, match="savepoint"):
        transactions.schedule(Action.CLEAN, plan, frozenset(), base=base)


# -- restore -----------------------------------------------------------------------------------


def test_restore_brings_back_the_earlier_table(table: Table) -> None:
    saved = table.savepoint()
    then = content(table)
    table.upsert(rows((2, "b2", 2), (7, "n", 1)))
    table.compact()
    table.delete([1])
    table.cluster()
    done = table.restore(saved.instant)
    assert done is not None
    assert content(table) == then
    timeline = load_timeline(table.writer().store)
    (shown,) = timeline.completed(Action.RESTORE)
    (restore_request,) = (i for i in timeline.files if i.action is Action.RESTORE and i.state == 1)
    assert (
        timeline.read(RestorePlan, restore_request).savepoint_to_restore_timestamp == saved.instant
    )
    assert shown.requested == done.instant
    assert table.restore(saved.instant) is None
    table.upsert(rows((8, "o", 1)))
    assert is_valid(table)


def test_restore_is_refused_while_a_writer_is_alive(table: Table) -> None:
    saved = table.savepoint()
    table.upsert(rows((2, "b2", 2)))
    before = content(table)
    with another(table).writer().transactions.begin(Action.COMMIT, OperationType.UPSERT) as alive:
        with pytest.raises(Conflict, match=alive.instant):
            table.restore(saved.instant)
        assert content(table) == before


def test_fenced_out_writer_commits_nothing(table: Table) -> None:
    saved = table.savepoint()
    then = content(table)
    table.upsert(rows((2, "b2", 2)))
    transactions = another(table).writer().transactions
    with transactions.begin(Action.COMMIT, OperationType.UPSERT) as alive:
        table.restore(saved.instant, fence=True)
        outcome = alive.commit(draft(created=("a",)))
        assert isinstance(outcome, Conflicted)
        assert "restore" in outcome.reason
    assert content(table) == then
    assert is_valid(table)


def test_live_java_writer_cannot_be_fenced_out(table: Table) -> None:
    saved = table.savepoint()
    table.upsert(rows((2, "b2", 2)))
    store, requested = table.writer().store, "29991231000000000"
    store.put(f".hoodie/timeline/{requested}.commit.requested", b"", Create())
    store.put(f".hoodie/.heartbeat/{requested}", b"", Create())
    with pytest.raises(Conflict, match="Java"):
        table.restore(saved.instant, fence=True)


def test_nothing_is_written_while_a_restore_is_unfinished(table: Table) -> None:
    saved = table.savepoint()
    then = content(table)
    table.upsert(rows((2, "b2", 2)))
    planned = Restore(table.writer()).schedule(saved.instant)
    assert planned is not None
    with another(table) as other:
        with pytest.raises((Conflict, WriteConflict), match="restore"):
            other.upsert(rows((3, "c2", 2)))
        with pytest.raises(Conflict, match="pending"):
            other.savepoint()
        (waiting,) = Restore(other.writer()).pending()
        Restore(other.writer()).execute(waiting)
        other.upsert(rows((3, "c2", 2)))
    assert [row["v"] for row in content(table)] == [*(row["v"] for row in then[:2]), "c2"]


def test_restore_to_before_a_savepoint_is_refused(table: Table) -> None:
    target = last(table)
    table.upsert(rows((2, "b2", 2)))
    table.savepoint()
    with pytest.raises(Conflict, match="savepoint"):
        table.restore(target)


def test_restore_to_a_cleaned_instant_is_refused(table: Table) -> None:
    target = last(table)
    for number in range(3, 6):
        table.upsert(rows((1, f"a{number}", number)))
        table.compact()
    service = Clean(table.writer())
    planned = service.schedule(Retention(commits=1))
    assert planned is not None
    before = content(table)
    with pytest.raises(Conflict, match="pending"):
        table.restore(target)
    service.execute(planned)
    with pytest.raises(Conflict, match="a clean has deleted"):
        table.restore(target)
    assert content(table) == before
    with pytest.raises(NotFound):
        table.restore("20200101000000000")


def test_concurrent_writers_lose_nothing_that_commits_after_a_restore(
    table: Table,
) -> None:
    """Commits completed before the restore are rolled back; those completed after it stay."""
    saved = table.savepoint()
    then = {row["id"] for row in content(table)}
    restored = threading.Event()
    acknowledged: dict[int, list[tuple[str, int]]] = {101: [], 102: []}

    def write(key: int) -> None:
        with another(table) as mine:
            for number in range(1, 200):
                try:
                    report = mine.upsert(rows((key, f"w{number}", number)))
                except Conflict:
                    continue  # it was fenced out, or the restore is unfinished
                acknowledged[key].append((report.completion, number))
                if restored.is_set() and len(acknowledged[key]) > 3:
                    return

    writers = [threading.Thread(target=write, args=(key,)) for key in acknowledged]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + 200
    while not all(acknowledged.values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    done = None
    while done is None and time.monotonic() < deadline:
        with contextlib.suppress(Conflict):
            done = table.restore(saved.instant, fence=True)
    restored.set()
    for writer in writers:
        writer.join(60)
    assert done is not None
    expected = {
        key: max((n for completion, n in acks if completion > done.instant), default=None)
        for key, acks in acknowledged.items()
    }
    seen = {row["id"]: row["ts"] for row in content(table) if row["id"] not in then}
    assert seen == {key: number for key, number in expected.items() if number is not None}
    assert then <= {row["id"] for row in content(table)}
    assert is_valid(table)
