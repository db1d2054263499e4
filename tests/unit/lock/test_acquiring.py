"""How a lock is acquired: P5-P7 and P12-P19, a sentence at a time."""

from __future__ import annotations

import pytest

from tests.unit.lock.bench import (
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
from tidelock.base.clock import Now
from tidelock.base.errors import InvariantBroken
from tidelock.base.limits import TOKEN_MAX
from tidelock.lock import events as e
from tidelock.lock.record import Previous
from tidelock.lock.state import Phase, Standing
from tidelock.store.contract import Create

UNREADABLE = e.Unreadable("not JSON")


# --- tokens (P5-P7) -------------------------------------------------------------------------------


def test_p6_the_next_token_is_the_records_plus_one_within_its_ceiling() -> None:
    bench = Bench().acquire().reads(released(token=999, token_ceiling=1_000))
    assert (bench.written.token, bench.written.token_ceiling) == (1_000, 1_000)


@pytest.mark.parametrize(
    "reading",
    [released(token=1_000, token_ceiling=1_000), JAVA, e.Absent()],
    ids=["ceiling reached", "Java's record", "absent"],
)
def test_p6_otherwise_the_taker_reads_the_counter(reading: e.Reading) -> None:
    assert Bench().acquire().reads(reading).request == e.ReadCounter()


def test_p6_the_counter_is_replaced_by_a_range_more_on_the_version_read() -> None:
    bench = Bench().acquire().reads(JAVA).counts(4_000, "c9")
    assert isinstance(bench.request, e.WriteCounter)
    assert (bench.on_version, bench.request.counter.ceiling) == ("c9", 5_000)
    assert bench.lands("c10").written.token == 4_001


def test_p6_an_absent_counter_is_created() -> None:
    bench = Bench().acquire().reads(e.Absent()).reads(e.Absent())
    assert isinstance(bench.request, e.WriteCounter)
    assert (bench.request.mode, bench.request.counter.ceiling) == (Create(), 1_000)
    assert bench.lands("c1").written.token == 1


@pytest.mark.parametrize("counter", [e.Absent(), 500])
def test_l1_a_counter_that_lags_behind_the_record_is_raised_above_it(
    counter: e.Reading | int,
) -> None:
    bench = Bench().acquire().reads(released(token=3_000, token_ceiling=3_000))
    bench.counts(counter) if isinstance(counter, int) else bench.reads(counter)
    assert bench.lands("c2").written.token == 3_001


@pytest.mark.parametrize(
    ("told", "why", "counted"),
    [
        ("refused", e.Why.RACED, []),
        ("unclear", e.Why.UNKNOWN, []),
        ("busy", e.Why.THROTTLED, ["lock.throttled"]),
    ],
)
def test_p6_a_range_is_used_only_if_it_is_known_to_be_ours(
    told: str, why: e.Why, counted: list[str]
) -> None:
    bench = Bench().acquire().reads(JAVA).counts(0)
    getattr(bench, told)()
    assert (bench.why, bench.counted, bench.request) == (why, counted, None)


def test_p6_a_counter_that_cannot_be_read_ends_the_attempt() -> None:
    bench = Bench().acquire().reads(JAVA).reads(e.ReadFailed("down", 300))
    assert bench.result == e.NotAcquired(e.Why.UNAVAILABLE, cause="down", retry_after_ms=300)


def test_p19_an_unreadable_counter_ends_the_attempt_and_is_not_replaced() -> None:
    bench = Bench().acquire().reads(JAVA).reads(UNREADABLE)
    assert bench.result == e.NotAcquired(e.Why.UNREADABLE, cause="token counter: not JSON")


def test_l1_tokens_that_are_used_up_end_the_attempt_before_anything_is_written() -> None:
    bench = Bench().acquire().reads(JAVA).counts(TOKEN_MAX - 500)
    assert (bench.why, bench.request) == (e.Why.UNREADABLE, None)
    last = Bench().acquire().reads(JAVA).counts(TOKEN_MAX - 1_000)
    assert isinstance(last.request, e.WriteCounter)
    assert last.request.counter.ceiling == TOKEN_MAX


def in_a_new_range() -> Bench:
    return Bench().acquire().reads(e.Absent()).counts(2_000).lands("c2")


def test_p7_a_grant_in_a_new_range_reads_the_counter_again() -> None:
    bench = in_a_new_range().lands("v1")
    assert (bench.phase, bench.request) == (Phase.CONFIRMING, e.ReadCounter())
    assert bench.standing is Standing.FREE


def test_p7_the_grant_counts_if_the_counter_still_names_the_range() -> None:
    assert in_a_new_range().lands("v1").counts(3_000).result == e.Granted(2_001)


@pytest.mark.parametrize("counter", [4_000, 2_000, e.Absent(), UNREADABLE, e.ReadFailed("down")])
def test_p7_otherwise_the_record_is_given_back(counter: int | e.Reading) -> None:
    bench = in_a_new_range().lands("v1")
    bench.counts(counter) if isinstance(counter, int) else bench.reads(counter)
    assert (bench.on_version, bench.written.expired) == ("v1", True)
    failed = isinstance(counter, e.ReadFailed)
    assert bench.lands("v2").why is (e.Why.UNAVAILABLE if failed else e.Why.RACED)


def test_p7_a_record_offers_nothing_of_a_range_that_is_not_confirmed() -> None:
    # A late grant that a deletion let in must not hand old tokens to the next taker.
    bench = in_a_new_range()
    assert (bench.written.token, bench.written.token_ceiling) == (2_001, 2_001)
    assert bench.lands("v1").counts(9_000).written.token_ceiling == 2_001


@pytest.mark.parametrize("told", ["renew", "release"])
def test_p7_a_confirmed_range_is_offered_by_the_next_write(told: str) -> None:
    bench = in_a_new_range().lands("v1").counts(3_000)
    getattr(bench.at(1_000), told)()
    assert bench.written.token_ceiling == 3_000


def test_p7_a_range_taken_on_a_record_that_was_there_needs_no_second_look() -> None:
    # A version that is gone never comes back, so no late writer can bring its token back.
    bench = Bench().acquire().reads(JAVA, "v1").counts(2_000).lands("c2").lands("v2")
    assert bench.result == e.Granted(2_001)


def test_p15_a_confirmation_after_the_deadline_is_too_late() -> None:
    bench = in_a_new_range().lands("v1").at(DEADLINE_MS).counts(3_000)
    assert bench.lands("v2").why is e.Why.LATE


def test_l2_a_wall_clock_that_steps_back_while_tokens_are_reserved_is_noticed() -> None:
    dead = record(token=5, token_ceiling=5)
    bench = Bench().at(DEAD_AFTER_MS + 1).acquire().reads(dead).counts(1_000)
    bench.now = Now(DEAD_AFTER_MS + 2, EPOCH_MS + DEAD_AFTER_MS)
    assert bench.lands("c2").result == e.NotAcquired(e.Why.HELD, dead)


# --- first look (P12-P14) -------------------------------------------------------------------------


def test_p12_an_owner_writes_at_once_on_the_version_of_its_own_release() -> None:
    bench = Bench().holding(token=8).release().lands("v3").at(500).acquire()
    assert (bench.on_version, bench.written.token, bench.written.expired) == ("v3", 9, False)
    assert bench.written.valid_until_epoch_ms == EPOCH_MS + 500 + LEASE.validity_ms
    assert bench.lands("v4").result == e.Granted(9)


def test_p12_the_cached_version_is_used_once() -> None:
    bench = Bench().holding().release().lands("v3").acquire().busy()
    assert bench.acquire().request == e.ReadRecord()


def test_p12_a_cached_record_at_its_ceiling_needs_a_new_range_first() -> None:
    bench = Bench().acquire().reads(released(token=999)).lands().release().lands("v3")
    assert bench.acquire().request == e.ReadCounter()


def test_p12_a_client_that_released_nothing_reads_first() -> None:
    assert Bench().acquire().request == e.ReadRecord()


def test_p12_a_client_that_lost_reads_first() -> None:
    assert Bench().holding().at(DEADLINE_MS).tick().acquire().request == e.ReadRecord()


def test_p12_a_client_whose_release_is_not_known_reads_first() -> None:
    bench = Bench().holding().release().refused().reads(e.Absent())
    assert isinstance(bench.result, e.ReleaseUnknown)
    assert bench.acquire().request == e.ReadRecord()


def met_another_and_released() -> Bench:
    """Return a client whose write on its cached version met another's record, free again."""
    bench = Bench().holding(token=8).release().lands("v3").acquire().refused()
    return bench.reads(released(token=20), "v9").lands("v10").release().lands("v11")


def test_p12_a_client_whose_cached_write_met_anothers_record_reads_first() -> None:
    assert met_another_and_released().acquire().request == e.ReadRecord()


def test_p12_until_it_finds_its_own_release_again() -> None:
    bench = met_another_and_released()
    gone = released(ME, token=21)
    bench.acquire().reads(gone, "v11").lands("v12").release().lands("v13")
    assert bench.acquire().on_version == "v13"


def test_p12_finding_anothers_release_again_it_goes_on_reading_first() -> None:
    bench = met_another_and_released()
    bench.acquire().reads(released(token=30), "v20").lands("v21").release().lands("v22")
    assert bench.acquire().request == e.ReadRecord()


def test_p13_a_live_record_of_another_is_not_acquired() -> None:
    holder = record()
    bench = Bench().at(DEAD_AFTER_MS).acquire().reads(holder)
    assert bench.result == e.NotAcquired(e.Why.HELD, holder)
    assert bench.phase is Phase.IDLE


def test_p14_a_released_record_is_replaced_on_the_version_read() -> None:
    bench = Bench().acquire().reads(released(), "v41")
    assert (bench.on_version, bench.counted) == ("v41", [])
    assert bench.written.previous == Previous(OTHER, f"{OTHER}:1", 7, expired=True)
    assert (bench.written.owner, bench.written.nonce) == (ME, f"{ME}:1")


def test_p14_a_dead_record_is_replaced_and_counted_as_dangling() -> None:
    bench = Bench().at(DEAD_AFTER_MS + 1).acquire().reads(record(), "v41")
    assert (bench.on_version, bench.counted) == ("v41", ["lock.dangling"])


def test_p14_an_absent_record_is_created() -> None:
    bench = in_a_new_range()
    assert isinstance(bench.request, e.WriteRecord)
    assert (bench.request.mode, bench.written.previous) == (Create(), None)


def test_a_store_that_cannot_be_read_ends_the_attempt() -> None:
    bench = Bench().acquire().reads(e.ReadFailed("down", 250))
    assert bench.result == e.NotAcquired(e.Why.UNAVAILABLE, cause="down", retry_after_ms=250)
    assert bench.counted == ["lock.state.unknown"]


@pytest.mark.parametrize("phase", ["reading", "counting"])
def test_an_answer_to_another_question_is_a_bug(phase: str) -> None:
    bench = Bench().acquire()
    if phase == "counting":
        bench.reads(JAVA)
        with pytest.raises(InvariantBroken, match="read of the counter"):
            bench.reads(released())
    else:
        with pytest.raises(InvariantBroken, match="read of the record"):
            bench.counts(0)


# --- the answer (P15-P17) -------------------------------------------------------------------------


def test_p15_landed_before_the_deadline_is_granted() -> None:
    bench = Bench().at(100).acquire().reads(released()).at(100 + DEADLINE_MS - 1).lands("v2")
    assert (bench.result, bench.phase) == (e.Granted(8), Phase.HOLDING)
    # P9: counted from the sending, not from the answer.
    assert bench.deadline_ms == 100 + DEADLINE_MS


def test_p15_the_audit_starts_at_the_sending() -> None:
    bench = Bench().at(100).acquire().reads(released()).at(900).lands()
    assert bench.audited == [("START", 100)]


def test_p15_landed_at_the_deadline_is_released_again_and_not_acquired() -> None:
    bench = Bench().acquire().reads(released()).at(DEADLINE_MS).lands("v2")
    assert (bench.on_version, bench.written.expired, bench.result) == ("v2", True, None)
    assert bench.lands("v3").why is e.Why.LATE
    assert (bench.phase, bench.standing) == (Phase.IDLE, Standing.FREE)


def test_p16_a_refused_write_is_read_back_and_counted() -> None:
    bench = Bench().acquire().reads(released()).refused()
    assert (bench.request, bench.counted) == (
        e.ReadRecord(),
        ["lock.acquire.precondition.failure"],
    )


def test_p16_an_unclear_write_is_read_back_and_counted() -> None:
    bench = Bench().acquire().reads(released()).unclear()
    assert (bench.request, bench.counted) == (e.ReadRecord(), ["lock.state.unknown"])


def test_a_throttled_write_ends_the_attempt_with_the_pause_asked_for() -> None:
    bench = Bench().acquire().reads(released()).busy()
    assert bench.result == e.NotAcquired(e.Why.THROTTLED, cause="slow down", retry_after_ms=700)
    assert bench.counted == ["lock.throttled"]


@pytest.mark.parametrize("told", ["refused", "unclear"])
def test_p16_a_ghost_is_released_conditionally_and_counted_and_never_a_grant(told: str) -> None:
    bench = Bench().acquire().reads(released())
    grant = bench.written
    getattr(bench, told)()
    bench.reads(grant, "v2")
    assert (bench.on_version, bench.written.expired) == ("v2", True)
    assert bench.written.token == grant.token
    assert bench.lands("v3").why is e.Why.GHOST
    assert bench.counted == ["lock.ghost"]
    assert bench.standing is Standing.FREE


def test_p16_the_attempt_ends_so_even_if_the_ghost_cannot_be_released() -> None:
    bench = Bench().acquire().reads(released())
    grant = bench.written
    bench.unclear().reads(grant, "v2").unclear()
    assert bench.why is e.Why.GHOST
    assert bench.close().request == e.ReadRecord()


def test_p16_a_refused_write_over_which_another_won_was_raced() -> None:
    winner = record()
    bench = Bench().acquire().reads(released()).refused().reads(winner)
    assert bench.result == e.NotAcquired(e.Why.RACED, winner)


def test_p16_a_refused_write_whose_object_is_gone_was_raced() -> None:
    assert Bench().acquire().reads(released()).refused().reads(e.Absent()).why is e.Why.RACED


@pytest.mark.parametrize("reading", [record(), e.Absent(), e.ReadFailed("down")])
def test_l6_an_unclear_write_that_is_not_seen_stays_unknown(reading: e.Reading) -> None:
    bench = Bench().acquire().reads(released()).unclear().reads(reading)
    assert bench.why is e.Why.UNKNOWN


def test_l6_a_refused_write_that_cannot_be_read_back_is_unknown() -> None:
    bench = Bench().acquire().reads(released()).refused().reads(e.ReadFailed("down", 100))
    assert bench.result == e.NotAcquired(e.Why.UNKNOWN, cause="down", retry_after_ms=100)


def test_l5_a_refused_write_of_ours_that_died_meanwhile_is_late_not_anothers() -> None:
    bench = Bench().acquire().reads(released())
    grant = bench.written
    bench.refused().at(DEAD_AFTER_MS + 1).reads(grant, "v2")
    assert bench.why is e.Why.LATE


def test_p17_a_cached_try_that_was_refused_goes_on_with_what_was_read() -> None:
    bench = Bench().holding(token=8).release().lands("v3").acquire().refused()
    bench.reads(released(token=20), "v9")
    assert (bench.on_version, bench.written.token) == ("v9", 21)
    assert bench.lands("v10").result == e.Granted(21)


def test_p17_a_cached_try_that_was_refused_by_a_holder_is_not_acquired() -> None:
    holder = record(token=9)
    bench = Bench().holding().release().lands("v3").acquire().refused().reads(holder)
    assert bench.result == e.NotAcquired(e.Why.HELD, holder)


def test_p17_a_cached_try_whose_object_is_gone_creates_it() -> None:
    bench = Bench().holding().release().lands("v3").acquire().refused().reads(e.Absent())
    assert bench.request == e.ReadCounter()


def test_p17_only_the_first_write_goes_on() -> None:
    bench = Bench().holding().release().lands("v3").acquire().refused().reads(released(token=20))
    assert bench.refused().reads(released(token=30)).why is e.Why.RACED


def test_p17_a_cached_try_whose_answer_is_unclear_does_not_go_on() -> None:
    bench = Bench().holding().release().lands("v3").acquire().unclear()
    assert bench.reads(released(token=20)).why is e.Why.UNKNOWN


# --- ghosts, and what cannot be read (P18, P19) ---------------------------------------------------


def test_p18_a_ghost_that_appears_later_is_released_by_the_next_attempt() -> None:
    bench = Bench().ghostly().acquire().reads(record(ME), "v5")
    assert (bench.on_version, bench.written.expired) == ("v5", True)
    assert bench.lands("v6").why is e.Why.GHOST
    # Its release is ours, so the attempt after that writes at once (P12).
    assert bench.acquire().on_version == "v6"


def test_p18_a_ghost_that_appears_later_is_released_by_close() -> None:
    bench = Bench().ghostly().close()
    assert bench.request == e.ReadRecord()
    bench.reads(record(ME), "v5")
    assert (bench.on_version, bench.written.expired) == ("v5", True)
    assert (bench.lands().result, bench.counted) == (e.Closed(), ["lock.ghost"])


@pytest.mark.parametrize("reading", [record(), released(ME), e.Absent(), e.ReadFailed("down")])
def test_p18_close_leaves_alone_what_is_not_a_ghost(reading: e.Reading) -> None:
    bench = Bench().ghostly().close().reads(reading)
    assert bench.effects == (e.Done(e.Closed()),)


def test_p18_close_without_a_doubt_reads_nothing() -> None:
    bench = Bench().holding().release().lands("v3").close()
    assert (bench.phase, bench.effects) == (Phase.CLOSED, (e.Done(e.Closed()),))
    assert bench.close().effects == (e.Done(e.Closed()),)


def test_p19_an_unreadable_record_ends_the_attempt_and_says_what_it_is() -> None:
    bench = Bench().acquire().reads(UNREADABLE)
    assert bench.effects == (e.Done(e.NotAcquired(e.Why.UNREADABLE, cause="not JSON")),)


def test_p19_acquire_never_replaces_an_unreadable_record_after_an_unclear_write() -> None:
    bench = Bench().acquire().reads(released()).unclear().reads(UNREADABLE)
    assert (bench.why, bench.request) == (e.Why.UNREADABLE, None)


def test_p19_renew_never_replaces_an_unreadable_record() -> None:
    bench = Bench().holding().at(1_000).renew().refused().reads(UNREADABLE)
    assert (bench.phase, bench.request) == (Phase.LOST, None)


def test_p19_release_never_replaces_an_unreadable_record() -> None:
    bench = Bench().holding().release().refused().reads(UNREADABLE)
    assert (bench.result, bench.request) == (e.ReleaseUnknown("not JSON"), None)


def test_p19_close_never_replaces_an_unreadable_record() -> None:
    bench = Bench().ghostly().close().reads(UNREADABLE)
    assert (bench.result, bench.request) == (e.Closed(), None)


def test_p3_every_write_carries_a_nonce_of_its_own() -> None:
    bench = Bench()
    nonces = [bench.acquire().reads(released()).written.nonce]
    nonces.append(bench.lands("v2").at(1_000).renew().written.nonce)
    nonces.append(bench.refused().reads(record(ME, token=8), "v2").written.nonce)
    nonces.append(bench.lands("v3").release().written.nonce)
    nonces.append(bench.lands("v4").acquire().written.nonce)
    assert nonces == [f"{ME}:{count}" for count in range(1, 6)]
