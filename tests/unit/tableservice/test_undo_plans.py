"""What may be rolled back, what a restore takes back, what expires, and what is swept: pure."""

from __future__ import annotations

import pytest

from tests.unit.tableservice.pieces import at, base, begun, done, log, piece
from tidelock.base.errors import ConfigInvalid
from tidelock.table.timeline.instant import Action, parse_time
from tidelock.tableservice.archive.plan import outdated_content, strays
from tidelock.tableservice.restore.plan import kept_above, to_take_back
from tidelock.tableservice.rollback.plan import Standing, in_the_way
from tidelock.tableservice.savepoint.plan import savepoint_of
from tidelock.tableservice.ttl.config import expiry
from tidelock.tableservice.ttl.plan import Expiry, Measure, expired
from tidelock.txn.undorecords import Undone, restore_metadata, rollback_metadata, rollback_plan

DAY_MS = 86_400_000


def test_only_the_last_commit_can_be_taken_back() -> None:
    standing = Standing([done(1), done(2)], (), [])
    assert in_the_way(done(2), standing) is None
    assert at(2) in (in_the_way(done(1), standing) or "")
    assert standing.before(done(2)) == done(1)
    assert standing.before(done(1)) is None


def test_a_commit_with_a_savepoint_is_not_taken_back() -> None:
    standing = Standing([done(1)], {at(1)}, [])
    assert "savepoint" in (in_the_way(done(1), standing) or "")


def test_a_commit_that_a_plan_was_made_of_is_not_taken_back() -> None:
    later = begun(2, Action.COMPACTION)
    assert later.requested in (in_the_way(done(1), Standing([done(1)], (), [later])) or "")
    earlier = begun(0, Action.COMPACTION)
    assert in_the_way(done(1), Standing([done(1)], (), [earlier])) is None


def test_a_restore_takes_back_by_completion_the_newest_first() -> None:
    late = begun(0).done(at(5))
    taken = to_take_back([late, done(1), done(2), done(3)], done(1))
    assert [each.requested for each in taken.completed] == [late.requested, at(3), at(2)]
    assert taken.pending == ()


def test_a_restore_takes_back_what_is_pending_but_plans_of_before() -> None:
    before, after = begun(0, Action.COMPACTION), begun(3, Action.COMPACTION)
    writing = begun(0, Action.DELTA_COMMIT)
    taken = to_take_back([before, writing, done(1), done(2), after], done(1))
    assert set(taken.pending) == {after, writing}
    assert taken.instants[-1] == done(2)


def test_cleans_and_roll_backs_are_not_taken_back() -> None:
    taken = to_take_back([done(1), done(2, Action.CLEAN), done(3, Action.ROLLBACK)], done(1))
    assert taken.instants == ()


def test_a_savepoint_above_the_target_is_named() -> None:
    taken = to_take_back([done(1), done(2)], done(1))
    assert kept_above([done(2, Action.SAVEPOINT)], taken) == (at(2),)
    assert kept_above([done(1, Action.SAVEPOINT)], taken) == ()


def test_a_savepoint_names_base_and_log_files_by_partition() -> None:
    said = savepoint_of(
        [piece("f", 1, logs_mb=(1,)), piece("g", 2, partition="q")],
        by="me",
        comment="why",
        at_epoch_ms=7,
    )
    assert (said.savepointed_by, said.comments, said.savepointed_at) == ("me", "why", 7)
    assert said.partition_metadata["p"].savepoint_data_file == (
        log("f", 2).name,
        base("f", 1).name,
    )
    assert said.partition_metadata["q"].savepoint_data_file == (base("g", 2).name,)


def test_records_name_absolute_paths_by_partition() -> None:
    plan = rollback_plan("1", "commit", ["b/y", "a/x"], base="s3://t")
    requests = plan.rollback_requests or ()
    assert [(r.partition_path, r.files_to_be_deleted) for r in requests] == [
        ("a", ("s3://t/a/x",)),
        ("b", ("s3://t/b/y",)),
    ]
    undone = (Undone("1", ("a/x", "b/y")), Undone("2", ("a/z",), "deltacommit"))
    done_ = rollback_metadata("9", undone, took_ms=3, base="s3://t")
    assert done_.total_files_deleted == 3
    assert done_.commits_rollback == ("1", "2")
    assert done_.partition_metadata["a"].success_delete_files == ("s3://t/a/x", "s3://t/a/z")
    whole = restore_metadata("9", undone, took_ms=3, base="s3://t")
    assert set(whole.hoodie_restore_metadata) == {"1", "2"}
    assert [each.action for each in whole.restore_instant_info] == ["commit", "deltacommit"]


def test_partitions_expire_by_their_age_the_oldest_first() -> None:
    times = {"new": at(9), "old": at(1), "older": at(0)}
    now = parse_time(at(1)) + DAY_MS + 500
    found = expired(times, Expiry(days=1), now_epoch_ms=now)
    assert found == ("older", "old")
    assert expired(times, Expiry(days=1, most=1), now_epoch_ms=now) == ("older",)
    chosen = Expiry(days=1, selected=frozenset({"old", "new"}))
    assert expired(times, chosen, now_epoch_ms=now) == ("old",)


def test_nothing_expires_without_days() -> None:
    assert expiry({}) is None
    days = {"hoodie.partition.ttl.strategy.days.retain": "3"}
    assert expiry(days) == Expiry(Measure.LAST_WRITE, 3)
    by_class = {**days, "hoodie.partition.ttl.strategy.class": "x.y.KeepByCreationTimeStrategy"}
    assert expiry(by_class) == Expiry(Measure.CREATION, 3)


@pytest.mark.parametrize(
    "given",
    [
        {"hoodie.partition.ttl.management.strategy.type": "KEEP_FOR_EVER"},
        {"hoodie.partition.ttl.strategy.class": "com.example.Mine"},
        {"hoodie.partition.ttl.strategy.max.delete.partitions": "0"},
    ],
)
def test_an_unknown_strategy_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid):
        expiry(given)


def test_files_of_dead_attempts_are_strays_and_those_that_a_commit_names_are_not() -> None:
    first, second = f"p/f_0-1-0_{at(1)}.parquet", f"p/f_0-2-0_{at(1)}.parquet"
    void = f"p/f_0-5-0_{at(2)}.parquet"
    named = {at(1): frozenset({second})}
    for alone in (True, False):
        assert strays([first, second, void], named, alone=alone) == (first, void)
    same = f"p/g_7-2-0_{at(1)}.parquet"
    assert strays([same], named, alone=True) == (same,)
    assert strays([same], named, alone=False) == ()


def test_contents_are_outdated_once_they_are_archived_past() -> None:
    assert outdated_content(f"{at(1)}-ab12", archived=at(2), boundary=0)
    assert not outdated_content(f"{at(2)}-ab12", archived=at(2), boundary=0)
    assert outdated_content("plan-7-ab12", archived="", boundary=8)
    assert not outdated_content("plan-8-ab12", archived=at(2), boundary=8)
    assert not outdated_content("README", archived=at(2), boundary=8)
