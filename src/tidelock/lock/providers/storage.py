"""The storage lock (RFC-91) as a provider: Hudi's `StorageBasedLockProvider`."""

from __future__ import annotations

from collections.abc import Mapping

from tidelock.core.errors import AcquireTimeout, Unavailable
from tidelock.core.system import SystemClock, SystemIds
from tidelock.core.telemetry import Metrics
from tidelock.lock.admin import Condition, Operator, inspect_lock
from tidelock.lock.client import Lock, lock
from tidelock.lock.config import BASE_PATH
from tidelock.lock.holding import LostCallback
from tidelock.lock.provider import Features, Holder
from tidelock.lock.state import Standing
from tidelock.storage.conditional import ReadbackPolicy


class StorageLockProvider:
    """The lock object of the table at `hoodie.base.path`, compatible with Hudi's."""

    _clock = SystemClock()

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read and validate the settings; makes no request. Raises: `ConfigInvalid`, as in Hudi."""
        base_path = BASE_PATH.required(settings)
        self.lock = lock(base_path, settings=settings, metrics=metrics, bind_thread=bind_thread)

    @classmethod
    def over(cls, opened: Lock) -> StorageLockProvider:
        """Return the provider for a lock that is already open."""
        provider = cls.__new__(cls)
        provider.lock = opened
        return provider

    def features(self) -> Features:
        return Features(blocking_wait=True, fencing_token=True, force_release=True)

    def try_lock(self, wait_ms: float) -> bool:
        """Try for up to `wait_ms`, at least once. As in Hudi, no answer counts as a refusal."""
        try:
            self.lock.acquire(wait_ms / 1000)
        except (AcquireTimeout, Unavailable):
            return False
        return True

    @property
    def outage(self) -> str:
        return self.lock.outage

    def unlock(self) -> None:
        self.lock.release()

    def check(self) -> int:
        return self.lock.check()

    @property
    def state(self) -> Standing:
        return self.lock.state

    def on_lost(self, callback: LostCallback) -> None:
        self.lock.on_lost(callback)

    def holder(self) -> Holder | None:
        """Read the lock object; None if nobody holds the lock."""
        seen = inspect_lock(self.lock.store, self.lock.lease, self._clock)
        if seen.record is None or seen.condition not in (Condition.HELD, Condition.LAPSED):
            return None
        token = seen.record.token if seen.record.is_ours else None
        expires_ms = seen.record.valid_until_epoch_ms
        return Holder(seen.record.owner, token, expires_epoch_ms=expires_ms)

    def force_release(self) -> bool:
        """Release the lock of any holder. Raises: `Conflict` if the holder renewed it meanwhile."""
        seen = inspect_lock(self.lock.store, self.lock.lease, self._clock)
        if seen.record is None or seen.record.expired:
            return False
        Operator(self.lock.store, ReadbackPolicy(clock=self._clock, ids=SystemIds())).force_release(
            seen
        )
        return True

    def close(self) -> None:
        self.lock.close()
