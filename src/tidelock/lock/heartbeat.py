"""When the next renewal is due (P20, P22, P27). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidelock.lock.events import Doubtful, Renewed, Result

FAILURE_SHARE = 10
"""After a failure the next try comes after a tenth of the interval: nine chances, not one."""


class Cadence(Protocol):
    """What the schedule needs of a lease, whatever backend gave it."""

    @property
    def renew_ms(self) -> int:
        """How often the lease is renewed."""
        ...


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The schedule of one holding's renewals."""

    lease: Cadence
    due_monotonic_ms: int
    failures: int = 0

    @staticmethod
    def started(lease: Cadence, granted_monotonic_ms: int) -> Heartbeat:
        """Return the schedule of a holding whose grant was known at `granted_monotonic_ms`."""
        return Heartbeat(lease, granted_monotonic_ms + lease.renew_ms)

    def after(
        self, result: Result, *, sent_monotonic_ms: int, now_monotonic_ms: int
    ) -> Heartbeat | None:
        """Return the schedule after a renewal ended with `result`; None when it must stop."""
        match result:
            case Renewed():
                return Heartbeat(self.lease, sent_monotonic_ms + self.lease.renew_ms)
            case Doubtful():
                pause = self.lease.renew_ms / FAILURE_SHARE * 2 ** min(self.failures, 16)
                pause = max(1, min(round(pause), self.lease.renew_ms))
                return Heartbeat(self.lease, now_monotonic_ms + pause, self.failures + 1)
            case _:
                return None
