"""Virtual time and simulated processes: each thread is a greenlet that waits for its events.

Production code runs unchanged. Every request to the store or the clock switches to the world, which
switches back when the answer has arrived.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from testkit.sim.clocks import EPOCH_MS
from testkit.txnsim.plan import Fault, Plan
from tidelock.core.clock import Now


class World:
    """The time, the pending events, and the counted faults."""

    def __init__(self, plan: Plan, rng: random.Random, trace: list[str] | None) -> None:
        """Start at time 0 without events."""
        self.plan = plan
        self.rng = rng
        self.random = rng.random
        self.trace = trace
        self.now = 0.0
        self.events = 0
        self.healed = False
        self.fired: Counter[Fault] = Counter()
        self.processes: list[Process] = []
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = 0

    def at(self, when_ms: float, act: Callable[..., object], *values: Any) -> None:
        """Run `act(*values)` at `when_ms`."""
        self._order += 1
        heappush(self._heap, (when_ms, self._order, act, values))

    def run(self, *, until_ms: float, events_max: int, done: Callable[[], bool]) -> bool:
        """Run events until `done`; return False if time or events ran out first."""
        while not done():
            if not self._heap or self.events >= events_max or self._heap[0][0] > until_ms:
                return False
            self.now, _, act, values = heappop(self._heap)
            self.events += 1
            act(*values)
        return True

    def drain(self) -> None:
        """Deliver all requests that are still in flight."""
        self.run(until_ms=self.now + 60_000, events_max=self.events + 2_000, done=lambda: False)

    def wall(self) -> int:
        """Return the true time."""
        return int(EPOCH_MS + self.now)

    def fire(self, fault: Fault) -> None:
        """Count a fault that had an effect."""
        self.fired[fault] += 1

    def log(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now:10.1f} {who:<10} {what}")

    def end(self) -> None:
        """Discard all processes."""
        for process in self.processes:
            process.kill()


class Process:
    """A process: threads that stop and die together, with a wall clock of their own."""

    def __init__(self, world: World, name: str, *, offset_ms: float) -> None:
        """Create the process without threads."""
        self.world = world
        self.name = name
        self.alive = True
        self.idle = False
        self.steady = False
        self.paused_until = 0.0
        self.offset_ms = offset_ms
        self.lifetime_ms = 1_000.0 * world.plan.misses
        self._threads: list[greenlet] = []
        world.processes.append(self)

    def start(self, body: Callable[[], object], *, delay_ms: float = 0.0) -> None:
        """Start a thread after a delay; a thread started by another also waits for the world."""
        current = getcurrent()
        thread = greenlet(lambda _: _until_killed(body), parent=current.parent or current)
        self._threads.append(thread)
        self.world.at(self.world.now + delay_ms, self._resume, thread, None)

    def kill(self) -> None:
        """Kill the process at once; requests in flight stay in flight."""
        if not self.alive:
            return
        self.alive = False
        current = getcurrent()
        for thread in self._threads:
            if thread and thread is not current:
                thread.throw(GreenletExit)

    def wait(self, arrange: Callable[[Callable[[float, Any], None]], None]) -> Any:
        """Block the calling thread until the callback passed to `arrange` is called.

        `arrange` receives a function `answer(when_ms, value)`; a value that is an error is raised.
        """
        if not self.alive:
            raise GreenletExit
        thread = getcurrent()
        world = self.world

        def answer(when_ms: float, value: Any) -> None:
            world.at(when_ms, self._resume, thread, value)

        arrange(answer)
        parent = thread.parent
        assert parent is not None, "the world itself cannot wait"
        value = parent.switch()
        if not self.alive:
            raise GreenletExit
        if isinstance(value, Exception):
            raise value
        return value

    def departure_ms(self) -> float:
        """Return when a request sent now leaves: at once, or after a pause just before (F9)."""
        if self._draws_pause():
            self._pause()
        return max(self.world.now, self.paused_until)

    def _resume(self, thread: greenlet, value: Any) -> None:
        world = self.world
        if not self.alive or thread.dead:
            return
        if self.paused_until <= world.now and self._draws_pause():
            self._pause()
        if self.paused_until > world.now:
            # The threads of a process that wakes up run in any order.
            world.at(self.paused_until + world.random(), self._resume, thread, value)
            return
        thread.switch(value)

    def _draws_pause(self) -> bool:
        world = self.world
        share = world.plan.pause_share
        return bool(share) and not self.steady and not world.healed and world.random() < share

    def _pause(self) -> None:
        world = self.world
        duration_ms = self.lifetime_ms * (0.5 + 5 * world.random() ** 2)
        self.paused_until = world.now + duration_ms
        world.fire(Fault.PAUSE)
        world.log(self.name, f"pauses for {duration_ms:.0f} ms")

    def now(self) -> Now:
        """Read both clocks."""
        time_ms = self.world.now
        return Now(int(time_ms), int(EPOCH_MS + time_ms + self.offset_ms))

    def sleep_ms(self, duration_ms: float) -> None:
        """Sleep in virtual time."""
        when_ms = self.world.now + max(0.0, duration_ms)
        self.wait(lambda answer: answer(when_ms, None))


def _until_killed(body: Callable[[], object]) -> None:
    try:
        body()
    except GreenletExit:
        return
