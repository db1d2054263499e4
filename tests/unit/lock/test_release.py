"""Releasing a lock: rules P24-P26."""

from __future__ import annotations

import pytest

from tests.unit.lock.machine_driver import DEADLINE_MS, ME, OTHER, Bench, record, released
from tidelock.core.limits import RELEASE_TRIES
from tidelock.lock import events as e
from tidelock.lock.record import PreviousRecord
from tidelock.lock.state import Phase, Standing
from tidelock.storage.contract import Busy, Unclear

OURS = record(ME, token=8)


def releasing() -> Bench:
    return Bench().holding(token=8).at(2_000).release()


def after_ms(bench: Bench) -> int:
    assert isinstance(bench.request, e.ReadRecord)
    return bench.request.after_ms


# --- P24 ------------------------------------------------------------------------------------------


def test_p24_release_changes_only_expired_on_the_version_last_written() -> None:
    bench = Bench().acquire().reads(released(token=7))
    held = bench.written
    bench.lands("v2").at(2_000).release()
    gone = bench.written
    assert (bench.on_version, gone.expired) == ("v2", True)
    assert (gone.valid_until_epoch_ms, gone.owner) == (held.valid_until_epoch_ms, ME)
    assert (gone.token, gone.token_ceiling) == (held.token, held.token_ceiling)
    assert gone.previous == PreviousRecord(ME, held.nonce, 8, expired=False)


def test_p24_release_after_a_renewal_is_on_the_version_of_the_renewal() -> None:
    bench = Bench().holding().at(1_000).renew().lands("v3").release()
    assert bench.on_version == "v3"


def test_landed_release_is_released() -> None:
    bench = releasing().at(2_050).lands("v3")
    assert (bench.result, bench.phase) == (e.Released(), Phase.IDLE)
    assert (bench.audited, bench.standing) == ([("END", 2_050)], Standing.FREE)


# --- P25 ------------------------------------------------------------------------------------------


def test_p25_refused_is_read_back_at_once() -> None:
    assert releasing().refused().request == e.ReadRecord()


@pytest.mark.parametrize(
    ("reply", "counted"),
    [(Busy(700), "lock.throttled"), (Unclear("reset", 700), "lock.state.unknown")],
)
def test_p25_busy_or_unclear_is_read_back_after_the_requested_pause(
    reply: Busy | Unclear, counted: str
) -> None:
    bench = releasing().replies(reply)
    assert (after_ms(bench), bench.counted) == (700, [counted])


def test_p25_read_backs_space_out_without_a_requested_pause() -> None:
    bench = releasing().unclear()
    failed = e.ReadFailed("down")
    pauses = [after_ms(bench), *(after_ms(bench.reads(failed)) for _ in range(RELEASE_TRIES - 2))]
    assert pauses == sorted(set(pauses))
    assert pauses[0] > 0


@pytest.mark.parametrize("reply_name", ["refused", "unclear", "busy"])
def test_p25_a_our_release_is_found_released(reply_name: str) -> None:
    bench = releasing()
    gone = bench.written
    getattr(bench, reply_name)()
    assert bench.reads(gone, "v3").result == e.Released()
    assert bench.audited == [("END", 2_000)]
    assert bench.acquire().on_version == "v3"


def test_p25_b_our_release_is_found_in_previous_released_and_acquired_since() -> None:
    bench = releasing()
    new_owner = record(OTHER, token=9, previous=bench.written.as_previous())
    assert bench.unclear().reads(new_owner, "v4").result == e.Released(taken_since=True)
    assert bench.acquire().request == e.ReadRecord()


def test_p25_c_record_still_ours_is_adopted_and_released_again() -> None:
    bench = releasing().unclear().reads(OURS, "v9")
    assert (bench.on_version, bench.written.expired) == ("v9", True)
    assert bench.lands("v10").result == e.Released()


