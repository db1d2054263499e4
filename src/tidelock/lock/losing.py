"""How a holding ends against its owner's will, and how an unusable record is given back. Pure."""

from __future__ import annotations

from dataclasses import replace

from tidelock.base.clock import Now
from tidelock.base.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock import invariants
from tidelock.lock.record import Record
from tidelock.lock.state import Phase, Seen, Sent, State, Step
from tidelock.store.contract import Match


def lose(state: State, cause: str, *, waiting: bool = False) -> Step:
    """Declare the holding lost, for good. `waiting`: a request of ours is still under way."""
    phase = Phase.LOST_WAITING if waiting else Phase.LOST
    after = state._replace(phase=phase, lost_cause=cause, known=None, doubtful=True)
    return after, (e.TellLost(cause),)


def expire(state: State, now: Now, *, waiting: bool = False) -> Step:
    """Declare the holding lost because its deadline has passed."""
    assert state.grant is not None
    late_ms = now.monotonic_ms - state.grant.deadline_monotonic_ms
    cause = f"the lease was not renewed in time; its deadline passed {late_ms} ms ago"
    return lose(state, cause, waiting=waiting)


def is_ghost(state: State, record: Record, now: Now) -> bool:
    """P16, P18: live, written by us, and yet we hold nothing: a write that landed unseen."""
    return record.written_by(state.owner) and not state.lease.is_free(record, now)


def whose(state: State, record: Record) -> str:
    """Say who has a record that was ours; a release by force leaves our name in it."""
    if record.owner == state.owner:
        return "the record was released by force"
    return f"the record now belongs to {record.owner}"


def give_back(state: State, held: Seen, now: Now) -> Step:
    """Release, by condition, a record of ours that must not be used (P15, P16, P23)."""
    released = replace(
        held.record, expired=True, nonce=state.next_nonce(), previous=held.record.as_previous()
    )
    invariants.check_release(released, held.record)
    after = state._replace(
        phase=Phase.RETURNING,
        writes=state.writes + 1,
        target=None,
        sent=Sent(released, now),
    )
    return after, (e.WriteRecord(Match(held.version), released),)


def given_back(state: State, event: e.WriteDone) -> Step:
    """End as decided before, whether or not the record could be given back."""
    assert state.sent is not None
    known = (
        Seen(event.reply.version, state.sent.record) if isinstance(event.reply, Landed) else None
    )
    # P18: what could not be given back is still there, to be looked for.
    after = state._replace(sent=None, known=known, doubtful=known is None)
    if state.lost_cause:
        return after._replace(phase=Phase.LOST, grant=None), (e.Done(e.Lost(state.lost_cause)),)
    assert state.verdict is not None
    ghosts = (e.Count("lock.ghost"),) if state.verdict.why is e.Why.GHOST else ()
    after = after._replace(phase=Phase.IDLE, grant=None, verdict=None)
    return after, (*ghosts, e.Done(state.verdict))


def abandon_attempt(state: State, event: e.Abandon) -> Step:
    """P18: an acquire or a release cut short may have left a ghost; the next look will find it."""
    del event
    after = state._replace(
        phase=Phase.LOST if state.lost_cause else Phase.IDLE,
        grant=None,
        target=None,
        sent=None,
        known=None,
        verdict=None,
        tries=0,
        doubtful=True,
    )
    return after, ()


def abandon_renewal(state: State, event: e.Abandon) -> Step:
    """P22: a renewal cut short is one that is not known to have landed."""
    del event
    assert state.grant is not None
    grant = replace(state.grant, unsure=True)
    return state._replace(phase=Phase.HOLDING, grant=grant, sent=None, tries=0), ()


def abandon_wait(state: State, event: e.Abandon) -> Step:
    """The lock is lost already; only the wait for an answer ends."""
    del event
    return state._replace(phase=Phase.LOST, sent=None), ()


def abandon_close(state: State, event: e.Abandon) -> Step:
    """A close cut short is a close."""
    del event
    return state._replace(phase=Phase.CLOSED, sent=None), ()
