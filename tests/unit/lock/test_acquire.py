"""Acquiring a lock: rules P5-P7 and P12-P19."""

from __future__ import annotations

import pytest

from tests.unit.lock.machine_driver import (
    DEAD_AFTER_MS,
    DEADLINE_MS,
    EPOCH_MS,
    JAVA,
    LEASE,
    ME,
    OTHER,
    Bench,
    record,
    released,
)
from tidelock.core.clock import Now
from tidelock.core.errors import InvariantBroken
from tidelock.core.limits import TOKEN_MAX
from tidelock.lock import events as e
from tidelock.lock.record import PreviousRecord
from tidelock.lock.state import Phase, Standing
from tidelock.storage.contract import Create

UNREADABLE = e.Unreadable("not JSON")


# --- tokens (P5-P7) -------------------------------------------------------------------------------


def test_p6_next_token_is_the_records_plus_one_within_its_ceiling() -> None:
    bench = Bench().acquire().reads(released(token=999, token_ceiling=1_000))
    assert (bench.written.token, bench.written.token_ceiling) == (1_000, 1_000)


@pytest.mark.parametrize(
    "reply",
    [released(token=1_000, token_ceiling=1_000), JAVA, e.Absent()],
    ids=["ceiling reached", "Java's record", "absent"],
)
def test_p6_otherwise_the_contender_reads_the_counter(reply: e.ReadReply) -> None:
    assert Bench().acquire().reads(reply).request == e.ReadCounter()


def test_p6_counter_is_advanced_by_a_range_on_the_version_read() -> None:
    bench = Bench().acquire().reads(JAVA).counts(4_000, "c9")
    assert isinstance(bench.request, e.WriteCounter)
    assert (bench.on_version, bench.request.counter.ceiling) == ("c9", 5_000)
    assert bench.lands("c10").written.token == 4_001


def test_p6_absent_counter_is_created() -> None:
    bench = Bench().acquire().reads(e.Absent()).reads(e.Absent())
    assert isinstance(bench.request, e.WriteCounter)
    assert (bench.request.mode, bench.request.counter.ceiling) == (Create(), 1_000)
    assert bench.lands("c1").written.token == 1


@pytest.mark.parametrize("counter", [e.Absent(), 500])
def test_l1_counter_behind_the_record_is_raised_above_it(
    counter: e.ReadReply | int,
) -> None:
    bench = Bench().acquire().reads(released(token=3_000, token_ceiling=3_000))
    bench.counts(counter) if isinstance(counter, int) else bench.reads(counter)
    assert bench.lands("c2").written.token == 3_001


@pytest.mark.parametrize(
    ("reply_name", "reason", "counted"),
    [
        ("refused", e.NotAcquiredReason.RACED, []),
        ("unclear", e.NotAcquiredReason.UNKNOWN, []),
        ("busy", e.NotAcquiredReason.THROTTLED, ["lock.throttled"]),
    ],
)
def test_p6_range_is_used_only_if_it_is_known_to_be_ours(
    reply_name: str, reason: e.NotAcquiredReason, counted: list[str]
) -> None:
    bench = Bench().acquire().reads(JAVA).counts(0)
    getattr(bench, reply_name)()
    assert (bench.reason, bench.counted, bench.request) == (reason, counted, None)


def test_p6_unreadable_counter_object_ends_the_attempt() -> None:
    bench = Bench().acquire().reads(JAVA).reads(e.ReadFailed("down", 300))
    assert bench.result == e.NotAcquired(
        e.NotAcquiredReason.UNAVAILABLE, cause="down", retry_after_ms=300
    )


def test_p19_corrupt_counter_ends_the_attempt_and_is_not_replaced() -> None:
    bench = Bench().acquire().reads(JAVA).reads(UNREADABLE)
    assert bench.result == e.NotAcquired(e.NotAcquiredReason.UNREADABLE, cause="not JSON")


