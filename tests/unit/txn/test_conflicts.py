"""The conflict matrix, cell by cell."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from scripts.generate_docs import matrix_page
from tests.unit.txn.bench import groups
from tidelock.txn.conflicts import (
    RULES,
    Abort,
    CheckKeys,
    NoConflict,
    PendingTxn,
    Preempted,
    Rebase,
    ReplanReplaced,
    Verdict,
    check_conflicts,
    rules_for,
)
from tidelock.txn.footprint import CommitKind, Footprint, NewKeys, ReadDependencies
from tidelock.txn.state import CommittedTxn

P = "day=1"
KEYED = (CommitKind.UPSERT, CommitKind.DELETE)
BLIND = (CommitKind.INSERT, CommitKind.BULK_INSERT)
READING = (CommitKind.READ_WRITE,)
OVERWRITING = (CommitKind.OVERWRITE, CommitKind.OVERWRITE_TABLE, CommitKind.DELETE_PARTITION)
WRITERS = (*KEYED, *BLIND, *READING, *OVERWRITING)
MERGING = (*KEYED, *BLIND, *READING)
SERVICES = (CommitKind.COMPACTION, CommitKind.LOG_COMPACTION, CommitKind.CLUSTERING)
EARLY, LATE = "20260101000000001", "20260101000000009"


def intents(commit_kind: CommitKind) -> frozenset[str] | None:
    """Return the partitions that an operation overwrites."""
    if commit_kind is CommitKind.OVERWRITE_TABLE:
        return None
    return frozenset({P}) if commit_kind in OVERWRITING else frozenset()


def check_against(
    mine: Footprint, other: Footprint, *, instant: str = LATE, other_instant: str = EARLY
) -> Verdict:
    """Check one commit against another."""
    past = CommittedTxn(7, other_instant, "20260101000000005", other, owner="other")
    return check_conflicts(PendingTxn(instant, mine, owner="me"), [past])


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(MERGING, MERGING)))
def test_two_merges_into_one_file_group_are_rebased(mine: CommitKind, other: CommitKind) -> None:
    verdict = check_against(Footprint(mine, groups("a", "b")), Footprint(other, groups("b", "c")))
    assert isinstance(verdict, Rebase)
    assert verdict.groups == groups("b")
    assert verdict.rerun == (mine is CommitKind.READ_WRITE)


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(MERGING, OVERWRITING)))
def test_merge_into_an_overwritten_file_group_is_rebased(
    mine: CommitKind, other: CommitKind
) -> None:
    theirs = Footprint(other, replaced=groups("b"), created=groups("n"), intents=intents(other))
    verdict = check_against(Footprint(mine, groups("a", "b")), theirs)
    assert isinstance(verdict, Rebase)
    assert verdict.groups >= groups("b") or mine is CommitKind.READ_WRITE


@pytest.mark.parametrize("mine", MERGING)
def test_merge_into_a_clustered_file_group_is_rebased(mine: CommitKind) -> None:
    theirs = Footprint(CommitKind.CLUSTERING, replaced=groups("b"), created=groups("n"))
    verdict = check_against(Footprint(mine, groups("b")), theirs)
    assert isinstance(verdict, Rebase)
    assert not verdict.rerun


@pytest.mark.parametrize(
    ("mine", "other"), list(itertools.product((*WRITERS, *SERVICES), (*WRITERS, *SERVICES)))
)
def test_different_partitions_never_conflict(mine: CommitKind, other: CommitKind) -> None:
    ours = Footprint(mine, groups("p/a"), created=groups("p/n"), inserts={"p": NewKeys(None)})
    theirs = Footprint(
        other,
        groups("q/a"),
        created=groups("q/n"),
        replaced=groups("q/r"),
        inserts={"q": NewKeys(None)},
    )
    verdict = check_against(ours, theirs)
    if mine is CommitKind.READ_WRITE and other in WRITERS:
        assert isinstance(verdict, Rebase)
        assert verdict.rerun
    else:
        assert verdict == NoConflict()


@pytest.mark.parametrize(
    ("mine", "other"), list(itertools.product(KEYED, (*MERGING, *OVERWRITING)))
)
def test_one_new_key_in_two_new_file_groups_is_rebased(mine: CommitKind, other: CommitKind) -> None:
    ours = Footprint(mine, created=groups("n"), inserts={P: NewKeys(frozenset({"k", "l"}))})
    theirs = Footprint(
        other, created=groups("m"), inserts={P: NewKeys(frozenset({"k"}))}, intents=intents(other)
    )
    verdict = check_against(ours, theirs)
    if other in (CommitKind.DELETE, CommitKind.DELETE_PARTITION):
        assert verdict == NoConflict(), "a delete inserts nothing"
    else:
        assert isinstance(verdict, Rebase)
        assert verdict.groups == groups("n")


@pytest.mark.parametrize("mine", BLIND)
def test_insert_that_allows_duplicates_ignores_keys(mine: CommitKind) -> None:
    ours = Footprint(mine, created=groups("n"), inserts={P: NewKeys(frozenset({"k"}))})
    theirs = Footprint(
        CommitKind.UPSERT, created=groups("m"), inserts={P: NewKeys(frozenset({"k"}))}
    )
    assert check_against(ours, theirs) == NoConflict()


def test_unlisted_keys_are_to_be_compared() -> None:
    ours = Footprint(CommitKind.UPSERT, created=groups("n"), inserts={P: NewKeys(frozenset({"k"}))})
    theirs = Footprint(
        CommitKind.INSERT, created=groups("m"), inserts={P: NewKeys(None, ("f.parquet",))}
    )
    verdict = check_against(ours, theirs)
    assert isinstance(verdict, CheckKeys)
    (check,) = verdict.checks
    assert (check.position, check.partition, check.files) == (7, P, ("f.parquet",))
    past = CommittedTxn(7, EARLY, EARLY, theirs)
    assert check_conflicts(PendingTxn(LATE, ours), [past], cleared={7}) == NoConflict()


def test_different_new_keys_of_one_partition_do_not_conflict() -> None:
    ours = Footprint(CommitKind.UPSERT, created=groups("n"), inserts={P: NewKeys(frozenset({"k"}))})
    theirs = Footprint(
        CommitKind.UPSERT, created=groups("m"), inserts={P: NewKeys(frozenset({"l"}))}
    )
    assert check_against(ours, theirs) == NoConflict()


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(OVERWRITING, WRITERS)))
def test_overwrite_lists_file_groups_created_since(mine: CommitKind, other: CommitKind) -> None:
    ours = Footprint(mine, replaced=groups("a"), created=groups("x"), intents=intents(mine))
    theirs = Footprint(other, touched=groups("a"), created=groups("n"))
    verdict = check_against(ours, theirs)
    assert isinstance(verdict, ReplanReplaced)
    assert (verdict.add, verdict.drop) == (groups("n"), frozenset())
    mended = Footprint(mine, replaced=groups("a", "n"), created=groups("x"), intents=intents(mine))
    assert check_against(mended, theirs) == NoConflict()


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(OVERWRITING, OVERWRITING)))
def test_later_of_two_overwrites_wins(mine: CommitKind, other: CommitKind) -> None:
    ours = Footprint(mine, replaced=groups("a"), created=groups("x"), intents=intents(mine))
    theirs = Footprint(other, replaced=groups("a"), created=groups("n"), intents=intents(other))
    verdict = check_against(ours, theirs)
    assert isinstance(verdict, ReplanReplaced)
    assert (verdict.add, verdict.drop) == (groups("n"), groups("a"))


@pytest.mark.parametrize("mine", OVERWRITING)
def test_overwrite_does_not_list_groups_created_and_replaced_since(mine: CommitKind) -> None:
    came = CommittedTxn(7, EARLY, EARLY, Footprint(CommitKind.UPSERT, created=groups("n")))
    went = CommittedTxn(
        8, LATE, LATE, Footprint(CommitKind.DELETE_PARTITION, replaced=groups("a", "n"))
    )
    ours = Footprint(mine, replaced=groups("a"), created=groups("x"), intents=intents(mine))
    verdict = check_conflicts(PendingTxn(LATE, ours), [came, went])
    assert isinstance(verdict, ReplanReplaced)
    assert (verdict.add, verdict.drop) == (frozenset(), groups("a"))
    mended = Footprint(mine, created=groups("x"), intents=intents(mine))
    assert check_conflicts(PendingTxn(LATE, mended), [came, went]) == NoConflict()


def test_two_overwrites_of_an_empty_partition_do_not_both_stay() -> None:
    ours = Footprint(CommitKind.OVERWRITE, created=groups("x"), intents=frozenset({P}))
    theirs = Footprint(CommitKind.OVERWRITE, created=groups("n"), intents=frozenset({P}))
    verdict = check_against(ours, theirs)
    assert isinstance(verdict, ReplanReplaced)
    assert verdict.add == groups("n")


@pytest.mark.parametrize("mine", OVERWRITING)
def test_overwrite_after_a_clustering_replaces_its_results(mine: CommitKind) -> None:
    ours = Footprint(mine, replaced=groups("a", "b"), intents=intents(mine))
    theirs = Footprint(CommitKind.CLUSTERING, replaced=groups("a", "b"), created=groups("n"))
    verdict = check_against(ours, theirs)
    assert isinstance(verdict, ReplanReplaced)
    assert (verdict.add, verdict.drop) == (groups("n"), groups("a", "b"))


@pytest.mark.parametrize("mine", OVERWRITING)
@pytest.mark.parametrize("other", [CommitKind.COMPACTION, CommitKind.LOG_COMPACTION])
def test_overwrite_ignores_compactions(mine: CommitKind, other: CommitKind) -> None:
    ours = Footprint(mine, replaced=groups("a"), intents=intents(mine))
    assert check_against(ours, Footprint(other, groups("a"))) == NoConflict()


@pytest.mark.parametrize("mine", MERGING)
def test_log_files_go_on_top_of_a_compaction(mine: CommitKind) -> None:
    ours = Footprint(mine, groups("a"), appended=groups("a"))
    theirs = Footprint(CommitKind.COMPACTION, groups("a"))
    for instant, other_instant in ((EARLY, LATE), (LATE, EARLY)):
        assert (
            check_against(ours, theirs, instant=instant, other_instant=other_instant)
            == NoConflict()
        )


@pytest.mark.parametrize("mine", MERGING)
def test_base_file_under_a_later_compaction_is_rebased(mine: CommitKind) -> None:
    ours, theirs = Footprint(mine, groups("a")), Footprint(CommitKind.COMPACTION, groups("a"))
    assert check_against(ours, theirs, instant=LATE, other_instant=EARLY) == NoConflict()
    assert isinstance(check_against(ours, theirs, instant=EARLY, other_instant=LATE), Rebase)


@pytest.mark.parametrize("mine", MERGING)
def test_log_files_before_a_log_compaction_are_rebased(mine: CommitKind) -> None:
    ours = Footprint(mine, groups("a"), appended=groups("a"))
    theirs = Footprint(CommitKind.LOG_COMPACTION, groups("a"), appended=groups("a"))
    assert check_against(ours, theirs, instant=LATE, other_instant=EARLY) == NoConflict()
    assert isinstance(check_against(ours, theirs, instant=EARLY, other_instant=LATE), Rebase)


def test_base_file_cannot_get_a_log_compaction_on_top() -> None:
    """The merged block completed after the base file's time, so readers put it on top."""
    ours = Footprint(CommitKind.UPSERT, groups("a"))
    theirs = Footprint(CommitKind.LOG_COMPACTION, groups("a"), appended=groups("a"))
    past = CommittedTxn(7, EARLY, LATE, theirs)
    assert isinstance(check_conflicts(PendingTxn("20260101000000005", ours), [past]), Rebase)
    assert check_conflicts(PendingTxn("20260101000000010", ours), [past]) == NoConflict()


