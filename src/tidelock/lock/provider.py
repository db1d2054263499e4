"""The lock provider protocol: Hudi's `LockProvider`, with states and fencing tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tidelock.lock.holding import LostCallback
from tidelock.lock.state import Standing


@dataclass(frozen=True, slots=True)
class Features:
    """Optional features of a provider."""

    blocking_wait: bool = False
    fencing_token: bool = False
    fair_queue: bool = False
    force_release: bool = False
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock. Fields that the backend does not report are None."""

    owner: str
    token: int | None = None
    since_epoch_ms: int | None = None
    expires_epoch_ms: int | None = None
    waiters: int | None = None


class LockProvider(Protocol):
    """A lock backend bound to one resource."""

    def features(self) -> Features:
        """Return the features of this provider."""

    def try_lock(self, wait_ms: float) -> bool:
        """Try for up to `wait_ms`, at least once; return whether the lock is held."""

    def unlock(self) -> None:
        """Release the lock; raise if it was lost, or if the outcome is unknown."""

    def check(self) -> int:
        """Return the fencing token (0 without one), or raise `HoldingLost`."""

    @property
    def state(self) -> Standing:
        """HELD, UNSURE, LOST or FREE, as of now."""

    def on_lost(self, callback: LostCallback) -> None:
        """Call `callback` once with the cause when the lock is lost."""

    def holder(self) -> Holder | None:
        """Return who holds the lock; None if it is free. Raises: `Unavailable`."""

    def force_release(self) -> bool:
        """Release the lock, whoever holds it; return whether it was held.

        The holder detects the loss at its next renewal.
        Raises: `Unsupported` if `features().force_release` is false.
        """

    def close(self) -> None:
        """Unlock if locked, and close the connections."""


@runtime_checkable
class ReportsOutage(Protocol):
    """A provider that distinguishes a held lock from a backend that does not answer."""

    @property
    def outage(self) -> str:
        """Why the last `try_lock` got no answer from the backend; empty if it answered."""
