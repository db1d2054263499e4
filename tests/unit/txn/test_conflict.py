"""The conflict matrix, cell by cell: what may come after what."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.unit.txn.bench import groups
from tidelock.txn.conflict import RULES, Candidate, Past, judge, rules_for
from tidelock.txn.footprint import Deed, Footprint, NewKeys, Reliance
from tidelock.txn.matrix import matrix_page
from tidelock.txn.verdict import CheckKeys, Fine, Rebase, Refuse, ReplanReplaced, Verdict, Yield

P = "day=1"
KEYED = (Deed.UPSERT, Deed.DELETE)
BLIND = (Deed.INSERT, Deed.BULK_INSERT)
READING = (Deed.READ_WRITE,)
OVERWRITING = (Deed.OVERWRITE, Deed.OVERWRITE_TABLE, Deed.DELETE_PARTITION)
WRITERS = (*KEYED, *BLIND, *READING, *OVERWRITING)
MERGING = (*KEYED, *BLIND, *READING)
SERVICES = (Deed.COMPACTION, Deed.LOG_COMPACTION, Deed.CLUSTERING)
EARLY, LATE = "20260101000000001", "20260101000000009"


def intents(deed: Deed) -> frozenset[str] | None:
    """Return the partitions that a deed overwrites."""
    if deed is Deed.OVERWRITE_TABLE:
        return None
    return frozenset({P}) if deed in OVERWRITING else frozenset()


def judged(
    mine: Footprint, other: Footprint, *, instant: str = LATE, other_instant: str = EARLY
) -> Verdict:
    """Judge one commit against another."""
    past = Past(7, other_instant, "20260101000000005", other, owner="other")
    return judge(Candidate(instant, mine, owner="me"), [past])


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(MERGING, MERGING)))
def test_two_merges_into_one_file_group_are_rebased(mine: Deed, other: Deed) -> None:
    verdict = judged(Footprint(mine, groups("a", "b")), Footprint(other, groups("b", "c")))
    assert isinstance(verdict, Rebase)
    assert verdict.groups == groups("b")
    assert verdict.rerun == (mine is Deed.READ_WRITE)


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(MERGING, OVERWRITING)))
def test_a_merge_into_a_file_group_that_was_overwritten_is_rebased(mine: Deed, other: Deed) -> None:
    theirs = Footprint(other, replaced=groups("b"), created=groups("n"), intents=intents(other))
    verdict = judged(Footprint(mine, groups("a", "b")), theirs)
    assert isinstance(verdict, Rebase)
    assert verdict.groups >= groups("b") or mine is Deed.READ_WRITE


@pytest.mark.parametrize("mine", MERGING)
def test_a_merge_into_a_clustered_file_group_is_rebased(mine: Deed) -> None:
    theirs = Footprint(Deed.CLUSTERING, replaced=groups("b"), created=groups("n"))
    verdict = judged(Footprint(mine, groups("b")), theirs)
    assert isinstance(verdict, Rebase)
    assert not verdict.rerun


@pytest.mark.parametrize(
    ("mine", "other"), list(itertools.product((*WRITERS, *SERVICES), (*WRITERS, *SERVICES)))
)
def test_different_partitions_never_meet(mine: Deed, other: Deed) -> None:
    ours = Footprint(mine, groups("p/a"), created=groups("p/n"), inserts={"p": NewKeys(None)})
    theirs = Footprint(
        other,
        groups("q/a"),
        created=groups("q/n"),
        replaced=groups("q/r"),
        inserts={"q": NewKeys(None)},
    )
    verdict = judged(ours, theirs)
    if mine is Deed.READ_WRITE and other in WRITERS:
        assert isinstance(verdict, Rebase)
        assert verdict.rerun
    else:
        assert verdict == Fine()


@pytest.mark.parametrize(
    ("mine", "other"), list(itertools.product(KEYED, (*MERGING, *OVERWRITING)))
)
def test_one_new_key_in_two_new_file_groups_is_rebased(mine: Deed, other: Deed) -> None:
    ours = Footprint(mine, created=groups("n"), inserts={P: NewKeys(frozenset({"k", "l"}))})
    theirs = Footprint(
        other, created=groups("m"), inserts={P: NewKeys(frozenset({"k"}))}, intents=intents(other)
    )
    verdict = judged(ours, theirs)
    if other in (Deed.DELETE, Deed.DELETE_PARTITION):
        assert verdict == Fine(), "a delete inserts nothing"
    else:
        assert isinstance(verdict, Rebase)
        assert verdict.groups == groups("n")


@pytest.mark.parametrize("mine", BLIND)
def test_an_insert_that_allows_duplicates_does_not_look_at_keys(mine: Deed) -> None:
    ours = Footprint(mine, created=groups("n"), inserts={P: NewKeys(frozenset({"k"}))})
    theirs = Footprint(Deed.UPSERT, created=groups("m"), inserts={P: NewKeys(frozenset({"k"}))})
    assert judged(ours, theirs) == Fine()


def test_keys_that_are_not_named_are_to_be_compared() -> None:
    ours = Footprint(Deed.UPSERT, created=groups("n"), inserts={P: NewKeys(frozenset({"k"}))})
    theirs = Footprint(Deed.INSERT, created=groups("m"), inserts={P: NewKeys(None, ("f.parquet",))})
    verdict = judged(ours, theirs)
    assert isinstance(verdict, CheckKeys)
    (check,) = verdict.checks
    assert (check.position, check.partition, check.files) == (7, P, ("f.parquet",))
    past = Past(7, EARLY, EARLY, theirs)
    assert judge(Candidate(LATE, ours), [past], cleared={7}) == Fine()


def test_different_new_keys_of_one_partition_do_not_meet() -> None:
    ours = Footprint(Deed.UPSERT, created=groups("n"), inserts={P: NewKeys(frozenset({"k"}))})
    theirs = Footprint(Deed.UPSERT, created=groups("m"), inserts={P: NewKeys(frozenset({"l"}))})
    assert judged(ours, theirs) == Fine()


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(OVERWRITING, WRITERS)))
def test_an_overwrite_lists_file_groups_that_came_since(mine: Deed, other: Deed) -> None:
    ours = Footprint(mine, replaced=groups("a"), created=groups("x"), intents=intents(mine))
    theirs = Footprint(other, touched=groups("a"), created=groups("n"))
    verdict = judged(ours, theirs)
    assert isinstance(verdict, ReplanReplaced)
    assert (verdict.add, verdict.drop) == (groups("n"), frozenset())
    mended = Footprint(mine, replaced=groups("a", "n"), created=groups("x"), intents=intents(mine))
    assert judged(mended, theirs) == Fine()


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(OVERWRITING, OVERWRITING)))
def test_of_two_overwrites_only_the_later_stays(mine: Deed, other: Deed) -> None:
    ours = Footprint(mine, replaced=groups("a"), created=groups("x"), intents=intents(mine))
    theirs = Footprint(other, replaced=groups("a"), created=groups("n"), intents=intents(other))
    verdict = judged(ours, theirs)
    assert isinstance(verdict, ReplanReplaced)
    assert (verdict.add, verdict.drop) == (groups("n"), groups("a"))


@pytest.mark.parametrize("mine", OVERWRITING)
def test_an_overwrite_does_not_list_what_came_and_went_again(mine: Deed) -> None:
    came = Past(7, EARLY, EARLY, Footprint(Deed.UPSERT, created=groups("n")))
    went = Past(8, LATE, LATE, Footprint(Deed.DELETE_PARTITION, replaced=groups("a", "n")))
    ours = Footprint(mine, replaced=groups("a"), created=groups("x"), intents=intents(mine))
    verdict = judge(Candidate(LATE, ours), [came, went])
    assert isinstance(verdict, ReplanReplaced)
    assert (verdict.add, verdict.drop) == (frozenset(), groups("a"))
    mended = Footprint(mine, created=groups("x"), intents=intents(mine))
    assert judge(Candidate(LATE, mended), [came, went]) == Fine()


def test_two_overwrites_of_an_empty_partition_do_not_both_stay() -> None:
    ours = Footprint(Deed.OVERWRITE, created=groups("x"), intents=frozenset({P}))
    theirs = Footprint(Deed.OVERWRITE, created=groups("n"), intents=frozenset({P}))
    verdict = judged(ours, theirs)
    assert isinstance(verdict, ReplanReplaced)
    assert verdict.add == groups("n")


@pytest.mark.parametrize("mine", OVERWRITING)
def test_an_overwrite_after_a_clustering_replaces_its_results(mine: Deed) -> None:
    ours = Footprint(mine, replaced=groups("a", "b"), intents=intents(mine))
    theirs = Footprint(Deed.CLUSTERING, replaced=groups("a", "b"), created=groups("n"))
    verdict = judged(ours, theirs)
    assert isinstance(verdict, ReplanReplaced)
    assert (verdict.add, verdict.drop) == (groups("n"), groups("a", "b"))


@pytest.mark.parametrize("mine", OVERWRITING)
@pytest.mark.parametrize("other", [Deed.COMPACTION, Deed.LOG_COMPACTION])
def test_an_overwrite_does_not_care_for_compactions(mine: Deed, other: Deed) -> None:
    ours = Footprint(mine, replaced=groups("a"), intents=intents(mine))
    assert judged(ours, Footprint(other, groups("a"))) == Fine()


@pytest.mark.parametrize("mine", MERGING)
def test_log_files_go_on_top_of_a_compaction(mine: Deed) -> None:
    ours = Footprint(mine, groups("a"), appended=groups("a"))
    theirs = Footprint(Deed.COMPACTION, groups("a"))
    for instant, other_instant in ((EARLY, LATE), (LATE, EARLY)):
        assert judged(ours, theirs, instant=instant, other_instant=other_instant) == Fine()


@pytest.mark.parametrize("mine", MERGING)
def test_a_base_file_under_a_later_compaction_is_rebased(mine: Deed) -> None:
    ours, theirs = Footprint(mine, groups("a")), Footprint(Deed.COMPACTION, groups("a"))
    assert judged(ours, theirs, instant=LATE, other_instant=EARLY) == Fine()
    assert isinstance(judged(ours, theirs, instant=EARLY, other_instant=LATE), Rebase)


@pytest.mark.parametrize("mine", MERGING)
def test_log_files_before_a_log_compaction_are_rebased(mine: Deed) -> None:
    ours = Footprint(mine, groups("a"), appended=groups("a"))
    theirs = Footprint(Deed.LOG_COMPACTION, groups("a"), appended=groups("a"))
    assert judged(ours, theirs, instant=LATE, other_instant=EARLY) == Fine()
    assert isinstance(judged(ours, theirs, instant=EARLY, other_instant=LATE), Rebase)


def test_a_base_file_may_not_get_a_log_compaction_on_top() -> None:
    """The merged block completed after the base file's time, so readers lay it on top."""
    ours = Footprint(Deed.UPSERT, groups("a"))
    theirs = Footprint(Deed.LOG_COMPACTION, groups("a"), appended=groups("a"))
    past = Past(7, EARLY, LATE, theirs)
    assert isinstance(judge(Candidate("20260101000000005", ours), [past]), Rebase)
    assert judge(Candidate("20260101000000010", ours), [past]) == Fine()


