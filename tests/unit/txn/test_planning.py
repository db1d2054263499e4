"""Plans of table services: one executor at a time, and a suspended one never commits."""

from __future__ import annotations

import pytest

from tests.unit.doubles import ManualClock, ScriptedStore
from tests.unit.txn.bench import PARTITION, Bench, draft, groups
from tidelock.core.errors import Conflict, OutcomeUnknown, StoreUnreachable
from tidelock.core.outcome import Landed
from tidelock.hudi.file_groups import WriteToken, base_name
from tidelock.hudi.timeline.instant import Action, InstantState
from tidelock.hudi.timeline.metadata import CompactionPlan, OperationType
from tidelock.storage.contract import Create, Unclear
from tidelock.txn.commit import CommitDraft
from tidelock.txn.conflicts import Committed, Conflicted, Preempted
from tidelock.txn.entries import entry_key
from tidelock.txn.plans import ClaimRefusal, NotClaimed, remove_plan
from tidelock.txn.state import PendingPlan
from tidelock.txn.transaction import Transaction
from tidelock.txn.transaction_manager import TransactionManager

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
DEAD_MS = 60_000 * 10 + 1
COMPACT = OperationType.COMPACT


def planned(bench: Bench, txns: TransactionManager, *, removable: bool = False) -> PendingPlan:
    """Schedule a compaction of file group `a`."""
    bench.commit_one(txns, "a")
    base = txns.ledger.refresh()
    return txns.schedule(
        Action.COMPACTION, CompactionPlan(), groups("a"), base=base, removable=removable
    )


def claimed(txns: TransactionManager, plan: PendingPlan) -> Transaction:
    """Claim a plan that is free."""
    found = txns.claim(plan.instant, COMPACT, markers=False)
    assert isinstance(found, Transaction), found
    return found


def compaction() -> CommitDraft:
    """Return the commit of a compaction of file group `a`."""
    return draft(COMPACT, touched=("a",))


def test_plan_is_executed_and_completed_as_a_commit() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    plan = planned(bench, txns)
    work = claimed(txns, plan)
    result = work.commit(compaction())
    assert isinstance(result, Committed)
    (_, done) = bench.completed()
    assert (done.requested, done.action) == (plan.instant, Action.COMMIT)
    assert txns.ledger.state.plans == {}


def test_plan_of_a_table_that_changed_is_refused() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    bench.commit_one(txns, "a")
    base = txns.ledger.refresh()
    bench.commit_one(bench.writer(), "a")
    with pytest.raises(Conflict, match="changed what was planned"):
        txns.schedule(Action.COMPACTION, CompactionPlan(), groups("a"), base=base)
    assert bench.keys(".hoodie/.heartbeat/") == []


def test_file_group_is_planned_once() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    planned(bench, txns)
    with pytest.raises(Conflict, match="pending compaction"):
        txns.schedule(
            Action.CLUSTERING, CompactionPlan(), groups("a", "b"), base=txns.ledger.refresh()
        )


def test_plan_that_is_being_executed_is_not_claimed() -> None:
    bench = Bench(OCC)
    one, two = bench.writer(), bench.writer()
    plan = planned(bench, one)
    claimed(one, plan)
    found = two.claim(plan.instant, COMPACT)
    assert isinstance(found, NotClaimed)
    assert found.refusal is ClaimRefusal.ACTIVE
    assert found.alive_ms > 0


def test_dead_executor_is_replaced_and_its_files_are_deleted() -> None:
    bench = Bench(OCC)
    one, two = bench.writer(), bench.writer()
    plan = planned(bench, one)
    first = claimed(one, plan)
    left = base_name("a", WriteToken(0, first.attempt, 0), plan.instant)
    bench.store.put(f"{PARTITION}/{left}", b"", Create())
    bench.clock.advance(DEAD_MS)
    second = claimed(two, plan)
    assert second.attempt == first.attempt + 1
    assert bench.keys(PARTITION) == []
    assert isinstance(second.commit(compaction()), Committed)


def test_suspended_executor_cannot_commit_once_another_took_over() -> None:
    """IMM-B4, IMM-B5: before and after the other one has finished."""
    for finished in (False, True):
        bench = Bench(OCC)
        one, two = bench.writer(), bench.writer()
        plan = planned(bench, one)
        first = claimed(one, plan)
        bench.clock.advance(DEAD_MS)
        second = claimed(two, plan)
        if finished:
            assert isinstance(second.commit(compaction()), Committed)
        assert isinstance(first.commit(compaction()), Conflicted)
        if not finished:
            assert isinstance(second.commit(compaction()), Committed)
        done = [each for each in bench.completed() if each.requested == plan.instant]
        assert len(done) == 1


def test_compaction_commits_with_later_log_files() -> None:
    bench = Bench(OCC)
    txns, writer = bench.writer(), bench.writer()
    plan = planned(bench, txns)
    work = claimed(txns, plan)
    logs = bench.begin(writer)
    ready = CommitDraft(
        draft().metadata,
        OperationType.UPSERT,
        touched=groups("a"),
        appended=groups("a"),
    )
    assert isinstance(logs.commit(ready), Committed)
    assert isinstance(work.commit(compaction()), Committed)


