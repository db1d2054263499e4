"""When a silent holder may be called dead without comparing clocks.

A record that names a duration, and changes with every renewal, says by standing still for that
duration, on the watcher's own monotonic clock, that nobody renews it. Any two clocks may differ by
any amount. The price: a watcher that comes late still waits one whole duration.
"""

from __future__ import annotations

import threading

from tidelock.base.clock import Clock
from tidelock.base.limits import GRACE_MS

WATCHED_MAX = 1_024
"""Locks a process remembers; the one seen longest ago is forgotten first."""


class Observations:
    """What this process has seen of locks, by their name: a version, and since when."""

    def __init__(self) -> None:
        """Start without any."""
        self._mutex = threading.Lock()
        self._seen: dict[str, tuple[str, int]] = {}

    def left_ms(self, lock: str, version: str, duration_ms: int, clock: Clock) -> float:
        """Return how long `version` must stand still before `lock` may be taken; 0 is now."""
        now_ms = clock.now().monotonic_ms
        with self._mutex:
            known, since_ms = self._seen.pop(lock, ("", now_ms))
            if known != version:
                since_ms = now_ms
            self._seen[lock] = (version, since_ms)
            while len(self._seen) > WATCHED_MAX:
                del self._seen[next(iter(self._seen))]
        return max(0.0, since_ms + duration_ms + GRACE_MS - now_ms)


shared_observations = Observations()
"""One memory for all clients of a process: a provider made a moment ago knows what others saw."""
