"""Table-service plans: scheduled once, claimed by one executor at a time (C63-C69).

Scheduling and claims are entries of the ledger. The heartbeat of the plan's instant only saves
work: an executor that lost its claim while it was suspended cannot commit.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelock.core.clock import Now
from tidelock.core.errors import Conflict, OutcomeUnknown, Unavailable
from tidelock.core.outcome import Landed, Unknown
from tidelock.hudi.file_groups import data_file
from tidelock.hudi.markers import marker_folder
from tidelock.hudi.timeline.instant import Action, Instant, InstantState, parse_time
from tidelock.hudi.timeline.metadata import OperationType, TimelineRecord
from tidelock.storage.contract import Create, Match, ObjectMeta, PutReply, StoredObject
from tidelock.txn import heartbeats
from tidelock.txn.commit import BegunInstant, CommitDraft, store_content
from tidelock.txn.conflicts import CommitResult, Committed, Conflicted
from tidelock.txn.effects import Delete, DrawName, Get, Head, List, Put, ReadClock, Steps
from tidelock.txn.entries import (
    Claim,
    ExternalCommit,
    Fact,
    ImportPlan,
    LedgerEntry,
    Plan,
    PlanRollback,
    Rollback,
)
from tidelock.txn.footprint import CommitKind, Footprint, schema_id_of
from tidelock.txn.heartbeats import Heartbeat, heartbeat_key, heartbeat_status
from tidelock.txn.ledger_io import (
    Appended,
    Decline,
    Declined,
    Undetermined,
    append,
    forward,
    history,
    put_idempotent,
    release_time,
    write_checkpoint,
)
from tidelock.txn.rollback import (
    RolledBackInstant,
    attempt_of,
    decide,
    decide_plan,
    files_of,
    marked_files,
    newest_schema,
    previous_app_transactions,
    remove_rolled_back,
    restore_metadata,
    rollback_metadata,
    rollback_plan,
)
from tidelock.txn.state import (
    NO_EVIDENCE,
    Evidence,
    PendingPlan,
    View,
    committed_txn,
    validate_entry,
)

if TYPE_CHECKING:
    from tidelock.txn.transaction_manager import TransactionManager


class ClaimRefusal(Enum):
    """Why a plan cannot be executed now."""

    ACTIVE = "it is being executed"  # try again later
    DEAD = "it was started and can only be rolled back"  # never
    GONE = "it is not pending"  # completed, or rolled back
    UNSURE = "the outcome is not known"


@dataclass(frozen=True, slots=True)
class NotClaimed:
    """The plan was not claimed; another executor counts as alive for `alive_ms`."""

    refusal: ClaimRefusal
    message: str
    alive_ms: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """The caller executes the plan as attempt `begun.attempt`.

    `position` is the ledger position of the claim.
    """

    plan: PendingPlan
    begun: BegunInstant
    position: int


def schedule(
    view: View, fact: Plan, *, base: int, owner: str
) -> Steps[Appended | Declined[str] | Undetermined]:
    """Append a plan that was made from the table at position `base`.

    C64: its request time is the entry's time, so all entries below completed before it, and all
    later ones complete after it. A commit in between that changed the planned file groups makes the
    plan stale.
    """
    older = yield from history(view, base)
    first = view.position

    def propose(seen: View) -> Fact | Decline[str]:
        entries = older if seen.position == first else seen.since(base)
        # The plan's bytes may be deleted if it was made before the boundary (C96).
        if entries is None or base < seen.state.boundary:
            return Decline("too many commits since it was planned to check it")
        for entry in entries:
            past = committed_txn(entry)
            if past is None:
                continue
            footprint = past.footprint
            if footprint.commit_kind is CommitKind.RESTORE:
                return Decline(f"{past.instant} rolled back commits that the plan depends on")
            # H17: a clean must not delete files that a savepoint names.
            if fact.action is Action.CLEAN and footprint.commit_kind is CommitKind.SAVEPOINT:
                return Decline(f"a savepoint of {past.instant} was made since it was planned")
            if footprint.everything or fact.targets & (footprint.written | footprint.replaced):
                return Decline(f"{past.instant} changed what was planned")
        problem = validate_entry(fact, seen.state)
        return fact if problem is None else Decline(problem)

    return (yield from append(view, propose, owner=owner))


def import_plan(
    view: View, fact: ImportPlan, *, base: int, owner: str
) -> Steps[Appended | Declined[str] | Undetermined]:
    """Append an external plan on the timeline to the ledger (C99).

    It was validated against the table at position `base`; later commits must not have changed its
    inputs. New log files are allowed where they stay on top of the compaction.
    """
    older = yield from history(view, base)
    first = view.position

    def propose(seen: View) -> Fact | Decline[str]:
        problem = validate_entry(fact, seen.state)
        if problem is not None:
            return Decline(problem)
        entries = older if seen.position == first else seen.since(base)
        if entries is None:
            return Decline("too many commits since it was validated to check it")
        for entry in entries:
            past = committed_txn(entry)
            if past is not None and _changes(past.footprint, _completion(entry), fact):
                return Decline(f"{past.instant} changed what was planned")
        return fact

    return (yield from append(view, propose, owner=owner))


def _completion(entry: LedgerEntry) -> str:
    return entry.fact.completion if isinstance(entry.fact, ExternalCommit) else entry.time


def _changes(footprint: Footprint, completion: str, plan: ImportPlan) -> bool:
    """Return whether a commit changed the inputs of a plan.

    Log files that completed before the plan's request belong below the new base file. With clock
    differences they may still appear after the plan.
    """
    if footprint.commit_kind in (CommitKind.CLEAN, CommitKind.ROLLBACK, CommitKind.SAVEPOINT):
        return False
    if footprint.commit_kind is CommitKind.RESTORE or footprint.everything:
        return True
    on_top = plan.action is Action.COMPACTION and completion > plan.instant
    changed = footprint.based if on_top else footprint.written
    return bool(plan.targets & (changed | footprint.replaced))


def claim(
    view: View, instant: str, heartbeat: Heartbeat, txns: TransactionManager
) -> Steps[tuple[View, Claimed | NotClaimed]]:
    """Claim a plan unless a live executor has it; without the guard in the settings, always.

    Files of a dead executor are removed first, after its attempt was ended in the ledger.
    """
    plan = view.state.plans.get(instant)
    if plan is None:
        return view, NotClaimed(ClaimRefusal.GONE, f"{instant} is not pending")
    folder, owner, guard = txns.ledger.publisher.folder, txns.owner, txns.settings.guard
    inflight: ObjectMeta | None = yield Head(_inflight_key(plan, folder))
    mode = yield from _free_heartbeat(instant, plan, inflight, txns.lifetime_ms, guard=guard)
    if isinstance(mode, NotClaimed):
        return view, mode
    if plan.removable and (plan.attempt or inflight is not None):
        message = f"{instant} was started and can only be rolled back"
        return view, NotClaimed(ClaimRefusal.DEAD, message)
    taken = yield from _take_heartbeat(instant, plan, heartbeat, mode)
    if isinstance(taken, NotClaimed):
        return view, taken
    held, version = taken
    if plan.attempt:
        view = yield from _end_attempts(view, plan, owner=owner)
    result = yield from decide(view, Claim(instant, plan.attempt + 1), owner=owner)
    match result:
        case Undetermined(outcome=outcome):
            return result.view, NotClaimed(ClaimRefusal.UNSURE, outcome.cause)
        case Declined(reason=reason):
            yield from delete_heartbeat(instant, held)
            pending = instant in result.view.state.plans
            refusal = ClaimRefusal.ACTIVE if pending else ClaimRefusal.GONE
            return result.view, NotClaimed(refusal, reason)
        case Appended(entry=entry):
            external = plan.imported or (inflight is not None and not plan.attempt)
            view, started = yield from _begin(
                result.view, plan, held, version, folder=folder, external=external
            )
            if isinstance(started, BegunInstant):
                return view, Claimed(plan, started, entry.position)
            return view, started


def _begin(
    view: View, plan: PendingPlan, held: Heartbeat, version: str, *, folder: str, external: bool
) -> Steps[tuple[View, BegunInstant | NotClaimed]]:
    """Create the inflight instant of the plan, then check that the claim still holds.

    Files of external executors, if there may have been one, are deleted.
    """
    key = _inflight_key(plan, folder)
    yield from put_idempotent(key, b"")
    attempt = plan.attempt + 1
    left = (yield from _everything_of(plan.instant)) if external else ()
    view = yield from forward(view)
    now = view.state.plans.get(plan.instant)
    if now is None and (plan.instant in view.state.aborted or plan.instant < view.state.archived):
        # A late executor must not restore an instant that has left the timeline.
        yield Delete(key)
    if now is None or now.attempt != attempt:
        return view, NotClaimed(ClaimRefusal.GONE, f"attempt {attempt} at {plan.instant} has ended")
    for stray in left:
        yield Delete(stray)
    inflight = Instant(plan.instant, plan.action, InstantState.INFLIGHT)
    return view, BegunInstant(inflight, attempt, held, version, view)


def _inflight_key(plan: PendingPlan, folder: str) -> str:
    return f"{folder}/{Instant(plan.instant, plan.action, InstantState.INFLIGHT).file_name}"


def _everything_of(instant: str) -> Steps[tuple[str, ...]]:
    """Return the data files and markers of an instant, of all writers.

    They are listed before the claim is checked, so they belong to earlier attempts.
    """
    listed: tuple[ObjectMeta, ...] = yield List(marker_folder(instant))
    files = yield from files_of([instant])
    return (*sorted(files), *(meta.key for meta in listed))


def _free_heartbeat(
    instant: str,
    plan: PendingPlan,
    inflight: ObjectMeta | None,
    default_lifetime_ms: int,
    *,
    guard: bool = True,
    grace_ms: int = 0,
) -> Steps[Create | Match | NotClaimed]:
    """Return the condition under which the heartbeat can be taken: it is missing or dead.

    C101: an executor that started without a claim may be alive without a heartbeat, for
    `grace_ms`, but at least for the lifetime of a heartbeat.
    """
    found: StoredObject | None = yield Get(heartbeat_key(instant))
    now: Now = yield ReadClock()
    if found is None:
        if inflight is None or plan.attempt or not guard:
            return Create()
        age_ms = now.wall_epoch_ms - inflight.modified_epoch_ms
        left_ms = max(default_lifetime_ms, grace_ms) - age_ms
        if left_ms <= 0:
            return Create()
        message = (
            f"{instant} was started by an external writer, which may be alive without a heartbeat"
        )
        return NotClaimed(ClaimRefusal.ACTIVE, message, left_ms)
    heartbeat = heartbeat_status(instant, found)
    left_ms = heartbeat.left_ms(now.wall_epoch_ms, default_lifetime_ms=default_lifetime_ms)
    if not guard or left_ms < 0:
        return Match(found.version)
    owner = plan.owner if heartbeat.record is None else heartbeat.record.owner
    message = f"{owner or 'another writer'} is executing it"
    return NotClaimed(ClaimRefusal.ACTIVE, message, left_ms)


def _take_heartbeat(
    instant: str, plan: PendingPlan, heartbeat: Heartbeat, mode: Create | Match
) -> Steps[tuple[Heartbeat, str] | NotClaimed]:
    now: Now = yield ReadClock()
    nonce: str = yield DrawName()
    held = heartbeats.for_attempt(heartbeat, nonce, plan.attempt + 1, now.wall_epoch_ms)
    body = heartbeats.encode(held)
    reply: PutReply = yield Put(heartbeat_key(instant), body, mode)
    if isinstance(reply, Landed):
        return held, reply.version
    found: StoredObject | None = yield Get(heartbeat_key(instant))
    if found is not None and found.body == body:
        return held, found.version
    return NotClaimed(ClaimRefusal.ACTIVE, f"another process started to execute {instant}")


def delete_heartbeat(instant: str, held: Heartbeat, *before: str) -> Steps[None]:
    """Delete the keys in `before` and then the heartbeat, unless it belongs to another executor.

    The plan stays pending, so a process that was suspended may find the heartbeat of the next
    executor.
    """
    found: StoredObject | None = yield Get(heartbeat_key(instant))
    if found is not None and found.body == heartbeats.encode(held):
        for key in (*before, heartbeat_key(instant)):
            yield Delete(key)


def _end_attempts(view: View, plan: PendingPlan, *, owner: str) -> Steps[View]:
    """End the attempt of a dead executor in the ledger, then remove its files; the plan stays.

    Another process may have ended it and died before it removed the files.
    """
    if plan.owner:
        over = Rollback(plan.instant, "its executor is dead", plan.attempt)
        view = (yield from decide(view, over, owner=owner)).view
    now = view.state.plans.get(plan.instant)
    # A rollback has no files of its own.
    if now is not None and now.attempt == plan.attempt and not (now.owner or now.rolls_back):
        yield from remove_attempts(plan.instant, range(plan.attempt + 1))
    return view


def _hold_dead_plan(
    txns: TransactionManager, plan: PendingPlan, delay_ms: int, *, forced: bool
) -> Steps[Heartbeat | str]:
    """Take the heartbeat of a removable plan that is dead, or was not started within `delay_ms`.

    The holder may roll the plan back: no live executor is ignored (S2), and only one process does
    it. With `forced`, also for a permanent plan. Returns the reason if it is not taken.
    """
    instant, heartbeat = plan.instant, txns.heartbeat("ROLLBACK", markers=False)
    if not (plan.removable or forced):
        return f"the plan {instant} cannot be removed"
    inflight: ObjectMeta | None = yield Head(_inflight_key(plan, txns.ledger.publisher.folder))
    mode = yield from _free_heartbeat(instant, plan, inflight, txns.lifetime_ms, grace_ms=delay_ms)
    if isinstance(mode, NotClaimed):
        return f"the plan {instant} cannot be removed now: {mode.message}"
    now: Now = yield ReadClock()
    # A dead attempt at a removable plan is never executed again, so there is no need to wait.
    fresh = inflight is None and not plan.attempt
    # The clock may be behind the time of the plan, which follows every entry of the ledger.
    if fresh and max(0, now.wall_epoch_ms - parse_time(instant)) < delay_ms:
        return f"the plan {instant} is too young to be removed"
    taken = yield from _take_heartbeat(instant, plan, heartbeat, mode)
    return taken.message if isinstance(taken, NotClaimed) else taken[0]


def remove_attempts(instant: str, attempts: Container[int]) -> Steps[tuple[str, ...]]:
    """Delete the data files of some attempts at a plan, found by their names, and their markers.

    The markers are listed first: files that a sleeping executor writes later keep their marker and
    are found by it.
    """
    listed: tuple[ObjectMeta, ...] = yield List(marker_folder(instant))
    found = yield from files_of([instant])
    mine = tuple(sorted(key for key in found if attempt_of(key) in attempts))
    for key in mine:
        yield Delete(key)
    for meta in listed:
        if attempt_of(meta.key) in attempts:
            yield Delete(meta.key)
    return mine


def release_plan(
    plan: PendingPlan, attempt: int, held: Heartbeat, *, folder: str, over: bool
) -> Steps[None]:
    """Remove the files of an own attempt, so that the plan can be claimed again.

    With `over`, others ended the attempt and own the inflight file and the heartbeat.
    """
    if not plan.rolls_back:
        yield from remove_attempts(plan.instant, (attempt,))
    if not over:
        yield from delete_heartbeat(plan.instant, held, _inflight_key(plan, folder))


_CHECKPOINT_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class RollbackIntent:
    """Instants to roll back, and the plan that is written to the timeline.

    `base` is the ledger position at which they were found; it matters for completed instants.
    """

    action: Action
    instants: tuple[str, ...]
    record: TimelineRecord
    base: int
    complete: bool = False
    forced: bool = False
    reason: str = ""
    attempt: int | None = None
    """The last attempt at the plan that is rolled back, if it was found dead."""


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """A completed rollback or restore, and what it removed."""

    instant: str
    completion: str
    rolled_back: tuple[RolledBackInstant, ...]


def schedule_rollback(
    txns: TransactionManager, intent: RollbackIntent, *, seen: Evidence = NO_EVIDENCE
) -> Steps[PendingPlan | str | Undetermined]:
    """Append the decision and publish the plan; returns the reason if it is declined."""
    ledger = txns.ledger
    content = yield from store_content(f"plan-{intent.base}", intent.record)
    view = yield from ledger.view_steps()
    previous = yield from previous_app_transactions(
        view, intent.instants if intent.complete else ()
    )
    fact = PlanRollback(
        intent.action,
        intent.instants,
        content,
        complete=intent.complete,
        forced=intent.forced,
        reason=intent.reason,
        app_transactions=previous,
    )
    result = yield from decide_plan(
        view, fact, base=intent.base, seen=seen, owner=txns.owner, attempt=intent.attempt
    )
    ledger.advance(result.view)
    match result:
        case Declined(reason=reason):
            return reason
        case Undetermined():
            return result
        case Appended(entry=entry):
            yield from ledger.publish_steps(own=entry.position)
            yield from release_time(entry.time, entry.nonce)
            return result.view.state.plans[entry.time]


def scheduled_rollback(
    txns: TransactionManager, intent: RollbackIntent, *, seen: Evidence = NO_EVIDENCE
) -> Steps[PendingPlan]:
    """Append the decision. Raises: `Conflict`, `OutcomeUnknown`."""
    found = yield from schedule_rollback(txns, intent, seen=seen)
    if isinstance(found, PendingPlan):
        return found
    if isinstance(found, Undetermined):
        raise OutcomeUnknown(
            f"the {intent.action} may be scheduled: {found.outcome.cause}",
            hint="list pending plans with `tidelock services URI`",
        )
    raise Conflict(
        f"the {intent.action} was not scheduled: {found}",
        hint="check the pending plans, then try again",
    )


def pending_rollbacks(txns: TransactionManager, *actions: Action) -> tuple[PendingPlan, ...]:
    """Return the pending rollbacks or restores, oldest first."""
    plans = txns.ledger.state.plans.values()
    found = (plan for plan in plans if plan.rolls_back and (not actions or plan.action in actions))
    return tuple(sorted(found, key=lambda plan: plan.instant))


def finish_rollback(
    txns: TransactionManager, plan: PendingPlan
) -> Steps[RollbackResult | NotClaimed]:
    """Claim a plan and execute it at once, without a heartbeat thread."""
    heartbeat = txns.heartbeat(plan.action.value, markers=False)
    claimed = yield from txns.claim_steps(plan.instant, heartbeat)
    if isinstance(claimed, NotClaimed):
        return claimed
    began: Now = yield ReadClock()
    rolled_back = yield from remove_all(txns, plan)
    now: Now = yield ReadClock()
    took_ms = max(0, now.monotonic_ms - began.monotonic_ms)
    schema_id = (yield from schema_after_rollback(txns)) if plan.blocks_commits else ""
    draft = completion_draft(
        plan, rolled_back, took_ms=took_ms, base=txns.store.uri, schema_id=schema_id
    )
    outcome = yield from claimed.commit_steps(draft)
    if isinstance(outcome, Committed):
        yield from claimed.cleanup_steps()
    return rollback_result(plan, rolled_back, outcome)


def remove_plan(
    txns: TransactionManager,
    instant: str,
    *,
    delay_ms: int,
    forced: bool = False,
    finish: bool = True,
) -> Steps[str | None]:
    """Roll back a removable plan that is dead or too old; return why not, None on success.

    With `forced`, also a permanent plan of any age, but never one that is being executed. Without
    `finish` the rollback is only decided.
    """
    yield from txns.ledger.refresh_steps()
    plan = txns.ledger.state.plans.get(instant)
    if plan is None:
        return f"{instant} is not pending"
    held = yield from _hold_dead_plan(txns, plan, 0 if forced else delay_ms, forced=forced)
    if isinstance(held, str):
        return held
    files = yield from marked_files(instant)
    intent = RollbackIntent(
        Action.ROLLBACK,
        (instant,),
        rollback_plan(instant, plan.action.value, files, base=txns.store.uri),
        txns.ledger.state.position,
        forced=forced,
        reason="the plan was removed",
        attempt=plan.attempt,
    )
    found = yield from schedule_rollback(txns, intent)
    if isinstance(found, Undetermined):
        return found.outcome.cause
    if isinstance(found, PendingPlan):
        if finish:
            yield from finish_rollback(txns, found)
    elif instant not in txns.ledger.state.aborted:
        yield from delete_heartbeat(instant, held)
        return found
    return None


def remove_all(txns: TransactionManager, plan: PendingPlan) -> Steps[tuple[RolledBackInstant, ...]]:
    """Remove everything that a plan rolls back, in its order. The caller has claimed it.

    The table is listed once, unless markers list the files.
    """
    if plan.blocks_commits:
        yield from checkpoint_through(txns, plan.position)
    marked = (
        frozenset() if plan.blocks_commits else (yield from with_markers(txns, plan.rolls_back))
    )
    known = yield from files_by_instant(set(plan.rolls_back) - marked)
    folder = txns.ledger.publisher.folder
    rolled_back: list[RolledBackInstant] = []
    for instant in plan.rolls_back:
        files = known.get(instant, ())
        removed = yield from remove_rolled_back(instant, folder=folder, marked=True, known=files)
        rolled_back.append(removed)
    return tuple(rolled_back)


def schema_after_rollback(txns: TransactionManager) -> Steps[str]:
    """Return the id of the table's schema without the aborted instants."""
    ledger = txns.ledger
    found = yield from newest_schema(ledger.publisher.folder, ledger.state.aborted)
    return found or schema_id_of(txns.properties.create_schema)


