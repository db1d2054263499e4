"""Hudi's own strategies, for those who want exactly them."""

from __future__ import annotations

import pytest

from tests.unit.txn.bench import groups
from tidelock.table.timeline.instant import Action
from tidelock.txn.fold import Pending
from tidelock.txn.footprint import Deed, Footprint
from tidelock.txn.hudirules import hudi_refuses
from tidelock.txn.rules import Candidate, Past
from tidelock.txn.strategy import Strategy

EARLY, LATE = "20260101000000001", "20260101000000009"
HUDI = [Strategy.SIMPLE, Strategy.BUCKET, Strategy.PREFER_WRITER]
G, H = "00000001-aaaa-0", "00000001-bbbb-0"


def refused(
    mine: Footprint,
    other: Footprint,
    strategy: Strategy,
    *,
    other_instant: str = EARLY,
    plans: dict[str, Pending] | None = None,
) -> bool:
    """Tell whether a strategy refuses a commit after another."""
    past = [Past(1, other_instant, LATE, other)]
    return (
        hudi_refuses(Candidate("20260101000000005", mine), past, plans or {}, strategy) is not None
    )


@pytest.mark.parametrize("strategy", HUDI)
def test_an_overlap_is_refused(strategy: Strategy) -> None:
    assert refused(Footprint(Deed.UPSERT, groups(G)), Footprint(Deed.UPSERT, groups(G)), strategy)
    elsewhere = Footprint(Deed.UPSERT, groups("00000002-cccc-0"))
    assert not refused(Footprint(Deed.UPSERT, groups(G)), elsewhere, strategy)


def test_only_the_bucket_strategy_compares_buckets() -> None:
    mine, other = Footprint(Deed.UPSERT, groups(G)), Footprint(Deed.UPSERT, groups(H))
    assert refused(mine, other, Strategy.BUCKET)
    assert not refused(mine, other, Strategy.SIMPLE)


@pytest.mark.parametrize("strategy", HUDI)
def test_a_completed_compaction_does_not_refuse_a_writer(strategy: Strategy) -> None:
    other = Footprint(Deed.COMPACTION, groups(G))
    for instant in (EARLY, LATE):
        mine = Footprint(Deed.UPSERT, groups(G))
        assert not refused(mine, other, strategy, other_instant=instant)


def test_a_pending_clustering_refuses_writers_unless_they_are_preferred() -> None:
    plan = Pending(EARLY, Action.CLUSTERING, groups(G), removable=False, position=1)
    mine, nothing = Footprint(Deed.UPSERT, groups(G)), Footprint(Deed.CLEAN)
    assert refused(mine, nothing, Strategy.SIMPLE, plans={EARLY: plan})
    assert not refused(mine, nothing, Strategy.PREFER_WRITER, plans={EARLY: plan})


def test_a_clustering_is_checked_only_where_writers_are_preferred() -> None:
    mine = Footprint(Deed.CLUSTERING, replaced=groups(G))
    other = Footprint(Deed.UPSERT, groups(G))
    assert refused(mine, other, Strategy.PREFER_WRITER)
    assert not refused(mine, other, Strategy.SIMPLE)


def test_the_replaced_groups_of_a_deleted_partition_are_not_counted() -> None:
    mine = Footprint(Deed.DELETE_PARTITION, replaced=groups(G), intents=frozenset({"day=1"}))
    assert not refused(mine, Footprint(Deed.UPSERT, groups(G)), Strategy.SIMPLE)
    overwrite = Footprint(Deed.OVERWRITE, replaced=groups(G), intents=frozenset({"day=1"}))
    assert refused(overwrite, Footprint(Deed.UPSERT, groups(G)), Strategy.SIMPLE)


def test_a_log_compaction_gives_nobody_a_conflict_but_a_later_compaction() -> None:
    mine = Footprint(Deed.LOG_COMPACTION, groups(G))
    assert not refused(mine, Footprint(Deed.UPSERT, groups(G)), Strategy.SIMPLE)
    compaction = Footprint(Deed.COMPACTION, groups(G))
    assert refused(mine, compaction, Strategy.SIMPLE, other_instant=LATE)
    assert not refused(mine, compaction, Strategy.SIMPLE, other_instant=EARLY)
