"""Plans of table services: scheduled once, claimed by one executor at a time (C63-C69).

The scheduling and the claim are entries of the ledger. The heartbeat of the plan's instant only
saves work: an executor that was given up for dead while it slept cannot commit, whatever it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelock.base.clock import Now
from tidelock.base.outcome import Landed
from tidelock.store.contract import Create, Match, ObjectMeta, PutMode, PutReply, StoredObject
from tidelock.table.markers import marker_folder
from tidelock.table.naming import parse_token
from tidelock.table.timeline.instant import Instant, State, parse_time
from tidelock.txn import heartbeat as heartbeats
from tidelock.txn.appending import Appended, Declined, Doubtful, No, append
from tidelock.txn.beginning import Begun
from tidelock.txn.effects import Delete, DrawName, Get, Head, List, Put, ReadClock, Steps
from tidelock.txn.entry import Claim, Fact, Plan, Rollback
from tidelock.txn.fold import Evidence, Pending, lawful
from tidelock.txn.heartbeat import Heartbeat, heartbeat_key, pulse_of
from tidelock.txn.publishing import put_settled
from tidelock.txn.reading import history
from tidelock.txn.undoing import decide, files_of, remove_announcement, remove_files
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
    """The plan is the caller's to execute, as attempt `begun.attempt`."""

    plan: Pending
    begun: Begun


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
        if entries is None:
            return No("more was committed since it was planned than is remembered")
        for entry in entries:
            past = past_of(entry)
            if past is None:
                continue
            footprint = past.footprint
            if footprint.everything or fact.targets & (footprint.touched | footprint.replaced):
                return No(f"{past.instant} changed what was planned")
        problem = lawful(fact, seen.fold)
        return fact if problem is None else No(problem)

    return (yield from append(view, propose, owner=owner))


def claim(
    view: View, instant: str, beat: Heartbeat, *, folder: str, owner: str, otherwise_ms: int
) -> Steps[tuple[View, Claimed | NotClaimed]]:
    """Take over the execution of a plan, if nobody is at it.

    What a dead executor left is removed first, under the rule that its attempt is over.
    """
    plan = view.fold.plans.get(instant)
    if plan is None:
        return view, NotClaimed(Why.GONE, f"{instant} is not pending")
    inflight = Instant(instant, plan.action, State.INFLIGHT)
    begun: ObjectMeta | None = yield Head(f"{folder}/{inflight.file_name}")
    if plan.removable and begun is not None:
        return view, NotClaimed(Why.DEAD, f"{instant} was begun and can only be rolled back")
    taken = yield from _take_heartbeat(instant, plan, beat, otherwise_ms)
    if isinstance(taken, NotClaimed):
        return view, taken
    held, version = taken
    if plan.owner:
        view = yield from _end_attempt(view, plan, owner=owner)
    fact = Claim(instant, plan.attempt + 1)

    def propose(seen: View) -> Fact | No[str]:
        problem = lawful(fact, seen.fold)
        return fact if problem is None else No(problem)

    result = yield from append(view, propose, owner=owner)
    match result:
        case Doubtful(outcome=outcome):
            return result.view, NotClaimed(Why.UNSURE, outcome.cause)
        case Declined(why=why):
            yield Delete(heartbeat_key(instant))
            gone = instant not in result.view.fold.plans
            return result.view, NotClaimed(Why.GONE if gone else Why.ACTIVE, why)
        case Appended(view=view):
            yield from put_settled(f"{folder}/{inflight.file_name}", b"")
            taken_plan = view.fold.plans[instant]
            return view, Claimed(plan, Begun(inflight, taken_plan.attempt, held, version, view))


