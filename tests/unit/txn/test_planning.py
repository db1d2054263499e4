"""Plans of table services: one executor at a time, and a sleeper never commits."""

from __future__ import annotations

import pytest

from tests.unit.doubles import ScriptedStore
from tests.unit.txn.bench import PARTITION, Bench, draft, groups
from tidelock.base.errors import Conflict, OutcomeUnknown, StoreUnreachable
from tidelock.base.outcome import Landed
from tidelock.store.contract import Create, Unclear
from tidelock.table.naming import WriteToken, base_name
from tidelock.table.timeline.instant import Action, State
from tidelock.table.timeline.metadata import CompactionPlan, OperationType
from tidelock.txn.draft import CommitDraft, Committed, Overtaken
from tidelock.txn.entry import entry_key
from tidelock.txn.fold import Pending
from tidelock.txn.planning import NotClaimed, Why
from tidelock.txn.transaction import Transaction
from tidelock.txn.transactions import Transactions
from tidelock.txn.verdict import Yield

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
DEAD_MS = 60_000 * 10 + 1
COMPACT = OperationType.COMPACT


def planned(bench: Bench, home: Transactions, *, removable: bool = False) -> Pending:
    """Plan a compaction of file group `a`."""
    bench.commit_one(home, "a")
    base = home.ledger.refresh()
    return home.schedule(
        Action.COMPACTION, CompactionPlan(), groups("a"), base=base, removable=removable
    )


def claimed(home: Transactions, plan: Pending) -> Transaction:
    """Claim a plan that is free."""
    found = home.claim(plan.instant, COMPACT, markers=False)
    assert isinstance(found, Transaction), found
    return found


def compaction() -> CommitDraft:
    """Return the commit of a compaction of file group `a`."""
    return draft(COMPACT, touched=("a",))


def test_a_plan_is_executed_and_completed_as_a_commit() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    plan = planned(bench, home)
    work = claimed(home, plan)
    result = work.commit(compaction())
    assert isinstance(result, Committed)
    (_, done) = bench.completed()
    assert (done.requested, done.action) == (plan.instant, Action.COMMIT)
    assert home.ledger.fold.plans == {}


def test_a_plan_made_of_a_table_that_changed_is_refused() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    bench.commit_one(home, "a")
    base = home.ledger.refresh()
    bench.commit_one(bench.writer(), "a")
    with pytest.raises(Conflict, match="changed what was planned"):
        home.schedule(Action.COMPACTION, CompactionPlan(), groups("a"), base=base)
    assert bench.keys(".hoodie/.heartbeat/") == []


def test_a_file_group_is_planned_once() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    planned(bench, home)
    with pytest.raises(Conflict, match="pending compaction"):
        home.schedule(
            Action.CLUSTERING, CompactionPlan(), groups("a", "b"), base=home.ledger.refresh()
        )


def test_a_plan_that_is_being_executed_is_not_claimed() -> None:
    bench = Bench(OCC)
    one, two = bench.writer(), bench.writer()
    plan = planned(bench, one)
    claimed(one, plan)
    found = two.claim(plan.instant, COMPACT)
    assert isinstance(found, NotClaimed)
    assert found.why is Why.ACTIVE
    assert found.alive_ms > 0


def test_a_dead_executor_is_replaced_and_its_files_go() -> None:
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


def test_a_sleeping_executor_cannot_commit_once_another_took_over() -> None:
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
        assert isinstance(first.commit(compaction()), Overtaken)
        if not finished:
            assert isinstance(second.commit(compaction()), Committed)
        done = [each for each in bench.completed() if each.requested == plan.instant]
        assert len(done) == 1


def test_a_compaction_commits_over_log_files_that_came_later() -> None:
    bench = Bench(OCC)
    home, writer = bench.writer(), bench.writer()
    plan = planned(bench, home)
    work = claimed(home, plan)
    logs = bench.begin(writer)
    ready = CommitDraft(
        draft().metadata,
        OperationType.UPSERT,
        touched=groups("a"),
        appended=groups("a"),
    )
    assert isinstance(logs.commit(ready), Committed)
    assert isinstance(work.commit(compaction()), Committed)


def test_a_compaction_yields_to_a_new_base_file() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    plan = planned(bench, home)
    work = claimed(home, plan)
    bench.commit_one(bench.writer(), "a")
    result = work.commit(compaction())
    assert isinstance(result, Overtaken)
    assert isinstance(result.verdict, Yield)


