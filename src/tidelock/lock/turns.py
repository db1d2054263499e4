"""Who of this process looks at a lock next.

Of all threads that wait for one lock, one at a time polls the store; the others queue here, in
order of arrival. A hundred waiting threads then cost the store as much as one, and none of them
starves another of the same process. A turn is for looking only: it passes on as soon as the lock
is held, or given up, so a holder that dies keeps nobody from looking.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tidelock.base.clock import Clock


class Turns:
    """Queues by the identity of what is waited for."""

    def __init__(self) -> None:
        """Start with nobody waiting, and again so in a forked child."""
        self._mutex = threading.Lock()
        self._queues: dict[str, deque[threading.Event]] = {}
        os.register_at_fork(after_in_child=self._forget)

    @contextmanager
    def wait(self, name: str, timeout_ms: float | None, clock: Clock) -> Iterator[float | None]:
        """Wait for this thread's turn to look at `name`; yield what is left of `timeout_ms`.

        When the time runs out in the queue the turn is taken all the same, with nothing left: a
        wait always ends with one look.
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
        """Return how many threads are in the queue, the one that looks included."""
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
                # The process was forked by the thread whose turn it was.
                return
            queue.remove(turn)
            if queue:
                queue[0].set()
            else:
                del self._queues[name]

    def _forget(self) -> None:
        self._mutex = threading.Lock()
        self._queues = {}


shared_turns = Turns()
"""The queues of this process."""
