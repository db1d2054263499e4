"""Many writers, one request at a time in any order, with lost replies, crashes and wild clocks.

Each writer counts: it reads the number in a file group, adds one, and commits. Whatever happens in
between, the numbers in ledger order are 1, 2, 3, ...: no update is lost, none is made twice.
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
from tidelock.base.errors import DataCorrupt, InvariantBroken, StoreUnreachable, TidelockError
from tidelock.base.outcome import Landed, Unknown
from tidelock.store.contract import Busy, Create, PutReply, Refused, Unclear
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import CommitMetadata
from tidelock.txn import appending
from tidelock.txn.appending import Appended, No
from tidelock.txn.beginning import Announcement
from tidelock.txn.committing import Judge
from tidelock.txn.content import Inline
from tidelock.txn.draft import Committed, Overtaken
from tidelock.txn.effects import Effect, Get, Pause, Put, Steps, World
from tidelock.txn.entry import Boundary, Commit, Entry, Fact, Rollback, encode, entry_key
from tidelock.txn.publishing import Publisher, write_checkpoint
from tidelock.txn.reading import decoded
from tidelock.txn.transactions import Transactions
from tidelock.txn.view import View
from tidelock.txn.writers import entries, verify

SETTINGS = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
GROUPS = ("a", "b")
Client = Generator[Effect, Any, None]


@dataclass
class Sim:
    """A schedule of some writers on one table."""

    seed: int
    faults: bool
    rng: random.Random = field(init=False)
    acknowledged: list[tuple[str, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw everything from the seed."""
        self.rng = random.Random(self.seed)
        self.bench = Bench(SETTINGS)

    def run(self, clients: int, writes: int) -> None:
        """Let the clients take turns until all have ended, then let one come and look."""
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
                del running[number]  # the process is gone
                continue
            self.bench.clock.wall_offset_ms = skew[number]
            try:
                answers[number] = self.answer(effect)
            except TidelockError as error:
                problems[number] = error
        self.bench.clock.wall_offset_ms = 0

    def client(self, name: str, writes: int) -> Client:
        """Count up in some file group, again and again."""
        home = self.bench.writer(owner=name)
        for _ in range(writes):
            group = self.rng.choice(GROUPS)
            for _ in range(20):
                try:
                    if (yield from self.count(home, group)):
                        break
                except TidelockError:
                    continue

    def count(self, home: Transactions, group: str) -> Generator[Effect, Any, bool]:
        """Read the number, add one and commit; tell whether that is over."""
        base = yield from home.ledger.refresh_steps()
        number = yield from self.read(base.position, group)
        what = Announcement(
            Action.COMMIT, b"", b"", home.heartbeat("UPSERT", markers=False), ".hoodie/timeline"
        )
        transaction = yield from home.begin_steps(what, base=base)
        ready = draft(touched=(group,), extra={"number": json.dumps([group, number + 1])})
        result = yield from transaction.commit_steps(ready)
        match result:
            case Committed(instant, completion):
                self.acknowledged.append((instant, completion, number + 1))
                yield from transaction.tidy_steps()
                return True
            case Overtaken():
                yield from transaction.rollback_steps(
                    Rollback(transaction.instant, "overtaken"), ("none",)
                )
                return False
            case _:
                return True  # in doubt: the writer does not try again

    def read(self, position: int, group: str) -> Generator[Effect, Any, int]:
        """Return the number in a file group as of a ledger position: what a snapshot would say."""
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
        """Position, file group and number of every commit; entries are kept aside when deleted."""
        self.remember()
        return [self.kept[position] for position in sorted(self.kept)]

    kept: dict[int, tuple[int, str, int]] = field(default_factory=dict)
    boundary: int = 0

    def remember(self) -> None:
        for entry in entries(self.bench.store, after=self.boundary):
            is_write = isinstance(entry.fact, Commit) and entry.fact.action.writes_data
            if is_write and entry.position not in self.kept:
                assert isinstance(entry.fact, Commit)
                assert isinstance(entry.fact.content, Inline)
                metadata = decode(CommitMetadata, entry.fact.content.data, where="here")
                group, number = json.loads(metadata.extra_metadata["number"])
                self.kept[entry.position] = (entry.position, group, number)

    def archiver(self) -> Client:
        """Move the boundary now and then, and delete what lies behind it."""
        home = self.bench.writer(owner="archiver")
        for _ in range(6):
            for _ in range(30):
                yield Pause(1)
            try:
                fold = yield from home.ledger.refresh_steps()
                upto = fold.position - 3

                def propose(_: View, upto: int = upto) -> Fact | No[str]:
                    return Boundary(upto)

                if upto <= fold.boundary:
                    continue
                result = yield from home.ledger.append_steps(propose)
                if not isinstance(result, Appended):
                    continue
                yield from home.ledger.publish_steps()
                view = yield from write_checkpoint(home.ledger.view, every=1)
                home.ledger.adopt(view)
                if view.boundary < upto:
                    continue  # another checkpoint came between: nothing may be deleted
                self.remember()
                self.boundary = upto
                for place in range(1, upto + 1):
                    self.bench.store.delete(entry_key(place))
                    yield Pause(1)
            except TidelockError:
                continue

    def answer(self, effect: Effect) -> object:
        """Carry out an effect, or let it meet a fault."""
        world = World(self.bench.store, self.bench.clock, self.bench.patience.ids)
        drawn = self.rng.random()
        if not self.faults or drawn > 0.08 or isinstance(effect, Pause):
            return world._answer(effect, None)
        if not isinstance(effect, Put):
            if drawn < 0.02:
                raise StoreUnreachable("no answer")
            return world._answer(effect, None)
        lost: PutReply
        if drawn < 0.02:
            return Unclear("request lost")
        if drawn < 0.03:
            return Busy()
        lost = Refused() if drawn < 0.05 and isinstance(effect.mode, Create) else Unclear("lost")
        reply = world._answer(effect, None)
        return lost if isinstance(reply, Landed) else reply