@pytest.mark.parametrize("other", [*MERGING, *OVERWRITING])
def test_clustering_yields_to_writers_of_its_sources(other: CommitKind) -> None:
    ours = Footprint(CommitKind.CLUSTERING, replaced=groups("a", "b"), created=groups("n"))
    touching = Footprint(other, touched=groups("b"), appended=groups("b"))
    replacing = Footprint(other, replaced=groups("b"), intents=intents(other))
    for theirs in (touching, replacing):
        verdict = check_against(ours, theirs)
        assert isinstance(verdict, Preempted)
        assert verdict.groups == groups("b")
    assert check_against(ours, Footprint(other, created=groups("m"))) == NoConflict()


@pytest.mark.parametrize("other", [*MERGING, *OVERWRITING])
def test_compaction_yields_when_its_base_files_are_not_the_newest(other: CommitKind) -> None:
    ours = Footprint(CommitKind.COMPACTION, groups("a"))
    assert check_against(ours, Footprint(other, groups("a"), appended=groups("a"))) == NoConflict()
    assert isinstance(check_against(ours, Footprint(other, groups("a"))), Preempted)
    assert isinstance(check_against(ours, Footprint(other, replaced=groups("a"))), Preempted)


@pytest.mark.parametrize("other", [*MERGING, *OVERWRITING])
def test_log_compaction_yields_to_log_files_before_it(other: CommitKind) -> None:
    ours = Footprint(CommitKind.LOG_COMPACTION, groups("a"), appended=groups("a"))
    theirs = Footprint(other, groups("a"), appended=groups("a"))
    assert isinstance(check_against(ours, theirs, instant=LATE, other_instant=EARLY), Preempted)
    assert check_against(ours, theirs, instant=EARLY, other_instant=LATE) == NoConflict()
    assert isinstance(check_against(ours, Footprint(other, replaced=groups("a"))), Preempted)


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(SERVICES, SERVICES)))
def test_later_of_two_services_on_one_file_group_yields(
    mine: CommitKind, other: CommitKind
) -> None:
    ours = Footprint(mine, groups("a"), replaced=groups("a"))
    assert isinstance(check_against(ours, Footprint(other, groups("a"))), Preempted)


