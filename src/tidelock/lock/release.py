"""Handlers for releasing a lock (P24-P26) and closing a client (P18). Pure; see `machine`."""

from __future__ import annotations

from dataclasses import replace

from tidelock.core.clock import Now
from tidelock.core.limits import RELEASE_TRIES
from tidelock.core.outcome import Landed
from tidelock.core.retry import Backoff
from tidelock.lock import events as e
from tidelock.lock.record import LockRecord
from tidelock.lock.renew import (
    discard,
    expire,
    is_ghost,
    is_our_grant,
    lose,
    loss_cause,
    write_release,
)
from tidelock.lock.state import LockClientState, Phase, SeenRecord, Step
from tidelock.storage.contract import Busy, Refused, Unclear

_RELEASE_BACKOFF = Backoff(first_ms=50, max_ms=4_000)


def release_in_time(state: LockClientState, event: e.Release) -> Step:
    """L3: a release after the deadline reports the loss."""
    assert state.grant is not None
    if event.now.monotonic_ms < state.grant.deadline_monotonic_ms:
        return release(state, event)
    lost, notifications = expire(state, event.now)
    after, effects = discard(lost, _held(state), event.now)
    return after, (*notifications, *effects)


def release(state: LockClientState, event: e.Event) -> Step:
    """P24: write the release, conditional on the version last written."""
    return write_release(state, _held(state), event.now, Phase.RELEASING)


def _held(state: LockClientState) -> SeenRecord:
    assert state.grant is not None
    return SeenRecord(state.grant.version, state.grant.record)


def released(state: LockClientState, event: e.WriteDone) -> Step:
    """P25: a write that landed is a release; read back otherwise."""
    assert state.sent is not None
    match event.reply:
        case Landed(version):
            return _free(state, e.Released(), event.now, SeenRecord(version, state.sent.record))
        case Refused():
            return state._replace(phase=Phase.VERIFYING_RELEASE, unclear=""), (e.ReadRecord(),)
        case Busy(pause, cause):
            return _try_later(state, cause, pause, e.Count("lock.throttled"))
        case Unclear(cause, pause):
            return _try_later(state, cause, pause, e.Count("lock.state.unknown"))


def _try_later(
    state: LockClientState, cause: str, pause: int | None, *notifications: e.Effect
) -> Step:
    """Read back after a pause, a bounded number of times."""
    if state.tries + 1 >= RELEASE_TRIES:
        after, effects = _unknown_release(state, cause)
        return after, (*notifications, *effects)
    delay = max(pause or 0, round(_RELEASE_BACKOFF.delay_ms(state.tries, jitter=0.5)))
    after = state._replace(phase=Phase.VERIFYING_RELEASE, unclear=cause, tries=state.tries + 1)
    return after, (*notifications, e.ReadRecord(after_ms=delay))


def verified(state: LockClientState, event: e.ReadDone) -> Step:
    """Resolve an unclear release by the record: P25 (a)-(e)."""
    assert state.grant is not None
    token = state.grant.record.token
    match event.reply:
        case e.ReadFailed(cause, pause):
            return _try_later(state, cause, pause, e.Count("lock.state.unknown"))
        case e.Found(version, record) if is_our_grant(state, record):
            # An unclear try has been counted already.
            tries = state.tries if state.unclear else state.tries + 1
            if tries >= RELEASE_TRIES:
                return _unknown_release(state, "the record keeps changing")
            grant = replace(state.grant, version=version, record=record)
            return release(state._replace(grant=grant, tries=tries), event)
        case e.Found(version, record) if record.written_by(state.owner) and record.token == token:
            return _free(state, e.Released(), event.now, SeenRecord(version, record))
        case e.Found(_, record) if record.previous and _replaced_ours(state, record):
            if record.previous.expired:
                return _free(state, e.Released(taken_since=True), event.now, None)
            after, effects = lose(state, loss_cause(state, record))
            counts = (e.Count("lock.acquired.others.error"), e.Count("lock.release.failure"))
            return after, (*counts, *effects, e.OperationDone(e.LockLost(after.lost_cause)))
        case e.Found(_, record):
            return _unknown_release(state, loss_cause(state, record))
        case e.Unreadable(problem):
            return _unknown_release(state, problem)
        case _:
            return _unknown_release(state, "the record was deleted")


def _replaced_ours(state: LockClientState, record: LockRecord) -> bool:
    """Return whether `record` replaced a record of this grant."""
    assert state.grant is not None
    previous, held = record.previous, state.grant.record
    return (
        previous is not None
        and (previous.owner, previous.token) == (state.owner, held.token)
        and previous.nonce.startswith(f"{state.owner}:")
    )


def _free(
    state: LockClientState, result: e.Released, now: Now, last_release: SeenRecord | None
) -> Step:
    end = e.Audit(e.AuditState.END, now.wall_epoch_ms)
    return _idle(state, last_release), (end, e.OperationDone(result))


def _idle(state: LockClientState, last_release: SeenRecord | None) -> LockClientState:
    return state._replace(
        phase=Phase.IDLE, grant=None, sent=None, last_release=last_release, tries=0, unclear=""
    )


def _unknown_release(state: LockClientState, cause: str) -> Step:
    """P25 (e), L6: report an unknown outcome. The record expires if it is still ours."""
    after = _idle(state, None)._replace(ghost_possible=True)
    counts = (e.Count("lock.release.failure"), e.Count("lock.acquired.others.error"))
    return after, (*counts, e.OperationDone(e.ReleaseUnknown(cause)))


def nothing_to_release(state: LockClientState, _event: e.Event) -> Step:
    """P26: a release without a holding has no effect."""
    return state, (e.OperationDone(e.Released()),)


def acknowledge_loss(state: LockClientState, _event: e.Event) -> Step:
    """Report the loss. Nothing is written: the record has another owner, or expires."""
    after = state._replace(phase=Phase.IDLE, grant=None, tries=0, lost_cause="")
    return after, (e.OperationDone(e.LockLost(state.lost_cause)),)


# --- close ----------------------------------------------------------------------------------------


def close(state: LockClientState, _event: e.Event) -> Step:
    """P18: before closing, look once for a ghost that this client may have left."""
    if state.ghost_possible:
        return state._replace(phase=Phase.CLOSING), (e.ReadRecord(),)
    return state._replace(phase=Phase.CLOSED, last_release=None), (e.OperationDone(e.Closed()),)


def closing_read(state: LockClientState, event: e.ReadDone) -> Step:
    match event.reply:
        case e.Found(version, record) if is_ghost(state, record, event.now):
            returning, effects = discard(state, SeenRecord(version, record), event.now)
            return returning._replace(phase=Phase.CLOSING), effects
        case _:
            return state._replace(phase=Phase.CLOSED), (e.OperationDone(e.Closed()),)


def closing_written(state: LockClientState, _event: e.WriteDone) -> Step:
    closed = state._replace(phase=Phase.CLOSED, sent=None)
    return closed, (e.Count("lock.ghost"), e.OperationDone(e.Closed()))
