"""P32: a client that keeps taking the lock steps back now and then, and costs little by it."""

from __future__ import annotations

from tidelock.base.clock import Now
from tidelock.lock.waiting import COURTESY_MS, COURTESY_SHARE, Streak


def at(ms: int) -> Now:
    return Now(monotonic_ms=ms, wall_epoch_ms=0)


def hammer(streak: Streak, *, start_ms: int, cycles: int, answer_ms: int) -> tuple[Streak, int]:
    """Take and release in a tight loop; return the streak and the time at its end."""
    now_ms = start_ms
    for _ in range(cycles):
        streak = streak.granted(at(now_ms + answer_ms), now_ms)
        now_ms += 2 * answer_ms
        streak = streak.released(at(now_ms))
    return streak, now_ms


def test_a_first_acquire_is_not_held_back() -> None:
    assert Streak().pause_ms(at(0), 0.5) == 0


def test_a_short_streak_is_not_held_back() -> None:
    streak, now_ms = hammer(Streak(), start_ms=0, cycles=3, answer_ms=5)
    assert streak.pause_ms(at(now_ms), 0.5) == 0


def test_a_long_streak_lets_others_look() -> None:
    streak, now_ms = hammer(Streak(), start_ms=0, cycles=60, answer_ms=5)
    assert streak.pause_ms(at(now_ms), 0.5) == COURTESY_MS


def test_the_pause_grows_with_the_time_the_store_takes() -> None:
    streak, now_ms = hammer(Streak(), start_ms=0, cycles=60, answer_ms=50)
    assert streak.pause_ms(at(now_ms), 0.5) == 2 * 50


def test_a_client_that_left_time_for_others_starts_over() -> None:
    streak, now_ms = hammer(Streak(), start_ms=0, cycles=60, answer_ms=5)
    later = at(now_ms + 1_000)
    assert streak.pause_ms(later, 0.5) == 0
    assert streak.granted(later, now_ms + 1_000).began_ms == later.monotonic_ms


def test_courtesy_costs_a_tenth_at_most() -> None:
    streak, now_ms, paused_ms = Streak(), 0, 0.0
    for _ in range(2_000):
        pause_ms = streak.pause_ms(at(now_ms), 1.0)
        if pause_ms > 0:
            streak = Streak()
            now_ms += round(pause_ms)
            paused_ms += pause_ms
        streak, now_ms = hammer(streak, start_ms=now_ms, cycles=1, answer_ms=3)
    assert 0 < paused_ms <= 1.25 * now_ms / COURTESY_SHARE
