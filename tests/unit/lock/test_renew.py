"""Renewing and losing a lock: rules P20-P23 and P29."""

from __future__ import annotations

import pytest

from tests.unit.lock.machine_driver import (
    DEADLINE_MS,
    EPOCH_MS,
    LEASE,
    ME,
    OTHER,
    Bench,
    record,
    released,
)
from tidelock.lock import events as e
from tidelock.lock.record import PreviousRecord
from tidelock.lock.state import Phase, Standing

RENEW_AT_MS = 1_000
DENIED = ("unclear", "busy")


def renewing() -> Bench:
    return Bench().holding(token=8).at(RENEW_AT_MS).renew()


def test_renewal_extends_the_record_on_the_version_last_written() -> None:
    bench = renewing()
    assert bench.on_version == "v2"
    assert bench.written.valid_until_epoch_ms == EPOCH_MS + RENEW_AT_MS + LEASE.validity_ms
    assert (bench.written.owner, bench.written.token, bench.written.expired) == (ME, 8, False)
    assert bench.written.previous == PreviousRecord(ME, f"{ME}:1", 8, expired=False)


def test_landed_renewal_moves_the_deadline_from_its_request() -> None:
    bench = renewing().at(RENEW_AT_MS + 400).lands("v3")
    assert (bench.result, bench.deadline_ms) == (e.Renewed(), RENEW_AT_MS + DEADLINE_MS)
    assert bench.audited == [("RENEW", RENEW_AT_MS)]
    assert bench.at(2_000).renew().on_version == "v3"


# --- P20 ------------------------------------------------------------------------------------------


def test_p20_renewal_is_sent_just_before_the_deadline() -> None:
    bench = Bench().holding().at(DEADLINE_MS - 1).renew()
    assert isinstance(bench.request, e.WriteRecord)


def test_p20_no_renewal_is_sent_at_the_deadline() -> None:
    bench = Bench().holding().at(DEADLINE_MS).renew()
    assert (bench.request, bench.phase, bench.told_lost) == (None, Phase.LOST, True)
    assert isinstance(bench.result, e.LockLost)


def test_p20_no_renewal_is_sent_after_release() -> None:
    bench = Bench().holding().release().lands("v3").renew()
    assert bench.effects == (e.OperationDone(e.LockLost("the lock is not held")),)
    assert bench.phase is Phase.IDLE


def test_p20_no_renewal_is_sent_after_close() -> None:
    bench = Bench().holding().release().lands("v3").close().renew()
    assert bench.effects == (e.OperationDone(e.LockLost("the lock is not held")),)


def test_p20_no_renewal_is_sent_once_the_owning_thread_has_ended() -> None:
    bench = Bench().holding().owner_gone()
    assert (bench.phase, bench.told_lost, bench.request) == (Phase.LOST, True, None)
    assert bench.at(RENEW_AT_MS).renew().effects == (
        e.OperationDone(e.LockLost("the thread ended")),
    )


def test_p20_no_renewal_is_resent_after_a_read_back_at_the_deadline() -> None:
    bench = renewing().refused().at(DEADLINE_MS).reads(record(ME, token=8), "v9")
    assert (bench.request, bench.phase) == (None, Phase.LOST)


# --- P21 ------------------------------------------------------------------------------------------


def test_p21_refused_renewal_is_read_back() -> None:
    bench = renewing().refused()
    assert (bench.request, bench.standing) == (e.ReadRecord(), Standing.UNSURE)


def test_p21_our_own_record_is_adopted_and_the_renewal_resent() -> None:
    bench = renewing().refused().at(1_200).reads(record(ME, token=8, nonce=f"{ME}:2"), "v9")
    assert (bench.on_version, bench.standing) == ("v9", Standing.UNSURE)
    assert bench.written.previous == PreviousRecord(ME, f"{ME}:2", 8, expired=False)


def test_p21_deadline_moves_only_when_that_lands() -> None:
    bench = renewing().refused().at(1_200).reads(record(ME, token=8), "v9")
    assert bench.deadline_ms == DEADLINE_MS
    assert bench.lands("v10").deadline_ms == 1_200 + DEADLINE_MS
    assert bench.standing is Standing.HELD


@pytest.mark.parametrize(
    "reply",
    [
        record(OTHER, token=9),
        record(ME, token=7),
        released(ME, token=8, nonce="operator:1"),
        record(ME, token=8, nonce="operator:1"),
        e.Absent(),
        e.Unreadable("not JSON"),
    ],
    ids=["another's", "an older token", "released by force", "edited", "deleted", "unreadable"],
)
def test_p21_anything_else_is_lost_at_once(reply: e.ReadReply) -> None:
    bench = renewing().refused().reads(reply)
    assert (bench.phase, bench.standing) == (Phase.LOST, Standing.LOST)
    assert (bench.told_lost, bench.request) == (True, None)
    assert bench.counted == ["lock.acquired.others.error"]
    assert isinstance(bench.result, e.LockLost)


def test_owner_is_told_who_took_the_lock() -> None:
    assert renewing().refused().reads(record("spark-7", token=9)).result == e.LockLost(
        "the record now belongs to spark-7"
    )
    forced = released(ME, token=8, nonce="operator:1")
    assert renewing().refused().reads(forced).result == e.LockLost(
        "the record was released by force"
    )


def test_p21_record_whose_version_keeps_changing_ends_unsure() -> None:
    bench = renewing()
    for round_ in range(3):
        bench.refused().reads(record(ME, token=8), f"v{10 + round_}")
    assert bench.refused().result == e.RenewalUnknown("the record keeps changing its version")
    assert (bench.phase, bench.standing) == (Phase.HOLDING, Standing.UNSURE)


