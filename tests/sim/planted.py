"""Bugs to plant in the production code, to see that the simulator finds each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tidelock.base.clock import Clock, Now
from tidelock.base.errors import DataCorrupt
from tidelock.base.outcome import Landed
from tidelock.lock import acquiring, keeping, losing, machine, objects, releasing
from tidelock.lock import events as e
from tidelock.lock.lease import Lease
from tidelock.lock.machine import Row
from tidelock.lock.record import Record, decode
from tidelock.lock.session import Session
from tidelock.lock.state import Grant, Phase, Seen, State, Step
from tidelock.lock.waiting import Waiting
from tidelock.store.contract import Overwrite, Refused
from tidelock.testing.sim.plan import Fault

Patch = pytest.MonkeyPatch
Handler = Callable[[State, Any], Step]


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug, how the complaint about it begins, and within how many schedules it must come.

    With `needs`, only schedules with these faults are run and counted.
    """

    bug: Callable[[Patch], None]
    caught_by: tuple[str, ...]
    within: int = 100
    needs: tuple[Fault, ...] = ()

    @property
    def name(self) -> str:
        """The bug in words."""
        return self.bug.__name__.replace("_", " ")


def _wrap(
    patch: Patch,
    phase: Phase,
    event: type[e.Event],
    around: Callable[[Handler, State, Any], Step],
    *more: Phase,
) -> None:
    """Put `around` about one row of the table; it may lead to `more` phases."""
    row = machine.TABLE[phase, event]

    def handler(state: State, happened: Any) -> Step:
        return around(row.handler, state, happened)

    patch.setitem(machine.TABLE, (phase, event), Row(handler, (*row.leads_to, *more)))


# --- time -----------------------------------------------------------------------------------------


def the_deadline_counts_from_the_answer(patch: Patch) -> None:
    def around(handler: Handler, state: State, event: Any) -> Step:
        if state.sent is not None and isinstance(event.reply, Landed):
            state = state._replace(sent=replace(state.sent, at=event.now))
        return handler(state, event)

    _wrap(patch, Phase.TAKING, e.WriteDone, around)
    _wrap(patch, Phase.RENEWING, e.WriteDone, around)


def the_holder_keeps_no_margin(patch: Patch) -> None:
    patch.setattr(Lease, "margin_ms", 0)


def the_record_promises_less_than_its_holder_believes(patch: Patch) -> None:
    def valid_until(lease: Lease, now: Now) -> int:
        return now.wall_epoch_ms + lease.validity_ms // 10

    patch.setattr(Lease, "valid_until_epoch_ms", valid_until)


def the_taker_allows_for_no_drift(patch: Patch) -> None:
    def dead_after(lease: Lease, record: Record) -> int:
        return record.valid_until_epoch_ms + lease.grace_ms

    patch.setattr(Lease, "dead_after_epoch_ms", dead_after)


def the_deadline_is_kept_on_the_wall_clock(patch: Patch) -> None:
    class WallOnly:
        def __init__(self, clock: Clock) -> None:
            self._clock = clock
            self.sleep_ms = clock.sleep_ms

        def now(self) -> Now:
            wall_ms = self._clock.now().wall_epoch_ms
            return Now(wall_ms, wall_ms)

    init = Session.__init__

    def with_wall(self: Session, lease: Lease, *, clock: Clock, **options: Any) -> None:
        init(self, lease, clock=WallOnly(clock), **options)

    patch.setattr(Session, "__init__", with_wall)


def the_taker_waits_twice_as_long(patch: Patch) -> None:
    def dead_after(lease: Lease, record: Record) -> int:
        return record.valid_until_epoch_ms + lease.drift_ms + lease.grace_ms + lease.validity_ms

    patch.setattr(Lease, "dead_after_epoch_ms", dead_after)


def a_waiter_sleeps_for_a_minute(patch: Patch) -> None:
    patch.setattr(Waiting, "pause_ms", lambda *_: 60_000.0)


# --- keeping --------------------------------------------------------------------------------------


def a_refused_renewal_is_not_read_back(patch: Patch) -> None:
    def around(handler: Handler, state: State, event: Any) -> Step:
        if not isinstance(event.reply, Refused):
            return handler(state, event)
        after, effects = losing.lose(state, "refused")
        return after, (*effects, e.Done(e.Lost("refused")))

    _wrap(patch, Phase.RENEWING, e.WriteDone, around)


def an_adopted_record_is_not_renewed_again(patch: Patch) -> None:
    def around(handler: Handler, state: State, event: Any) -> Step:
        match event.reading:
            case e.Found(version, record) if keeping.is_our_grant(state, record):
                deadline = state.lease.deadline_monotonic_ms(event.now)
                after = state._replace(
                    phase=Phase.HOLDING, grant=Grant(version, record, deadline), tries=0
                )
                return after, (e.Done(e.Renewed()),)
            case _:
                return handler(state, event)

    _wrap(patch, Phase.RECHECKING, e.ReadDone, around)


