"""A process may end after any effect of begin, commit or roll-back: others go on as if it had not.

The victim is stopped after each of its effects in turn. Then another process comes, recovers, and
writes; nothing is lost, nothing is half there.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.unit.txn.bench import PARTITION, Bench, Stopped, draft, stopping
from tidelock.store.contract import Create
from tidelock.table.markers import IoType, Marker
from tidelock.table.naming import WriteToken, base_name
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.txn.beginning import Begun
from tidelock.txn.draft import Committed, Overtaken
from tidelock.txn.entry import Commit
from tidelock.txn.footprint import Deed
from tidelock.txn.heartbeat import HEARTBEAT_FOLDER, Heartbeat
from tidelock.txn.transaction import Transaction
from tidelock.txn.transactions import Transactions
from tidelock.txn.writers import entries, verify

SETTINGS = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
DEAD_MS = 60_000 * 10 + 1


@dataclass
class Story:
    """A victim that writes one data file and commits, or rolls back."""

    bench: Bench
    victim: Transactions
    rolls_back: bool
    file: str = ""

    def run(self) -> None:
        """Do it all."""
        transaction = self.bench.begin(self.victim, markers=True)
        name = base_name("g-0", WriteToken(0, transaction.attempt, 0), transaction.instant)
        self.file = f"{PARTITION}/{name}"
        marker = Marker(PARTITION, name, IoType.CREATE)
        self.bench.store.put(marker.key(transaction.instant), b"", Create())
        self.bench.store.put(self.file, b"rows", Create())
        if self.rolls_back:
            transaction.rollback("because")
            return
        result = transaction.commit(draft(created=("g-0",), files=(self.file,)))
        assert isinstance(result, Committed)


def told(rolls_back: bool, after: int) -> tuple[Bench, Story, bool]:
    """Tell the story up to an effect; return whether it ended by itself."""
    bench = Bench(SETTINGS)
    bench.commit_one(bench.writer(), "a")
    victim = bench.writer(owner="victim")
    stopping(victim, after)
    story = Story(bench, victim, rolls_back)
    try:
        story.run()
    except Stopped:
        return bench, story, False
    return bench, story, True


def effects_of(rolls_back: bool) -> int:
    """Return how many effects the whole story has."""
    for after in range(1, 200):
        if told(rolls_back, after)[2]:
            return after
    raise AssertionError("the story does not end")


POINTS = [(False, k) for k in range(effects_of(False) + 1)] + [
    (True, k) for k in range(effects_of(True) + 1)
]


@pytest.mark.parametrize(("rolls_back", "after"), POINTS)
def test_another_process_recovers_from_an_end_after_any_effect(
    rolls_back: bool, after: int
) -> None:
    bench, story, _ = told(rolls_back, after)
    was_decided = any(
        isinstance(entry.fact, Commit) and entry.owner == "victim" for entry in entries(bench.store)
    )
    other = bench.writer(owner="other")
    assert other.recover().undone == () or rolls_back, "a write that may be alive is left alone"
    bench.commit_one(other, "b")
    bench.clock.advance(DEAD_MS)
    other.recover()
    bench.commit_one(other, "c")
    done = {instant.requested for instant in bench.completed()}
    assert len(done) == (4 if was_decided else 3)
    assert bench.pending() == (), "nothing is left begun"
    assert bench.keys(f"{HEARTBEAT_FOLDER}/") == []
    if not was_decided:
        assert bench.keys(".hoodie/.temp/") == []
    assert [key for key in bench.keys(PARTITION) if key == story.file] == (
        [story.file] if was_decided else []
    )
    assert verify(bench.store) == ()


@pytest.mark.parametrize("after", [k for rolls_back, k in POINTS if not rolls_back])
def test_a_commit_is_seen_by_the_next_writer_once_it_is_decided(after: int) -> None:
    """Helping: what the ledger has decided is on the timeline as soon as anybody reads it."""
    bench, _, _ = told(False, after)
    decided = [
        entry.fact.instant for entry in entries(bench.store) if isinstance(entry.fact, Commit)
    ]
    bench.writer().ledger.refresh()
    assert [instant.requested for instant in bench.completed()] == decided


@pytest.mark.parametrize("after", [k for rolls_back, k in POINTS if not rolls_back])
def test_a_sleeper_that_was_given_up_for_dead_cannot_commit(after: int) -> None:
    """The victim is not dead but asleep: it wakes after it was rolled back, and goes on."""
    bench, story, ended = told(False, after)
    if ended:
        return
    bench.clock.advance(DEAD_MS)
    other = bench.writer(owner="other")
    undone = {each.instant for each in other.recover().undone}
    before = bench.completed()
    if not undone:
        return
    (instant,) = undone
    victim = story.victim
    stopping(victim, 10**6)

    begun = Begun(
        Instant(instant, Action.COMMIT, State.INFLIGHT),
        1,
        Heartbeat("victim", 1, "", 1, 1, 0),
        "",
        victim.ledger.view,
    )
    sleeper = Transaction(victim, begun, victim.ledger.fold, deed=Deed.UPSERT, markers=True)
    result = sleeper.commit(draft(created=("g-0",), files=(story.file,)))
    assert isinstance(result, Overtaken)
    assert bench.completed() == before
