"""A lock with a lease, as a table may have one: it expires under a holder that stands still.

Its tokens grow from grant to grant. It answers at once and never fails: what is looked for is what
becomes of those who believe that they hold it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.base.errors import HoldingLost
from tidelock.testing.txnsim.world import Process

_LOOK_EVERY_MS = 25.0


@dataclass(slots=True)
class Lease:
    """The lock of a table, as its server has it."""

    duration_ms: float
    token: int = 0
    until_ms: float = 0.0
    counter: int = 1
    """Which counter the tokens are of."""

    def restart(self) -> None:
        """Count from the beginning again, as a server does that has lost its data."""
        self.token, self.until_ms, self.counter = 0, 0.0, self.counter + 1


@dataclass(slots=True)
class LeaseLock:
    """One process's hand on the lock; implements what `tidelock.txn.locking` asks of a provider."""

    lease: Lease
    process: Process
    token: int = 0
    until_ms: float = 0.0

    def renew(self) -> None:
        """Prolong the lease again and again; a process that stands still does not."""
        while True:
            self.process.sleep_ms(self.lease.duration_ms / 3)
            now_ms = self.process.world.now
            if self.lease.token == self.token and self.lease.until_ms > now_ms:
                self.lease.until_ms = self.until_ms = now_ms + self.lease.duration_ms

    def try_lock(self, wait_ms: float) -> bool:
        """Wait for the lock; it is free once its holder's time is over."""
        world = self.process.world
        ends_ms = world.now + wait_ms
        while self.lease.until_ms > world.now:
            if world.now >= ends_ms:
                return False
            self.process.sleep_ms(_LOOK_EVERY_MS)
        self.lease.token += 1
        self.lease.until_ms = world.now + self.lease.duration_ms
        self.token, self.until_ms = self.lease.token, self.lease.until_ms
        return True

    def check(self) -> int:
        """Return the token while the lease lasts, by the clock of this moment."""
        if self.process.world.now >= self.until_ms:
            raise HoldingLost("the lease ran out")
        return self.token

    def unlock(self) -> None:
        """Give it back, unless it is somebody else's by now."""
        if self.lease.token == self.token:
            self.lease.until_ms = 0.0

    def close(self) -> None:
        """Hold on to nothing."""
