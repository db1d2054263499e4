"""Plans of writers without a ledger: imported once, executed by one process, fenced like others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.doubles import ManualClock
from tests.unit.txn.bench import PARTITION, Bench, Stopped, draft, groups, stopping
from tests.unit.txn.test_planning import COMPACT, DEAD_MS, compaction
from tidelock.core.errors import RecordFromFuture
from tidelock.hudi.file_groups import WriteToken, base_name
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import CommitMetadata, RollbackMetadata, WriteStat, encode
from tidelock.storage.contract import Create
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn.checkpoint import Checkpoint
from tidelock.txn.conflicts import Committed, Conflicted
from tidelock.txn.entries import Boundary, ExternalCommit, ImportPlan, InlineContent, Plan, decode
from tidelock.txn.entries import encode as encoded
from tidelock.txn.footprint import CommitKind, Footprint
from tidelock.txn.ledger_io import Appended, Declined, Undetermined
from tidelock.txn.plans import ClaimRefusal, NotClaimed, import_plan
from tidelock.txn.state import LedgerState, validate_entry
from tidelock.txn.transaction import Transaction
from tidelock.txn.transaction_manager import TransactionManager

MIXED = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "tidelock.write.mixed": "true",
}
FOLDER = ".hoodie/timeline"


class Scene:
    """A table with a compaction or clustering of file group `a` that Java scheduled."""

    def __init__(self, action: Action = Action.COMPACTION) -> None:
        """Create the table; the plan is not imported."""
        self.bench, self.action = Bench(MIXED), action
        self.txns = self.bench.writer()
        self.bench.commit_one(self.txns, "a")
        # A process with a slow clock, which reads the ledger and not the timeline.
        alone = {key: value for key, value in MIXED.items() if "mixed" not in key}
        self.unaware = self.bench.writer(clock=ManualClock(), settings=alone)
        self.unaware.ledger.refresh()
        self.bench.clock.advance(1_000)
        self.instant = self.txns.ledger.refresh().next_time(self.bench.clock.now().wall_epoch_ms)
        self.put("requested")
        self.bench.clock.advance(1_000)

    def put(self, state: str, body: bytes = b"") -> None:
        """Write a state of the plan as Java does."""
        name = f"{self.instant}.{self.action}.{state}"
        self.bench.store.put(f"{FOLDER}/{name}", body, Create())

    def adopted(
        self, txns: TransactionManager | None = None, *, base: int | None = None
    ) -> Appended | Declined[str] | Undetermined:
        """Import the plan."""
        txns = txns or self.txns
        state = txns.ledger.refresh(external=True)
        fact = ImportPlan(
            self.instant, self.action, groups("a"), removable=self.action is Action.CLUSTERING
        )
        at = state.position if base is None else base
        result = txns.ledger.run(import_plan(txns.ledger.view, fact, base=at, owner=txns.owner))
        txns.ledger.advance(result.view)
        return result

    def claimed(self, txns: TransactionManager | None = None) -> Transaction:
        """Claim the plan, which must be free."""
        found = (txns or self.txns).claim(self.instant, COMPACT, markers=False)
        assert isinstance(found, Transaction), found
        return found

    def java_completes(self) -> None:
        """Complete the plan as Java's executor does, with its own file `a`."""
        stat = WriteStat(file_id="a", path=f"{PARTITION}/{self.file(0)}", prev_commit="1")
        body = encode(CommitMetadata({PARTITION: (stat,)}, operation_type="COMPACT"))
        done = int(self.instant) + 5_000
        self.bench.store.put(f"{FOLDER}/{self.instant}_{done}.commit", body, Create())

    def java_rolls_back(self, *, plan_too: bool) -> None:
        """Roll an attempt back as Java does, or the plan with it."""
        at = int(self.instant) + 4_000
        record = RollbackMetadata(str(at), 1, 0, (self.instant,))
        for state in ("inflight", *(("requested",) if plan_too else ())):
            self.bench.store.delete(f"{FOLDER}/{self.instant}.{self.action}.{state}")
        self.bench.store.put(f"{FOLDER}/{at}_{at + 1}.rollback", encode(record), Create())

    def file(self, stage: int) -> str:
        """Return the name of a base file of an attempt, or of a Spark stage."""
        return base_name("a", WriteToken(0, stage, 0), self.instant)

    def files(self) -> list[str]:
        """Return the data files of the plan."""
        return [key for key in self.bench.keys(PARTITION) if self.instant in key]