def check(sim: Sim) -> None:
    """Let somebody come later, finish what was left, and see that all is well."""
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
    assert len(completed) == len(sim.kept), "what is decided is on the timeline, and nothing else"
    assert bench.pending() == ()
    assert verify(bench.store) == ()


@pytest.mark.parametrize("seed", range(40))
def test_no_update_is_lost_in_any_order(seed: int) -> None:
    sim = Sim(seed, faults=False)
    sim.run(clients=3, writes=5)
    check(sim)
    assert len(sim.acknowledged) == 15


@pytest.mark.parametrize("seed", range(120))
def test_no_update_is_lost_with_lost_replies_crashes_and_wild_clocks(seed: int) -> None:
    sim = Sim(seed, faults=True)
    sim.run(clients=3, writes=5)
    check(sim)


def test_a_writer_that_does_not_judge_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test can fail: a judge that finds nothing loses updates."""
    monkeypatch.setattr(Judge, "look_at", lambda self, entries, view: None)
    with pytest.raises(AssertionError, match="an update was lost"):
        campaign(20, faults=False)


def test_a_writer_that_does_not_read_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unclear answer taken for a refusal: the same update is made twice."""

    def hasty(entry: Entry) -> Steps[Entry | Unknown | None]:
        reply: PutReply = yield Put(entry_key(entry.position), encode(entry), Create())
        if isinstance(reply, Landed):
            return entry
        found = yield Get(entry_key(entry.position))
        if found is None:
            return None
        return replace(decoded(found.body, entry.position), nonce="another's")

    monkeypatch.setattr(appending, "_create", hasty)
    with pytest.raises((AssertionError, DataCorrupt, InvariantBroken)):
        campaign(40, faults=True)


def test_commits_that_nobody_helps_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that ends between its entry and its file leaves a commit that nobody sees."""

    def selfish(self: Publisher, view: View, *, own: int = 0) -> Steps[View]:
        for entry in view.unpublished():
            if entry.position == own and isinstance(entry.fact, Commit):
                yield from self._publish(entry, entry.fact, own=True)
        return replace(view, published=view.position)

    monkeypatch.setattr(Publisher, "publish", selfish)
    with pytest.raises(AssertionError):
        campaign(60, faults=True)


def campaign(seeds: int, *, faults: bool) -> None:
    """Run schedules until one fails."""
    for seed in range(seeds):
        sim = Sim(seed, faults=faults)
        sim.run(clients=3, writes=5)
        check(sim)
