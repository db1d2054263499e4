"""RFC-79, removable plans, with log compactions: the scenarios where they could differ."""

from __future__ import annotations

import pytest

from testkit.servicescenes.roles import AFTER_DELAY_MS, AFTER_EXPIRY_MS, LOG_FILE, SECOND_ENTRY, At
from testkit.servicescenes.stage import Stage
from tests.process.test_immutable_plans import DONE, executed, refused
from tests.process.test_removable_plans import cleaned, removed


def test_rem_a1_one_of_many_concurrent_executors_executes(log_compacting: Stage) -> None:
    actors = [log_compacting.start() for _ in range(3)]
    results = [actor.result() for actor in actors]
    winners = [each for each in results if each["executed"]]
    assert len(winners) == 1
    assert all(refused(each, touched=True) for each in results if each not in winners)
    assert log_compacting.history == "cC"
    assert log_compacting.states() == DONE
    log_compacting.check()


def test_rem_b1_rem_d1_live_executor_is_left_alone(log_compacting: Stage) -> None:
    x = log_compacting.start(stop_at=LOG_FILE, after=True).wait_stopped()
    assert refused(log_compacting.start().result())
    cleaned(log_compacting)
    assert executed(log_compacting, x.resume())
    assert log_compacting.history == "cC"
    log_compacting.check()


def test_rem_b2_rem_d6_plan_of_a_dead_executor_is_only_removed(log_compacting: Stage) -> None:
    log_compacting.start(kill_at=LOG_FILE, after=True).wait_killed()
    assert refused(log_compacting.start(clock_ms=AFTER_EXPIRY_MS).result())
    cleaned(log_compacting, clock_ms=AFTER_EXPIRY_MS)
    assert log_compacting.history == "cR"
    assert removed(log_compacting)
    log_compacting.check()


def test_rem_d3_clean_removes_an_old_plan_and_nobody_executes_it(log_compacting: Stage) -> None:
    cleaned(log_compacting, clock_ms=AFTER_DELAY_MS)
    assert log_compacting.history == "R"
    assert refused(log_compacting.start().result())
    assert removed(log_compacting)
    log_compacting.check()


@pytest.mark.parametrize("stop_at", [LOG_FILE, SECOND_ENTRY])
def test_rem_zombie_whose_plan_was_removed_changes_nothing(
    log_compacting: Stage, stop_at: At
) -> None:
    x = log_compacting.start(stop_at=stop_at).wait_stopped()
    cleaned(log_compacting, clock_ms=AFTER_EXPIRY_MS)
    assert refused(x.resume(), touched=True)
    assert log_compacting.history == "cR"
    assert removed(log_compacting)
    log_compacting.check()
