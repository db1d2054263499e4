from __future__ import annotations

from tests.unit.tableservice.pieces import MB, piece
from tidelock.tableservice.clustering.plan import Sizes, plan_clustering


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
