"""How a lock is given back (P24-P26), and how a client closes (P18). Pure; see `machine`."""

from __future__ import annotations

from dataclasses import replace

from tidelock.base.clock import Now
from tidelock.base.limits import RELEASE_TRIES
from tidelock.base.outcome import Landed
from tidelock.base.retry import Backoff
from tidelock.lock import events as e
from tidelock.lock import invariants
from tidelock.lock.keeping import is_our_grant
from tidelock.lock.losing import expire, give_back, is_ghost, lose, whose
from tidelock.lock.record import Record
from tidelock.lock.state import Phase, Seen, Sent, State, Step
from tidelock.store.contract import Busy, Match, Refused, Unclear

_RELEASE_BACKOFF = Backoff(first_ms=50, most_ms=4_000)


def release_in_time(state: State, event: e.Release) -> Step:
    """L3: an owner that releases past its deadline is told that it had lost the lock by then."""
    assert state.grant is not None
    if event.now.monotonic_ms < state.grant.deadline_monotonic_ms:
        return release(state, event)
    lost, told = expire(state, event.now)
    after, effects = give_back(lost, Seen(state.grant.version, state.grant.record), event.now)
    return after, (*told, *effects)


def release(state: State, event: e.Event) -> Step:
    """P24: give the lock back on the version last written."""
    assert state.grant is not None
    held = state.grant.record
    released = replace(held, expired=True, nonce=state.next_nonce(), previous=held.as_previous())
    invariants.check_release(released, held)
    after = state._replace(
        phase=Phase.RELEASING,
        writes=state.writes + 1,
        sent=Sent(released, event.now),
    )
    return after, (e.WriteRecord(Match(state.grant.version), released),)


def released(state: State, event: e.WriteDone) -> Step:
    """P25: landed is released; everything else is read back."""
    assert state.sent is not None
    match event.reply:
        case Landed(version):
            return _free(state, e.Released(), event.now, Seen(version, state.sent.record))
        case Refused():
            return state._replace(phase=Phase.AFTERMATH, unclear=""), (e.ReadRecord(),)
        case Busy(pause, cause):
            return _try_later(state, cause, pause, e.Count("lock.throttled"))
        case Unclear(cause, pause):
            return _try_later(state, cause, pause, e.Count("lock.state.unknown"))


def _try_later(state: State, cause: str, pause: int | None, *notes: e.Effect) -> Step:
    """Read back after a pause, a bounded number of times."""
    if state.tries + 1 >= RELEASE_TRIES:
        after, effects = _unknown_release(state, cause)
        return after, (*notes, *effects)
    delay = max(pause or 0, round(_RELEASE_BACKOFF.delay_ms(state.tries, jitter=0.5)))
    after = state._replace(phase=Phase.AFTERMATH, unclear=cause, tries=state.tries + 1)
    return after, (*notes, e.ReadRecord(after_ms=delay))


def settled(state: State, event: e.ReadDone) -> Step:
    """P25 (a)-(e)."""
    assert state.grant is not None
    token = state.grant.record.token
    match event.reading:
        case e.ReadFailed(cause, pause):
            return _try_later(state, cause, pause, e.Count("lock.state.unknown"))
        case e.Found(version, record) if is_our_grant(state, record):
            # A try whose answer was unclear was counted when it was.
            tries = state.tries if state.unclear else state.tries + 1
            if tries >= RELEASE_TRIES:
                return _unknown_release(state, "the record keeps changing")
            grant = replace(state.grant, version=version, record=record)
            return release(state._replace(grant=grant, tries=tries), event)
        case e.Found(version, record) if record.written_by(state.owner) and record.token == token:
            return _free(state, e.Released(), event.now, Seen(version, record))
        case e.Found(_, record) if record.previous and _is_of(state, record):
            if record.previous.expired:
                return _free(state, e.Released(taken_since=True), event.now, None)
            after, effects = lose(state, whose(state, record))
            counts = (e.Count("lock.acquired.others.error"), e.Count("lock.release.failure"))
            return after, (*counts, *effects, e.Done(e.Lost(after.lost_cause)))
        case e.Found(_, record):
            return _unknown_release(state, whose(state, record))
        case e.Unreadable(problem):
            return _unknown_release(state, problem)
        case _:
            return _unknown_release(state, "the record was deleted")


def _is_of(state: State, record: Record) -> bool:
    """Tell whether `record` replaced a record of this grant."""
    assert state.grant is not None
    previous = record.previous
    return (
        previous is not None
        and previous.owner == state.owner
        and previous.token == state.grant.record.token
        and previous.nonce.startswith(f"{state.owner}:")
    )


def _free(state: State, result: e.Released, now: Now, known: Seen | None) -> Step:
    after = state._replace(
        phase=Phase.IDLE, grant=None, sent=None, known=known, tries=0, unclear=""
    )
    return after, (e.Audit(e.AuditState.END, now.wall_epoch_ms), e.Done(result))


def _unknown_release(state: State, cause: str) -> Step:
    """P25 (e), L6: not known stays not known. The record expires if it is still ours."""
    after = state._replace(
        phase=Phase.IDLE,
        grant=None,
        sent=None,
        known=None,
        tries=0,
        unclear="",
        doubtful=True,
    )
    counts = (e.Count("lock.release.failure"), e.Count("lock.acquired.others.error"))
    return after, (*counts, e.Done(e.ReleaseUnknown(cause)))


def nothing_to_release(state: State, event: e.Event) -> Step:
    """P26: releasing what is not held changes nothing."""
    del event
    return state, (e.Done(e.Released()),)


def acknowledge_loss(state: State, event: e.Event) -> Step:
    """Releasing a lost lock writes nothing: the record is another's, or expires."""
    del event
    after = state._replace(phase=Phase.IDLE, grant=None, tries=0, lost_cause="")
    return after, (e.Done(e.Lost(state.lost_cause)),)


# --- close ----------------------------------------------------------------------------------------


def close(state: State, event: e.Event) -> Step:
    """P18: a client that may have left a ghost looks for it once before it goes."""
    del event
    if state.doubtful:
        return state._replace(phase=Phase.CLOSING), (e.ReadRecord(),)
    return state._replace(phase=Phase.CLOSED, known=None), (e.Done(e.Closed()),)


def closing_read(state: State, event: e.ReadDone) -> Step:
    match event.reading:
        case e.Found(version, record) if is_ghost(state, record, event.now):
            returning, effects = give_back(state, Seen(version, record), event.now)
            return returning._replace(phase=Phase.CLOSING), effects
        case _:
            return state._replace(phase=Phase.CLOSED), (e.Done(e.Closed()),)


def closing_written(state: State, event: e.WriteDone) -> Step:
    del event
    return state._replace(phase=Phase.CLOSED, sent=None), (
        e.Count("lock.ghost"),
        e.Done(e.Closed()),
    )
