"""The clocks of one simulated process: a wall clock that is off, a monotonic one that is not."""

from __future__ import annotations

from collections.abc import Callable

from tidelock.base.clock import Now

EPOCH_MS = 1_700_000_000_000


class VirtualClock:
    """A reading of virtual time through one process's eyes.

    The monotonic clock runs at `rate` and never steps; the wall clock is `offset_ms` off the
    truth, and may be moved.
    """

    __slots__ = ("_offset_ms", "_read", "_read_at", "_time_ms", "rate", "started_ms")

    def __init__(
        self, time_ms: Callable[[], float], *, offset_ms: float, rate: float, started_ms: float
    ) -> None:
        """Read `time_ms`, the truth."""
        self._time_ms = time_ms
        self._offset_ms = offset_ms
        self.rate = rate
        self.started_ms = started_ms
        self._read_at = -1.0
        self._read = Now(0, 0)

    def now(self) -> Now:
        """Read both clocks."""
        time_ms = self._time_ms()
        if time_ms != self._read_at:
            # Most readings come in groups at one instant.
            self._read_at = time_ms
            self._read = Now(
                int(self.started_ms + time_ms * self.rate),
                int(EPOCH_MS + time_ms + self._offset_ms),
            )
        return self._read

    def set_wall(self, offset_ms: float) -> None:
        """Move the wall clock to `offset_ms` off the truth."""
        self._offset_ms = offset_ms
        self._read_at = -1.0

    def true_ms(self, monotonic_ms: float) -> float:
        """Return how long `monotonic_ms` of this clock take in truth."""
        return monotonic_ms / self.rate

    def sleep_ms(self, duration_ms: float) -> None:
        """Refuse: a simulated process waits by yielding a pause."""
        raise AssertionError(f"a simulated process tried to sleep for {duration_ms} ms")
