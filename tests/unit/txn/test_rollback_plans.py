"""Rollback of completed commits, and savepoints: the rules, also with a slow publisher."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.txn.bench import Bench, draft, groups
from tidelock.core.errors import Conflict
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import CompactionPlan, OperationType, SavepointMetadata
from tidelock.txn.conflicts import Committed, Conflicted
from tidelock.txn.entries import (
    Boundary,
    Claim,
    InlineContent,
    Plan,
    PlanRollback,
    ReleaseSavepoint,
)
from tidelock.txn.plans import (
    NotClaimed,
    RollbackIntent,
    RollbackResult,
    checkpoint_through,
    finish_rollback,
    pending_rollbacks,
    scheduled_rollback,
)
from tidelock.txn.recovery import Recovery
from tidelock.txn.rollback import restore_plan
from tidelock.txn.savepoints import release, save
from tidelock.txn.state import Evidence, validate_entry
from tidelock.txn.transaction import Transaction
from tidelock.txn.transaction_manager import TransactionManager

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
NOTHING = InlineContent(b"")
DEAD_MS = 60_000 * 10 + 1
SAVED = SavepointMetadata("me", 1, "why")


def commit(bench: Bench, txns: TransactionManager, group: str) -> str:
    return bench.commit_one(txns, group).instant


def decide_rollback(
    txns: TransactionManager, *instants: str, action: Action = Action.RESTORE
) -> str:
    """Decide to roll back completed instants."""
    state = txns.ledger.refresh()
    record = restore_plan(((each, "commit") for each in instants), to="")
    intent = RollbackIntent(action, instants, record, state.position, complete=True)
    return txns.ledger.run(scheduled_rollback(txns, intent)).instant


def finish(txns: TransactionManager) -> RollbackResult | NotClaimed:
    (plan,) = pending_rollbacks(txns)
    return txns.ledger.run(finish_rollback(txns, plan))


def test_rolled_back_commit_is_aborted_at_once_and_gone_when_done() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    remaining, gone = commit(bench, txns, "a"), commit(bench, txns, "b")
    planned = decide_rollback(txns, gone)
    assert gone in txns.ledger.refresh().aborted
    assert [each.requested for each in bench.pending()] == [planned]
    done = finish(txns)
    assert isinstance(done, RollbackResult)
    assert [each.requested for each in bench.completed()] == [remaining]
    assert bench.pending() == ()
    assert txns.ledger.refresh().blocking_plan is None


def test_nothing_completes_while_commits_are_rolled_back() -> None:
    bench = Bench(OCC)
    txns, other = bench.writer(), bench.writer()
    gone = commit(bench, txns, "a")
    began = bench.begin(other)
    decide_rollback(txns, gone)
    assert isinstance(began.commit(draft(created=("b",))), Conflicted)
    with pytest.raises(Conflict, match="rolls back"):
        bench.begin(other)
    state = txns.ledger.refresh()
    plan = Plan(Action.COMPACTION, groups("z"), NOTHING)
    assert "not complete" in (validate_entry(plan, state) or "")
    assert "not complete" in (validate_entry(Boundary(0), state) or "")


def test_writer_that_began_before_retries_when_it_is_done() -> None:
    bench = Bench(OCC)
    txns, other = bench.writer(), bench.writer()
    gone = commit(bench, txns, "a")
    began = bench.begin(other)
    decide_rollback(txns, gone)
    finish(txns)
    result = began.commit(draft(created=("b",)))
    assert isinstance(result, Conflicted)
    assert isinstance(bench.begin(other).commit(draft(created=("b",))), Committed)


def test_commits_since_the_plan_are_not_overlooked() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    gone = commit(bench, txns, "a")
    state = txns.ledger.refresh()
    commit(bench, bench.writer(), "b")
    record = restore_plan([(gone, "commit")], to="")
    intent = RollbackIntent(Action.RESTORE, (gone,), record, state.position, complete=True)
    with pytest.raises(Conflict, match="since it was planned"):
        txns.ledger.run(scheduled_rollback(txns, intent))


def test_slow_publisher_does_not_restore_a_rolled_back_commit() -> None:
    """C86: it has read the commit and not the entry that rolls it back."""
    bench = Bench(OCC)
    txns, slow = bench.writer(), bench.writer()
    commit(bench, txns, "a")
    gone = commit(bench, txns, "b")
    slow.ledger.refresh()
    behind = replace(slow.ledger.view, published=0)
    decide_rollback(txns, gone)
    finish(txns)
    slow.ledger.run(slow.ledger.publisher.publish(behind))
    assert gone not in {each.requested for each in bench.completed()}


def test_slow_publisher_does_not_restore_a_savepoint() -> None:
    bench = Bench(OCC)
    txns, slow = bench.writer(), bench.writer()
    remaining = commit(bench, txns, "a")
    keep(txns, remaining)
    slow.ledger.refresh()
    behind = replace(slow.ledger.view, published=0)
    txns.ledger.run(release(txns, remaining))
    slow.ledger.run(slow.ledger.publisher.publish(behind))
    assert [key for key in bench.keys(".hoodie/timeline/") if "savepoint" in key] == []


def keep(txns: TransactionManager, instant: str) -> str:
    steps = save(txns, instant, SAVED, base=txns.ledger.refresh().position)
    return txns.ledger.run(steps)


def test_savepointed_commit_is_not_rolled_back() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    remaining = commit(bench, txns, "a")
    keep(txns, remaining)
    with pytest.raises(Conflict, match="savepoint"):
        decide_rollback(txns, remaining)
    with pytest.raises(Conflict, match="already"):
        keep(txns, remaining)
    txns.ledger.run(release(txns, remaining))
    decide_rollback(txns, remaining)
    with pytest.raises(Conflict, match="rolled back"):
        keep(txns, remaining)


def test_recreated_savepoint_is_not_deleted_by_a_process_that_deletes_the_first() -> None:
    bench = Bench(OCC)
    txns, other = bench.writer(), bench.writer()
    remaining = commit(bench, txns, "a")
    keep(txns, remaining)
    txns.ledger.run(release(txns, remaining))
    again = keep(other, remaining)
    assert [key for key in bench.keys(".hoodie/timeline/") if key.endswith(".savepoint")] == [
        f".hoodie/timeline/{remaining}_{again}.savepoint"
    ]
    assert "no savepoint" in (
        validate_entry(ReleaseSavepoint("1" * 17), txns.ledger.refresh()) or ""
    )


def test_savepoints_and_pending_rollbacks_are_in_the_checkpoint() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    remaining, gone = commit(bench, txns, "a"), commit(bench, txns, "b")
    since = keep(txns, remaining)
    planned = decide_rollback(txns, gone)
    checkpoint_decision(txns)
    fresh = bench.writer().ledger.refresh()
    assert fresh.savepoints == {remaining: since}
    assert fresh.plans[planned].rolls_back == (gone,)
    assert fresh.blocking_plan == fresh.plans[planned]


def checkpoint_decision(txns: TransactionManager) -> None:
    """Write a checkpoint that contains the decision, and stop before its execution."""
    txns.ledger.run(checkpoint_through(txns, txns.ledger.state.position))


def test_pending_clean_delays_savepoints_and_restores() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    remaining = commit(bench, txns, "a")
    txns.schedule(Action.CLEAN, CompactionPlan(), frozenset(), base=txns.ledger.refresh())
    with pytest.raises(Conflict, match="clean"):
        keep(txns, remaining)
    with pytest.raises(Conflict, match="clean"):
        decide_rollback(txns, remaining)


def test_immutable_plan_is_rolled_back_only_by_force() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    state = txns.ledger.refresh()
    plan = txns.schedule(Action.COMPACTION, CompactionPlan(), groups("a"), base=state)
    state = txns.ledger.refresh()
    undo = PlanRollback(Action.ROLLBACK, (plan.instant,), NOTHING)
    assert "cannot be removed" in (validate_entry(undo, state) or "")
    assert validate_entry(replace(undo, forced=True), state) is None
    alive = Evidence(alive=frozenset({plan.instant}))
    assert "alive" in (validate_entry(replace(undo, forced=True), state, alive) or "")


def test_instant_has_one_rollback() -> None:
    bench = Bench(OCC)
    dead = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    one, two = bench.writer(), bench.writer()
    one.ledger.refresh()
    two.recover()
    state = one.ledger.refresh()
    undo = PlanRollback(Action.ROLLBACK, (dead.instant,), NOTHING)
    assert "already" in (validate_entry(undo, state) or "")
    assert one.recover().rolled_back == ()


def test_decided_rollback_is_finished_by_any_process() -> None:
    bench = Bench(OCC)
    dead = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    one = bench.writer()
    one.ledger.run(Recovery(one).decide())
    (plan,) = pending_rollbacks(one)
    assert isinstance(one.claim(plan.instant, OperationType.UNKNOWN), Transaction)
    one.heartbeat_thread.close()
    assert bench.writer().recover().rolled_back == (), "while it is alive it is left to it"
    bench.clock.advance(DEAD_MS)
    other = bench.writer()
    assert [each.instant for each in other.recover().rolled_back] == [dead.instant]
    assert other.ledger.refresh().plans == {}
    assert validate_entry(Claim(plan.instant, 3), other.ledger.refresh()) is not None


def test_boundary_forgets_only_archived_instants() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    bench.begin(txns).rollback("no")
    (gone,) = txns.ledger.refresh().aborted
    commit(bench, txns, "a")
    state = txns.ledger.refresh()
    later = state.time
    assert "must be kept" in (validate_entry(Boundary(0, gone, later), state) or "")
    assert validate_entry(Boundary(0, later, later), state) is None
