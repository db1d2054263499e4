"""A simulated table lock with a lease, which expires while its holder is paused.

Tokens grow with every grant. The lock answers at once and never fails: the simulation is about
holders that wrongly believe they hold it.
"""

from __future__ import annotations

from dataclasses import dataclass

from testkit.txnsim.world import Process
from tidelock.core.errors import HoldingLost

_POLL_EVERY_MS = 25.0


@dataclass(slots=True)
class Lease:
    """The server side of a table's lock."""

    duration_ms: float
    token: int = 0
    until_ms: float = 0.0
    counter: int = 1
    """The counter that issues the tokens."""

    def restart(self) -> None:
        """Reset the counter, like a server that has lost its data."""
        self.token, self.until_ms, self.counter = 0, 0.0, self.counter + 1


@dataclass(slots=True)
class LeaseLock:
    """The lock of one process, a provider as `tidelock.txn.transaction_manager` uses it."""

    lease: Lease
    process: Process
    token: int = 0
    until_ms: float = 0.0

    def renew(self) -> None:
        """Renew the lease periodically; a paused process does not."""
        while True:
            self.process.sleep_ms(self.lease.duration_ms / 3)
            now_ms = self.process.world.now
            if self.lease.token == self.token and self.lease.until_ms > now_ms:
                self.lease.until_ms = self.until_ms = now_ms + self.lease.duration_ms

    def try_lock(self, wait_ms: float) -> bool:
        """Wait for the lock; it is free once the holder's lease has expired."""
        world = self.process.world
        ends_ms = world.now + wait_ms
        while self.lease.until_ms > world.now:
            if world.now >= ends_ms:
                return False
            self.process.sleep_ms(_POLL_EVERY_MS)
        self.lease.token += 1
        self.lease.until_ms = world.now + self.lease.duration_ms
        self.token, self.until_ms = self.lease.token, self.lease.until_ms
        return True

    def check(self) -> int:
        """Return the token while the lease is valid by the current clock."""
        if self.process.world.now >= self.until_ms:
            raise HoldingLost("the lease has expired")
        return self.token

    def unlock(self) -> None:
        """Release the lock, unless another process holds it by now."""
        if self.lease.token == self.token:
            self.lease.until_ms = 0.0

    def close(self) -> None:
        """Release nothing."""
