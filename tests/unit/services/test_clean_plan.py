from __future__ import annotations

from collections.abc import Mapping

from tests.unit.services.file_slices import at, base, done, group, piece
from tidelock.hudi.file_groups import DataFile, FileGroup
from tidelock.services.clean import (
    CleanPolicy,
    RetainedFiles,
    Retention,
    earliest_to_retain,
    files_to_delete,
)

COMMITS = [done(number) for number in range(1, 7)]


def names(found: Mapping[str, tuple[DataFile, ...]]) -> list[str]:
    return [file.name for files in found.values() for file in files]


def test_oldest_of_the_last_commits_is_retained() -> None:
    assert earliest_to_retain(Retention(commits=2), COMMITS, ()) == COMMITS[4]


def test_few_commits_are_all_retained() -> None:
    assert earliest_to_retain(Retention(commits=6), COMMITS, ()) is None


def test_nothing_after_the_start_of_a_pending_write_is_cleaned() -> None:
    assert earliest_to_retain(Retention(commits=2), COMMITS, [at(3)]) == COMMITS[2]
    assert earliest_to_retain(Retention(commits=2), COMMITS, [at(0)]) is None


def test_retention_by_hours_keeps_the_commits_since_then() -> None:
    keep = Retention(CleanPolicy.HOURS, since=at(4))
    assert earliest_to_retain(keep, COMMITS, ()) == COMMITS[3]


def test_retention_by_hours_keeps_the_last_commit_of_any_age() -> None:
    keep = Retention(CleanPolicy.HOURS, since=at(99))
    assert earliest_to_retain(keep, COMMITS, ()) == COMMITS[5]


def test_slices_older_than_the_earliest_retained_one_are_cleaned() -> None:
    found = files_to_delete([group("a", 1, 2, 4, 6)], Retention(), RetainedFiles(), done(5))
    assert names(found) == [base("a", 1).name, base("a", 2).name]


def test_newest_slice_stays_at_any_age() -> None:
    assert files_to_delete([group("a", 1)], Retention(), RetainedFiles(), done(5)) == {}


def test_group_that_began_later_is_untouched() -> None:
    assert files_to_delete([group("a", 6)], Retention(), RetainedFiles(), done(5)) == {}


def test_log_files_are_cleaned_with_their_slice() -> None:
    old = piece("a", 1, logs_mb=(1, 1))
    found = files_to_delete(
        [FileGroup("p", "a", (old, piece("a", 4)))], Retention(), RetainedFiles(), done(5)
    )
    assert len(names(found)) == 3


def test_replaced_groups_are_cleaned_once_older_than_the_retained_history() -> None:
    kept = RetainedFiles(replaced={("p", "a"): at(3), ("p", "b"): at(5)})
    found = files_to_delete([group("a", 1, 2), group("b", 1)], Retention(), kept, done(5))
    assert names(found) == [base("a", 1).name, base("a", 2).name]


def test_retention_by_versions_keeps_that_many() -> None:
    keep = Retention(CleanPolicy.VERSIONS, versions=2)
    found = files_to_delete([group("a", 1, 2, 3, 4)], keep, RetainedFiles(), None)
    assert names(found) == [base("a", 1).name, base("a", 2).name]


def test_retention_by_versions_removes_a_replaced_group_completely() -> None:
    keep = Retention(CleanPolicy.VERSIONS, versions=2)
    kept = RetainedFiles(replaced={("p", "a"): at(3)})
    assert len(names(files_to_delete([group("a", 1, 2)], keep, kept, None))) == 2


def test_files_needed_by_savepoints_and_pending_plans_stay() -> None:
    kept = RetainedFiles(
        files=frozenset({base("a", 1).key}), slices=frozenset({(("p", "a"), at(2))})
    )
    found = files_to_delete([group("a", 1, 2, 3, 5)], Retention(), kept, done(5))
    assert names(found) == [base("a", 3).name]
