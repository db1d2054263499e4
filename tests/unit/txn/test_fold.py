"""The one rule: what may be appended to a ledger, and what folding it gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.txnsim.planted_services import what_is_complete_may_be_rolled_back
from tests.unit.txn.bench import groups
from tidelock.base.errors import InvariantBroken
from tidelock.table.timeline.instant import Action, format_time
from tidelock.txn.content import Inline
from tidelock.txn.entry import (
    Boundary,
    Claim,
    Commit,
    Entry,
    Fact,
    Foreign,
    Plan,
    Rollback,
    Turn,
)
from tidelock.txn.fold import TURNS_MAX, Evidence, Fold, fencing_epoch, later, lawful
from tidelock.txn.footprint import Deed, Footprint
from tidelock.txn.view import TAIL_MAX, View

A, B = "20260101000000000", "20260102000000000"
C = "20260103000000000"
NOTHING = Footprint(Deed.UPSERT)


def commit(instant: str, *, attempt: int = 1, action: Action = Action.COMMIT) -> Commit:
    """Return a commit that says little."""
    return Commit(instant, action, attempt, NOTHING, Inline(b""))


def plan(*names: str, removable: bool = False) -> Plan:
    """Return a plan for some file groups."""
    return Plan(Action.COMPACTION, groups(*names), Inline(b""), removable)


def folded(*facts: Fact, owner: str = "me") -> Fold:
    """Fold facts in order, a second apart."""
    fold = Fold()
    for number, fact in enumerate(facts, start=1):
        fold = fold.after(Entry(number, time_of(number), owner, f"n{number}", fold.nonce, 0, fact))
    return fold


def time_of(number: int) -> str:
    """Return the time of an entry of `folded`."""
    return f"202602010000{number:02}000"


def seen(*instants: str) -> frozenset[str]:
    """Return instants."""
    return frozenset(instants)


def test_an_instant_is_committed_once() -> None:
    assert lawful(commit(A), folded()) is None
    assert lawful(commit(A), folded(commit(A))) is not None
    assert lawful(commit(B), folded(commit(A))) is None


def test_what_was_rolled_back_is_never_committed_and_the_other_way_round() -> None:
    assert lawful(commit(A), folded(Rollback(A))) is not None
    assert lawful(Rollback(A), folded(commit(A))) is not None
    assert lawful(Rollback(A), folded(Rollback(A))) is not None


def test_rules_by_which_what_is_complete_may_be_rolled_back_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    what_is_complete_may_be_rolled_back(monkeypatch)
    with pytest.raises(AssertionError):
        test_what_was_rolled_back_is_never_committed_and_the_other_way_round()


def test_what_is_archived_is_decided() -> None:
    fold = folded(commit(A), commit(B), Turn(A, groups("a")), Boundary(1, B))
    assert list(fold.committed) == [B]
    for fact in (commit(A), Rollback(A), Foreign(A, Action.COMMIT, A, NOTHING)):
        assert lawful(fact, fold) is not None


def test_nothing_is_archived_past_a_pending_plan() -> None:
    fold = folded(commit(A), plan("a"), commit(B), commit("20260103000000000"))
    (pending,) = fold.plans
    assert lawful(Boundary(1, pending), fold) is None
    after = later(0, pending)
    assert "pending" in (lawful(Boundary(1, after), fold) or "")


def test_a_foreign_commit_gets_one_entry() -> None:
    foreign = Foreign(A, Action.COMMIT, B, NOTHING)
    assert lawful(foreign, folded()) is None
    assert lawful(foreign, folded(foreign)) is not None
    assert folded(foreign).foreign


def test_a_live_writer_is_not_rolled_back_but_by_itself() -> None:
    alive = Evidence(alive=seen(A))
    assert lawful(Rollback(A), folded(), alive) is not None
    assert lawful(Rollback(A), folded(), Evidence(alive=seen(A), own=seen(A))) is None
    assert lawful(Rollback(A), folded(), Evidence(alive=seen(B))) is None


def test_a_file_group_is_in_one_pending_plan_at_most() -> None:
    fold = folded(plan("a", "b"))
    assert lawful(plan("b", "c"), fold) is not None
    assert lawful(plan("c"), fold) is None
    done = folded(plan("a"), Claim(time_of(1), 1), commit(time_of(1)))
    assert lawful(plan("a"), done) is None


def test_a_plan_is_claimed_by_the_next_attempt_only() -> None:
    fold = folded(plan("a"))
    assert lawful(Claim(time_of(1), 2), fold) is not None
    assert lawful(Claim(time_of(1), 1), fold) is None
    claimed = folded(plan("a"), Claim(time_of(1), 1))
    assert lawful(Claim(time_of(1), 2), claimed, Evidence(alive=seen(time_of(1)))) is not None
    assert lawful(Claim(time_of(1), 2), claimed) is None
    assert lawful(Claim(A, 1), fold) is not None


def test_a_removable_plan_that_was_begun_is_not_claimed_again() -> None:
    fold = folded(plan("a", removable=True))
    assert lawful(Claim(time_of(1), 1), fold, Evidence(inflight=seen(time_of(1)))) is not None
    assert lawful(Claim(time_of(1), 1), fold) is None


def test_only_the_last_attempt_at_a_plan_commits() -> None:
    fold = folded(plan("a"), Claim(time_of(1), 1), Rollback(time_of(1), attempt=1))
    assert lawful(commit(time_of(1), attempt=1), fold, owner="me") is not None
    again = folded(
        plan("a"), Claim(time_of(1), 1), Rollback(time_of(1), attempt=1), Claim(time_of(1), 2)
    )
    assert lawful(commit(time_of(1), attempt=1), again, owner="me") is not None
    assert lawful(commit(time_of(1), attempt=2), again, owner="me") is None
    assert lawful(commit(time_of(1), attempt=2), again, owner="other") is not None


def test_a_token_smaller_than_one_that_committed_does_not_commit() -> None:
    """T9."""
    fold = folded(replace(commit(A), token=5))
    assert lawful(replace(commit(B), token=4), fold) is not None
    assert lawful(replace(commit(B), token=5), fold) is None
    assert lawful(commit(B), fold) is None, "who takes no lock has none to lose"


def test_tokens_that_begin_anew_begin_an_epoch_that_ends_the_one_before() -> None:
    """C105: what was granted after a larger token had committed comes from another counter."""
    old = folded(replace(commit(A), token=5))
    assert fencing_epoch(5, old) == fencing_epoch(6, old) == fencing_epoch(0, old) == 0
    assert fencing_epoch(4, old) == 1
    fresh = replace(commit(B), token=2, epoch=fencing_epoch(2, old))
    assert lawful(fresh, old) is None
    fold = folded(replace(commit(A), token=5), fresh)
    assert (fold.epoch, fold.token) == (1, 2)
    # A sleeper with the lock of before, under whatever number, and one of the new counter.
    assert lawful(replace(commit(C), token=9), fold) is not None
    assert lawful(replace(commit(C), token=1, epoch=1), fold) is not None
    assert lawful(replace(commit(C), token=2, epoch=1), fold) is None
    assert lawful(commit(C), fold) is None


def test_a_plan_that_cannot_be_removed_is_not_rolled_back() -> None:
    assert lawful(Rollback(time_of(1)), folded(plan("a"))) is not None
    removable = folded(plan("a", removable=True))
    assert lawful(Rollback(time_of(1)), removable) is None
    young = Evidence(too_young=seen(time_of(1)))
    assert lawful(Rollback(time_of(1)), removable, young) is not None


def test_an_attempt_ends_once() -> None:
    claimed = folded(plan("a"), Claim(time_of(1), 1))
    over = Rollback(time_of(1), attempt=1)
    assert lawful(over, claimed) is None
    assert lawful(over, claimed, Evidence(alive=seen(time_of(1)))) is not None
    assert lawful(over, folded(plan("a"), Claim(time_of(1), 1), over)) is not None
    assert time_of(1) in folded(plan("a"), Claim(time_of(1), 1), over).plans, "the plan stays"


def test_a_savepoint_bears_the_time_of_the_commit_it_keeps() -> None:
    savepoint = commit(A, action=Action.SAVEPOINT)
    assert lawful(savepoint, folded(commit(A))) is None
    assert lawful(savepoint, folded()) is not None
    assert folded(commit(A), savepoint).committed == folded(commit(A)).committed


def test_a_table_service_does_not_change_the_schema() -> None:
    written = replace(commit(A), schema_id="evolved")
    service = Commit(
        B, Action.COMMIT, 1, Footprint(Deed.COMPACTION), Inline(b""), schema_id="as planned"
    )
    assert folded(written, service).schema_id == "evolved"
    assert folded(written, replace(commit(B), schema_id="later")).schema_id == "later"


def test_an_entry_out_of_order_breaks_the_program() -> None:
    fold = folded(commit(A))
    for bad in (
        Entry(3, time_of(3), "me", "x", fold.nonce, 0, commit(B)),
        Entry(2, time_of(1), "me", "x", fold.nonce, 0, commit(B)),
        Entry(2, time_of(2), "me", "x", "another history", 0, commit(B)),
    ):
        with pytest.raises(InvariantBroken):
            fold.after(bad)


def test_a_turn_ends_with_the_commit_of_its_owner() -> None:
    assert len(folded(Turn(A, groups("a"))).turns) == 1
    assert folded(Turn(A, groups("a")), commit(A)).turns == ()
    assert folded(Turn(A, groups("a")), Rollback(A)).turns == ()
    many = [Turn(A, groups("a"))] * 3
    assert len(folded(*many).turns) == 1, "one turn for one owner"
    assert TURNS_MAX >= 16


def test_a_time_is_the_clock_s_or_one_later_than_the_last() -> None:
    assert later(0, "20260101000000999") == "20260101000001000"
    assert later(0, "20251231235959999") == "20260101000000000"
    assert later(4_102_444_800_000, "20260101000000999") == "21000101000000000"


def test_a_view_keeps_enough_to_judge_and_not_much_more() -> None:
    view = View()
    for number in range(1, 2 * TAIL_MAX):
        time = format_time(number * 1_000)
        fact = commit(format_time(number * 1_000 - 1))
        view = view.after(
            Entry(number, time, "me", f"n{number}", view.fold.nonce, number - 1, fact)
        )
        assert len(view.tail) <= TAIL_MAX * 1.25
    assert len(view.since(view.position - TAIL_MAX) or ()) == TAIL_MAX
    assert view.since(0) is None
