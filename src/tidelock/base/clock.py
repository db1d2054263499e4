"""Time as a parameter: the only file that reads the machine's clocks.

Everything else takes a `Clock`, so the simulator can give it another one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Now:
    """One reading of both clocks.

    `monotonic_ms` is read first: a deadline counted from it can only be early, never late,
    against the wall time written beside it.
    """

    monotonic_ms: int
    wall_epoch_ms: int


class Clock(Protocol):
    """A wall clock for what others read, a monotonic clock for what we decide."""

    def now(self) -> Now:
        """Read both clocks, the monotonic one first."""
        ...

    def sleep_ms(self, duration_ms: float) -> None:
        """Return after at least `duration_ms` of monotonic time."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Now:
        """Read both clocks, the monotonic one first."""
        monotonic_ms = time.monotonic_ns() // 1_000_000
        return Now(monotonic_ms=monotonic_ms, wall_epoch_ms=time.time_ns() // 1_000_000)

    def sleep_ms(self, duration_ms: float) -> None:
        """Return after at least `duration_ms` of monotonic time."""
        if duration_ms > 0:
            time.sleep(duration_ms / 1000)
