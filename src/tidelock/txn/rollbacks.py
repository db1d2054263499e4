"""Roll-backs and restores as plans: decided by one entry, carried out by whoever comes (C84-C88).

The entry makes the instants void; its plan is on the timeline for Java to see. Carrying it out is
claimed like any plan, and every step may be repeated, so a crash costs nothing but time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelock.base.clock import Now
from tidelock.base.errors import Conflict, OutcomeUnknown, Unavailable
from tidelock.base.outcome import Unknown
from tidelock.store.contract import StoredObject
from tidelock.table.naming import data_file
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import (
    OperationType,
    TimelineRecord,
)
from tidelock.txn.appending import Appended, Declined, Doubtful, give_name_back
from tidelock.txn.committing import store_content
from tidelock.txn.draft import CommitDraft, CommitResult, Committed, Overtaken, schema_id_of
from tidelock.txn.effects import Get, ReadClock, Steps
from tidelock.txn.entry import Undo
from tidelock.txn.fold import NOTHING_SEEN, Evidence, Pending
from tidelock.txn.footprint import Deed
from tidelock.txn.heartbeat import heartbeat_key, pulse_of
from tidelock.txn.planning import NotClaimed, drop_heartbeat, hold_dead_plan
from tidelock.txn.publishing import write_checkpoint
from tidelock.txn.reading import forward
from tidelock.txn.undoing import (
    decide_plan,
    files_of,
    marked_files,
    marks_left,
    newest_schema,
    remove_undone,
)
from tidelock.txn.undorecords import (
    Undone,
    restore_metadata,
    rollback_metadata,
    rollback_plan,
)

if TYPE_CHECKING:
    from tidelock.txn.transactions import Transactions

logger = logging.getLogger(__name__)

_SEALINGS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Intent:
    """What is to be undone, and the record that says so on the timeline.

    `base` is the ledger's position when that was found; it matters for what was complete.
    """

    action: Action
    instants: tuple[str, ...]
    record: TimelineRecord
    base: int
    complete: bool = False
    forced: bool = False
    reason: str = ""
    attempt: int | None = None
    """The last attempt at the plan that is undone, if that was found dead."""


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """A roll-back or restore that is done, and what it removed."""

    instant: str
    completion: str
    undone: tuple[Undone, ...]


def schedule_undo(
    home: Transactions, intent: Intent, *, seen: Evidence = NOTHING_SEEN
) -> Steps[Pending | str | Doubtful]:
    """Decide, and put the plan on the timeline; a text says why not."""
    ledger = home.ledger
    content = yield from store_content(f"plan-{intent.base}", intent.record)
    view = yield from ledger.view_steps()
    fact = Undo(
        intent.action,
        intent.instants,
        content,
        complete=intent.complete,
        forced=intent.forced,
        reason=intent.reason,
        marks=(yield from marks_left(view, intent.instants)) if intent.complete else {},
    )
    result = yield from decide_plan(
        view, fact, base=intent.base, seen=seen, owner=home.owner, attempt=intent.attempt
    )
    ledger.adopt(result.view)
    match result:
        case Declined(why=why):
            return why
        case Doubtful():
            return result
        case Appended(entry=entry):
            yield from ledger.publish_steps(own=entry.position)
            yield from give_name_back(entry.time, entry.nonce)
            return result.view.fold.plans[entry.time]


def scheduled_undo(
    home: Transactions, intent: Intent, *, seen: Evidence = NOTHING_SEEN
) -> Steps[Pending]:
    """Decide, or raise `Conflict` or `OutcomeUnknown`."""
    found = yield from schedule_undo(home, intent, seen=seen)
    if isinstance(found, Pending):
        return found
    if isinstance(found, Doubtful):
        raise OutcomeUnknown(f"the {intent.action} may be scheduled: {found.outcome.cause}")
    raise Conflict(f"the {intent.action} was not scheduled: {found}", hint="look again, then retry")


def pending_undos(home: Transactions, *actions: Action) -> tuple[Pending, ...]:
    """Return the roll-backs, or restores, that were decided and are not done, oldest first."""
    plans = home.ledger.fold.plans.values()
    found = (plan for plan in plans if plan.undoes and (not actions or plan.action in actions))
    return tuple(sorted(found, key=lambda plan: plan.instant))


def finish_undo(home: Transactions, plan: Pending) -> Steps[CarriedOut | NotClaimed]:
    """Claim a plan and carry it out, in one go; no thread keeps its heartbeat."""
    beat = home.heartbeat(plan.action.value, markers=False)
    claimed = yield from home.claim_steps(plan.instant, beat)
    if isinstance(claimed, NotClaimed):
        return claimed
    began: Now = yield ReadClock()
    undone = yield from remove_all(home, plan)
    now: Now = yield ReadClock()
    took_ms = max(0, now.monotonic_ms - began.monotonic_ms)
    schema_id = (yield from schema_left(home)) if plan.halts else ""
    draft = completion(plan, undone, took_ms=took_ms, base=home.store.uri, schema_id=schema_id)
    outcome = yield from claimed.commit_steps(draft)
    if isinstance(outcome, Committed):
        yield from claimed.tidy_steps()
    return carried_out(plan, undone, outcome)


def remove_plan(
    home: Transactions, instant: str, *, delay_ms: int, forced: bool = False, finish: bool = True
) -> Steps[str | None]:
    """Roll back a removable plan that is dead or too old; return why not, None once it is void.

    `forced` takes a plan that stays, too, whatever its age; never one that is being executed.
    Without `finish` it is only decided.
    """
    yield from home.ledger.refresh_steps()
    plan = home.ledger.fold.plans.get(instant)
    held = yield from hold_dead_plan(
        home.ledger.view,
        instant,
        home.heartbeat("ROLLBACK", markers=False),
        folder=home.ledger.publisher.folder,
        delay_ms=0 if forced else delay_ms,
        otherwise_ms=home.life_ms,
        forced=forced,
    )
    if isinstance(held, str) or plan is None:
        return held if isinstance(held, str) else f"{instant} is not pending"
    files = yield from marked_files(instant)
    intent = Intent(
        Action.ROLLBACK,
        (instant,),
        rollback_plan(instant, plan.action.value, files, base=home.store.uri),
        home.ledger.fold.position,
        forced=forced,
        reason="given up",
        attempt=plan.attempt,
    )
    found = yield from schedule_undo(home, intent)
    if isinstance(found, Doubtful):
        return found.outcome.cause
    if isinstance(found, Pending):
        if finish:
            yield from finish_undo(home, found)
    elif instant not in home.ledger.fold.void:
        yield from drop_heartbeat(instant, held)
        return found
    return None


def remove_all(home: Transactions, plan: Pending) -> Steps[tuple[Undone, ...]]:
    """Remove everything that a plan undoes, in its order; the caller has claimed it.

    The table is listed once, unless markers tell what there is.
    """
    if plan.halts:
        yield from seal(home, plan.position)
    marked = frozenset() if plan.halts else (yield from with_markers(home, plan.undoes))
    known = yield from files_by_instant(set(plan.undoes) - marked)
    folder = home.ledger.publisher.folder
    undone: list[Undone] = []
    for instant in plan.undoes:
        files = known.get(instant, ())
        removed = yield from remove_undone(instant, folder=folder, marked=True, known=files)
        undone.append(removed)
    return tuple(undone)


def schema_left(home: Transactions) -> Steps[str]:
    """Return the name of the table's schema when what is void is gone."""
    folder, void = home.ledger.publisher.folder, home.ledger.fold.void
    found = yield from newest_schema(folder, void)
    return found or schema_id_of(home.properties.create_schema)


