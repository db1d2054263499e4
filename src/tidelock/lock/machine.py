"""The lock as a table: phase and event to phase and effects.

Rule 1: what decides about a lock is reached from this table and is pure: `acquiring`, `keeping`,
`releasing`, `losing`, `lease`, `invariants`. It knows no clock, no thread, no storage; it is told
what happened and says what to do next.
Rule 2: the driver, the simulator and the exhaustive search run this same code.

At most one request is under way at a time. `Tick` and `OwnerGone` may come while it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidelock.base.errors import InvariantBroken
from tidelock.lock import acquiring, keeping, losing, releasing
from tidelock.lock import events as e
from tidelock.lock.state import Phase, State, Step


@dataclass(frozen=True, slots=True)
class Row:
    """What handles an event in a phase, and where that may lead."""

    handler: Callable[[State, Any], Step]
    leads_to: tuple[Phase, ...]


def step(state: State, event: e.Event) -> Step:
    """Return the state after `event`, and what to do. An event out of place is a bug."""
    row = TABLE.get((state.phase, type(event)))
    if row is None:
        raise InvariantBroken(f"{type(event).__name__} while {state.phase.value}")
    after, effects = row.handler(state, event)
    if after.phase not in row.leads_to:
        raise InvariantBroken(f"{state.phase} led to {after.phase} by {type(event).__name__}")
    return after, effects


def _stay(state: State, event: e.Event) -> Step:
    del event
    return state, ()


def _closed_already(state: State, event: e.Event) -> Step:
    del event
    return state, (e.Done(e.Closed()),)


_P = Phase
_AFTER_READ = (_P.IDLE, _P.COUNTING, _P.TAKING, _P.RETURNING)

TABLE: dict[tuple[Phase, type[e.Event]], Row] = {
    # Acquire.
    (_P.IDLE, e.Acquire): Row(acquiring.acquire, (_P.READING, _P.COUNTING, _P.TAKING)),
    (_P.LOST, e.Acquire): Row(acquiring.acquire, (_P.READING, _P.COUNTING, _P.TAKING)),
    (_P.HOLDING, e.Acquire): Row(acquiring.acquire_again, (_P.HOLDING, _P.READING)),
    (_P.READING, e.ReadDone): Row(acquiring.read, _AFTER_READ),
    (_P.COUNTING, e.ReadDone): Row(acquiring.counted, (_P.RESERVING, _P.IDLE)),
    (_P.RESERVING, e.WriteDone): Row(acquiring.reserved, (_P.TAKING, _P.RETURNING, _P.IDLE)),
    (_P.TAKING, e.WriteDone): Row(
        acquiring.taken, (_P.HOLDING, _P.CONFIRMING, _P.JUDGING, _P.RETURNING, _P.IDLE)
    ),
    (_P.CONFIRMING, e.ReadDone): Row(acquiring.confirmed, (_P.HOLDING, _P.RETURNING)),
    (_P.JUDGING, e.ReadDone): Row(acquiring.judged, _AFTER_READ),
    (_P.RETURNING, e.WriteDone): Row(losing.given_back, (_P.IDLE, _P.LOST)),
    # Keep.
    (_P.HOLDING, e.Renew): Row(keeping.renew, (_P.RENEWING, _P.LOST)),
    (_P.RENEWING, e.WriteDone): Row(
        keeping.renewed, (_P.HOLDING, _P.RECHECKING, _P.RETURNING, _P.LOST)
    ),
    (_P.RECHECKING, e.ReadDone): Row(keeping.rechecked, (_P.HOLDING, _P.RENEWING, _P.LOST)),
    (_P.HOLDING, e.Tick): Row(keeping.tick, (_P.HOLDING, _P.LOST)),
    (_P.RENEWING, e.Tick): Row(keeping.tick, (_P.RENEWING, _P.LOST_WAITING)),
    (_P.RECHECKING, e.Tick): Row(keeping.tick, (_P.RECHECKING, _P.LOST_WAITING)),
    (_P.HOLDING, e.OwnerGone): Row(keeping.owner_gone, (_P.LOST,)),
    (_P.RENEWING, e.OwnerGone): Row(keeping.owner_gone, (_P.LOST_WAITING,)),
    (_P.RECHECKING, e.OwnerGone): Row(keeping.owner_gone, (_P.LOST_WAITING,)),
    (_P.LOST_WAITING, e.WriteDone): Row(keeping.late_renewal, (_P.LOST, _P.RETURNING)),
    (_P.LOST_WAITING, e.ReadDone): Row(keeping.late_reading, (_P.LOST,)),
    (_P.IDLE, e.Renew): Row(keeping.nothing_to_renew, (_P.IDLE,)),
    (_P.LOST, e.Renew): Row(keeping.nothing_to_renew, (_P.LOST,)),
    (_P.CLOSED, e.Renew): Row(keeping.nothing_to_renew, (_P.CLOSED,)),
    # Release.
    (_P.HOLDING, e.Release): Row(releasing.release_in_time, (_P.RELEASING, _P.RETURNING)),
    (_P.RELEASING, e.WriteDone): Row(releasing.released, (_P.IDLE, _P.AFTERMATH)),
    (_P.AFTERMATH, e.ReadDone): Row(
        releasing.settled, (_P.IDLE, _P.RELEASING, _P.AFTERMATH, _P.LOST)
    ),
    (_P.IDLE, e.Release): Row(releasing.nothing_to_release, (_P.IDLE,)),
    (_P.LOST, e.Release): Row(releasing.acknowledge_loss, (_P.IDLE,)),
    (_P.CLOSED, e.Release): Row(releasing.nothing_to_release, (_P.CLOSED,)),
    # Close.
    (_P.IDLE, e.Close): Row(releasing.close, (_P.CLOSING, _P.CLOSED)),
    (_P.LOST, e.Close): Row(releasing.close, (_P.CLOSING, _P.CLOSED)),
    (_P.CLOSING, e.ReadDone): Row(releasing.closing_read, (_P.CLOSING, _P.CLOSED)),
    (_P.CLOSING, e.WriteDone): Row(releasing.closing_written, (_P.CLOSED,)),
    (_P.CLOSED, e.Close): Row(_closed_already, (_P.CLOSED,)),
}
_ATTEMPT = (
    *(_P.READING, _P.COUNTING, _P.RESERVING, _P.TAKING, _P.CONFIRMING, _P.JUDGING),
    *(_P.RELEASING, _P.AFTERMATH),
)
# What was cut short: an attempt, a renewal, a wait, a close.
TABLE.update(
    {
        **{(phase, e.Abandon): Row(losing.abandon_attempt, (_P.IDLE,)) for phase in _ATTEMPT},
        (_P.RETURNING, e.Abandon): Row(losing.abandon_attempt, (_P.IDLE, _P.LOST)),
        (_P.RENEWING, e.Abandon): Row(losing.abandon_renewal, (_P.HOLDING,)),
        (_P.RECHECKING, e.Abandon): Row(losing.abandon_renewal, (_P.HOLDING,)),
        (_P.LOST_WAITING, e.Abandon): Row(losing.abandon_wait, (_P.LOST,)),
        (_P.CLOSING, e.Abandon): Row(losing.abandon_close, (_P.CLOSED,)),
    }
)
# Time passes in every other phase too, and what is not under way cannot be cut short.
TABLE.update(
    {
        (phase, event): Row(_stay, (phase,))
        for phase in Phase
        for event in (e.Tick, e.Abandon)
        if (phase, event) not in TABLE
    }
)