def test_imported_plan_is_executed_like_ours() -> None:
    scene = Scene()
    assert isinstance(scene.adopted(), Appended)
    plan = scene.txns.ledger.state.plans[scene.instant]
    assert (plan.imported, plan.removable, plan.targets) == (True, False, groups("a"))
    assert isinstance(scene.claimed().commit(compaction()), Committed)
    assert scene.txns.ledger.state.plans == {}
    (done,) = (i for i in scene.bench.completed() if i.requested == scene.instant)
    assert done.completion > done.requested


def test_two_concurrent_imports_of_a_plan_agree() -> None:
    scene = Scene()
    other = scene.bench.writer()
    assert isinstance(scene.adopted(), Appended)
    again = scene.adopted(other)
    assert isinstance(again, Declined)
    assert "already imported" in again.reason
    one, two = scene.txns.ledger.refresh(), other.ledger.refresh()
    assert one.plans == two.plans != {}
    facts = [entry.fact for entry in scene.txns.ledger.view.tail]
    assert sum(isinstance(fact, ImportPlan) for fact in facts) == 1


@pytest.mark.parametrize("after", range(12))
def test_plan_of_a_process_that_crashed_while_importing_is_executed_by_others(after: int) -> None:
    scene = Scene()
    dying = scene.bench.writer()
    dying.ledger.refresh()
    stopping(dying, after)
    try:
        scene.adopted(dying)
        dying.claim(scene.instant, COMPACT, markers=False)
    except Stopped:
        pass
    scene.bench.clock.advance(DEAD_MS)
    scene.adopted()
    assert isinstance(scene.claimed().commit(compaction()), Committed)
    assert sum(i.requested == scene.instant for i in scene.bench.completed()) == 1


def test_suspended_executor_does_not_commit_an_imported_plan() -> None:
    scene = Scene()
    scene.adopted()
    suspended = scene.claimed()
    scene.bench.clock.advance(DEAD_MS)
    assert isinstance(scene.claimed(scene.bench.writer()).commit(compaction()), Committed)
    assert isinstance(suspended.commit(compaction()), Conflicted)


def test_plan_is_not_imported_when_its_base_file_changed_since_it_was_read() -> None:
    scene = Scene()
    base = scene.txns.ledger.refresh().position
    scene.bench.commit_one(scene.bench.writer(), "a")
    found = scene.adopted(base=base)
    assert isinstance(found, Declined)
    assert "changed what was planned" in found.reason


@pytest.mark.parametrize("action", [Action.COMPACTION, Action.CLUSTERING])
def test_later_log_files_conflict_with_all_plans_but_a_compaction(action: Action) -> None:
    scene = Scene(action)
    base = scene.txns.ledger.refresh().position
    ready = draft(touched=("a",))
    logs = scene.bench.begin(scene.txns)
    assert isinstance(logs.commit(replace(ready, appended=groups("a"))), Committed)
    expected = Appended if action is Action.COMPACTION else Declined
    assert isinstance(scene.adopted(base=base), expected)


def test_log_file_completed_before_the_plan_by_a_slow_clock_conflicts_with_it() -> None:
    """It would be below the base file that the plan produces, which does not contain it."""
    scene = Scene()
    base = scene.txns.ledger.refresh().position
    # Java's plan has a time from before it could be seen: its clock is ahead of ours.
    scene.bench.store.delete(f"{FOLDER}/{scene.instant}.{scene.action}.requested")
    logs = scene.bench.begin(scene.unaware)
    ready = replace(draft(touched=("a",)), appended=groups("a"))
    done = logs.commit(ready)
    scene.put("requested")
    assert isinstance(done, Committed)
    assert done.completion < scene.instant
    found = scene.adopted(base=base)
    assert isinstance(found, Declined)
    assert "changed what was planned" in found.reason