def completion_draft(
    plan: PendingPlan,
    rolled_back: tuple[RolledBackInstant, ...],
    *,
    took_ms: int,
    base: str,
    schema_id: str = "",
) -> CommitDraft:
    """Return the draft that completes a plan; `schema_id` is the table's schema afterwards."""
    is_restore = plan.action is Action.RESTORE
    metadata_of = restore_metadata if is_restore else rollback_metadata
    return CommitDraft(
        metadata_of(plan.instant, rolled_back, took_ms=took_ms, base=base),
        OperationType.UNKNOWN,
        schema_id=schema_id,
        commit_kind=CommitKind.RESTORE if is_restore else CommitKind.ROLLBACK,
    )


def rollback_result(
    plan: PendingPlan, rolled_back: tuple[RolledBackInstant, ...], outcome: CommitResult
) -> RollbackResult:
    """Return the result of an executed rollback or restore.

    Raises: `Conflict` if another process completed it, `OutcomeUnknown`.
    """
    match outcome:
        case Committed(completion=completed):
            return RollbackResult(plan.instant, completed, rolled_back)
        case Conflicted(reason=reason):
            raise Conflict(
                f"the {plan.action} {plan.instant} was not completed here: {reason}",
                hint="another process has taken it over, or it can be executed again",
            )
        case Unknown(cause):
            raise OutcomeUnknown(
                f"the {plan.action} {plan.instant} may be complete: {cause}",
                hint="list pending plans with `tidelock services URI`",
            )