def test_l1_exhausted_tokens_end_the_attempt_before_any_write() -> None:
    bench = Bench().acquire().reads(JAVA).counts(TOKEN_MAX - 500)
    assert (bench.reason, bench.request) == (e.NotAcquiredReason.UNREADABLE, None)
    last = Bench().acquire().reads(JAVA).counts(TOKEN_MAX - 1_000)
    assert isinstance(last.request, e.WriteCounter)
    assert last.request.counter.ceiling == TOKEN_MAX


def in_a_new_range() -> Bench:
    return Bench().acquire().reads(e.Absent()).counts(2_000).lands("c2")


def test_p7_grant_in_a_new_range_reads_the_counter_again() -> None:
    bench = in_a_new_range().lands("v1")
    assert (bench.phase, bench.request) == (Phase.CONFIRMING, e.ReadCounter())
    assert bench.standing is Standing.FREE


def test_p7_grant_counts_if_the_counter_still_names_the_range() -> None:
    assert in_a_new_range().lands("v1").counts(3_000).result == e.Granted(2_001)


@pytest.mark.parametrize("counter", [4_000, 2_000, e.Absent(), UNREADABLE, e.ReadFailed("down")])
def test_p7_otherwise_the_record_is_released(counter: int | e.ReadReply) -> None:
    bench = in_a_new_range().lands("v1")
    bench.counts(counter) if isinstance(counter, int) else bench.reads(counter)
    assert (bench.on_version, bench.written.expired) == ("v1", True)
    failed = isinstance(counter, e.ReadFailed)
    assert bench.lands("v2").reason is (
        e.NotAcquiredReason.UNAVAILABLE if failed else e.NotAcquiredReason.RACED
    )


def test_p7_record_offers_nothing_of_an_unconfirmed_range() -> None:
    # A late grant made possible by a deletion must not hand old tokens to the next contender.
    bench = in_a_new_range()
    assert (bench.written.token, bench.written.token_ceiling) == (2_001, 2_001)
    assert bench.lands("v1").counts(9_000).written.token_ceiling == 2_001


@pytest.mark.parametrize("reply_name", ["renew", "release"])
def test_p7_confirmed_range_is_offered_by_the_next_write(reply_name: str) -> None:
    bench = in_a_new_range().lands("v1").counts(3_000)
    getattr(bench.at(1_000), reply_name)()
    assert bench.written.token_ceiling == 3_000


def test_p7_range_reserved_over_an_existing_record_needs_no_second_read() -> None:
    # A version that is gone never comes back, so no late writer can bring its token back.
    bench = Bench().acquire().reads(JAVA, "v1").counts(2_000).lands("c2").lands("v2")
    assert bench.result == e.Granted(2_001)


def test_p15_confirmation_after_the_deadline_is_too_late() -> None:
    bench = in_a_new_range().lands("v1").at(DEADLINE_MS).counts(3_000)
    assert bench.lands("v2").reason is e.NotAcquiredReason.LATE


def test_l2_wall_clock_step_back_during_token_reservation_is_noticed() -> None:
    dead = record(token=5, token_ceiling=5)
    bench = Bench().at(DEAD_AFTER_MS + 1).acquire().reads(dead).counts(1_000)
    bench.now = Now(DEAD_AFTER_MS + 2, EPOCH_MS + DEAD_AFTER_MS)
    assert bench.lands("c2").result == e.NotAcquired(e.NotAcquiredReason.HELD, dead)


# --- first read (P12-P14) -------------------------------------------------------------------------


def test_p12_owner_writes_without_reading_on_the_version_of_its_own_release() -> None:
    bench = Bench().holding(token=8).release().lands("v3").at(500).acquire()
    assert (bench.on_version, bench.written.token, bench.written.expired) == ("v3", 9, False)
    assert bench.written.valid_until_epoch_ms == EPOCH_MS + 500 + LEASE.validity_ms
    assert bench.lands("v4").result == e.Granted(9)


def test_p12_cached_version_is_used_once() -> None:
    bench = Bench().holding().release().lands("v3").acquire().busy()
    assert bench.acquire().request == e.ReadRecord()


def test_p12_cached_record_at_its_ceiling_needs_a_new_range_first() -> None:
    bench = Bench().acquire().reads(released(token=999)).lands().release().lands("v3")
    assert bench.acquire().request == e.ReadCounter()


