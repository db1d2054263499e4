"""P32: a client that re-acquires the lock repeatedly pauses from time to time."""

from __future__ import annotations

from tidelock.core.clock import Now
from tidelock.lock.backoff import YIELD_MS, YIELD_SHARE, ReacquireHistory


def at(ms: int) -> Now:
    return Now(monotonic_ms=ms, wall_epoch_ms=0)


def hammer(
    history: ReacquireHistory, *, start_ms: int, cycles: int, answer_ms: int
) -> tuple[ReacquireHistory, int]:
    """Acquire and release in a tight loop; return the history and the time at its end."""
    now_ms = start_ms
    for _ in range(cycles):
        history = history.granted(at(now_ms + answer_ms), now_ms)
        now_ms += 2 * answer_ms
        history = history.released(at(now_ms))
    return history, now_ms


def test_first_acquire_is_not_delayed() -> None:
    assert ReacquireHistory().pause_ms(at(0), 0.5) == 0


def test_few_acquires_are_not_delayed() -> None:
    history, now_ms = hammer(ReacquireHistory(), start_ms=0, cycles=3, answer_ms=5)
    assert history.pause_ms(at(now_ms), 0.5) == 0


def test_many_acquires_pause_for_other_clients() -> None:
    history, now_ms = hammer(ReacquireHistory(), start_ms=0, cycles=60, answer_ms=5)
    assert history.pause_ms(at(now_ms), 0.5) == YIELD_MS


def test_pause_grows_with_the_latency_of_the_store() -> None:
    history, now_ms = hammer(ReacquireHistory(), start_ms=0, cycles=60, answer_ms=50)
    assert history.pause_ms(at(now_ms), 0.5) == 2 * 50


def test_client_that_paused_by_itself_starts_over() -> None:
    history, now_ms = hammer(ReacquireHistory(), start_ms=0, cycles=60, answer_ms=5)
    later = at(now_ms + 1_000)
    assert history.pause_ms(later, 0.5) == 0
    assert history.granted(later, now_ms + 1_000).began_ms == later.monotonic_ms


def test_pauses_cost_a_tenth_at_most() -> None:
    history, now_ms, paused_ms = ReacquireHistory(), 0, 0.0
    for _ in range(2_000):
        pause_ms = history.pause_ms(at(now_ms), 1.0)
        if pause_ms > 0:
            history = ReacquireHistory()
            now_ms += round(pause_ms)
            paused_ms += pause_ms
        history, now_ms = hammer(history, start_ms=now_ms, cycles=1, answer_ms=3)
    assert 0 < paused_ms <= 1.25 * now_ms / YIELD_SHARE
