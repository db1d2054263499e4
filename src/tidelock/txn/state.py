"""The state of a ledger, and the rules for what may be appended to it (C7-C19). Pure.

Applying all entries up to a position gives every reader the same state. An entry is appended only
if it is valid against the state of everything below it. A `View` adds the last entries and what is
published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, assert_never

from tidelock.core.errors import InvariantBroken
from tidelock.hudi.file_groups import GroupId
from tidelock.hudi.timeline.instant import Action, format_time, parse_time
from tidelock.txn.app_transactions import (
    AppliedTransaction,
    AppTransaction,
    with_applied,
    with_previous,
)
from tidelock.txn.entries import (
    Boundary,
    Claim,
    Commit,
    ExternalCommit,
    Fact,
    ImportPlan,
    LedgerEntry,
    Plan,
    PlanRollback,
    PriorityTicket,
    ReleaseSavepoint,
    Rollback,
)
from tidelock.txn.footprint import SERVICES, CommitKind, Footprint

_CHUNK_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class PersistentSet:
    """An immutable set of strings in chunks: small chunks are merged as the set grows."""

    chunks: tuple[frozenset[str], ...] = ()
    recent: frozenset[str] = frozenset()

    @classmethod
    def of(cls, texts: Iterable[str]) -> PersistentSet:
        return cls((frozenset(texts),))

    def __contains__(self, text: object) -> bool:
        return text in self.recent or any(text in chunk for chunk in self.chunks)

    def __iter__(self) -> Iterator[str]:
        for chunk in self.chunks:
            yield from chunk
        yield from self.recent

    def __len__(self) -> int:
        return sum(len(chunk) for chunk in self.chunks) + len(self.recent)

    def add(self, text: str) -> PersistentSet:
        if text in self:
            return self
        recent = self.recent | {text}
        if len(recent) < _CHUNK_MAX:
            return PersistentSet(self.chunks, recent)
        chunks = [*self.chunks, recent]
        while len(chunks) > 1 and len(chunks[-2]) <= len(chunks[-1]):
            last = chunks.pop()
            chunks[-1] = chunks[-1] | last
        return PersistentSet(tuple(chunks))

    def above(self, least: str) -> PersistentSet:
        """Return the set without the strings below `least`."""
        return PersistentSet.of(text for text in self if text >= least)


PRIORITY_TICKETS_MAX: Final = 64
"""Maximum number of priority tickets; new tickets displace the oldest ones."""

BEGINNING: Final = "00010101000000000"
"""The time of an empty ledger, before every instant."""


@dataclass(frozen=True, slots=True)
class PendingPlan:
    """A table-service plan that is neither complete nor rolled back."""

    instant: str
    action: Action
    targets: frozenset[GroupId]
    removable: bool
    position: int
    attempt: int = 0
    """The number of the last attempt, 0 before the first."""
    owner: str = ""
    """The current executor, "" if there is none."""
    rolls_back: tuple[str, ...] = ()
    """For a rollback or restore: the instants it removes, in this order."""
    blocks_commits: bool = False
    """Whether it rolls back completed commits, so that nothing else completes before it (C87)."""
    imported: bool = False
    """Whether it was scheduled by an external writer and imported (C99)."""


@dataclass(frozen=True, slots=True)
class WaitingWriter:
    """A writer that conflicted and holds a priority ticket."""

    position: int
    instant: str
    owner: str
    groups: frozenset[GroupId]
    partitions: frozenset[str]


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The state after applying the entries 1 to `position`."""

    position: int = 0
    time: str = BEGINNING
    nonce: str = ""
    """The nonce of the last entry, which the next entry must name."""
    committed: PersistentSet = field(default_factory=PersistentSet)
    """Completed instants, ours and external, requested at or after `archived`."""
    aborted: PersistentSet = field(default_factory=PersistentSet)
    """Instants that will never complete, except those in `forgotten`."""
    forgotten: tuple[str, str] | None = None
    """Range of request times, end exclusive, in which `aborted` is incomplete. In it only instants
    in the archived history are complete."""
    plans: Mapping[str, PendingPlan] = field(default_factory=dict)
    tickets: tuple[WaitingWriter, ...] = ()
    boundary: int = 0
    archived: str = ""
    """All instants requested before this time are resolved."""
    schema_id: str = ""
    token: int = 0
    """The largest fencing token of a commit in this epoch."""
    epoch: int = 0
    """How often the lock's token counter was reset: the lock was replaced, or lost its state."""
    external: bool = False
    """Whether an external writer has written the table."""
    app_transactions: Mapping[str, AppliedTransaction] = field(default_factory=dict)
    """The last transaction of each application, most recently used last."""
    savepoints: Mapping[str, str] = field(default_factory=dict)
    """Savepointed commits, with the completion time of the savepoint."""

    def after(self, entry: LedgerEntry) -> LedgerState:
        """Return the state after `entry`. Raises: `InvariantBroken` if it does not follow."""
        if not self.precedes(entry) or entry.time <= self.time:
            raise InvariantBroken(
                f"ledger entry {entry.position} of {entry.time} cannot follow {self.position} of"
                f" {self.time}"
            )
        changes = _changes(self, entry)
        return replace(self, position=entry.position, time=entry.time, nonce=entry.nonce, **changes)

    def precedes(self, entry: LedgerEntry) -> bool:
        """Return whether `entry` was written on top of exactly this state (C6)."""
        return entry.position == self.position + 1 and entry.before == self.nonce

    def next_time(self, wall_epoch_ms: int, *, above: str = "") -> str:
        """Return the time of the next entry: the clock's, but later than all before (C4)."""
        return later(wall_epoch_ms, self.time, above)

    @property
    def blocking_plan(self) -> PendingPlan | None:
        """The plan that rolls back completed commits, which all other commits wait for."""
        return next((plan for plan in self.plans.values() if plan.blocks_commits), None)

    def is_resolved(self, instant: str) -> bool:
        """Return whether the instant is known to be committed, aborted or archived."""
        return instant in self.committed or self.is_over(instant)

    def is_over(self, instant: str) -> bool:
        """Return whether the outcome of the instant is final: it is aborted or archived."""
        return instant in self.aborted or instant < self.archived