def test_p12_client_that_released_nothing_reads_first() -> None:
    assert Bench().acquire().request == e.ReadRecord()


def test_p12_client_that_lost_reads_first() -> None:
    assert Bench().holding().at(DEADLINE_MS).tick().acquire().request == e.ReadRecord()


def test_p12_client_with_an_unknown_release_reads_first() -> None:
    bench = Bench().holding().release().refused().reads(e.Absent())
    assert isinstance(bench.result, e.ReleaseUnknown)
    assert bench.acquire().request == e.ReadRecord()


def met_another_and_released() -> Bench:
    """Return a client whose write on its cached version met another's record, now released."""
    bench = Bench().holding(token=8).release().lands("v3").acquire().refused()
    return bench.reads(released(token=20), "v9").lands("v10").release().lands("v11")


def test_p12_client_whose_cached_write_met_another_record_reads_first() -> None:
    assert met_another_and_released().acquire().request == e.ReadRecord()


def test_p12_until_it_finds_its_own_release_again() -> None:
    bench = met_another_and_released()
    gone = released(ME, token=21)
    bench.acquire().reads(gone, "v11").lands("v12").release().lands("v13")
    assert bench.acquire().on_version == "v13"


def test_p12_after_finding_another_release_it_keeps_reading_first() -> None:
    bench = met_another_and_released()
    bench.acquire().reads(released(token=30), "v20").lands("v21").release().lands("v22")
    assert bench.acquire().request == e.ReadRecord()


def test_p13_live_record_of_another_is_not_acquired() -> None:
    holder = record()
    bench = Bench().at(DEAD_AFTER_MS).acquire().reads(holder)
    assert bench.result == e.NotAcquired(e.NotAcquiredReason.HELD, holder)
    assert bench.phase is Phase.IDLE


def test_p14_released_record_is_replaced_on_the_version_read() -> None:
    bench = Bench().acquire().reads(released(), "v41")
    assert (bench.on_version, bench.counted) == ("v41", [])
    assert bench.written.previous == PreviousRecord(OTHER, f"{OTHER}:1", 7, expired=True)
    assert (bench.written.owner, bench.written.nonce) == (ME, f"{ME}:1")


def test_p14_dead_record_is_replaced_and_counted_as_dangling() -> None:
    bench = Bench().at(DEAD_AFTER_MS + 1).acquire().reads(record(), "v41")
    assert (bench.on_version, bench.counted) == ("v41", ["lock.dangling"])


def test_p14_absent_record_is_created() -> None:
    bench = in_a_new_range()
    assert isinstance(bench.request, e.WriteRecord)
    assert (bench.request.mode, bench.written.previous) == (Create(), None)


def test_unreadable_store_ends_the_attempt() -> None:
    bench = Bench().acquire().reads(e.ReadFailed("down", 250))
    assert bench.result == e.NotAcquired(
        e.NotAcquiredReason.UNAVAILABLE, cause="down", retry_after_ms=250
    )
    assert bench.counted == ["lock.state.unknown"]


@pytest.mark.parametrize("phase", ["reading", "counting"])
def test_mismatched_reply_is_a_bug(phase: str) -> None:
    bench = Bench().acquire()
    if phase == "counting":
        bench.reads(JAVA)
        with pytest.raises(InvariantBroken, match="read of the counter"):
            bench.reads(released())
    else:
        with pytest.raises(InvariantBroken, match="read of the record"):
            bench.counts(0)


# --- the reply (P15-P17) --------------------------------------------------------------------------


def test_p15_landed_before_the_deadline_is_granted() -> None:
    bench = Bench().at(100).acquire().reads(released()).at(100 + DEADLINE_MS - 1).lands("v2")
    assert (bench.result, bench.phase) == (e.Granted(8), Phase.HOLDING)
    # P9: counted from the request, not from the reply.
    assert bench.deadline_ms == 100 + DEADLINE_MS


def test_p15_audit_starts_at_the_request() -> None:
    bench = Bench().at(100).acquire().reads(released()).at(900).lands()
    assert bench.audited == [("START", 100)]