@pytest.mark.parametrize("other", [*MERGING, *OVERWRITING])
def test_a_clustering_yields_to_writers_of_its_sources(other: Deed) -> None:
    ours = Footprint(Deed.CLUSTERING, replaced=groups("a", "b"), created=groups("n"))
    touching = Footprint(other, touched=groups("b"), appended=groups("b"))
    replacing = Footprint(other, replaced=groups("b"), intents=intents(other))
    for theirs in (touching, replacing):
        verdict = judged(ours, theirs)
        assert isinstance(verdict, Yield)
        assert verdict.groups == groups("b")
    assert judged(ours, Footprint(other, created=groups("m"))) == Fine()


@pytest.mark.parametrize("other", [*MERGING, *OVERWRITING])
def test_a_compaction_yields_when_its_base_files_are_not_the_newest(other: Deed) -> None:
    ours = Footprint(Deed.COMPACTION, groups("a"))
    assert judged(ours, Footprint(other, groups("a"), appended=groups("a"))) == Fine()
    assert isinstance(judged(ours, Footprint(other, groups("a"))), Yield)
    assert isinstance(judged(ours, Footprint(other, replaced=groups("a"))), Yield)


@pytest.mark.parametrize("other", [*MERGING, *OVERWRITING])
def test_a_log_compaction_yields_to_log_files_before_it(other: Deed) -> None:
    ours = Footprint(Deed.LOG_COMPACTION, groups("a"), appended=groups("a"))
    theirs = Footprint(other, groups("a"), appended=groups("a"))
    assert isinstance(judged(ours, theirs, instant=LATE, other_instant=EARLY), Yield)
    assert judged(ours, theirs, instant=EARLY, other_instant=LATE) == Fine()
    assert isinstance(judged(ours, Footprint(other, replaced=groups("a"))), Yield)


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(SERVICES, SERVICES)))
def test_of_two_services_on_one_file_group_the_later_yields(mine: Deed, other: Deed) -> None:
    ours = Footprint(mine, groups("a"), replaced=groups("a"))
    assert isinstance(judged(ours, Footprint(other, groups("a"))), Yield)


