"""RFC-79, immutable plans: every scenario, with each service.

Compactions are always immutable, clusterings and log compactions if configured so.

X and Y are processes. The heartbeat of a killed or stopped process is alive for a process that
checks at once, and expired for one that comes `AFTER_EXPIRY_MS` later by its own clock. Letters
describe the history of the plan: c claimed, r the attempt is over, C committed (see
`Stage.history`).
"""

from __future__ import annotations

from typing import Any

import pytest

from testkit.servicescenes.roles import (
    AFTER_DELAY_MS,
    AFTER_EXPIRY_MS,
    DATA_FILE,
    FIRST_ENTRY,
    HEARTBEAT,
    INFLIGHT,
    SECOND_ENTRY,
    THIRD_ENTRY,
    At,
)
from testkit.servicescenes.stage import Stage
from tidelock.txn.heartbeats import heartbeat_key

DONE = ["COMPLETED", "INFLIGHT", "REQUESTED"]


def refused(result: dict[str, Any], *, touched: bool = False) -> bool:
    """Return whether an executor was refused, and changed nothing if refused at the start."""
    assert result["error"] in ("Conflict", "WriteConflict"), result
    assert touched or result["requests"] == [], result
    return True


def executed(stage: Stage, result: dict[str, Any]) -> bool:
    assert result["executed"] == [stage.instant], result
    return True


def test_imm_a1_one_of_many_concurrent_executors_executes(staying: Stage) -> None:
    actors = [staying.start() for _ in range(4)]
    result = [actor.result() for actor in actors]
    winners = [each for each in result if each["executed"]]
    assert len(winners) == 1
    for each in result:
        if each not in winners:
            assert not [what for what in each["requests"] if "timeline" in what or "upload" in what]
            assert refused(each, touched=True)
    assert staying.history == "cC"
    assert staying.states() == DONE
    staying.check()


@pytest.mark.parametrize(
    ("kill_at", "history"), [(FIRST_ENTRY, "cC"), (INFLIGHT, "crcC")], ids=["unclaimed", "claimed"]
)
def test_imm_a2_killed_before_inflight_another_executes(
    staying: Stage, kill_at: At, history: str
) -> None:
    staying.start(kill_at=kill_at).wait_killed()
    assert staying.states() == ["REQUESTED"]
    assert refused(staying.start().result())
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).result())
    assert staying.history == history
    assert staying.instants("rollback") == []
    staying.check()


def test_imm_a3_killed_in_the_middle_its_files_are_deleted_and_another_executes(
    staying: Stage,
) -> None:
    staying.start(kill_at=DATA_FILE, after=True).wait_killed()
    left = staying.data_files()
    result = staying.start(clock_ms=AFTER_EXPIRY_MS).result()
    assert executed(staying, result)
    assert {f"delete {file}" for file in left} <= set(result["requests"])
    assert left
    assert not left & staying.data_files()
    assert staying.history == "crcC"
    assert staying.states() == DONE
    staying.check()


def test_imm_b1_live_executor_is_left_alone(staying: Stage) -> None:
    x = staying.start(stop_at=DATA_FILE, after=True).wait_stopped()
    files = staying.data_files()
    assert refused(staying.start().result())
    assert staying.data_files() == files
    assert executed(staying, x.resume())
    assert staying.history == "cC"
    staying.check()


def test_imm_b2_dead_executor_is_replaced_once_its_heartbeat_expires(staying: Stage) -> None:
    staying.start(kill_at=INFLIGHT, after=True).wait_killed()
    assert refused(staying.start().result())
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).result())
    assert staying.history == "crcC"
    staying.check()


def test_imm_b3_late_executor_rolls_nothing_back_after_completion(staying: Stage) -> None:
    y = staying.start(stop_at=HEARTBEAT).wait_stopped()
    assert executed(staying, staying.start().result())
    assert refused(y.resume(), touched=True)
    assert staying.heartbeat() is None
    assert staying.history == "cC"
    staying.check()


@pytest.mark.parametrize(
    ("stop_at", "after"), [(DATA_FILE, False), (DATA_FILE, True), (SECOND_ENTRY, False)]
)
def test_imm_b4_replaced_zombie_changes_nothing(staying: Stage, stop_at: At, after: bool) -> None:
    x = staying.start(stop_at=stop_at, after=after).wait_stopped()
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).result())
    files = staying.data_files()
    assert refused(x.resume(), touched=True)
    assert staying.data_files() == files
    assert staying.history == "crcC"
    assert staying.states() == DONE
    staying.check()