def test_p15_landed_at_the_deadline_is_released_and_not_acquired() -> None:
    bench = Bench().acquire().reads(released()).at(DEADLINE_MS).lands("v2")
    assert (bench.on_version, bench.written.expired, bench.result) == ("v2", True, None)
    assert bench.lands("v3").reason is e.NotAcquiredReason.LATE
    assert (bench.phase, bench.standing) == (Phase.IDLE, Standing.FREE)


def test_p16_refused_write_is_read_back_and_counted() -> None:
    bench = Bench().acquire().reads(released()).refused()
    assert (bench.request, bench.counted) == (
        e.ReadRecord(),
        ["lock.acquire.precondition.failure"],
    )


def test_p16_unclear_write_is_read_back_and_counted() -> None:
    bench = Bench().acquire().reads(released()).unclear()
    assert (bench.request, bench.counted) == (e.ReadRecord(), ["lock.state.unknown"])


def test_throttled_write_ends_the_attempt_with_the_requested_pause() -> None:
    bench = Bench().acquire().reads(released()).busy()
    assert bench.result == e.NotAcquired(
        e.NotAcquiredReason.THROTTLED, cause="slow down", retry_after_ms=700
    )
    assert bench.counted == ["lock.throttled"]


@pytest.mark.parametrize("reply_name", ["refused", "unclear"])
def test_p16_ghost_is_released_conditionally_and_counted_and_never_a_grant(
    reply_name: str,
) -> None:
    bench = Bench().acquire().reads(released())
    grant = bench.written
    getattr(bench, reply_name)()
    bench.reads(grant, "v2")
    assert (bench.on_version, bench.written.expired) == ("v2", True)
    assert bench.written.token == grant.token
    assert bench.lands("v3").reason is e.NotAcquiredReason.GHOST
    assert bench.counted == ["lock.ghost"]
    assert bench.standing is Standing.FREE


def test_p16_attempt_ends_the_same_if_the_ghost_cannot_be_released() -> None:
    bench = Bench().acquire().reads(released())
    grant = bench.written
    bench.unclear().reads(grant, "v2").unclear()
    assert bench.reason is e.NotAcquiredReason.GHOST
    assert bench.close().request == e.ReadRecord()


def test_p16_refused_write_after_which_another_won_was_raced() -> None:
    winner = record()
    bench = Bench().acquire().reads(released()).refused().reads(winner)
    assert bench.result == e.NotAcquired(e.NotAcquiredReason.RACED, winner)


def test_p16_refused_write_whose_object_is_gone_was_raced() -> None:
    assert (
        Bench().acquire().reads(released()).refused().reads(e.Absent()).reason
        is e.NotAcquiredReason.RACED
    )


@pytest.mark.parametrize("reply", [record(), e.Absent(), e.ReadFailed("down")])
def test_l6_unclear_write_that_is_not_found_stays_unknown(reply: e.ReadReply) -> None:
    bench = Bench().acquire().reads(released()).unclear().reads(reply)
    assert bench.reason is e.NotAcquiredReason.UNKNOWN


def test_l6_refused_write_that_cannot_be_read_back_is_unknown() -> None:
    bench = Bench().acquire().reads(released()).refused().reads(e.ReadFailed("down", 100))
    assert bench.result == e.NotAcquired(
        e.NotAcquiredReason.UNKNOWN, cause="down", retry_after_ms=100
    )


def test_l5_refused_write_of_ours_that_expired_meanwhile_is_late() -> None:
    bench = Bench().acquire().reads(released())
    grant = bench.written
    bench.refused().at(DEAD_AFTER_MS + 1).reads(grant, "v2")
    assert bench.reason is e.NotAcquiredReason.LATE


def test_p17_refused_cached_attempt_continues_with_the_record_read() -> None:
    bench = Bench().holding(token=8).release().lands("v3").acquire().refused()
    bench.reads(released(token=20), "v9")
    assert (bench.on_version, bench.written.token) == ("v9", 21)
    assert bench.lands("v10").result == e.Granted(21)


def test_p17_cached_attempt_refused_by_a_holder_is_not_acquired() -> None:
    holder = record(token=9)
    bench = Bench().holding().release().lands("v3").acquire().refused().reads(holder)
    assert bench.result == e.NotAcquired(e.NotAcquiredReason.HELD, holder)