@pytest.mark.parametrize(
    "other", [*WRITERS, *SERVICES, Deed.ROLLBACK, Deed.SAVEPOINT, Deed.RESTORE]
)
def test_a_clean_goes_with_everything(other: Deed) -> None:
    """What it deletes is gone when it is judged: savepoints and restores wait for its plan."""
    assert judged(Footprint(Deed.CLEAN), Footprint(other, groups("a"))) == Fine()


def test_no_savepoint_is_made_over_a_clean() -> None:
    assert isinstance(judged(Footprint(Deed.SAVEPOINT), Footprint(Deed.CLEAN)), Refuse)


@pytest.mark.parametrize("mine", [*WRITERS, *SERVICES])
def test_rollbacks_cleans_and_savepoints_of_others_stop_nobody(mine: Deed) -> None:
    ours = Footprint(mine, groups("a"))
    for other in (Deed.ROLLBACK, Deed.CLEAN, Deed.SAVEPOINT):
        assert judged(ours, Footprint(other)) == Fine()


@pytest.mark.parametrize("mine", [*WRITERS, *SERVICES, Deed.SAVEPOINT])
def test_a_restore_in_between_lets_nobody_through(mine: Deed) -> None:
    assert judged(Footprint(mine, groups("a")), Footprint(Deed.RESTORE)) != Fine()


