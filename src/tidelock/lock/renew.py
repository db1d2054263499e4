"""Handlers for renewing and losing a lock (P20-P23, P29). Pure; see `machine`."""

from __future__ import annotations

from dataclasses import replace

from tidelock.core.clock import Now
from tidelock.core.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock import invariants
from tidelock.lock.record import LockRecord
from tidelock.lock.state import Grant, LockClientState, Phase, SeenRecord, SentWrite, Step
from tidelock.storage.contract import Busy, Match, Refused, Unclear


def lose(state: LockClientState, cause: str, *, waiting: bool = False) -> Step:
    """Declare the holding lost. `waiting`: a request of ours is still in flight."""
    phase = Phase.LOST_WAITING if waiting else Phase.LOST
    after = state._replace(phase=phase, lost_cause=cause, last_release=None, ghost_possible=True)
    return after, (e.NotifyLost(cause),)


def expire(state: LockClientState, now: Now, *, waiting: bool = False) -> Step:
    """Declare the holding lost because its deadline has passed."""
    assert state.grant is not None
    late_ms = now.monotonic_ms - state.grant.deadline_monotonic_ms
    cause = f"the lease was not renewed in time; its deadline passed {late_ms} ms ago"
    return lose(state, cause, waiting=waiting)


def is_ghost(state: LockClientState, record: LockRecord, now: Now) -> bool:
    """P16, P18: a live record of ours while we hold nothing: a write that landed unseen."""
    return record.written_by(state.owner) and not state.lease.is_free(record, now)


def loss_cause(state: LockClientState, record: LockRecord) -> str:
    """Return why a record is no longer ours; a forced release keeps our owner id."""
    if record.owner == state.owner:
        return "the record was released by force"
    return f"the record now belongs to {record.owner}"


def write_release(state: LockClientState, held: SeenRecord, now: Now, phase: Phase) -> Step:
    """P24: write the release of a record, conditional on the version last seen."""
    released = replace(
        held.record, expired=True, nonce=state.next_nonce(), previous=held.record.as_previous()
    )
    invariants.check_release(released, held.record)
    sent = SentWrite(released, now)
    after = state._replace(phase=phase, writes=state.writes + 1, sent=sent)
    return after, (e.WriteRecord(Match(held.version), released),)


def discard(state: LockClientState, held: SeenRecord, now: Now) -> Step:
    """Release, conditionally, a grant of ours that must not be used (P15, P16, P23)."""
    return write_release(state._replace(target=None), held, now, Phase.DISCARDING)


def discarded(state: LockClientState, event: e.WriteDone) -> Step:
    """Return the pending result, whether or not the release landed."""
    assert state.sent is not None
    last_release = None
    if isinstance(event.reply, Landed):
        last_release = SeenRecord(event.reply.version, state.sent.record)
    # P18: a grant that could not be released is looked for by the next attempt.
    after = state._replace(
        sent=None, last_release=last_release, ghost_possible=last_release is None
    )
    if state.lost_cause:
        return _lost(after._replace(grant=None))
    assert state.refusal is not None
    ghosts = (e.Count("lock.ghost"),) if state.refusal.reason is e.NotAcquiredReason.GHOST else ()
    after = after._replace(phase=Phase.IDLE, grant=None, refusal=None)
    return after, (*ghosts, e.OperationDone(state.refusal))


def abandon_attempt(state: LockClientState, _event: e.Abandon) -> Step:
    """P18: an abandoned acquire or release may have left a ghost; the next attempt finds it."""
    after = state._replace(
        phase=Phase.LOST if state.lost_cause else Phase.IDLE,
        grant=None,
        target=None,
        sent=None,
        last_release=None,
        refusal=None,
        tries=0,
        ghost_possible=True,
    )
    return after, ()


def abandon_renewal(state: LockClientState, _event: e.Abandon) -> Step:
    """P22: an abandoned renewal is not known to have landed."""
    assert state.grant is not None
    grant = replace(state.grant, unsure=True)
    return state._replace(phase=Phase.HOLDING, grant=grant, sent=None, tries=0), ()


def abandon_wait(state: LockClientState, _event: e.Abandon) -> Step:
    """The lock is already lost; stop waiting for the reply."""
    return state._replace(phase=Phase.LOST, sent=None), ()


def abandon_close(state: LockClientState, _event: e.Abandon) -> Step:
    """Treat an abandoned close as completed."""
    return state._replace(phase=Phase.CLOSED, sent=None), ()


_RENEW_ROUNDS = 3


def renew(state: LockClientState, event: e.Event) -> Step:
    """P20, L11: send no renewal at or after the deadline."""
    assert state.grant is not None
    if event.now.monotonic_ms >= state.grant.deadline_monotonic_ms:
        return _expired(state, event.now)
    held = state.grant.record
    renewed = replace(
        held,
        valid_until_epoch_ms=state.lease.valid_until_epoch_ms(event.now),
        nonce=state.next_nonce(),
        previous=held.as_previous(),
    )
    invariants.check_renewal(renewed, held)
    sent = SentWrite(renewed, event.now)
    after = state._replace(phase=Phase.RENEWING, writes=state.writes + 1, sent=sent)
    return after, (e.WriteRecord(Match(state.grant.version), renewed),)


