"""The transition table of the lock machine: events by phase, and the state of the owner."""

from __future__ import annotations

from typing import get_args
from unittest.mock import patch

import pytest

from tests.unit.lock.machine_driver import DEADLINE_MS, LEASE, ME, Bench, record, released
from tidelock.core.clock import Now
from tidelock.core.errors import InvariantBroken
from tidelock.core.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock.machine import TABLE, TransitionRow, step
from tidelock.lock.state import LockClientState, Phase, Standing, standing

NOW = Now(0, 0)
EVENTS: dict[type[e.Event], e.Event] = {
    e.Acquire: e.Acquire(NOW),
    e.Renew: e.Renew(NOW),
    e.Release: e.Release(NOW),
    e.Close: e.Close(NOW),
    e.Tick: e.Tick(NOW),
    e.OwnerGone: e.OwnerGone(NOW, "gone"),
    e.Abandon: e.Abandon(NOW),
    e.ReadDone: e.ReadDone(NOW, e.Absent()),
    e.WriteDone: e.WriteDone(NOW, Landed("v")),
}
RESTING = (Phase.IDLE, Phase.HOLDING, Phase.LOST, Phase.CLOSED)
MISPLACED = [
    (phase, event) for phase in Phase for event in get_args(e.Event) if (phase, event) not in TABLE
]


def named(value: object) -> str:
    return value.name if isinstance(value, Phase) else getattr(value, "__name__", str(value))


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("phase", "event"), MISPLACED, ids=named)
def test_event_in_the_wrong_phase_raises_and_changes_nothing(
    phase: Phase, event: type[e.Event]
) -> None:
    before = LockClientState(ME, LEASE, phase=phase)
    with pytest.raises(InvariantBroken, match=f"{event.__name__} while {phase.value}"):
        step(before, EVENTS[event])
    assert before == LockClientState(ME, LEASE, phase=phase)


def test_handler_that_leads_to_an_undeclared_phase_is_stopped() -> None:
    row = TransitionRow(lambda state, event: (state, ()), (Phase.READING,))
    with (
        patch.dict(TABLE, {(Phase.IDLE, e.Acquire): row}),
        pytest.raises(InvariantBroken, match=r"IDLE led to .*IDLE by Acquire"),
    ):
        step(LockClientState(ME, LEASE), e.Acquire(NOW))


@pytest.mark.parametrize("phase", Phase, ids=named)
def test_time_can_pass_in_every_phase(phase: Phase) -> None:
    assert (phase, e.Tick) in TABLE


@pytest.mark.parametrize("phase", Phase, ids=named)
def test_every_phase_with_a_request_in_flight_can_be_abandoned(phase: Phase) -> None:
    row = TABLE[phase, e.Abandon]
    assert set(row.leads_to) <= set(RESTING)
    if phase in RESTING:
        before = LockClientState(ME, LEASE, phase=phase)
        assert step(before, e.Abandon(NOW)) == (before, ())


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in RESTING], ids=named)
def test_every_waiting_phase_accepts_a_reply(phase: Phase) -> None:
    assert {(phase, e.ReadDone), (phase, e.WriteDone)} & TABLE.keys()


@pytest.mark.parametrize("phase", RESTING, ids=named)
def test_replies_are_accepted_only_after_a_request(phase: Phase) -> None:
    assert not {(phase, e.ReadDone), (phase, e.WriteDone)} & TABLE.keys()


# --- state of the owner (P11) ---------------------------------------------------------------------


def test_held_before_the_deadline_and_lost_from_then_on() -> None:
    bench = Bench().holding()
    assert bench.at(DEADLINE_MS - 1).standing is Standing.HELD
    # L3: no event was needed; the check itself uses the clock.
    assert bench.at(DEADLINE_MS).standing is Standing.LOST
    assert bench.phase is Phase.HOLDING


def test_held_while_a_renewal_is_in_flight() -> None:
    assert Bench().holding().at(1_000).renew().standing is Standing.HELD


