"""The ledger so far, in few words, and the one rule: what may be appended to it (C7-C19). Pure.

Folding all entries up to a position gives the same value for everyone who read them. An entry is
lawful against the fold of everything below it, or it is not appended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, assert_never

from tidelock.base.errors import InvariantBroken
from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.instant import Action, format_time, parse_time
from tidelock.txn.entry import (
    Adopt,
    Boundary,
    Claim,
    Commit,
    Entry,
    Fact,
    Foreign,
    Plan,
    Release,
    Rollback,
    Turn,
    Undo,
)
from tidelock.txn.footprint import Deed
from tidelock.txn.grown import Grown
from tidelock.txn.mark import Applied, Mark, marked, taken_back

TURNS_MAX: Final = 64
"""Turns that are remembered. Those of dead writers are ignored anyway, and pushed out in time."""

BEGINNING: Final = "00010101000000000"
"""The time of a ledger without entries: before every instant."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A table-service plan that is neither complete nor undone."""

    instant: str
    action: Action
    targets: frozenset[GroupId]
    removable: bool
    position: int
    attempt: int = 0
    """The last attempt at it; 0 before the first."""
    owner: str = ""
    """Who executes it; "" when nobody does."""
    undoes: tuple[str, ...] = ()
    """What it removes, in that order, if it is a roll-back or a restore."""
    halts: bool = False
    """It takes back what was complete, so nothing else completes until it is done (C87)."""
    adopted: bool = False
    """Somebody who knows no ledger scheduled it (C99)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A writer that was overtaken and asked for a turn."""

    position: int
    instant: str
    owner: str
    groups: frozenset[GroupId]
    partitions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fold:
    """Everything that matters of the entries 1 to `position`."""

    position: int = 0
    time: str = BEGINNING
    nonce: str = ""
    """The nonce of the last entry; the next one names it."""
    committed: Grown = field(default_factory=Grown)
    """Instants that completed, ours and foreign, requested at or after `archived`."""
    void: Grown = field(default_factory=Grown)
    """Instants that never will complete, but for those in `forgotten`."""
    forgotten: tuple[str, str] | None = None
    """From which request time on, and up to but without which, `void` may lack instants: there only
    what the history has is complete."""
    plans: Mapping[str, Pending] = field(default_factory=dict)
    turns: tuple[Waiting, ...] = ()
    boundary: int = 0
    archived: str = ""
    """Every instant requested before this is decided."""
    schema_id: str = ""
    token: int = 0
    """The largest token of the table's lock under which anything was committed in this epoch."""
    epoch: int = 0
    """How often the tokens of the table's lock began anew: it is another lock, or was lost."""
    foreign: bool = False
    """Somebody who knows no ledger has written the table."""
    marks: Mapping[str, Applied] = field(default_factory=dict)
    """The last mark of each application, the one that was written last at the end."""
    savepoints: Mapping[str, str] = field(default_factory=dict)
    """Commits that a savepoint keeps, and when it was completed."""

    def after(self, entry: Entry) -> Fold:
        """Return the fold with one more entry. Raises: `InvariantBroken` for the wrong one."""
        if not self.precedes(entry) or entry.time <= self.time:
            raise InvariantBroken(
                f"ledger entry {entry.position} of {entry.time} cannot follow {self.position} of"
                f" {self.time}"
            )
        return replace(
            self,
            position=entry.position,
            time=entry.time,
            nonce=entry.nonce,
            **_changes(self, entry),
        )

    def precedes(self, entry: Entry) -> bool:
        """Tell whether `entry` was written on top of exactly this (C6)."""
        return entry.position == self.position + 1 and entry.before == self.nonce

    def next_time(self, wall_epoch_ms: int, *, above: str = "") -> str:
        """Return the time of the next entry: the clock's, but later than all before (C4)."""
        return later(wall_epoch_ms, self.time, above)

    @property
    def halting(self) -> Pending | None:
        """The plan that takes back completed commits, and that all others wait for."""
        return next((plan for plan in self.plans.values() if plan.halts), None)

    def is_settled(self, instant: str) -> bool:
        """Tell whether an instant's fate is known."""
        return instant in self.committed or self.is_over(instant)

    def is_over(self, instant: str) -> bool:
        """Tell whether nothing can change an instant's fate: it is undone, or archived."""
        return instant in self.void or instant < self.archived


def later(wall_epoch_ms: int, *than: str) -> str:
    """Return the clock's time, or one millisecond after the latest of `than` if that is later."""
    floor = max(than)
    now = format_time(wall_epoch_ms)
    return now if now > floor else format_time(parse_time(floor) + 1)