def completion(
    plan: Pending, undone: tuple[Undone, ...], *, took_ms: int, base: str, schema_id: str = ""
) -> CommitDraft:
    """Return what completes a plan; `schema_id` is the table's schema when all of it is gone."""
    is_restore = plan.action is Action.RESTORE
    said = restore_metadata if is_restore else rollback_metadata
    return CommitDraft(
        said(plan.instant, undone, took_ms=took_ms, base=base),
        OperationType.UNKNOWN,
        schema_id=schema_id,
        deed=Deed.RESTORE if is_restore else Deed.ROLLBACK,
    )


def carried_out(plan: Pending, undone: tuple[Undone, ...], outcome: CommitResult) -> CarriedOut:
    """Return what was done. Raises: `Conflict` if it was taken over, `OutcomeUnknown`."""
    match outcome:
        case Committed(completion=completed):
            return CarriedOut(plan.instant, completed, undone)
        case Overtaken(reason=reason):
            raise Conflict(
                f"the {plan.action} {plan.instant} was not completed here: {reason}",
                hint="somebody else has taken it over, or it can be executed again",
            )
        case Unknown(cause):
            raise OutcomeUnknown(f"the {plan.action} {plan.instant} may be complete: {cause}")


def with_markers(home: Transactions, instants: Iterable[str]) -> Steps[frozenset[str]]:
    """Return the instants of which every data file has a marker, as their heartbeats say."""
    found: set[str] = set()
    for instant in instants if home.settings.rollback_by_markers else ():
        held: StoredObject | None = yield Get(heartbeat_key(instant))
        says = None if held is None else pulse_of(instant, held).says
        if says is not None and says.markers:
            found.add(instant)
    return frozenset(found)


def seal(home: Transactions, position: int) -> Steps[None]:
    """C86: make sure that the checkpoint has everything up to `position`."""
    ledger = home.ledger
    for _ in range(_SEALINGS_MAX):
        view = ledger.adopt((yield from forward((yield from ledger.view_steps()))))
        if view.checkpointed >= position:
            return
        yield from ledger.publish_steps()
        view = yield from ledger.view_steps()
        view = ledger.adopt((yield from write_checkpoint(view, every=1)))
        if view.checkpointed >= position:
            return
    raise Unavailable("the ledger's checkpoint could not be replaced", hint="try again")


def files_by_instant(instants: Iterable[str]) -> Steps[dict[str, tuple[str, ...]]]:
    """Return the data files of instants by listing all of the table, if there are any instants."""
    wanted = frozenset(instants)
    if not wanted:
        return {}
    found: dict[str, list[str]] = {}
    for key in sorted((yield from files_of(wanted))):
        partition, _, name = key.rpartition("/")
        file = data_file(partition, name, 0)
        if file is not None:
            found.setdefault(file.instant, []).append(key)
    return {instant: tuple(keys) for instant, keys in found.items()}
