"""RFC-79, removable plans: every scenario, with clusterings, and with concurrent writers.

The heartbeat of a killed or stopped process is alive for a process that checks at once, and expired
for one that comes `AFTER_EXPIRY_MS` later by its own clock. For one that comes `AFTER_DELAY_MS`
later, the plan is old as well. The letters of `Stage.history`: c claimed, R rolled back, C
committed.
"""

from __future__ import annotations

import os
import time

import pytest

from testkit.servicescenes.roles import (
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
from testkit.servicescenes.stage import Stage
from tests.process.test_immutable_plans import DONE, executed, refused
from tidelock.txn.heartbeats import heartbeat_key


def cleaned(stage: Stage, *, clock_ms: int = 0) -> None:
    result = stage.start("clean", clock_ms=clock_ms).result()
    assert "error" not in result, result


def removed(stage: Stage) -> bool:
    """Return whether nothing is left of the plan."""
    assert stage.states() == []
    assert stage.data_files() == set()
    assert stage.heartbeat() is None
    return True


def test_rem_a1_one_of_many_concurrent_executors_executes(clustering: Stage) -> None:
    actors = [clustering.start() for _ in range(4)]
    result = [actor.result() for actor in actors]
    winners = [each for each in result if each["executed"]]
    assert len(winners) == 1
    assert all(refused(each, touched=True) for each in result if each not in winners)
    assert clustering.history == "cC"
    assert clustering.states() == DONE
    clustering.check()


def test_rem_a2_killed_before_the_claim_another_executes(clustering: Stage) -> None:
    clustering.start(kill_at=FIRST_ENTRY).wait_killed()
    assert clustering.states() == ["REQUESTED"]
    assert refused(clustering.start().result())
    assert executed(clustering, clustering.start(clock_ms=AFTER_EXPIRY_MS).result())
    assert clustering.history == "cC"
    clustering.check()


def test_rem_a2_killed_between_claim_and_inflight_it_counts_as_begun(clustering: Stage) -> None:
    # Two attempts would write separate file groups, and readers that list would read the rows of
    # both: a removable plan is claimed once.
    clustering.start(kill_at=INFLIGHT).wait_killed()
    assert refused(clustering.start(clock_ms=AFTER_EXPIRY_MS).result())
    cleaned(clustering, clock_ms=AFTER_EXPIRY_MS)
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


def test_rem_b1_live_executor_is_left_alone(clustering: Stage) -> None:
    x = clustering.start(stop_at=DATA_FILE, after=True).wait_stopped()
    result = clustering.start().result()
    assert refused(result)
    assert "is executing it" in result["message"]
    assert executed(clustering, x.resume())
    assert refused(clustering.start().result())
    assert clustering.history == "cC"
    clustering.check()


def test_rem_b2_plan_of_a_dead_executor_is_never_executed_again(clustering: Stage) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    for clock_ms in (0, AFTER_EXPIRY_MS, AFTER_DELAY_MS):
        assert refused(clustering.start(clock_ms=clock_ms).result())
    assert clustering.history == "c"
    cleaned(clustering, clock_ms=AFTER_EXPIRY_MS)
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


def test_rem_c_old_inflight_plan_is_left_alone(clustering: Stage) -> None:
    clustering.start(kill_at=INFLIGHT, after=True).wait_killed()
    clustering.store.delete(heartbeat_key(clustering.instant))
    actors = [clustering.start() for _ in range(2)]
    assert all(refused(actor.result()) for actor in actors)
    assert clustering.heartbeat() is None
    assert clustering.states() == ["INFLIGHT", "REQUESTED"]
    assert clustering.history == "c"


@pytest.mark.parametrize("clock_ms", [0, MINUTE_MS])
def test_rem_d1_clean_leaves_a_plan_that_is_being_executed(
    clustering: Stage, clock_ms: int
) -> None:
    x = clustering.start(stop_at=DATA_FILE, after=True).wait_stopped()
    files, held = clustering.data_files(), clustering.heartbeat()
    cleaned(clustering, clock_ms=clock_ms)
    assert (clustering.data_files(), clustering.heartbeat()) == (files, held)
    assert executed(clustering, x.resume())
    clustering.check()


@pytest.mark.parametrize("clock_ms", [0, AFTER_EXPIRY_MS])
def test_rem_d2_rem_e1_clean_leaves_a_recent_plan(clustering: Stage, clock_ms: int) -> None:
    cleaned(clustering, clock_ms=clock_ms)
    assert clustering.states() == ["REQUESTED"]
    assert clustering.heartbeat() is None
    assert executed(clustering, clustering.start().result())
    assert clustering.history == "cC"
    clustering.check()


def test_rem_d3_rem_e2_clean_removes_an_old_plan_and_nobody_executes_it(
    clustering: Stage,
) -> None:
    cleaned(clustering, clock_ms=AFTER_DELAY_MS)
    assert clustering.history == "R"
    assert removed(clustering)
    result = clustering.start().result()
    assert refused(result)
    assert "not pending" in result["message"]
    assert removed(clustering)
    clustering.check()


def test_rem_d4_plan_claimed_just_before_the_clean_decides_stays(clustering: Stage) -> None:
    x = clustering.start(stop_at=FIRST_ENTRY).wait_stopped()
    cleaned(clustering)
    assert clustering.states() == ["REQUESTED"]
    assert executed(clustering, x.resume())
    assert clustering.history == "cC"
    clustering.check()


@pytest.mark.parametrize("clean_at", [HEARTBEAT, FIRST_ENTRY])
def test_rem_d4_concurrent_claim_and_removal_have_one_winner(
    clustering: Stage, clean_at: At
) -> None:
    old = {"hoodie.clustering.expiration.threshold.mins": "0"}
    clean = clustering.start("clean", stop_at=clean_at, options=old).wait_stopped()
    result = clustering.start().result()
    clean.resume()
    if clean_at is HEARTBEAT:
        # The clean has not announced itself: the executor finishes before the clean checks again.
        assert executed(clustering, result)
        assert clustering.history == "cC"
    else:
        assert refused(result)
        assert clustering.history == "R"
        assert removed(clustering)
    clustering.check()


@pytest.mark.parametrize("clock_ms", [AFTER_EXPIRY_MS, AFTER_DELAY_MS], ids=["d6_young", "d5_old"])
def test_rem_d5_rem_d6_clean_removes_the_plan_of_a_dead_executor(
    clustering: Stage, clock_ms: int
) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    cleaned(clustering)
    assert clustering.states() == ["INFLIGHT", "REQUESTED"], "its heartbeat is alive"
    cleaned(clustering, clock_ms=clock_ms)
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


def test_rem_e3_clean_killed_after_its_decision_is_finished_by_another(clustering: Stage) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    files = clustering.data_files()
    clustering.start(
        "clean", kill_at=FIRST_ENTRY, after=True, clock_ms=AFTER_DELAY_MS
    ).wait_killed()
    assert clustering.data_files() == files
    assert refused(clustering.start().result(), touched=True)
    assert clustering.history == "cR"
    cleaned(clustering, clock_ms=AFTER_EXPIRY_MS)
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


@pytest.mark.parametrize("kill_at", [HEARTBEAT, FIRST_ENTRY])
def test_rem_e4_clean_killed_before_its_decision_decided_nothing(
    clustering: Stage, kill_at: At
) -> None:
    clustering.start("clean", kill_at=kill_at, clock_ms=AFTER_DELAY_MS).wait_killed()
    assert executed(clustering, clustering.start(clock_ms=AFTER_EXPIRY_MS).result())
    assert clustering.history == "cC"
    clustering.check()


def test_rem_e5_one_of_several_cleans_rolls_back(clustering: Stage) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    first = clustering.start("clean", stop_at=FIRST_ENTRY, clock_ms=AFTER_EXPIRY_MS).wait_stopped()
    others = [clustering.start("clean") for _ in range(2)]
    assert all("error" not in other.result() for other in others)
    assert clustering.history == "c", "one clean is at it, and the others see its heartbeat"
    assert "error" not in first.resume()
    assert clustering.history == "cR"
    assert len(clustering.instants("rollback")) == 1
    assert removed(clustering)
    clustering.check()


def test_rem_e5_concurrent_cleans_roll_back_once(clustering: Stage) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    cleans = [clustering.start("clean", clock_ms=AFTER_DELAY_MS) for _ in range(3)]
    assert all("error" not in clean.result() for clean in cleans)
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
    assert refused(x.resume(), touched=True)
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


def test_rem_zombie_clean_does_not_affect_the_next_plan(clustering: Stage) -> None:
    clustering.start(kill_at=DATA_FILE, after=True).wait_killed()
    clean = clustering.start(
        "clean", stop_at=At("delete", ".parquet"), clock_ms=AFTER_EXPIRY_MS
    ).wait_stopped()
    result = clustering.start("cluster").result()
    assert len(result["executed"]) == 1
    assert "error" not in clean.resume()
    assert clustering.history == "cR"
    clustering.check()


def test_mix_1_writer_does_not_wait_and_the_clustering_yields(clustering: Stage) -> None:
    x = clustering.start(stop_at=SECOND_ENTRY).wait_stopped()
    began = time.monotonic()
    assert "error" not in clustering.start("write", rows={"a": 9}).result()
    assert time.monotonic() - began < 60
    clustering.rows |= {"a": 9}
    assert clustering.read() == clustering.rows
    result = x.resume()
    assert result["error"] == "WriteConflict"
    assert clustering.history == "cR"
    assert removed(clustering)
    clustering.check()


def test_mix_1_log_files_on_top_of_a_compaction_stay_there(compacting: Stage) -> None:
    x = compacting.start(stop_at=SECOND_ENTRY).wait_stopped()
    assert "error" not in compacting.start("write", rows={"a": 9}).result()
    compacting.rows |= {"a": 9}
    assert compacting.read() == compacting.rows
    assert executed(compacting, x.resume())
    assert compacting.history == "cC"
    compacting.check()


LOCK = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
    ),
}