def test_p17_cached_attempt_whose_object_is_gone_creates_it() -> None:
    bench = Bench().holding().release().lands("v3").acquire().refused().reads(e.Absent())
    assert bench.request == e.ReadCounter()


def test_p17_only_the_first_write_continues() -> None:
    bench = Bench().holding().release().lands("v3").acquire().refused().reads(released(token=20))
    assert bench.refused().reads(released(token=30)).reason is e.NotAcquiredReason.RACED


def test_p17_unclear_cached_attempt_does_not_continue() -> None:
    bench = Bench().holding().release().lands("v3").acquire().unclear()
    assert bench.reads(released(token=20)).reason is e.NotAcquiredReason.UNKNOWN


# --- ghosts, and unreadable records (P18, P19) ----------------------------------------------------


def test_p18_ghost_that_appears_later_is_released_by_the_next_attempt() -> None:
    bench = Bench().ghostly().acquire().reads(record(ME), "v5")
    assert (bench.on_version, bench.written.expired) == ("v5", True)
    assert bench.lands("v6").reason is e.NotAcquiredReason.GHOST
    # Its release is ours, so the attempt after that writes without reading (P12).
    assert bench.acquire().on_version == "v6"


def test_p18_ghost_that_appears_later_is_released_by_close() -> None:
    bench = Bench().ghostly().close()
    assert bench.request == e.ReadRecord()
    bench.reads(record(ME), "v5")
    assert (bench.on_version, bench.written.expired) == ("v5", True)
    assert (bench.lands().result, bench.counted) == (e.Closed(), ["lock.ghost"])


@pytest.mark.parametrize("reply", [record(), released(ME), e.Absent(), e.ReadFailed("down")])
def test_p18_close_leaves_other_records_alone(reply: e.ReadReply) -> None:
    bench = Bench().ghostly().close().reads(reply)
    assert bench.effects == (e.OperationDone(e.Closed()),)


def test_p18_close_without_an_unclear_write_reads_nothing() -> None:
    bench = Bench().holding().release().lands("v3").close()
    assert (bench.phase, bench.effects) == (Phase.CLOSED, (e.OperationDone(e.Closed()),))
    assert bench.close().effects == (e.OperationDone(e.Closed()),)


def test_p19_unreadable_record_ends_the_attempt_and_is_described() -> None:
    bench = Bench().acquire().reads(UNREADABLE)
    assert bench.effects == (
        e.OperationDone(e.NotAcquired(e.NotAcquiredReason.UNREADABLE, cause="not JSON")),
    )


def test_p19_acquire_never_replaces_an_unreadable_record_after_an_unclear_write() -> None:
    bench = Bench().acquire().reads(released()).unclear().reads(UNREADABLE)
    assert (bench.reason, bench.request) == (e.NotAcquiredReason.UNREADABLE, None)


def test_p19_renew_never_replaces_an_unreadable_record() -> None:
    bench = Bench().holding().at(1_000).renew().refused().reads(UNREADABLE)
    assert (bench.phase, bench.request) == (Phase.LOST, None)


def test_p19_release_never_replaces_an_unreadable_record() -> None:
    bench = Bench().holding().release().refused().reads(UNREADABLE)
    assert (bench.result, bench.request) == (e.ReleaseUnknown("not JSON"), None)


def test_p19_close_never_replaces_an_unreadable_record() -> None:
    bench = Bench().ghostly().close().reads(UNREADABLE)
    assert (bench.result, bench.request) == (e.Closed(), None)


def test_p3_every_write_has_its_own_nonce() -> None:
    bench = Bench()
    nonces = [bench.acquire().reads(released()).written.nonce]
    nonces.append(bench.lands("v2").at(1_000).renew().written.nonce)
    nonces.append(bench.refused().reads(record(ME, token=8), "v2").written.nonce)
    nonces.append(bench.lands("v3").release().written.nonce)
    nonces.append(bench.lands("v4").acquire().written.nonce)
    assert nonces == [f"{ME}:{count}" for count in range(1, 6)]