def a_renewal_is_sent_past_the_deadline(patch: Patch) -> None:
    def around(handler: Handler, state: State, event: Any) -> Step:
        assert state.grant is not None
        endless = replace(state.grant, deadline_monotonic_ms=10**18)
        after, effects = handler(state._replace(grant=endless), event)
        return after._replace(grant=state.grant), effects

    _wrap(patch, Phase.HOLDING, e.Renew, around)


def a_renewal_carries_no_condition(patch: Patch) -> None:
    def around(handler: Handler, state: State, event: Any) -> Step:
        return _unconditional(handler(state, event))

    _wrap(patch, Phase.HOLDING, e.Renew, around)


def the_heartbeat_ignores_the_death_of_its_thread(patch: Patch) -> None:
    patch.setattr(Session, "owner_gone", lambda *_: None)


def a_renewal_that_lands_after_lost_is_believed(patch: Patch) -> None:
    def around(handler: Handler, state: State, event: Any) -> Step:
        if not isinstance(event.reply, Landed) or state.sent is None:
            return handler(state, event)
        deadline = state.lease.deadline_monotonic_ms(state.sent.at)
        grant = Grant(event.reply.version, state.sent.record, deadline)
        after = state._replace(phase=Phase.HOLDING, grant=grant, sent=None, lost_cause="")
        return after, (e.Done(e.Renewed()),)

    _wrap(patch, Phase.LOST_WAITING, e.WriteDone, around, Phase.HOLDING)


def a_passed_deadline_goes_unnoticed(patch: Patch) -> None:
    for phase in (Phase.HOLDING, Phase.RENEWING, Phase.RECHECKING):
        _wrap(patch, phase, e.Tick, lambda _, state, __: (state, ()))


def a_forced_release_is_taken_back(patch: Patch) -> None:
    def is_our_grant(state: State, record: Record) -> bool:
        assert state.grant is not None
        return record.owner == state.owner and record.token == state.grant.record.token

    patch.setattr(keeping, "is_our_grant", is_our_grant)


# --- acquiring ------------------------------------------------------------------------------------


def asking_again_acquires_again(patch: Patch) -> None:
    _wrap(patch, Phase.HOLDING, e.Acquire, lambda _, state, event: acquiring.acquire(state, event))


def a_grant_is_concluded_from_a_read(patch: Patch) -> None:
    def around(handler: Handler, state: State, event: Any) -> Step:
        match event.reading:
            case e.Found(version, record) if state.sent and record.nonce == state.sent.record.nonce:
                return acquiring._granted(state, Seen(version, record), event.now)
            case _:
                return handler(state, event)

    _wrap(patch, Phase.JUDGING, e.ReadDone, around, Phase.HOLDING)


def the_token_stands_only_in_the_record(patch: Patch) -> None:
    def take(state: State, now: Now, *, on_cached: bool = False) -> Step:
        token = 1 + (state.target.record.token if state.target else 0)
        return acquiring._take(state, now, token=token, ceiling=10**9, on_cached=on_cached)

    def around(handler: Handler, state: State, event: Any) -> Step:
        if isinstance(event.reading, e.Absent):
            return take(state._replace(target=None), event.now)
        return handler(state, event)

    patch.setattr(acquiring, "_take_or_reserve", take)
    _wrap(patch, Phase.READING, e.ReadDone, around)


def a_new_range_is_not_confirmed(patch: Patch) -> None:
    def around(_: Handler, state: State, event: Any) -> Step:
        assert state.target is not None
        return acquiring._granted(state, state.target, event.now)

    _wrap(patch, Phase.CONFIRMING, e.ReadDone, around)


def an_unconfirmed_range_is_offered(patch: Patch) -> None:
    take = acquiring._take

    def offering(state: State, now: Now, *, ceiling: int, **how: Any) -> Step:
        ceiling = state.ceiling if how.get("new_range") else ceiling
        return take(state, now, ceiling=ceiling, **how)

    patch.setattr(acquiring, "_take", offering)


def a_grant_does_not_raise_the_token(patch: Patch) -> None:
    take = acquiring._take

    def again(state: State, now: Now, *, token: int, **how: Any) -> Step:
        return take(state, now, token=max(1, token - 1), **how)

    patch.setattr(acquiring, "_take", again)


def a_ghost_is_not_released(patch: Patch) -> None:
    patch.setattr(acquiring, "is_ghost", lambda *_: False)


def every_write_carries_the_same_nonce(patch: Patch) -> None:
    patch.setattr(State, "next_nonce", lambda state: f"{state.owner}:1")


def garbage_is_taken_for_a_released_record(patch: Patch) -> None:
    def lenient(body: bytes) -> Record:
        try:
            return decode(body)
        except DataCorrupt:
            return Record(expired=True, valid_until_epoch_ms=0, owner="")

    patch.setattr(objects, "decode", lenient)


