"""The heartbeat: one thread that renews all locks of a process.

It wakes for the next renewal or the next deadline, whichever is first. Renewals run in a small pool
of daemon threads, so a stalled request delays neither other renewals nor the notice of a loss
(P29).
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tidelock.core.clock import Clock
from tidelock.core.system import SystemClock
from tidelock.core.threads import DaemonPool, start_thread
from tidelock.lock.events import Result
from tidelock.lock.lease import RenewalSchedule

RENEWALS_AT_ONCE_MAX = 32
"""With more stalled requests than this, the store is down rather than slow."""


class Renewable(Protocol):
    """A holding that the heartbeat renews."""

    @abstractmethod
    def renew(self) -> Result | None:
        """Send one renewal and return its result; None if there is nothing to renew."""

    @abstractmethod
    def check_deadline(self) -> None:
        """P29: declare the lock lost if its deadline has passed, even if a request is stalled."""

    @abstractmethod
    def deadline_monotonic_ms(self) -> int | None:
        """Return when the holding ends unless it is renewed; None if nothing is held."""


@dataclass(slots=True)
class _Entry:
    holding: Renewable
    schedule: RenewalSchedule
    busy: bool = False
    deadline_checked: bool = False


@dataclass(slots=True, weakref_slot=True)
class Renewals:
    """Renews each holding until it is removed or lost."""

    clock: Clock
    _wake: threading.Condition = field(default_factory=threading.Condition)
    _entries: dict[int, _Entry] = field(default_factory=dict)
    _pool: DaemonPool = field(
        default_factory=lambda: DaemonPool("tidelock-renewal", RENEWALS_AT_ONCE_MAX)
    )
    _pid: int = 0
    _wakes_at_ms: float = math.inf
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Replace the mutex after a fork: a thread that was not copied may hold it."""
        after_fork = weakref.WeakMethod(self._after_fork)

        def in_child() -> None:
            if (method := after_fork()) is not None:
                method()

        os.register_at_fork(after_in_child=in_child)

    def _after_fork(self) -> None:
        self._starting = threading.Lock()

    def add(self, holding: Renewable, schedule: RenewalSchedule) -> None:
        """Renew `holding` from now on. Raises: `RuntimeError` if no thread can be started."""
        with self._starting:
            # Two threads may acquire their first locks at once; only one starts the thread.
            if self._pid != os.getpid():
                self._start()
        entry = _Entry(holding, schedule)
        with self._wake:
            self._entries[id(holding)] = entry
            # Waking the thread is the most expensive local step of an acquire, so it is woken only
            # if this holding is due before the thread would wake anyway.
            if min(_wake_times(entry)) < self._wakes_at_ms:
                self._wake.notify()

    def _start(self) -> None:
        """Start the thread, once per process: a fork copies no threads."""
        self._wake = threading.Condition()
        self._entries = {}
        self._wakes_at_ms = math.inf
        self._pool = DaemonPool("tidelock-renewal", RENEWALS_AT_ONCE_MAX)
        start_thread("tidelock-heartbeat", self._run)
        self._pid = os.getpid()

    def remove(self, holding: Renewable) -> None:
        """Send no further renewal of `holding`. Does not wait for one that is running."""
        with self._wake:
            self._entries.pop(id(holding), None)

    def __len__(self) -> int:
        return len(self._entries)

    def _run(self) -> None:
        while True:
            with self._wake:
                times = [at_ms for entry in self._entries.values() for at_ms in _wake_times(entry)]
                self._wakes_at_ms = min(times, default=math.inf)
                self._wake.wait(self._pause_s())
                now_ms = self.clock.now().monotonic_ms
                due = [entry for entry in self._entries.values() if _is_due(entry, now_ms)]
                expired = [entry for entry in self._entries.values() if _is_expired(entry, now_ms)]
                for entry in due:
                    entry.busy = True
                for entry in expired:
                    entry.deadline_checked = True
            for entry in expired:
                entry.holding.check_deadline()
            for entry in due:
                self._pool.submit(self._task(entry))

    def _pause_s(self) -> float | None:
        if self._wakes_at_ms == math.inf:
            return None
        return max(0, self._wakes_at_ms - self.clock.now().monotonic_ms) / 1000

    def _task(self, entry: _Entry) -> Callable[[], None]:
        def renew() -> None:
            sent_ms = self.clock.now().monotonic_ms
            result = entry.holding.renew()
            now_ms = self.clock.now().monotonic_ms
            schedule = None
            if result is not None:
                schedule = entry.schedule.after(
                    result, sent_monotonic_ms=sent_ms, now_monotonic_ms=now_ms
                )
            with self._wake:
                entry.busy = False
                if schedule is None:
                    if self._entries.get(id(entry.holding)) is entry:
                        del self._entries[id(entry.holding)]
                else:
                    entry.schedule = schedule
                    # The deadline may have moved: check the next one as well (P29).
                    entry.deadline_checked = False
                self._wake.notify()

        return renew


def _wake_times(entry: _Entry) -> list[int]:
    times = [] if entry.busy else [entry.schedule.due_monotonic_ms]
    deadline_ms = entry.holding.deadline_monotonic_ms()
    if deadline_ms is not None and not entry.deadline_checked:
        times.append(deadline_ms)
    return times


def _is_due(entry: _Entry, now_ms: int) -> bool:
    return not entry.busy and now_ms >= entry.schedule.due_monotonic_ms


def _is_expired(entry: _Entry, now_ms: int) -> bool:
    deadline_ms = entry.holding.deadline_monotonic_ms()
    return not entry.deadline_checked and deadline_ms is not None and now_ms >= deadline_ms


shared_renewals = Renewals(SystemClock())
"""The heartbeat of this process, shared by all of its locks."""