def _changes(fold: Fold, entry: Entry) -> dict[str, Any]:
    """Return what a fact changes in the fold."""
    fact = entry.fact
    match fact:
        case Plan() | Adopt():
            return {"plans": {**fold.plans, **_planned(fact, entry)}}
        case Claim(instant, attempt):
            claimed = replace(fold.plans[instant], attempt=attempt, owner=entry.owner)
            return {"plans": {**fold.plans, instant: claimed}}
        case Commit():
            if fact.action is Action.SAVEPOINT:
                # It bears the request time of the commit that it keeps.
                return {"savepoints": {**fold.savepoints, fact.instant: entry.time}}
            return {
                "committed": fold.committed.add(fact.instant),
                "plans": _without(fold.plans, fact.instant),
                "turns": _served(fold.turns, fact.instant, entry.owner),
                "schema_id": _schema(fold, fact),
                "token": fact.token if fact.epoch > fold.epoch else max(fold.token, fact.token),
                "epoch": max(fold.epoch, fact.epoch),
                **_marks(fold, fact, entry),
            }
        case Rollback(instant, attempt=int()):
            freed = replace(fold.plans[instant], owner="")
            return {"plans": {**fold.plans, instant: freed}}
        case Rollback(instant):
            return {
                "void": fold.void.add(instant),
                "plans": _without(fold.plans, instant),
                "turns": tuple(turn for turn in fold.turns if turn.instant != instant),
            }
        case Foreign():
            return _imported(fold, fact)
        case Boundary(position, archived, forgets):
            floor = max(fold.archived, archived)
            kept = fold.committed if floor == fold.archived else fold.committed.above(floor)
            return {
                "boundary": max(fold.boundary, position),
                "archived": floor,
                "committed": kept,
                **_forgotten(fold, forgets),
            }
        case Turn(instant, groups, partitions):
            others = tuple(turn for turn in fold.turns if turn.owner != entry.owner)
            asked = Waiting(entry.position, instant, entry.owner, groups, partitions)
            return {"turns": (*others, asked)[-TURNS_MAX:]}
        case Undo():
            return _undone(fold, fact, entry)
        case Release(instant):
            return {"savepoints": {k: v for k, v in fold.savepoints.items() if k != instant}}
        case _:
            assert_never(fact)


def _forgotten(fold: Fold, before: str) -> dict[str, Any]:
    gone = [instant for instant in fold.void if instant < before]
    if not gone:
        return {}
    first, end = fold.forgotten or (min(gone), before)
    return {
        "void": fold.void.above(before),
        "forgotten": (min(first, *gone), max(end, before)),
    }


def _planned(fact: Plan | Adopt, entry: Entry) -> dict[str, Pending]:
    adopted = isinstance(fact, Adopt)
    instant = fact.instant if isinstance(fact, Adopt) else entry.time
    at = entry.position
    plan = Pending(instant, fact.action, fact.targets, fact.removable, at, adopted=adopted)
    return {instant: plan}


def _undone(fold: Fold, fact: Undo, entry: Entry) -> dict[str, Any]:
    void = fold.void
    for instant in fact.instants:
        void = void.add(instant)
    plan = Pending(
        entry.time,
        fact.action,
        frozenset(),
        removable=False,
        position=entry.position,
        undoes=fact.instants,
        halts=fact.complete,
    )
    others = {key: each for key, each in fold.plans.items() if key not in fact.instants}
    return {
        "void": void,
        "plans": {**others, entry.time: plan},
        "turns": tuple(turn for turn in fold.turns if turn.instant not in fact.instants),
        **({"marks": taken_back(fold.marks, fact.marks)} if fact.marks else {}),
    }


def _imported(fold: Fold, fact: Foreign) -> dict[str, Any]:
    void, plans = fold.void, _without(fold.plans, fact.instant)
    for instant in fact.undoes:
        void, plans = void.add(instant), _without(plans, instant)
    for instant in plans.keys() & set(fact.ends):
        plans = {**plans, instant: replace(plans[instant], owner="")}
    return {
        "committed": fold.committed.add(fact.instant),
        "void": void,
        "plans": plans,
        "turns": tuple(turn for turn in fold.turns if turn.instant not in fact.undoes),
        "schema_id": _schema(fold, fact),
        "foreign": True,
        **({"marks": taken_back(fold.marks, fact.marks)} if fact.marks else {}),
    }


def _marks(fold: Fold, fact: Commit, entry: Entry) -> dict[str, Any]:
    if fact.mark is None:
        return {}
    return {"marks": marked(fold.marks, Applied(fact.mark, fact.instant, entry.time))}


def _schema(fold: Fold, fact: Commit | Foreign) -> str:
    """Return the table's schema after a commit: table services write what they have read."""
    keeps = fact.footprint.deed in (Deed.COMPACTION, Deed.LOG_COMPACTION, Deed.CLUSTERING)
    return fold.schema_id if keeps or not fact.schema_id else fact.schema_id


