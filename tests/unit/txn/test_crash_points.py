"""A process may end after any effect of begin, commit or rollback: others are not affected.

The victim is stopped after each of its effects in turn. Then another process recovers and writes;
nothing is lost, nothing is partial.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.unit.txn.bench import PARTITION, Bench, Stopped, draft, stopping
from tidelock.hudi.file_groups import WriteToken, base_name
from tidelock.hudi.markers import IoType, Marker
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.storage.contract import Create
from tidelock.txn.commit import BegunInstant
from tidelock.txn.conflicts import Committed, Conflicted
from tidelock.txn.entries import Commit
from tidelock.txn.footprint import CommitKind
from tidelock.txn.heartbeats import HEARTBEAT_FOLDER, Heartbeat
from tidelock.txn.transaction import Transaction
from tidelock.txn.transaction_manager import TransactionManager
from tidelock.txn.writers import entries, verify

SETTINGS = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
DEAD_MS = 60_000 * 10 + 1


@dataclass
class Scenario:
    """A victim that writes one data file and commits, or rolls back."""

    bench: Bench
    victim: TransactionManager
    rolls_back: bool
    file: str = ""

    def run(self) -> None:
        """Run all steps."""
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


def run_until(rolls_back: bool, after: int) -> tuple[Bench, Scenario, bool]:
    """Run the scenario up to an effect; return whether it ended by itself."""
    bench = Bench(SETTINGS)
    bench.commit_one(bench.writer(), "a")
    victim = bench.writer(owner="victim")
    stopping(victim, after)
    scenario = Scenario(bench, victim, rolls_back)
    try:
        scenario.run()
    except Stopped:
        return bench, scenario, False
    return bench, scenario, True


def effects_of(rolls_back: bool) -> int:
    """Return the number of effects of the whole scenario."""
    for after in range(1, 200):
        if run_until(rolls_back, after)[2]:
            return after
    raise AssertionError("the story does not end")


POINTS = [(False, k) for k in range(effects_of(False) + 1)] + [
    (True, k) for k in range(effects_of(True) + 1)
]


@pytest.mark.parametrize(("rolls_back", "after"), POINTS)
def test_another_process_recovers_from_a_stop_after_any_effect(
    rolls_back: bool, after: int
) -> None:
    bench, scenario, _ = run_until(rolls_back, after)
    was_decided = any(
        isinstance(entry.fact, Commit) and entry.owner == "victim" for entry in entries(bench.store)
    )
    other = bench.writer(owner="other")
    assert other.recover().rolled_back == () or rolls_back, (
        "a write that may be alive is left alone"
    )
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
    assert [key for key in bench.keys(PARTITION) if key == scenario.file] == (
        [scenario.file] if was_decided else []
    )
    assert verify(bench.store) == ()


@pytest.mark.parametrize("after", [k for rolls_back, k in POINTS if not rolls_back])
def test_decided_commit_is_seen_by_the_next_writer(after: int) -> None:
    """Helping: a commit decided in the ledger is published as soon as any process reads it."""
    bench, _, _ = run_until(False, after)
    decided = [
        entry.fact.instant for entry in entries(bench.store) if isinstance(entry.fact, Commit)
    ]
    bench.writer().ledger.refresh()
    assert [instant.requested for instant in bench.completed()] == decided


@pytest.mark.parametrize("after", [k for rolls_back, k in POINTS if not rolls_back])
def test_suspended_writer_declared_dead_cannot_commit(after: int) -> None:
    """The victim is not dead but suspended: it resumes after it was rolled back."""
    bench, scenario, ended = run_until(False, after)
    if ended:
        return
    bench.clock.advance(DEAD_MS)
    other = bench.writer(owner="other")
    undone = {each.instant for each in other.recover().rolled_back}
    before = bench.completed()
    if not undone:
        return
    (instant,) = undone
    victim = scenario.victim
    stopping(victim, 10**6)

    begun = BegunInstant(
        Instant(instant, Action.COMMIT, InstantState.INFLIGHT),
        1,
        Heartbeat("victim", 1, "", 1, 1, 0),
        "",
        victim.ledger.view,
    )
    suspended = Transaction(
        victim, begun, victim.ledger.state, commit_kind=CommitKind.UPSERT, markers=True
    )
    result = suspended.commit(draft(created=("g-0",), files=(scenario.file,)))
    assert isinstance(result, Conflicted)
    assert bench.completed() == before
