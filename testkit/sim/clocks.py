"""The clocks of one simulated process: a wall clock with an offset, and a monotonic clock."""

from __future__ import annotations

from collections.abc import Callable

from tidelock.core.clock import Now

EPOCH_MS = 1_700_000_000_000


class VirtualClock:
    """Virtual time as one process sees it.

    The monotonic clock runs at `rate` and never jumps. The wall clock has the offset `offset_ms`
    from the true time, and may be set.
    """

    __slots__ = ("_offset_ms", "_read", "_read_at", "_time_ms", "rate", "started_ms")

    def __init__(
        self, time_ms: Callable[[], float], *, offset_ms: float, rate: float, started_ms: float
    ) -> None:
        """Derive the clocks from `time_ms`, the true time."""
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
            # Cached: the clocks are usually read several times at one instant.
            self._read_at = time_ms
            self._read = Now(
                int(self.started_ms + time_ms * self.rate),
                int(EPOCH_MS + time_ms + self._offset_ms),
            )
        return self._read

    def set_wall(self, offset_ms: float) -> None:
        """Set the wall clock to the offset `offset_ms`."""
        self._offset_ms = offset_ms
        self._read_at = -1.0

    def true_ms(self, monotonic_ms: float) -> float:
        """Return the true duration of `monotonic_ms` on this clock."""
        return monotonic_ms / self.rate

    def sleep_ms(self, duration_ms: float) -> None:
        """Raise: a simulated process waits by yielding a pause."""
        raise AssertionError(f"a simulated process tried to sleep for {duration_ms} ms")
