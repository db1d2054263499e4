"""Many writers, one request at a time in any order, with lost replies, crashes and wrong clocks.

Each writer counts: it reads the number in a file group, adds one, and commits. Whatever happens in
between, the numbers in ledger order are 1, 2, 3, ...: no update is lost, none is applied twice.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.unit.txn.bench import Bench, draft
from tidelock.core.errors import DataCorrupt, InvariantBroken, StoreUnreachable, TidelockError
from tidelock.core.outcome import Landed, Unknown
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import CommitMetadata, decode
from tidelock.storage.contract import Busy, Create, PutReply, Refused, Unclear
from tidelock.txn import ledger_io
from tidelock.txn.commit import BeginRequest, ConflictChecker
from tidelock.txn.conflicts import Committed, Conflicted
from tidelock.txn.effects import Effect, EffectRunner, Get, Pause, Put, Steps
from tidelock.txn.entries import (
    Boundary,
    Commit,
    Fact,
    InlineContent,
    LedgerEntry,
    Rollback,
    encode,
    entry_key,
)
from tidelock.txn.ledger_io import Appended, Decline, Publisher, decode_at, write_checkpoint
from tidelock.txn.state import View
from tidelock.txn.transaction_manager import TransactionManager
from tidelock.txn.writers import entries, verify

SETTINGS = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
GROUPS = ("a", "b")
Client = Generator[Effect, Any, None]


@dataclass
class Sim:
    """A schedule of writers on one table."""

    seed: int
    faults: bool
    rng: random.Random = field(init=False)
    acknowledged: list[tuple[str, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw everything from the seed."""
        self.rng = random.Random(self.seed)
        self.bench = Bench(SETTINGS)

    def run(self, clients: int, writes: int) -> None:
        """Schedule the clients until all have ended, then check with a new one."""
        running = {number: (self.client(f"w{number}", writes), None) for number in range(clients)}
        if self.rng.random() < 0.5:
            running[99] = (self.archiver(), None)
        answers: dict[int, object] = dict.fromkeys(running)
        problems: dict[int, TidelockError] = {}
        skew = {number: self.rng.choice((0, 0, 3_600_000, -3_600_000)) for number in running}
        while running:
            number = self.rng.choice(sorted(running))
            steps = running[number][0]
            try:
                if number in problems:
                    effect = steps.throw(problems.pop(number))
                else:
                    effect = steps.send(answers[number])
            except StopIteration:
                del running[number]
                continue
            if self.faults and self.rng.random() < 0.004:
                del running[number]  # the process has ended
                continue
            self.bench.clock.wall_offset_ms = skew[number]
            try:
                answers[number] = self.answer(effect)
            except TidelockError as error:
                problems[number] = error
        self.bench.clock.wall_offset_ms = 0

    def client(self, name: str, writes: int) -> Client:
        """Increment the number of a file group repeatedly."""
        txns = self.bench.writer(owner=name)
        for _ in range(writes):
            group = self.rng.choice(GROUPS)
            for _ in range(20):
                try:
                    if (yield from self.count(txns, group)):
                        break
                except TidelockError:
                    continue

    def count(self, txns: TransactionManager, group: str) -> Generator[Effect, Any, bool]:
        """Read the number, add one and commit; return whether that is over."""
        base = yield from txns.ledger.refresh_steps()
        number = yield from self.read(base.position, group)
        what = BeginRequest(
            Action.COMMIT, b"", b"", txns.heartbeat("UPSERT", markers=False), ".hoodie/timeline"
        )
        transaction = yield from txns.begin_steps(what, base=base)
        ready = draft(touched=(group,), extra={"number": json.dumps([group, number + 1])})
        result = yield from transaction.commit_steps(ready)
        match result:
            case Committed(instant, completion):
                self.acknowledged.append((instant, completion, number + 1))
                yield from transaction.cleanup_steps()
                return True
            case Conflicted():
                yield from transaction.rollback_steps(
                    Rollback(transaction.instant, "conflicted"), ("none",)
                )
                return False
            case _:
                return True  # in doubt: the writer does not retry

    def read(self, position: int, group: str) -> Generator[Effect, Any, int]:
        """Return the number in a file group as of a ledger position, as a snapshot would."""
        yield Pause(1)
        return self.numbers(position)[group]

    def numbers(self, position: int) -> dict[str, int]:
        """Return the last number of each file group."""
        found: dict[str, int] = defaultdict(int)
        for entry in self.history:
            if entry[0] <= position:
                found[entry[1]] = entry[2]
        return found

    @property
    def history(self) -> list[tuple[int, str, int]]:
        """Position, file group and number of every commit; deleted entries are remembered."""
        self.remember()
        return [self.remaining[position] for position in sorted(self.remaining)]

    remaining: dict[int, tuple[int, str, int]] = field(default_factory=dict)
    boundary: int = 0

    def remember(self) -> None:
        for entry in entries(self.bench.store, after=self.boundary):
            is_write = isinstance(entry.fact, Commit) and entry.fact.action.writes_data
            if is_write and entry.position not in self.remaining:
                assert isinstance(entry.fact, Commit)
                assert isinstance(entry.fact.content, InlineContent)
                metadata = decode(CommitMetadata, entry.fact.content.data, where="here")
                group, number = json.loads(metadata.extra_metadata["number"])
                self.remaining[entry.position] = (entry.position, group, number)

    def archiver(self) -> Client:
        """Move the boundary from time to time, and delete the entries behind it."""
        txns = self.bench.writer(owner="archiver")
        for _ in range(6):
            for _ in range(30):
                yield Pause(1)
            try:
                state = yield from txns.ledger.refresh_steps()
                upto = state.position - 3

                def propose(_: View, upto: int = upto) -> Fact | Decline[str]:
                    return Boundary(upto)

                if upto <= state.boundary:
                    continue
                result = yield from txns.ledger.append_steps(propose)
                if not isinstance(result, Appended):
                    continue
                yield from txns.ledger.publish_steps()
                view = yield from write_checkpoint(txns.ledger.view, every=1)
                txns.ledger.advance(view)
                if view.boundary < upto:
                    continue  # another checkpoint came between: nothing may be deleted
                self.remember()
                self.boundary = upto
                for entry_position in range(1, upto + 1):
                    self.bench.store.delete(entry_key(entry_position))
                    yield Pause(1)
            except TidelockError:
                continue

    def answer(self, effect: Effect) -> object:
        """Execute an effect, possibly with a fault."""
        runner = EffectRunner(self.bench.store, self.bench.clock, self.bench.policy.ids)
        drawn = self.rng.random()
        if not self.faults or drawn > 0.08 or isinstance(effect, Pause):
            return runner._answer(effect, None)
        if not isinstance(effect, Put):
            if drawn < 0.02:
                raise StoreUnreachable("no answer")
            return runner._answer(effect, None)
        lost: PutReply
        if drawn < 0.02:
            return Unclear("request lost")
        if drawn < 0.03:
            return Busy()
        lost = Refused() if drawn < 0.05 and isinstance(effect.mode, Create) else Unclear("lost")
        reply = runner._answer(effect, None)
        return lost if isinstance(reply, Landed) else reply