def _without(plans: Mapping[str, Pending], instant: str) -> Mapping[str, Pending]:
    if instant not in plans:
        return plans
    return {key: plan for key, plan in plans.items() if key != instant}


def _served(turns: tuple[Waiting, ...], instant: str, owner: str) -> tuple[Waiting, ...]:
    if not turns:
        return turns
    return tuple(turn for turn in turns if turn.owner != owner and turn.instant != instant)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an appender saw outside the ledger. It can save work; it never decides a commit.

    `alive` are instants with a fresh heartbeat, `inflight` those whose execution has begun, `own`
    instants that belong to the appender, `too_young` plans that may not be rolled back yet.
    """

    alive: frozenset[str] = frozenset()
    inflight: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    too_young: frozenset[str] = frozenset()


NOTHING_SEEN = Evidence()


def lawful(fact: Fact, fold: Fold, seen: Evidence = NOTHING_SEEN, *, owner: str = "") -> str | None:
    """Return why `fact` may not be appended to `fold`; None if it may.

    Whether a commit conflicts with others is for `tidelock.txn.conflict`: the fold has forgotten
    what they touched.
    """
    match fact:
        case Plan():
            return _plan_problem(fact, fold)
        case Adopt():
            return _adopt_problem(fact, fold)
        case Claim():
            return _claim_problem(fact, fold, seen)
        case Commit():
            return _commit_problem(fact, fold, owner)
        case Rollback():
            return _rollback_problem(fact, fold, seen, owner)
        case Foreign():
            return _foreign_problem(fact, fold)
        case Boundary():
            return _boundary_problem(fact, fold)
        case Turn():
            return None
        case Undo():
            return _undo_problem(fact, fold, seen, owner)
        case Release(instant):
            return None if instant in fold.savepoints else f"{instant} has no savepoint"
        case _:
            assert_never(fact)


def _waits(fold: Fold, instant: str, action: Action) -> str | None:
    """Return what an instant has to wait for: a plan that takes back what was complete (C87)."""
    plan = fold.halting
    if plan is None or plan.instant == instant or action is Action.ROLLBACK:
        return None
    return f"the {plan.action} {plan.instant} is taking back commits and is not done"


def _boundary_problem(boundary: Boundary, fold: Fold) -> str | None:
    position = boundary.position
    if boundary.forgets > boundary.archived:
        return f"what is not archived, from {boundary.archived} on, cannot be forgotten"
    if fold.halting is not None:
        return _waits(fold, "", Action.COMMIT)
    # A plan is judged by what came after it, so that must be kept while it is pending.
    most = min([fold.position, *(plan.position + 1 for plan in fold.plans.values())]) - 1
    if not fold.boundary <= position <= most:
        return f"a boundary at {position} must lie between {fold.boundary} and {most}"
    # Everything before `archived` counts as decided, so nothing there may still be to decide.
    for plan in fold.plans.values():
        if plan.instant < boundary.archived:
            return f"the {plan.action} {plan.instant} is pending"
    return None


def _foreign_problem(foreign: Foreign, fold: Fold) -> str | None:
    if foreign.instant in fold.committed or foreign.instant < fold.archived:
        return f"{foreign.instant} has its entry already"
    if known := next((each for each in foreign.undoes if fold.is_over(each)), None):
        return f"the fate of {known} is decided"
    if gone := next((each for each in foreign.ends if each not in fold.plans), None):
        return f"{gone} is not a pending plan"
    return None


def _adopt_problem(adopt: Adopt, fold: Fold) -> str | None:
    instant = adopt.instant
    if instant in fold.plans:
        return f"{instant} is adopted already"
    if fold.is_settled(instant):
        return f"{instant} is not pending"
    return _plan_problem(adopt, fold)


def _plan_problem(plan: Plan | Adopt, fold: Fold) -> str | None:
    if fold.halting is not None:
        return _waits(fold, "", plan.action)
    for other in fold.plans.values():
        if shared := other.targets & plan.targets:
            some = ", ".join("/".join(group) for group in sorted(shared)[:3])
            return f"{some} are in the pending {other.action} {other.instant}"
    return None


def _claim_problem(claim: Claim, fold: Fold, seen: Evidence) -> str | None:
    plan = fold.plans.get(claim.instant)
    if plan is None:
        return f"{claim.instant} is not a pending plan"
    if waits := _waits(fold, claim.instant, plan.action):
        return waits
    if plan.owner and claim.instant in seen.alive:
        return f"{claim.instant} is being executed by {plan.owner}"
    if plan.removable and (plan.attempt or claim.instant in seen.inflight):
        return f"{claim.instant} was begun and can only be rolled back"
    if claim.attempt != plan.attempt + 1:
        return f"the next attempt at {claim.instant} is {plan.attempt + 1}, not {claim.attempt}"
    return None


def _commit_problem(commit: Commit, fold: Fold, owner: str) -> str | None:
    instant = commit.instant
    if instant in fold.void:
        return f"{instant} was rolled back"
    if commit.action is Action.SAVEPOINT:
        return _savepoint_problem(instant, fold)
    if instant in fold.committed:
        return f"{instant} is complete already"
    if instant < fold.archived:
        return f"{instant} is older than the archived part of the timeline"
    if fenced := fencing_problem(commit, fold):
        return fenced
    if waits := _waits(fold, instant, commit.action):
        return waits
    plan = fold.plans.get(instant)
    if plan is not None and (plan.attempt, plan.owner) != (commit.attempt, owner):
        return f"attempt {commit.attempt} at {instant} is over: {plan.attempt} is the last"
    # Last, so that a commit which landed unheard is told from one that came too late.
    applied = already_applied(commit.mark, fold)
    if applied is not None:
        last = applied.mark
        return f"{last.application} has committed batch {last.version} as {applied.instant}"
    return None


def fencing_problem(commit: Commit, fold: Fold) -> str | None:
    """Return why a commit's token is too old; None if it is not, or if it has none (T9)."""
    if not commit.token or commit.epoch > fold.epoch:
        return None
    if commit.epoch < fold.epoch:
        return "the tokens of the table's lock have begun anew since it was taken"
    if commit.token < fold.token:
        return f"the table's lock was taken by others since: {fold.token} is the last token"
    return None


