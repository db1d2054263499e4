"""A backend that must grant its own lock first: any lock provider, behind the service's queue.

The service owns the queue, the ids and the streams; the backend owns the lock, so that other
services and programs that use the same backend are excluded as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tidelock.core.errors import TidelockError, Unavailable, Unsupported
from tidelock.core.threads import DaemonPool
from tidelock.lock.provider import LockProvider, ReportsOutage
from tidelock.lock.state import Standing

logger = logging.getLogger(__name__)

T = TypeVar("T")
LostListener = Callable[[str, str], None]

BACKEND_THREADS_MAX = 32
"""Concurrent requests to one backend."""

_PROBE_KEY = "probe"
_PROBE_TTL_MS = 60_000
_SLICE_MS = 500
"""How long one attempt waits in the backend for a held lock before it frees its thread."""


class BackendLock(Protocol):
    """The locks of a backend, one per key."""

    def listen(self, lost: LostListener) -> None:
        """Call `lost` with key and cause, in the event loop, when a held lock is lost."""

    async def try_acquire(self, key: str, ttl_ms: int, *, immediate: bool) -> int | None:
        """Try to acquire a lock; return its token (0 without one), or None if another holds it.

        The backend keeps the lock for at least `ttl_ms` after this process dies, because clients
        rely on it. Raises: errors of the backend; then nothing is held.
        """

    def release(self, key: str, *, by_force: bool) -> None:
        """Release the lock of `key` in the background, if this process holds it."""

    async def probe(self) -> None:
        """Send a read-only request. Raises: `TidelockError` if the backend does not answer."""

    async def close(self) -> None:
        """Close all connections. Locks that are held expire."""


@dataclass(slots=True)
class ProviderBackendLock:
    """A backend of lock providers, one per key, from `open_provider(key, ttl_ms)`."""

    open_provider: Callable[[str, int], LockProvider]
    force: Callable[[str], None] | None = None
    _held: dict[str, LockProvider] = field(default_factory=dict)
    _key_locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _pool: DaemonPool = field(
        default_factory=lambda: DaemonPool("tidelock-backend", BACKEND_THREADS_MAX)
    )
    _lost: LostListener | None = None

    def listen(self, lost: LostListener) -> None:
        self._lost = lost

    async def try_acquire(self, key: str, ttl_ms: int, *, immediate: bool) -> int | None:
        """Try once, or for a short time; keep the provider while the lock is held."""
        loop = asyncio.get_running_loop()
        async with self._key_lock(key):
            provider = await self._in_pool(lambda: self.open_provider(key, ttl_ms))

            def lost(cause: str) -> None:
                loop.call_soon_threadsafe(self._report_loss, key, provider, cause)

            def attempt() -> int | None:
                if not provider.try_lock(0 if immediate else _SLICE_MS):
                    if isinstance(provider, ReportsOutage) and provider.outage:
                        raise Unavailable(provider.outage, hint="try again later")
                    return None
                provider.on_lost(lost)
                return provider.check()

            try:
                token = await self._in_pool(attempt)
            except BaseException:
                self._pool.submit(lambda: _close(provider))
                raise
            if token is None:
                self._pool.submit(lambda: _close(provider))
            else:
                self._held[key] = provider
            return token

    async def probe(self) -> None:
        """Ask for the holder of a lock that is never acquired."""

        def ask_holder() -> None:
            provider = self.open_provider(_PROBE_KEY, _PROBE_TTL_MS)
            try:
                provider.holder()
            finally:
                _close(provider)

        with suppress(Unsupported):
            await self._in_pool(ask_holder)

    def release(self, key: str, *, by_force: bool) -> None:
        """Release in the background; the next `try_acquire` of the key waits for it."""
        task = asyncio.create_task(self._release(key, by_force=by_force))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish pending releases. Locks that are held expire in the backend (V4)."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    async def _release(self, key: str, *, by_force: bool) -> None:
        async with self._key_lock(key):
            provider = self._held.pop(key, None)
            if provider is not None:
                await self._in_pool(lambda: _close(provider))
            elif by_force:
                await self._in_pool(lambda: self._force_release(key))

    def _force_release(self, key: str) -> None:
        try:
            if self.force is None:
                raise Unsupported("this provider cannot release the lock of another process")
            self.force(key)
        except TidelockError as error:
            logger.warning("forced release failed: %s", error)

    def _report_loss(self, key: str, provider: LockProvider, cause: str) -> None:
        if self._held.get(key) is provider and self._lost is not None:
            self._lost(key, cause)

    def _key_lock(self, key: str) -> asyncio.Lock:
        key_lock = self._key_locks.get(key)
        if key_lock is None:
            if len(self._key_locks) > 1_000:
                self._key_locks = {k: t for k, t in self._key_locks.items() if t.locked()}
            key_lock = self._key_locks[key] = asyncio.Lock()
        return key_lock

    async def _in_pool(self, work: Callable[[], T]) -> T:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised in the awaiting task
                future.set_exception(error)

        self._pool.submit(run)
        return await asyncio.shield(asyncio.wrap_future(future))


def _close(provider: LockProvider) -> None:
    """Release the lock unless it was lost, and close the provider."""
    try:
        if provider.state is not Standing.FREE:
            provider.unlock()
    except TidelockError as error:
        logger.info("%s", error)
    try:
        provider.close()
    except TidelockError as error:
        logger.warning("%s", error)
