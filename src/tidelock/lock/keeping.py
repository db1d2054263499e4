"""How a lock is kept, and how it is lost (P20-P23, P29). Pure; `machine` holds the table."""

from __future__ import annotations

from dataclasses import replace

from tidelock.base.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock import invariants
from tidelock.lock.losing import expire, give_back, lose, whose
from tidelock.lock.record import Record
from tidelock.lock.state import Grant, Phase, Seen, Sent, State, Step
from tidelock.store.contract import Busy, Match, Refused, Unclear

_RENEW_ROUNDS = 3


def renew(state: State, event: e.Event) -> Step:
    """P20, L11: nothing is renewed at or after the deadline."""
    assert state.grant is not None
    if event.now.monotonic_ms >= state.grant.deadline_monotonic_ms:
        after, effects = expire(state, event.now)
        return after, (*effects, e.Done(e.Lost(after.lost_cause)))
    held = state.grant.record
    renewed = replace(
        held,
        valid_until_epoch_ms=state.lease.valid_until_epoch_ms(event.now),
        nonce=state.next_nonce(),
        previous=held.as_previous(),
    )
    invariants.check_renewal(renewed, held)
    sent = Sent(renewed, event.now)
    after = state._replace(phase=Phase.RENEWING, writes=state.writes + 1, sent=sent)
    return after, (e.WriteRecord(Match(state.grant.version), renewed),)


def renewed(state: State, event: e.WriteDone) -> Step:
    """P21, P22: the deadline moves only when a renewal is known to have landed in time."""
    assert state.grant is not None
    assert state.sent is not None
    late = event.now.monotonic_ms >= state.grant.deadline_monotonic_ms
    match event.reply:
        case Landed(version) if late:
            expired, effects = expire(state, event.now)
            after, more = give_back(expired, Seen(version, state.sent.record), event.now)
            return after, (*effects, *more)
        case Landed(version):
            deadline = state.lease.deadline_monotonic_ms(state.sent.at)
            grant = Grant(version, state.sent.record, deadline)
            after = state._replace(phase=Phase.HOLDING, grant=grant, sent=None, tries=0)
            renewal = e.Audit(e.AuditState.RENEW, state.sent.at.wall_epoch_ms)
            return after, (renewal, e.Done(e.Renewed()))
        case _ if late:
            after, effects = expire(state, event.now)
            return after, (*effects, e.Done(e.Lost(after.lost_cause)))
        case Refused() if state.tries < _RENEW_ROUNDS:
            after = state._replace(phase=Phase.RECHECKING, sent=None, tries=state.tries + 1)
            return after, (e.ReadRecord(),)
        case Refused():
            return _doubt(state, "the record keeps changing its version")
        case Busy(_, cause):
            return _doubt(state, cause, e.Count("lock.throttled"))
        case Unclear(cause):
            return _doubt(state, cause, e.Count("lock.state.unknown"))


def _doubt(state: State, cause: str, *notes: e.Effect) -> Step:
    """P22: UNSURE; the deadline stands and the heartbeat tries again."""
    assert state.grant is not None
    grant = replace(state.grant, unsure=True)
    after = state._replace(phase=Phase.HOLDING, grant=grant, sent=None, tries=0)
    return after, (*notes, e.Done(e.Doubtful(cause)))


def rechecked(state: State, event: e.ReadDone) -> Step:
    """P21: ours is adopted and renewed once more; anybody else's is a loss at once."""
    assert state.grant is not None
    match event.reading:
        case e.ReadFailed(cause):
            return _doubt(state, cause, e.Count("lock.state.unknown"))
        case e.Found(version, record) if is_our_grant(state, record):
            grant = replace(state.grant, version=version, record=record, unsure=True)
            return renew(state._replace(grant=grant), event)
        case e.Found(_, record):
            cause = whose(state, record)
        case e.Unreadable(problem):
            cause = f"the record was replaced by something unreadable: {problem}"
        case _:
            cause = "the record was deleted"
    after, effects = lose(state, cause)
    return after, (
        e.Count("lock.acquired.others.error"),
        *effects,
        e.Done(e.Lost(cause)),
    )


def is_our_grant(state: State, record: Record) -> bool:
    """Live, of our token and our own making; a force-release by an operator is not."""
    assert state.grant is not None
    ours = record.written_by(state.owner) and record.token == state.grant.record.token
    return ours and not record.expired


def tick(state: State, event: e.Event) -> Step:
    """P29: the deadline is noticed even while a request is stalled."""
    assert state.grant is not None
    if event.now.monotonic_ms < state.grant.deadline_monotonic_ms:
        return state, ()
    return expire(state, event.now, waiting=state.phase is not Phase.HOLDING)


def owner_gone(state: State, event: e.OwnerGone) -> Step:
    """L10: nothing more is written for an owner that has ended; the record expires."""
    return lose(state, event.cause, waiting=state.phase is not Phase.HOLDING)


def late_renewal(state: State, event: e.WriteDone) -> Step:
    """P23: a renewal that lands after LOST is given back, never believed."""
    assert state.sent is not None
    if isinstance(event.reply, Landed):
        return give_back(state, Seen(event.reply.version, state.sent.record), event.now)
    return state._replace(phase=Phase.LOST, sent=None), (e.Done(e.Lost(state.lost_cause)),)


def late_reading(state: State, event: e.ReadDone) -> Step:
    """The answer to a read that no longer matters."""
    del event
    return state._replace(phase=Phase.LOST), (e.Done(e.Lost(state.lost_cause)),)


def nothing_to_renew(state: State, event: e.Renew) -> Step:
    """L10: the heartbeat of a lock that is not held writes nothing."""
    del event
    return state, (e.Done(e.Lost(state.lost_cause or "the lock is not held")),)