def later(wall_epoch_ms: int, *than: str) -> str:
    """Return the clock's time, but at least one millisecond after the latest of `than`."""
    floor = max(than)
    now = format_time(wall_epoch_ms)
    return now if now > floor else format_time(parse_time(floor) + 1)


def _changes(state: LedgerState, entry: LedgerEntry) -> dict[str, Any]:
    """Return the fields of the state that a fact changes."""
    fact = entry.fact
    match fact:
        case Plan() | ImportPlan():
            return {"plans": {**state.plans, **_planned(fact, entry)}}
        case Claim(instant, attempt):
            claimed = replace(state.plans[instant], attempt=attempt, owner=entry.owner)
            return {"plans": {**state.plans, instant: claimed}}
        case Commit():
            if fact.action is Action.SAVEPOINT:
                # A savepoint has the request time of the commit it retains.
                return {"savepoints": {**state.savepoints, fact.instant: entry.time}}
            return {
                "committed": state.committed.add(fact.instant),
                "plans": _without(state.plans, fact.instant),
                "tickets": _without_tickets_of(state.tickets, fact.instant, entry.owner),
                "schema_id": _schema(state, fact),
                "token": fact.token if fact.epoch > state.epoch else max(state.token, fact.token),
                "epoch": max(state.epoch, fact.epoch),
                "app_transactions": _app_transactions(state, fact, entry.time),
            }
        case Rollback(instant, attempt=int()):
            freed = replace(state.plans[instant], owner="")
            return {"plans": {**state.plans, instant: freed}}
        case Rollback(instant):
            return {
                "aborted": state.aborted.add(instant),
                "plans": _without(state.plans, instant),
                "tickets": tuple(ticket for ticket in state.tickets if ticket.instant != instant),
            }
        case ExternalCommit():
            return _imported(state, fact)
        case Boundary(position, archived, forgets):
            floor = max(state.archived, archived)
            remaining = state.committed if floor == state.archived else state.committed.above(floor)
            return {
                "boundary": max(state.boundary, position),
                "archived": floor,
                "committed": remaining,
                **_forgotten(state, forgets),
            }
        case PriorityTicket(instant, groups, partitions):
            others = tuple(ticket for ticket in state.tickets if ticket.owner != entry.owner)
            ticket = WaitingWriter(entry.position, instant, entry.owner, groups, partitions)
            return {"tickets": (*others, ticket)[-PRIORITY_TICKETS_MAX:]}
        case PlanRollback():
            return _with_rollback_plan(state, fact, entry)
        case ReleaseSavepoint(instant):
            return {"savepoints": {k: v for k, v in state.savepoints.items() if k != instant}}
        case _:
            assert_never(fact)


