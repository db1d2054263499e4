"""Counters, gauges and timers in memory. Names are Hudi's where Hudi has one.

Exporters read `snapshot`; nothing here knows where the numbers go.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

TIMER_SAMPLES_MAX = 100
"""A timer keeps as many samples as Hudi's."""


@dataclass(slots=True)
class Timer:
    """The number of timings, their sum, and the latest of them."""

    count: int = 0
    total_ms: float = 0.0
    latest_ms: deque[float] = field(default_factory=lambda: deque(maxlen=TIMER_SAMPLES_MAX))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All values at one moment, by full name."""

    counters: dict[str, int]
    gauges: dict[str, float]
    timers: dict[str, Timer]


class Metrics:
    """The numbers of one component; safe for many threads."""

    def __init__(self, prefix: str = "", *, is_process: bool = False) -> None:
        """Put `prefix` and a dot before every name, as Hudi's reporters do.

        What is counted here is counted in `PROCESS` as well.
        """
        self._prefix = f"{prefix}." if prefix else ""
        self._above = None if is_process else PROCESS
        self._mutex = threading.Lock()
        self._counters: dict[str, int] = {}
        self._gauges: dict[str, float] = {}
        self._timers: dict[str, Timer] = {}

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to a counter."""
        with self._mutex:
            full = self._prefix + name
            self._counters[full] = self._counters.get(full, 0) + amount
        if self._above is not None:
            self._above.count(full, amount)

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge."""
        with self._mutex:
            self._gauges[self._prefix + name] = value
        if self._above is not None:
            self._above.gauge(self._prefix + name, value)

    def time(self, name: str, duration_ms: float) -> None:
        """Add a timing."""
        with self._mutex:
            timer = self._timers.setdefault(self._prefix + name, Timer())
            timer.count += 1
            timer.total_ms += duration_ms
            timer.latest_ms.append(duration_ms)
        if self._above is not None:
            self._above.time(self._prefix + name, duration_ms)

    def counter(self, name: str) -> int:
        """Return the value of a counter; 0 if it was never counted."""
        with self._mutex:
            return self._counters.get(self._prefix + name, 0)

    def snapshot(self) -> Snapshot:
        """Return a copy of everything."""
        with self._mutex:
            timers = {
                name: Timer(timer.count, timer.total_ms, timer.latest_ms.copy())
                for name, timer in self._timers.items()
            }
            return Snapshot(dict(self._counters), dict(self._gauges), timers)


PROCESS: Metrics = Metrics(is_process=True)
"""Everything that this process counts: what exporters read."""
