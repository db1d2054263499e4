"""How long a waiter pauses between two looks at a lock. Pure.

Polling is quick while the lock moves from hand to hand and slows down while one owner keeps it,
so a short hold is taken over within milliseconds and a long one costs a request a second. The more
owners a waiter sees, the more others wait as well, and the longer it leaves the store to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.base.clock import Now
from tidelock.base.retry import Backoff
from tidelock.lock.events import NotAcquired, Why
from tidelock.lock.lease import Lease

RIVALS_MAX = 32
"""More owners than this need no longer pauses: the store is quiet enough."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiter's memory of what it has seen so far; `rivals` are the owners, the latest last."""

    poll: Backoff
    looks: int = 0
    holder_nonce: str = ""
    rivals: tuple[str, ...] = ()

    def after(self, seen: NotAcquired) -> Waiting:
        """Return the memory after one more look: a lock that moved is watched closely again."""
        nonce = f"{seen.holder.owner}/{seen.holder.token}" if seen.holder else ""
        moved = seen.why is Why.GHOST or nonce not in ("", self.holder_nonce)
        looks = 0 if moved else self.looks + 1
        return Waiting(self.poll, looks, nonce or self.holder_nonce, self._rivals_with(seen))

    def pause_ms(self, seen: NotAcquired, lease: Lease, now: Now, jitter: float) -> float:
        """Return how long to wait after `seen`.

        Never much beyond the moment when the record seen may be taken over, and never less than
        the store asked for.
        """
        if seen.why is Why.GHOST:
            return 0.0
        # All waiters together then look about as often as few do, however many there are.
        crowd = max(1, len(self.rivals))
        pause = min(crowd * self.poll.delay_ms(self.looks, jitter), self.poll.most_ms)
        if seen.holder is not None and not seen.holder.expired:
            left = lease.dead_after_epoch_ms(seen.holder) + 1 - now.wall_epoch_ms
            pause = min(pause, max(left + jitter * self.poll.first_ms, self.poll.first_ms / 2))
        return max(pause, float(seen.retry_after_ms or 0))

    def _rivals_with(self, seen: NotAcquired) -> tuple[str, ...]:
        if seen.holder is None:
            return self.rivals
        owner = seen.holder.owner
        return (*(rival for rival in self.rivals if rival != owner), owner)[-RIVALS_MAX:]


COURTESY_MS = 20
"""The least pause that lets others look; it grows with the time the store takes to answer."""

COURTESY_SHARE = 10
"""A streak is ten times as long as the pause after it, so courtesy costs a tenth at most."""


@dataclass(frozen=True, slots=True)
class Streak:
    """How long one client has taken the lock again right after releasing it.

    It could go on for ever: its next write is on its way before anybody else has looked. So after
    a while it steps back for a moment, and whoever waits gets in.
    """

    began_ms: int | None = None
    released_ms: int | None = None
    answer_ms: int = 0

    def pause_ms(self, now: Now, jitter: float) -> float:
        """Return how long to let others look before the next attempt; mostly nothing."""
        if self.began_ms is None or not self._goes_on(now):
            return 0.0
        pause_ms = self._pause_ms()
        is_long = now.monotonic_ms - self.began_ms >= COURTESY_SHARE * pause_ms
        return pause_ms * (0.75 + jitter / 2) if is_long else 0.0

    def granted(self, now: Now, asked_ms: int) -> Streak:
        """Return the streak after a grant that was asked for at `asked_ms`."""
        answer_ms = now.monotonic_ms - asked_ms
        began_ms = self.began_ms if self._goes_on(now) else None
        return Streak(now.monotonic_ms if began_ms is None else began_ms, None, answer_ms)

    def released(self, now: Now) -> Streak:
        """Return the streak after a release."""
        return Streak(self.began_ms, now.monotonic_ms, self.answer_ms)

    def _goes_on(self, now: Now) -> bool:
        gap_ms = self._pause_ms() + self.answer_ms
        return self.released_ms is not None and now.monotonic_ms - self.released_ms <= gap_ms

    def _pause_ms(self) -> int:
        return max(COURTESY_MS, 2 * self.answer_ms)
