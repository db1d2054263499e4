"""Pauses of a waiter: short while the owner changes, long while it stays, bounded by its lease."""

from __future__ import annotations

from tidelock.core.clock import Now
from tidelock.core.retry import Backoff
from tidelock.lock.backoff import CONTENDERS_MAX, WaitHistory
from tidelock.lock.events import NotAcquired, NotAcquiredReason
from tidelock.lock.lease import Lease
from tidelock.lock.record import LockRecord

POLL = Backoff(first_ms=10, max_ms=1_000, factor=1.6)
LEASE = Lease(validity_ms=10_000, renew_ms=1_000)
NOW = Now(monotonic_ms=5_000, wall_epoch_ms=1_000_000)


def held(token: int = 1, *, left_ms: int = 60_000, owner: str = "x") -> NotAcquired:
    valid_until = NOW.wall_epoch_ms + left_ms - LEASE.drift_ms - LEASE.grace_ms
    record = LockRecord(False, valid_until, owner, token, token + 9, f"{owner}:{token}")
    return NotAcquired(NotAcquiredReason.HELD, record)


def pauses(seen: list[NotAcquired], jitter: float = 1.0) -> list[float]:
    waiting, found = WaitHistory(POLL), []
    for observation in seen:
        waiting = waiting.after(observation)
        found.append(waiting.pause_ms(observation, LEASE, NOW, jitter))
    return found


def test_first_pause_is_short_and_pauses_grow_to_a_second() -> None:
    found = pauses([held()] * 20)
    assert found[0] == 10
    assert found == sorted(found)
    assert found[-1] == 1_000


def test_lock_that_changed_owner_is_polled_closely_again() -> None:
    found = pauses([held(1)] * 12 + [held(2)])
    assert found[-2] > 500
    assert found[-1] == 10


def test_renewal_is_not_a_change_of_owner() -> None:
    renewed = [held(1, left_ms=60_000 + n) for n in range(12)]
    assert pauses(renewed)[-1] > 500


def test_pause_ends_when_the_lease_expires() -> None:
    found = pauses([held(left_ms=300)] * 12)
    assert max(found) <= 300 + 1 + POLL.first_ms


def test_expired_lease_is_polled_soon_but_not_in_a_spin() -> None:
    assert all(5 <= pause <= 10 for pause in pauses([held(left_ms=-50)] * 12))


def test_retry_after_of_the_store_is_honoured() -> None:
    throttled = NotAcquired(NotAcquiredReason.THROTTLED, retry_after_ms=7_000)
    assert pauses([throttled]) == [7_000]


def test_no_pause_after_a_ghost() -> None:
    assert pauses([NotAcquired(NotAcquiredReason.GHOST)]) == [0.0]


def test_half_of_a_pause_is_random() -> None:
    assert pauses([held()], jitter=0.0) == [5]
    assert pauses([held()], jitter=0.5) == [7.5]


def test_pauses_grow_with_the_number_of_owners_seen() -> None:
    crowd = [held(token, owner=f"owner-{token % 40}") for token in range(80)]
    found = pauses(crowd)
    assert found[:3] == [10, 20, 30]
    assert found[-1] == 10 * CONTENDERS_MAX


def test_two_contenders_stay_fast_however_often_the_lock_moves() -> None:
    assert set(pauses([held(token, owner="the other") for token in range(50)])) == {10}


def test_pause_is_bounded_with_any_number_of_contenders() -> None:
    crowd = [held(token, owner=f"owner-{token}") for token in range(40)]
    assert max(pauses(crowd + [crowd[-1]] * 12)) == POLL.max_ms