def test_compaction_yields_to_a_new_base_file() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    plan = planned(bench, txns)
    work = claimed(txns, plan)
    bench.commit_one(bench.writer(), "a")
    result = work.commit(compaction())
    assert isinstance(result, Conflicted)
    assert isinstance(result.verdict, Preempted)


def test_abandoned_attempt_keeps_an_immutable_plan() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    plan = planned(bench, txns)
    claimed(txns, plan).rollback("not now")
    (pending,) = bench.pending()
    assert (pending.requested, pending.state) == (plan.instant, InstantState.REQUESTED)
    assert claimed(txns, plan).attempt == 2


def test_abandoned_removable_plan_is_removed() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    plan = planned(bench, txns, removable=True)
    claimed(txns, plan).rollback("not now")
    assert bench.pending() == ()
    found = txns.claim(plan.instant, COMPACT)
    assert isinstance(found, NotClaimed)
    assert found.refusal is ClaimRefusal.GONE


def test_removable_plan_whose_executor_died_is_never_executed_again() -> None:
    """REM-B2, REM-C."""
    bench = Bench(OCC)
    txns = bench.writer()
    plan = planned(bench, txns, removable=True)
    claimed(txns, plan)
    bench.clock.advance(DEAD_MS)
    found = bench.writer().claim(plan.instant, COMPACT)
    assert isinstance(found, NotClaimed)
    assert found.refusal is ClaimRefusal.DEAD


def test_removable_plan_is_removed_when_it_is_old_or_its_executor_died() -> None:
    """REM-D1 to REM-D5."""
    bench = Bench(OCC)
    txns, clean = bench.writer(), bench.writer()
    plan = planned(bench, txns, removable=True)
    assert clean.remove_plan(plan.instant, delay_ms=3_600_000) is not None, "too young"
    work = claimed(txns, plan)
    assert clean.remove_plan(plan.instant, delay_ms=0) is not None, "alive"
    bench.clock.advance(DEAD_MS)
    assert clean.remove_plan(plan.instant, delay_ms=3_600_000) is None, "begun, and dead"
    assert isinstance(work.commit(compaction()), Conflicted)
    assert bench.pending() == ()


def test_plan_of_a_process_whose_clock_is_ahead_can_be_removed_without_delay() -> None:
    bench = Bench(OCC)
    ahead = ManualClock()
    ahead.advance(60_000)
    plan = planned(bench, bench.writer(clock=ahead), removable=True)
    assert bench.writer().remove_plan(plan.instant, delay_ms=0) is None
    assert bench.pending() == ()


@pytest.mark.parametrize("asleep_at", range(16))
def test_plan_claimed_while_its_remover_was_suspended_stays(asleep_at: int) -> None:
    """C69: it is suspended until its own heartbeat expires, and another process claims the plan."""
    bench = Bench(OCC)
    txns, clean = bench.writer(), bench.writer()
    plan = planned(bench, txns, removable=True)
    bench.clock.advance(1_000)
    steps = remove_plan(clean, plan.instant, delay_ms=0)
    done, reply, is_over = 0, None, False
    work: Transaction | NotClaimed | None = None
    while not is_over:
        if done == asleep_at:
            bench.clock.advance(DEAD_MS)
            work = txns.claim(plan.instant, COMPACT, markers=False)
        try:
            effect = steps.send(reply)
        except StopIteration:
            is_over = True
        else:
            reply = clean.ledger.runner._answer(effect, None)
            done += 1
    if isinstance(work, Transaction):
        assert isinstance(work.commit(compaction()), Committed)
    else:
        assert plan.instant not in txns.ledger.refresh().plans


def test_time_of_a_plan_in_doubt_stays_reserved() -> None:
    """C63: its entry lands when a writer has begun in the same millisecond."""
    bench = Bench(OCC)
    bench.commit_one(bench.writer(), "a")
    store = ScriptedStore(bench.store)
    txns = bench.writer(store)
    base = txns.ledger.refresh()

    def unheard(_: object) -> Unclear:
        store.gets.append(StoreUnreachable("no network"))
        return Unclear("time-out")

    store.puts.extend([None, unheard])
    with pytest.raises(OutcomeUnknown):
        txns.schedule(Action.COMPACTION, CompactionPlan(), groups("a"), base=base)
    write = bench.begin(bench.writer())
    late = bench.store.put(entry_key(base.position + 1), store.bodies[-1], Create())
    assert isinstance(late, Landed)
    (instant,) = txns.ledger.refresh().plans
    assert instant != write.instant
    assert isinstance(write.commit(draft(touched=("b",))), Committed)


def test_recovery_never_touches_a_plan() -> None:
    """IMM-D."""
    bench = Bench(OCC)
    txns = bench.writer()
    plan = planned(bench, txns)
    claimed(txns, plan)
    bench.clock.advance(10 * DEAD_MS)
    assert bench.writer().recover().rolled_back == ()
    assert [each.requested for each in bench.pending()] == [plan.instant]
