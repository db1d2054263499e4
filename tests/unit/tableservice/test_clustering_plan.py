from __future__ import annotations

import re

import pytest

from tests.unit.doubles import ManualClock
from tests.unit.tableservice.pieces import MB, piece
from tidelock.base.errors import ConfigInvalid
from tidelock.kernel.curve import Layout
from tidelock.tableservice.clustering.config import clustering_layout, clustering_sizes
from tidelock.tableservice.clustering.partitions import Chosen, Mode
from tidelock.tableservice.clustering.plan import Cluster, Sizes, plan_clustering


def test_small_files_of_a_partition_are_put_together() -> None:
    slices = [piece("a"), piece("b"), piece("c", partition="q"), piece("d", partition="q")]
    clusters = plan_clustering(slices, Sizes())
    assert [(c.partition, [p.file_id for p in c.slices], c.outputs) for c in clusters] == [
        ("p", ["a", "b"], 1),
        ("q", ["c", "d"], 1),
    ]


def test_large_files_and_those_of_other_plans_are_left_alone() -> None:
    slices = [piece("a", size_mb=400), piece("b"), piece("c"), piece("d")]
    (cluster,) = plan_clustering(slices, Sizes(), busy={("p", "d")})
    assert [p.file_id for p in cluster.slices] == ["b", "c"]


def test_a_single_file_is_rewritten_only_when_asked_for() -> None:
    assert plan_clustering([piece("a")], Sizes()) == ()
    assert len(plan_clustering([piece("a")], Sizes(alone=True))) == 1


def test_a_group_takes_no_more_than_its_share() -> None:
    slices = [piece(name, size_mb=10) for name in "abcde"]
    clusters = plan_clustering(slices, Sizes(group_bytes_max=20 * MB, alone=True))
    assert [len(c.slices) for c in clusters] == [2, 2, 1]


def test_outputs_follow_the_target_size() -> None:
    slices = [piece(name, size_mb=10) for name in "abcde"]
    (cluster,) = plan_clustering(slices, Sizes(target_bytes=20 * MB))
    assert cluster.outputs == 3


def test_a_plan_has_so_many_groups_at_most() -> None:
    slices = [piece(name, size_mb=10) for name in "abcdef"]
    clusters = plan_clustering(slices, Sizes(group_bytes_max=20 * MB, groups_max=2))
    assert len(clusters) == 2


def test_groups_without_a_base_file_wait_for_their_compaction() -> None:
    assert plan_clustering([piece("a", size_mb=None, logs_mb=(1,)), piece("b")], Sizes()) == ()


def partitions_of(clusters: tuple[Cluster, ...]) -> list[str]:
    return [cluster.partition for cluster in clusters]


DAYS = [f"2024-01-{day:02}" for day in range(1, 31)]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (Chosen(), DAYS),
        (Chosen(Mode.RECENT_DAYS), DAYS[-2:]),
        (Chosen(Mode.RECENT_DAYS, recent=3, skipped=1), DAYS[-4:-1]),
        (Chosen(Mode.RECENT_DAYS, recent=0, skipped=1), DAYS[:-1]),
        (Chosen(Mode.SELECTED_PARTITIONS, begin=DAYS[3], end=DAYS[5]), DAYS[3:6]),
        (Chosen(Mode.SELECTED_PARTITIONS, begin=DAYS[27]), DAYS[27:]),
        (Chosen(Mode.SELECTED_PARTITIONS, end=DAYS[1]), DAYS[:2]),
        (Chosen(Mode.DAY_ROLLING, hour=4), [DAYS[4], DAYS[28]]),
        (Chosen(selected=frozenset({DAYS[7], "no such"})), [DAYS[7]]),
        (Chosen(pattern=r"2024-01-1."), DAYS[9:19]),
        (Chosen(Mode.RECENT_DAYS, recent=1, pattern=r"2024-01-1."), [DAYS[18]]),
    ],
)
def test_partitions_are_chosen_as_asked(chosen: Chosen, expected: list[str]) -> None:
    slices = [piece(name, partition=day) for day in DAYS for name in "ab"]
    sizes = Sizes(partitions=chosen, groups_max=100)
    assert partitions_of(plan_clustering(slices, sizes)) == expected


def test_files_are_only_sorted_where_each_stays_apart() -> None:
    slices = [piece(name) for name in "abc"]
    clusters = plan_clustering(slices, Sizes(apart=True))
    assert [[p.file_id for p in cluster.slices] for cluster in clusters] == [["a"], ["b"], ["c"]]


CLOCK = ManualClock()
HOUR = 22
"""Of the day, at the time that the clock shows."""
STRATEGY = "hoodie.clustering.plan.strategy.class"
PACKAGE = "org.apache.hudi.client.clustering.plan.strategy"
SORTED = {"hoodie.clustering.plan.strategy.sort.columns": "a, b"}


def test_hudis_classes_choose_what_they_choose_there() -> None:
    by_size = clustering_sizes({STRATEGY: f"{PACKAGE}.JavaSizeBasedClusteringPlanStrategy"}, CLOCK)
    assert (by_size.partitions.mode, by_size.partitions.hour) == (Mode.NONE, HOUR)
    recent = clustering_sizes({STRATEGY: "SparkRecentDaysClusteringPlanStrategy"}, CLOCK)
    assert recent.partitions.mode is Mode.RECENT_DAYS
    single = clustering_sizes({STRATEGY: "SparkSingleFileSortPlanStrategy", **SORTED}, CLOCK)
    assert single.apart
    mode = {"hoodie.clustering.plan.partition.filter.mode": "day_rolling"}
    assert clustering_sizes(mode, CLOCK).partitions.mode is Mode.DAY_ROLLING


def test_a_single_file_is_clustered_by_default_only_to_sort_it() -> None:
    key = "hoodie.clustering.plan.strategy.single.group.clustering.enabled"
    assert [
        clustering_sizes(settings, CLOCK).alone
        for settings in ({}, SORTED, {key: "true"}, {**SORTED, key: "false"})
    ] == [False, True, True, False]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({STRATEGY: "a.b.MyOwnStrategy"}, "a.b.MyOwnStrategy is not known"),
        ({STRATEGY: "SparkSingleFileSortPlanStrategy"}, "no columns to sort by"),
        ({"hoodie.clustering.plan.partition.filter.mode": "x"}, "X is not one of"),
        ({"hoodie.clustering.plan.strategy.partition.regex.pattern": "("}, "pattern = "),
    ],
)
def test_what_is_not_known_is_named(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape(said)):
        clustering_sizes(settings, CLOCK)


def test_layouts_go_by_hudis_names() -> None:
    key = "hoodie.layout.optimize.strategy"
    names = ("linear", "z-order", "ZORDER", "Hilbert")
    found = [clustering_layout({key: name}) for name in names]
    assert found == [Layout.LINEAR, Layout.Z_ORDER, Layout.Z_ORDER, Layout.HILBERT]
    with pytest.raises(ConfigInvalid, match="spiral is not one of linear, z-order, hilbert"):
        clustering_layout({key: "spiral"})
