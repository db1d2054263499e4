"""Clocks as the rest of the code sees them: simulations and tests give their own."""

from __future__ import annotations

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