def with_markers(txns: TransactionManager, instants: Iterable[str]) -> Steps[frozenset[str]]:
    """Return the instants whose data files all have markers, according to their heartbeats."""
    found: set[str] = set()
    for instant in instants if txns.settings.rollback_by_markers else ():
        held: StoredObject | None = yield Get(heartbeat_key(instant))
        says = None if held is None else heartbeat_status(instant, held).record
        if says is not None and says.markers:
            found.add(instant)
    return frozenset(found)


def checkpoint_through(txns: TransactionManager, position: int) -> Steps[None]:
    """C86: make sure that the checkpoint covers everything up to `position`."""
    ledger = txns.ledger
    for _ in range(_CHECKPOINT_TRIES):
        view = ledger.advance((yield from forward((yield from ledger.view_steps()))))
        if view.checkpointed >= position:
            return
        yield from ledger.publish_steps()
        view = yield from ledger.view_steps()
        view = ledger.advance((yield from write_checkpoint(view, every=1)))
        if view.checkpointed >= position:
            return
    raise Unavailable("the ledger's checkpoint could not be replaced", hint="try again")


def files_by_instant(instants: Iterable[str]) -> Steps[dict[str, tuple[str, ...]]]:
    """Return the data files of instants, by listing the whole table if there are any instants."""
    write_set = frozenset(instants)
    if not write_set:
        return {}
    found: dict[str, list[str]] = {}
    for key in sorted((yield from files_of(write_set))):
        partition, _, name = key.rpartition("/")
        file = data_file(partition, name, 0)
        if file is not None:
            found.setdefault(file.instant, []).append(key)
    return {instant: tuple(keys) for instant, keys in found.items()}
