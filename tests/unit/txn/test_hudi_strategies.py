"""Hudi's own conflict resolution strategies."""

from __future__ import annotations

import pytest

from tests.unit.txn.bench import groups
from tidelock.hudi.timeline.instant import Action
from tidelock.txn.conflicts import ConflictStrategy, PendingTxn, hudi_conflict
from tidelock.txn.footprint import CommitKind, Footprint
from tidelock.txn.state import CommittedTxn, PendingPlan

EARLY, LATE = "20260101000000001", "20260101000000009"
HUDI = [ConflictStrategy.SIMPLE, ConflictStrategy.BUCKET, ConflictStrategy.PREFER_WRITER]
G, H = "00000001-aaaa-0", "00000001-bbbb-0"


def refused(
    mine: Footprint,
    other: Footprint,
    strategy: ConflictStrategy,
    *,
    other_instant: str = EARLY,
    plans: dict[str, PendingPlan] | None = None,
) -> bool:
    """Return whether a strategy refuses a commit after another."""
    past = [CommittedTxn(1, other_instant, LATE, other)]
    return (
        hudi_conflict(PendingTxn("20260101000000005", mine), past, plans or {}, strategy)
        is not None
    )


@pytest.mark.parametrize("strategy", HUDI)
def test_overlap_is_refused(strategy: ConflictStrategy) -> None:
    assert refused(
        Footprint(CommitKind.UPSERT, groups(G)), Footprint(CommitKind.UPSERT, groups(G)), strategy
    )
    elsewhere = Footprint(CommitKind.UPSERT, groups("00000002-cccc-0"))
    assert not refused(Footprint(CommitKind.UPSERT, groups(G)), elsewhere, strategy)


def test_only_the_bucket_strategy_compares_buckets() -> None:
    mine, other = Footprint(CommitKind.UPSERT, groups(G)), Footprint(CommitKind.UPSERT, groups(H))
    assert refused(mine, other, ConflictStrategy.BUCKET)
    assert not refused(mine, other, ConflictStrategy.SIMPLE)


@pytest.mark.parametrize("strategy", HUDI)
def test_completed_compaction_does_not_refuse_a_writer(strategy: ConflictStrategy) -> None:
    other = Footprint(CommitKind.COMPACTION, groups(G))
    for instant in (EARLY, LATE):
        mine = Footprint(CommitKind.UPSERT, groups(G))
        assert not refused(mine, other, strategy, other_instant=instant)


def test_pending_clustering_refuses_writers_unless_they_are_preferred() -> None:
    plan = PendingPlan(EARLY, Action.CLUSTERING, groups(G), removable=False, position=1)
    mine, nothing = Footprint(CommitKind.UPSERT, groups(G)), Footprint(CommitKind.CLEAN)
    assert refused(mine, nothing, ConflictStrategy.SIMPLE, plans={EARLY: plan})
    assert not refused(mine, nothing, ConflictStrategy.PREFER_WRITER, plans={EARLY: plan})


def test_clustering_is_checked_only_where_writers_are_preferred() -> None:
    mine = Footprint(CommitKind.CLUSTERING, replaced=groups(G))
    other = Footprint(CommitKind.UPSERT, groups(G))
    assert refused(mine, other, ConflictStrategy.PREFER_WRITER)
    assert not refused(mine, other, ConflictStrategy.SIMPLE)


def test_replaced_groups_of_a_deleted_partition_are_ignored() -> None:
    mine = Footprint(CommitKind.DELETE_PARTITION, replaced=groups(G), intents=frozenset({"day=1"}))
    assert not refused(mine, Footprint(CommitKind.UPSERT, groups(G)), ConflictStrategy.SIMPLE)
    overwrite = Footprint(CommitKind.OVERWRITE, replaced=groups(G), intents=frozenset({"day=1"}))
    assert refused(overwrite, Footprint(CommitKind.UPSERT, groups(G)), ConflictStrategy.SIMPLE)


def test_log_compaction_conflicts_only_with_a_later_compaction() -> None:
    mine = Footprint(CommitKind.LOG_COMPACTION, groups(G))
    assert not refused(mine, Footprint(CommitKind.UPSERT, groups(G)), ConflictStrategy.SIMPLE)
    compaction = Footprint(CommitKind.COMPACTION, groups(G))
    assert refused(mine, compaction, ConflictStrategy.SIMPLE, other_instant=LATE)
    assert not refused(mine, compaction, ConflictStrategy.SIMPLE, other_instant=EARLY)
