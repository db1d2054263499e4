"""How a waiter paces itself: Hudi's wait and retry settings, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelock.base.clock import Clock
from tidelock.base.errors import ConfigInvalid, Throttled, Unavailable
from tidelock.base.ids import IdSource
from tidelock.base.retry import Backoff
from tidelock.lock.config import NUM_RETRIES, WAIT_BETWEEN_RETRIES_MAX_MS, WAIT_BETWEEN_RETRIES_MS
from tidelock.lockproviders.backend import Held

_LOOK_FIRST_MS = 10
_LOOK_FACTOR = 1.6


@dataclass(frozen=True, slots=True)
class Pace:
    """Pauses between looks at a held lock, and between tries with a service that is out of reach.

    `hoodie.write.lock.wait_time_ms_between_retry` is the longest pause between two looks and the
    first between two failures, `…max_wait_time_ms_between_retry` the longest between failures, and
    after `…num_retries` failures in a row a call gives up, within its waiting time or not.
    """

    between_ms: int = 1_000
    between_max_ms: int = 16_000
    retries: int = 15

    @staticmethod
    def read(settings: Mapping[str, object]) -> Pace:
        """Read and check.

        Raises: `ConfigInvalid`.
        """
        between_ms = WAIT_BETWEEN_RETRIES_MS.required(settings)
        between_max_ms = WAIT_BETWEEN_RETRIES_MAX_MS.required(settings)
        retries = NUM_RETRIES.required(settings)
        if between_ms < 1 or retries < 0:
            raise ConfigInvalid(
                f"{WAIT_BETWEEN_RETRIES_MS.key} = {between_ms} and {NUM_RETRIES.key} = {retries}"
                " must be positive"
            )
        return Pace(between_ms, max(between_ms, between_max_ms), retries)


class Patience:
    """What is left of one wait."""

    def __init__(self, pace: Pace, clock: Clock, ids: IdSource, wait_ms: float) -> None:
        """Begin to wait for up to `wait_ms`."""
        self._clock = clock
        self._ids = ids
        self._pace = pace
        self._until_ms = clock.now().monotonic_ms + wait_ms
        self._looks = Backoff(
            first_ms=min(_LOOK_FIRST_MS, pace.between_ms),
            most_ms=pace.between_ms,
            factor=_LOOK_FACTOR,
        )
        self._trouble = Backoff(first_ms=pace.between_ms, most_ms=pace.between_max_ms)
        self._seen = ""
        self._same = 0
        self._failures = 0

    def after_look(self, seen: Held) -> float | None:
        """Return the pause after a refusal; None when the time is over.

        A lock that moves from hand to hand is watched closely, one that stays is left in peace.
        """
        self._failures = 0
        self._same = self._same + 1 if seen.owner == self._seen else 0
        self._seen = seen.owner
        pause_ms = self._looks.delay_ms(self._same, self._ids.jitter())
        if seen.look_after_ms is not None:
            pause_ms = min(pause_ms, max(seen.look_after_ms, self._looks.first_ms / 2))
        return self._within(pause_ms)

    def after_failure(self, error: Unavailable) -> float | None:
        """Return the pause after a failure; None when the time or the retries are used up."""
        self._failures += 1
        if self._failures > self._pace.retries:
            return None
        pause_ms = self._trouble.delay_ms(self._failures - 1, self._ids.jitter())
        if isinstance(error, Throttled):
            pause_ms = max(pause_ms, error.retry_after_ms or 0)
        return self._within(pause_ms)

    def after_doubt(self) -> float | None:
        """Return the pause after an answer that was lost; None when time or retries are used up."""
        self._failures += 1
        return None if self._failures > self._pace.retries else self._within(self._looks.first_ms)

    def _within(self, pause_ms: float) -> float | None:
        left_ms = self._until_ms - self._clock.now().monotonic_ms
        return None if left_ms <= 0 else min(pause_ms, left_ms)