def _forgotten(state: LedgerState, before: str) -> dict[str, Any]:
    gone = [instant for instant in state.aborted if instant < before]
    if not gone:
        return {}
    first, end = state.forgotten or (min(gone), before)
    return {
        "aborted": state.aborted.above(before),
        "forgotten": (min(first, *gone), max(end, before)),
    }


def _planned(fact: Plan | ImportPlan, entry: LedgerEntry) -> dict[str, PendingPlan]:
    imported = isinstance(fact, ImportPlan)
    instant = fact.instant if isinstance(fact, ImportPlan) else entry.time
    at = entry.position
    plan = PendingPlan(instant, fact.action, fact.targets, fact.removable, at, imported=imported)
    return {instant: plan}


def _with_rollback_plan(
    state: LedgerState, fact: PlanRollback, entry: LedgerEntry
) -> dict[str, Any]:
    aborted = state.aborted
    for instant in fact.instants:
        aborted = aborted.add(instant)
    plan = PendingPlan(
        entry.time,
        fact.action,
        frozenset(),
        removable=False,
        position=entry.position,
        rolls_back=fact.instants,
        blocks_commits=fact.complete,
    )
    others = {key: each for key, each in state.plans.items() if key not in fact.instants}
    return {
        "aborted": aborted,
        "plans": {**others, entry.time: plan},
        "tickets": tuple(ticket for ticket in state.tickets if ticket.instant not in fact.instants),
        "app_transactions": with_previous(state.app_transactions, fact.app_transactions),
    }


def _imported(state: LedgerState, fact: ExternalCommit) -> dict[str, Any]:
    aborted, plans = state.aborted, _without(state.plans, fact.instant)
    for instant in fact.rolls_back:
        aborted, plans = aborted.add(instant), _without(plans, instant)
    for instant in plans.keys() & set(fact.ends):
        plans = {**plans, instant: replace(plans[instant], owner="")}
    return {
        "committed": state.committed.add(fact.instant),
        "aborted": aborted,
        "plans": plans,
        "tickets": tuple(
            ticket for ticket in state.tickets if ticket.instant not in fact.rolls_back
        ),
        "schema_id": _schema(state, fact),
        "external": True,
        "app_transactions": with_previous(state.app_transactions, fact.app_transactions),
    }


def _app_transactions(
    state: LedgerState, fact: Commit, completion: str
) -> Mapping[str, AppliedTransaction]:
    if fact.app_transaction is None:
        return state.app_transactions
    applied = AppliedTransaction(fact.app_transaction, fact.instant, completion)
    return with_applied(state.app_transactions, applied)


def _schema(state: LedgerState, fact: Commit | ExternalCommit) -> str:
    """Return the table's schema after a commit. Table services do not change it."""
    keeps = fact.footprint.commit_kind in SERVICES
    return state.schema_id if keeps or not fact.schema_id else fact.schema_id


def _without(plans: Mapping[str, PendingPlan], instant: str) -> Mapping[str, PendingPlan]:
    if instant not in plans:
        return plans
    return {key: plan for key, plan in plans.items() if key != instant}


