"""RFC-79, plans that can be removed, with log compactions: what differs from clusterings least."""

from __future__ import annotations

import pytest

from tests.process.test_plans_that_stay import DONE, executed, refused
from tests.process.test_removable_plans import cleaned, removed
from tidelock.testing.servicescenes.acting import (
    AFTER_DELAY_MS,
    AFTER_EXPIRY_MS,
    LOG_FILE,
    SECOND_ENTRY,
    At,
)
from tidelock.testing.servicescenes.stage import Stage


def test_rem_a1_of_many_that_start_together_one_executes(log_compacting: Stage) -> None:
    actors = [log_compacting.start() for _ in range(3)]
    told = [actor.answer() for actor in actors]
    winners = [each for each in told if each["executed"]]
    assert len(winners) == 1
    assert all(refused(each, touched=True) for each in told if each not in winners)
    assert log_compacting.history == "cC"
    assert log_compacting.states() == DONE
    log_compacting.check()


def test_rem_b1_rem_d1_the_living_is_left_alone(log_compacting: Stage) -> None:
    x = log_compacting.start(stop_at=LOG_FILE, after=True).wait_stopped()
    assert refused(log_compacting.start().answer())
    cleaned(log_compacting)
    assert executed(log_compacting, x.wake())
    assert log_compacting.history == "cC"
    log_compacting.check()


def test_rem_b2_rem_d6_begun_and_dead_it_is_only_removed(log_compacting: Stage) -> None:
    log_compacting.start(kill_at=LOG_FILE, after=True).wait_killed()
    assert refused(log_compacting.start(clock_ms=AFTER_EXPIRY_MS).answer())
    cleaned(log_compacting, clock_ms=AFTER_EXPIRY_MS)
    assert log_compacting.history == "cR"
    assert removed(log_compacting)
    log_compacting.check()


def test_rem_d3_a_clean_removes_what_is_old_and_nobody_executes_it(log_compacting: Stage) -> None:
    cleaned(log_compacting, clock_ms=AFTER_DELAY_MS)
    assert log_compacting.history == "R"
    assert refused(log_compacting.start().answer())
    assert removed(log_compacting)
    log_compacting.check()


@pytest.mark.parametrize("stop_at", [LOG_FILE, SECOND_ENTRY])
def test_rem_zombie_whose_plan_was_removed_changes_nothing(
    log_compacting: Stage, stop_at: At
) -> None:
    x = log_compacting.start(stop_at=stop_at).wait_stopped()
    cleaned(log_compacting, clock_ms=AFTER_EXPIRY_MS)
    assert refused(x.wake(), touched=True)
    assert log_compacting.history == "cR"
    assert removed(log_compacting)
    log_compacting.check()
