"""Waiting for things to happen while looking at them, always with an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelock.base.clock import Clock


@dataclass(frozen=True, slots=True)
class Pacing:
    """Looks every `every_ms`, with `look`, for as long as something is waited for."""

    clock: Clock
    look: Callable[[], None]
    every_ms: float

    def until(self, condition: Callable[[], bool], at_most_ms: float) -> bool:
        """Wait until `condition` holds; return whether it did within `at_most_ms`."""
        until_ms = self.clock.now().monotonic_ms + at_most_ms
        while True:
            self.look()
            if condition():
                return True
            if self.clock.now().monotonic_ms >= until_ms:
                return False
            self.clock.sleep_ms(self.every_ms)

    def lasting(self, duration_s: float) -> None:
        """Wait for so long."""
        self.until(lambda: False, duration_s * 1000)
