"""A simulated process: threads as generators, pauses of the whole process, one mutex.

A thread yields what it waits for: a pause, a request to the store, the mutex of the process, or an
access to the registers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from testkit.sim.clocks import VirtualClock
from testkit.sim.plan import Fault
from testkit.sim.registers import RegisterAccess
from tidelock.lock.session import SessionPause

if TYPE_CHECKING:
    from testkit.sim.world import World

MUTEX = "the mutex"

ThreadBody = Generator[Any, Any, Any]


class Thread:
    """One thread of a process: its generator, and the request it waits for."""

    __slots__ = ("body", "ended", "name", "request")

    def __init__(self, name: str, body: ThreadBody) -> None:
        """Create the thread; it is started later."""
        self.name = name
        self.body = body
        self.request: Any = None
        self.ended = False


class Process:
    """Base class of Tidelock clients and Java writers."""

    def __init__(self, world: World, index: int, clock: VirtualClock) -> None:
        """Create the process without threads."""
        self.world = world
        self.index = index
        self.clock = clock
        self.alive = True
        self.paused_until = 0.0
        self.cut_off_until = 0.0
        self.replies_cut_until = 0.0
        self.denied_until = 0.0
        self.in_flight = 0
        self._mutex_taken = False
        self._mutex_waiters: deque[Thread] = deque()

    @property
    def name(self) -> str:
        """The process in the trace."""
        return f"process {self.index}"

    @property
    def phase(self) -> str:
        """The phase of the process, for the fault table."""
        return "java"

    def perform(self, request: Any) -> Any:
        """Perform `request` at the store, and return the reply."""
        raise NotImplementedError

    def on_request(self, request: Any) -> None:
        """Record a request that is sent now."""

    def on_reply(self, request: Any, answer: Any) -> None:
        """Record a reply that arrived."""

    def start(self, name: str, body: ThreadBody, delay_ms: float = 0.0) -> Thread:
        """Start a thread after `delay_ms`."""
        thread = Thread(name, body)
        self.world.at(self.world.now + delay_ms, self.resume, thread, None)
        return thread

    def kill(self) -> None:
        """End at once; requests in flight are not affected."""
        self.alive = False

    def resume(self, thread: Thread, value: Any) -> None:
        """Continue `thread` with the value it waited for, unless the process is paused."""
        world = self.world
        if not self.alive or thread.ended:
            return
        if self.paused_until > world.now:
            # After a pause, the threads of a process run in any order.
            world.at(self.paused_until + world.random() * 2, self.resume, thread, value)
            return
        if world.pause_share and world.random() < world.pause_share:
            self.pause(f"{thread.name} before it continues")
            world.at(self.paused_until + world.random() * 2, self.resume, thread, value)
            return
        request = thread.request
        if request is not None:
            thread.request = None
            if world.trace is not None:
                world.log(self.name, f"{thread.name} receives {value}")
            self.on_reply(request, value)
        self._run(thread, value)

    def _run(self, thread: Thread, value: Any) -> None:
        send = thread.body.send
        world = self.world
        try:
            request = send(value)
            while request is MUTEX:
                if self._mutex_taken:
                    self._mutex_waiters.append(thread)
                    return
                self._mutex_taken = True
                request = send(None)
        except StopIteration:
            thread.ended = True
            return
        kind = type(request)
        if kind is SessionPause:
            delay_ms = self.clock.true_ms(request.duration_ms)
            world.at(world.now + delay_ms + world.random(), self.resume, thread, None)
        elif kind is RegisterAccess:
            self._access(thread, request)
        else:
            thread.request = request
            if world.trace is not None:
                world.log(self.name, f"{thread.name} sends {request}")
            self.on_request(request)
            world.network.send(self, thread, request)

    def send_without_reply(self, request: Any) -> None:
        """Send a request without waiting for its reply."""
        if type(request) is not SessionPause:
            if self.world.trace is not None:
                self.world.log(self.name, f"is interrupted while it sends {request}")
            self.on_request(request)
            nobody = Thread("nobody", _no_reader())
            next(nobody.body)
            self.world.network.send(self, nobody, request)

    def free_mutex(self) -> None:
        """Pass the mutex to the next thread."""
        if self._mutex_waiters:
            self.world.at(self.world.now, self.resume, self._mutex_waiters.popleft(), None)
        else:
            self._mutex_taken = False

    def pause(self, where: str) -> None:
        """F9: pause for half to ten times the validity."""
        world = self.world
        duration_ms = world.plan.lease.validity_ms * (0.5 + 9.5 * world.random() ** 3)
        self.paused_until = world.now + duration_ms
        world.disturb_until(self.paused_until)
        world.fire(Fault.PAUSE, self.phase)
        if world.trace is not None:
            world.log(self.name, f"pauses for {duration_ms:.0f} ms: {where}")

    def departure_ms(self) -> float:
        """Return when a request sent now departs: at once, or after a pause."""
        world = self.world
        if world.pause_share and world.random() < world.pause_share:
            self.pause("before a request departs")
            return self.paused_until
        return world.now

    def _access(self, thread: Thread, access: RegisterAccess) -> None:
        world = self.world
        if world.pause_share and world.random() < 10 * world.pause_share:
            self.pause("between the check and the effect")
            leaves = self.paused_until
        else:
            leaves = world.now
        world.at(leaves + world.random() * world.plan.latency_ms, self._accessed, thread, access)

    def _accessed(self, thread: Thread, access: RegisterAccess) -> None:
        world = self.world
        values = world.registers.access(access)
        if world.trace is not None:
            world.log(self.name, f"{access} found {values}")
        self.resume(thread, values)


def _no_reader() -> ThreadBody:
    yield
