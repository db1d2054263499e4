"""Application transactions: a batch is committed once, by any process, however late (C78-C83)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.unit.txn.bench import Bench, draft
from tests.unit.txn.test_state import NOTHING, A, B, commit, state_of
from tidelock.core.errors import InvalidInput, RecordFromFuture
from tidelock.hudi.timeline.instant import Action
from tidelock.txn import checkpoint, entries
from tidelock.txn.app_transactions import (
    APPLICATIONS_MAX,
    DATA_CHARACTERS_MAX,
    AppliedTransaction,
    AppTransaction,
    with_applied,
    with_previous,
)
from tidelock.txn.checkpoint import Checkpoint
from tidelock.txn.commit import CommitDraft
from tidelock.txn.conflicts import Committed, Conflicted, Rebase, Repeated
from tidelock.txn.entries import Commit, InlineContent, LedgerEntry, PlanRollback
from tidelock.txn.state import LedgerState, validate_entry

ORDERS = AppTransaction("orders", 7, {"streamer.checkpoint.key.v2": "topic,0:120"})


def marking(instant: str, app_transaction: AppTransaction) -> Commit:
    """Return a commit with an application transaction."""
    return Commit(
        instant, Action.COMMIT, 1, NOTHING, InlineContent(b""), app_transaction=app_transaction
    )


def with_app_transaction(app_transaction: AppTransaction, *created: str) -> CommitDraft:
    """Return a draft of a batch."""
    return replace(draft(created=created), app_transaction=app_transaction)


@pytest.mark.parametrize(("version", "may"), [(6, False), (7, False), (8, True), (900, True)])
def test_batch_is_valid_only_after_the_last_of_its_application(version: int, may: bool) -> None:
    state = state_of(marking(A, ORDERS))
    problem = validate_entry(marking(B, AppTransaction("orders", version)), state)
    assert (problem is None) is may
    assert may or "orders" in str(problem)


def test_applications_are_independent_and_a_plain_commit_keeps_their_versions() -> None:
    state = state_of(marking(A, ORDERS), commit(B))
    assert validate_entry(marking("20260103000000000", AppTransaction("clicks", 0)), state) is None
    assert state.app_transactions["orders"].app_transaction == ORDERS
    assert state.app_transactions["orders"].instant == A


def test_zombie_of_an_applied_batch_gets_repeated() -> None:
    bench = Bench()
    zombie = bench.begin(bench.writer())
    done = bench.begin(bench.writer()).commit(with_app_transaction(ORDERS, "a"))
    assert isinstance(done, Committed)
    late = zombie.commit(with_app_transaction(ORDERS, "b"))
    assert isinstance(late, Conflicted)
    assert isinstance(late.verdict, Repeated)
    assert late.verdict.applied == AppliedTransaction(ORDERS, done.instant, done.completion)
    zombie.rollback(conflict=late)
    assert [each.requested for each in bench.completed()] == [done.instant]
    assert bench.pending() == ()


@pytest.mark.parametrize("asleep_at", range(12))
def test_batch_is_committed_once_wherever_a_zombie_was_suspended(asleep_at: int) -> None:
    """T15: one request at a time, the other's whole commit between any two of them."""
    bench = Bench()
    txns = bench.writer()
    zombie = bench.begin(txns)
    steps = zombie.commit_steps(with_app_transaction(ORDERS, "a"))
    done, answer = 0, None
    other = late = None
    while late is None:
        if done == asleep_at:
            other = bench.begin(bench.writer()).commit(with_app_transaction(ORDERS, "b"))
        try:
            effect = steps.send(answer)
        except StopIteration as end:
            late = end.value
        else:
            answer = txns.ledger.runner._answer(effect, None)
            done += 1
    other = other or bench.begin(bench.writer()).commit(with_app_transaction(ORDERS, "b"))
    ended = sorted(type(each).__name__ for each in (late, other))
    assert ended == ["Committed", "Conflicted"]
    assert len(bench.completed()) == 1
    app_transactions = bench.writer().ledger.refresh().app_transactions
    assert app_transactions["orders"].instant == bench.completed()[0].requested


def test_commit_with_a_lost_reply_is_found_and_not_reported_as_repeated() -> None:
    bench = Bench()
    transaction = bench.begin(bench.writer())
    first = transaction.commit(with_app_transaction(ORDERS, "a"))
    transaction.phase = type(transaction.phase).UNKNOWN
    assert isinstance(first, Committed)
    again = transaction.commit(with_app_transaction(ORDERS, "a"))
    assert isinstance(again, Committed)
    assert (again.instant, again.completion) == (first.instant, first.completion)


