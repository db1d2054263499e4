"""RFC-91's storage lock as a provider: Hudi's `StorageBasedLockProvider`, by Hudi's settings."""

from __future__ import annotations

from collections.abc import Mapping

from tidelock.base.clock import SystemClock
from tidelock.base.errors import AcquireTimeout, Unavailable
from tidelock.base.metrics import Metrics
from tidelock.lock.config import BASE_PATH
from tidelock.lock.driver import Lock
from tidelock.lock.force import Operator
from tidelock.lock.holding import LostCallback
from tidelock.lock.inspect import Condition, inspect_lock
from tidelock.lock.opening import lock
from tidelock.lock.provider import Features, Holder
from tidelock.lock.state import Standing
from tidelock.store.readback import Patience


class StorageLockProvider:
    """The lock file of the table at `hoodie.base.path`; wire-compatible with Hudi's."""

    _clock = SystemClock()

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read and check the settings; touch nothing.

        Raises: `ConfigInvalid`, as Hudi does, when `hoodie.base.path` is missing or a rule broken.
        """
        place = BASE_PATH.required(settings)
        self.lock = lock(place, settings=settings, metrics=metrics, bind_thread=bind_thread)

    @classmethod
    def over(cls, opened: Lock) -> StorageLockProvider:
        """Return the provider of a lock that was opened by other means than settings."""
        provider = cls.__new__(cls)
        provider.lock = opened
        return provider

    def features(self) -> Features:
        """Return what the storage lock can do."""
        return Features(blocking_wait=True, fencing_token=True, force_release=True)

    def try_lock(self, wait_ms: float) -> bool:
        """Try for up to `wait_ms`, at least once. No answer is a no, as in Hudi."""
        try:
            self.lock.acquire(wait_ms / 1000)
        except (AcquireTimeout, Unavailable):
            return False
        return True

    @property
    def outage(self) -> str:
        """Why the last `try_lock` ended without any answer; empty when the store answered."""
        return self.lock.outage

    def unlock(self) -> None:
        """Give the lock back."""
        self.lock.release()

    def check(self) -> int:
        """Return the fencing token, or raise `HoldingLost`."""
        return self.lock.check()

    @property
    def state(self) -> Standing:
        """HELD, UNSURE, LOST or FREE, as of now."""
        return self.lock.state

    def on_lost(self, callback: LostCallback) -> None:
        """Call `callback` once with the cause when the lock is lost."""
        self.lock.on_lost(callback)

    def holder(self) -> Holder | None:
        """Read the lock file; None when nobody holds the lock."""
        seen = inspect_lock(self.lock.store, self.lock.lease, self._clock)
        if seen.record is None or seen.condition not in (Condition.HELD, Condition.LAPSED):
            return None
        token = seen.record.token if seen.record.is_ours else None
        expires_ms = seen.record.valid_until_epoch_ms
        return Holder(seen.record.owner, token, expires_epoch_ms=expires_ms)

    def force_release(self) -> bool:
        """Release the lock file, whoever holds it.

        Raises: `Conflict` when its holder renewed it in between.
        """
        seen = inspect_lock(self.lock.store, self.lock.lease, self._clock)
        if seen.record is None or seen.record.expired:
            return False
        Operator(self.lock.store, Patience(clock=self._clock)).force_release(seen)
        return True

    def close(self) -> None:
        """Unlock if locked, and leave nothing behind."""
        self.lock.close()
