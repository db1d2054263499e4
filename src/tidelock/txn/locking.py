"""The table's lock around begin and commit, where one is configured (C60-C62).

It saves wasted work and keeps Java writers out. It is never what makes a commit correct.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from tidelock.base.clock import Clock
from tidelock.base.errors import LockHeld, TidelockError
from tidelock.base.metrics import PROCESS
from tidelock.base.telemetry import span
from tidelock.lock.config import (
    BASE_PATH,
    CLIENT_NUM_RETRIES,
    CLIENT_WAIT_BETWEEN_RETRIES_MS,
    WAIT_TIME_MS,
)
from tidelock.lock.provider import LockProvider
from tidelock.lockproviders.registry import open_provider, provider_name
from tidelock.store.contract import ObjectStore
from tidelock.txn.observing import LOCK_SPAN
from tidelock.txn.waits import Waits

logger = logging.getLogger(__name__)

Check = Callable[[], object]


@dataclass(slots=True)
class TableLock:
    """A provider with Hudi's patience, or nothing at all."""

    provider: LockProvider | None
    clock: Clock
    wait_ms: int = 60_000
    retries: int = 50
    between_ms: int = 5_000
    waits: Waits | None = None

    @classmethod
    def open(
        cls,
        settings: Mapping[str, object],
        store: ObjectStore,
        *,
        clock: Clock,
        waits: Waits | None = None,
    ) -> TableLock:
        """Open the provider that the settings name, for the table at `store`.

        `waits` is told of who waits, unless the provider has a queue that tells.
        """
        provider: LockProvider | None = None
        if provider_name(settings) is not None:
            provider = open_provider({BASE_PATH.key: store.uri, **settings})
        return cls(
            provider,
            clock,
            wait_ms=WAIT_TIME_MS.required(settings),
            retries=CLIENT_NUM_RETRIES.required(settings),
            between_ms=CLIENT_WAIT_BETWEEN_RETRIES_MS.required(settings),
            waits=None if provider is None or provider.features().fair_queue else waits,
        )

    @property
    def name(self) -> str:
        """The provider's class, as others compare it with theirs; "" without one."""
        return "" if self.provider is None else type(self.provider).__name__

    @contextmanager
    def held(self) -> Iterator[Check | None]:
        """Hold the lock; yield what raises `HoldingLost` once it is lost (None without a lock).

        Raises: `LockHeld` if it was not to be had.
        """
        provider = self.provider
        if provider is None:
            yield None
            return
        began_ms = self.clock.now().monotonic_ms
        waiting = nullcontext() if self.waits is None else self.waits.waiting()
        with span(LOCK_SPAN, provider=self.name), waiting:
            self._acquire(provider)
        PROCESS.time("txn.lock.wait", self.clock.now().monotonic_ms - began_ms)
        try:
            yield provider.check
        finally:
            try:
                provider.unlock()
            except TidelockError as error:
                # What was published stands: to fail now would make the caller write it twice.
                logger.warning("the table's lock was not released: %s", error)

    def _acquire(self, provider: LockProvider) -> None:
        for attempt in range(self.retries + 1):
            if provider.try_lock(self.wait_ms):
                return
            if attempt < self.retries:
                self.clock.sleep_ms(self.between_ms)
        raise LockHeld(
            f"the table's lock was not to be had in {self.retries + 1} tries of {self.wait_ms} ms",
            hint="see who holds it with `tidelock lock status`, or wait longer",
        )

    def close(self) -> None:
        """Give the provider back."""
        if self.waits is not None:
            self.waits.close()
        if self.provider is not None:
            self.provider.close()
