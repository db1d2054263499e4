"""The rules for appending to a ledger, and the resulting state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.txnsim.planted_services import a_completed_write_may_be_rolled_back
from tests.unit.txn.bench import groups
from tidelock.core.errors import InvariantBroken
from tidelock.hudi.timeline.instant import Action, format_time
from tidelock.txn.entries import (
    Boundary,
    Claim,
    Commit,
    ExternalCommit,
    Fact,
    InlineContent,
    LedgerEntry,
    Plan,
    PriorityTicket,
    Rollback,
)
from tidelock.txn.footprint import CommitKind, Footprint
from tidelock.txn.state import (
    PRIORITY_TICKETS_MAX,
    TAIL_MAX,
    Evidence,
    LedgerState,
    View,
    fencing_epoch,
    later,
    validate_entry,
)

A, B = "20260101000000000", "20260102000000000"
C = "20260103000000000"
NOTHING = Footprint(CommitKind.UPSERT)


def commit(instant: str, *, attempt: int = 1, action: Action = Action.COMMIT) -> Commit:
    """Return a minimal commit."""
    return Commit(instant, action, attempt, NOTHING, InlineContent(b""))


def plan(*names: str, removable: bool = False) -> Plan:
    """Return a plan for some file groups."""
    return Plan(Action.COMPACTION, groups(*names), InlineContent(b""), removable)


def state_of(*facts: Fact, owner: str = "me") -> LedgerState:
    """Apply entries in order, a second apart."""
    state = LedgerState()
    for number, fact in enumerate(facts, start=1):
        state = state.after(
            LedgerEntry(number, time_of(number), owner, f"n{number}", state.nonce, 0, fact)
        )
    return state


def time_of(number: int) -> str:
    """Return the time of an entry of `state_of`."""
    return f"202602010000{number:02}000"


def seen(*instants: str) -> frozenset[str]:
    """Return instants."""
    return frozenset(instants)


def test_instant_is_committed_once() -> None:
    assert validate_entry(commit(A), state_of()) is None
    assert validate_entry(commit(A), state_of(commit(A))) is not None
    assert validate_entry(commit(B), state_of(commit(A))) is None


def test_instant_is_either_committed_or_rolled_back() -> None:
    assert validate_entry(commit(A), state_of(Rollback(A))) is not None
    assert validate_entry(Rollback(A), state_of(commit(A))) is not None
    assert validate_entry(Rollback(A), state_of(Rollback(A))) is not None


def test_rules_that_allow_rollback_of_completed_instants_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_completed_write_may_be_rolled_back(monkeypatch)
    with pytest.raises(AssertionError):
        test_instant_is_either_committed_or_rolled_back()


def test_archived_instant_is_decided() -> None:
    state = state_of(commit(A), commit(B), PriorityTicket(A, groups("a")), Boundary(1, B))
    assert list(state.committed) == [B]
    for fact in (commit(A), Rollback(A), ExternalCommit(A, Action.COMMIT, A, NOTHING)):
        assert validate_entry(fact, state) is not None


def test_nothing_is_archived_past_a_pending_plan() -> None:
    state = state_of(commit(A), plan("a"), commit(B), commit("20260103000000000"))
    (pending,) = state.plans
    assert validate_entry(Boundary(1, pending), state) is None
    after = later(0, pending)
    assert "pending" in (validate_entry(Boundary(1, after), state) or "")


def test_external_commit_gets_one_entry() -> None:
    external = ExternalCommit(A, Action.COMMIT, B, NOTHING)
    assert validate_entry(external, state_of()) is None
    assert validate_entry(external, state_of(external)) is not None
    assert state_of(external).external


def test_live_writer_is_rolled_back_only_by_itself() -> None:
    alive = Evidence(alive=seen(A))
    assert validate_entry(Rollback(A), state_of(), alive) is not None
    assert validate_entry(Rollback(A), state_of(), Evidence(alive=seen(A), own=seen(A))) is None
    assert validate_entry(Rollback(A), state_of(), Evidence(alive=seen(B))) is None


def test_file_group_is_in_one_pending_plan_at_most() -> None:
    state = state_of(plan("a", "b"))
    assert validate_entry(plan("b", "c"), state) is not None
    assert validate_entry(plan("c"), state) is None
    done = state_of(plan("a"), Claim(time_of(1), 1), commit(time_of(1)))
    assert validate_entry(plan("a"), done) is None


def test_plan_is_claimed_only_by_the_next_attempt() -> None:
    state = state_of(plan("a"))
    assert validate_entry(Claim(time_of(1), 2), state) is not None
    assert validate_entry(Claim(time_of(1), 1), state) is None
    claimed = state_of(plan("a"), Claim(time_of(1), 1))
    assert (
        validate_entry(Claim(time_of(1), 2), claimed, Evidence(alive=seen(time_of(1)))) is not None
    )
    assert validate_entry(Claim(time_of(1), 2), claimed) is None
    assert validate_entry(Claim(A, 1), state) is not None


def test_removable_plan_that_was_begun_is_not_claimed_again() -> None:
    state = state_of(plan("a", removable=True))
    assert (
        validate_entry(Claim(time_of(1), 1), state, Evidence(inflight=seen(time_of(1)))) is not None
    )
    assert validate_entry(Claim(time_of(1), 1), state) is None


def test_only_the_last_attempt_at_a_plan_commits() -> None:
    state = state_of(plan("a"), Claim(time_of(1), 1), Rollback(time_of(1), attempt=1))
    assert validate_entry(commit(time_of(1), attempt=1), state, owner="me") is not None
    again = state_of(
        plan("a"), Claim(time_of(1), 1), Rollback(time_of(1), attempt=1), Claim(time_of(1), 2)
    )
    assert validate_entry(commit(time_of(1), attempt=1), again, owner="me") is not None
    assert validate_entry(commit(time_of(1), attempt=2), again, owner="me") is None
    assert validate_entry(commit(time_of(1), attempt=2), again, owner="other") is not None


def test_token_smaller_than_a_committed_one_does_not_commit() -> None:
    """T9."""
    state = state_of(replace(commit(A), token=5))
    assert validate_entry(replace(commit(B), token=4), state) is not None
    assert validate_entry(replace(commit(B), token=5), state) is None
    assert validate_entry(commit(B), state) is None, "who takes no lock has none to lose"


def test_restarted_tokens_begin_an_epoch_that_ends_the_previous_one() -> None:
    """C105: a token granted after a larger one had committed comes from another counter."""
    old = state_of(replace(commit(A), token=5))
    assert fencing_epoch(5, old) == fencing_epoch(6, old) == fencing_epoch(0, old) == 0
    assert fencing_epoch(4, old) == 1
    fresh = replace(commit(B), token=2, epoch=fencing_epoch(2, old))
    assert validate_entry(fresh, old) is None
    state = state_of(replace(commit(A), token=5), fresh)
    assert (state.epoch, state.token) == (1, 2)
    # A suspended writer with the earlier lock, with any number, and one of the new counter.
    assert validate_entry(replace(commit(C), token=9), state) is not None
    assert validate_entry(replace(commit(C), token=1, epoch=1), state) is not None
    assert validate_entry(replace(commit(C), token=2, epoch=1), state) is None
    assert validate_entry(commit(C), state) is None


def test_immutable_plan_is_not_rolled_back() -> None:
    assert validate_entry(Rollback(time_of(1)), state_of(plan("a"))) is not None
    removable = state_of(plan("a", removable=True))
    assert validate_entry(Rollback(time_of(1)), removable) is None
    young = Evidence(too_young=seen(time_of(1)))
    assert validate_entry(Rollback(time_of(1)), removable, young) is not None


def test_attempt_ends_once() -> None:
    claimed = state_of(plan("a"), Claim(time_of(1), 1))
    over = Rollback(time_of(1), attempt=1)
    assert validate_entry(over, claimed) is None
    assert validate_entry(over, claimed, Evidence(alive=seen(time_of(1)))) is not None
    assert validate_entry(over, state_of(plan("a"), Claim(time_of(1), 1), over)) is not None
    assert time_of(1) in state_of(plan("a"), Claim(time_of(1), 1), over).plans, "the plan stays"


def test_savepoint_has_the_time_of_its_commit() -> None:
    savepoint = commit(A, action=Action.SAVEPOINT)
    assert validate_entry(savepoint, state_of(commit(A))) is None
    assert validate_entry(savepoint, state_of()) is not None
    assert state_of(commit(A), savepoint).committed == state_of(commit(A)).committed


def test_table_service_does_not_change_the_schema() -> None:
    written = replace(commit(A), schema_id="evolved")
    service = Commit(
        B,
        Action.COMMIT,
        1,
        Footprint(CommitKind.COMPACTION),
        InlineContent(b""),
        schema_id="as planned",
    )
    assert state_of(written, service).schema_id == "evolved"
    assert state_of(written, replace(commit(B), schema_id="later")).schema_id == "later"


def test_entry_out_of_order_raises() -> None:
    state = state_of(commit(A))
    for bad in (
        LedgerEntry(3, time_of(3), "me", "x", state.nonce, 0, commit(B)),
        LedgerEntry(2, time_of(1), "me", "x", state.nonce, 0, commit(B)),
        LedgerEntry(2, time_of(2), "me", "x", "another history", 0, commit(B)),
    ):
        with pytest.raises(InvariantBroken):
            state.after(bad)


def test_ticket_ends_with_the_commit_of_its_owner() -> None:
    assert len(state_of(PriorityTicket(A, groups("a"))).tickets) == 1
    assert state_of(PriorityTicket(A, groups("a")), commit(A)).tickets == ()
    assert state_of(PriorityTicket(A, groups("a")), Rollback(A)).tickets == ()
    many = [PriorityTicket(A, groups("a"))] * 3
    assert len(state_of(*many).tickets) == 1, "one turn for one owner"
    assert PRIORITY_TICKETS_MAX >= 16


def test_time_is_the_clock_or_one_later_than_the_last() -> None:
    assert later(0, "20260101000000999") == "20260101000001000"
    assert later(0, "20251231235959999") == "20260101000000000"
    assert later(4_102_444_800_000, "20260101000000999") == "21000101000000000"


def test_view_retains_only_what_conflict_checks_need() -> None:
    view = View()
    for number in range(1, 2 * TAIL_MAX):
        time = format_time(number * 1_000)
        fact = commit(format_time(number * 1_000 - 1))
        view = view.after(
            LedgerEntry(number, time, "me", f"n{number}", view.state.nonce, number - 1, fact)
        )
        assert len(view.tail) <= TAIL_MAX * 1.25
    assert len(view.since(view.position - TAIL_MAX) or ()) == TAIL_MAX
    assert view.since(0) is None
