"""Plans of rollbacks, restores, TTL and cleanup: pure functions."""

from __future__ import annotations

import pytest

from tests.unit.services.file_slices import at, base, begun, done, log, piece
from tidelock.core.errors import ConfigInvalid
from tidelock.hudi.timeline.instant import Action, parse_time
from tidelock.services.archive import outdated_content, unreferenced_files
from tidelock.services.config import ttl_rule
from tidelock.services.restore import instants_to_roll_back, savepoints_among
from tidelock.services.rollback import RollbackState, rollback_blocker
from tidelock.services.savepoint import savepoint_of
from tidelock.services.ttl import TtlRule, TtlStrategy, expired_partitions
from tidelock.txn.rollback import (
    RolledBackInstant,
    restore_metadata,
    rollback_metadata,
    rollback_plan,
)

DAY_MS = 86_400_000


def test_only_the_last_commit_can_be_rolled_back() -> None:
    standing = RollbackState([done(1), done(2)], (), [])
    assert rollback_blocker(done(2), standing) is None
    assert at(2) in (rollback_blocker(done(1), standing) or "")
    assert standing.before(done(2)) == done(1)
    assert standing.before(done(1)) is None


def test_savepointed_commit_is_not_rolled_back() -> None:
    standing = RollbackState([done(1)], {at(1)}, [])
    assert "savepoint" in (rollback_blocker(done(1), standing) or "")


def test_commit_that_a_plan_depends_on_is_not_rolled_back() -> None:
    later = begun(2, Action.COMPACTION)
    assert later.requested in (
        rollback_blocker(done(1), RollbackState([done(1)], (), [later])) or ""
    )
    earlier = begun(0, Action.COMPACTION)
    assert rollback_blocker(done(1), RollbackState([done(1)], (), [earlier])) is None


def test_restore_rolls_back_by_completion_newest_first() -> None:
    late = begun(0).done(at(5))
    taken = instants_to_roll_back([late, done(1), done(2), done(3)], done(1))
    assert [each.requested for each in taken.completed] == [late.requested, at(3), at(2)]
    assert taken.pending == ()


def test_restore_rolls_back_pending_instants_except_earlier_plans() -> None:
    before, after = begun(0, Action.COMPACTION), begun(3, Action.COMPACTION)
    writing = begun(0, Action.DELTA_COMMIT)
    taken = instants_to_roll_back([before, writing, done(1), done(2), after], done(1))
    assert set(taken.pending) == {after, writing}
    assert taken.instants[-1] == done(2)


def test_cleans_and_rollbacks_are_not_rolled_back() -> None:
    taken = instants_to_roll_back(
        [done(1), done(2, Action.CLEAN), done(3, Action.ROLLBACK)], done(1)
    )
    assert taken.instants == ()


def test_savepoint_after_the_target_is_reported() -> None:
    taken = instants_to_roll_back([done(1), done(2)], done(1))
    assert savepoints_among([done(2, Action.SAVEPOINT)], taken) == (at(2),)
    assert savepoints_among([done(1, Action.SAVEPOINT)], taken) == ()


def test_savepoint_lists_base_and_log_files_by_partition() -> None:
    metadata = savepoint_of(
        [piece("f", 1, logs_mb=(1,)), piece("g", 2, partition="q")],
        by="me",
        comment="why",
        at_epoch_ms=7,
    )
    assert (metadata.savepointed_by, metadata.comments, metadata.savepointed_at) == ("me", "why", 7)
    assert metadata.partition_metadata["p"].savepoint_data_file == (
        log("f", 2).name,
        base("f", 1).name,
    )
    assert metadata.partition_metadata["q"].savepoint_data_file == (base("g", 2).name,)


def test_rollback_metadata_has_absolute_paths_by_partition() -> None:
    plan = rollback_plan("1", "commit", ["b/y", "a/x"], base="s3://t")
    requests = plan.rollback_requests or ()
    assert [(r.partition_path, r.files_to_be_deleted) for r in requests] == [
        ("a", ("s3://t/a/x",)),
        ("b", ("s3://t/b/y",)),
    ]
    undone = (
        RolledBackInstant("1", ("a/x", "b/y")),
        RolledBackInstant("2", ("a/z",), "deltacommit"),
    )
    done_ = rollback_metadata("9", undone, took_ms=3, base="s3://t")
    assert done_.total_files_deleted == 3
    assert done_.commits_rollback == ("1", "2")
    assert done_.partition_metadata["a"].success_delete_files == ("s3://t/a/x", "s3://t/a/z")
    metadata = restore_metadata("9", undone, took_ms=3, base="s3://t")
    assert set(metadata.hoodie_restore_metadata) == {"1", "2"}
    assert [each.action for each in metadata.restore_instant_info] == ["commit", "deltacommit"]


def test_partitions_expire_by_age_oldest_first() -> None:
    times = {"new": at(9), "old": at(1), "older": at(0)}
    now = parse_time(at(1)) + DAY_MS + 500
    found = expired_partitions(times, TtlRule(days=1), now_epoch_ms=now)
    assert found == ("older", "old")
    assert expired_partitions(times, TtlRule(days=1, most=1), now_epoch_ms=now) == ("older",)
    chosen = TtlRule(days=1, selected=frozenset({"old", "new"}))
    assert expired_partitions(times, chosen, now_epoch_ms=now) == ("old",)


def test_nothing_expires_without_days() -> None:
    assert ttl_rule({}) is None
    days = {"hoodie.partition.ttl.strategy.days.retain": "3"}
    assert ttl_rule(days) == TtlRule(3, TtlStrategy.LAST_WRITE)
    by_class = {**days, "hoodie.partition.ttl.strategy.class": "x.y.KeepByCreationTimeStrategy"}
    assert ttl_rule(by_class) == TtlRule(3, TtlStrategy.CREATION)


@pytest.mark.parametrize(
    "given",
    [
        {"hoodie.partition.ttl.management.strategy.type": "KEEP_FOR_EVER"},
        {"hoodie.partition.ttl.strategy.class": "com.example.Mine"},
        {"hoodie.partition.ttl.strategy.max.delete.partitions": "0"},
    ],
)
def test_unknown_strategy_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid):
        ttl_rule(given)


def test_uncommitted_files_of_dead_attempts_are_orphans() -> None:
    first, second = f"p/f_0-1-0_{at(1)}.parquet", f"p/f_0-2-0_{at(1)}.parquet"
    aborted = f"p/f_0-5-0_{at(2)}.parquet"
    named = {at(1): frozenset({second})}
    for only_our_writers in (True, False):
        assert unreferenced_files(
            [first, second, aborted], named, only_our_writers=only_our_writers
        ) == (first, aborted)
    same = f"p/g_7-2-0_{at(1)}.parquet"
    assert unreferenced_files([same], named, only_our_writers=True) == (same,)
    assert unreferenced_files([same], named, only_our_writers=False) == ()


def test_contents_are_outdated_once_they_are_archived() -> None:
    assert outdated_content(f"{at(1)}-ab12", archived=at(2), boundary=0)
    assert not outdated_content(f"{at(2)}-ab12", archived=at(2), boundary=0)
    assert outdated_content("plan-7-ab12", archived="", boundary=8)
    assert not outdated_content("plan-8-ab12", archived=at(2), boundary=8)
    assert not outdated_content("README", archived=at(2), boundary=8)