@pytest.mark.parametrize(
    "other", [*WRITERS, *SERVICES, CommitKind.ROLLBACK, CommitKind.SAVEPOINT, CommitKind.RESTORE]
)
def test_clean_conflicts_with_nothing(other: CommitKind) -> None:
    """Its files are already deleted when it commits: savepoints and restores wait for its plan."""
    assert check_against(Footprint(CommitKind.CLEAN), Footprint(other, groups("a"))) == NoConflict()


def test_savepoint_conflicts_with_a_clean() -> None:
    assert isinstance(
        check_against(Footprint(CommitKind.SAVEPOINT), Footprint(CommitKind.CLEAN)), Abort
    )


@pytest.mark.parametrize("mine", [*WRITERS, *SERVICES])
def test_rollbacks_cleans_and_savepoints_conflict_with_nobody(mine: CommitKind) -> None:
    ours = Footprint(mine, groups("a"))
    for other in (CommitKind.ROLLBACK, CommitKind.CLEAN, CommitKind.SAVEPOINT):
        assert check_against(ours, Footprint(other)) == NoConflict()


@pytest.mark.parametrize("mine", [*WRITERS, *SERVICES, CommitKind.SAVEPOINT])
def test_concurrent_restore_conflicts_with_every_write(mine: CommitKind) -> None:
    assert (
        check_against(Footprint(mine, groups("a")), Footprint(CommitKind.RESTORE)) != NoConflict()
    )


