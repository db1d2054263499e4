"""Clocks: the only module that reads the clocks of the machine.

Everything else takes a `Clock` as a parameter, so that simulations can replace it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Now:
    """One reading of both clocks.

    `monotonic_ms` is read first: a deadline counted from it can only be early, never late,
    relative to the wall time written with it.
    """

    monotonic_ms: int
    wall_epoch_ms: int


class Clock(Protocol):
    """A wall clock for times that others read, and a monotonic clock for our own deadlines."""

    def now(self) -> Now:
        """Read both clocks, the monotonic one first."""
        ...

    def sleep_ms(self, duration_ms: float) -> None:
        """Return after at least `duration_ms` of monotonic time."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def now(self) -> Now:
        monotonic_ms = time.monotonic_ns() // 1_000_000
        return Now(monotonic_ms=monotonic_ms, wall_epoch_ms=time.time_ns() // 1_000_000)

    def sleep_ms(self, duration_ms: float) -> None:
        if duration_ms > 0:
            time.sleep(duration_ms / 1000)