def _take_heartbeat(
    instant: str, plan: Pending, beat: Heartbeat, otherwise_ms: int
) -> Steps[tuple[Heartbeat, str] | NotClaimed]:
    found: StoredObject | None = yield Get(heartbeat_key(instant))
    now: Now = yield ReadClock()
    mode: PutMode = Create()
    if found is not None:
        pulse = pulse_of(instant, found)
        if pulse.is_alive(now.wall_epoch_ms, otherwise_ms=otherwise_ms):
            life_ms = pulse.says.life_ms if pulse.says is not None else otherwise_ms
            left_ms = life_ms - pulse.age_ms(now.wall_epoch_ms)
            return NotClaimed(Why.ACTIVE, f"{instant} is executed by {plan.owner}", left_ms)
        mode = Match(found.version)
    nonce: str = yield DrawName()
    held = heartbeats.stamped(beat, nonce, plan.attempt + 1, now.wall_epoch_ms)
    body = heartbeats.encode(held)
    reply: PutReply = yield Put(heartbeat_key(instant), body, mode)
    if isinstance(reply, Landed):
        return held, reply.version
    found = yield Get(heartbeat_key(instant))
    if found is not None and found.body == body:
        return held, found.version
    return NotClaimed(Why.ACTIVE, f"somebody else began to execute {instant}")


def _end_attempt(view: View, plan: Pending, *, owner: str) -> Steps[View]:
    """Declare a dead executor's attempt over, then remove its files; the plan stays."""
    over = Rollback(plan.instant, "its executor is dead", plan.attempt)
    result = yield from decide(view, over, seen=Evidence(), owner=owner)
    if isinstance(result, Appended):
        yield from remove_attempt(plan.instant, plan.attempt)
    return result.view


def remove_plan(
    view: View, instant: str, *, folder: str, owner: str, delay_ms: int, otherwise_ms: int
) -> Steps[tuple[View, str | None]]:
    """Undo a removable plan whose executor is dead, or which nobody began within `delay_ms`.

    Returns why not; None once it is gone.
    """
    plan = view.fold.plans.get(instant)
    if plan is None:
        return view, f"{instant} is not pending"
    found: StoredObject | None = yield Get(heartbeat_key(instant))
    now: Now = yield ReadClock()
    begun: ObjectMeta | None = yield Head(
        f"{folder}/{Instant(instant, plan.action, State.INFLIGHT).file_name}"
    )
    alive = found is not None and pulse_of(instant, found).is_alive(
        now.wall_epoch_ms, otherwise_ms=otherwise_ms
    )
    # What was begun and died can never be executed again, so there is nothing to wait for.
    young = begun is None and now.wall_epoch_ms - parse_time(instant) < delay_ms
    one = frozenset({instant})
    none: frozenset[str] = frozenset()
    seen = Evidence(alive=one if alive else none, too_young=one if young else none)
    result = yield from decide(view, Rollback(instant, "given up"), seen=seen, owner=owner)
    if isinstance(result, Doubtful):
        return result.view, result.outcome.cause
    if isinstance(result, Declined) and instant not in result.view.fold.void:
        return result.view, result.why
    yield from remove_files(instant, marked=False)
    yield from remove_announcement(instant, plan.action, folder=folder)
    return result.view, None


def remove_attempt(instant: str, attempt: int) -> Steps[tuple[str, ...]]:
    """Delete the data files of one attempt at a plan, which their names tell, and its markers."""
    found = yield from files_of([instant])
    mine = tuple(sorted(key for key in found if _attempt_of(key) == attempt))
    for key in mine:
        yield Delete(key)
    listed: tuple[ObjectMeta, ...] = yield List(marker_folder(instant))
    for meta in listed:
        if _attempt_of(meta.key) == attempt:
            yield Delete(meta.key)
    return mine


def _attempt_of(key: str) -> int | None:
    """Return the attempt in the name of a data file or marker: the middle of its write token."""
    name = key.rpartition("/")[2].partition(".marker.")[0].removesuffix(".cdc")
    for piece in name.removesuffix(".parquet").split("_"):
        token = parse_token(piece)
        if token is not None:
            return token.stage
    return None


def release_plan(plan: Pending, attempt: int, *, folder: str) -> Steps[None]:
    """Remove what an attempt of our own left, so that the plan can be claimed again."""
    yield from remove_attempt(plan.instant, attempt)
    yield from remove_announcement(plan.instant, plan.action, folder=folder, keep_plan=True)
