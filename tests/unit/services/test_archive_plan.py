from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.unit.services.file_slices import at, begun, done
from tidelock.core.errors import ConfigInvalid
from tidelock.hudi.timeline.instant import Action, Instant
from tidelock.services.archive import ArchiveBounds, to_archive

WRITES = [done(number) for number in range(1, 11)]


def times(instants: Iterable[Instant]) -> list[str]:
    return [instant.requested for instant in instants]


def test_nothing_is_archived_up_to_the_upper_bound() -> None:
    assert to_archive(WRITES, ArchiveBounds(3, 10)) == ()


def test_oldest_are_archived_down_to_the_lower_bound() -> None:
    assert times(to_archive(WRITES, ArchiveBounds(3, 9))) == [at(n) for n in range(1, 8)]


@pytest.mark.parametrize(
    "holding", [begun(4), begun(4, Action.COMPACTION), done(4, Action.SAVEPOINT)]
)
def test_archive_stops_at_pending_and_savepointed_instants(holding: Instant) -> None:
    instants = sorted([*WRITES[:3], *WRITES[4:], holding])
    assert times(to_archive(instants, ArchiveBounds(2, 5))) == [at(1), at(2), at(3)]


def test_archive_stops_at_required_instants() -> None:
    assert times(to_archive(WRITES, ArchiveBounds(2, 5), needed={at(3)})) == [at(1), at(2)]


def test_write_that_completed_last_stays_regardless_of_its_start() -> None:
    slow = replace(WRITES[1], completion=at(99))
    assert times(to_archive([WRITES[0], slow, *WRITES[2:]], ArchiveBounds(3, 9))) == [at(1)]


def test_replacecommit_stays_with_the_writes_that_completed_before_it() -> None:
    slow = replace(done(3, Action.REPLACE_COMMIT), completion=WRITES[7].completion + "5")
    instants = [*WRITES[:2], slow, *WRITES[3:]]
    assert times(to_archive(instants, ArchiveBounds(3, 9))) == [at(1), at(2)]
    assert times(to_archive(instants, ArchiveBounds(2, 9))) == [at(n) for n in range(1, 9)]


def test_instants_that_completed_after_a_retained_replacecommit_stay_too() -> None:
    first = replace(done(2, Action.REPLACE_COMMIT), completion=WRITES[3].completion + "5")
    second = replace(done(5, Action.REPLACE_COMMIT), completion=WRITES[7].completion + "5")
    instants = [WRITES[0], first, *WRITES[2:4], second, *WRITES[5:]]
    assert times(to_archive(instants, ArchiveBounds(3, 9))) == [at(n) for n in range(1, 5)]
    early = replace(WRITES[5], completion=WRITES[3].completion + "4")
    instants = [WRITES[0], first, *WRITES[2:4], second, early, *WRITES[6:]]
    assert times(to_archive(instants, ArchiveBounds(3, 9))) == [at(1)]


def test_cleans_and_rollbacks_are_archived_with_the_commits_around_them() -> None:
    instants = sorted([*WRITES, done(0, Action.ROLLBACK), done(9, Action.CLEAN)])
    archived = to_archive(instants, ArchiveBounds(3, 9))
    assert (at(0), Action.ROLLBACK) in [(i.requested, i.action) for i in archived]
    assert Action.CLEAN not in [i.action for i in archived]


def test_bounds_that_retain_nothing_are_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"hoodie\.keep\.min\.commits"):
        ArchiveBounds(30, 20)


def test_instants_retained_by_cleaning_are_never_archived() -> None:
    assert ArchiveBounds(20, 30).beyond_cleaning(10) == ArchiveBounds(20, 30)
    raised = ArchiveBounds(20, 30).beyond_cleaning(24)
    assert raised.least > 24
    assert raised.most > raised.least
