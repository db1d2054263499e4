"""Plans of writers that know no ledger: taken over once, executed by one, fenced like any other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.doubles import ManualClock
from tests.unit.txn.bench import PARTITION, Bench, Stopped, draft, groups, stopping
from tests.unit.txn.test_planning import COMPACT, DEAD_MS, compaction
from tidelock.base.errors import RecordFromFuture
from tidelock.store.contract import Create
from tidelock.table.naming import WriteToken, base_name
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import CommitMetadata, RollbackMetadata, WriteStat
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn.appending import Appended, Declined, Doubtful
from tidelock.txn.checkpoint import Checkpoint
from tidelock.txn.content import Inline
from tidelock.txn.draft import Committed, Overtaken
from tidelock.txn.entry import Adopt, Boundary, Foreign, Plan, decode
from tidelock.txn.entry import encode as encoded
from tidelock.txn.fold import Fold, lawful
from tidelock.txn.footprint import Deed, Footprint
from tidelock.txn.planning import NotClaimed, Why, adopt
from tidelock.txn.transaction import Transaction
from tidelock.txn.transactions import Transactions

MIXED = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "tidelock.write.mixed": "true",
}
FOLDER = ".hoodie/timeline"


class Scene:
    """A table with a compaction, or clustering, of file group `a` that Java planned."""

    def __init__(self, action: Action = Action.COMPACTION) -> None:
        """Make it; nobody has adopted the plan."""
        self.bench, self.action = Bench(MIXED), action
        self.home = self.bench.writer()
        self.bench.commit_one(self.home, "a")
        # Somebody with a late clock, who looks at the ledger and not at the timeline.
        alone = {key: value for key, value in MIXED.items() if "mixed" not in key}
        self.unaware = self.bench.writer(clock=ManualClock(), settings=alone)
        self.unaware.ledger.refresh()
        self.bench.clock.advance(1_000)
        self.instant = self.home.ledger.refresh().next_time(self.bench.clock.now().wall_epoch_ms)
        self.put("requested")
        self.bench.clock.advance(1_000)

    def put(self, state: str, body: bytes = b"") -> None:
        """Write a state of the plan as Java does."""
        name = f"{self.instant}.{self.action}.{state}"
        self.bench.store.put(f"{FOLDER}/{name}", body, Create())

    def adopted(
        self, home: Transactions | None = None, *, base: int | None = None
    ) -> Appended | Declined[str] | Doubtful:
        """Take the plan over."""
        home = home or self.home
        fold = home.ledger.refresh(foreign=True)
        fact = Adopt(
            self.instant, self.action, groups("a"), removable=self.action is Action.CLUSTERING
        )
        at = fold.position if base is None else base
        result = home.ledger.run(adopt(home.ledger.view, fact, base=at, owner=home.owner))
        home.ledger.adopt(result.view)
        return result

    def claimed(self, home: Transactions | None = None) -> Transaction:
        """Claim the plan, which must be free."""
        found = (home or self.home).claim(self.instant, COMPACT, markers=False)
        assert isinstance(found, Transaction), found
        return found

    def java_completes(self) -> None:
        """Complete the plan as Java's executor does, with the file `a` of its own."""
        stat = WriteStat(file_id="a", path=f"{PARTITION}/{self.file(0)}", prev_commit="1")
        body = encode(CommitMetadata({PARTITION: (stat,)}, operation_type="COMPACT"))
        done = int(self.instant) + 5_000
        self.bench.store.put(f"{FOLDER}/{self.instant}_{done}.commit", body, Create())

    def java_rolls_back(self, *, plan_too: bool) -> None:
        """Take an attempt back as Java does, or the plan with it."""
        at = int(self.instant) + 4_000
        record = RollbackMetadata(str(at), 1, 0, (self.instant,))
        for state in ("inflight", *(("requested",) if plan_too else ())):
            self.bench.store.delete(f"{FOLDER}/{self.instant}.{self.action}.{state}")
        self.bench.store.put(f"{FOLDER}/{at}_{at + 1}.rollback", encode(record), Create())

    def file(self, stage: int) -> str:
        """Return the name of a base file of an attempt, or of a stage of Spark's."""
        return base_name("a", WriteToken(0, stage, 0), self.instant)

    def files(self) -> list[str]:
        """Return the data files of the plan."""
        return [key for key in self.bench.keys(PARTITION) if self.instant in key]


def test_a_plan_that_is_adopted_is_executed_like_ours() -> None:
    scene = Scene()
    assert isinstance(scene.adopted(), Appended)
    plan = scene.home.ledger.fold.plans[scene.instant]
    assert (plan.adopted, plan.removable, plan.targets) == (True, False, groups("a"))
    assert isinstance(scene.claimed().commit(compaction()), Committed)
    assert scene.home.ledger.fold.plans == {}
    (done,) = (i for i in scene.bench.completed() if i.requested == scene.instant)
    assert done.completion > done.requested