def check(sim: Sim) -> None:
    """Let a later process finish what was left, and check the result."""
    bench = sim.bench
    bench.clock.advance(2 * 3_600_000)
    late = bench.writer(owner="late")
    late.recover()
    numbers: dict[str, list[int]] = defaultdict(list)
    for _, group, number in sim.history:
        numbers[group].append(number)
    for group, counted in numbers.items():
        assert counted == list(range(1, len(counted) + 1)), f"{group}: an update was lost"
    completed = bench.completed()
    assert len({instant.requested for instant in completed}) == len(completed)
    published = {(instant.requested, instant.completion) for instant in completed}
    for instant, completion, _ in sim.acknowledged:
        assert (instant, completion) in published, "T5: acknowledged is durable"
    assert len(completed) == len(sim.remaining), (
        "what is decided is on the timeline, and nothing else"
    )
    assert bench.pending() == ()
    assert verify(bench.store) == ()


@pytest.mark.parametrize("seed", range(40))
def test_no_update_is_lost_in_any_order(seed: int) -> None:
    sim = Sim(seed, faults=False)
    sim.run(clients=3, writes=5)
    check(sim)
    assert len(sim.acknowledged) == 15


@pytest.mark.parametrize("seed", range(120))
def test_no_update_is_lost_with_lost_replies_crashes_and_wrong_clocks(seed: int) -> None:
    sim = Sim(seed, faults=True)
    sim.run(clients=3, writes=5)
    check(sim)


def test_writer_that_does_not_check_conflicts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves that the test can fail: without conflict checks updates are lost."""
    monkeypatch.setattr(ConflictChecker, "check_entries", lambda self, entries, view: None)
    with pytest.raises(AssertionError, match="an update was lost"):
        campaign(20, faults=False)


def test_writer_that_does_not_read_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unclear reply treated as a refusal: the same update is applied twice."""

    def without_read_back(entry: LedgerEntry) -> Steps[LedgerEntry | Unknown | None]:
        reply: PutReply = yield Put(entry_key(entry.position), encode(entry), Create())
        if isinstance(reply, Landed):
            return entry
        found = yield Get(entry_key(entry.position))
        if found is None:
            return None
        return replace(decode_at(found.body, entry.position), nonce="another's")

    monkeypatch.setattr(ledger_io, "_create", without_read_back)
    with pytest.raises((AssertionError, DataCorrupt, InvariantBroken)):
        campaign(40, faults=True)


def test_unpublished_commits_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that ends between its entry and its file leaves a commit that readers miss."""

    def without_helping(self: Publisher, view: View, *, own: int = 0) -> Steps[View]:
        for entry in view.unpublished():
            if entry.position == own and isinstance(entry.fact, Commit):
                yield from self._publish(entry, entry.fact, own=True)
        return replace(view, published=view.position)

    monkeypatch.setattr(Publisher, "publish", without_helping)
    with pytest.raises(AssertionError):
        campaign(60, faults=True)


def campaign(seeds: int, *, faults: bool) -> None:
    """Run schedules until one fails."""
    for seed in range(seeds):
        sim = Sim(seed, faults=faults)
        sim.run(clients=3, writes=5)
        check(sim)
