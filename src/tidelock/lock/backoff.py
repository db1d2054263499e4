"""Pauses between polls of a held lock. Pure.

Polling is fast while the owner changes and slows down while one owner keeps the lock: a short
holding is followed within milliseconds, and a long one costs one request a second. The more owners
a waiter has seen, the more clients compete for the lock, and the longer its pauses.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.core.clock import Now
from tidelock.core.retry import Backoff
from tidelock.lock.events import NotAcquired, NotAcquiredReason
from tidelock.lock.lease import Lease

CONTENDERS_MAX = 32
"""The number of owners above which pauses do not grow further."""


@dataclass(frozen=True, slots=True)
class WaitHistory:
    """What a waiter has seen so far; `contenders` are the owners, the latest last."""

    poll: Backoff
    polls: int = 0
    holder_nonce: str = ""
    contenders: tuple[str, ...] = ()

    def after(self, seen: NotAcquired) -> WaitHistory:
        """Return the history after one more poll; a change of owner starts over."""
        nonce = f"{seen.holder.owner}/{seen.holder.token}" if seen.holder else ""
        moved = seen.reason is NotAcquiredReason.GHOST or nonce not in ("", self.holder_nonce)
        polls = 0 if moved else self.polls + 1
        return WaitHistory(
            self.poll, polls, nonce or self.holder_nonce, self._contenders_with(seen)
        )

    def pause_ms(self, seen: NotAcquired, lease: Lease, now: Now, jitter: float) -> float:
        """Return how long to wait after `seen`.

        Not much longer than until the record may be taken over, and not less than the store
        requested.
        """
        if seen.reason is NotAcquiredReason.GHOST:
            return 0.0
        # Many waiters together then send about as many requests as a few.
        count = max(1, len(self.contenders))
        pause = min(count * self.poll.delay_ms(self.polls, jitter), self.poll.max_ms)
        if seen.holder is not None and not seen.holder.expired:
            left = lease.dead_after_epoch_ms(seen.holder) + 1 - now.wall_epoch_ms
            pause = min(pause, max(left + jitter * self.poll.first_ms, self.poll.first_ms / 2))
        return max(pause, float(seen.retry_after_ms or 0))

    def _contenders_with(self, seen: NotAcquired) -> tuple[str, ...]:
        if seen.holder is None:
            return self.contenders
        owner = seen.holder.owner
        others = (contender for contender in self.contenders if contender != owner)
        return (*others, owner)[-CONTENDERS_MAX:]


YIELD_MS = 20
"""The shortest pause that lets others acquire; it grows with the latency of the store."""

YIELD_SHARE = 10
"""Re-acquiring goes on ten times as long as the pause after it, so pauses cost a tenth at most."""


@dataclass(frozen=True, slots=True)
class ReacquireHistory:
    """How long one client has re-acquired the lock right after releasing it.

    Without a pause it could do so for ever, because its next write arrives before another client
    has polled. After a while it pauses, and a waiting client gets the lock.
    """

    began_ms: int | None = None
    released_ms: int | None = None
    latency_ms: int = 0

    def pause_ms(self, now: Now, jitter: float) -> float:
        """Return how long to pause before the next attempt; usually 0."""
        if self.began_ms is None or not self._continues(now):
            return 0.0
        pause_ms = self._pause_ms()
        is_long = now.monotonic_ms - self.began_ms >= YIELD_SHARE * pause_ms
        return pause_ms * (0.75 + jitter / 2) if is_long else 0.0

    def granted(self, now: Now, sent_ms: int) -> ReacquireHistory:
        """Return the history after a grant that was requested at `sent_ms`."""
        latency_ms = now.monotonic_ms - sent_ms
        began_ms = self.began_ms if self._continues(now) else None
        return ReacquireHistory(
            now.monotonic_ms if began_ms is None else began_ms, None, latency_ms
        )

    def released(self, now: Now) -> ReacquireHistory:
        """Return the history after a release."""
        return ReacquireHistory(self.began_ms, now.monotonic_ms, self.latency_ms)

    def _continues(self, now: Now) -> bool:
        gap_ms = self._pause_ms() + self.latency_ms
        return self.released_ms is not None and now.monotonic_ms - self.released_ms <= gap_ms

    def _pause_ms(self) -> int:
        return max(YIELD_MS, 2 * self.latency_ms)