@pytest.mark.parametrize("mine", SERVICES)
def test_plan_that_a_restore_kept_is_executed_by_a_later_claim(
    mine: CommitKind,
) -> None:
    restore = CommittedTxn(7, EARLY, EARLY, Footprint(CommitKind.RESTORE))
    plan = PendingTxn(LATE, Footprint(mine, groups("a")), claimed=6)
    assert isinstance(check_conflicts(plan, [restore]), Preempted)
    assert check_conflicts(replace(plan, claimed=8), [restore]) == NoConflict()


@pytest.mark.parametrize("mine", SERVICES)
def test_plan_that_conflicts_with_an_unknown_footprint_is_abandoned_with_all_its_groups(
    mine: CommitKind,
) -> None:
    """A later executor cannot know either, so the plan could never be executed."""
    theirs = CommittedTxn(7, EARLY, EARLY, Footprint(CommitKind.RESTORE, everything=True))
    verdict = check_conflicts(PendingTxn(LATE, Footprint(mine, groups("a")), claimed=8), [theirs])
    assert isinstance(verdict, Preempted)
    assert verdict.groups == groups("a")


def test_decided_restore_completes() -> None:
    """Conflicts are checked when it is decided; after that none of our commits can intervene."""
    for other in (*WRITERS, *SERVICES, CommitKind.CLEAN, CommitKind.SAVEPOINT):
        assert check_against(Footprint(CommitKind.RESTORE), Footprint(other)) == NoConflict()


