"""Taking back what was complete, and keeping it: the laws, and that a slow publisher obeys them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.txn.bench import Bench, draft, groups
from tidelock.base.errors import Conflict
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import (
    CompactionPlan,
    OperationType,
    SavepointMetadata,
)
from tidelock.txn.content import Inline
from tidelock.txn.draft import Committed, Overtaken
from tidelock.txn.entry import Boundary, Claim, Plan, Release, Undo
from tidelock.txn.fold import Evidence, lawful
from tidelock.txn.planning import NotClaimed
from tidelock.txn.recovery import Recovery
from tidelock.txn.rollbacks import (
    CarriedOut,
    Intent,
    finish_undo,
    pending_undos,
    scheduled_undo,
    seal,
)
from tidelock.txn.saving import release, save
from tidelock.txn.transaction import Transaction
from tidelock.txn.transactions import Transactions
from tidelock.txn.undorecords import restore_plan

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
NOTHING = Inline(b"")
DEAD_MS = 60_000 * 10 + 1
SAVED = SavepointMetadata("me", 1, "why")


def commit(bench: Bench, home: Transactions, group: str) -> str:
    return bench.commit_one(home, group).instant


def take_back(home: Transactions, *instants: str, action: Action = Action.RESTORE) -> str:
    """Decide to take back instants that have completed."""
    fold = home.ledger.refresh()
    record = restore_plan(((each, "commit") for each in instants), to="")
    intent = Intent(action, instants, record, fold.position, complete=True)
    return home.ledger.run(scheduled_undo(home, intent)).instant


def finish(home: Transactions) -> CarriedOut | NotClaimed:
    (plan,) = pending_undos(home)
    return home.ledger.run(finish_undo(home, plan))


def test_what_is_taken_back_is_void_at_once_and_gone_when_it_is_done() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    kept, gone = commit(bench, home, "a"), commit(bench, home, "b")
    planned = take_back(home, gone)
    assert gone in home.ledger.refresh().void
    assert [each.requested for each in bench.pending()] == [planned]
    done = finish(home)
    assert isinstance(done, CarriedOut)
    assert [each.requested for each in bench.completed()] == [kept]
    assert bench.pending() == ()
    assert home.ledger.refresh().halting is None


def test_nothing_completes_while_commits_are_taken_back() -> None:
    bench = Bench(OCC)
    home, other = bench.writer(), bench.writer()
    gone = commit(bench, home, "a")
    began = bench.begin(other)
    take_back(home, gone)
    assert isinstance(began.commit(draft(created=("b",))), Overtaken)
    with pytest.raises(Conflict, match="takes back"):
        bench.begin(other)
    fold = home.ledger.refresh()
    plan = Plan(Action.COMPACTION, groups("z"), NOTHING)
    assert "not done" in (lawful(plan, fold) or "")
    assert "not done" in (lawful(Boundary(0), fold) or "")


def test_who_began_before_starts_over_when_it_is_done() -> None:
    bench = Bench(OCC)
    home, other = bench.writer(), bench.writer()
    gone = commit(bench, home, "a")
    began = bench.begin(other)
    take_back(home, gone)
    finish(home)
    result = began.commit(draft(created=("b",)))
    assert isinstance(result, Overtaken)
    assert isinstance(bench.begin(other).commit(draft(created=("b",))), Committed)


def test_what_was_committed_since_it_was_planned_is_not_overlooked() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    gone = commit(bench, home, "a")
    fold = home.ledger.refresh()
    commit(bench, bench.writer(), "b")
    record = restore_plan([(gone, "commit")], to="")
    intent = Intent(Action.RESTORE, (gone,), record, fold.position, complete=True)
    with pytest.raises(Conflict, match="since it was planned"):
        home.ledger.run(scheduled_undo(home, intent))


def test_a_slow_publisher_does_not_bring_back_what_was_taken_back() -> None:
    """C86: it has read the commit and not the entry that takes it back."""
    bench = Bench(OCC)
    home, slow = bench.writer(), bench.writer()
    commit(bench, home, "a")
    gone = commit(bench, home, "b")
    slow.ledger.refresh()
    behind = replace(slow.ledger.view, published=0)
    take_back(home, gone)
    finish(home)
    slow.ledger.run(slow.ledger.publisher.publish(behind))
    assert gone not in {each.requested for each in bench.completed()}


def test_a_slow_publisher_does_not_bring_back_a_savepoint() -> None:
    bench = Bench(OCC)
    home, slow = bench.writer(), bench.writer()
    kept = commit(bench, home, "a")
    keep(home, kept)
    slow.ledger.refresh()
    behind = replace(slow.ledger.view, published=0)
    home.ledger.run(release(home, kept))
    slow.ledger.run(slow.ledger.publisher.publish(behind))
    assert [key for key in bench.keys(".hoodie/timeline/") if "savepoint" in key] == []


def keep(home: Transactions, instant: str) -> str:
    steps = save(home, instant, SAVED, base=home.ledger.refresh().position)
    return home.ledger.run(steps)


def test_a_commit_with_a_savepoint_is_not_taken_back() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    kept = commit(bench, home, "a")
    keep(home, kept)
    with pytest.raises(Conflict, match="savepoint"):
        take_back(home, kept)
    with pytest.raises(Conflict, match="already"):
        keep(home, kept)
    home.ledger.run(release(home, kept))
    take_back(home, kept)
    with pytest.raises(Conflict, match="rolled back"):
        keep(home, kept)


def test_a_savepoint_made_again_is_not_deleted_by_who_gave_up_the_first() -> None:
    bench = Bench(OCC)
    home, other = bench.writer(), bench.writer()
    kept = commit(bench, home, "a")
    keep(home, kept)
    home.ledger.run(release(home, kept))
    again = keep(other, kept)
    assert [key for key in bench.keys(".hoodie/timeline/") if key.endswith(".savepoint")] == [
        f".hoodie/timeline/{kept}_{again}.savepoint"
    ]
    assert "no savepoint" in (lawful(Release("1" * 17), home.ledger.refresh()) or "")


def test_savepoints_and_pending_roll_backs_are_in_the_checkpoint() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    kept, gone = commit(bench, home, "a"), commit(bench, home, "b")
    since = keep(home, kept)
    planned = take_back(home, gone)
    finish_to_half(home)
    fresh = bench.writer().ledger.refresh()
    assert fresh.savepoints == {kept: since}
    assert fresh.plans[planned].undoes == (gone,)
    assert fresh.halting == fresh.plans[planned]


def finish_to_half(home: Transactions) -> None:
    """Seal what was decided, and go no further."""
    home.ledger.run(seal(home, home.ledger.fold.position))


def test_a_clean_that_is_pending_keeps_savepoints_and_restores_waiting() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    kept = commit(bench, home, "a")
    home.schedule(Action.CLEAN, CompactionPlan(), frozenset(), base=home.ledger.refresh())
    with pytest.raises(Conflict, match="clean"):
        keep(home, kept)
    with pytest.raises(Conflict, match="clean"):
        take_back(home, kept)


def test_a_plan_that_stays_is_undone_only_by_force() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    fold = home.ledger.refresh()
    plan = home.schedule(Action.COMPACTION, CompactionPlan(), groups("a"), base=fold)
    fold = home.ledger.refresh()
    undo = Undo(Action.ROLLBACK, (plan.instant,), NOTHING)
    assert "cannot be removed" in (lawful(undo, fold) or "")
    assert lawful(replace(undo, forced=True), fold) is None
    alive = Evidence(alive=frozenset({plan.instant}))
    assert "alive" in (lawful(replace(undo, forced=True), fold, alive) or "")


def test_an_instant_has_one_roll_back() -> None:
    bench = Bench(OCC)
    dead = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    one, two = bench.writer(), bench.writer()
    one.ledger.refresh()
    two.recover()
    fold = one.ledger.refresh()
    undo = Undo(Action.ROLLBACK, (dead.instant,), NOTHING)
    assert "already" in (lawful(undo, fold) or "")
    assert one.recover().undone == ()


def test_a_roll_back_that_was_decided_is_finished_by_whoever_comes() -> None:
    bench = Bench(OCC)
    dead = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    one = bench.writer()
    one.ledger.run(Recovery(one).decide())
    (plan,) = pending_undos(one)
    assert isinstance(one.claim(plan.instant, OperationType.UNKNOWN), Transaction)
    one.beating.close()
    assert bench.writer().recover().undone == (), "while it is alive it is left to it"
    bench.clock.advance(DEAD_MS)
    other = bench.writer()
    assert [each.instant for each in other.recover().undone] == [dead.instant]
    assert other.ledger.refresh().plans == {}
    assert lawful(Claim(plan.instant, 3), other.ledger.refresh()) is not None


def test_a_boundary_forgets_only_what_is_archived() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    bench.begin(home).rollback("no")
    (gone,) = home.ledger.refresh().void
    commit(bench, home, "a")
    fold = home.ledger.refresh()
    later = fold.time
    assert "cannot be forgotten" in (lawful(Boundary(0, gone, later), fold) or "")
    assert lawful(Boundary(0, later, later), fold) is None
