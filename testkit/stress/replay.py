"""Checks that a serial replay in ledger order explains what every reader saw.

The timeline and its history show which commits completed, the step of each, and what was rolled
back. The journals show what was acknowledged and what was read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from testkit.interleaving.oracle import Done, Row, State, TableChange, plain
from testkit.stress.parameters import COLUMNS, STEP, Parameters
from tidelock.hudi.snapshot import open_table
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.history import Archive
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import (
    CommitMetadata,
    OperationType,
    ReplaceCommitMetadata,
    RestoreMetadata,
    RollbackMetadata,
    decode,
)
from tidelock.storage.contract import ObjectStore
from tidelock.workload.journal import ProgramEvent

SHOWN_MAX: Final = 10
_SERVICES: Final = (OperationType.COMPACT, OperationType.LOG_COMPACT, OperationType.CLUSTER)


@dataclass(frozen=True, slots=True)
class Committed:
    """A completed write: its step and writer ("" for none), and its operation."""

    instant: str
    completion: str
    step: str
    operation: str


@dataclass(frozen=True, slots=True)
class Removal:
    """A rollback or restore: when it completed, and which writes it removed."""

    completion: str
    instants: frozenset[str]


@dataclass(frozen=True, slots=True)
class History:
    """The content of the timeline and its history, in ledger order."""

    commits: tuple[Committed, ...]
    removals: tuple[Removal, ...] = ()


def read_history(store: ObjectStore) -> History:
    """Read the history of an idle table. Raises: `DataCorrupt`."""
    snapshot = open_table(store)
    history = Archive(store, snapshot.properties.history_folder).instants()
    found = {(old.requested, old.action): (old.completion, old.metadata) for old in history}
    timeline = load_timeline(store, snapshot.properties.timeline_folder)
    for instant in timeline.completed():
        stored = store.get(timeline.key(instant))
        assert stored is not None
        found[instant.requested, instant.action] = (instant.completion, stored.body)
    commits, removals = [], []
    for (requested, action), (completion, body) in found.items():
        if action.writes_data:
            commits.append(_committed(requested, action, completion, body))
        elif action in (Action.ROLLBACK, Action.RESTORE):
            removals.append(_removals(action, completion, body))
    return History(
        tuple(sorted(commits, key=lambda each: each.completion)),
        tuple(sorted(removals, key=lambda each: each.completion)),
    )


def _committed(requested: str, action: Action, completion: str, body: bytes) -> Committed:
    kind = ReplaceCommitMetadata if action is Action.REPLACE_COMMIT else CommitMetadata
    metadata = decode(kind, body, where=requested)
    step = metadata.extra_metadata.get(STEP, "")
    return Committed(requested, completion, step, metadata.operation_type or "")


def _removals(action: Action, completion: str, body: bytes) -> Removal:
    if action is Action.ROLLBACK:
        rollback = decode(RollbackMetadata, body, where=completion)
        return Removal(completion, frozenset(rollback.commits_rollback))
    restore = decode(RestoreMetadata, body, where=completion)
    nested = [
        instant
        for each in restore.hoodie_restore_metadata.values()
        for rollback in each
        if rollback is not None
        for instant in rollback.commits_rollback
    ]
    return Removal(completion, frozenset([*restore.instants_to_rollback, *nested]))


@dataclass(slots=True)
class Replay:
    """The oracle's states after each write and rollback, and the differences to what was read."""

    parameters: Parameters
    wrong: list[str] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    _times: list[str] = field(default_factory=list)
    _done: list[Done] = field(default_factory=list)
    _states: list[State] = field(default_factory=list)

    def judge(self, history: History, events: Sequence[ProgramEvent], final: Sequence[Row]) -> None:
        """Compare all reads with the states; `final` are the rows of the table at its end."""
        acknowledged = _acknowledged(events)
        self._check_acknowledged(history, acknowledged)
        self._replay(_dones(self.parameters, history, acknowledged))
        self._same("the table at its end", final, [self._states[-1]] if self._states else [])
        for each in events:
            if each.kind == "read":
                self._check_read(each)

    def _check_acknowledged(
        self, history: History, acknowledged: Mapping[str, ProgramEvent]
    ) -> None:
        there = {commit.instant: commit for commit in history.commits}
        gone = {instant for removals in history.removals for instant in removals.instants}
        for step, event in acknowledged.items():
            instant = event.facts["instant"]
            commit = there.get(instant)
            self.counted["acknowledged"] += 1
            if commit is None and instant not in gone:
                self._report(f"{step} was acknowledged as {instant}, which does not exist")
            elif commit is not None and commit.step != step:
                found = commit.step or "no step"
                self._report(f"{step} was acknowledged as {instant}, which is {found}")
        for step, times in Counter(c.step for c in history.commits if c.step).items():
            if times > 1:
                self._report(f"{step} was applied {times} times")
        for commit in history.commits:
            self.counted[f"committed {commit.operation.lower()}"] += 1
            # The first state is empty: a table must have a write before it has files.
            mine = commit.step or commit.operation in _SERVICES or commit is history.commits[0]
            if not mine:
                self._report(f"{commit.instant} {commit.operation} belongs to no step")

    def _replay(self, dones: Sequence[Done]) -> None:
        """Build a state for each write and rollback; a rollback goes back and replays the rest."""
        oracle, gone = self.parameters.oracle, set[str]()
        before = State(columns=COLUMNS)
        for done in dones:
            if not done.rolls_back:
                state = oracle.applied(self._states[-1] if self._states else before, done)
            else:
                gone |= done.rolls_back
                again = [d for d in self._done if not d.rolls_back and d.instant not in gone]
                unchanged = min(
                    (at for at, d in enumerate(self._done) if d.instant in done.rolls_back),
                    default=len(self._done),
                )
                state = self._states[unchanged - 1] if unchanged else before
                for each in again:
                    if each.at >= (
                        self._done[unchanged].at if unchanged < len(self._done) else "~"
                    ):
                        state = oracle.applied(state, each)
                self.counted["undone"] += 1
            self._done.append(done)
            self._times.append(done.at)
            self._states.append(state)

    def _at(self, until: str) -> list[int]:
        """Return the states that a reader may have seen when `until` was the last completion.

        A rollback has no completion that readers see: it is visible as soon as it is done.
        """
        place = bisect_right(self._times, until)
        found = [place - 1]
        while place < len(self._done) and self._done[place].rolls_back:
            found.append(place)
            place += 1
        return found

    def _check_read(self, event: ProgramEvent) -> None:
        facts = event.facts
        places = self._at(facts["until"])
        states = [self._states[at] if at >= 0 else State(columns=COLUMNS) for at in places]
        self.counted["snapshots"] += 1
        where = f"{event.name} at {facts['until']}"
        self._same(f"the snapshot of {where}", facts["rows"], states)
        if "changed" in facts:
            self.counted["changes"] += 1
            self._check_changes(where, facts, states)
        if "then" in facts:
            self.counted["as_of"] += 1
            earlier = [self._as_of(facts["completed"], at) for at in places]
            self._same(f"{where} as of {facts['as_of']}", facts["then"], earlier)

    def _check_changes(self, where: str, facts: Mapping[str, Any], states: list[State]) -> None:
        first = bisect_right(self._times, facts["since"])
        last = bisect_right(self._times, facts["until"])
        within = [done.instant for done in self._done[first:last] if not done.rolls_back]
        found = plain(facts["changed"])
        expected = [plain(state.written_by(within)) for state in states]
        if found not in expected:
            what = f"the changes of {where} since {facts['since']}"
            self._report(f"{what}: {_difference(found, expected[0])}")

    def _as_of(self, completion: str, at: int) -> State:
        """Return the table after a write, without what was rolled back up to a state."""
        upto = self._done[: at + 1]
        gone = {each for done in upto for each in done.rolls_back}
        earlier = [done for done in upto if done.at <= completion and not done.rolls_back]
        unchanged = next(
            (n for n, done in enumerate(earlier) if done.instant in gone), len(earlier)
        )
        first = self._done.index(earlier[unchanged - 1]) if unchanged else -1
        state = self._states[first] if first >= 0 else State(columns=COLUMNS)
        for done in earlier[unchanged:]:
            if done.instant not in gone:
                state = self.parameters.oracle.applied(state, done)
        return state

    def _same(self, what: str, found: Sequence[Row], states: Sequence[State]) -> None:
        shown = plain(found)
        expected = [plain(state.found()) for state in states]
        if shown not in expected:
            self._report(f"{what}: {_difference(shown, expected[0] if expected else [])}")

    def _report(self, what: str) -> None:
        self.counted["wrong"] += 1
        if len(self.wrong) < SHOWN_MAX:
            self.wrong.append(what)


