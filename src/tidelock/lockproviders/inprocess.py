"""A lock for the threads of one process, by base path: Hudi's `InProcessLockProvider`.

Waiters are served in the order of their arrival. Unlike in Hudi the lock of a thread that has ended
is freed, and acquiring again on one provider keeps the holding instead of failing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.metrics import Metrics
from tidelock.lock.config import BASE_PATH
from tidelock.lock.provider import Features, Holder
from tidelock.lockproviders import keys
from tidelock.lockproviders.backend import (
    Attempt,
    Freed,
    Gone,
    Grant,
    Held,
    Kept,
    ReleaseReply,
    RenewReply,
    Taken,
    TakeReply,
    Terms,
)
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace

_RENEW_MS = 500


@dataclass(slots=True)
class _Line:
    """Who waits for one lock, the holder first, and how often it was granted."""

    waiting: list[Attempt] = field(default_factory=list)
    granted: int = 0
    holds: bool = False
    since_epoch_ms: int = 0
    moved: threading.Event = field(default_factory=threading.Event)


class _Lines:
    """The locks of this process."""

    def __init__(self) -> None:
        self._start()
        os.register_at_fork(after_in_child=self._start)

    def _start(self) -> None:
        self.mutex = threading.Lock()
        self.lines: dict[str, _Line] = {}


_process = _Lines()


class InProcessBackend:
    """One lock of this process."""

    def __init__(self, name: str, *, clock: Clock | None = None) -> None:
        """Stand for the lock `name`."""
        self.uri = f"process://{os.getpid()}/{name}"
        # Nothing is renewed: the beat is there to notice that the owning thread has ended.
        self.terms = Terms(None, _RENEW_MS)
        self._name = name
        self._clock = clock or SystemClock()

    def features(self) -> Features:
        """Return what a process can do."""
        return Features(
            blocking_wait=True,
            fencing_token=True,
            fair_queue=True,
            force_release=True,
            watch=True,
        )

    def take(self, attempt: Attempt) -> TakeReply:
        """Stand in line; the first one holds the lock."""
        with _process.mutex:
            line = _process.lines.setdefault(self._name, _Line())
            if attempt not in line.waiting:
                line.waiting.append(attempt)
            first = line.waiting[0]
            if first != attempt or line.holds:
                return Held(first.id, queued=True, changed=line.moved)
            line.holds = True
            line.granted += 1
            line.since_epoch_ms = self._clock.now().wall_epoch_ms
            return Taken(Grant(attempt, attempt.id, line.granted))

    def leave(self, attempt: Attempt) -> bool:
        """Leave the line, or give back what was granted."""
        with _process.mutex:
            return self._remove(attempt)

    def renew(self, grant: Grant) -> RenewReply:
        """Tell whether the lock is still ours."""
        with _process.mutex:
            line = _process.lines.get(self._name)
            if line is None or not line.holds or line.waiting[:1] != [grant.attempt]:
                return Gone("it was released by force")
            return Kept(grant)

    def release(self, grant: Grant) -> ReleaseReply:
        """Give the lock to the next in line."""
        with _process.mutex:
            done = self._remove(grant.attempt)
        return Freed() if done else Gone("it was released by force")

    def forsake(self, grant: Grant) -> None:
        """Give the lock to the next in line: nothing expires here by itself."""
        with _process.mutex:
            self._remove(grant.attempt)

    def holder(self) -> Holder | None:
        """Return the first in line."""
        with _process.mutex:
            line = _process.lines.get(self._name)
            if line is None or not line.holds:
                return None
            return Holder(
                line.waiting[0].id,
                line.granted,
                line.since_epoch_ms,
                waiters=len(line.waiting) - 1,
            )

    def break_lock(self) -> bool:
        """Remove the first in line."""
        with _process.mutex:
            line = _process.lines.get(self._name)
            return line is not None and line.holds and self._remove(line.waiting[0])

    def close(self) -> None:
        """Keep the count of grants: tokens must go on growing."""

    def _remove(self, attempt: Attempt) -> bool:
        line = _process.lines.get(self._name)
        if line is None or attempt not in line.waiting:
            return False
        if line.waiting[0] == attempt:
            line.holds = False
        line.waiting.remove(attempt)
        line.moved.set()
        line.moved = threading.Event()
        return True


class InProcessLockProvider(LeasedProvider):
    """Hudi's provider for one process: the lock is named by `hoodie.base.path`."""

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read the settings.

        Raises: `ConfigInvalid`, as Hudi does, when there is no base path.
        """
        name = keys.RESOURCE.value(settings) or BASE_PATH.required(settings)
        pace = Pace.read(settings)
        super().__init__(
            InProcessBackend(name), pace=pace, metrics=metrics, bind_thread=bind_thread
        )