@pytest.mark.parametrize(
    ("stop_at", "after"), [(DATA_FILE, False), (DATA_FILE, True), (SECOND_ENTRY, False)]
)
def test_imm_b5_zombie_leaves_the_files_of_its_successor(
    staying: Stage, stop_at: At, after: bool
) -> None:
    x = staying.start(stop_at=stop_at, after=after).wait_stopped()
    y = staying.start(stop_at=THIRD_ENTRY, clock_ms=AFTER_EXPIRY_MS).wait_stopped()
    files, held = staying.data_files(), staying.heartbeat()
    assert files
    assert held
    assert refused(x.resume(), touched=True)
    assert staying.data_files() == files
    assert staying.heartbeat() == held
    assert "INFLIGHT" in staying.states()
    assert executed(staying, y.resume())
    assert staying.history == "crcC"
    staying.check()


def test_imm_c1_left_inflight_one_executes_and_others_skip(staying: Stage) -> None:
    staying.start(kill_at=DATA_FILE, after=True).wait_killed()
    staying.store.delete(heartbeat_key(staying.instant))
    x = staying.start(stop_at=DATA_FILE, after=True).wait_stopped()
    assert refused(staying.start().result())
    assert executed(staying, x.resume())
    assert staying.history == "crcC"
    staying.check()


def test_imm_c2_killed_after_the_rollback_there_is_no_second_one(staying: Stage) -> None:
    staying.start(kill_at=DATA_FILE, after=True).wait_killed()
    staying.start(kill_at=SECOND_ENTRY, clock_ms=AFTER_EXPIRY_MS).wait_killed()
    assert staying.history == "cr"
    assert staying.data_files() == set()
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).result())
    assert staying.history == "crcC"
    staying.check()


def test_imm_c3_killed_before_the_files_are_deleted_the_next_deletes_them(staying: Stage) -> None:
    staying.start(kill_at=DATA_FILE, after=True).wait_killed()
    left = staying.data_files()
    staying.start(kill_at=FIRST_ENTRY, after=True, clock_ms=AFTER_EXPIRY_MS).wait_killed()
    assert left
    assert staying.data_files() == left
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).result())
    assert not left & staying.data_files()
    assert staying.history == "crcC"
    staying.check()


def test_imm_c4_killed_before_inflight_is_deleted_the_next_continues(staying: Stage) -> None:
    staying.start("give up", kill_at=At("delete", ".inflight")).wait_killed()
    assert staying.history == "cr"
    assert staying.states() == ["INFLIGHT", "REQUESTED"]
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).result())
    assert staying.history == "crcC"
    staying.check()


def test_released_plan_can_be_executed_at_once(staying: Stage) -> None:
    staying.start("give up").result()
    assert staying.states() == ["REQUESTED"]
    assert staying.heartbeat() is None
    assert executed(staying, staying.start().result())
    staying.check()


@pytest.mark.parametrize("clock_ms", [0, AFTER_EXPIRY_MS, AFTER_DELAY_MS])
def test_imm_d_clean_never_rolls_it_back(staying: Stage, clock_ms: int) -> None:
    def cleaned(history: str) -> None:
        assert "error" not in staying.start("clean", clock_ms=clock_ms).result()
        assert staying.history == history
        assert "REQUESTED" in staying.states()

    cleaned("")
    staying.start(kill_at=DATA_FILE, after=True).wait_killed()
    files = staying.data_files()
    cleaned("c")
    assert staying.data_files() == files
    staying.start(kill_at=SECOND_ENTRY, clock_ms=AFTER_EXPIRY_MS).wait_killed()
    cleaned("cr")
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).result())
    cleaned("crcC")
    staying.check()


def test_plan_whose_sources_were_replaced_is_removed(
    clustering_that_stays: Stage,
) -> None:
    stage = clustering_that_stays
    x = stage.start(stop_at=SECOND_ENTRY).wait_stopped()
    assert "error" not in stage.start("write", rows={"a": 9}).result()
    stage.rows |= {"a": 9}
    assert refused(x.resume(), touched=True)
    assert stage.history == "crR"
    assert stage.states() == []
    assert stage.data_files() == set()
    stage.check()


def test_next_clustering_resumes_the_plan_of_a_dead_one(clustering_that_stays: Stage) -> None:
    stage = clustering_that_stays
    stage.start("cluster", kill_at=DATA_FILE, after=True).wait_killed()
    left = stage.data_files()
    result = stage.start("cluster", clock_ms=AFTER_EXPIRY_MS).result()
    assert result["executed"] == [stage.instant]
    assert left
    assert not left & stage.data_files()
    assert stage.history == "crcC"
    stage.check()
