"""RFC-79, plans that stay until they are carried out: every scene, with each service.

Compactions always stay, clusterings and log compactions where they are configured so.

X and Y are processes. A killed or stopped one has a heartbeat that is alive for whoever looks at
once, and dead for whoever comes `AFTER_EXPIRY_MS` later by its own clock. What was decided of the
plan is told by letters: c claimed, r the attempt is over, C committed (see `Stage.history`).
"""

from __future__ import annotations

from typing import Any

import pytest

from tidelock.testing.servicescenes.acting import (
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
from tidelock.testing.servicescenes.stage import Stage
from tidelock.txn.heartbeat import heartbeat_key

DONE = ["COMPLETED", "INFLIGHT", "REQUESTED"]


def refused(told: dict[str, Any], *, touched: bool = False) -> bool:
    """Tell whether an executor was refused, and changed nothing if it was so from the start."""
    assert told["error"] in ("Conflict", "WriteConflict"), told
    assert touched or told["requests"] == [], told
    return True


def executed(stage: Stage, told: dict[str, Any]) -> bool:
    assert told["executed"] == [stage.instant], told
    return True


def test_imm_a1_of_many_that_start_together_one_executes(staying: Stage) -> None:
    actors = [staying.start() for _ in range(4)]
    told = [actor.answer() for actor in actors]
    winners = [each for each in told if each["executed"]]
    assert len(winners) == 1
    for each in told:
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
    assert refused(staying.start().answer())
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert staying.history == history
    assert staying.instants("rollback") == []
    staying.check()


def test_imm_a3_killed_in_the_middle_its_files_go_and_another_executes(staying: Stage) -> None:
    staying.start(kill_at=DATA_FILE, after=True).wait_killed()
    left = staying.data_files()
    told = staying.start(clock_ms=AFTER_EXPIRY_MS).answer()
    assert executed(staying, told)
    assert {f"delete {file}" for file in left} <= set(told["requests"])
    assert left
    assert not left & staying.data_files()
    assert staying.history == "crcC"
    assert staying.states() == DONE
    staying.check()


def test_imm_b1_the_living_is_left_alone(staying: Stage) -> None:
    x = staying.start(stop_at=DATA_FILE, after=True).wait_stopped()
    files = staying.data_files()
    assert refused(staying.start().answer())
    assert staying.data_files() == files
    assert executed(staying, x.wake())
    assert staying.history == "cC"
    staying.check()


def test_imm_b2_the_dead_is_succeeded_once_its_heartbeat_is_dead(staying: Stage) -> None:
    staying.start(kill_at=INFLIGHT, after=True).wait_killed()
    assert refused(staying.start().answer())
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert staying.history == "crcC"
    staying.check()


def test_imm_b3_who_comes_after_the_completion_undoes_nothing(staying: Stage) -> None:
    y = staying.start(stop_at=HEARTBEAT).wait_stopped()
    assert executed(staying, staying.start().answer())
    assert refused(y.wake(), touched=True)
    assert staying.heartbeat() is None
    assert staying.history == "cC"
    staying.check()


@pytest.mark.parametrize(
    ("stop_at", "after"), [(DATA_FILE, False), (DATA_FILE, True), (SECOND_ENTRY, False)]
)
def test_imm_b4_a_zombie_that_was_succeeded_changes_nothing(
    staying: Stage, stop_at: At, after: bool
) -> None:
    x = staying.start(stop_at=stop_at, after=after).wait_stopped()
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).answer())
    files = staying.data_files()
    assert refused(x.wake(), touched=True)
    assert staying.data_files() == files
    assert staying.history == "crcC"
    assert staying.states() == DONE
    staying.check()


@pytest.mark.parametrize(
    ("stop_at", "after"), [(DATA_FILE, False), (DATA_FILE, True), (SECOND_ENTRY, False)]
)
def test_imm_b5_a_zombie_leaves_its_successor_what_it_has(
    staying: Stage, stop_at: At, after: bool
) -> None:
    x = staying.start(stop_at=stop_at, after=after).wait_stopped()
    y = staying.start(stop_at=THIRD_ENTRY, clock_ms=AFTER_EXPIRY_MS).wait_stopped()
    files, held = staying.data_files(), staying.heartbeat()
    assert files
    assert held
    assert refused(x.wake(), touched=True)
    assert staying.data_files() == files
    assert staying.heartbeat() == held
    assert "INFLIGHT" in staying.states()
    assert executed(staying, y.wake())
    assert staying.history == "crcC"
    staying.check()


