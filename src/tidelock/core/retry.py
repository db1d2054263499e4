"""Exponential backoff as a pure function of the attempt and the jitter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delays between `first_ms` and `max_ms`, each with jitter."""

    first_ms: float
    max_ms: float
    factor: float = 2.0

    def delay_ms(self, attempt: int, jitter: float) -> float:
        """Return the pause after failure number `attempt` (from 0) for a `jitter` in [0, 1).

        Half of the delay is fixed and half is random: contenders spread out, and none spins.
        """
        # The exponent is bounded so that a long outage cannot overflow a float.
        ceiling_ms = min(self.max_ms, self.first_ms * self.factor ** min(attempt, 64))
        return ceiling_ms * (0.5 + jitter / 2)
