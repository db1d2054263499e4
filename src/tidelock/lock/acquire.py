"""Handlers for acquiring a lock, phase by phase (P12-P19). Pure; see `machine`."""

from __future__ import annotations

from dataclasses import replace

from tidelock.core.clock import Now
from tidelock.core.errors import InvariantBroken
from tidelock.core.limits import TOKEN_MAX, TOKEN_RANGE
from tidelock.core.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock import invariants
from tidelock.lock.events import NotAcquired
from tidelock.lock.events import NotAcquiredReason as Reason
from tidelock.lock.record import LockRecord, TokenCounter
from tidelock.lock.renew import discard, expire, is_ghost
from tidelock.lock.state import (
    Grant,
    LockClientState,
    Phase,
    SeenRecord,
    SentWrite,
    Standing,
    Step,
    standing,
)
from tidelock.storage.contract import Busy, Create, Match, PutMode, Refused, Unclear


def acquire(state: LockClientState, event: e.Event) -> Step:
    """P12: replace our own last release without a read, if that is likely to succeed."""
    fresh = state._replace(grant=None, target=None, sent=None, refusal=None, tries=0, lost_cause="")
    if state.last_release is not None and not state.read_first:
        target = fresh._replace(target=state.last_release)
        return _take_or_reserve(target, event.now, on_cached=True)
    return fresh._replace(phase=Phase.READING), (e.ReadRecord(),)


def acquire_again(state: LockClientState, event: e.Event) -> Step:
    """L12: a client that holds the lock gets the same token again."""
    if standing(state, event.now) is Standing.LOST:
        lost, notifications = expire(state, event.now)
        after, effects = acquire(lost, event)
        return after, (*notifications, *effects)
    assert state.grant is not None
    return state, (e.OperationDone(e.Granted(state.grant.record.token)),)


def read(state: LockClientState, event: e.ReadDone) -> Step:
    """P13, P14, P16, P18, P19: decide by the record that was read."""
    state = _update_read_first(state, event.reply)
    match event.reply:
        case e.Found(version, record) if is_ghost(state, record, event.now):
            refused = state._replace(refusal=NotAcquired(Reason.GHOST))
            return discard(refused, SeenRecord(version, record), event.now)
        case e.Found(version, record) if state.lease.is_free(record, event.now):
            target = state._replace(target=SeenRecord(version, record))
            after, effects = _take_or_reserve(target, event.now)
            dangling = () if record.expired else (e.Count("lock.dangling"),)
            return after, (*dangling, *effects)
        case e.Found(_, record):
            return _not_acquired(state, NotAcquired(Reason.HELD, record))
        case e.Absent():
            return state._replace(target=None, phase=Phase.READING_COUNTER), (e.ReadCounter(),)
        case e.Unreadable(problem):
            return _not_acquired(state, NotAcquired(Reason.UNREADABLE, cause=problem))
        case e.ReadFailed(cause, pause):
            return _not_acquired(
                state,
                NotAcquired(Reason.UNAVAILABLE, cause=cause, retry_after_ms=pause),
                e.Count("lock.state.unknown"),
            )
        case _:
            raise InvariantBroken(f"{event.reply} in answer to a read of the record")


def _update_read_first(state: LockClientState, reply: e.ReadReply) -> LockClientState:
    """P12: if nobody acquired the lock since our release, the next attempt may skip the read."""
    if state.read_first and state.last_release and isinstance(reply, e.Found):
        return state._replace(read_first=reply.version != state.last_release.version)
    return state


def _take_or_reserve(state: LockClientState, now: Now, *, on_cached: bool = False) -> Step:
    """P6: use the next token of the record's range, or reserve a new range."""
    target = state.target
    if target is None or target.record.token >= target.record.token_ceiling:
        return state._replace(phase=Phase.READING_COUNTER), (e.ReadCounter(),)
    record = target.record
    return _take(
        state, now, token=record.token + 1, ceiling=record.token_ceiling, on_cached=on_cached
    )


