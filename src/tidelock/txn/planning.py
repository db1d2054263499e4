"""Plans of table services: scheduled once, claimed by one executor at a time (C63-C69).

The scheduling and the claim are entries of the ledger. The heartbeat of the plan's instant only
saves work: an executor that was given up for dead while it slept cannot commit, whatever it does.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import Enum

from tidelock.base.clock import Now
from tidelock.base.outcome import Landed
from tidelock.store.contract import Create, Match, ObjectMeta, PutReply, StoredObject
from tidelock.table.markers import marker_folder
from tidelock.table.timeline.instant import Action, Instant, State, parse_time
from tidelock.txn import heartbeat as heartbeats
from tidelock.txn.appending import Appended, Declined, Doubtful, No, append
from tidelock.txn.beginning import Begun
from tidelock.txn.effects import Delete, DrawName, Get, Head, List, Put, ReadClock, Steps
from tidelock.txn.entry import Adopt, Claim, Entry, Fact, Foreign, Plan, Rollback
from tidelock.txn.fold import Evidence, Pending, lawful
from tidelock.txn.footprint import Deed, Footprint
from tidelock.txn.heartbeat import Heartbeat, heartbeat_key, pulse_of
from tidelock.txn.publishing import put_settled
from tidelock.txn.reading import forward, history
from tidelock.txn.undoing import attempt_of, decide, files_of
from tidelock.txn.view import View, past_of


class Why(Enum):
    """Why a plan cannot be executed now."""

    ACTIVE = "somebody is executing it"  # later may work
    DEAD = "it was begun and can only be rolled back"  # never
    GONE = "it is not pending"  # completed, or rolled back
    UNSURE = "nobody can tell"


@dataclass(frozen=True, slots=True)
class NotClaimed:
    """The plan was not given to the caller; the other one counts as alive for `alive_ms`."""

    why: Why
    text: str
    alive_ms: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """The plan is the caller's to execute, as attempt `begun.attempt`.

    `position` is that of the claim in the ledger.
    """

    plan: Pending
    begun: Begun
    position: int


def schedule(
    view: View, fact: Plan, *, base: int, owner: str
) -> Steps[Appended | Declined[str] | Doubtful]:
    """Append a plan that was made of the table at position `base`.

    C64: its request time is the entry's time, so everything before it in the ledger completed
    before it, and everything after it completes later. A commit in between that changed what is
    planned makes the plan stale.
    """
    older = yield from history(view, base)
    first = view.position

    def propose(seen: View) -> Fact | No[str]:
        entries = older if seen.position == first else seen.since(base)
        # The plan's bytes may be gone if it was made before the boundary (C96).
        if entries is None or base < seen.fold.boundary:
            return No("more was committed since it was planned than is remembered")
        for entry in entries:
            past = past_of(entry)
            if past is None:
                continue
            footprint = past.footprint
            if footprint.deed is Deed.RESTORE:
                return No(f"{past.instant} took back what was planned")
            # H17: what a savepoint names must not be in the plan of a clean.
            if fact.action is Action.CLEAN and footprint.deed is Deed.SAVEPOINT:
                return No(f"a savepoint of {past.instant} was made since it was planned")
            if footprint.everything or fact.targets & (footprint.written | footprint.replaced):
                return No(f"{past.instant} changed what was planned")
        problem = lawful(fact, seen.fold)
        return fact if problem is None else No(problem)

    return (yield from append(view, propose, owner=owner))


def adopt(
    view: View, fact: Adopt, *, base: int, owner: str
) -> Steps[Appended | Declined[str] | Doubtful]:
    """Append that a plan which lies on the timeline is one of the ledger's, too (C99).

    It was compared with the table at position `base`; what came since must not have changed what
    it starts from. Log files may have come: those on top of a compaction stay there.
    """
    older = yield from history(view, base)
    first = view.position

    def propose(seen: View) -> Fact | No[str]:
        problem = lawful(fact, seen.fold)
        if problem is not None:
            return No(problem)
        entries = older if seen.position == first else seen.since(base)
        if entries is None:
            return No("more was committed since it was looked at than is remembered")
        for entry in entries:
            past = past_of(entry)
            if past is not None and _changes(past.footprint, _completion(entry), fact):
                return No(f"{past.instant} changed what was planned")
        return fact

    return (yield from append(view, propose, owner=owner))


def _completion(entry: Entry) -> str:
    """Return what the timeline calls the completion time of a commit."""
    return entry.fact.completion if isinstance(entry.fact, Foreign) else entry.time


def _changes(footprint: Footprint, completion: str, plan: Adopt) -> bool:
    """Tell whether a commit changed what a plan starts from.

    Log files that completed before the plan's request lie below the base file that comes of it; by
    clocks that differ they may come after the plan all the same.
    """
    if footprint.deed in (Deed.CLEAN, Deed.ROLLBACK, Deed.SAVEPOINT):
        return False
    if footprint.deed is Deed.RESTORE or footprint.everything:
        return True
    on_top = plan.action is Action.COMPACTION and completion > plan.instant
    changed = footprint.based if on_top else footprint.written
    return bool(plan.targets & (changed | footprint.replaced))


def claim(
    view: View,
    instant: str,
    beat: Heartbeat,
    *,
    folder: str,
    owner: str,
    otherwise_ms: int,
    guard: bool = True,
) -> Steps[tuple[View, Claimed | NotClaimed]]:
    """Take over the execution of a plan, if nobody is at it; without `guard` in any case.

    What a dead executor left is removed first, under the rule that its attempt is over.
    """
    plan = view.fold.plans.get(instant)
    if plan is None:
        return view, NotClaimed(Why.GONE, f"{instant} is not pending")
    inflight = Instant(instant, plan.action, State.INFLIGHT)
    begun: ObjectMeta | None = yield Head(f"{folder}/{inflight.file_name}")
    mode = yield from _free_heartbeat(instant, plan, begun, otherwise_ms, guard=guard)
    if isinstance(mode, NotClaimed):
        return view, mode
    if plan.removable and (plan.attempt or begun is not None):
        return view, NotClaimed(Why.DEAD, f"{instant} was begun and can only be rolled back")
    taken = yield from _take_heartbeat(instant, plan, beat, mode)
    if isinstance(taken, NotClaimed):
        return view, taken
    held, version = taken
    if plan.attempt:
        view = yield from _end_attempts(view, plan, owner=owner)
    fact = Claim(instant, plan.attempt + 1)

    def propose(seen: View) -> Fact | No[str]:
        problem = lawful(fact, seen.fold)
        return fact if problem is None else No(problem)

    result = yield from append(view, propose, owner=owner)
    match result:
        case Doubtful(outcome=outcome):
            return result.view, NotClaimed(Why.UNSURE, outcome.cause)
        case Declined(why=why):
            yield from drop_heartbeat(instant, held)
            gone = instant not in result.view.fold.plans
            return result.view, NotClaimed(Why.GONE if gone else Why.ACTIVE, why)
        case Appended(entry=entry):
            foreign = plan.adopted or (begun is not None and not plan.attempt)
            view, taken_on = yield from _begin(
                result.view, plan, held, version, folder=folder, foreign=foreign
            )
            if isinstance(taken_on, NotClaimed):
                return view, taken_on
            return view, Claimed(plan, taken_on, entry.position)


def _begin(
    view: View, plan: Pending, held: Heartbeat, version: str, *, folder: str, foreign: bool
) -> Steps[tuple[View, Begun | NotClaimed]]:
    """Say on the timeline that the plan is being executed, and look whether it still is.

    What executors without a ledger have left, if there may have been one, is removed.
    """
    inflight = Instant(plan.instant, plan.action, State.INFLIGHT)
    key = f"{folder}/{inflight.file_name}"
    yield from put_settled(key, b"")
    attempt = plan.attempt + 1
    left = (yield from _everything_of(plan.instant)) if foreign else ()
    view = yield from forward(view)
    now = view.fold.plans.get(plan.instant)
    if now is None and (plan.instant in view.fold.void or plan.instant < view.fold.archived):
        # Whoever was late must not bring back what has left the timeline.
        yield Delete(key)
    if now is None or now.attempt != attempt:
        return view, NotClaimed(Why.GONE, f"attempt {attempt} at {plan.instant} is over")
    for stray in left:
        yield Delete(stray)
    return view, Begun(inflight, attempt, held, version, view)


def _everything_of(instant: str) -> Steps[tuple[str, ...]]:
    """Return the data files and markers of an instant, whoever wrote them.

    Found before it is made sure that the attempt is the last, they are of earlier ones.
    """
    listed: tuple[ObjectMeta, ...] = yield List(marker_folder(instant))
    files = yield from files_of([instant])
    return (*sorted(files), *(meta.key for meta in listed))


def _free_heartbeat(
    instant: str,
    plan: Pending,
    begun: ObjectMeta | None,
    otherwise_ms: int,
    *,
    guard: bool = True,
    patience_ms: int = 0,
) -> Steps[Create | Match | NotClaimed]:
    """Return on which condition the heartbeat can be taken: it is not there, or is dead.

    C101: whoever has begun without a claim may be alive though its heart does not beat, for
    `patience_ms`, but at least as long as after a heartbeat.
    """
    found: StoredObject | None = yield Get(heartbeat_key(instant))
    now: Now = yield ReadClock()
    if found is None:
        if begun is None or plan.attempt or not guard:
            return Create()
        age_ms = now.wall_epoch_ms - begun.modified_epoch_ms
        left_ms = max(otherwise_ms, patience_ms) - age_ms
        if left_ms <= 0:
            return Create()
        who = "a writer that keeps no ledger, and whose heart does not beat"
        return NotClaimed(Why.ACTIVE, f"{instant} was begun by {who}", left_ms)
    pulse = pulse_of(instant, found)
    if not guard or not pulse.is_alive(now.wall_epoch_ms, otherwise_ms=otherwise_ms):
        return Match(found.version)
    life_ms = pulse.says.life_ms if pulse.says is not None else otherwise_ms
    left_ms = life_ms - pulse.age_ms(now.wall_epoch_ms)
    who = (pulse.says.owner if pulse.says is not None else plan.owner) or "another writer"
    return NotClaimed(Why.ACTIVE, f"{instant} is executed by {who}", left_ms)


def _take_heartbeat(
    instant: str, plan: Pending, beat: Heartbeat, mode: Create | Match
) -> Steps[tuple[Heartbeat, str] | NotClaimed]:
    now: Now = yield ReadClock()
    nonce: str = yield DrawName()
    held = heartbeats.stamped(beat, nonce, plan.attempt + 1, now.wall_epoch_ms)
    body = heartbeats.encode(held)
    reply: PutReply = yield Put(heartbeat_key(instant), body, mode)
    if isinstance(reply, Landed):
        return held, reply.version
    found: StoredObject | None = yield Get(heartbeat_key(instant))
    if found is not None and found.body == body:
        return held, found.version
    return NotClaimed(Why.ACTIVE, f"somebody else began to execute {instant}")


def drop_heartbeat(instant: str, held: Heartbeat, *before: str) -> Steps[None]:
    """Delete some objects and then a heartbeat, unless it is another's by now.

    The plan stays pending, so whoever slept meanwhile may find the heartbeat of the next executor.
    """
    found: StoredObject | None = yield Get(heartbeat_key(instant))
    if found is not None and found.body == heartbeats.encode(held):
        for key in (*before, heartbeat_key(instant)):
            yield Delete(key)


def _end_attempts(view: View, plan: Pending, *, owner: str) -> Steps[View]:
    """Declare a dead executor's attempt over, then remove its files; the plan stays.

    Somebody may have declared it over and died before the files were gone.
    """
    if plan.owner:
        over = Rollback(plan.instant, "its executor is dead", plan.attempt)
        result = yield from decide(view, over, seen=Evidence(), owner=owner)
        view = result.view
    now = view.fold.plans.get(plan.instant)
    # A roll-back has no files of its own.
    if now is not None and now.attempt == plan.attempt and not (now.owner or now.undoes):
        yield from remove_attempts(plan.instant, range(plan.attempt + 1))
    return view


def hold_dead_plan(
    view: View,
    instant: str,
    beat: Heartbeat,
    *,
    folder: str,
    delay_ms: int,
    otherwise_ms: int,
    forced: bool = False,
) -> Steps[Heartbeat | str]:
    """Take the heartbeat of a removable plan that is dead, or was not begun within `delay_ms`.

    Whoever holds it may roll the plan back: nobody alive is overlooked (S2), and one of several
    processes does it. `forced` takes a plan that stays, too. Returns why not as a text.
    """
    plan = view.fold.plans.get(instant)
    if plan is None:
        return f"{instant} is not pending"
    if not (plan.removable or forced):
        return f"the plan {instant} cannot be removed"
    inflight = Instant(instant, plan.action, State.INFLIGHT)
    begun: ObjectMeta | None = yield Head(f"{folder}/{inflight.file_name}")
    mode = yield from _free_heartbeat(instant, plan, begun, otherwise_ms, patience_ms=delay_ms)
    if isinstance(mode, NotClaimed):
        return f"{instant} is alive: {mode.text}"
    now: Now = yield ReadClock()
    # What was begun and died can never be executed again, so there is nothing to wait for.
    fresh = begun is None and not plan.attempt
    if fresh and now.wall_epoch_ms - parse_time(instant) < delay_ms:
        return f"the plan {instant} is too young to be removed"
    taken = yield from _take_heartbeat(instant, plan, beat, mode)
    return taken.text if isinstance(taken, NotClaimed) else taken[0]


def remove_attempts(instant: str, attempts: Container[int]) -> Steps[tuple[str, ...]]:
    """Delete the data files of some attempts at a plan, which their names tell, and markers.

    The markers are listed first: what a sleeper announces and writes meanwhile keeps its marker,
    and is found by that later.
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
    plan: Pending, attempt: int, held: Heartbeat, *, folder: str, over: bool
) -> Steps[None]:
    """Remove what an attempt of our own left; so the plan can be claimed again, unless it was.

    `over` says that others ended the attempt: inflight and heartbeat are theirs then.
    """
    if not plan.undoes:
        yield from remove_attempts(plan.instant, (attempt,))
    if not over:
        inflight = Instant(plan.instant, plan.action, State.INFLIGHT)
        yield from drop_heartbeat(plan.instant, held, f"{folder}/{inflight.file_name}")