def test_partition_that_was_written_to_has_not_expired() -> None:
    expiring = Footprint(CommitKind.DELETE_PARTITION, touched=groups("a"), replaced=groups("a"))
    assert check_against(expiring, Footprint(CommitKind.UPSERT, groups("a"))) != NoConflict()
    assert check_against(expiring, Footprint(CommitKind.UPSERT, groups("b"))) == NoConflict()
    assert (
        check_against(expiring, Footprint(CommitKind.INSERT, created=groups("b"))) == NoConflict()
    )


def test_log_files_of_non_blocking_writers_do_not_conflict() -> None:
    ours = Footprint(
        CommitKind.UPSERT,
        groups("00000001-x"),
        appended=groups("00000001-x"),
        bucketed=True,
        nonblocking=True,
    )
    assert check_against(ours, ours) == NoConflict()
    inverted = check_against(ours, ours, instant=EARLY, other_instant=LATE)
    assert isinstance(inverted, CheckKeys), "readers would apply the earlier commit last"
    assert [check.log_order for check in inverted.checks] == [True]
    replaced = Footprint(
        CommitKind.OVERWRITE, replaced=groups("00000001-x"), intents=frozenset({P})
    )
    assert isinstance(check_against(ours, replaced), Rebase), (
        "what was overwritten is not written to"
    )
    deleting = check_against(ours, replace(ours, deletes=True))
    assert isinstance(deleting, CheckKeys), "a row may be older than the one that was deleted"
    assert [check.log_order for check in deleting.checks] == [True]


@pytest.mark.parametrize("nonblocking", [False, True])
@pytest.mark.parametrize(("mine", "other"), list(itertools.product(WRITERS, WRITERS)))
def test_base_file_of_a_bucket_that_another_created_is_rebased(
    mine: CommitKind, other: CommitKind, nonblocking: bool
) -> None:
    bucket = groups("00000001-x")
    ours = Footprint(mine, created=bucket, bucketed=True, nonblocking=nonblocking)
    for theirs in (
        Footprint(other, created=bucket, bucketed=True),
        Footprint(other, created=bucket, appended=bucket, bucketed=True, nonblocking=True),
    ):
        assert isinstance(check_against(ours, theirs), Rebase)


@pytest.mark.parametrize("mine", WRITERS)
def test_new_bucket_under_a_later_compaction_is_rebased(mine: CommitKind) -> None:
    ours = Footprint(mine, created=groups("00000001-x"), bucketed=True)
    theirs = Footprint(CommitKind.COMPACTION, groups("00000001-x"))
    assert isinstance(check_against(ours, theirs, instant=EARLY, other_instant=LATE), Rebase)


@pytest.mark.parametrize("mine", KEYED)
@pytest.mark.parametrize("other", BLIND)
def test_changed_keys_are_looked_up_in_plain_inserts(mine: CommitKind, other: CommitKind) -> None:
    ours = Footprint(mine, groups("a"))
    theirs = Footprint(other, created=groups("n"), inserts={P: NewKeys(frozenset({"k"}))})
    verdict = check_against(ours, theirs)
    assert isinstance(verdict, CheckKeys)
    assert [check.groups for check in verdict.checks] == [groups("n")]


def test_keys_to_delete_anywhere_are_looked_up_in_new_partitions() -> None:
    relied = ReadDependencies(anywhere=True, searched=frozenset({P}))
    theirs = Footprint(
        CommitKind.UPSERT, created=groups("q/n"), inserts={"q": NewKeys(frozenset({"k"}))}
    )
    past = CommittedTxn(7, EARLY, EARLY, theirs)
    verdict = check_conflicts(
        PendingTxn(LATE, Footprint(CommitKind.DELETE), dependencies=relied), [past]
    )
    assert isinstance(verdict, CheckKeys)
    assert [check.groups for check in verdict.checks] == [groups("q/n")]
    bucketed = PendingTxn(LATE, Footprint(CommitKind.DELETE, bucketed=True), dependencies=relied)
    assert isinstance(check_conflicts(bucketed, [past]), Rebase)


def test_two_writers_do_not_create_one_bucket_twice() -> None:
    ours = Footprint(CommitKind.UPSERT, created=groups("00000001-aaaa-0"), bucketed=True)
    theirs = Footprint(CommitKind.UPSERT, created=groups("00000001-bbbb-0"), bucketed=True)
    assert isinstance(check_against(ours, theirs), Rebase)
    elsewhere = Footprint(CommitKind.UPSERT, created=groups("00000002-bbbb-0"), bucketed=True)
    assert check_against(ours, elsewhere) == NoConflict()