def test_two_that_adopt_a_plan_agree() -> None:
    scene = Scene()
    other = scene.bench.writer()
    assert isinstance(scene.adopted(), Appended)
    again = scene.adopted(other)
    assert isinstance(again, Declined)
    assert "adopted already" in again.why
    one, two = scene.home.ledger.refresh(), other.ledger.refresh()
    assert one.plans == two.plans != {}
    facts = [entry.fact for entry in scene.home.ledger.view.tail]
    assert sum(isinstance(fact, Adopt) for fact in facts) == 1


@pytest.mark.parametrize("after", range(12))
def test_whoever_dies_while_it_adopts_a_plan_leaves_one_that_others_execute(after: int) -> None:
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


def test_an_executor_that_slept_does_not_commit_an_adopted_plan() -> None:
    scene = Scene()
    scene.adopted()
    sleeper = scene.claimed()
    scene.bench.clock.advance(DEAD_MS)
    assert isinstance(scene.claimed(scene.bench.writer()).commit(compaction()), Committed)
    assert isinstance(sleeper.commit(compaction()), Overtaken)


def test_a_plan_is_not_adopted_when_its_base_file_changed_since_it_was_looked_at() -> None:
    scene = Scene()
    base = scene.home.ledger.refresh().position
    scene.bench.commit_one(scene.bench.writer(), "a")
    found = scene.adopted(base=base)
    assert isinstance(found, Declined)
    assert "changed what was planned" in found.why


@pytest.mark.parametrize("action", [Action.COMPACTION, Action.CLUSTERING])
def test_log_files_that_came_since_stand_against_all_but_a_compaction(action: Action) -> None:
    scene = Scene(action)
    base = scene.home.ledger.refresh().position
    ready = draft(touched=("a",))
    logs = scene.bench.begin(scene.home)
    assert isinstance(logs.commit(replace(ready, appended=groups("a"))), Committed)
    expected = Appended if action is Action.COMPACTION else Declined
    assert isinstance(scene.adopted(base=base), expected)


def test_a_log_file_that_completed_before_the_plan_by_a_late_clock_stands_against_it() -> None:
    """It would lie below the base file that comes of the plan, which does not contain it."""
    scene = Scene()
    base = scene.home.ledger.refresh().position
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
    assert "changed what was planned" in found.why


def test_what_is_written_after_a_plan_of_java_is_later_than_it_by_any_clock() -> None:
    """C102."""
    scene = Scene()
    late = scene.bench.writer(clock=ManualClock())
    done = scene.bench.begin(late).commit(draft(touched=("b",)))
    assert isinstance(done, Committed)
    assert scene.instant < done.instant < done.completion


def test_a_writer_that_writes_the_base_file_anew_makes_an_adopted_compaction_give_way() -> None:
    scene = Scene()
    scene.adopted()
    work = scene.claimed()
    scene.bench.commit_one(scene.bench.writer(), "a")
    assert isinstance(work.commit(compaction()), Overtaken)


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
        assert isinstance(result, Overtaken)
        assert "complete already" in result.reason
    assert scene.files() == [f"{PARTITION}/{scene.file(0)}"]
    assert scene.instant in scene.home.ledger.fold.committed


def test_java_rolls_the_plan_back_and_ours_does_not_commit() -> None:
    scene = Scene()
    scene.adopted()
    work = scene.claimed()
    scene.java_rolls_back(plan_too=True)
    assert isinstance(work.commit(compaction()), Overtaken)
    fold = scene.home.ledger.fold
    assert scene.instant in fold.void
    assert fold.plans == {}
    assert not any(i.requested == scene.instant for i in scene.bench.completed())


def test_java_takes_an_attempt_back_and_the_plan_stays() -> None:
    scene = Scene()
    scene.adopted()
    work = scene.claimed()
    scene.java_rolls_back(plan_too=False)
    assert isinstance(work.commit(compaction()), Overtaken)
    plan = scene.home.ledger.fold.plans[scene.instant]
    assert (plan.owner, plan.attempt) == ("", 1)
    scene.bench.clock.advance(DEAD_MS)
    assert isinstance(scene.claimed().commit(compaction()), Committed)


def test_a_write_of_ours_that_java_rolled_back_does_not_commit() -> None:
    scene = Scene()
    write = scene.bench.begin(scene.home)
    scene.instant, scene.action = write.instant, Action.COMMIT
    scene.bench.store.delete(f"{FOLDER}/{write.instant}.commit.requested")
    scene.bench.store.delete(f"{FOLDER}/{write.instant}.inflight")
    scene.java_rolls_back(plan_too=True)
    assert isinstance(write.commit(draft(touched=("a",))), Overtaken)