@pytest.mark.parametrize("reply_name", ["refused", "unclear", "busy"])
def test_p25_c_retries_are_bounded(reply_name: str) -> None:
    bench = releasing()
    for version in range(RELEASE_TRIES - 1):
        getattr(bench, reply_name)()
        bench.reads(OURS, f"v{10 + version}")
        assert isinstance(bench.request, e.WriteRecord)
    getattr(bench, reply_name)()
    if reply_name == "refused":
        bench.reads(OURS, "v99")
    assert isinstance(bench.result, e.ReleaseUnknown)


def test_p25_c_unreadable_store_ends_the_retries() -> None:
    bench = releasing().unclear()
    for _ in range(RELEASE_TRIES - 1):
        assert isinstance(bench.request, e.ReadRecord)
        bench.reads(e.ReadFailed("down"))
    assert bench.result == e.ReleaseUnknown("down")


def test_p25_d_stolen_lock_is_lost() -> None:
    new_owner = record(OTHER, token=9, previous=OURS.as_previous())
    bench = releasing().refused().reads(new_owner, "v4")
    assert bench.result == e.LockLost(f"the record now belongs to {OTHER}")
    assert (bench.phase, bench.told_lost) == (Phase.LOST, True)
    assert bench.counted == ["lock.acquired.others.error", "lock.release.failure"]


def test_p25_d_force_released_lock_is_lost() -> None:
    forced = released(ME, token=8, nonce="operator:1", previous=OURS.as_previous())
    bench = releasing().refused().reads(forced, "v4")
    assert bench.result == e.LockLost("the record was released by force")


@pytest.mark.parametrize(
    "reply",
    [
        record(OTHER, token=12, previous=PreviousRecord("third", "third:1", 11, expired=True)),
        record("java", token=0, token_ceiling=0, nonce=""),
        record(OTHER, token=9, previous=PreviousRecord(ME, f"{ME}:1", 7, expired=True)),
        record(OTHER, token=9, previous=PreviousRecord(ME, "operator:1", 8, expired=True)),
        e.Absent(),
    ],
    ids=["a third owner's", "Java's", "over an older token", "over an operator's", "deleted"],
)
def test_p25_e_otherwise_the_outcome_is_unknown(reply: e.ReadReply) -> None:
    bench = releasing().unclear().reads(reply, "v9")
    assert isinstance(bench.result, e.ReleaseUnknown)
    assert bench.counted == ["lock.release.failure", "lock.acquired.others.error"]
    assert (bench.phase, bench.request, bench.audited) == (Phase.IDLE, None, [])


def test_p25_e_our_live_record_after_an_unknown_release_is_a_ghost() -> None:
    bench = releasing().unclear().reads(e.Absent())
    bench.acquire().reads(OURS, "v9")
    assert bench.written.expired
    assert bench.lands("v10").reason is e.NotAcquiredReason.GHOST


# --- P26 ------------------------------------------------------------------------------------------


def test_p26_release_by_non_holder_changes_nothing() -> None:
    bench = Bench()
    before = bench.state
    assert bench.release().effects == (e.OperationDone(e.Released()),)
    assert bench.state == before


def test_p26_release_after_close_changes_nothing() -> None:
    assert Bench().close().release().effects == (e.OperationDone(e.Released()),)


def test_p26_release_of_a_lost_lock_writes_nothing_and_returns_lost() -> None:
    bench = Bench().holding().at(1_000).renew().refused().reads(record(OTHER, token=9))
    bench.release()
    assert bench.effects == (e.OperationDone(e.LockLost(f"the record now belongs to {OTHER}")),)
    assert bench.phase is Phase.IDLE


def test_l3_release_past_the_deadline_returns_lost_and_releases_the_record() -> None:
    bench = Bench().holding().at(DEADLINE_MS).release()
    assert (bench.told_lost, bench.on_version, bench.written.expired) == (True, "v2", True)
    assert isinstance(bench.lands("v3").result, e.LockLost)
    assert bench.phase is Phase.LOST


def test_release_just_before_the_deadline_is_a_release() -> None:
    assert Bench().holding().at(DEADLINE_MS - 1).release().lands("v3").result == e.Released()
