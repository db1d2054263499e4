"""Whether a serial replay in the order of the ledger explains what every reader saw.

What happened is taken from the timeline and its history: which commits completed, which step each
was, and what was taken back. What was acknowledged and what was seen is taken from the journals.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelock.ops.fleet.journal import Noted
from tidelock.store.contract import ObjectStore
from tidelock.table.snapshot import open_table
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.archive import Archive
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import (
    CommitMetadata,
    OperationType,
    ReplaceCommitMetadata,
    RestoreMetadata,
    RollbackMetadata,
)
from tidelock.testing.interleaving.oracle import Deed, Done, Row, State, plain
from tidelock.testing.stress.terms import COLUMNS, STEP, Terms

SHOWN_MAX: Final = 10
_SERVICES: Final = (OperationType.COMPACT, OperationType.LOG_COMPACT, OperationType.CLUSTER)


@dataclass(frozen=True, slots=True)
class Committed:
    """A completed write: which step of whom it was ("" for none), and what it calls itself."""

    instant: str
    completion: str
    step: str
    operation: str


@dataclass(frozen=True, slots=True)
class Undone:
    """What took writes back, when, and which."""

    completion: str
    instants: frozenset[str]


@dataclass(frozen=True, slots=True)
class Story:
    """What the timeline and its history say, in the order of the ledger."""

    commits: tuple[Committed, ...]
    undone: tuple[Undone, ...] = ()


def told(store: ObjectStore) -> Story:
    """Read the story of a table that rests. Raises: `DataCorrupt`."""
    snapshot = open_table(store)
    history = Archive(store, snapshot.properties.history_folder).instants()
    found = {(old.requested, old.action): (old.completion, old.metadata) for old in history}
    timeline = load_timeline(store, snapshot.properties.timeline_folder)
    for instant in timeline.completed():
        stored = store.get(timeline.key(instant))
        assert stored is not None
        found[instant.requested, instant.action] = (instant.completion, stored.body)
    commits, undone = [], []
    for (requested, action), (completion, body) in found.items():
        if action.writes_data:
            commits.append(_committed(requested, action, completion, body))
        elif action in (Action.ROLLBACK, Action.RESTORE):
            undone.append(_undone(action, completion, body))
    return Story(
        tuple(sorted(commits, key=lambda each: each.completion)),
        tuple(sorted(undone, key=lambda each: each.completion)),
    )


def _committed(requested: str, action: Action, completion: str, body: bytes) -> Committed:
    kind = ReplaceCommitMetadata if action is Action.REPLACE_COMMIT else CommitMetadata
    metadata = decode(kind, body, where=requested)
    step = metadata.extra_metadata.get(STEP, "")
    return Committed(requested, completion, step, metadata.operation_type or "")


def _undone(action: Action, completion: str, body: bytes) -> Undone:
    if action is Action.ROLLBACK:
        rollback = decode(RollbackMetadata, body, where=completion)
        return Undone(completion, frozenset(rollback.commits_rollback))
    restore = decode(RestoreMetadata, body, where=completion)
    nested = [
        instant
        for each in restore.hoodie_restore_metadata.values()
        for rollback in each
        if rollback is not None
        for instant in rollback.commits_rollback
    ]
    return Undone(completion, frozenset([*restore.instants_to_rollback, *nested]))


@dataclass(slots=True)
class Replay:
    """The oracle's states after each write and each undo, and what is wrong with what was seen."""

    terms: Terms
    wrong: list[str] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    _times: list[str] = field(default_factory=list)
    _done: list[Done] = field(default_factory=list)
    _states: list[State] = field(default_factory=list)

    def judge(self, story: Story, noted: Sequence[Noted], final: Sequence[Row]) -> None:
        """Compare everything with everything; `final` are the rows of the table at its end."""
        acknowledged = _acknowledged(noted)
        self._check_acknowledged(story, acknowledged)
        self._replay(_dones(self.terms, story, acknowledged))
        self._same("the table at its end", final, [self._states[-1]] if self._states else [])
        for each in noted:
            if each.did == "read":
                self._check_read(each)

    def _check_acknowledged(self, story: Story, acknowledged: Mapping[str, Noted]) -> None:
        there = {commit.instant: commit for commit in story.commits}
        gone = {instant for undone in story.undone for instant in undone.instants}
        for step, noted in acknowledged.items():
            instant = noted.facts["instant"]
            commit = there.get(instant)
            self.counted["acknowledged"] += 1
            if commit is None and instant not in gone:
                self._say(f"{step} was acknowledged as {instant}, and nobody knows that write")
            elif commit is not None and commit.step != step:
                self._say(f"{step} was acknowledged as {instant}, which is {commit.step or 'none'}")
        for step, times in Counter(c.step for c in story.commits if c.step).items():
            if times > 1:
                self._say(f"{step} was applied {times} times")
        for commit in story.commits:
            self.counted[f"committed {commit.operation.lower()}"] += 1
            # The first one is empty: a table must have a write before it has files.
            mine = commit.step or commit.operation in _SERVICES or commit is story.commits[0]
            if not mine:
                self._say(f"{commit.instant} {commit.operation} is nobody's step")

    def _replay(self, dones: Sequence[Done]) -> None:
        """Make a state for each write and each undo; an undo goes back and does the rest again."""
        oracle, gone = self.terms.oracle, set[str]()
        before = State(columns=COLUMNS)
        for done in dones:
            if not done.undoes:
                state = oracle.applied(self._states[-1] if self._states else before, done)
            else:
                gone |= done.undoes
                again = [d for d in self._done if not d.undoes and d.instant not in gone]
                kept = min(
                    (at for at, d in enumerate(self._done) if d.instant in done.undoes),
                    default=len(self._done),
                )
                state = self._states[kept - 1] if kept else before
                for each in again:
                    if each.at >= (self._done[kept].at if kept < len(self._done) else "~"):
                        state = oracle.applied(state, each)
                self.counted["undone"] += 1
            self._done.append(done)
            self._times.append(done.at)
            self._states.append(state)

    def _at(self, until: str) -> list[int]:
        """Return the places that a reader may have been at when `until` was the last completion.

        An undo has no completion that readers see: it shows as soon as it is done.
        """
        place = bisect_right(self._times, until)
        found = [place - 1]
        while place < len(self._done) and self._done[place].undoes:
            found.append(place)
            place += 1
        return found

    def _check_read(self, noted: Noted) -> None:
        facts = noted.facts
        places = self._at(facts["until"])
        states = [self._states[at] if at >= 0 else State(columns=COLUMNS) for at in places]
        self.counted["snapshots"] += 1
        where = f"{noted.name} at {facts['until']}"
        self._same(f"the snapshot of {where}", facts["rows"], states)
        if "changed" in facts:
            self.counted["changes"] += 1
            self._check_changes(where, facts, states)
        if "then" in facts:
            self.counted["as_of"] += 1
            asked = [self._as_of(facts["completed"], at) for at in places]
            self._same(f"{where} as of {facts['as_of']}", facts["then"], asked)

    def _check_changes(self, where: str, facts: Mapping[str, Any], states: list[State]) -> None:
        first = bisect_right(self._times, facts["since"])
        last = bisect_right(self._times, facts["until"])
        within = [done.instant for done in self._done[first:last] if not done.undoes]
        found = plain(facts["changed"])
        expected = [plain(state.written_by(within)) for state in states]
        if found not in expected:
            what = f"the changes of {where} since {facts['since']}"
            self._say(f"{what}: {_difference(found, expected[0])}")

    def _as_of(self, completion: str, at: int) -> State:
        """Return the table as a write left it, without what was taken back up to a place."""
        upto = self._done[: at + 1]
        gone = {each for done in upto for each in done.undoes}
        asked = [done for done in upto if done.at <= completion and not done.undoes]
        kept = next((n for n, done in enumerate(asked) if done.instant in gone), len(asked))
        first = self._done.index(asked[kept - 1]) if kept else -1
        state = self._states[first] if first >= 0 else State(columns=COLUMNS)
        for done in asked[kept:]:
            if done.instant not in gone:
                state = self.terms.oracle.applied(state, done)
        return state

    def _same(self, what: str, found: Sequence[Row], states: Sequence[State]) -> None:
        shown = plain(found)
        expected = [plain(state.found()) for state in states]
        if shown not in expected:
            self._say(f"{what}: {_difference(shown, expected[0] if expected else [])}")

    def _say(self, what: str) -> None:
        self.counted["wrong"] += 1
        if len(self.wrong) < SHOWN_MAX:
            self.wrong.append(what)