def test_what_java_rolled_back_and_keeps_as_its_own_plan_is_not_void() -> None:
    scene = Scene()
    scene.java_rolls_back(plan_too=False)
    fold = scene.home.ledger.refresh(foreign=True)
    assert scene.instant not in fold.void
    scene.java_completes()
    assert scene.instant in scene.home.ledger.refresh(foreign=True).committed


def test_what_java_left_of_an_attempt_goes_before_ours_begins() -> None:
    """A stage of Spark's may have any number, also a larger one than our attempt."""
    scene = Scene()
    scene.adopted()
    scene.put("inflight")
    scene.bench.store.put(f"{PARTITION}/{scene.file(17)}", b"Java's", Create())
    scene.bench.clock.advance(DEAD_MS)
    scene.claimed()
    assert scene.files() == []


def test_whoever_began_without_a_heartbeat_is_left_alone_for_a_while() -> None:
    scene = Scene()
    scene.adopted()
    scene.put("inflight")
    found = scene.home.claim(scene.instant, COMPACT)
    assert isinstance(found, NotClaimed)
    assert found.why is Why.ACTIVE
    assert found.alive_ms > 0
    assert "alive" in (scene.home.remove_plan(scene.instant, delay_ms=0, forced=True) or "")
    scene.bench.clock.advance(DEAD_MS)
    scene.claimed()


def test_a_clustering_that_java_began_is_removed_only_after_the_delay() -> None:
    scene = Scene(Action.CLUSTERING)
    scene.adopted()
    scene.put("inflight")
    scene.bench.clock.advance(DEAD_MS)
    delay_ms = 60 * 60_000
    assert "alive" in (scene.home.remove_plan(scene.instant, delay_ms=delay_ms) or "")
    scene.bench.clock.advance(delay_ms)
    assert scene.home.remove_plan(scene.instant, delay_ms=delay_ms) is None
    assert scene.instant in scene.home.ledger.fold.void
    assert scene.bench.pending() == ()


def test_an_adopted_clustering_is_begun_once() -> None:
    scene = Scene(Action.CLUSTERING)
    scene.adopted()
    scene.claimed()
    scene.bench.clock.advance(DEAD_MS)
    found = scene.bench.writer().claim(scene.instant, COMPACT)
    assert isinstance(found, NotClaimed)
    assert found.why is Why.DEAD


def adopting(instant: str = "20260101000000000") -> Adopt:
    return Adopt(instant, Action.COMPACTION, groups("a"))


def test_only_what_is_pending_and_in_no_other_plan_is_adopted() -> None:
    scene = Scene()
    fold = scene.home.ledger.refresh()
    fact = adopting(scene.instant)
    assert lawful(fact, fold) is None
    assert "not pending" in (lawful(fact, replace(fold, void=fold.void.add(scene.instant))) or "")
    done = replace(fold, committed=fold.committed.add(scene.instant))
    assert "not pending" in (lawful(fact, done) or "")
    assert "not pending" in (lawful(fact, replace(fold, archived="2999")) or "")
    scene.adopted()
    other = adopting(str(int(scene.instant) + 1))
    assert "pending compaction" in (lawful(other, scene.home.ledger.fold) or "")
    ours = Plan(Action.CLUSTERING, groups("a"), Inline(b""))
    assert "pending compaction" in (lawful(ours, scene.home.ledger.fold) or "")


def test_the_boundary_does_not_pass_an_adopted_plan() -> None:
    scene = Scene()
    scene.adopted()
    scene.bench.commit_one(scene.home, "b")
    fold = scene.home.ledger.refresh()
    plan = fold.plans[scene.instant]
    assert "pending" in (lawful(Boundary(plan.position - 1, fold.time), fold) or "")
    assert "must lie" in (lawful(Boundary(plan.position + 1), fold) or "")


def test_entries_and_checkpoints_of_adopted_plans_are_read_as_they_were_written() -> None:
    scene = Scene()
    scene.adopted()
    (entry,) = (e for e in scene.home.ledger.view.tail if isinstance(e.fact, Adopt))
    assert decode(encoded(entry), where="x") == entry
    undone = Foreign(
        "1" * 17, Action.ROLLBACK, "2" * 17, Footprint(Deed.ROLLBACK), "", ("3" * 17,), ("4" * 17,)
    )
    told = replace(entry, fact=undone)
    body = encoded(told)
    assert decode(body, where="x") == told
    assert b'"format":3' in body, "an older release would not know what is undone"
    fold = scene.home.ledger.fold
    kept = checkpoints.encode(Checkpoint(fold, "n"))
    assert checkpoints.decode(kept, where="x").fold.plans == fold.plans
    assert b'"format":4' in kept
    with pytest.raises(RecordFromFuture):
        checkpoints.decode(kept.replace(b'"format":4', b'"format":99'), where="x")


def test_a_fold_without_adopted_plans_is_written_as_before() -> None:
    assert b'"format":1' in checkpoints.encode(Checkpoint(Fold(), "n"))
