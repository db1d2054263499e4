"""How long a waiter pauses between two looks at a lock. Pure.

Polling is quick while the lock moves from hand to hand and slows down while one owner keeps it,
so a short hold is taken over within milliseconds and a long one costs a request a second.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.base.clock import Now
from tidelock.base.retry import Backoff
from tidelock.lock.events import NotAcquired, Why
from tidelock.lock.lease import Lease


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiter's memory of what it has seen so far."""

    poll: Backoff
    looks: int = 0
    holder_nonce: str = ""

    def after(self, seen: NotAcquired) -> Waiting:
        """Return the memory after one more look: a lock that moved is watched closely again."""
        nonce = f"{seen.holder.owner}/{seen.holder.token}" if seen.holder else ""
        moved = seen.why is Why.GHOST or nonce not in ("", self.holder_nonce)
        return Waiting(self.poll, 0 if moved else self.looks + 1, nonce or self.holder_nonce)

    def pause_ms(self, seen: NotAcquired, lease: Lease, now: Now, jitter: float) -> float:
        """Return how long to wait after `seen`.

        Never much beyond the moment when the record seen may be taken over, and never less than
        the store asked for.
        """
        if seen.why is Why.GHOST:
            return 0.0
        pause = self.poll.delay_ms(self.looks, jitter)
        if seen.holder is not None and not seen.holder.expired:
            left = lease.dead_after_epoch_ms(seen.holder) + 1 - now.wall_epoch_ms
            pause = min(pause, max(left + jitter * self.poll.first_ms, self.poll.first_ms / 2))
        return max(pause, float(seen.retry_after_ms or 0))
