"""One thread that keeps many locks alive.

It wakes for the next renewal that is due or the next deadline, whichever is first. Renewals run
in a small pool of daemon threads, so a stalled request delays nobody else's renewal and nobody's
notice of a loss (P29).
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tidelock.base.clock import Clock
from tidelock.base.runtime import DaemonPool, start_thread
from tidelock.lock.events import Result
from tidelock.lock.heartbeat import Heartbeat

RENEWALS_AT_ONCE_MAX = 32
"""More stalled requests than this mean that the store is down, not that it is slow."""


class Renewable(Protocol):
    """What the loop needs of a holding."""

    def renew(self) -> Result | None:
        """Send one renewal and return its result; None when there is nothing to renew."""
        ...

    def notice(self) -> None:
        """Look whether the deadline has passed or the owner has ended."""
        ...

    def deadline_monotonic_ms(self) -> int | None:
        """Return when the holding ends unless renewed; None when it has ended."""
        ...


@dataclass(slots=True)
class _Entry:
    holding: Renewable
    beat: Heartbeat
    busy: bool = False
    noticed: bool = False


@dataclass(slots=True, weakref_slot=True)
class Renewals:
    """Renews every holding it was given until it is taken out or lost."""

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
        """A fork copies no threads, and copies a mutex that one of them may be holding."""
        again = weakref.WeakMethod(self._forked)

        def forked() -> None:
            if (method := again()) is not None:
                method()

        os.register_at_fork(after_in_child=forked)

    def _forked(self) -> None:
        self._starting = threading.Lock()

    def add(self, holding: Renewable, beat: Heartbeat) -> None:
        """Renew `holding` from now on.

        Raises: `RuntimeError` when no thread can be started; then nothing is renewed.
        """
        with self._starting:
            # Two threads may take their first locks at the same moment; one of them starts it.
            if self._pid != os.getpid():
                self._begin()
        entry = _Entry(holding, beat)
        with self._wake:
            self._entries[id(holding)] = entry
            # Waking the thread costs an acquire more than everything else it does on this machine,
            # so it sleeps on unless this holding needs it sooner than it would wake by itself.
            if min(_moments(entry)) < self._wakes_at_ms:
                self._wake.notify()

    def _begin(self) -> None:
        """Start the thread: once per process, since a fork copies no threads."""
        self._wake = threading.Condition()
        self._entries = {}
        self._wakes_at_ms = math.inf
        self._pool = DaemonPool("tidelock-renewal", RENEWALS_AT_ONCE_MAX)
        start_thread("tidelock-heartbeat", self._run)
        self._pid = os.getpid()

    def remove(self, holding: Renewable) -> None:
        """Send no further renewal of `holding`. One under way is not waited for."""
        with self._wake:
            self._entries.pop(id(holding), None)

    def __len__(self) -> int:
        """Return how many holdings are kept alive."""
        return len(self._entries)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wakes_at_ms = self._next_ms()
                self._wake.wait(self._pause_s())
                now_ms = self.clock.now().monotonic_ms
                due = [entry for entry in self._entries.values() if _is_due(entry, now_ms)]
                over = [entry for entry in self._entries.values() if _is_over(entry, now_ms)]
                for entry in due:
                    entry.busy = True
                for entry in over:
                    entry.noticed = True
            for entry in over:
                entry.holding.notice()
            for entry in due:
                self._pool.submit(self._task(entry))

    def _next_ms(self) -> float:
        moments = [moment for entry in self._entries.values() for moment in _moments(entry)]
        return min(moments, default=math.inf)

    def _pause_s(self) -> float | None:
        if self._wakes_at_ms == math.inf:
            return None
        return max(0, self._wakes_at_ms - self.clock.now().monotonic_ms) / 1000

    def _task(self, entry: _Entry) -> Callable[[], None]:
        def beat() -> None:
            sent_ms = self.clock.now().monotonic_ms
            result = entry.holding.renew()
            now_ms = self.clock.now().monotonic_ms
            following = None
            if result is not None:
                following = entry.beat.after(
                    result, sent_monotonic_ms=sent_ms, now_monotonic_ms=now_ms
                )
            with self._wake:
                entry.busy = False
                if following is None:
                    if self._entries.get(id(entry.holding)) is entry:
                        del self._entries[id(entry.holding)]
                else:
                    entry.beat = following
                    # The deadline may have moved: then the next one is to be noticed too (P29).
                    entry.noticed = False
                self._wake.notify()

        return beat


def _moments(entry: _Entry) -> list[int]:
    moments = [] if entry.busy else [entry.beat.due_monotonic_ms]
    deadline_ms = entry.holding.deadline_monotonic_ms()
    if deadline_ms is not None and not entry.noticed:
        moments.append(deadline_ms)
    return moments


def _is_due(entry: _Entry, now_ms: int) -> bool:
    return not entry.busy and now_ms >= entry.beat.due_monotonic_ms


def _is_over(entry: _Entry, now_ms: int) -> bool:
    deadline_ms = entry.holding.deadline_monotonic_ms()
    return not entry.noticed and deadline_ms is not None and now_ms >= deadline_ms
