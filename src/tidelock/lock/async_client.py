"""The storage lock for asyncio: the methods of `Lock` as coroutines.

Requests run in threads, and pauses use the event loop. The renewals run in the heartbeat thread of
the process, so a busy event loop does not lose the lock.
"""

from __future__ import annotations

import asyncio
from typing import Self

from tidelock.lock import events as e
from tidelock.lock.client import BaseLock, as_refusal, timeout_ms_of
from tidelock.lock.session import Operation, SessionPause, SessionReply

_MUTEX_PAUSE_S = 0.005


class AsyncLock(BaseLock):
    """`Lock` with awaitable methods, and the same guarantees.

    A cancelled acquire or release may leave a record behind. The next acquire, or `close`, finds it
    and releases it (P18).
    """

    async def try_acquire(self) -> bool:
        """Try once, as `Lock.try_acquire`."""
        refusal = await self._acquire_with(self._session.attempt())
        return True if refusal is None else self._refused(refusal)

    async def acquire(self, timeout_s: float | None = None) -> int:
        """Wait for the lock and return its token, as `Lock.acquire`."""
        began_ms = self._clock.now().monotonic_ms
        refusal = await self._acquire_with(
            self._session.acquire(timeout_ms_of(timeout_s), should_stop=self._should_stop)
        )
        if refusal is None:
            return self.token
        raise self._acquire_error(refusal, self._clock.now().monotonic_ms - began_ms)

    async def release(self) -> None:
        """Release the lock, as `Lock.release`."""
        await asyncio.to_thread(self._release)

    async def close(self) -> None:
        """Release the lock if it is held, and close the client."""
        await asyncio.to_thread(self._shutdown)

    async def __aenter__(self) -> Self:
        await self.acquire(self._wait_s)
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        # Shielded: a cancelled task still releases its lock.
        await asyncio.shield(asyncio.to_thread(self._release_on_exit, error))

    async def _acquire_with(self, operation: Operation) -> e.NotAcquired | None:
        """Run an acquire; return the refusal, or None once the lock is held and renewed."""
        self._check_not_forked()
        # Polled, not waited for in a thread: a cancelled wait would leave the mutex locked, and
        # many waits would leave no thread for the operation that holds it.
        while not self._operation.acquire(blocking=False):  # noqa: ASYNC110 - threads release it
            await asyncio.sleep(_MUTEX_PAUSE_S)
        try:
            self._check_open()
            result = await self._run_async(operation)
            if not isinstance(result, e.Granted):
                return as_refusal(result)
            self._keep()
            return None
        finally:
            self._operation.release()

    async def _run_async(self, operation: Operation) -> e.Result:
        reply: SessionReply = None
        try:
            while True:
                request = operation.send(reply)
                if isinstance(request, SessionPause):
                    await asyncio.sleep(request.duration_ms / 1000)
                    reply = None
                else:
                    reply = await asyncio.to_thread(self._objects.perform, request)
        except StopIteration as stop:
            result: e.Result = stop.value
            return result
        except BaseException:
            # Cancelled: the request continues in its thread, and nobody gets its reply.
            self._session.abandon()
            raise