def test_mix_2_executor_that_lost_the_table_lock_publishes_nothing(clustering: Stage) -> None:
    x = clustering.start(stop_at=SECOND_ENTRY, options=LOCK).wait_stopped()
    # The lock is taken from the suspended process; a writer without a conflict acquires it and
    # commits.
    clustering.store.delete(".hoodie/.locks/table_lock.json")
    result = clustering.start("write", options=LOCK, rows={"z": 9}).result()
    assert "error" not in result, result
    clustering.rows |= {"z": 9}
    result = x.resume()
    assert result["error"] in ("Fenced", "HoldingLost"), result
    assert "C" not in clustering.history
    clustering.check()


@pytest.mark.parametrize("skew_ms", [-4 * MINUTE_MS, 10 * MINUTE_MS])
def test_mix_3_no_executor_is_declared_dead_while_clock_skew_is_below_the_heartbeat_lifetime(
    compacting: Stage, skew_ms: int
) -> None:
    x = compacting.start(stop_at=DATA_FILE, after=True).wait_stopped()
    _skew(compacting, skew_ms)
    assert refused(compacting.start().result())
    assert executed(compacting, x.resume())
    compacting.check()


def test_mix_3_executor_declared_dead_by_a_wrong_clock_loses_work_but_no_data(
    compacting: Stage,
) -> None:
    x = compacting.start(stop_at=DATA_FILE, after=True).wait_stopped()
    _skew(compacting, -10 * MINUTE_MS)
    assert executed(compacting, compacting.start().result())
    assert refused(x.resume(), touched=True)
    assert compacting.history == "crcC"
    compacting.check()


def _skew(stage: Stage, skew_ms: int) -> None:
    """Let the store report another write time for the heartbeat."""
    path = stage.store.local_path(heartbeat_key(stage.instant))
    assert path is not None
    when_s = time.time() + skew_ms / 1000
    os.utime(path, (when_s, when_s))