def test_giving_up_an_attempt_keeps_a_plan_that_cannot_be_removed() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    plan = planned(bench, home)
    claimed(home, plan).rollback("not now")
    (pending,) = bench.pending()
    assert (pending.requested, pending.state) == (plan.instant, State.REQUESTED)
    assert claimed(home, plan).attempt == 2


def test_giving_up_a_removable_plan_removes_it() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    plan = planned(bench, home, removable=True)
    claimed(home, plan).rollback("not now")
    assert bench.pending() == ()
    found = home.claim(plan.instant, COMPACT)
    assert isinstance(found, NotClaimed)
    assert found.why is Why.GONE


def test_a_removable_plan_whose_executor_died_is_never_executed_again() -> None:
    """REM-B2, REM-C."""
    bench = Bench(OCC)
    home = bench.writer()
    plan = planned(bench, home, removable=True)
    claimed(home, plan)
    bench.clock.advance(DEAD_MS)
    found = bench.writer().claim(plan.instant, COMPACT)
    assert isinstance(found, NotClaimed)
    assert found.why is Why.DEAD


def test_a_removable_plan_is_removed_when_it_is_old_or_its_executor_died() -> None:
    """REM-D1 to REM-D5."""
    bench = Bench(OCC)
    home, clean = bench.writer(), bench.writer()
    plan = planned(bench, home, removable=True)
    assert clean.remove_plan(plan.instant, delay_ms=3_600_000) is not None, "too young"
    work = claimed(home, plan)
    assert clean.remove_plan(plan.instant, delay_ms=0) is not None, "alive"
    bench.clock.advance(DEAD_MS)
    assert clean.remove_plan(plan.instant, delay_ms=3_600_000) is None, "begun, and dead"
    assert isinstance(work.commit(compaction()), Overtaken)
    assert bench.pending() == ()


@pytest.mark.parametrize("asleep_at", range(16))
def test_wherever_a_remover_slept_a_plan_that_was_claimed_since_stays(asleep_at: int) -> None:
    """C69: it sleeps until its own heartbeat is dead, and somebody claims the plan meanwhile."""
    bench = Bench(OCC)
    home, clean = bench.writer(), bench.writer()
    plan = planned(bench, home, removable=True)
    bench.clock.advance(1_000)
    steps = clean.remove_plan_steps(plan.instant, delay_ms=0)
    done, reply, is_over = 0, None, False
    work: Transaction | NotClaimed | None = None
    while not is_over:
        if done == asleep_at:
            bench.clock.advance(DEAD_MS)
            work = home.claim(plan.instant, COMPACT, markers=False)
        try:
            effect = steps.send(reply)
        except StopIteration:
            is_over = True
        else:
            reply = clean.ledger.world._answer(effect, None)
            done += 1
    if isinstance(work, Transaction):
        assert isinstance(work.commit(compaction()), Committed)
    else:
        assert plan.instant not in home.ledger.refresh().plans


def test_the_time_of_a_plan_in_doubt_stays_reserved() -> None:
    """C63: its entry lands when a writer has begun in the same millisecond."""
    bench = Bench(OCC)
    bench.commit_one(bench.writer(), "a")
    store = ScriptedStore(bench.store)
    home = bench.writer(store)
    base = home.ledger.refresh()

    def unheard(_: object) -> Unclear:
        store.gets.append(StoreUnreachable("no network"))
        return Unclear("time-out")

    store.puts.extend([None, unheard])
    with pytest.raises(OutcomeUnknown):
        home.schedule(Action.COMPACTION, CompactionPlan(), groups("a"), base=base)
    write = bench.begin(bench.writer())
    late = bench.store.put(entry_key(base.position + 1), store.bodies[-1], Create())
    assert isinstance(late, Landed)
    (instant,) = home.ledger.refresh().plans
    assert instant != write.instant
    assert isinstance(write.commit(draft(touched=("b",))), Committed)


def test_recovery_never_touches_a_plan() -> None:
    """IMM-D."""
    bench = Bench(OCC)
    home = bench.writer()
    plan = planned(bench, home)
    claimed(home, plan)
    bench.clock.advance(10 * DEAD_MS)
    assert bench.writer().recover().undone == ()
    assert [each.requested for each in bench.pending()] == [plan.instant]