def renewed(state: LockClientState, event: e.WriteDone) -> Step:
    """P21, P22: the deadline moves only if a renewal is known to have landed in time."""
    assert state.grant is not None
    assert state.sent is not None
    late = event.now.monotonic_ms >= state.grant.deadline_monotonic_ms
    match event.reply:
        case Landed(version) if late:
            expired, effects = expire(state, event.now)
            after, more = discard(expired, SeenRecord(version, state.sent.record), event.now)
            return after, (*effects, *more)
        case Landed(version):
            deadline = state.lease.deadline_monotonic_ms(state.sent.at)
            grant = Grant(version, state.sent.record, deadline)
            after = state._replace(phase=Phase.HOLDING, grant=grant, sent=None, tries=0)
            renewal = e.Audit(e.AuditState.RENEW, state.sent.at.wall_epoch_ms)
            return after, (renewal, e.OperationDone(e.Renewed()))
        case _ if late:
            return _expired(state, event.now)
        case Refused() if state.tries < _RENEW_ROUNDS:
            after = state._replace(phase=Phase.RECHECKING, sent=None, tries=state.tries + 1)
            return after, (e.ReadRecord(),)
        case Refused():
            return _unsure(state, "the record keeps changing its version")
        case Busy(_, cause):
            return _unsure(state, cause, e.Count("lock.throttled"))
        case Unclear(cause):
            return _unsure(state, cause, e.Count("lock.state.unknown"))


def _expired(state: LockClientState, now: Now) -> Step:
    after, effects = expire(state, now)
    return after, (*effects, e.OperationDone(e.LockLost(after.lost_cause)))


def _unsure(state: LockClientState, cause: str, *notifications: e.Effect) -> Step:
    """P22: UNSURE; the deadline stays, and the heartbeat tries again."""
    assert state.grant is not None
    grant = replace(state.grant, unsure=True)
    after = state._replace(phase=Phase.HOLDING, grant=grant, sent=None, tries=0)
    return after, (*notifications, e.OperationDone(e.RenewalUnknown(cause)))


def rechecked(state: LockClientState, event: e.ReadDone) -> Step:
    """P21: adopt our own record and renew again; another owner's record is a loss."""
    assert state.grant is not None
    match event.reply:
        case e.ReadFailed(cause):
            return _unsure(state, cause, e.Count("lock.state.unknown"))
        case e.Found(version, record) if is_our_grant(state, record):
            grant = replace(state.grant, version=version, record=record, unsure=True)
            return renew(state._replace(grant=grant), event)
        case e.Found(_, record):
            cause = loss_cause(state, record)
        case e.Unreadable(problem):
            cause = f"the record was replaced by an unreadable object: {problem}"
        case _:
            cause = "the record was deleted"
    after, effects = lose(state, cause)
    count = e.Count("lock.acquired.others.error")
    return after, (count, *effects, e.OperationDone(e.LockLost(cause)))


def is_our_grant(state: LockClientState, record: LockRecord) -> bool:
    """Return whether the record is live, has our token and was written by us."""
    assert state.grant is not None
    ours = record.written_by(state.owner) and record.token == state.grant.record.token
    return ours and not record.expired


def tick(state: LockClientState, event: e.Event) -> Step:
    """P29: detect a passed deadline even if a request is stalled."""
    assert state.grant is not None
    if event.now.monotonic_ms < state.grant.deadline_monotonic_ms:
        return state, ()
    return expire(state, event.now, waiting=state.phase is not Phase.HOLDING)


def owner_gone(state: LockClientState, event: e.OwnerGone) -> Step:
    """L10: write nothing more for an owner that has ended; the record expires."""
    return lose(state, event.cause, waiting=state.phase is not Phase.HOLDING)


def late_renewal(state: LockClientState, event: e.WriteDone) -> Step:
    """P23: a renewal that lands after LOST is released."""
    assert state.sent is not None
    if isinstance(event.reply, Landed):
        return discard(state, SeenRecord(event.reply.version, state.sent.record), event.now)
    return _lost(state._replace(sent=None))


def late_reading(state: LockClientState, _event: e.ReadDone) -> Step:
    """Ignore the reply to a read after the loss."""
    return _lost(state)


def _lost(state: LockClientState) -> Step:
    return state._replace(phase=Phase.LOST), (e.OperationDone(e.LockLost(state.lost_cause)),)


def nothing_to_renew(state: LockClientState, _event: e.Renew) -> Step:
    """L10: a renewal of a lock that is not held writes nothing."""
    return state, (e.OperationDone(e.LockLost(state.lost_cause or "the lock is not held")),)
