"""A backend that must agree to every grant: any lock provider, behind the queue of the service.

The service has the queue, the ids and the streams; the backend has the lock, so other services
and other programs that use the same backend are kept out as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tidelock.base.errors import TidelockError, Unavailable, Unsupported
from tidelock.base.runtime import DaemonPool
from tidelock.lock.provider import Features, LockProvider, TellsOutage
from tidelock.lock.state import Standing

logger = logging.getLogger(__name__)

T = TypeVar("T")
LostListener = Callable[[str, str], None]

GATE_THREADS_MAX = 32
"""Requests to one backend at a time; more wait their turn."""

_PROBE_KEY = "probe"
_PROBE_TTL_MS = 60_000
_SLICE_MS = 500
"""How long one try for a held lock may wait in the backend before others get the thread."""


class Gate(Protocol):
    """The backend's side of a component: one lock per key."""

    def listen(self, lost: LostListener) -> None:
        """Call `lost` with key and cause, in the event loop, when a lock is not ours any more."""
        ...

    async def take(self, key: str, ttl_ms: int, *, immediate: bool) -> int | None:
        """Try for the lock; return its token (0 without one), or None when another has it.

        A backend keeps a lock for at least `ttl_ms` after this process dies: its client may still
        rely on it. Raises: errors of the backend; then nothing is held.
        """
        ...

    def give_back(self, key: str, *, by_force: bool) -> None:
        """Release the lock of `key` if this process has it, in the background."""
        ...

    async def probe(self) -> None:
        """Ask the backend something that changes nothing.

        Raises: `TidelockError` when it does not answer.
        """
        ...

    def features(self) -> Features:
        """Return what the backend can do."""
        ...

    async def close(self) -> None:
        """Leave what is held to expire, and keep no connection."""
        ...


@dataclass(slots=True)
class ProviderGate:
    """A lock provider per key, made by `open_provider(key, ttl_ms)`."""

    open_provider: Callable[[str, int], LockProvider]
    force: Callable[[str], None] | None = None
    _held: dict[str, LockProvider] = field(default_factory=dict)
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _pool: DaemonPool = field(default_factory=lambda: DaemonPool("tidelock-gate", GATE_THREADS_MAX))
    _lost: LostListener | None = None
    _features: Features | None = None

    def listen(self, lost: LostListener) -> None:
        """Call `lost` when a provider says that its lock is lost."""
        self._lost = lost

    def features(self) -> Features:
        """Return what the provider can do, as it says itself."""
        if self._features is None:
            provider = self.open_provider(_PROBE_KEY, _PROBE_TTL_MS)
            self._features = provider.features()
            provider.close()
        return self._features

    async def take(self, key: str, ttl_ms: int, *, immediate: bool) -> int | None:
        """Try once, or for a moment; keep the provider while the lock is held."""
        loop = asyncio.get_running_loop()
        async with self._turn(key):
            provider = await self._in_pool(lambda: self.open_provider(key, ttl_ms))

            def lost(cause: str) -> None:
                loop.call_soon_threadsafe(self._tell, key, provider, cause)

            def attempt() -> int | None:
                if not provider.try_lock(0 if immediate else _SLICE_MS):
                    if isinstance(provider, TellsOutage) and provider.outage:
                        raise Unavailable(provider.outage, hint="ask again later")
                    return None
                provider.on_lost(lost)
                return provider.check()

            try:
                token = await self._in_pool(attempt)
            except BaseException:
                self._pool.submit(lambda: _closed(provider))
                raise
            if token is None:
                self._pool.submit(lambda: _closed(provider))
            else:
                self._held[key] = provider
            return token

    async def probe(self) -> None:
        """Ask who holds a lock that nobody takes."""

        def look() -> None:
            provider = self.open_provider(_PROBE_KEY, _PROBE_TTL_MS)
            try:
                provider.holder()
            finally:
                _closed(provider)

        with suppress(Unsupported):
            await self._in_pool(look)

    def give_back(self, key: str, *, by_force: bool) -> None:
        """Release in the background; the next `take` of the key waits for it."""
        task = asyncio.get_running_loop().create_task(self._release(key, by_force=by_force))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish what is under way. Locks that are held expire in the backend (V4)."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    async def _release(self, key: str, *, by_force: bool) -> None:
        async with self._turn(key):
            provider = self._held.pop(key, None)
            if provider is not None:
                await self._in_pool(lambda: _closed(provider))
            elif by_force:
                await self._in_pool(lambda: self._forced(key))

    def _forced(self, key: str) -> None:
        try:
            if self.force is None:
                raise Unsupported("this provider cannot end a lock that is not its own")
            self.force(key)
        except TidelockError as error:
            logger.warning("a forced release did nothing: %s", error)

    def _tell(self, key: str, provider: LockProvider, cause: str) -> None:
        if self._held.get(key) is provider and self._lost is not None:
            self._lost(key, cause)

    def _turn(self, key: str) -> asyncio.Lock:
        turn = self._turns.get(key)
        if turn is None:
            if len(self._turns) > 1_000:
                self._turns = {k: t for k, t in self._turns.items() if t.locked()}
            turn = self._turns[key] = asyncio.Lock()
        return turn

    async def _in_pool(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - handed to the one who waits for it
                loop.call_soon_threadsafe(settle, None, error)
            else:
                loop.call_soon_threadsafe(settle, result, None)

        self._pool.submit(run)
        return await asyncio.shield(future)


def _closed(provider: LockProvider) -> None:
    """Release and close; a lock that had been lost needs no release."""
    try:
        if provider.state is not Standing.FREE:
            provider.unlock()
    except TidelockError as error:
        logger.info("%s", error)
    try:
        provider.close()
    except TidelockError as error:
        logger.warning("%s", error)