def _acknowledged(events: Sequence[ProgramEvent]) -> dict[str, ProgramEvent]:
    """Return the acknowledged steps; a repeated step is counted once.

    A repeated step is answered with its application's last commit, which is the step itself.
    """
    found: dict[str, ProgramEvent] = {}
    for each in events:
        if each.kind == "wrote":
            found.setdefault(f"{each.name}/{each.facts['step']}", each)
    return found


def _dones(
    parameters: Parameters, history: History, acknowledged: Mapping[str, ProgramEvent]
) -> list[Done]:
    """Return writes and rollbacks in ledger order, including writes that were rolled back."""
    there = {commit.instant for commit in history.commits}
    found = [
        Done(_operation(parameters, commit.step), commit.instant, commit.completion)
        for commit in history.commits
        if commit.step
    ]
    for step, event in acknowledged.items():
        if event.facts["instant"] not in there:
            change = _operation(parameters, step)
            found.append(Done(change, event.facts["instant"], event.facts["completion"]))
    known = {done.instant for done in found}
    found += [
        Done(TableChange("undo"), removals.completion, removals.completion, removals.instants)
        for removals in history.removals
        if removals.instants & known
    ]
    return sorted(found, key=lambda each: each.at)


def _operation(parameters: Parameters, step: str) -> TableChange:
    writer, _, number = step.rpartition("/")
    return parameters.change(writer, int(number))


def _difference(found: Sequence[str], expected: Sequence[str]) -> str:
    more, less = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
    return f"too many {_first_rows(more)}, missing {_first_rows(less)}"


def _first_rows(rows: Counter[str]) -> list[str]:
    return list(rows.elements())[:4]


def lines(counted: Mapping[str, int]) -> Iterator[str]:
    """Yield the numbers of the report."""
    for name, count in sorted(counted.items()):
        yield f"{name:<36} {count:>8,}"