def _take(
    state: LockClientState,
    now: Now,
    *,
    token: int,
    ceiling: int,
    on_cached: bool = False,
    new_range: bool = False,
) -> Step:
    """P14: write the grant, conditional on the version read or on absence."""
    replaced = state.target.record if state.target else None
    record = LockRecord(
        expired=False,
        valid_until_epoch_ms=state.lease.valid_until_epoch_ms(now),
        owner=state.owner,
        token=token,
        token_ceiling=ceiling,
        nonce=state.next_nonce(),
        previous=replaced.as_previous() if replaced else None,
    )
    invariants.check_grant(record, replaced, state.lease, now)
    mode: PutMode = Match(state.target.version) if state.target else Create()
    sent = SentWrite(record, now, on_cached=on_cached, new_range=new_range)
    # The cached version cannot be used again, whatever the reply.
    after = state._replace(
        phase=Phase.TAKING, writes=state.writes + 1, sent=sent, last_release=None
    )
    return after, (e.WriteRecord(mode, record),)


def counted(state: LockClientState, event: e.ReadDone) -> Step:
    """P6: raise the ceiling before any token below it is used."""
    seen = state.target.record if state.target else None
    floor = max(seen.token, seen.token_ceiling) if seen else 0
    mode: PutMode
    match event.reply:
        case e.FoundCounter(version, counter):
            floor, mode = max(floor, counter.ceiling), Match(version)
        case e.Absent():
            mode = Create()
        case e.Unreadable(problem):
            return _not_acquired(state, NotAcquired(Reason.UNREADABLE, cause=problem))
        case e.ReadFailed(cause, pause):
            return _not_acquired(
                state, NotAcquired(Reason.UNAVAILABLE, cause=cause, retry_after_ms=pause)
            )
        case _:
            raise InvariantBroken(f"{event.reply} in answer to a read of the counter")
    ceiling = floor + TOKEN_RANGE
    if ceiling > TOKEN_MAX:
        cause = f"no tokens left: the counter is at {floor}, the maximum is {TOKEN_MAX}"
        return _not_acquired(state, NotAcquired(Reason.UNREADABLE, cause=cause))
    counter = TokenCounter(ceiling, state.next_nonce())
    after = state._replace(phase=Phase.RESERVING, writes=state.writes + 1, ceiling=ceiling)
    return after, (e.WriteCounter(mode, counter),)


def reserved(state: LockClientState, event: e.WriteDone) -> Step:
    """A range is ours only if its write is known to have landed; unused ranges do no harm."""
    match event.reply:
        case Landed():
            target = state.target
            if target and not state.lease.is_free(target.record, event.now):
                # L2: the wall clock was set back since the record was found dead; check it again.
                return read(state, e.ReadDone(event.now, e.Found(target.version, target.record)))
            first = state.ceiling - TOKEN_RANGE + 1
            # P7: the record offers no further token of the range until the range is confirmed.
            return _take(state, event.now, token=first, ceiling=first, new_range=True)
        case Refused():
            return _not_acquired(
                state, NotAcquired(Reason.RACED, cause="another client reserved tokens")
            )
        case Busy(pause, cause):
            return _throttled(state, pause, cause)
        case Unclear(cause, pause):
            return _not_acquired(
                state, NotAcquired(Reason.UNKNOWN, cause=cause, retry_after_ms=pause)
            )