@pytest.mark.parametrize("mine", SERVICES)
def test_a_plan_that_a_restore_left_is_carried_out_by_whoever_claims_it_later(mine: Deed) -> None:
    restore = Past(7, EARLY, EARLY, Footprint(Deed.RESTORE))
    plan = Candidate(LATE, Footprint(mine, groups("a")), claimed=6)
    assert isinstance(judge(plan, [restore]), Yield)
    assert judge(replace(plan, claimed=8), [restore]) == Fine()


@pytest.mark.parametrize("mine", SERVICES)
def test_a_plan_that_met_what_nobody_knows_of_is_given_up_with_all_its_groups(mine: Deed) -> None:
    """Whoever claims it later cannot know either, so that nobody could ever carry it out."""
    theirs = Past(7, EARLY, EARLY, Footprint(Deed.RESTORE, everything=True))
    verdict = judge(Candidate(LATE, Footprint(mine, groups("a")), claimed=8), [theirs])
    assert isinstance(verdict, Yield)
    assert verdict.groups == groups("a")


def test_a_restore_that_is_decided_comes_to_its_end() -> None:
    """What is in its way is looked at when it is decided; then nothing of ours can come between."""
    for other in (*WRITERS, *SERVICES, Deed.CLEAN, Deed.SAVEPOINT):
        assert judged(Footprint(Deed.RESTORE), Footprint(other)) == Fine()


