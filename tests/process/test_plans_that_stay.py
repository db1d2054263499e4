"""RFC-79, plans that stay until they are carried out: every scene, with compactions.

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


def test_imm_a1_of_many_that_start_together_one_executes(compacting: Stage) -> None:
    actors = [compacting.start() for _ in range(4)]
    told = [actor.answer() for actor in actors]
    winners = [each for each in told if each["executed"]]
    assert len(winners) == 1
    for each in told:
        if each not in winners:
            assert not [what for what in each["requests"] if "timeline" in what or "upload" in what]
            assert refused(each, touched=True)
    assert compacting.history == "cC"
    assert compacting.states() == DONE
    compacting.check()


@pytest.mark.parametrize(
    ("kill_at", "history"), [(FIRST_ENTRY, "cC"), (INFLIGHT, "crcC")], ids=["unclaimed", "claimed"]
)
def test_imm_a2_killed_before_inflight_another_executes(
    compacting: Stage, kill_at: At, history: str
) -> None:
    compacting.start(kill_at=kill_at).wait_killed()
    assert compacting.states() == ["REQUESTED"]
    assert refused(compacting.start().answer())
    assert executed(compacting, compacting.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert compacting.history == history
    assert compacting.instants("rollback") == []
    compacting.check()


def test_imm_a3_killed_in_the_middle_its_files_go_and_another_executes(compacting: Stage) -> None:
    compacting.start(kill_at=DATA_FILE, after=True).wait_killed()
    left = compacting.data_files()
    told = compacting.start(clock_ms=AFTER_EXPIRY_MS).answer()
    assert executed(compacting, told)
    assert {f"delete {file}" for file in left} <= set(told["requests"])
    assert left
    assert not left & compacting.data_files()
    assert compacting.history == "crcC"
    assert compacting.states() == DONE
    compacting.check()


def test_imm_b1_the_living_is_left_alone(compacting: Stage) -> None:
    x = compacting.start(stop_at=DATA_FILE, after=True).wait_stopped()
    files = compacting.data_files()
    assert refused(compacting.start().answer())
    assert compacting.data_files() == files
    assert executed(compacting, x.wake())
    assert compacting.history == "cC"
    compacting.check()


def test_imm_b2_the_dead_is_succeeded_once_its_heartbeat_is_dead(compacting: Stage) -> None:
    compacting.start(kill_at=INFLIGHT, after=True).wait_killed()
    assert refused(compacting.start().answer())
    assert executed(compacting, compacting.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert compacting.history == "crcC"
    compacting.check()


def test_imm_b3_who_comes_after_the_completion_undoes_nothing(compacting: Stage) -> None:
    y = compacting.start(stop_at=HEARTBEAT).wait_stopped()
    assert executed(compacting, compacting.start().answer())
    assert refused(y.wake(), touched=True)
    assert compacting.heartbeat() is None
    assert compacting.history == "cC"
    compacting.check()


@pytest.mark.parametrize(
    ("stop_at", "after"), [(DATA_FILE, False), (DATA_FILE, True), (SECOND_ENTRY, False)]
)
def test_imm_b4_a_zombie_that_was_succeeded_changes_nothing(
    compacting: Stage, stop_at: At, after: bool
) -> None:
    x = compacting.start(stop_at=stop_at, after=after).wait_stopped()
    assert executed(compacting, compacting.start(clock_ms=AFTER_EXPIRY_MS).answer())
    files = compacting.data_files()
    assert refused(x.wake(), touched=True)
    assert compacting.data_files() == files
    assert compacting.history == "crcC"
    assert compacting.states() == DONE
    compacting.check()


@pytest.mark.parametrize(
    ("stop_at", "after"), [(DATA_FILE, False), (DATA_FILE, True), (SECOND_ENTRY, False)]
)
def test_imm_b5_a_zombie_leaves_its_successor_what_it_has(
    compacting: Stage, stop_at: At, after: bool
) -> None:
    x = compacting.start(stop_at=stop_at, after=after).wait_stopped()
    y = compacting.start(stop_at=THIRD_ENTRY, clock_ms=AFTER_EXPIRY_MS).wait_stopped()
    files, held = compacting.data_files(), compacting.heartbeat()
    assert files
    assert held
    assert refused(x.wake(), touched=True)
    assert compacting.data_files() == files
    assert compacting.heartbeat() == held
    assert "INFLIGHT" in compacting.states()
    assert executed(compacting, y.wake())
    assert compacting.history == "crcC"
    compacting.check()


def test_imm_c1_left_inflight_one_executes_and_others_leave_it(compacting: Stage) -> None:
    compacting.start(kill_at=DATA_FILE, after=True).wait_killed()
    compacting.store.delete(heartbeat_key(compacting.instant))
    x = compacting.start(stop_at=DATA_FILE, after=True).wait_stopped()
    assert refused(compacting.start().answer())
    assert executed(compacting, x.wake())
    assert compacting.history == "crcC"
    compacting.check()


def test_imm_c2_dead_after_the_roll_back_there_is_no_second_one(compacting: Stage) -> None:
    compacting.start(kill_at=DATA_FILE, after=True).wait_killed()
    compacting.start(kill_at=SECOND_ENTRY, clock_ms=AFTER_EXPIRY_MS).wait_killed()
    assert compacting.history == "cr"
    assert compacting.data_files() == set()
    assert executed(compacting, compacting.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert compacting.history == "crcC"
    compacting.check()


def test_imm_c3_dead_before_the_files_are_gone_the_next_removes_them(compacting: Stage) -> None:
    compacting.start(kill_at=DATA_FILE, after=True).wait_killed()
    left = compacting.data_files()
    compacting.start(kill_at=FIRST_ENTRY, after=True, clock_ms=AFTER_EXPIRY_MS).wait_killed()
    assert left
    assert compacting.data_files() == left
    assert executed(compacting, compacting.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert not left & compacting.data_files()
    assert compacting.history == "crcC"
    compacting.check()


def test_imm_c4_dead_before_inflight_is_gone_the_next_copes(compacting: Stage) -> None:
    compacting.start("give up", kill_at=At("delete", ".inflight")).wait_killed()
    assert compacting.history == "cr"
    assert compacting.states() == ["INFLIGHT", "REQUESTED"]
    assert executed(compacting, compacting.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert compacting.history == "crcC"
    compacting.check()


def test_who_gives_a_plan_back_leaves_it_to_be_executed_at_once(compacting: Stage) -> None:
    compacting.start("give up").answer()
    assert compacting.states() == ["REQUESTED"]
    assert compacting.heartbeat() is None
    assert executed(compacting, compacting.start().answer())
    compacting.check()


@pytest.mark.parametrize("clock_ms", [0, AFTER_EXPIRY_MS, AFTER_DELAY_MS])
def test_imm_d_no_clean_ever_rolls_it_back(compacting: Stage, clock_ms: int) -> None:
    def cleaned(history: str) -> None:
        assert "error" not in compacting.start("clean", clock_ms=clock_ms).answer()
        assert compacting.history == history
        assert "REQUESTED" in compacting.states()

    cleaned("")
    compacting.start(kill_at=DATA_FILE, after=True).wait_killed()
    files = compacting.data_files()
    cleaned("c")
    assert compacting.data_files() == files
    compacting.start(kill_at=SECOND_ENTRY, clock_ms=AFTER_EXPIRY_MS).wait_killed()
    cleaned("cr")
    assert executed(compacting, compacting.start(clock_ms=AFTER_EXPIRY_MS).answer())
    cleaned("crcC")
    compacting.check()
