from __future__ import annotations

from collections.abc import Mapping

from tests.unit.tableservice.pieces import at, base, done, group, piece
from tidelock.table.filegroup.view import DataFile, FileGroup
from tidelock.tableservice.clean.plan import (
    Keep,
    Kept,
    Policy,
    earliest_to_retain,
    files_to_delete,
)

COMMITS = [done(number) for number in range(1, 7)]


def names(found: Mapping[str, tuple[DataFile, ...]]) -> list[str]:
    return [file.name for files in found.values() for file in files]


def test_the_oldest_of_the_last_commits_is_retained() -> None:
    assert earliest_to_retain(Keep(commits=2), COMMITS, ()) == COMMITS[4]


def test_few_commits_are_all_retained() -> None:
    assert earliest_to_retain(Keep(commits=6), COMMITS, ()) is None


def test_nothing_from_a_pending_writes_beginning_on_is_cleaned() -> None:
    assert earliest_to_retain(Keep(commits=2), COMMITS, [at(3)]) == COMMITS[2]
    assert earliest_to_retain(Keep(commits=2), COMMITS, [at(0)]) is None


def test_by_hours_the_commits_since_then_are_retained() -> None:
    keep = Keep(Policy.HOURS, since=at(4))
    assert earliest_to_retain(keep, COMMITS, ()) == COMMITS[3]


def test_by_hours_the_last_commit_stays_however_old() -> None:
    keep = Keep(Policy.HOURS, since=at(99))
    assert earliest_to_retain(keep, COMMITS, ()) == COMMITS[5]


def test_slices_before_the_one_that_the_oldest_reader_needs_go() -> None:
    found = files_to_delete([group("a", 1, 2, 4, 6)], Keep(), Kept(), done(5))
    assert names(found) == [base("a", 1).name, base("a", 2).name]


def test_the_newest_slice_stays_however_old() -> None:
    assert files_to_delete([group("a", 1)], Keep(), Kept(), done(5)) == {}


def test_a_group_that_began_later_is_untouched() -> None:
    assert files_to_delete([group("a", 6)], Keep(), Kept(), done(5)) == {}


def test_log_files_go_with_their_slice() -> None:
    old = piece("a", 1, logs_mb=(1, 1))
    found = files_to_delete([FileGroup("p", "a", (old, piece("a", 4)))], Keep(), Kept(), done(5))
    assert len(names(found)) == 3


def test_replaced_groups_go_when_their_replacement_is_older_than_the_past_that_is_kept() -> None:
    kept = Kept(replaced={("p", "a"): at(3), ("p", "b"): at(5)})
    found = files_to_delete([group("a", 1, 2), group("b", 1)], Keep(), kept, done(5))
    assert names(found) == [base("a", 1).name, base("a", 2).name]


def test_by_versions_so_many_stay() -> None:
    keep = Keep(Policy.VERSIONS, versions=2)
    found = files_to_delete([group("a", 1, 2, 3, 4)], keep, Kept(), None)
    assert names(found) == [base("a", 1).name, base("a", 2).name]


def test_by_versions_a_replaced_group_goes_whole() -> None:
    keep = Keep(Policy.VERSIONS, versions=2)
    kept = Kept(replaced={("p", "a"): at(3)})
    assert len(names(files_to_delete([group("a", 1, 2)], keep, kept, None))) == 2


def test_what_savepoints_and_pending_plans_need_stays() -> None:
    kept = Kept(files=frozenset({base("a", 1).key}), slices=frozenset({(("p", "a"), at(2))}))
    found = files_to_delete([group("a", 1, 2, 3, 5)], Keep(), kept, done(5))
    assert names(found) == [base("a", 3).name]
