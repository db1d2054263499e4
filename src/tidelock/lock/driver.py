"""The lock for threads: the verbs that wait by blocking."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from tidelock.lock import events as e
from tidelock.lock.holding import PLAIN_NO, Holding, denied, timeout_ms_of
from tidelock.lock.state import Standing
from tidelock.lock.turns import shared_turns

if TYPE_CHECKING:
    from tidelock.lock.adriver import AsyncLock


class Lock(Holding):
    """A lock on one resource, for one owner at a time.

    Guarantees:
      * `state` is HELD or UNSURE only while the lease, counted from the sending of the last write
        known to have landed, has more than its margin left (L3), whatever the wall clock does.
      * Tokens of successive holdings strictly increase (L1), Java writers in between or not.
      * A holder that loses the lock hears of it: `check` raises, `on_lost` is called (L7).
    Does not guarantee:
      * that no other process believes to hold the lock while clocks differ by more than the drift
        allowed for, or while this one is paused between a check and its effect. Compare tokens at
        the resource where that matters.
    """

    def try_acquire(self) -> bool:
        """Try once. An owner that holds the lock already is told so and keeps its token (L12).

        Raises: `DataCorrupt`, `PermissionDenied`, `StoreUnreachable` when the answer is neither
        yes nor no.
        """
        self._check_not_forked()
        with self._operation:
            self._check_open()
            result = self._timed(self._session.attempt())
            if isinstance(result, e.Granted):
                self._keep()
                return True
        refusal = denied(result)
        error = self._not_granted(refusal, None)
        if refusal.why in PLAIN_NO and not self._is_hopeless():
            return False
        raise error

    def acquire(self, timeout_s: float | None = None) -> int:
        """Wait for the lock and return its token. `timeout_s` None waits for ever.

        Raises: `AcquireTimeout`, and what `try_acquire` raises.
        """
        timeout_ms = timeout_ms_of(timeout_s)
        began_ms = self._clock.now().monotonic_ms
        self._check_not_forked()
        if self.state in (Standing.HELD, Standing.UNSURE):
            # L12. Whoever has the turn waits for this very lock: queueing behind it would not end.
            return self.token
        turn = shared_turns.wait(self._store.identity, timeout_ms, self._clock)
        with turn as left_ms, self._operation:
            self._check_open()
            result = self._timed(self._session.acquire(left_ms, hopeless=self._is_hopeless))
            if isinstance(result, e.Granted):
                self._keep()
                return result.token
        raise self._not_granted(denied(result), self._clock.now().monotonic_ms - began_ms)

    def release(self) -> None:
        """Give the lock back. Releasing what is not held changes nothing.

        Raises: `HoldingLost` if it was lost before; `OutcomeUnknown` if nobody can tell.
        """
        self._release()

    def close(self) -> None:
        """Give back whatever is held and leave nothing behind; closing twice changes nothing."""
        self._close()

    def __enter__(self) -> Self:
        """Acquire, waiting as long as the lock was told to."""
        self.acquire(self._wait_s)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release. A loss is raised unless an error is on its way already."""
        del kind, trace
        self._leave(error)

    async def __aenter__(self) -> AsyncLock:
        """Acquire without blocking the event loop; the names are the same."""
        from tidelock.lock.adriver import AsyncLock  # only for asyncio users

        self._waiter = AsyncLock(
            self._store,
            self._session.lease,
            wait_s=self._wait_s,
            bind_thread=self._bind_thread,
            clock=self._clock,
            metrics=self.metrics,
            renewals=self._renewals,
            probe=self._probe,
        )
        return await self._waiter.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release without blocking the event loop."""
        await self._waiter.__aexit__(kind, error, trace)