def test_instants_written_after_a_java_plan_are_later_than_it_by_any_clock() -> None:
    """C102."""
    scene = Scene()
    late = scene.bench.writer(clock=ManualClock())
    done = scene.bench.begin(late).commit(draft(touched=("b",)))
    assert isinstance(done, Committed)
    assert scene.instant < done.instant < done.completion


def test_writer_that_rewrites_the_base_file_makes_an_imported_compaction_yield() -> None:
    scene = Scene()
    scene.adopted()
    work = scene.claimed()
    scene.bench.commit_one(scene.bench.writer(), "a")
    assert isinstance(work.commit(compaction()), Conflicted)


def test_java_completes_the_plan_first_and_ours_yields() -> None:
    scene = Scene()
    scene.adopted()
    work = scene.claimed()
    store = scene.bench.store
    store.put(f"{PARTITION}/{scene.file(work.attempt)}", b"ours", Create())
    store.put(f"{PARTITION}/{scene.file(0)}", b"Java's", Create())
    scene.java_completes()
    with work:
        result = work.commit(compaction())
        assert isinstance(result, Conflicted)
        assert "already complete" in result.reason
    assert scene.files() == [f"{PARTITION}/{scene.file(0)}"]
    assert scene.instant in scene.txns.ledger.state.committed


def test_java_rolls_the_plan_back_and_ours_does_not_commit() -> None:
    scene = Scene()
    scene.adopted()
    work = scene.claimed()
    scene.java_rolls_back(plan_too=True)
    assert isinstance(work.commit(compaction()), Conflicted)
    state = scene.txns.ledger.state
    assert scene.instant in state.aborted
    assert state.plans == {}
    assert not any(i.requested == scene.instant for i in scene.bench.completed())


def test_java_rolls_an_attempt_back_and_the_plan_stays() -> None:
    scene = Scene()
    scene.adopted()
    work = scene.claimed()
    scene.java_rolls_back(plan_too=False)
    assert isinstance(work.commit(compaction()), Conflicted)
    plan = scene.txns.ledger.state.plans[scene.instant]
    assert (plan.owner, plan.attempt) == ("", 1)
    scene.bench.clock.advance(DEAD_MS)
    assert isinstance(scene.claimed().commit(compaction()), Committed)


def test_write_of_ours_that_java_rolled_back_does_not_commit() -> None:
    scene = Scene()
    write = scene.bench.begin(scene.txns)
    scene.instant, scene.action = write.instant, Action.COMMIT
    scene.bench.store.delete(f"{FOLDER}/{write.instant}.commit.requested")
    scene.bench.store.delete(f"{FOLDER}/{write.instant}.inflight")
    scene.java_rolls_back(plan_too=True)
    assert isinstance(write.commit(draft(touched=("a",))), Conflicted)


def test_plan_rolled_back_and_kept_by_java_is_not_aborted() -> None:
    scene = Scene()
    scene.java_rolls_back(plan_too=False)
    state = scene.txns.ledger.refresh(external=True)
    assert scene.instant not in state.aborted
    scene.java_completes()
    assert scene.instant in scene.txns.ledger.refresh(external=True).committed


def test_leftovers_of_a_java_attempt_are_deleted_before_ours_begins() -> None:
    """A Spark stage may have any number, also a larger one than our attempt."""
    scene = Scene()
    scene.adopted()
    scene.put("inflight")
    scene.bench.store.put(f"{PARTITION}/{scene.file(17)}", b"Java's", Create())
    scene.bench.clock.advance(DEAD_MS)
    scene.claimed()
    assert scene.files() == []


def test_plan_begun_without_a_heartbeat_is_left_alone_for_a_while() -> None:
    scene = Scene()
    scene.adopted()
    scene.put("inflight")
    found = scene.txns.claim(scene.instant, COMPACT)
    assert isinstance(found, NotClaimed)
    assert found.refusal is ClaimRefusal.ACTIVE
    assert found.alive_ms > 0
    assert "alive" in (scene.txns.remove_plan(scene.instant, delay_ms=0, forced=True) or "")
    scene.bench.clock.advance(DEAD_MS)
    scene.claimed()