def test_unsure_once_a_renewal_is_unclear() -> None:
    bench = Bench().holding().at(1_000).renew().unclear()
    assert bench.standing is Standing.UNSURE
    assert bench.at(DEADLINE_MS).standing is Standing.LOST


def test_unsure_while_a_refused_renewal_is_read_back() -> None:
    bench = Bench().holding().at(1_000).renew().refused()
    assert bench.phase is Phase.RECHECKING
    assert bench.standing is Standing.UNSURE


def test_held_again_once_a_renewal_lands() -> None:
    bench = Bench().holding().at(1_000).renew().unclear().at(1_100).renew().lands("v3")
    assert bench.standing is Standing.HELD


def test_free_while_idle_and_during_an_attempt_and_a_release() -> None:
    bench = Bench()
    assert bench.standing is Standing.FREE
    assert bench.acquire().standing is Standing.FREE
    assert bench.reads(released()).standing is Standing.FREE
    assert bench.lands().release().standing is Standing.FREE


def test_lost_stays_lost_through_the_release_of_a_late_renewal() -> None:
    bench = Bench().holding().at(1_000).renew().at(DEADLINE_MS).tick()
    assert bench.standing is Standing.LOST
    assert bench.lands("v3").phase is Phase.DISCARDING
    assert bench.standing is Standing.LOST
    assert bench.lands("v4").standing is Standing.LOST


def test_wall_clock_step_moves_no_deadline() -> None:
    # L14: the deadline is counted on the monotonic clock alone.
    bench = Bench().holding()
    for wall in (0, 10**15):
        assert standing(bench.state, Now(DEADLINE_MS - 1, wall)) is Standing.HELD
        assert standing(bench.state, Now(DEADLINE_MS, wall)) is Standing.LOST


# --- abandoned operations -------------------------------------------------------------------------


def test_abandoned_attempt_may_have_left_a_ghost() -> None:
    bench = Bench().acquire().reads(released()).abandon()
    assert (bench.phase, bench.effects) == (Phase.IDLE, ())
    assert bench.close().request == e.ReadRecord()


def test_abandoned_release_holds_nothing_and_reads_first_next_time() -> None:
    bench = Bench().holding().release().abandon()
    assert (bench.phase, bench.state.grant) == (Phase.IDLE, None)
    assert bench.acquire().request == e.ReadRecord()


def test_abandoned_renewal_leaves_the_holding_unsure() -> None:
    bench = Bench().holding().at(1_000).renew().abandon()
    assert (bench.phase, bench.standing) == (Phase.HOLDING, Standing.UNSURE)
    assert bench.deadline_ms == DEADLINE_MS


def test_abandoned_release_of_a_lost_record_is_still_a_loss() -> None:
    bench = Bench().holding().at(DEADLINE_MS).release().abandon()
    assert bench.phase is Phase.LOST


def test_abandoned_wait_after_a_loss_is_a_loss() -> None:
    bench = Bench().holding().at(1_000).renew().owner_gone().abandon()
    assert bench.phase is Phase.LOST


def test_abandoned_close_is_a_close() -> None:
    assert Bench().ghostly().close().abandon().phase is Phase.CLOSED


# --- repeated acquire -----------------------------------------------------------------------------


def test_repeated_acquire_by_the_holder_returns_the_same_token() -> None:
    # L12: no request, no other token.
    bench = Bench().holding(token=8)
    before = bench.state
    bench.at(DEADLINE_MS - 1).acquire()
    assert bench.effects == (e.OperationDone(e.Granted(8)),)
    assert bench.state == before


def test_repeated_acquire_past_the_deadline_is_a_loss_and_starts_over() -> None:
    bench = Bench().holding().at(DEADLINE_MS).acquire()
    assert bench.told_lost
    assert bench.phase is Phase.READING
    bench.reads(record(ME, token=8, nonce=f"{ME}:1"), "v2")
    assert bench.written.expired  # its own old record: a ghost now
    assert bench.lands("v3").reason is e.NotAcquiredReason.GHOST
