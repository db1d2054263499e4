"""A local queue for the threads of a process that wait for the same lock.

Only the thread at the head of the queue polls the store; the others wait in order of arrival. A
hundred waiting threads then send as many requests as one, and none starves another thread of the
same process. A turn covers polling only: it ends when the lock is acquired or the wait is over, so
a holder that dies does not block the queue.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tidelock.core.clock import Clock


class LocalQueues:
    """One queue for each lock, by its identity."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    @contextmanager
    def wait(self, name: str, timeout_ms: float | None, clock: Clock) -> Iterator[float | None]:
        """Wait for this thread's turn to poll `name`; yield what is left of `timeout_ms`.

        If the time runs out in the queue, the turn starts anyway with 0 ms left: every wait ends
        with one poll.
        """
        began_ms = clock.now().monotonic_ms
        turn = self._join(name)
        try:
            turn.wait(None if timeout_ms is None else timeout_ms / 1000)
            spent_ms = clock.now().monotonic_ms - began_ms
            yield None if timeout_ms is None else max(0.0, timeout_ms - spent_ms)
        finally:
            self._leave(name, turn)

    def waiting(self, name: str) -> int:
        """Return how many threads are in the queue, including the one that polls."""
        with self._mutex:
            return len(self._queues.get(name, ()))

    def _join(self, name: str) -> threading.Event:
        turn = threading.Event()
        with self._mutex:
            queue = self._queues.setdefault(name, deque())
            queue.append(turn)
            if queue[0] is turn:
                turn.set()
        return turn

    def _leave(self, name: str, turn: threading.Event) -> None:
        with self._mutex:
            queue = self._queues.get(name)
            if queue is None or turn not in queue:
                # The process was forked during this turn.
                return
            queue.remove(turn)
            if queue:
                queue[0].set()
            else:
                del self._queues[name]

    def _reset(self) -> None:
        """Start with empty queues, also in a forked child."""
        self._mutex = threading.Lock()
        self._queues: dict[str, deque[threading.Event]] = {}


shared_queues = LocalQueues()
"""The queues of this process."""
