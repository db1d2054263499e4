"""The lock for asyncio: the verbs that wait without blocking the event loop.

Requests run in threads; pauses are the loop's. The heartbeat is the process's shared one, so a
busy event loop does not lose the lock.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from tidelock.lock import events as e
from tidelock.lock.holding import PLAIN_NO, Holding, denied, timeout_ms_of
from tidelock.lock.session import Answer, Operation, Pause

_MUTEX_PAUSE_S = 0.005


class AsyncLock(Holding):
    """`Lock` with awaitable verbs. What it guarantees is what `Lock` guarantees.

    A cancelled acquire or release may have left a record behind; the next acquire, or `close`,
    finds it and gives it back (P18).
    """

    async def try_acquire(self) -> bool:
        """Try once, as `Lock.try_acquire`."""
        refusal = await self._acquired(self._session.attempt())
        if refusal is None:
            return True
        error = self._not_granted(refusal, None)
        if refusal.why in PLAIN_NO and not self._is_hopeless():
            return False
        raise error

    async def acquire(self, timeout_s: float | None = None) -> int:
        """Wait for the lock and return its token, as `Lock.acquire`."""
        began_ms = self._clock.now().monotonic_ms
        refusal = await self._acquired(
            self._session.acquire(timeout_ms_of(timeout_s), hopeless=self._is_hopeless)
        )
        if refusal is None:
            return self.token
        raise self._not_granted(refusal, self._clock.now().monotonic_ms - began_ms)

    async def release(self) -> None:
        """Give the lock back, as `Lock.release`."""
        await asyncio.to_thread(self._release)

    async def close(self) -> None:
        """Give back whatever is held and leave nothing behind."""
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> Self:
        """Acquire, waiting as long as the lock was told to."""
        await self.acquire(self._wait_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release. A loss is raised unless an error is on its way already."""
        del kind, trace
        # Shielded: a cancelled task still gives its lock back.
        await asyncio.shield(asyncio.to_thread(self._leave, error))

    async def _acquired(self, operation: Operation) -> e.NotAcquired | None:
        """Run an acquire; return why it was refused, or None once the lock is kept alive."""
        self._check_not_forked()
        # Asked again and again rather than waited for in a thread: a cancelled wait would leave
        # the mutex taken, and many of them would leave no thread for the one who has it.
        while not self._operation.acquire(blocking=False):  # noqa: ASYNC110 - threads release it
            await asyncio.sleep(_MUTEX_PAUSE_S)
        try:
            self._check_open()
            result = await self._arun(operation)
            if not isinstance(result, e.Granted):
                return denied(result)
            self._keep()
            return None
        finally:
            self._operation.release()

    async def _arun(self, operation: Operation) -> e.Result:
        answer: Answer = None
        try:
            while True:
                ask = operation.send(answer)
                if isinstance(ask, Pause):
                    await asyncio.sleep(ask.duration_ms / 1000)
                    answer = None
                else:
                    answer = await asyncio.to_thread(self._objects.perform, ask)
        except StopIteration as ended:
            result: e.Result = ended.value
            return result
        except BaseException:
            # Cancelled: the request goes on in its thread, and nobody will hear its answer.
            self._session.abandon()
            raise