def test_clustering_begun_by_java_is_removed_only_after_the_delay() -> None:
    scene = Scene(Action.CLUSTERING)
    scene.adopted()
    scene.put("inflight")
    scene.bench.clock.advance(DEAD_MS)
    delay_ms = 60 * 60_000
    assert "alive" in (scene.txns.remove_plan(scene.instant, delay_ms=delay_ms) or "")
    scene.bench.clock.advance(delay_ms)
    assert scene.txns.remove_plan(scene.instant, delay_ms=delay_ms) is None
    assert scene.instant in scene.txns.ledger.state.aborted
    assert scene.bench.pending() == ()


def test_imported_clustering_is_begun_once() -> None:
    scene = Scene(Action.CLUSTERING)
    scene.adopted()
    scene.claimed()
    scene.bench.clock.advance(DEAD_MS)
    found = scene.bench.writer().claim(scene.instant, COMPACT)
    assert isinstance(found, NotClaimed)
    assert found.refusal is ClaimRefusal.DEAD


def adopting(instant: str = "20260101000000000") -> ImportPlan:
    return ImportPlan(instant, Action.COMPACTION, groups("a"))


def test_only_pending_plans_with_free_file_groups_are_imported() -> None:
    scene = Scene()
    state = scene.txns.ledger.refresh()
    fact = adopting(scene.instant)
    assert validate_entry(fact, state) is None
    assert "not pending" in (
        validate_entry(fact, replace(state, aborted=state.aborted.add(scene.instant))) or ""
    )
    done = replace(state, committed=state.committed.add(scene.instant))
    assert "not pending" in (validate_entry(fact, done) or "")
    assert "not pending" in (validate_entry(fact, replace(state, archived="2999")) or "")
    scene.adopted()
    other = adopting(str(int(scene.instant) + 1))
    assert "pending compaction" in (validate_entry(other, scene.txns.ledger.state) or "")
    ours = Plan(Action.CLUSTERING, groups("a"), InlineContent(b""))
    assert "pending compaction" in (validate_entry(ours, scene.txns.ledger.state) or "")


def test_boundary_does_not_pass_an_imported_plan() -> None:
    scene = Scene()
    scene.adopted()
    scene.bench.commit_one(scene.txns, "b")
    state = scene.txns.ledger.refresh()
    plan = state.plans[scene.instant]
    assert "pending" in (validate_entry(Boundary(plan.position - 1, state.time), state) or "")
    assert "must be between" in (validate_entry(Boundary(plan.position + 1), state) or "")


def test_entries_and_checkpoints_of_imported_plans_round_trip() -> None:
    scene = Scene()
    scene.adopted()
    (entry,) = (e for e in scene.txns.ledger.view.tail if isinstance(e.fact, ImportPlan))
    assert decode(encoded(entry), where="x") == entry
    undone = ExternalCommit(
        "1" * 17,
        Action.ROLLBACK,
        "2" * 17,
        Footprint(CommitKind.ROLLBACK),
        "",
        ("3" * 17,),
        ("4" * 17,),
    )
    entry_read = replace(entry, fact=undone)
    body = encoded(entry_read)
    assert decode(body, where="x") == entry_read
    assert b'"format":3' in body, "an older release would not know what is undone"
    state = scene.txns.ledger.state
    remaining = checkpoints.encode(Checkpoint(state, "n"))
    assert checkpoints.decode_checkpoint(remaining, where="x").state.plans == state.plans
    assert b'"format":4' in remaining
    with pytest.raises(RecordFromFuture):
        checkpoints.decode_checkpoint(remaining.replace(b'"format":4', b'"format":99'), where="x")


def test_state_without_imported_plans_is_encoded_as_before() -> None:
    assert b'"format":1' in checkpoints.encode(Checkpoint(LedgerState(), "n"))