def test_write_with_the_old_schema_does_not_follow_a_new_one() -> None:
    footprint = Footprint(CommitKind.INSERT, created=groups("n"))
    evolved = CommittedTxn(
        7, EARLY, EARLY, Footprint(CommitKind.INSERT, created=groups("m")), "new"
    )
    old = PendingTxn(LATE, footprint, "old", "old")
    assert isinstance(check_conflicts(old, [evolved]), Rebase)
    same = PendingTxn(LATE, footprint, "new", "old")
    assert check_conflicts(same, [evolved]) == NoConflict()
    plain = CommittedTxn(7, EARLY, EARLY, Footprint(CommitKind.INSERT, created=groups("m")), "old")
    assert check_conflicts(same, [plain]) == NoConflict(), (
        "the one who evolves the schema is not held up"
    )


@pytest.mark.parametrize("mine", WRITERS)
@pytest.mark.parametrize("other", [*WRITERS, *SERVICES])
def test_schema_that_an_earlier_request_time_would_hide_is_written_again(
    mine: CommitKind, other: CommitKind
) -> None:
    """Readers use the schema of the greatest request time."""
    hiding = CommittedTxn(7, LATE, LATE, Footprint(other), "old")
    verdict = check_conflicts(PendingTxn(EARLY, Footprint(mine), "new", "old"), [hiding])
    assert isinstance(verdict, Rebase)
    assert check_conflicts(
        PendingTxn(EARLY, Footprint(mine), "old", "old"), [hiding]
    ) == NoConflict() or (mine is CommitKind.READ_WRITE)


@pytest.mark.parametrize("mine", SERVICES)
def test_service_does_not_restore_an_older_schema(mine: CommitKind) -> None:
    evolved = CommittedTxn(7, EARLY, LATE, Footprint(CommitKind.INSERT), "new")
    stale = PendingTxn(LATE, Footprint(mine), "old", schema_base=6)
    assert isinstance(check_conflicts(stale, [evolved]), Preempted)
    assert (
        check_conflicts(PendingTxn(LATE, Footprint(mine), "newer", schema_base=7), [evolved])
        == NoConflict()
    )
    assert check_conflicts(
        PendingTxn(EARLY, Footprint(mine), "old"), [replace(evolved, instant=LATE)]
    ) == (NoConflict()), "the other's request is the later, so readers take its schema"


def test_write_of_unknown_extent_conflicts_with_every_writer() -> None:
    unknown = Footprint(CommitKind.UPSERT, everything=True)
    verdict = check_against(Footprint(CommitKind.INSERT, created=groups("n")), unknown)
    assert isinstance(verdict, Rebase)
    assert verdict.rerun
    assert isinstance(
        check_against(Footprint(CommitKind.COMPACTION, groups("a")), unknown), Preempted
    )


def test_most_severe_finding_wins() -> None:
    ours = Footprint(CommitKind.UPSERT, groups("a"), inserts={P: NewKeys(None)})
    check = CommittedTxn(7, EARLY, EARLY, Footprint(CommitKind.UPSERT, inserts={P: NewKeys(None)}))
    rebase = CommittedTxn(8, EARLY, EARLY, Footprint(CommitKind.UPSERT, groups("a")))
    verdict = check_conflicts(PendingTxn(LATE, ours), [check, rebase])
    assert isinstance(verdict, Rebase)
    assert [other.position for other in verdict.report.others] == [8]


def test_report_names_both_writers_the_groups_and_the_remedy() -> None:
    verdict = check_against(
        Footprint(CommitKind.UPSERT, groups("a")), Footprint(CommitKind.DELETE, groups("a"))
    )
    assert isinstance(verdict, Rebase)
    text = str(verdict.report)
    for part in ("upsert", LATE, "delete", EARLY, "other", "day=1/a"):
        assert part in text
    assert verdict.report.advice


def test_every_pair_of_operations_has_a_cell_and_the_page_shows_it() -> None:
    page = matrix_page()
    for mine, other in itertools.product(WRITERS, WRITERS):
        assert "group" in {rule.word for rule in rules_for(mine, other)}, (mine, other)
    for commit_kind in CommitKind:
        assert f"| {commit_kind} |" in page
    for rule in RULES:
        assert f"`{rule.word}`" in page
