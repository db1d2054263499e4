"""The renewal schedule (P27): the interval; after a failure a tenth of it, doubling."""

from __future__ import annotations

import pytest

from tidelock.lock.events import Closed, LockLost, Released, RenewalUnknown, Renewed, Result
from tidelock.lock.lease import Lease, RenewalSchedule

LEASE = Lease(validity_ms=100_000, renew_ms=10_000)


def after(beat: RenewalSchedule, result: Result, *, sent: int, now: int) -> RenewalSchedule:
    following = beat.after(result, sent_monotonic_ms=sent, now_monotonic_ms=now)
    assert following is not None
    return following


def test_first_renewal_is_due_an_interval_after_the_grant() -> None:
    assert RenewalSchedule.started(LEASE, 5_000).due_monotonic_ms == 15_000


def test_next_renewal_is_due_an_interval_after_the_last_request() -> None:
    beat = RenewalSchedule.started(LEASE, 0)
    assert after(beat, Renewed(), sent=10_000, now=14_000).due_monotonic_ms == 20_000


def test_retries_start_at_a_tenth_and_double_up_to_the_interval() -> None:
    beat, dues = RenewalSchedule.started(LEASE, 0), []
    for _ in range(7):
        beat = after(beat, RenewalUnknown("reset"), sent=0, now=0)
        dues.append(beat.due_monotonic_ms)
    assert dues == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000]


def test_retry_delay_counts_from_the_end_of_the_failure() -> None:
    beat = RenewalSchedule.started(LEASE, 0)
    assert (
        after(beat, RenewalUnknown("timeout"), sent=10_000, now=40_000).due_monotonic_ms == 41_000
    )


def test_success_resets_the_failures() -> None:
    beat = RenewalSchedule.started(LEASE, 0)
    for _ in range(3):
        beat = after(beat, RenewalUnknown("reset"), sent=0, now=0)
    beat = after(beat, Renewed(), sent=0, now=0)
    assert after(beat, RenewalUnknown("reset"), sent=0, now=0).due_monotonic_ms == 1_000


def test_thousand_failures_do_not_overflow() -> None:
    beat = RenewalSchedule(LEASE, 0, failures=100_000)
    assert after(beat, RenewalUnknown("reset"), sent=0, now=0).due_monotonic_ms == 10_000


@pytest.mark.parametrize("end", [LockLost("gone"), Released(), Closed()])
def test_ended_holding_is_not_renewed(end: Result) -> None:
    beat = RenewalSchedule.started(LEASE, 0)
    assert beat.after(end, sent_monotonic_ms=0, now_monotonic_ms=0) is None
