"""Lease arithmetic: when a holder must stop, and when a taker may start (P8-P10).

Pure. The holder counts on its monotonic clock and subtracts; the taker reads its wall clock and
adds. Between the two lie margin + grace, whatever the drift allowed for does.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.base.clock import Now
from tidelock.base.errors import ConfigInvalid
from tidelock.base.limits import (
    CLOCK_DRIFT_MS,
    GRACE_MS,
    MARGIN_MS_MIN,
    MARGIN_SHARE,
    RENEWALS_PER_VALIDITY,
    VALIDITY_MS_PLAUSIBLE,
)
from tidelock.lock.record import Record


@dataclass(frozen=True, slots=True)
class Lease:
    """The terms every contender for one lock agrees on."""

    validity_ms: int
    renew_ms: int
    drift_ms: int = CLOCK_DRIFT_MS
    grace_ms: int = GRACE_MS

    def __post_init__(self) -> None:
        """Refuse terms under which the lock could lie."""
        if self.drift_ms < CLOCK_DRIFT_MS:
            raise ConfigInvalid(
                f"a clock drift of {self.drift_ms} ms is too small",
                hint=f"RFC-91 asks for {CLOCK_DRIFT_MS} ms or more",
            )
        if self.grace_ms < 0 or self.renew_ms < 1:
            raise ConfigInvalid("the grace and the renewal interval must be positive")
        if self.validity_ms < RENEWALS_PER_VALIDITY * self.renew_ms:
            raise ConfigInvalid(
                f"a validity of {self.validity_ms} ms is less than {RENEWALS_PER_VALIDITY} renewal"
                f" intervals of {self.renew_ms} ms",
                hint="lengthen the validity or renew more often",
            )
        if self.validity_ms > VALIDITY_MS_PLAUSIBLE:
            raise ConfigInvalid(
                f"a validity of {self.validity_ms} ms is longer than a day",
                hint="a dead holder would block everyone for that long; choose minutes",
            )
        if self.validity_ms <= 2 * self.margin_ms:
            raise ConfigInvalid(
                f"a validity of {self.validity_ms} ms leaves no time beside the margin",
                hint=f"use more than {2 * self.margin_ms} ms",
            )

    @property
    def margin_ms(self) -> int:
        """How long before the end of its lease a holder stops."""
        return max(MARGIN_MS_MIN, self.validity_ms // MARGIN_SHARE)

    def valid_until_epoch_ms(self, now: Now) -> int:
        """Return what a grant or renewal sent at `now` writes for others to read (P8)."""
        return now.wall_epoch_ms + self.validity_ms

    def deadline_monotonic_ms(self, sent: Now) -> int:
        """Return when the holder stops, if the write sent at `sent` landed (P9)."""
        return sent.monotonic_ms + self.validity_ms - self.margin_ms

    def is_dead(self, record: Record, now: Now) -> bool:
        """Tell whether an unreleased record may be taken over by a taker at `now` (P10)."""
        return now.wall_epoch_ms > self.dead_after_epoch_ms(record)

    def dead_after_epoch_ms(self, record: Record) -> int:
        """Return the wall time after which `record` may be taken over."""
        return record.valid_until_epoch_ms + self.drift_ms + self.grace_ms

    def is_free(self, record: Record, now: Now) -> bool:
        """Tell whether `record` was released or is dead."""
        return record.expired or self.is_dead(record, now)