def garbage_is_waited_for(patch: Patch) -> None:
    def around(handler: Handler, state: State, event: Any) -> Step:
        if isinstance(event.reading, e.Unreadable):
            return acquiring._not_acquired(state, e.NotAcquired(e.Why.UNAVAILABLE))
        return handler(state, event)

    _wrap(patch, Phase.READING, e.ReadDone, around)


# --- releasing ------------------------------------------------------------------------------------


def a_release_carries_no_condition(patch: Patch) -> None:
    release = releasing.release
    patch.setattr(releasing, "release", lambda state, event: _unconditional(release(state, event)))


def a_refused_release_counts_as_released(patch: Patch) -> None:
    def around(handler: Handler, state: State, event: Any) -> Step:
        if isinstance(event.reply, Refused):
            return releasing._free(state, e.Released(), event.now, None)
        return handler(state, event)

    _wrap(patch, Phase.RELEASING, e.WriteDone, around)


def closing_looks_for_nothing(patch: Patch) -> None:
    def around(_: Handler, state: State, event: Any) -> Step:
        return state._replace(phase=Phase.CLOSED), (e.Done(e.Closed()),)

    _wrap(patch, Phase.IDLE, e.Close, around)
    _wrap(patch, Phase.LOST, e.Close, around)


def what_could_not_be_given_back_is_forgotten(patch: Patch) -> None:
    def around(handler: Handler, state: State, event: Any) -> Step:
        after, effects = handler(state, event)
        return after._replace(doubtful=after.doubtful and state.doubtful), effects

    _wrap(patch, Phase.RETURNING, e.WriteDone, around)


def a_refusal_that_could_not_be_read_back_is_forgotten(patch: Patch) -> None:
    def around(handler: Handler, state: State, event: Any) -> Step:
        after, effects = handler(state, event)
        return after._replace(doubtful=after.doubtful and state.doubtful), effects

    _wrap(patch, Phase.JUDGING, e.ReadDone, around)


def _unconditional(done: Step) -> Step:
    after, effects = done
    return after, tuple(
        e.WriteRecord(Overwrite(), effect.record) if isinstance(effect, e.WriteRecord) else effect
        for effect in effects
    )


_RARE = 1_500

PLANTS = (
    Plant(the_deadline_counts_from_the_answer, ("L3", "L7", "L11", "L14")),
    Plant(the_holder_keeps_no_margin, ("L3", "L7", "L11")),
    Plant(the_record_promises_less_than_its_holder_believes, ("exclusion",)),
    Plant(the_taker_allows_for_no_drift, ("L2",)),
    Plant(the_deadline_is_kept_on_the_wall_clock, ("L3", "L7", "L11", "L14")),
    Plant(the_taker_waits_twice_as_long, ("L9",)),
    Plant(a_waiter_sleeps_for_a_minute, ("L9",)),
    Plant(a_refused_renewal_is_not_read_back, ("L5",)),
    Plant(an_adopted_record_is_not_renewed_again, ("L3", "L6")),
    Plant(a_renewal_is_sent_past_the_deadline, ("L11",)),
    Plant(a_renewal_carries_no_condition, ("L1", "L2", "L4")),
    Plant(the_heartbeat_ignores_the_death_of_its_thread, ("L10",)),
    Plant(a_renewal_that_lands_after_lost_is_believed, ("L3", "L5", "L6", "L7"), within=400),
    Plant(a_passed_deadline_goes_unnoticed, ("L7",)),
    Plant(a_forced_release_is_taken_back, ("the machine stopped itself: L4", "L4")),
    Plant(asking_again_acquires_again, ("L5", "L12", "P16"), within=400),
    Plant(a_grant_is_concluded_from_a_read, ("L5",)),
    Plant(the_token_stands_only_in_the_record, ("L1",)),
    Plant(a_new_range_is_not_confirmed, ("L1",), within=_RARE, needs=(Fault.DELETED,)),
    Plant(an_unconfirmed_range_is_offered, ("L1",), within=_RARE, needs=(Fault.DELETED,)),
    Plant(a_grant_does_not_raise_the_token, ("the machine stopped itself: L1", "L1")),
    Plant(a_ghost_is_not_released, ("L5", "P16")),
    Plant(every_write_carries_the_same_nonce, ("the machine stopped itself: P3", "P3")),
    Plant(garbage_is_taken_for_a_released_record, ("L8",), needs=(Fault.GARBAGE,)),
    Plant(garbage_is_waited_for, ("L8",), needs=(Fault.GARBAGE,)),
    Plant(a_release_carries_no_condition, ("L1", "L4")),
    Plant(a_refused_release_counts_as_released, ("L5",)),
    Plant(closing_looks_for_nothing, ("P18",)),
    Plant(what_could_not_be_given_back_is_forgotten, ("P18",), within=_RARE),
    Plant(
        a_refusal_that_could_not_be_read_back_is_forgotten,
        ("P18",),
        within=_RARE,
        needs=(Fault.TWICE,),
    ),
)