def fencing_epoch(token: int, before: Fold) -> int:
    """Return the epoch of a token that was granted after `before` was read (C105).

    Tokens of one counter grow from grant to grant. One that is smaller than a token which had been
    committed before it was granted comes from another counter, or from one that was lost.
    """
    return before.epoch + 1 if 0 < token < before.token else before.epoch


def already_applied(mark: Mark | None, fold: Fold) -> Applied | None:
    """Return the last mark of an application if `mark` is not later than it (C79)."""
    applied = None if mark is None else fold.marks.get(mark.application)
    return applied if mark is not None and applied is not None and applied.covers(mark) else None


def _savepoint_problem(instant: str, fold: Fold) -> str | None:
    if instant not in fold.committed:
        return f"{instant} is not a commit to keep"
    if instant in fold.savepoints:
        return f"{instant} has a savepoint already"
    # H17: a clean that was planned before may delete what the savepoint is going to name.
    for plan in fold.plans.values():
        if plan.halts or plan.action is Action.CLEAN:
            return f"the {plan.action} {plan.instant} is pending"
    return None


def _undo_problem(undo: Undo, fold: Fold, seen: Evidence, owner: str) -> str | None:
    for plan in fold.plans.values() if undo.complete else ():
        # A clean may be about to delete what is left when these are gone.
        if plan.halts or plan.action is Action.CLEAN:
            return f"the {plan.action} {plan.instant} is pending"
    for instant in undo.instants:
        if undo.complete and instant in fold.savepoints:
            return f"{instant} is kept by a savepoint"
        if undo.complete and instant in fold.committed and instant >= fold.archived:
            if instant in fold.void:
                return f"{instant} is rolled back already"
            continue
        single = Rollback(instant)
        if problem := _rollback_problem(single, fold, seen, owner, stays=not _may_go(undo)):
            return problem
    return None


def _may_go(undo: Undo) -> bool:
    """Tell whether plans go that otherwise stay: what they stand on goes, or it is forced."""
    return undo.forced or undo.complete


def _rollback_problem(
    rollback: Rollback, fold: Fold, seen: Evidence, owner: str, *, stays: bool = True
) -> str | None:
    instant = rollback.instant
    if instant in fold.committed:
        return f"{instant} is complete"
    if instant < fold.archived:
        return f"{instant} is older than the archived part of the timeline"
    if instant in fold.void:
        return f"{instant} is rolled back already"
    plan = fold.plans.get(instant)
    is_own = instant in seen.own or (plan is not None and plan.owner == owner != "")
    if instant in seen.alive and not is_own:
        return f"{instant} is alive"
    if rollback.attempt is not None:
        if plan is None:
            return f"{instant} is not a pending plan"
        if plan.attempt != rollback.attempt or not plan.owner:
            return f"attempt {rollback.attempt} at {instant} is over already"
        return None
    if plan is not None and stays and not plan.removable:
        return f"the plan {instant} cannot be removed"
    if plan is not None and stays and instant in seen.too_young:
        return f"the plan {instant} is too young to be removed"
    return None
