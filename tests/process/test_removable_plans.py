"""RFC-79, plans that can be removed: every scene, with clusterings; and what meets writers.

Who is killed or stopped has a heartbeat that is alive for whoever looks at once, and dead for
whoever comes `AFTER_EXPIRY_MS` later by its own clock. For who comes `AFTER_DELAY_MS` later, the
plan is old as well. The letters of `Stage.history`: c claimed, R rolled back, C committed.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.process.test_plans_that_stay import DONE, executed, refused
from tidelock.testing.servicescenes.acting import (
    AFTER_DELAY_MS,
    AFTER_EXPIRY_MS,
    DATA_FILE,
    FIRST_ENTRY,
    HEARTBEAT,
    INFLIGHT,
    MINUTE_MS,
    SECOND_ENTRY,
    At,
)
from tidelock.testing.servicescenes.stage import Stage
from tidelock.txn.heartbeat import heartbeat_key


def cleaned(stage: Stage, *, clock_ms: int = 0) -> None:
    told = stage.start("clean", clock_ms=clock_ms).answer()
    assert "error" not in told, told


def removed(stage: Stage) -> bool:
    """Tell whether nothing is left of the plan."""
    assert stage.states() == []
    assert stage.data_files() == set()
    assert stage.heartbeat() is None
    return True


def test_rem_a1_of_many_that_start_together_one_executes(clustering: Stage) -> None:
    actors = [clustering.start() for _ in range(4)]
    told = [actor.answer() for actor in actors]
    winners = [each for each in told if each["executed"]]
    assert len(winners) == 1
    assert all(refused(each, touched=True) for each in told if each not in winners)
    assert clustering.history == "cC"
    assert clustering.states() == DONE
    clustering.check()


def test_rem_a2_killed_before_the_claim_another_executes(clustering: Stage) -> None:
    clustering.start(kill_at=FIRST_ENTRY).wait_killed()
    assert clustering.states() == ["REQUESTED"]
    assert refused(clustering.start().answer())
    assert executed(clustering, clustering.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert clustering.history == "cC"
    clustering.check()


def test_rem_a2_killed_between_claim_and_inflight_it_counts_as_begun(clustering: Stage) -> None:
    # Two attempts would write file groups of their own, and readers that list would take the rows
    # of both: a removable plan is claimed once.
    clustering.start(kill_at=INFLIGHT).wait_killed()
    assert refused(clustering.start(clock_ms=AFTER_EXPIRY_MS).answer())
    cleaned(clustering, clock_ms=AFTER_EXPIRY_MS)
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


def test_rem_b1_the_living_is_left_alone(clustering: Stage) -> None:
    x = clustering.start(stop_at=DATA_FILE, after=True).wait_stopped()
    told = clustering.start().answer()
    assert refused(told)
    assert "is executed by" in told["message"]
    assert executed(clustering, x.wake())
    assert refused(clustering.start().answer())
    assert clustering.history == "cC"
    clustering.check()


def test_rem_b2_begun_and_dead_it_is_never_executed_again(clustering: Stage) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    for clock_ms in (0, AFTER_EXPIRY_MS, AFTER_DELAY_MS):
        assert refused(clustering.start(clock_ms=clock_ms).answer())
    assert clustering.history == "c"
    cleaned(clustering, clock_ms=AFTER_EXPIRY_MS)
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


def test_rem_c_inflight_from_the_past_nobody_touches_it(clustering: Stage) -> None:
    clustering.start(kill_at=INFLIGHT, after=True).wait_killed()
    clustering.store.delete(heartbeat_key(clustering.instant))
    actors = [clustering.start() for _ in range(2)]
    assert all(refused(actor.answer()) for actor in actors)
    assert clustering.heartbeat() is None
    assert clustering.states() == ["INFLIGHT", "REQUESTED"]
    assert clustering.history == "c"


@pytest.mark.parametrize("clock_ms", [0, MINUTE_MS])
def test_rem_d1_a_clean_leaves_what_is_executed(clustering: Stage, clock_ms: int) -> None:
    x = clustering.start(stop_at=DATA_FILE, after=True).wait_stopped()
    files, held = clustering.data_files(), clustering.heartbeat()
    cleaned(clustering, clock_ms=clock_ms)
    assert (clustering.data_files(), clustering.heartbeat()) == (files, held)
    assert executed(clustering, x.wake())
    clustering.check()


@pytest.mark.parametrize("clock_ms", [0, AFTER_EXPIRY_MS])
def test_rem_d2_rem_e1_a_clean_leaves_what_is_young(clustering: Stage, clock_ms: int) -> None:
    cleaned(clustering, clock_ms=clock_ms)
    assert clustering.states() == ["REQUESTED"]
    assert clustering.heartbeat() is None
    assert executed(clustering, clustering.start().answer())
    assert clustering.history == "cC"
    clustering.check()


def test_rem_d3_rem_e2_a_clean_removes_what_is_old_and_nobody_executes_it(
    clustering: Stage,
) -> None:
    cleaned(clustering, clock_ms=AFTER_DELAY_MS)
    assert clustering.history == "R"
    assert removed(clustering)
    told = clustering.start().answer()
    assert refused(told)
    assert "not pending" in told["message"]
    assert removed(clustering)
    clustering.check()


def test_rem_d4_claimed_just_before_the_clean_decides_it_stays(clustering: Stage) -> None:
    x = clustering.start(stop_at=FIRST_ENTRY).wait_stopped()
    cleaned(clustering)
    assert clustering.states() == ["REQUESTED"]
    assert executed(clustering, x.wake())
    assert clustering.history == "cC"
    clustering.check()


@pytest.mark.parametrize("clean_at", [HEARTBEAT, FIRST_ENTRY])
def test_rem_d4_claimed_while_a_clean_is_about_to_remove_it_one_of_them_wins(
    clustering: Stage, clean_at: At
) -> None:
    old = {"hoodie.clustering.expiration.threshold.mins": "0"}
    clean = clustering.start("clean", stop_at=clean_at, options=old).wait_stopped()
    told = clustering.start().answer()
    clean.wake()
    if clean_at is HEARTBEAT:
        # The clean has not announced itself: the executor is done before it looks again.
        assert executed(clustering, told)
        assert clustering.history == "cC"
    else:
        assert refused(told)
        assert clustering.history == "R"
        assert removed(clustering)
    clustering.check()


@pytest.mark.parametrize("clock_ms", [AFTER_EXPIRY_MS, AFTER_DELAY_MS], ids=["d6_young", "d5_old"])
def test_rem_d5_rem_d6_begun_and_dead_a_clean_removes_it(clustering: Stage, clock_ms: int) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    cleaned(clustering)
    assert clustering.states() == ["INFLIGHT", "REQUESTED"], "its heartbeat is alive"
    cleaned(clustering, clock_ms=clock_ms)
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


def test_rem_e3_dead_after_the_decision_another_clean_ends_it(clustering: Stage) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    files = clustering.data_files()
    clustering.start(
        "clean", kill_at=FIRST_ENTRY, after=True, clock_ms=AFTER_DELAY_MS
    ).wait_killed()
    assert clustering.data_files() == files
    assert refused(clustering.start().answer(), touched=True)
    assert clustering.history == "cR"
    cleaned(clustering, clock_ms=AFTER_EXPIRY_MS)
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


@pytest.mark.parametrize("kill_at", [HEARTBEAT, FIRST_ENTRY])
def test_rem_e4_a_clean_that_died_before_its_decision_decided_nothing(
    clustering: Stage, kill_at: At
) -> None:
    clustering.start("clean", kill_at=kill_at, clock_ms=AFTER_DELAY_MS).wait_killed()
    assert executed(clustering, clustering.start(clock_ms=AFTER_EXPIRY_MS).answer())
    assert clustering.history == "cC"
    clustering.check()


def test_rem_e5_of_several_cleans_one_rolls_back(clustering: Stage) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    first = clustering.start("clean", stop_at=FIRST_ENTRY, clock_ms=AFTER_EXPIRY_MS).wait_stopped()
    others = [clustering.start("clean") for _ in range(2)]
    assert all("error" not in other.answer() for other in others)
    assert clustering.history == "c", "one clean is at it, and the others see its heartbeat"
    assert "error" not in first.wake()
    assert clustering.history == "cR"
    assert len(clustering.instants("rollback")) == 1
    assert removed(clustering)
    clustering.check()


def test_rem_e5_cleans_that_start_together_roll_back_once(clustering: Stage) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    cleans = [clustering.start("clean", clock_ms=AFTER_DELAY_MS) for _ in range(3)]
    assert all("error" not in clean.answer() for clean in cleans)
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


@pytest.mark.parametrize(
    ("stop_at", "after"), [(INFLIGHT, False), (DATA_FILE, False), (SECOND_ENTRY, False)]
)
def test_rem_zombie_whose_plan_was_removed_changes_nothing(
    clustering: Stage, stop_at: At, after: bool
) -> None:
    x = clustering.start(stop_at=stop_at, after=after).wait_stopped()
    cleaned(clustering, clock_ms=AFTER_EXPIRY_MS)
    assert clustering.history == "cR"
    assert refused(x.wake(), touched=True)
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


def test_rem_zombie_clean_does_no_harm_to_what_is_planned_next(clustering: Stage) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    clean = clustering.start(
        "clean", stop_at=At("delete", ".parquet"), clock_ms=AFTER_EXPIRY_MS
    ).wait_stopped()
    told = clustering.start("cluster").answer()
    assert len(told["executed"]) == 1
    assert "error" not in clean.wake()
    assert clustering.history == "cR"
    clustering.check()


def test_mix_1_a_writer_does_not_wait_and_the_clustering_gives_way(clustering: Stage) -> None:
    x = clustering.start(stop_at=SECOND_ENTRY).wait_stopped()
    began = time.monotonic()
    assert "error" not in clustering.start("write", rows={"a": 9}).answer()
    assert time.monotonic() - began < 60
    clustering.rows |= {"a": 9}
    assert clustering.read() == clustering.rows
    told = x.wake()
    assert told["error"] == "WriteConflict"
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


def test_mix_1_log_files_on_top_of_a_compaction_stay_there(compacting: Stage) -> None:
    x = compacting.start(stop_at=SECOND_ENTRY).wait_stopped()
    assert "error" not in compacting.start("write", rows={"a": 9}).answer()
    compacting.rows |= {"a": 9}
    assert compacting.read() == compacting.rows
    assert executed(compacting, x.wake())
    assert compacting.history == "cC"
    compacting.check()


LOCK = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
    ),
}


def test_mix_2_who_lost_the_tables_lock_publishes_nothing(clustering: Stage) -> None:
    x = clustering.start(stop_at=SECOND_ENTRY, options=LOCK).wait_stopped()
    # The lock is taken from the sleeper; a writer that is not in its way takes it and commits.
    clustering.store.delete(".hoodie/.locks/table_lock.json")
    told = clustering.start("write", options=LOCK, rows={"z": 9}).answer()
    assert "error" not in told, told
    clustering.rows |= {"z": 9}
    told = x.wake()
    assert told["error"] in ("Fenced", "HoldingLost"), told
    assert "C" not in clustering.history
    clustering.check()


@pytest.mark.parametrize("skew_ms", [-4 * MINUTE_MS, 10 * MINUTE_MS])
def test_mix_3_nobody_is_taken_for_dead_while_clocks_differ_by_less_than_a_life(
    compacting: Stage, skew_ms: int
) -> None:
    x = compacting.start(stop_at=DATA_FILE, after=True).wait_stopped()
    _skew(compacting, skew_ms)
    assert refused(compacting.start().answer())
    assert executed(compacting, x.wake())
    compacting.check()


def test_mix_3_taken_for_dead_by_a_wrong_clock_costs_work_and_no_data(compacting: Stage) -> None:
    x = compacting.start(stop_at=DATA_FILE, after=True).wait_stopped()
    _skew(compacting, -10 * MINUTE_MS)
    assert executed(compacting, compacting.start().answer())
    assert refused(x.wake(), touched=True)
    assert compacting.history == "crcC"
    compacting.check()


def _skew(stage: Stage, skew_ms: int) -> None:
    """Let the store say that the heartbeat was written at another time."""
    path = stage.store.local_path(heartbeat_key(stage.instant))
    assert path is not None
    when_s = time.time() + skew_ms / 1000
    os.utime(path, (when_s, when_s))
