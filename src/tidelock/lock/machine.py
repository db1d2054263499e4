"""The lock state machine as a table: (phase, event) to (phase, effects).

Rule 1: all decisions about a lock are reached from this table and are pure: `acquire`, `renew`,
`release`, `lease`, `invariants`. They use no clock, thread or storage; they receive events and
return effects.
Rule 2: the clients, the simulator and the exhaustive search run this same code.

At most one request is in flight at a time. `Tick` and `OwnerGone` may occur meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidelock.core.errors import InvariantBroken
from tidelock.lock import acquire, release, renew
from tidelock.lock import events as e
from tidelock.lock.state import LockClientState, Phase, Step


@dataclass(frozen=True, slots=True)
class TransitionRow:
    """The handler of an event in a phase, and the phases that it may lead to."""

    handler: Callable[[LockClientState, Any], Step]
    leads_to: tuple[Phase, ...]


def step(state: LockClientState, event: e.Event) -> Step:
    """Return the state after `event` and the effects. An unexpected event is a bug."""
    row = TABLE.get((state.phase, type(event)))
    if row is None:
        raise InvariantBroken(f"{type(event).__name__} while {state.phase.value}")
    after, effects = row.handler(state, event)
    if after.phase not in row.leads_to:
        raise InvariantBroken(f"{state.phase} led to {after.phase} by {type(event).__name__}")
    return after, effects


def _stay(state: LockClientState, _event: e.Event) -> Step:
    return state, ()


def _already_closed(state: LockClientState, _event: e.Event) -> Step:
    return state, (e.OperationDone(e.Closed()),)


_P = Phase
_AFTER_ACQUIRE = (_P.READING, _P.READING_COUNTER, _P.TAKING)
_AFTER_READ = (_P.IDLE, _P.READING_COUNTER, _P.TAKING, _P.DISCARDING)

TABLE: dict[tuple[Phase, type[e.Event]], TransitionRow] = {
    # Acquire.
    (_P.IDLE, e.Acquire): TransitionRow(acquire.acquire, _AFTER_ACQUIRE),
    (_P.LOST, e.Acquire): TransitionRow(acquire.acquire, _AFTER_ACQUIRE),
    (_P.HOLDING, e.Acquire): TransitionRow(acquire.acquire_again, (_P.HOLDING, _P.READING)),
    (_P.READING, e.ReadDone): TransitionRow(acquire.read, _AFTER_READ),
    (_P.READING_COUNTER, e.ReadDone): TransitionRow(acquire.counted, (_P.RESERVING, _P.IDLE)),
    (_P.RESERVING, e.WriteDone): TransitionRow(
        acquire.reserved, (_P.TAKING, _P.DISCARDING, _P.IDLE)
    ),
    (_P.TAKING, e.WriteDone): TransitionRow(
        acquire.taken, (_P.HOLDING, _P.CONFIRMING, _P.VERIFYING_GRANT, _P.DISCARDING, _P.IDLE)
    ),
    (_P.CONFIRMING, e.ReadDone): TransitionRow(acquire.confirmed, (_P.HOLDING, _P.DISCARDING)),
    (_P.VERIFYING_GRANT, e.ReadDone): TransitionRow(acquire.grant_verified, _AFTER_READ),
    (_P.DISCARDING, e.WriteDone): TransitionRow(renew.discarded, (_P.IDLE, _P.LOST)),
    # Renew, or lose.
    (_P.HOLDING, e.Renew): TransitionRow(renew.renew, (_P.RENEWING, _P.LOST)),
    (_P.RENEWING, e.WriteDone): TransitionRow(
        renew.renewed, (_P.HOLDING, _P.RECHECKING, _P.DISCARDING, _P.LOST)
    ),
    (_P.RECHECKING, e.ReadDone): TransitionRow(renew.rechecked, (_P.HOLDING, _P.RENEWING, _P.LOST)),
    (_P.HOLDING, e.Tick): TransitionRow(renew.tick, (_P.HOLDING, _P.LOST)),
    (_P.RENEWING, e.Tick): TransitionRow(renew.tick, (_P.RENEWING, _P.LOST_WAITING)),
    (_P.RECHECKING, e.Tick): TransitionRow(renew.tick, (_P.RECHECKING, _P.LOST_WAITING)),
    (_P.HOLDING, e.OwnerGone): TransitionRow(renew.owner_gone, (_P.LOST,)),
    (_P.RENEWING, e.OwnerGone): TransitionRow(renew.owner_gone, (_P.LOST_WAITING,)),
    (_P.RECHECKING, e.OwnerGone): TransitionRow(renew.owner_gone, (_P.LOST_WAITING,)),
    (_P.LOST_WAITING, e.WriteDone): TransitionRow(renew.late_renewal, (_P.LOST, _P.DISCARDING)),
    (_P.LOST_WAITING, e.ReadDone): TransitionRow(renew.late_reading, (_P.LOST,)),
    (_P.IDLE, e.Renew): TransitionRow(renew.nothing_to_renew, (_P.IDLE,)),
    (_P.LOST, e.Renew): TransitionRow(renew.nothing_to_renew, (_P.LOST,)),
    (_P.CLOSED, e.Renew): TransitionRow(renew.nothing_to_renew, (_P.CLOSED,)),
    # Release.
    (_P.HOLDING, e.Release): TransitionRow(release.release_in_time, (_P.RELEASING, _P.DISCARDING)),
    (_P.RELEASING, e.WriteDone): TransitionRow(release.released, (_P.IDLE, _P.VERIFYING_RELEASE)),
    (_P.VERIFYING_RELEASE, e.ReadDone): TransitionRow(
        release.verified, (_P.IDLE, _P.RELEASING, _P.VERIFYING_RELEASE, _P.LOST)
    ),
    (_P.IDLE, e.Release): TransitionRow(release.nothing_to_release, (_P.IDLE,)),
    (_P.LOST, e.Release): TransitionRow(release.acknowledge_loss, (_P.IDLE,)),
    (_P.CLOSED, e.Release): TransitionRow(release.nothing_to_release, (_P.CLOSED,)),
    # Close.
    (_P.IDLE, e.Close): TransitionRow(release.close, (_P.CLOSING, _P.CLOSED)),
    (_P.LOST, e.Close): TransitionRow(release.close, (_P.CLOSING, _P.CLOSED)),
    (_P.CLOSING, e.ReadDone): TransitionRow(release.closing_read, (_P.CLOSING, _P.CLOSED)),
    (_P.CLOSING, e.WriteDone): TransitionRow(release.closing_written, (_P.CLOSED,)),
    (_P.CLOSED, e.Close): TransitionRow(_already_closed, (_P.CLOSED,)),
}
_ATTEMPT = (
    *(_P.READING, _P.READING_COUNTER, _P.RESERVING, _P.TAKING, _P.CONFIRMING, _P.VERIFYING_GRANT),
    *(_P.RELEASING, _P.VERIFYING_RELEASE),
)
# An attempt, a renewal, a wait or a close was abandoned.
TABLE.update(
    {
        **{
            (phase, e.Abandon): TransitionRow(renew.abandon_attempt, (_P.IDLE,))
            for phase in _ATTEMPT
        },
        (_P.DISCARDING, e.Abandon): TransitionRow(renew.abandon_attempt, (_P.IDLE, _P.LOST)),
        (_P.RENEWING, e.Abandon): TransitionRow(renew.abandon_renewal, (_P.HOLDING,)),
        (_P.RECHECKING, e.Abandon): TransitionRow(renew.abandon_renewal, (_P.HOLDING,)),
        (_P.LOST_WAITING, e.Abandon): TransitionRow(renew.abandon_wait, (_P.LOST,)),
        (_P.CLOSING, e.Abandon): TransitionRow(renew.abandon_close, (_P.CLOSED,)),
    }
)
# In all other phases, time passing and an abandoned operation change nothing.
TABLE.update(
    {
        (phase, event): TransitionRow(_stay, (phase,))
        for phase in Phase
        for event in (e.Tick, e.Abandon)
        if (phase, event) not in TABLE
    }
)