def test_batch_rolled_back_by_others_is_written_again_and_not_reported_as_repeated() -> None:
    bench = Bench()
    txns = bench.writer()
    given_up = bench.begin(txns)
    given_up.rollback("by hand")
    given_up.phase = type(given_up.phase).RUNNING
    bench.begin(txns).commit(with_app_transaction(ORDERS, "a"))
    late = given_up.commit(with_app_transaction(ORDERS, "b"))
    assert isinstance(late, Conflicted)
    assert isinstance(late.verdict, Rebase)


def test_new_process_reads_app_transactions_from_checkpoint_and_tail() -> None:
    bench = Bench()
    txns = bench.writer()
    for version in range(80):
        app_transaction = AppTransaction(
            "orders" if version % 2 else "clicks", version, f"at {version}"
        )
        done = bench.begin(txns).commit(with_app_transaction(app_transaction, f"g{version}"))
        assert isinstance(done, Committed)
    assert bench.keys(checkpoint.CHECKPOINT_KEY)
    app_transactions = bench.writer().ledger.refresh().app_transactions
    assert {name: held.app_transaction.data for name, held in app_transactions.items()} == {
        "orders": "at 79",
        "clicks": "at 78",
    }


def test_checkpoint_without_app_transactions_is_read() -> None:
    body = checkpoint.encode(Checkpoint(state_of(commit(A)), "n"))
    fields = json.loads(body)
    assert fields["format"] == 1
    assert "marks" not in fields
    assert dict(checkpoint.decode_checkpoint(body, where="here").state.app_transactions) == {}


def test_reader_without_app_transaction_support_stops_at_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = LedgerEntry(1, A, "me", "n", "", 0, commit(A))
    carrying = replace(plain, fact=marking(A, ORDERS))
    remaining = checkpoint.encode(Checkpoint(state_of(marking(A, ORDERS)), "n"))
    monkeypatch.setattr(entries, "ENTRY_FORMAT", 1)
    monkeypatch.setattr(checkpoint, "CHECKPOINT_FORMAT", 1)
    assert entries.decode(entries.encode(plain), where="here") == plain
    body = json.loads(entries.encode(carrying)) | {"format": 2}
    with pytest.raises(RecordFromFuture):
        entries.decode(json.dumps(body).encode(), where="here")
    with pytest.raises(RecordFromFuture):
        checkpoint.decode_checkpoint(remaining, where="here")


def test_rollback_of_app_transactions_round_trips() -> None:
    """C82: an older release would continue to refuse the batch."""
    left = {
        "orders": AppliedTransaction(AppTransaction("orders", 3, {"at": "7"}), A, B),
        "clicks": None,
    }
    fact = PlanRollback(
        Action.RESTORE, (B,), InlineContent(b""), complete=True, app_transactions=left
    )
    entry = LedgerEntry(2, "20990101000000000", "me", "n", "b", 0, fact)
    body = entries.encode(entry)
    assert entries.decode(body, where="here") == entry
    assert json.loads(body)["format"] == entries.ENTRY_FORMAT
    before = {
        name: AppliedTransaction(AppTransaction(name, 9), B, B)
        for name in ("orders", "clicks", "others")
    }
    assert dict(with_previous(before, left)) == {
        "others": before["others"],
        "orders": left["orders"],
    }


def test_longest_idle_application_is_forgotten() -> None:
    app_transactions = LedgerState().app_transactions
    for number in range(APPLICATIONS_MAX):
        app_transactions = with_applied(
            app_transactions, AppliedTransaction(AppTransaction(f"a{number}", 1), A, B)
        )
    app_transactions = with_applied(
        app_transactions, AppliedTransaction(AppTransaction("a0", 2), A, B)
    )
    app_transactions = with_applied(
        app_transactions, AppliedTransaction(AppTransaction("one more", 1), A, B)
    )
    assert len(app_transactions) == APPLICATIONS_MAX
    assert "a0" in app_transactions
    assert "a1" not in app_transactions


@pytest.mark.parametrize(
    ("application", "version", "data"),
    [("", 1, ""), ("a", -1, ""), ("a", 2**63, ""), ("a", 1, "x" * DATA_CHARACTERS_MAX)],
)
def test_empty_or_oversized_app_transaction_is_refused(
    application: str, version: int, data: str
) -> None:
    with pytest.raises(InvalidInput):
        AppTransaction(application, version, data)


def test_deprecated_name_of_the_application_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="'application' is deprecated") as warned:
        old = AppTransaction(application="a", version=1)  # type: ignore[call-arg]
    assert warned[0].filename == __file__
    assert old == AppTransaction("a", 1) == AppTransaction(app_id="a", version=1)
    with pytest.warns(DeprecationWarning, match="use 'app_id'"):
        assert old.application == "a"
    with pytest.warns(DeprecationWarning, match="use 'app_id'"):
        assert replace(old, application="b") == AppTransaction("b", 1)  # type: ignore[call-arg]
    assert replace(old, app_id="b", version=2) == AppTransaction("b", 2)
