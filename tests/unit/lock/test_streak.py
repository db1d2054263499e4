"""P32: a client that re-acquires the lock repeatedly pauses from time to time."""

from __future__ import annotations

from tidelock.core.clock import Now
from tidelock.lock.backoff import YIELD_MS, YIELD_SHARE, Streak


def at(ms: int) -> Now:
    return Now(monotonic_ms=ms, wall_epoch_ms=0)


def hammer(streak: Streak, *, start_ms: int, cycles: int, answer_ms: int) -> tuple[Streak, int]:
    """Acquire and release in a tight loop; return the streak and the time at its end."""
    now_ms = start_ms
    for _ in range(cycles):
        streak = streak.granted(at(now_ms + answer_ms), now_ms)
        now_ms += 2 * answer_ms
        streak = streak.released(at(now_ms))
    return streak, now_ms


def test_first_acquire_is_not_delayed() -> None:
    assert Streak().pause_ms(at(0), 0.5) == 0


def test_short_streak_is_not_delayed() -> None:
    streak, now_ms = hammer(Streak(), start_ms=0, cycles=3, answer_ms=5)
    assert streak.pause_ms(at(now_ms), 0.5) == 0


def test_long_streak_pauses_for_other_clients() -> None:
    streak, now_ms = hammer(Streak(), start_ms=0, cycles=60, answer_ms=5)
    assert streak.pause_ms(at(now_ms), 0.5) == YIELD_MS


def test_pause_grows_with_the_latency_of_the_store() -> None:
    streak, now_ms = hammer(Streak(), start_ms=0, cycles=60, answer_ms=50)
    assert streak.pause_ms(at(now_ms), 0.5) == 2 * 50


def test_client_that_paused_by_itself_starts_over() -> None:
    streak, now_ms = hammer(Streak(), start_ms=0, cycles=60, answer_ms=5)
    later = at(now_ms + 1_000)
    assert streak.pause_ms(later, 0.5) == 0
    assert streak.granted(later, now_ms + 1_000).began_ms == later.monotonic_ms


def test_pauses_cost_a_tenth_at_most() -> None:
    streak, now_ms, paused_ms = Streak(), 0, 0.0
    for _ in range(2_000):
        pause_ms = streak.pause_ms(at(now_ms), 1.0)
        if pause_ms > 0:
            streak = Streak()
            now_ms += round(pause_ms)
            paused_ms += pause_ms
        streak, now_ms = hammer(streak, start_ms=now_ms, cycles=1, answer_ms=3)
    assert 0 < paused_ms <= 1.25 * now_ms / YIELD_SHARE