def test_imm_c1_left_inflight_one_executes_and_others_leave_it(staying: Stage) -> None:
    staying.start(kill_at=DATA_FILE, after=True).wait_killed()
    staying.store.delete(heartbeat_key(staying.instant))
    x = staying.start(stop_at=DATA_FILE, after=True).wait_stopped()
    assert refused(staying.start().answer())
    assert executed(staying, x.wake())
    assert staying.history == "crcC"
    staying.check()


def test_imm_c2_dead_after_the_roll_back_there_is_no_second_one(staying: Stage) -> None:
    staying.start(kill_at=DATA_FILE, after=True).wait_killed()
    staying.start(kill_at=SECOND_ENTRY, clock_ms=AFTER_EXPIRY_MS).wait_killed()
    assert staying.history == "cr"
    assert staying.data_files() == set()
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert staying.history == "crcC"
    staying.check()


def test_imm_c3_dead_before_the_files_are_gone_the_next_removes_them(staying: Stage) -> None:
    staying.start(kill_at=DATA_FILE, after=True).wait_killed()
    left = staying.data_files()
    staying.start(kill_at=FIRST_ENTRY, after=True, clock_ms=AFTER_EXPIRY_MS).wait_killed()
    assert left
    assert staying.data_files() == left
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert not left & staying.data_files()
    assert staying.history == "crcC"
    staying.check()


def test_imm_c4_dead_before_inflight_is_gone_the_next_copes(staying: Stage) -> None:
    staying.start("give up", kill_at=At("delete", ".inflight")).wait_killed()
    assert staying.history == "cr"
    assert staying.states() == ["INFLIGHT", "REQUESTED"]
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert staying.history == "crcC"
    staying.check()


def test_who_gives_a_plan_back_leaves_it_to_be_executed_at_once(staying: Stage) -> None:
    staying.start("give up").answer()
    assert staying.states() == ["REQUESTED"]
    assert staying.heartbeat() is None
    assert executed(staying, staying.start().answer())
    staying.check()


@pytest.mark.parametrize("clock_ms", [0, AFTER_EXPIRY_MS, AFTER_DELAY_MS])
def test_imm_d_no_clean_ever_rolls_it_back(staying: Stage, clock_ms: int) -> None:
    def cleaned(history: str) -> None:
        assert "error" not in staying.start("clean", clock_ms=clock_ms).answer()
        assert staying.history == history
        assert "REQUESTED" in staying.states()

    cleaned("")
    staying.start(kill_at=DATA_FILE, after=True).wait_killed()
    files = staying.data_files()
    cleaned("c")
    assert staying.data_files() == files
    staying.start(kill_at=SECOND_ENTRY, clock_ms=AFTER_EXPIRY_MS).wait_killed()
    cleaned("cr")
    assert executed(staying, staying.start(clock_ms=AFTER_EXPIRY_MS).answer())
    cleaned("crcC")
    staying.check()


def test_a_plan_whose_sources_a_writer_changed_for_good_is_removed(
    clustering_that_stays: Stage,
) -> None:
    stage = clustering_that_stays
    x = stage.start(stop_at=SECOND_ENTRY).wait_stopped()
    assert "error" not in stage.start("write", rows={"a": 9}).answer()
    stage.rows |= {"a": 9}
    assert refused(x.wake(), touched=True)
    assert stage.history == "crR"
    assert stage.states() == []
    assert stage.data_files() == set()
    stage.check()


def test_the_next_clustering_resumes_what_a_dead_one_left(clustering_that_stays: Stage) -> None:
    stage = clustering_that_stays
    stage.start("cluster", kill_at=DATA_FILE, after=True).wait_killed()
    left = stage.data_files()
    told = stage.start("cluster", clock_ms=AFTER_EXPIRY_MS).answer()
    assert told["executed"] == [stage.instant]
    assert left
    assert not left & stage.data_files()
    assert stage.history == "crcC"
    stage.check()
