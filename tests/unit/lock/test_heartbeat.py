"""When the next renewal is due (P27): the interval, and after a failure a tenth of it, doubling."""

from __future__ import annotations

import pytest

from tidelock.lock.events import Closed, Doubtful, Lost, Released, Renewed, Result
from tidelock.lock.heartbeat import Heartbeat
from tidelock.lock.lease import Lease

LEASE = Lease(validity_ms=100_000, renew_ms=10_000)


def after(beat: Heartbeat, result: Result, *, sent: int, now: int) -> Heartbeat:
    following = beat.after(result, sent_monotonic_ms=sent, now_monotonic_ms=now)
    assert following is not None
    return following


def test_the_first_renewal_is_due_an_interval_after_the_grant() -> None:
    assert Heartbeat.started(LEASE, 5_000).due_monotonic_ms == 15_000


def test_the_next_one_is_due_an_interval_after_the_last_was_sent() -> None:
    beat = Heartbeat.started(LEASE, 0)
    assert after(beat, Renewed(), sent=10_000, now=14_000).due_monotonic_ms == 20_000


def test_after_failures_it_is_tried_after_a_tenth_doubling_up_to_the_interval() -> None:
    beat, dues = Heartbeat.started(LEASE, 0), []
    for _ in range(7):
        beat = after(beat, Doubtful("reset"), sent=0, now=0)
        dues.append(beat.due_monotonic_ms)
    assert dues == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000]


def test_a_failure_waits_from_its_end_so_a_slow_store_is_not_pressed() -> None:
    beat = Heartbeat.started(LEASE, 0)
    assert after(beat, Doubtful("timeout"), sent=10_000, now=40_000).due_monotonic_ms == 41_000


def test_a_success_forgets_the_failures() -> None:
    beat = Heartbeat.started(LEASE, 0)
    for _ in range(3):
        beat = after(beat, Doubtful("reset"), sent=0, now=0)
    beat = after(beat, Renewed(), sent=0, now=0)
    assert after(beat, Doubtful("reset"), sent=0, now=0).due_monotonic_ms == 1_000


def test_a_thousand_failures_do_not_overflow() -> None:
    beat = Heartbeat(LEASE, 0, failures=100_000)
    assert after(beat, Doubtful("reset"), sent=0, now=0).due_monotonic_ms == 10_000


@pytest.mark.parametrize("end", [Lost("gone"), Released(), Closed()])
def test_what_ended_is_not_renewed(end: Result) -> None:
    beat = Heartbeat.started(LEASE, 0)
    assert beat.after(end, sent_monotonic_ms=0, now_monotonic_ms=0) is None
