"""What the demo sets out to do: how many writers, on what terms, for how long."""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.base.limits import VALIDITY_S_MIN
from tidelock.lock.lease import Lease

NAMES = ("ada", "ben", "cleo", "dan", "eve")
SHORTEST_LEASE = Lease(validity_ms=VALIDITY_S_MIN * 1000, renew_ms=1000)
"""The shortest that Hudi's settings allow, so that a loss can be watched."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One demo: at least `seconds` in all, `calm_s` of it after each fault."""

    names: tuple[str, ...] = NAMES
    lease: Lease = SHORTEST_LEASE
    seconds: float = 36.0
    warm_up_s: float = 4.0
    calm_s: float = 3.0

    @property
    def takeover_ms_max(self) -> int:
        """How long after a fault a takeover must have happened, on a machine that is not idle."""
        lease = self.lease
        return lease.validity_ms + lease.drift_ms + lease.grace_ms + 10_000

    @property
    def work_ms(self) -> tuple[float, float]:
        """The shortest and the longest critical section.

        Shorter than the renewal interval: a writer that is stopped inside is not stopped in the
        middle of a renewal, where it would keep the local store's folder to itself.
        """
        return self.lease.renew_ms * 0.15, self.lease.renew_ms * 0.5

    @property
    def pause_ms(self) -> tuple[float, float]:
        """The shortest and the longest pause between two critical sections of one writer."""
        return self.lease.renew_ms * 0.02, self.lease.renew_ms * 0.3