def test_a_partition_that_was_written_to_has_not_expired() -> None:
    expiring = Footprint(Deed.DELETE_PARTITION, touched=groups("a"), replaced=groups("a"))
    assert judged(expiring, Footprint(Deed.UPSERT, groups("a"))) != Fine()
    assert judged(expiring, Footprint(Deed.UPSERT, groups("b"))) == Fine()
    assert judged(expiring, Footprint(Deed.INSERT, created=groups("b"))) == Fine()


def test_log_files_of_non_blocking_writers_do_not_meet() -> None:
    ours = Footprint(
        Deed.UPSERT,
        groups("00000001-x"),
        appended=groups("00000001-x"),
        bucketed=True,
        nonblocking=True,
    )
    assert judged(ours, ours) == Fine()
    inverted = judged(ours, ours, instant=EARLY, other_instant=LATE)
    assert isinstance(inverted, CheckKeys), "readers would apply the earlier commit last"
    assert [check.log_order for check in inverted.checks] == [True]
    replaced = Footprint(Deed.OVERWRITE, replaced=groups("00000001-x"), intents=frozenset({P}))
    assert isinstance(judged(ours, replaced), Rebase), "what was overwritten is not written to"
    deleting = judged(ours, replace(ours, deletes=True))
    assert isinstance(deleting, CheckKeys), "a row may be older than the one that was deleted"
    assert [check.log_order for check in deleting.checks] == [True]


@pytest.mark.parametrize("nonblocking", [False, True])
@pytest.mark.parametrize(("mine", "other"), list(itertools.product(WRITERS, WRITERS)))
def test_a_base_file_of_a_bucket_that_somebody_began_is_rebased(
    mine: Deed, other: Deed, nonblocking: bool
) -> None:
    bucket = groups("00000001-x")
    ours = Footprint(mine, created=bucket, bucketed=True, nonblocking=nonblocking)
    for theirs in (
        Footprint(other, created=bucket, bucketed=True),
        Footprint(other, created=bucket, appended=bucket, bucketed=True, nonblocking=True),
    ):
        assert isinstance(judged(ours, theirs), Rebase)


@pytest.mark.parametrize("mine", WRITERS)
def test_a_new_bucket_under_a_later_compaction_is_rebased(mine: Deed) -> None:
    ours = Footprint(mine, created=groups("00000001-x"), bucketed=True)
    theirs = Footprint(Deed.COMPACTION, groups("00000001-x"))
    assert isinstance(judged(ours, theirs, instant=EARLY, other_instant=LATE), Rebase)


@pytest.mark.parametrize("mine", KEYED)
@pytest.mark.parametrize("other", BLIND)
def test_keys_that_were_changed_are_looked_up_in_plain_inserts(mine: Deed, other: Deed) -> None:
    ours = Footprint(mine, groups("a"))
    theirs = Footprint(other, created=groups("n"), inserts={P: NewKeys(frozenset({"k"}))})
    verdict = judged(ours, theirs)
    assert isinstance(verdict, CheckKeys)
    assert [check.groups for check in verdict.checks] == [groups("n")]


def test_keys_to_delete_anywhere_are_looked_up_in_partitions_that_came() -> None:
    relied = Reliance(anywhere=True, looked_in=frozenset({P}))
    theirs = Footprint(Deed.UPSERT, created=groups("q/n"), inserts={"q": NewKeys(frozenset({"k"}))})
    past = Past(7, EARLY, EARLY, theirs)
    verdict = judge(Candidate(LATE, Footprint(Deed.DELETE), reliance=relied), [past])
    assert isinstance(verdict, CheckKeys)
    assert [check.groups for check in verdict.checks] == [groups("q/n")]
    bucketed = Candidate(LATE, Footprint(Deed.DELETE, bucketed=True), reliance=relied)
    assert isinstance(judge(bucketed, [past]), Rebase)


def test_two_writers_do_not_begin_one_bucket_twice() -> None:
    ours = Footprint(Deed.UPSERT, created=groups("00000001-aaaa-0"), bucketed=True)
    theirs = Footprint(Deed.UPSERT, created=groups("00000001-bbbb-0"), bucketed=True)
    assert isinstance(judged(ours, theirs), Rebase)
    elsewhere = Footprint(Deed.UPSERT, created=groups("00000002-bbbb-0"), bucketed=True)
    assert judged(ours, elsewhere) == Fine()


