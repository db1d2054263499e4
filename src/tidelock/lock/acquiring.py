"""How a lock is acquired, phase by phase (P12-P19). Pure; `machine` holds the table."""

from __future__ import annotations

from dataclasses import replace

from tidelock.base.clock import Now
from tidelock.base.errors import InvariantBroken
from tidelock.base.limits import TOKEN_MAX, TOKEN_RANGE
from tidelock.base.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock import invariants
from tidelock.lock.losing import expire, give_back, is_ghost
from tidelock.lock.record import Counter, Record
from tidelock.lock.state import Grant, Phase, Seen, Sent, Standing, State, Step, standing
from tidelock.store.contract import Busy, Create, Match, PutMode, Refused, Unclear


def acquire(state: State, event: e.Event) -> Step:
    """P12: write at once on our own release, unless that met another last time; else read first."""
    fresh = state._replace(grant=None, target=None, sent=None, verdict=None, tries=0, lost_cause="")
    if state.known is not None and not state.cautious:
        return _take_or_reserve(fresh._replace(target=state.known), event.now, on_cached=True)
    return fresh._replace(phase=Phase.READING), (e.ReadRecord(),)


def acquire_again(state: State, event: e.Event) -> Step:
    """L12: an owner that holds the lock asks again and is given the same token."""
    if standing(state, event.now) is Standing.LOST:
        lost, told = expire(state, event.now)
        after, effects = acquire(lost, event)
        return after, (*told, *effects)
    assert state.grant is not None
    return state, (e.Done(e.Granted(state.grant.record.token)),)


def read(state: State, event: e.ReadDone) -> Step:
    """P13, P14, P16, P18, P19: what the record says decides."""
    state = _less_cautious(state, event.reading)
    match event.reading:
        case e.Found(version, record) if is_ghost(state, record, event.now):
            return give_back(
                state._replace(verdict=e.NotAcquired(e.Why.GHOST)), Seen(version, record), event.now
            )
        case e.Found(version, record) if state.lease.is_free(record, event.now):
            target = state._replace(target=Seen(version, record))
            after, effects = _take_or_reserve(target, event.now)
            dangling = () if record.expired else (e.Count("lock.dangling"),)
            return after, (*dangling, *effects)
        case e.Found(_, record):
            return _not_acquired(state, e.NotAcquired(e.Why.HELD, record))
        case e.Absent():
            return state._replace(target=None, phase=Phase.COUNTING), (e.ReadCounter(),)
        case e.Unreadable(problem):
            return _not_acquired(state, e.NotAcquired(e.Why.UNREADABLE, cause=problem))
        case e.ReadFailed(cause, pause):
            return _not_acquired(
                state,
                e.NotAcquired(e.Why.UNAVAILABLE, cause=cause, retry_after_ms=pause),
                e.Count("lock.state.unknown"),
            )
        case _:
            raise InvariantBroken(f"{event.reading} in answer to a read of the record")


def _less_cautious(state: State, reading: e.Reading) -> State:
    """P12: a lock that nobody else took since our release is ours to write on again."""
    if state.cautious and state.known and isinstance(reading, e.Found):
        return state._replace(cautious=reading.version != state.known.version)
    return state


def _take_or_reserve(state: State, now: Now, *, on_cached: bool = False) -> Step:
    """P6: the next token, from the record's range or from a new one."""
    target = state.target
    if target is None or target.record.token >= target.record.token_ceiling:
        return state._replace(phase=Phase.COUNTING), (e.ReadCounter(),)
    record = target.record
    return _take(
        state, now, token=record.token + 1, ceiling=record.token_ceiling, on_cached=on_cached
    )


