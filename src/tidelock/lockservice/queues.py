"""Who waits for which lock, in order of arrival. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidelock.lockservice.asking import Ask


@dataclass(slots=True)
class Queue:
    """Who waits for one resource; `taking` while the backend is asked for its lock.

    `asked` says that it was asked before, `refused_ms` when it last said that another has the lock.
    """

    waiters: OrderedDict[int, Ask] = field(default_factory=OrderedDict)
    taking: bool = False
    asked: bool = False
    refused_ms: int | None = None


class Queues:
    """The queues of all resources. A queue that nobody is in does not exist."""

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._queues: dict[str, Queue] = {}
        self._keys: dict[int, str] = {}

    def __len__(self) -> int:
        """Return how many callers wait."""
        return len(self._keys)

    def __contains__(self, key: str) -> bool:
        """Tell whether anybody waits for `key`, or the backend is being asked for it."""
        return key in self._queues

    def is_waiting(self, handle: int) -> bool:
        """Tell whether the caller behind `handle` waits."""
        return handle in self._keys

    def length(self, key: str) -> int:
        """Return how many wait for `key`."""
        queue = self._queues.get(key)
        return len(queue.waiters) if queue else 0

    def waiters(self, key: str) -> list[Ask]:
        """Return who waits for `key`, the longest first."""
        queue = self._queues.get(key)
        return list(queue.waiters.values()) if queue else []

    def first(self, key: str) -> Ask | None:
        """Return who waits for `key` longest."""
        queue = self._queues.get(key)
        return next(iter(queue.waiters.values()), None) if queue else None

    def join(self, ask: Ask) -> None:
        """Put a caller at the end of its queue."""
        self._queues.setdefault(ask.key, Queue()).waiters[ask.handle] = ask
        self._keys[ask.handle] = ask.key

    def leave(self, handle: int) -> None:
        """Take a caller out of its queue."""
        key = self._keys.pop(handle)
        del self._queues[key].waiters[handle]
        self._tidy(key)

    def same_request(self, key: str, principal: str, request_id: str) -> list[int]:
        """Return the callers that wait with this request."""
        return [
            ask.handle
            for ask in self.waiters(key)
            if (ask.principal, ask.request_id) == (principal, request_id)
        ]

    def replace(self, handle: int, ask: Ask) -> None:
        """Give the place of the caller behind `handle` to `ask`."""
        queue = self._queues[ask.key]
        entries: Iterable[tuple[int, Ask]] = queue.waiters.items()
        queue.waiters = OrderedDict(
            (ask.handle, ask) if there == handle else (there, waiter) for there, waiter in entries
        )
        self._keys[ask.handle] = self._keys.pop(handle)

    def begin_taking(self, key: str) -> tuple[Ask, bool] | None:
        """Return for whom the backend is to be asked, and whether for the first time.

        None when it is being asked already.
        """
        queue = self._queues.get(key)
        first = self.first(key)
        if queue is None or queue.taking or first is None:
            return None
        anew, queue.taking, queue.asked = not queue.asked, True, True
        return first, anew

    def end_taking(self, key: str, *, refused_ms: int | None = None) -> None:
        """Note that the backend has been asked, and when it said that another has the lock."""
        queue = self._queues.get(key)
        if queue is not None:
            queue.taking, queue.refused_ms = False, refused_ms
            self._tidy(key)

    def refused_ms(self, key: str) -> int | None:
        """Return when the backend said that another has the lock; None if it did not."""
        queue = self._queues.get(key)
        return queue.refused_ms if queue else None

    def _tidy(self, key: str) -> None:
        queue = self._queues[key]
        if not queue.waiters and not queue.taking:
            del self._queues[key]