def _acknowledged(noted: Sequence[Noted]) -> dict[str, Noted]:
    """Return the steps that were acknowledged; the first time counts, a repetition says the same.

    A repeated step is answered with its application's last commit, which is the step itself.
    """
    found: dict[str, Noted] = {}
    for each in noted:
        if each.did == "wrote":
            found.setdefault(f"{each.name}/{each.facts['step']}", each)
    return found


def _dones(terms: Terms, story: Story, acknowledged: Mapping[str, Noted]) -> list[Done]:
    """Return writes and undos in the order of the ledger, writes that were undone among them."""
    there = {commit.instant for commit in story.commits}
    found = [
        Done(_deed(terms, commit.step), commit.instant, commit.completion)
        for commit in story.commits
        if commit.step
    ]
    for step, noted in acknowledged.items():
        if noted.facts["instant"] not in there:
            deed = _deed(terms, step)
            found.append(Done(deed, noted.facts["instant"], noted.facts["completion"]))
    known = {done.instant for done in found}
    found += [
        Done(Deed("undo"), undone.completion, undone.completion, undone.instants)
        for undone in story.undone
        if undone.instants & known
    ]
    return sorted(found, key=lambda each: each.at)


def _deed(terms: Terms, step: str) -> Deed:
    writer, _, number = step.rpartition("/")
    return terms.deed(writer, int(number))


def _difference(found: Sequence[str], expected: Sequence[str]) -> str:
    more, less = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
    return f"too many {_few(more)}, missing {_few(less)}"


def _few(rows: Counter[str]) -> list[str]:
    return list(rows.elements())[:4]


def lines(counted: Mapping[str, int]) -> Iterator[str]:
    """Yield numbers for a reader."""
    for name, count in sorted(counted.items()):
        yield f"{name:<36} {count:>8,}"
