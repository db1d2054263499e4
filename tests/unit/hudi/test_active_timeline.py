"""Loading the active timeline: valid, ignored and rejected files."""

from __future__ import annotations

import json

import pytest

from tests.unit.doubles import EPOCH_MS, ManualClock
from tests.unit.hudi.table_builder import Built, time
from tidelock.core.errors import Conflict, DataCorrupt
from tidelock.hudi.timeline.active import TIMELINE_FOLDER, load_timeline
from tidelock.hudi.timeline.instant import Action, Instant, InstantState, format_time
from tidelock.hudi.timeline.metadata import (
    CommitMetadata,
    CompactionPlan,
    SavepointMetadata,
    encode,
)
from tidelock.storage.contract import Create
from tidelock.storage.memory import MemoryStore


def test_empty_timeline_has_no_instants() -> None:
    timeline = load_timeline(MemoryStore())
    assert timeline.instants == ()
    assert timeline.start is None
    assert timeline.completions == {}


def test_each_action_is_loaded_once_in_its_latest_state() -> None:
    table = Built()
    table.pending(1, action=Action.COMMIT)
    done = table.commit(1, 2, action=Action.COMMIT)
    going = table.pending(3)
    timeline = load_timeline(table.store)
    assert timeline.instants == (done, going)
    assert timeline.completed() == (done,)
    assert timeline.pending() == (going,)
    assert timeline.completions == {time(1): time(2)}
    assert timeline.pending_writes == {time(3)}
    assert [each.state for each in timeline.states(done)] == list(InstantState)
    assert timeline.find(time(3)) == going
    assert timeline.find(time(3), Action.CLEAN) is None


@pytest.mark.parametrize(
    "name",
    [
        "hoodie.properties",
        f"{time(1)}_{time(2)}.commit.0d7d6a5a-aaaa-4bbb-8ccc-0123456789ab",
        f".{time(1)}_{time(2)}.commit.crc",
        f"history/{time(1)}_{time(2)}_0.parquet",
        f"nested/{time(1)}_{time(2)}.commit",
        f"{time(1)}_{time(2)}.poem",
    ],
)
def test_other_files_in_the_folder_are_ignored(name: str) -> None:
    table = Built()
    table.put(f"{TIMELINE_FOLDER}/{name}", b"")
    assert load_timeline(table.store).files == ()


def test_empty_completed_file_is_refused_by_name() -> None:
    table = Built()
    table.commit(1, 2)
    empty = table.instant(Instant(time(3), Action.COMMIT, InstantState.COMPLETED, time(4)))
    with pytest.raises(DataCorrupt, match=empty.file_name):
        load_timeline(table.store)


def test_times_can_omit_milliseconds() -> None:
    table = Built()
    old = Instant("20240101000000", Action.COMMIT, InstantState.COMPLETED, "20240101000001")
    table.instant(old, encode(CommitMetadata()))
    table.commit(1, 2)
    timeline = load_timeline(table.store)
    assert timeline.start == "20240101000000"
    assert timeline.commit(old) == CommitMetadata()


def test_completed_file_of_an_old_version_uses_its_modification_time() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    body = json.dumps({"extraMetadata": {"schema": "{}"}}).encode()
    store.put(f"{TIMELINE_FOLDER}/{time(1)}.commit", body, Create())
    (instant,) = load_timeline(store).instants
    assert instant.completion == format_time(EPOCH_MS + clock.now().monotonic_ms)
    assert load_timeline(store).commit(instant).schema_json == "{}"


def test_start_is_the_first_write_in_any_state() -> None:
    table = Built()
    table.commit(5, 6)
    table.pending(3)
    table.instant(Instant(time(1), Action.CLEAN, InstantState.REQUESTED))
    assert load_timeline(table.store).start == time(3)


def test_savepointed_commit_is_not_the_start() -> None:
    table = Built()
    table.commit(1, 2)
    savepoint = encode(SavepointMetadata("me", 0, "before the move"))
    table.instant(Instant(time(1), Action.SAVEPOINT, InstantState.COMPLETED, time(9)), savepoint)
    table.commit(5, 6)
    assert load_timeline(table.store).start == time(5)


def test_compaction_plan_is_in_its_request() -> None:
    table = Built()
    requested = table.plan_compaction(1, [("p", "f")])
    table.instant(requested.started())
    timeline = load_timeline(table.store)
    (pending,) = timeline.pending(Action.COMPACTION)
    assert pending.state is InstantState.INFLIGHT
    plan = timeline.compaction_plan(pending)
    assert [operation.file_id for operation in plan.operations or ()] == ["f"]
    # When completed its action is `commit`, and its plan is still found.
    table.commit(1, 2, action=Action.COMMIT)
    done = load_timeline(table.store)
    assert done.compaction_plan(done.instants[0]) == plan


def test_compaction_without_its_request_is_refused() -> None:
    table = Built()
    inflight = table.instant(Instant(time(1), Action.COMPACTION, InstantState.INFLIGHT))
    timeline = load_timeline(table.store)
    with pytest.raises(DataCorrupt, match="has no requested file"):
        timeline.compaction_plan(inflight)


def test_corrupt_file_is_named() -> None:
    table = Built()
    instant = table.instant(
        Instant(time(1), Action.COMMIT, InstantState.COMPLETED, time(2)), b"junk"
    )
    timeline = load_timeline(table.store)
    with pytest.raises(DataCorrupt, match=f"{TIMELINE_FOLDER}/{instant.file_name}"):
        timeline.commit(instant)


def test_file_deleted_after_loading_is_a_conflict() -> None:
    table = Built()
    instant = table.commit(1, 2)
    timeline = load_timeline(table.store)
    table.forget(instant)
    with pytest.raises(Conflict, match="open the table again"):
        timeline.read(CompactionPlan, instant)
