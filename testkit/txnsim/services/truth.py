"""The true table after each entry of the ledger, and the pending plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from testkit.txnsim.checked_store import PARTITION, History
from tidelock.hudi.file_groups import GroupId
from tidelock.hudi.timeline.instant import Action
from tidelock.txn.entries import (
    Claim,
    Commit,
    ExternalCommit,
    ImportPlan,
    LedgerEntry,
    Plan,
    PlanRollback,
    Rollback,
)
from tidelock.txn.footprint import CommitKind, Footprint

Rows = dict[str, list[str]]
"""The writes that updated each key, in order."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The files of a file group: a base file, then log files in commit order."""

    base: str
    logs: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """All of them."""
        return (*((self.base,) if self.base else ()), *self.logs)


State = Mapping[str, Slice]


@dataclass(frozen=True, slots=True)
class ExpectedPlan:
    """A plan that is neither complete nor rolled back. `inputs` are the slices it reads."""

    action: Action
    removable: bool
    inputs: State
    attempt: int = 0
    owner: str = ""


@dataclass(slots=True)
class Truth(History):
    """The history, with the table's state at every position."""

    states: list[State] = field(default_factory=lambda: [{}])
    plans: dict[str, ExpectedPlan] = field(default_factory=dict)
    planned: dict[str, ExpectedPlan] = field(default_factory=dict)
    """All plans ever scheduled."""
    written: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)
    """The data file of each file group that an attempt at an instant wrote."""
    proposed: dict[tuple[str, frozenset[GroupId]], State] = field(default_factory=dict)
    """The plan that each process is about to schedule, as it saw the table."""
    java: dict[str, ExpectedPlan] = field(default_factory=dict)
    """All plans that an external writer put on the timeline."""
    completed_ms: dict[str, int] = field(default_factory=dict)
    """When the entry of each commit landed, by the true clock."""
    archived: str = ""
    services: int = 0

    def state(self, position: int | None = None) -> State:
        """Return the table at a position, or the current one."""
        return self.states[-1 if position is None else min(position, len(self.states) - 1)]

    def follow(self, entry: LedgerEntry) -> None:
        """Apply an entry that was appended."""
        state = self.state()
        match entry.fact:
            case Plan(action, targets, removable=removable):
                inputs = self.proposed.get((entry.owner, targets), {})
                self.plans[entry.time] = ExpectedPlan(action, removable, inputs)
            case ImportPlan(instant):
                self.plans[instant] = self.java[instant]
            case ExternalCommit() as fact:
                state = self._applied(fact.instant, 0, fact.footprint)
                for instant in (fact.instant, *fact.rolls_back):
                    self.plans.pop(instant, None)
                for instant in fact.ends:
                    self.plans[instant] = replace(self.plans[instant], owner="")
            case PlanRollback(action, instants):
                for instant in instants:
                    self.plans.pop(instant, None)
                self.plans[entry.time] = ExpectedPlan(action, removable=False, inputs={})
            case Claim(instant, attempt):
                self.plans[instant] = replace(
                    self.plans[instant], attempt=attempt, owner=entry.owner
                )
            case Rollback(instant, attempt=int()):
                self.plans[instant] = replace(self.plans[instant], owner="")
            case Rollback(instant):
                self.plans.pop(instant, None)
            case Commit() as fact:
                state = self._applied(fact.instant, fact.attempt, fact.footprint)
                self.plans.pop(fact.instant, None)
            case _:
                pass
        self.planned |= self.plans
        self.states.append(state)

    def _applied(self, instant: str, attempt: int, footprint: Footprint) -> State:
        """Return the table after a commit; attempt 0 is an external writer's."""
        state = dict(self.state())
        files = self.written.get((instant, attempt), {})
        for _, group in footprint.replaced:
            state.pop(group, None)
        for group, key in files.items():
            now = state.get(group, Slice(""))
            if key.startswith(f"{PARTITION}/."):
                state[group] = replace(now, logs=(*now.logs, key))
            elif footprint.commit_kind is CommitKind.COMPACTION:
                plan = self.plans.get(instant) or self.java[instant]
                seen = plan.inputs[group].logs
                state[group] = Slice(key, tuple(log for log in now.logs if log not in seen))
            else:
                state[group] = Slice(key)
        return state


def rows_of(state: State, peek: Callable[[str], bytes | None]) -> Rows | str:
    """Return all rows of a state, or what is wrong with it."""
    rows: Rows = {}
    for group, piece in sorted(state.items()):
        mine = slice_rows(piece, peek)
        if isinstance(mine, str):
            return mine
        for key, writes in mine.items():
            if key in rows:
                return f"G7: {key} is in two file groups, one is {group}"
            rows[key] = writes
    return rows


def slice_rows(piece: Slice, peek: Callable[[str], bytes | None]) -> Rows | str:
    """Return the rows of one slice, or the file that is missing."""
    rows: Rows = {}
    for key in piece.files:
        body = peek(key)
        if body is None:
            return f"G15: {key} is part of the table, but missing"
        for row, said in json.loads(body).items():
            if isinstance(said, list):
                rows[row] = said
            else:
                rows[row] = [*rows.get(row, ()), said]
    return rows