def _without_tickets_of(
    tickets: tuple[WaitingWriter, ...], instant: str, owner: str
) -> tuple[WaitingWriter, ...]:
    return tuple(
        ticket for ticket in tickets if ticket.owner != owner and ticket.instant != instant
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the writer of an entry observed outside the ledger. It saves work, but never decides a
    commit.

    `alive` are instants with a fresh heartbeat, `inflight` those whose execution has started, `own`
    instants of the writer itself, `too_young` plans that may not be rolled back yet.
    """

    alive: frozenset[str] = frozenset()
    inflight: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    too_young: frozenset[str] = frozenset()


NO_EVIDENCE = Evidence()


def validate_entry(
    fact: Fact, state: LedgerState, seen: Evidence = NO_EVIDENCE, *, owner: str = ""
) -> str | None:
    """Return why `fact` may not be appended to `state`, None if it may.

    Conflicts between commits are checked by `tidelock.txn.conflicts`; the state does not contain
    their footprints.
    """
    match fact:
        case Plan():
            return _plan_problem(fact, state)
        case ImportPlan():
            return _import_problem(fact, state)
        case Claim():
            return _claim_problem(fact, state, seen)
        case Commit():
            return _commit_problem(fact, state, owner)
        case Rollback():
            return _rollback_problem(fact, state, seen, owner)
        case ExternalCommit():
            return _external_commit_problem(fact, state)
        case Boundary():
            return _boundary_problem(fact, state)
        case PriorityTicket():
            return None
        case PlanRollback():
            return _plan_rollback_problem(fact, state, seen, owner)
        case ReleaseSavepoint(instant):
            return None if instant in state.savepoints else f"{instant} has no savepoint"
        case _:
            assert_never(fact)


def _waits(state: LedgerState, instant: str, action: Action) -> str | None:
    """Return why an instant has to wait for a plan that rolls back completed commits (C87)."""
    plan = state.blocking_plan
    if plan is None or plan.instant == instant or action is Action.ROLLBACK:
        return None
    return f"the {plan.action} {plan.instant} is rolling back commits and is not complete"


def _boundary_problem(boundary: Boundary, state: LedgerState) -> str | None:
    position = boundary.position
    if boundary.forgets > boundary.archived:
        return f"instants from {boundary.archived} on are not archived and must be kept"
    if state.blocking_plan is not None:
        return _waits(state, "", Action.COMMIT)
    # A plan is checked against the entries after it, so they are kept while it is pending.
    most = min([state.position, *(plan.position + 1 for plan in state.plans.values())]) - 1
    if not state.boundary <= position <= most:
        return f"a boundary at {position} must be between {state.boundary} and {most}"
    # Everything before `archived` counts as resolved, so nothing pending may lie there.
    for plan in state.plans.values():
        if plan.instant < boundary.archived:
            return f"the {plan.action} {plan.instant} is pending"
    return None


def _external_commit_problem(external: ExternalCommit, state: LedgerState) -> str | None:
    if external.instant in state.committed or external.instant < state.archived:
        return f"{external.instant} already has an entry"
    if known := next((each for each in external.rolls_back if state.is_over(each)), None):
        return f"{known} is already resolved"
    if unknown := next((each for each in external.ends if each not in state.plans), None):
        return f"{unknown} is not a pending plan"
    return None


def _import_problem(imported: ImportPlan, state: LedgerState) -> str | None:
    instant = imported.instant
    if instant in state.plans:
        return f"{instant} is already imported"
    if state.is_resolved(instant):
        return f"{instant} is not pending"
    return _plan_problem(imported, state)


def _plan_problem(plan: Plan | ImportPlan, state: LedgerState) -> str | None:
    if state.blocking_plan is not None:
        return _waits(state, "", plan.action)
    for other in state.plans.values():
        if shared := other.targets & plan.targets:
            some = ", ".join("/".join(group) for group in sorted(shared)[:3])
            return f"{some} are in the pending {other.action} {other.instant}"
    return None


def _claim_problem(claim: Claim, state: LedgerState, seen: Evidence) -> str | None:
    plan = state.plans.get(claim.instant)
    if plan is None:
        return f"{claim.instant} is not a pending plan"
    if waits := _waits(state, claim.instant, plan.action):
        return waits
    if plan.owner and claim.instant in seen.alive:
        return f"{claim.instant} is being executed by {plan.owner}"
    if plan.removable and (plan.attempt or claim.instant in seen.inflight):
        return f"{claim.instant} was started and can only be rolled back"
    if claim.attempt != plan.attempt + 1:
        return f"the next attempt at {claim.instant} is {plan.attempt + 1}, not {claim.attempt}"
    return None


def _commit_problem(commit: Commit, state: LedgerState, owner: str) -> str | None:
    instant = commit.instant
    if instant in state.aborted:
        return f"{instant} was rolled back"
    if commit.action is Action.SAVEPOINT:
        return _savepoint_problem(instant, state)
    if instant in state.committed:
        return f"{instant} is already complete"
    if instant < state.archived:
        return f"{instant} is older than the archived part of the timeline"
    if fenced := fencing_problem(commit, state):
        return fenced
    if waits := _waits(state, instant, commit.action):
        return waits
    plan = state.plans.get(instant)
    if plan is not None and (plan.attempt, plan.owner) != (commit.attempt, owner):
        return f"attempt {commit.attempt} at {instant} has ended: {plan.attempt} is the last"
    # Checked last: a commit whose answer was lost is reported as complete, not as repeated.
    applied = already_applied(commit.app_transaction, state)
    if applied is not None:
        last = applied.app_transaction
        return f"{last.app_id} has committed batch {last.version} as {applied.instant}"
    return None


def fencing_problem(commit: Commit, state: LedgerState) -> str | None:
    """Return why a commit's fencing token is too old; None if it is valid or absent (T9)."""
    if not commit.token or commit.epoch > state.epoch:
        return None
    if commit.epoch < state.epoch:
        return "the token counter of the table's lock was reset since it was acquired"
    if commit.token < state.token:
        return f"the table's lock was acquired by another process: the last token is {state.token}"
    return None


def fencing_epoch(token: int, before: LedgerState) -> int:
    """Return the epoch of a token that was granted after `before` was read (C105).

    The tokens of one counter grow with every grant. A token smaller than one committed before the
    grant therefore comes from another counter, or from one that was reset.
    """
    return before.epoch + 1 if 0 < token < before.token else before.epoch


def already_applied(
    app_transaction: AppTransaction | None, state: LedgerState
) -> AppliedTransaction | None:
    """Return the last transaction of the application if it covers `app_transaction` (C79)."""
    if app_transaction is None:
        return None
    applied = state.app_transactions.get(app_transaction.app_id)
    return applied if applied is not None and applied.covers(app_transaction) else None


def _savepoint_problem(instant: str, state: LedgerState) -> str | None:
    if instant not in state.committed:
        return f"{instant} is not a commit that can be savepointed"
    if instant in state.savepoints:
        return f"{instant} already has a savepoint"
    # H17: a clean planned earlier may delete files that the savepoint names.
    for plan in state.plans.values():
        if plan.blocks_commits or plan.action is Action.CLEAN:
            return f"the {plan.action} {plan.instant} is pending"
    return None


def _plan_rollback_problem(
    plan_rollback: PlanRollback, state: LedgerState, seen: Evidence, owner: str
) -> str | None:
    for plan in state.plans.values() if plan_rollback.complete else ():
        # A pending clean may delete files that are needed once these instants are rolled back.
        if plan.blocks_commits or plan.action is Action.CLEAN:
            return f"the {plan.action} {plan.instant} is pending"
    for instant in plan_rollback.instants:
        if plan_rollback.complete and instant in state.savepoints:
            return f"{instant} has a savepoint"
        if plan_rollback.complete and instant in state.committed and instant >= state.archived:
            if instant in state.aborted:
                return f"{instant} is already rolled back"
            continue
        # A permanent plan may be removed if its base is rolled back, or if that is forced.
        stays = not (plan_rollback.forced or plan_rollback.complete)
        if problem := _rollback_problem(Rollback(instant), state, seen, owner, stays=stays):
            return problem
    return None


def _rollback_problem(
    rollback: Rollback, state: LedgerState, seen: Evidence, owner: str, *, stays: bool = True
) -> str | None:
    instant = rollback.instant
    if instant in state.committed:
        return f"{instant} is complete"
    if instant < state.archived:
        return f"{instant} is older than the archived part of the timeline"
    if instant in state.aborted:
        return f"{instant} is already rolled back"
    plan = state.plans.get(instant)
    is_own = instant in seen.own or (plan is not None and plan.owner == owner != "")
    if instant in seen.alive and not is_own:
        return f"the writer of {instant} is alive"
    if rollback.attempt is not None:
        if plan is None:
            return f"{instant} is not a pending plan"
        if plan.attempt != rollback.attempt or not plan.owner:
            return f"attempt {rollback.attempt} at {instant} has already ended"
        return None
    if plan is not None and stays and not plan.removable:
        return f"the plan {instant} cannot be removed"
    if plan is not None and stays and instant in seen.too_young:
        return f"the plan {instant} is too young to be removed"
    return None


@dataclass(frozen=True, slots=True)
class CommittedTxn:
    """A commit in the ledger. `completion` is the entry's time."""

    position: int
    instant: str
    completion: str
    footprint: Footprint
    schema_id: str = ""
    owner: str = ""


TAIL_MAX: Final = 1_024
"""Entries kept for conflict checks. A write with more commits since its base starts over."""

_TRIMMED: Final = 128
"""Number of old entries dropped at a time."""


@dataclass(frozen=True, slots=True)
class View:
    """The ledger as far as this process has read it.

    `tail` has the last entries up to the position of `state`. Everything up to `published` is on
    the timeline. `checkpoint` is the version of the last checkpoint seen ("" for none),
    `checkpointed` its position, `boundary` and `archived` are the values in it, and
    `checkpoint_state` is the state in it.
    """

    state: LedgerState = field(default_factory=LedgerState)
    tail: tuple[LedgerEntry, ...] = ()
    published: int = 0
    checkpoint: str = ""
    checkpointed: int = 0
    boundary: int = 0
    archived: str = ""
    checkpoint_state: LedgerState | None = None
    planned: str = ""
    """The latest plan of an external writer that was found on the timeline (C102)."""

    @property
    def position(self) -> int:
        return self.state.position

    def after(self, entry: LedgerEntry) -> View:
        published = max(self.published, entry.published)
        tail = (*self.tail, entry)
        if len(tail) > TAIL_MAX + _TRIMMED:
            tail = (
                tuple(e for e in tail if e.position > published)
                if (entry.position - published > TAIL_MAX)
                else tail[-TAIL_MAX:]
            )
        return replace(self, state=self.state.after(entry), tail=tail, published=published)

    def since(self, base: int) -> tuple[LedgerEntry, ...] | None:
        """Return the entries after `base`, None if some are no longer in memory."""
        if base >= self.position:
            return ()
        missing = self.position - len(self.tail)
        return None if base < missing else self.tail[base - missing :]

    def unpublished(self) -> tuple[LedgerEntry, ...]:
        """Return the entries that may not be on the timeline yet."""
        found = self.since(self.published)
        assert found is not None, "unpublished entries are kept"
        return found

    def merged_with(self, other: View) -> View:
        """Return the newer of two views of one ledger, completed with what the other one knows."""
        newer, older = (self, other) if self.position >= other.position else (other, self)
        if older.planned > newer.planned:
            newer = replace(newer, planned=older.planned)
        if older.published > newer.published:
            newer = replace(newer, published=min(older.published, newer.position))
        if older.checkpointed > newer.checkpointed:
            newer = replace(
                newer,
                checkpoint=older.checkpoint,
                checkpointed=older.checkpointed,
                boundary=max(older.boundary, newer.boundary),
                archived=max(older.archived, newer.archived),
                checkpoint_state=older.checkpoint_state,
            )
        return newer


def committed_txn(entry: LedgerEntry) -> CommittedTxn | None:
    """Return the commit that an entry records, None if it records none."""
    match entry.fact:
        case Commit() | ExternalCommit() as fact:
            return CommittedTxn(
                entry.position,
                fact.instant,
                entry.time,
                fact.footprint,
                fact.schema_id,
                entry.owner,
            )
        case PlanRollback(complete=True):
            # A write that read the rolled-back commits must read the table again.
            footprint = Footprint(CommitKind.RESTORE)
            return CommittedTxn(
                entry.position, entry.time, entry.time, footprint, owner=entry.owner
            )
        case _:
            return None