def test_a_write_with_the_old_schema_does_not_follow_a_new_one() -> None:
    footprint = Footprint(Deed.INSERT, created=groups("n"))
    evolved = Past(7, EARLY, EARLY, Footprint(Deed.INSERT, created=groups("m")), "new")
    old = Candidate(LATE, footprint, "old", "old")
    assert isinstance(judge(old, [evolved]), Rebase)
    same = Candidate(LATE, footprint, "new", "old")
    assert judge(same, [evolved]) == Fine()
    plain = Past(7, EARLY, EARLY, Footprint(Deed.INSERT, created=groups("m")), "old")
    assert judge(same, [plain]) == Fine(), "the one who evolves the schema is not held up"


@pytest.mark.parametrize("mine", WRITERS)
@pytest.mark.parametrize("other", [*WRITERS, *SERVICES])
def test_a_schema_that_an_earlier_commit_would_hide_is_written_again(
    mine: Deed, other: Deed
) -> None:
    """Readers take the schema of the greatest request time for the table's."""
    hiding = Past(7, LATE, LATE, Footprint(other), "old")
    verdict = judge(Candidate(EARLY, Footprint(mine), "new", "old"), [hiding])
    assert isinstance(verdict, Rebase)
    assert judge(Candidate(EARLY, Footprint(mine), "old", "old"), [hiding]) == Fine() or (
        mine is Deed.READ_WRITE
    )


@pytest.mark.parametrize("mine", SERVICES)
def test_a_service_does_not_bring_back_an_older_schema(mine: Deed) -> None:
    evolved = Past(7, EARLY, LATE, Footprint(Deed.INSERT), "new")
    stale = Candidate(LATE, Footprint(mine), "old", schema_base=6)
    assert isinstance(judge(stale, [evolved]), Yield)
    assert judge(Candidate(LATE, Footprint(mine), "newer", schema_base=7), [evolved]) == Fine()
    assert judge(Candidate(EARLY, Footprint(mine), "old"), [replace(evolved, instant=LATE)]) == (
        Fine()
    ), "the other's request is the later, so readers take its schema"


def test_a_write_of_unknown_extent_is_met_by_every_writer() -> None:
    unknown = Footprint(Deed.UPSERT, everything=True)
    verdict = judged(Footprint(Deed.INSERT, created=groups("n")), unknown)
    assert isinstance(verdict, Rebase)
    assert verdict.rerun
    assert isinstance(judged(Footprint(Deed.COMPACTION, groups("a")), unknown), Yield)


def test_the_hardest_finding_wins() -> None:
    ours = Footprint(Deed.UPSERT, groups("a"), inserts={P: NewKeys(None)})
    check = Past(7, EARLY, EARLY, Footprint(Deed.UPSERT, inserts={P: NewKeys(None)}))
    rebase = Past(8, EARLY, EARLY, Footprint(Deed.UPSERT, groups("a")))
    verdict = judge(Candidate(LATE, ours), [check, rebase])
    assert isinstance(verdict, Rebase)
    assert [other.position for other in verdict.report.others] == [8]


def test_a_report_names_both_writers_the_groups_and_the_remedy() -> None:
    verdict = judged(Footprint(Deed.UPSERT, groups("a")), Footprint(Deed.DELETE, groups("a")))
    assert isinstance(verdict, Rebase)
    text = str(verdict.report)
    for part in ("upsert", LATE, "delete", EARLY, "other", "day=1/a"):
        assert part in text
    assert verdict.report.advice


def test_every_pair_of_operations_has_a_cell_and_the_page_shows_it() -> None:
    page = matrix_page()
    for mine, other in itertools.product(WRITERS, WRITERS):
        assert "group" in {rule.word for rule in rules_for(mine, other)}, (mine, other)
    for deed in Deed:
        assert f"| {deed} |" in page
    for rule in RULES:
        assert f"`{rule.word}`" in page
