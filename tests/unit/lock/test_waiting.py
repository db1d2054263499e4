"""How long a waiter pauses: quick while the lock moves, slow while it stays, never past its end."""

from __future__ import annotations

from tidelock.base.clock import Now
from tidelock.base.retry import Backoff
from tidelock.lock.events import NotAcquired, Why
from tidelock.lock.lease import Lease
from tidelock.lock.record import Record
from tidelock.lock.waiting import RIVALS_MAX, Waiting

POLL = Backoff(first_ms=10, most_ms=1_000, factor=1.6)
LEASE = Lease(validity_ms=10_000, renew_ms=1_000)
NOW = Now(monotonic_ms=5_000, wall_epoch_ms=1_000_000)


def held(token: int = 1, *, left_ms: int = 60_000, owner: str = "x") -> NotAcquired:
    valid_until = NOW.wall_epoch_ms + left_ms - LEASE.drift_ms - LEASE.grace_ms
    record = Record(False, valid_until, owner, token, token + 9, f"{owner}:{token}")
    return NotAcquired(Why.HELD, record)


def pauses(seen: list[NotAcquired], jitter: float = 1.0) -> list[float]:
    waiting, found = Waiting(POLL), []
    for look in seen:
        waiting = waiting.after(look)
        found.append(waiting.pause_ms(look, LEASE, NOW, jitter))
    return found


def test_the_first_pause_is_short_and_they_grow_to_a_second() -> None:
    found = pauses([held()] * 20)
    assert found[0] == 10
    assert found == sorted(found)
    assert found[-1] == 1_000


def test_a_lock_that_moved_is_watched_closely_again() -> None:
    found = pauses([held(1)] * 12 + [held(2)])
    assert found[-2] > 500
    assert found[-1] == 10


def test_a_renewal_is_not_a_move() -> None:
    renewed = [held(1, left_ms=60_000 + n) for n in range(12)]
    assert pauses(renewed)[-1] > 500


def test_nobody_sleeps_past_the_end_of_a_dead_lease() -> None:
    found = pauses([held(left_ms=300)] * 12)
    assert max(found) <= 300 + 1 + POLL.first_ms


def test_a_lease_that_is_over_is_asked_for_again_soon_but_not_in_a_spin() -> None:
    assert all(5 <= pause <= 10 for pause in pauses([held(left_ms=-50)] * 12))


def test_the_store_is_given_the_time_it_asked_for() -> None:
    asked = NotAcquired(Why.THROTTLED, retry_after_ms=7_000)
    assert pauses([asked]) == [7_000]


def test_after_a_ghost_there_is_no_pause() -> None:
    assert pauses([NotAcquired(Why.GHOST)]) == [0.0]


def test_half_of_a_pause_is_drawn() -> None:
    assert pauses([held()], jitter=0.0) == [5]
    assert pauses([held()], jitter=0.5) == [7.5]


def test_the_more_owners_are_seen_the_longer_the_pauses_get() -> None:
    crowd = [held(token, owner=f"owner-{token % 40}") for token in range(80)]
    found = pauses(crowd)
    assert found[:3] == [10, 20, 30]
    assert found[-1] == 10 * RIVALS_MAX


def test_two_contenders_stay_quick_however_often_the_lock_moves() -> None:
    assert set(pauses([held(token, owner="the other") for token in range(50)])) == {10}


def test_no_crowd_makes_a_pause_longer_than_the_longest() -> None:
    crowd = [held(token, owner=f"owner-{token}") for token in range(40)]
    assert max(pauses(crowd + [crowd[-1]] * 12)) == POLL.most_ms