def taken(state: LockClientState, event: e.WriteDone) -> Step:
    """P15, P16: a write that landed is a grant; an unclear one is read back, never granted."""
    assert state.sent is not None
    match event.reply:
        case Landed(version) if state.sent.new_range and state.target is None:
            target = SeenRecord(version, state.sent.record)
            return state._replace(phase=Phase.CONFIRMING, target=target), (e.ReadCounter(),)
        case Landed(version):
            return _granted(state, SeenRecord(version, state.sent.record), event.now)
        case Refused():
            verifying = state._replace(phase=Phase.VERIFYING_GRANT, unclear="")
            return verifying, (e.Count("lock.acquire.precondition.failure"), e.ReadRecord())
        case Unclear(cause):
            verifying = state._replace(
                phase=Phase.VERIFYING_GRANT, unclear=cause, ghost_possible=True
            )
            return verifying, (e.Count("lock.state.unknown"), e.ReadRecord())
        case Busy(pause, cause):
            return _throttled(state, pause, cause)


def confirmed(state: LockClientState, event: e.ReadDone) -> Step:
    """P7: a created record is valid only if its token range is still the newest."""
    assert state.target is not None
    match event.reply:
        case e.FoundCounter(_, counter) if counter.ceiling == state.ceiling:
            return _granted(state, state.target, event.now)
        case e.ReadFailed(cause, pause):
            refusal = NotAcquired(Reason.UNAVAILABLE, cause=cause, retry_after_ms=pause)
        case _:
            refusal = NotAcquired(Reason.RACED, cause="the token range is not the newest")
    return discard(state._replace(refusal=refusal), state.target, event.now)


def _granted(state: LockClientState, held: SeenRecord, now: Now) -> Step:
    """P15: grant, unless the reply came after the deadline."""
    assert state.sent is not None
    deadline = state.lease.deadline_monotonic_ms(state.sent.at)
    if now.monotonic_ms >= deadline:
        return discard(state._replace(refusal=NotAcquired(Reason.LATE)), held, now)
    # P6: the next renewal or release publishes the rest of a confirmed range.
    ceiling = state.ceiling if state.sent.new_range else held.record.token_ceiling
    grant = Grant(held.version, replace(held.record, token_ceiling=ceiling), deadline)
    after = state._replace(
        phase=Phase.HOLDING, grant=grant, target=None, sent=None, ghost_possible=False
    )
    start = e.Audit(e.AuditState.START, state.sent.at.wall_epoch_ms)
    return after, (start, e.OperationDone(e.Granted(held.record.token)))


def grant_verified(state: LockClientState, event: e.ReadDone) -> Step:
    """P16, P17: release a ghost; after a refused cached write, continue with the record read."""
    assert state.sent is not None
    match event.reply:
        case e.Found(_, record) if is_ghost(state, record, event.now):
            return read(state, event)
        case e.Found() | e.Absent() if state.sent.on_cached and not state.unclear:
            return read(state._replace(read_first=True), event)
        case e.Unreadable():
            return read(state, event)
        case e.Found(_, record) if record.written_by(state.owner):
            # L5: our own record, expired before it was read: not lost to another owner.
            refusal = NotAcquired(Reason.LATE, record, cause=state.unclear)
        case e.Found(_, record):
            refusal = NotAcquired(Reason.RACED, record, cause=state.unclear)
        case e.ReadFailed(cause, pause):
            # P18: a refused write that could not be read back may have landed.
            state = state._replace(ghost_possible=True)
            refusal = NotAcquired(Reason.UNKNOWN, cause=cause, retry_after_ms=pause)
        case _:
            refusal = NotAcquired(Reason.RACED, cause=state.unclear)
    if state.unclear:
        refusal = replace(refusal, reason=Reason.UNKNOWN)
    return _not_acquired(state, refusal)


def _throttled(state: LockClientState, pause: int | None, cause: str) -> Step:
    refusal = NotAcquired(Reason.THROTTLED, cause=cause, retry_after_ms=pause)
    return _not_acquired(state, refusal, e.Count("lock.throttled"))


def _not_acquired(state: LockClientState, refusal: NotAcquired, *notifications: e.Effect) -> Step:
    after = state._replace(phase=Phase.IDLE, target=None, sent=None, refusal=None)
    return after, (*notifications, e.OperationDone(refusal))
