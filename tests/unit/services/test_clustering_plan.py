from __future__ import annotations

import re

import pytest

from tests.unit.doubles import ManualClock
from tests.unit.services.file_slices import MB, piece
from tidelock.core.errors import ConfigInvalid
from tidelock.execution.filegroup.clustering import LayoutStrategy
from tidelock.services.clustering import (
    Cluster,
    ClusteringRule,
    PartitionFilter,
    PartitionSelection,
    plan_clustering,
)
from tidelock.services.config import clustering_layout, clustering_rule


def test_small_files_of_a_partition_are_grouped() -> None:
    slices = [piece("a"), piece("b"), piece("c", partition="q"), piece("d", partition="q")]
    clusters = plan_clustering(slices, ClusteringRule())
    assert [(c.partition, [p.file_id for p in c.slices], c.outputs) for c in clusters] == [
        ("p", ["a", "b"], 1),
        ("q", ["c", "d"], 1),
    ]


def test_large_files_and_those_of_other_plans_are_skipped() -> None:
    slices = [piece("a", size_mb=400), piece("b"), piece("c"), piece("d")]
    (cluster,) = plan_clustering(slices, ClusteringRule(), busy={("p", "d")})
    assert [p.file_id for p in cluster.slices] == ["b", "c"]


def test_single_file_is_rewritten_only_if_enabled() -> None:
    assert plan_clustering([piece("a")], ClusteringRule()) == ()
    assert len(plan_clustering([piece("a")], ClusteringRule(single_files=True))) == 1


def test_group_is_bounded_by_its_size_limit() -> None:
    slices = [piece(name, size_mb=10) for name in "abcde"]
    clusters = plan_clustering(slices, ClusteringRule(group_bytes_max=20 * MB, single_files=True))
    assert [len(c.slices) for c in clusters] == [2, 2, 1]


def test_outputs_follow_the_target_size() -> None:
    slices = [piece(name, size_mb=10) for name in "abcde"]
    (cluster,) = plan_clustering(slices, ClusteringRule(target_bytes=20 * MB))
    assert cluster.outputs == 3


def test_number_of_groups_in_a_plan_is_limited() -> None:
    slices = [piece(name, size_mb=10) for name in "abcdef"]
    clusters = plan_clustering(slices, ClusteringRule(group_bytes_max=20 * MB, groups_max=2))
    assert len(clusters) == 2


def test_groups_without_a_base_file_wait_for_their_compaction() -> None:
    assert (
        plan_clustering([piece("a", size_mb=None, logs_mb=(1,)), piece("b")], ClusteringRule())
        == ()
    )


def partitions_of(clusters: tuple[Cluster, ...]) -> list[str]:
    return [cluster.partition for cluster in clusters]


DAYS = [f"2024-01-{day:02}" for day in range(1, 31)]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (PartitionFilter(), DAYS),
        (PartitionFilter(PartitionSelection.RECENT_DAYS), DAYS[-2:]),
        (PartitionFilter(PartitionSelection.RECENT_DAYS, recent=3, skipped=1), DAYS[-4:-1]),
        (PartitionFilter(PartitionSelection.RECENT_DAYS, recent=0, skipped=1), DAYS[:-1]),
        (
            PartitionFilter(PartitionSelection.SELECTED_PARTITIONS, begin=DAYS[3], end=DAYS[5]),
            DAYS[3:6],
        ),
        (PartitionFilter(PartitionSelection.SELECTED_PARTITIONS, begin=DAYS[27]), DAYS[27:]),
        (PartitionFilter(PartitionSelection.SELECTED_PARTITIONS, end=DAYS[1]), DAYS[:2]),
        (PartitionFilter(PartitionSelection.DAY_ROLLING, hour=4), [DAYS[4], DAYS[28]]),
        (PartitionFilter(selected=frozenset({DAYS[7], "no such"})), [DAYS[7]]),
        (PartitionFilter(pattern=r"2024-01-1."), DAYS[9:19]),
        (
            PartitionFilter(PartitionSelection.RECENT_DAYS, recent=1, pattern=r"2024-01-1."),
            [DAYS[18]],
        ),
    ],
)
def test_partitions_are_chosen_by_the_settings(
    chosen: PartitionFilter, expected: list[str]
) -> None:
    slices = [piece(name, partition=day) for day in DAYS for name in "ab"]
    sizes = ClusteringRule(partitions=chosen, groups_max=100)
    assert partitions_of(plan_clustering(slices, sizes)) == expected


def test_sort_only_mode_keeps_files_separate() -> None:
    slices = [piece(name) for name in "abc"]
    clusters = plan_clustering(slices, ClusteringRule(file_by_file=True))
    assert [[p.file_id for p in cluster.slices] for cluster in clusters] == [["a"], ["b"], ["c"]]


CLOCK = ManualClock()
HOUR = 22
"""The partition of the day that the clock shows."""
STRATEGY = "hoodie.clustering.plan.strategy.class"
PACKAGE = "org.apache.hudi.client.clustering.plan.strategy"
SORTED = {"hoodie.clustering.plan.strategy.sort.columns": "a, b"}


def test_hudi_strategy_classes_choose_as_in_hudi() -> None:
    by_size = clustering_rule({STRATEGY: f"{PACKAGE}.JavaSizeBasedClusteringPlanStrategy"}, CLOCK)
    assert (by_size.partitions.mode, by_size.partitions.hour) == (PartitionSelection.NONE, HOUR)
    recent = clustering_rule({STRATEGY: "SparkRecentDaysClusteringPlanStrategy"}, CLOCK)
    assert recent.partitions.mode is PartitionSelection.RECENT_DAYS
    single = clustering_rule({STRATEGY: "SparkSingleFileSortPlanStrategy", **SORTED}, CLOCK)
    assert single.file_by_file
    mode = {"hoodie.clustering.plan.partition.filter.mode": "day_rolling"}
    assert clustering_rule(mode, CLOCK).partitions.mode is PartitionSelection.DAY_ROLLING


def test_single_file_is_clustered_by_default_only_to_sort_it() -> None:
    key = "hoodie.clustering.plan.strategy.single.group.clustering.enabled"
    assert [
        clustering_rule(settings, CLOCK).single_files
        for settings in ({}, SORTED, {key: "true"}, {**SORTED, key: "false"})
    ] == [False, True, True, False]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({STRATEGY: "a.b.MyOwnStrategy"}, "got 'a.b.MyOwnStrategy'"),
        ({STRATEGY: "SparkSingleFileSortPlanStrategy"}, "needs sort columns"),
        ({"hoodie.clustering.plan.partition.filter.mode": "x"}, "got 'x'"),
        (
            {"hoodie.clustering.plan.strategy.partition.regex.pattern": "("},
            "pattern: expected a regular expression",
        ),
    ],
)
def test_unknown_strategy_is_reported(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape(message)):
        clustering_rule(settings, CLOCK)


def test_layouts_have_the_names_of_hudi() -> None:
    key = "hoodie.layout.optimize.strategy"
    names = ("linear", "z-order", "ZORDER", "Hilbert")
    found = [clustering_layout({key: name}) for name in names]
    assert found == [
        LayoutStrategy.LINEAR,
        LayoutStrategy.Z_ORDER,
        LayoutStrategy.Z_ORDER,
        LayoutStrategy.HILBERT,
    ]
    with pytest.raises(
        ConfigInvalid, match="expected one of linear, z-order, hilbert, got 'spiral'"
    ):
        clustering_layout({key: "spiral"})
