"""The table of the lock machine: which event belongs where, and what the owner may conclude."""

from __future__ import annotations

from typing import get_args
from unittest.mock import patch

import pytest

from tests.unit.lock.bench import DEADLINE_MS, LEASE, ME, Bench, record, released
from tidelock.base.clock import Now
from tidelock.base.errors import InvariantBroken
from tidelock.base.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock.machine import TABLE, Row, step
from tidelock.lock.state import Phase, Standing, State, standing

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
def test_an_event_out_of_place_raises_and_changes_nothing(
    phase: Phase, event: type[e.Event]
) -> None:
    before = State(ME, LEASE, phase=phase)
    with pytest.raises(InvariantBroken, match=f"{event.__name__} while {phase.value}"):
        step(before, EVENTS[event])
    assert before == State(ME, LEASE, phase=phase)


def test_a_handler_that_leads_where_its_row_does_not_is_stopped() -> None:
    row = Row(lambda state, event: (state, ()), (Phase.READING,))
    with (
        patch.dict(TABLE, {(Phase.IDLE, e.Acquire): row}),
        pytest.raises(InvariantBroken, match=r"IDLE led to .*IDLE by Acquire"),
    ):
        step(State(ME, LEASE), e.Acquire(NOW))


@pytest.mark.parametrize("phase", Phase, ids=named)
def test_time_may_pass_in_every_phase(phase: Phase) -> None:
    assert (phase, e.Tick) in TABLE


@pytest.mark.parametrize("phase", Phase, ids=named)
def test_every_phase_in_which_a_request_is_under_way_can_be_cut_short(phase: Phase) -> None:
    row = TABLE[phase, e.Abandon]
    assert set(row.leads_to) <= set(RESTING)
    if phase in RESTING:
        before = State(ME, LEASE, phase=phase)
        assert step(before, e.Abandon(NOW)) == (before, ())


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in RESTING], ids=named)
def test_every_phase_that_waits_hears_an_answer(phase: Phase) -> None:
    assert {(phase, e.ReadDone), (phase, e.WriteDone)} & TABLE.keys()


@pytest.mark.parametrize("phase", RESTING, ids=named)
def test_nothing_is_answered_where_nothing_was_asked(phase: Phase) -> None:
    assert not {(phase, e.ReadDone), (phase, e.WriteDone)} & TABLE.keys()


# --- what the owner may conclude (P11) ------------------------------------------------------------


def test_held_before_the_deadline_and_lost_from_then_on() -> None:
    bench = Bench().holding()
    assert bench.at(DEADLINE_MS - 1).standing is Standing.HELD
    # L3: nobody had to notice; the question itself is answered by the clock.
    assert bench.at(DEADLINE_MS).standing is Standing.LOST
    assert bench.phase is Phase.HOLDING


def test_held_while_a_renewal_is_under_way() -> None:
    assert Bench().holding().at(1_000).renew().standing is Standing.HELD


def test_unsure_once_a_renewal_is_not_known_to_have_landed() -> None:
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


def test_lost_stays_lost_through_the_return_of_a_late_renewal() -> None:
    bench = Bench().holding().at(1_000).renew().at(DEADLINE_MS).tick()
    assert bench.standing is Standing.LOST
    assert bench.lands("v3").phase is Phase.RETURNING
    assert bench.standing is Standing.LOST
    assert bench.lands("v4").standing is Standing.LOST


def test_a_step_of_the_wall_clock_moves_no_deadline() -> None:
    # L14: the deadline is counted on the monotonic clock alone.
    bench = Bench().holding()
    for wall in (0, 10**15):
        assert standing(bench.state, Now(DEADLINE_MS - 1, wall)) is Standing.HELD
        assert standing(bench.state, Now(DEADLINE_MS, wall)) is Standing.LOST


# --- cut short ------------------------------------------------------------------------------------


def test_an_attempt_cut_short_may_have_left_a_ghost() -> None:
    bench = Bench().acquire().reads(released()).abandon()
    assert (bench.phase, bench.effects) == (Phase.IDLE, ())
    assert bench.close().request == e.ReadRecord()


def test_a_release_cut_short_holds_nothing_and_reads_first_next_time() -> None:
    bench = Bench().holding().release().abandon()
    assert (bench.phase, bench.state.grant) == (Phase.IDLE, None)
    assert bench.acquire().request == e.ReadRecord()


def test_a_renewal_cut_short_leaves_the_holding_unsure() -> None:
    bench = Bench().holding().at(1_000).renew().abandon()
    assert (bench.phase, bench.standing) == (Phase.HOLDING, Standing.UNSURE)
    assert bench.deadline_ms == DEADLINE_MS


def test_the_return_of_a_lost_record_cut_short_is_still_a_loss() -> None:
    bench = Bench().holding().at(DEADLINE_MS).release().abandon()
    assert bench.phase is Phase.LOST


def test_a_wait_cut_short_after_a_loss_is_a_loss() -> None:
    bench = Bench().holding().at(1_000).renew().owner_gone().abandon()
    assert bench.phase is Phase.LOST


def test_a_close_cut_short_is_a_close() -> None:
    assert Bench().ghostly().close().abandon().phase is Phase.CLOSED


# --- asking twice ---------------------------------------------------------------------------------


def test_a_holder_that_asks_again_is_given_the_same_token() -> None:
    # L12: no request, no other token.
    bench = Bench().holding(token=8)
    before = bench.state
    bench.at(DEADLINE_MS - 1).acquire()
    assert bench.effects == (e.Done(e.Granted(8)),)
    assert bench.state == before


def test_a_holder_that_asks_again_past_its_deadline_has_lost_and_starts_over() -> None:
    bench = Bench().holding().at(DEADLINE_MS).acquire()
    assert bench.told_lost
    assert bench.phase is Phase.READING
    bench.reads(record(ME, token=8, nonce=f"{ME}:1"), "v2")
    assert bench.written.expired  # its own old record: a ghost now
    assert bench.lands("v3").why is e.Why.GHOST
