"""Planted bugs in the production code; the simulator must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from testkit.sim.plan import Fault
from tests.simulation import PlantedBug
from tidelock.core.clock import Clock, Now
from tidelock.core.errors import DataCorrupt
from tidelock.core.outcome import Landed
from tidelock.lock import acquire, machine, record_store, renew
from tidelock.lock import events as e
from tidelock.lock import release as releasing
from tidelock.lock.backoff import WaitHistory
from tidelock.lock.lease import Lease
from tidelock.lock.machine import TransitionRow
from tidelock.lock.record import LockRecord, decode
from tidelock.lock.session import LockSession
from tidelock.lock.state import Grant, LockClientState, Phase, SeenRecord, Step
from tidelock.storage.contract import Overwrite, Refused

Patch = pytest.MonkeyPatch
Handler = Callable[[LockClientState, Any], Step]


def _wrap(
    patch: Patch,
    phase: Phase,
    event: type[e.Event],
    around: Callable[[Handler, LockClientState, Any], Step],
    *more: Phase,
) -> None:
    """Wrap the handler of one table row in `around`; it may lead to `more` phases."""
    row = machine.TABLE[phase, event]

    def handler(state: LockClientState, happened: Any) -> Step:
        return around(row.handler, state, happened)

    patch.setitem(machine.TABLE, (phase, event), TransitionRow(handler, (*row.leads_to, *more)))


# --- time -----------------------------------------------------------------------------------------


def the_deadline_counts_from_the_reply(patch: Patch) -> None:
    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        if state.sent is not None and isinstance(event.reply, Landed):
            state = state._replace(sent=replace(state.sent, at=event.now))
        return handler(state, event)

    _wrap(patch, Phase.TAKING, e.WriteDone, around)
    _wrap(patch, Phase.RENEWING, e.WriteDone, around)


def the_holder_has_no_margin(patch: Patch) -> None:
    patch.setattr(Lease, "margin_ms", 0)


def the_record_expires_before_the_holder_assumes(patch: Patch) -> None:
    def valid_until(lease: Lease, now: Now) -> int:
        return now.wall_epoch_ms + lease.validity_ms // 10

    patch.setattr(Lease, "valid_until_epoch_ms", valid_until)


def the_contender_allows_for_no_drift(patch: Patch) -> None:
    def dead_after(lease: Lease, record: LockRecord) -> int:
        return record.valid_until_epoch_ms + lease.grace_ms

    patch.setattr(Lease, "dead_after_epoch_ms", dead_after)


def the_deadline_uses_the_wall_clock(patch: Patch) -> None:
    class WallOnly:
        def __init__(self, clock: Clock) -> None:
            self._clock = clock
            self.sleep_ms = clock.sleep_ms

        def now(self) -> Now:
            wall_ms = self._clock.now().wall_epoch_ms
            return Now(wall_ms, wall_ms)

    init = LockSession.__init__

    def with_wall(self: LockSession, lease: Lease, *, clock: Clock, **options: Any) -> None:
        init(self, lease, clock=WallOnly(clock), **options)

    patch.setattr(LockSession, "__init__", with_wall)


def the_contender_waits_twice_as_long(patch: Patch) -> None:
    def dead_after(lease: Lease, record: LockRecord) -> int:
        return record.valid_until_epoch_ms + lease.drift_ms + lease.grace_ms + lease.validity_ms

    patch.setattr(Lease, "dead_after_epoch_ms", dead_after)


def a_waiter_sleeps_for_a_minute(patch: Patch) -> None:
    patch.setattr(WaitHistory, "pause_ms", lambda *_: 60_000.0)


# --- renewing -------------------------------------------------------------------------------------


def a_refused_renewal_is_not_read_back(patch: Patch) -> None:
    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        if not isinstance(event.reply, Refused):
            return handler(state, event)
        after, effects = renew.lose(state, "refused")
        return after, (*effects, e.OperationDone(e.LockLost("refused")))

    _wrap(patch, Phase.RENEWING, e.WriteDone, around)


def an_adopted_record_is_not_renewed_again(patch: Patch) -> None:
    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        match event.reply:
            case e.Found(version, record) if renew.is_our_grant(state, record):
                deadline = state.lease.deadline_monotonic_ms(event.now)
                after = state._replace(
                    phase=Phase.HOLDING, grant=Grant(version, record, deadline), tries=0
                )
                return after, (e.OperationDone(e.Renewed()),)
            case _:
                return handler(state, event)

    _wrap(patch, Phase.RECHECKING, e.ReadDone, around)


def a_renewal_is_sent_past_the_deadline(patch: Patch) -> None:
    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        assert state.grant is not None
        endless = replace(state.grant, deadline_monotonic_ms=10**18)
        after, effects = handler(state._replace(grant=endless), event)
        return after._replace(grant=state.grant), effects

    _wrap(patch, Phase.HOLDING, e.Renew, around)


def a_renewal_is_unconditional(patch: Patch) -> None:
    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        return _unconditional(handler(state, event))

    _wrap(patch, Phase.HOLDING, e.Renew, around)


def the_heartbeat_ignores_the_end_of_its_thread(patch: Patch) -> None:
    patch.setattr(LockSession, "owner_gone", lambda *_: None)


def a_renewal_that_lands_after_lost_is_accepted(patch: Patch) -> None:
    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        if not isinstance(event.reply, Landed) or state.sent is None:
            return handler(state, event)
        deadline = state.lease.deadline_monotonic_ms(state.sent.at)
        grant = Grant(event.reply.version, state.sent.record, deadline)
        after = state._replace(phase=Phase.HOLDING, grant=grant, sent=None, lost_cause="")
        return after, (e.OperationDone(e.Renewed()),)

    _wrap(patch, Phase.LOST_WAITING, e.WriteDone, around, Phase.HOLDING)


def a_passed_deadline_goes_unnoticed(patch: Patch) -> None:
    for phase in (Phase.HOLDING, Phase.RENEWING, Phase.RECHECKING):
        _wrap(patch, phase, e.Tick, lambda _, state, __: (state, ()))


def a_forced_release_is_reverted(patch: Patch) -> None:
    def is_our_grant(state: LockClientState, record: LockRecord) -> bool:
        assert state.grant is not None
        return record.owner == state.owner and record.token == state.grant.record.token

    patch.setattr(renew, "is_our_grant", is_our_grant)


# --- acquiring ------------------------------------------------------------------------------------


def acquiring_twice_sends_two_requests(patch: Patch) -> None:
    _wrap(patch, Phase.HOLDING, e.Acquire, lambda _, state, event: acquire.acquire(state, event))


def a_grant_is_concluded_from_a_read(patch: Patch) -> None:
    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        match event.reply:
            case e.Found(version, record) if state.sent and record.nonce == state.sent.record.nonce:
                return acquire._granted(state, SeenRecord(version, record), event.now)
            case _:
                return handler(state, event)

    _wrap(patch, Phase.VERIFYING_GRANT, e.ReadDone, around, Phase.HOLDING)


def the_token_is_stored_only_in_the_record(patch: Patch) -> None:
    def take(state: LockClientState, now: Now, *, on_cached: bool = False) -> Step:
        token = 1 + (state.target.record.token if state.target else 0)
        return acquire._take(state, now, token=token, ceiling=10**9, on_cached=on_cached)

    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        if isinstance(event.reply, e.Absent):
            return take(state._replace(target=None), event.now)
        return handler(state, event)

    patch.setattr(acquire, "_take_or_reserve", take)
    _wrap(patch, Phase.READING, e.ReadDone, around)


def a_new_range_is_not_confirmed(patch: Patch) -> None:
    def around(_: Handler, state: LockClientState, event: Any) -> Step:
        assert state.target is not None
        return acquire._granted(state, state.target, event.now)

    _wrap(patch, Phase.CONFIRMING, e.ReadDone, around)


def an_unconfirmed_range_is_offered(patch: Patch) -> None:
    take = acquire._take

    def offering(state: LockClientState, now: Now, *, ceiling: int, **how: Any) -> Step:
        ceiling = state.ceiling if how.get("new_range") else ceiling
        return take(state, now, ceiling=ceiling, **how)

    patch.setattr(acquire, "_take", offering)


def a_grant_does_not_raise_the_token(patch: Patch) -> None:
    take = acquire._take

    def again(state: LockClientState, now: Now, *, token: int, **how: Any) -> Step:
        return take(state, now, token=max(1, token - 1), **how)

    patch.setattr(acquire, "_take", again)


def a_ghost_is_not_released(patch: Patch) -> None:
    patch.setattr(acquire, "is_ghost", lambda *_: False)


def every_write_has_the_same_nonce(patch: Patch) -> None:
    patch.setattr(LockClientState, "next_nonce", lambda state: f"{state.owner}:1")


def garbage_is_taken_for_a_released_record(patch: Patch) -> None:
    def lenient(body: bytes) -> LockRecord:
        try:
            return decode(body)
        except DataCorrupt:
            return LockRecord(expired=True, valid_until_epoch_ms=0, owner="")

    patch.setattr(record_store, "decode", lenient)


def garbage_is_waited_for(patch: Patch) -> None:
    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        if isinstance(event.reply, e.Unreadable):
            return acquire._not_acquired(state, e.NotAcquired(e.NotAcquiredReason.UNAVAILABLE))
        return handler(state, event)

    _wrap(patch, Phase.READING, e.ReadDone, around)


# --- releasing ------------------------------------------------------------------------------------


def a_release_is_unconditional(patch: Patch) -> None:
    release = releasing.release
    patch.setattr(releasing, "release", lambda state, event: _unconditional(release(state, event)))


def a_refused_release_counts_as_released(patch: Patch) -> None:
    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        if isinstance(event.reply, Refused):
            return releasing._free(state, e.Released(), event.now, None)
        return handler(state, event)

    _wrap(patch, Phase.RELEASING, e.WriteDone, around)


def closing_reads_nothing(patch: Patch) -> None:
    def around(_: Handler, state: LockClientState, event: Any) -> Step:
        return state._replace(phase=Phase.CLOSED), (e.OperationDone(e.Closed()),)

    _wrap(patch, Phase.IDLE, e.Close, around)
    _wrap(patch, Phase.LOST, e.Close, around)


def a_record_that_was_not_released_is_forgotten(patch: Patch) -> None:
    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        after, effects = handler(state, event)
        return after._replace(ghost_possible=after.ghost_possible and state.ghost_possible), effects

    _wrap(patch, Phase.DISCARDING, e.WriteDone, around)


def a_refusal_that_was_not_read_back_is_forgotten(patch: Patch) -> None:
    def around(handler: Handler, state: LockClientState, event: Any) -> Step:
        after, effects = handler(state, event)
        return after._replace(ghost_possible=after.ghost_possible and state.ghost_possible), effects

    _wrap(patch, Phase.VERIFYING_GRANT, e.ReadDone, around)


def _unconditional(done: Step) -> Step:
    after, effects = done
    return after, tuple(
        e.WriteRecord(Overwrite(), effect.record) if isinstance(effect, e.WriteRecord) else effect
        for effect in effects
    )


_RARE = 1_500

PLANTS = (
    PlantedBug(the_deadline_counts_from_the_reply, ("L3", "L7", "L11", "L14")),
    PlantedBug(the_holder_has_no_margin, ("L3", "L7", "L11")),
    PlantedBug(the_record_expires_before_the_holder_assumes, ("exclusion",)),
    PlantedBug(the_contender_allows_for_no_drift, ("L2",)),
    PlantedBug(the_deadline_uses_the_wall_clock, ("L3", "L7", "L11", "L14")),
    PlantedBug(the_contender_waits_twice_as_long, ("L9",)),
    PlantedBug(a_waiter_sleeps_for_a_minute, ("L9",)),
    PlantedBug(a_refused_renewal_is_not_read_back, ("L5",)),
    PlantedBug(an_adopted_record_is_not_renewed_again, ("L3", "L6")),
    PlantedBug(a_renewal_is_sent_past_the_deadline, ("L11",)),
    PlantedBug(a_renewal_is_unconditional, ("L1", "L2", "L4")),
    PlantedBug(the_heartbeat_ignores_the_end_of_its_thread, ("L10",)),
    PlantedBug(a_renewal_that_lands_after_lost_is_accepted, ("L3", "L5", "L6", "L7"), within=400),
    PlantedBug(a_passed_deadline_goes_unnoticed, ("L7",)),
    PlantedBug(a_forced_release_is_reverted, ("invariant broken: L4", "L4")),
    PlantedBug(acquiring_twice_sends_two_requests, ("L5", "L12", "P16"), within=400),
    PlantedBug(a_grant_is_concluded_from_a_read, ("L5",)),
    PlantedBug(the_token_is_stored_only_in_the_record, ("L1",)),
    PlantedBug(a_new_range_is_not_confirmed, ("L1",), within=_RARE, needs=(Fault.DELETED,)),
    PlantedBug(an_unconfirmed_range_is_offered, ("L1",), within=_RARE, needs=(Fault.DELETED,)),
    PlantedBug(a_grant_does_not_raise_the_token, ("invariant broken: L1", "L1")),
    PlantedBug(a_ghost_is_not_released, ("L5", "P16")),
    PlantedBug(every_write_has_the_same_nonce, ("invariant broken: P3", "P3")),
    PlantedBug(garbage_is_taken_for_a_released_record, ("L8",), needs=(Fault.GARBAGE,)),
    PlantedBug(garbage_is_waited_for, ("L8",), needs=(Fault.GARBAGE,)),
    PlantedBug(a_release_is_unconditional, ("L1", "L4")),
    PlantedBug(a_refused_release_counts_as_released, ("L5",)),
    PlantedBug(closing_reads_nothing, ("P18",)),
    PlantedBug(a_record_that_was_not_released_is_forgotten, ("P18",), within=_RARE),
    PlantedBug(
        a_refusal_that_was_not_read_back_is_forgotten,
        ("P18",),
        within=_RARE,
        needs=(Fault.TWICE,),
    ),
)
