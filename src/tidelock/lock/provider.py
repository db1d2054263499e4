"""The seam between writers and lock backends: Hudi's provider interface, with states and tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tidelock.lock.holding import LostCallback
from tidelock.lock.state import Standing


@dataclass(frozen=True, slots=True)
class Features:
    """What a provider can do beyond locking and unlocking."""

    blocking_wait: bool = False
    fencing_token: bool = False
    fair_queue: bool = False
    force_release: bool = False
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, as far as its backend tells; what it does not tell is None."""

    owner: str
    token: int | None = None
    since_epoch_ms: int | None = None
    expires_epoch_ms: int | None = None
    waiters: int | None = None


class LockProvider(Protocol):
    """A lock backend bound to one resource."""

    def features(self) -> Features:
        """Return what this provider can do."""
        ...

    def try_lock(self, wait_ms: float) -> bool:
        """Try for up to `wait_ms`, at least once; return whether the lock is held."""
        ...

    def unlock(self) -> None:
        """Give the lock back; raise if it had been lost, or if nobody can tell."""
        ...

    def check(self) -> int:
        """Return the fencing token (0 without one), or raise `HoldingLost`."""
        ...

    @property
    def state(self) -> Standing:
        """HELD, UNSURE, LOST or FREE, as of now."""
        ...

    def on_lost(self, callback: LostCallback) -> None:
        """Call `callback` once with the cause when the lock is lost."""
        ...

    def holder(self) -> Holder | None:
        """Ask the backend who holds the lock; None when it is free.

        Raises: `Unavailable` when it does not answer.
        """
        ...

    def force_release(self) -> bool:
        """Free the lock, whoever holds it; return whether anybody did.

        The holder is not asked. It hears of its loss with its next renewal.
        Raises: `Unsupported` where `features().force_release` is false.
        """
        ...

    def close(self) -> None:
        """Unlock if locked, and leave nothing behind."""
        ...


@runtime_checkable
class TellsOutage(Protocol):
    """A provider that can tell a lock held by another from a backend that does not answer."""

    @property
    def outage(self) -> str:
        """Why the last `try_lock` ended without any answer; empty when the backend answered."""
        ...