def _take(
    state: State,
    now: Now,
    *,
    token: int,
    ceiling: int,
    on_cached: bool = False,
    new_range: bool = False,
) -> Step:
    """P14: write the grant, on the version read or by creating the object."""
    replaced = state.target.record if state.target else None
    record = Record(
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
    sent = Sent(record, now, on_cached=on_cached, new_range=new_range)
    # Whatever the answer, the cached version is used up: the record will have changed.
    after = state._replace(phase=Phase.TAKING, writes=state.writes + 1, sent=sent, known=None)
    return after, (e.WriteRecord(mode, record),)


def counted(state: State, event: e.ReadDone) -> Step:
    """P6: raise the ceiling before using any token under it."""
    seen = state.target.record if state.target else None
    floor = max(seen.token, seen.token_ceiling) if seen else 0
    mode: PutMode
    match event.reading:
        case e.FoundCounter(version, counter):
            floor, mode = max(floor, counter.ceiling), Match(version)
        case e.Absent():
            mode = Create()
        case e.Unreadable(problem):
            return _not_acquired(
                state, e.NotAcquired(e.Why.UNREADABLE, cause=f"token counter: {problem}")
            )
        case e.ReadFailed(cause, pause):
            return _not_acquired(
                state, e.NotAcquired(e.Why.UNAVAILABLE, cause=cause, retry_after_ms=pause)
            )
        case _:
            raise InvariantBroken(f"{event.reading} in answer to a read of the counter")
    ceiling = floor + TOKEN_RANGE
    if ceiling > TOKEN_MAX:
        cause = f"tokens are used up: {floor} is too near to {TOKEN_MAX}"
        return _not_acquired(state, e.NotAcquired(e.Why.UNREADABLE, cause=cause))
    counter = Counter(ceiling, state.next_nonce())
    after = state._replace(phase=Phase.RESERVING, writes=state.writes + 1, ceiling=ceiling)
    return after, (e.WriteCounter(mode, counter),)


def reserved(state: State, event: e.WriteDone) -> Step:
    """A range is ours only if its write is known to have landed; a wasted range costs nothing."""
    match event.reply:
        case Landed():
            target = state.target
            if target and not state.lease.is_free(target.record, event.now):
                # The wall clock stepped back since the record was judged dead. L2: judge again.
                return read(state, e.ReadDone(event.now, e.Found(target.version, target.record)))
            first = state.ceiling - TOKEN_RANGE + 1
            return _take(
                state,
                event.now,
                token=first,
                # P7: until the range is confirmed the record offers nothing of it to others.
                ceiling=first,
                new_range=True,
            )
        case Refused():
            return _not_acquired(
                state, e.NotAcquired(e.Why.RACED, cause="another taker reserved tokens")
            )
        case Busy(pause, cause):
            return _throttled(state, pause, cause)
        case Unclear(cause, pause):
            return _not_acquired(
                state, e.NotAcquired(e.Why.UNKNOWN, cause=cause, retry_after_ms=pause)
            )


def taken(state: State, event: e.WriteDone) -> Step:
    """P15, P16: landed is a grant; anything unclear is read back, and never ends in one."""
    assert state.sent is not None
    match event.reply:
        case Landed(version) if state.sent.new_range and state.target is None:
            target = Seen(version, state.sent.record)
            return state._replace(phase=Phase.CONFIRMING, target=target), (e.ReadCounter(),)
        case Landed(version):
            return _granted(state, Seen(version, state.sent.record), event.now)
        case Refused():
            judged = state._replace(phase=Phase.JUDGING, unclear="")
            return judged, (e.Count("lock.acquire.precondition.failure"), e.ReadRecord())
        case Unclear(cause):
            judged = state._replace(phase=Phase.JUDGING, unclear=cause, doubtful=True)
            return judged, (e.Count("lock.state.unknown"), e.ReadRecord())
        case Busy(pause, cause):
            return _throttled(state, pause, cause)


def confirmed(state: State, event: e.ReadDone) -> Step:
    """P7: a created record counts only if its range is still the newest."""
    assert state.target is not None
    match event.reading:
        case e.FoundCounter(_, counter) if counter.ceiling == state.ceiling:
            return _granted(state, state.target, event.now)
        case e.ReadFailed(cause, pause):
            verdict = e.NotAcquired(e.Why.UNAVAILABLE, cause=cause, retry_after_ms=pause)
        case _:
            verdict = e.NotAcquired(e.Why.RACED, cause="the token range is not the newest")
    return give_back(state._replace(verdict=verdict), state.target, event.now)


def _granted(state: State, held: Seen, now: Now) -> Step:
    """P15: a grant, unless its answer came after its own deadline."""
    assert state.sent is not None
    deadline = state.lease.deadline_monotonic_ms(state.sent.at)
    if now.monotonic_ms >= deadline:
        return give_back(state._replace(verdict=e.NotAcquired(e.Why.LATE)), held, now)
    # The next renewal or release offers the rest of a confirmed range to the next taker (P6).
    ceiling = state.ceiling if state.sent.new_range else held.record.token_ceiling
    grant = Grant(held.version, replace(held.record, token_ceiling=ceiling), deadline)
    after = state._replace(phase=Phase.HOLDING, grant=grant, target=None, sent=None, doubtful=False)
    start = e.Audit(e.AuditState.START, state.sent.at.wall_epoch_ms)
    return after, (start, e.Done(e.Granted(held.record.token)))


def judged(state: State, event: e.ReadDone) -> Step:
    """P16, P17: a ghost is returned; a cached try that was refused goes on with what was read."""
    assert state.sent is not None
    match event.reading:
        case e.Found(_, record) if is_ghost(state, record, event.now):
            return read(state, event)
        case e.Found() | e.Absent() if state.sent.on_cached and not state.unclear:
            return read(state._replace(cautious=True), event)
        case e.Unreadable():
            return read(state, event)
        case e.Found(_, record) if record.written_by(state.owner):
            # L5: ours, and over before it was read: nobody else was faster.
            verdict = e.NotAcquired(e.Why.LATE, record, cause=state.unclear)
        case e.Found(_, record):
            verdict = e.NotAcquired(e.Why.RACED, record, cause=state.unclear)
        case e.ReadFailed(cause, pause):
            # P18: a refusal that could not be read back may hide a success.
            state = state._replace(doubtful=True)
            verdict = e.NotAcquired(e.Why.UNKNOWN, cause=cause, retry_after_ms=pause)
        case _:
            verdict = e.NotAcquired(e.Why.RACED, cause=state.unclear)
    if state.unclear:
        verdict = replace(verdict, why=e.Why.UNKNOWN)
    return _not_acquired(state, verdict)


def _throttled(state: State, pause: int | None, cause: str) -> Step:
    verdict = e.NotAcquired(e.Why.THROTTLED, cause=cause, retry_after_ms=pause)
    return _not_acquired(state, verdict, e.Count("lock.throttled"))


def _not_acquired(state: State, verdict: e.NotAcquired, *notes: e.Effect) -> Step:
    after = state._replace(phase=Phase.IDLE, target=None, sent=None, verdict=None)
    return after, (*notes, e.Done(verdict))