# --- P22 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply_name", "counted", "cause"),
    [("unclear", "lock.state.unknown", "reset"), ("busy", "lock.throttled", "slow down")],
)
def test_p22_unclear_or_busy_is_unsure_and_the_deadline_stays(
    reply_name: str, counted: str, cause: str
) -> None:
    bench = renewing()
    getattr(bench, reply_name)()
    assert (bench.result, bench.counted) == (e.RenewalUnknown(cause), [counted])
    assert (bench.standing, bench.deadline_ms) == (Standing.UNSURE, DEADLINE_MS)


def test_p22_failed_read_back_is_unsure() -> None:
    bench = renewing().refused().reads(e.ReadFailed("down"))
    assert (bench.result, bench.counted) == (e.RenewalUnknown("down"), ["lock.state.unknown"])
    assert (bench.standing, bench.deadline_ms) == (Standing.UNSURE, DEADLINE_MS)


def test_p22_renewal_is_retried_until_the_deadline_then_lost() -> None:
    bench = renewing().unclear()
    for at_ms in (1_100, 4_000, DEADLINE_MS - 1):
        assert bench.at(at_ms).renew().phase is Phase.RENEWING
        bench.unclear()
    assert bench.at(DEADLINE_MS).renew().phase is Phase.LOST


def test_p22_unclear_renewal_that_had_landed_is_found_by_the_next_one() -> None:
    bench = renewing()
    unseen = bench.written
    bench.unclear().at(1_100).renew()
    assert bench.on_version == "v2"
    assert bench.refused().reads(unseen, "v3").on_version == "v3"
    assert bench.lands("v4").result == e.Renewed()


@pytest.mark.parametrize("reply_name", ["refused", *DENIED])
def test_p22_denial_at_the_deadline_is_a_loss(reply_name: str) -> None:
    bench = renewing().at(DEADLINE_MS)
    getattr(bench, reply_name)()
    assert (bench.phase, bench.told_lost, bench.request) == (Phase.LOST, True, None)


# --- P23 ------------------------------------------------------------------------------------------


def test_p23_renewal_that_lands_after_lost_is_released() -> None:
    bench = renewing().at(DEADLINE_MS).tick()
    assert (bench.phase, bench.told_lost) == (Phase.LOST_WAITING, True)
    bench.lands("v3")
    assert (bench.on_version, bench.written.expired, bench.told_lost) == ("v3", True, False)
    assert isinstance(bench.lands("v4").result, e.LockLost)
    assert (bench.phase, bench.standing) == (Phase.LOST, Standing.LOST)


def test_p23_renewal_that_lands_at_the_deadline_unnoticed_is_released() -> None:
    # L11: no tick occurred, but its reply arrives too late.
    bench = renewing().at(DEADLINE_MS).lands("v3")
    assert (bench.on_version, bench.written.expired, bench.told_lost) == ("v3", True, True)
    assert isinstance(bench.lands("v4").result, e.LockLost)


def test_p23_renewal_that_lands_after_the_owner_ended_is_released() -> None:
    bench = renewing().owner_gone()
    assert (bench.phase, bench.told_lost) == (Phase.LOST_WAITING, True)
    assert bench.lands("v3").written.expired
    assert bench.refused().result == e.LockLost("the thread ended")


@pytest.mark.parametrize("reply_name", ["refused", *DENIED])
def test_p23_renewal_that_did_not_land_after_lost_is_left_alone(reply_name: str) -> None:
    bench = renewing().at(DEADLINE_MS).tick()
    getattr(bench, reply_name)()
    assert (bench.phase, bench.request) == (Phase.LOST, None)
    assert isinstance(bench.result, e.LockLost)


@pytest.mark.parametrize("event", ["tick", "owner_gone"])
def test_p23_read_back_that_ends_after_lost_changes_nothing(event: str) -> None:
    bench = renewing().refused().at(DEADLINE_MS)
    getattr(bench, event)()
    assert bench.phase is Phase.LOST_WAITING
    bench.reads(record(ME, token=8), "v9")
    assert (bench.phase, bench.request) == (Phase.LOST, None)


# --- P29 ------------------------------------------------------------------------------------------


def test_p29_tick_before_the_deadline_changes_nothing() -> None:
    bench = Bench().holding()
    before = bench.state
    assert bench.at(DEADLINE_MS - 1).tick().effects == ()
    assert bench.state == before


@pytest.mark.parametrize("stalled", ["nothing", "renewal", "read-back"])
def test_p29_tick_at_the_deadline_notifies_the_owner_even_while_a_request_is_stalled(
    stalled: str,
) -> None:
    bench = Bench().holding()
    if stalled != "nothing":
        bench.at(RENEW_AT_MS).renew()
    if stalled == "read-back":
        bench.refused()
    bench.at(DEADLINE_MS + 5).tick()
    assert bench.effects == (
        e.NotifyLost("the lease was not renewed in time; its deadline passed 5 ms ago"),
    )
    assert bench.standing is Standing.LOST


def test_p29_owner_is_notified_once() -> None:
    bench = Bench().holding().at(DEADLINE_MS).tick()
    assert bench.told_lost
    for tell in (bench.tick, bench.renew, bench.release, bench.close):
        assert not tell().told_lost


def test_p11_lost_is_final_for_a_token() -> None:
    bench = renewing().at(DEADLINE_MS).tick().lands("v3").lands("v4")
    assert isinstance(bench.acquire().lands("v5").result, e.Granted)
    assert bench.state.grant is not None
    assert bench.state.grant.record.token == 9
