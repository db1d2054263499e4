"""Lease arithmetic: when a holder must stop, and when another client may take over (P8-P10).

Pure. The holder uses its monotonic clock and subtracts the margin; the next client uses its wall
clock and adds drift and grace. Within the allowed drift, at least margin + grace lie between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidelock.core.clock import Now
from tidelock.core.errors import ConfigInvalid
from tidelock.core.limits import (
    CLOCK_DRIFT_MS,
    GRACE_MS,
    MARGIN_MS_MIN,
    MARGIN_SHARE,
    RENEWALS_PER_VALIDITY,
    VALIDITY_MS_PLAUSIBLE,
)
from tidelock.lock.events import RenewalUnknown, Renewed, Result
from tidelock.lock.record import LockRecord


def margin_of(validity_ms: int) -> int:
    """Return how long before the end of its lease a holder stops."""
    return max(MARGIN_MS_MIN, validity_ms // MARGIN_SHARE)


def check_margin(validity_ms: int) -> None:
    """Raise `ConfigInvalid` for a validity that is mostly margin."""
    least_ms = 2 * margin_of(validity_ms)
    if validity_ms <= least_ms:
        raise ConfigInvalid(
            f"lock validity: expected more than {least_ms} ms, got {validity_ms} ms"
        )


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease terms. All clients of a lock must use the same."""

    validity_ms: int
    renew_ms: int
    drift_ms: int = CLOCK_DRIFT_MS
    grace_ms: int = GRACE_MS

    def __post_init__(self) -> None:
        """Reject terms under which the lock would not be safe."""
        if self.drift_ms < CLOCK_DRIFT_MS:
            raise ConfigInvalid(
                f"clock drift: expected at least {CLOCK_DRIFT_MS} ms, got {self.drift_ms} ms",
                hint="RFC-91 requires this minimum",
            )
        if self.grace_ms < 0 or self.renew_ms < 1:
            raise ConfigInvalid(
                "lease: expected a grace of 0 ms or more and a renewal interval of 1 ms or more,"
                f" got {self.grace_ms} and {self.renew_ms} ms"
            )
        if self.validity_ms < RENEWALS_PER_VALIDITY * self.renew_ms:
            raise ConfigInvalid(
                f"lock validity: expected at least {RENEWALS_PER_VALIDITY} renewal intervals of"
                f" {self.renew_ms} ms, got {self.validity_ms} ms",
                hint="increase the validity, or renew more often",
            )
        if self.validity_ms > VALIDITY_MS_PLAUSIBLE:
            raise ConfigInvalid(
                f"lock validity: expected at most a day, got {self.validity_ms} ms",
                hint="a dead holder blocks all other clients for that long; use minutes",
            )
        check_margin(self.validity_ms)

    @property
    def margin_ms(self) -> int:
        """How long before the end of its lease a holder stops."""
        return margin_of(self.validity_ms)

    def valid_until_epoch_ms(self, now: Now) -> int:
        """Return the expiry that a grant or renewal sent at `now` writes to the record (P8)."""
        return now.wall_epoch_ms + self.validity_ms

    def deadline_monotonic_ms(self, sent: Now) -> int:
        """Return when the holder must stop if the write sent at `sent` landed (P9)."""
        return sent.monotonic_ms + self.validity_ms - self.margin_ms

    def is_dead(self, record: LockRecord, now: Now) -> bool:
        """Return whether an unreleased record may be taken over at `now` (P10)."""
        return now.wall_epoch_ms > self.dead_after_epoch_ms(record)

    def dead_after_epoch_ms(self, record: LockRecord) -> int:
        """Return the wall time after which `record` may be taken over."""
        return record.valid_until_epoch_ms + self.drift_ms + self.grace_ms

    def is_free(self, record: LockRecord, now: Now) -> bool:
        """Return whether `record` was released or may be taken over."""
        return record.expired or self.is_dead(record, now)


FAILURE_SHARE = 10
"""After a failure, the first retry comes after a tenth of the renewal interval."""


class RenewalTerms(Protocol):
    """The lease terms that the renewal schedule needs: the interval between renewals."""

    @property
    def renew_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RenewalSchedule:
    """The renewal schedule of one holding."""

    lease: RenewalTerms
    due_monotonic_ms: int
    failures: int = 0

    @staticmethod
    def started(lease: RenewalTerms, granted_monotonic_ms: int) -> RenewalSchedule:
        """Return the schedule of a holding whose grant was known at `granted_monotonic_ms`."""
        return RenewalSchedule(lease, granted_monotonic_ms + lease.renew_ms)

    def after(
        self, result: Result, *, sent_monotonic_ms: int, now_monotonic_ms: int
    ) -> RenewalSchedule | None:
        """Return the schedule after a renewal with `result`; None if renewals must stop."""
        match result:
            case Renewed():
                return RenewalSchedule(self.lease, sent_monotonic_ms + self.lease.renew_ms)
            case RenewalUnknown():
                pause = self.lease.renew_ms / FAILURE_SHARE * 2 ** min(self.failures, 16)
                pause = max(1, min(round(pause), self.lease.renew_ms))
                return RenewalSchedule(self.lease, now_monotonic_ms + pause, self.failures + 1)
            case _:
                return None
