"""The seam between writers and lock backends: Hudi's provider interface, with states and tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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

    def close(self) -> None:
        """Unlock if locked, and leave nothing behind."""
        ...
