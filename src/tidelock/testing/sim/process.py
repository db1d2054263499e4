"""A simulated process: threads that are generators, pauses that stop them all, one mutex.

A thread yields what it waits for: a pause, a request to the store, the process's mutex, or a touch
of the registers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tidelock.lock.session import Pause
from tidelock.testing.sim.clocks import VirtualClock
from tidelock.testing.sim.plan import Fault
from tidelock.testing.sim.registers import Touch

if TYPE_CHECKING:
    from tidelock.testing.sim.world import World

MUTEX = "the mutex"

Body = Generator[Any, Any, Any]


class Thread:
    """One thread of a process: its generator, and the request it waits for."""

    __slots__ = ("asked", "body", "ended", "name")

    def __init__(self, name: str, body: Body) -> None:
        """Wait to be started."""
        self.name = name
        self.body = body
        self.asked: Any = None
        self.ended = False


class Process:
    """What our clients and Hudi's Java writers have in common."""

    def __init__(self, world: World, index: int, clock: VirtualClock) -> None:
        """Stand still until a thread is started."""
        self.world = world
        self.index = index
        self.clock = clock
        self.alive = True
        self.paused_until = 0.0
        self.cut_off_until = 0.0
        self.replies_cut_until = 0.0
        self.denied_until = 0.0
        self.flying = 0
        self._mutex_taken = False
        self._mutex_wanted: deque[Thread] = deque()

    @property
    def name(self) -> str:
        """The process, for the trace."""
        return f"process {self.index}"

    @property
    def phase(self) -> str:
        """What the process is doing, for the table of faults."""
        return "java"

    def perform(self, request: Any) -> Any:
        """Carry out `request` at the store, and return the answer in the process's words."""
        raise NotImplementedError

    def asking(self, request: Any) -> None:
        """Take note of a request that leaves now."""

    def answered(self, request: Any, answer: Any) -> None:
        """Take note of an answer that arrived."""

    def start(self, name: str, body: Body, delay_ms: float = 0.0) -> Thread:
        """Start a thread after a while."""
        thread = Thread(name, body)
        self.world.at(self.world.now + delay_ms, self.resume, thread, None)
        return thread

    def kill(self) -> None:
        """End at once; what is on its way stays on its way."""
        self.alive = False

    def resume(self, thread: Thread, value: Any) -> None:
        """Let `thread` go on with what it waited for, unless the process stands still."""
        world = self.world
        if not self.alive or thread.ended:
            return
        if self.paused_until > world.now:
            # Threads of a process that wakes up run in any order.
            world.at(self.paused_until + world.random() * 2, self.resume, thread, value)
            return
        if world.pause_share and world.random() < world.pause_share:
            self.pause(f"{thread.name} before it goes on")
            world.at(self.paused_until + world.random() * 2, self.resume, thread, value)
            return
        asked = thread.asked
        if asked is not None:
            thread.asked = None
            if world.trace is not None:
                world.say(self.name, f"{thread.name} hears {value}")
            self.answered(asked, value)
        self._run(thread, value)

    def _run(self, thread: Thread, value: Any) -> None:
        send = thread.body.send
        world = self.world
        try:
            asked = send(value)
            while asked is MUTEX:
                if self._mutex_taken:
                    self._mutex_wanted.append(thread)
                    return
                self._mutex_taken = True
                asked = send(None)
        except StopIteration:
            thread.ended = True
            return
        kind = type(asked)
        if kind is Pause:
            delay_ms = self.clock.true_ms(asked.duration_ms)
            world.at(world.now + delay_ms + world.random(), self.resume, thread, None)
        elif kind is Touch:
            self._touch(thread, asked)
        else:
            thread.asked = asked
            if world.trace is not None:
                world.say(self.name, f"{thread.name} asks {asked}")
            self.asking(asked)
            world.network.send(self, thread, asked)

    def send_unheard(self, asked: Any) -> None:
        """Send a request whose answer nobody will wait for."""
        if type(asked) is not Pause:
            if self.world.trace is not None:
                self.world.say(self.name, f"is interrupted while it asks {asked}")
            self.asking(asked)
            nobody = Thread("nobody", _deaf())
            next(nobody.body)
            self.world.network.send(self, nobody, asked)

    def free_mutex(self) -> None:
        """Let the next thread have the mutex."""
        if self._mutex_wanted:
            self.world.at(self.world.now, self.resume, self._mutex_wanted.popleft(), None)
        else:
            self._mutex_taken = False

    def pause(self, where: str) -> None:
        """F9: stand still for half to ten times the validity."""
        world = self.world
        duration_ms = world.plan.lease.validity_ms * (0.5 + 9.5 * world.random() ** 3)
        self.paused_until = world.now + duration_ms
        world.disturb_until(self.paused_until)
        world.fire(Fault.PAUSE, self.phase)
        if world.trace is not None:
            world.say(self.name, f"stands still for {duration_ms:.0f} ms: {where}")

    def departure_ms(self) -> float:
        """Return when what is sent now leaves: at once, or after a pause just before."""
        world = self.world
        if world.pause_share and world.random() < world.pause_share:
            self.pause("before what it sends leaves")
            return self.paused_until
        return world.now

    def _touch(self, thread: Thread, touch: Touch) -> None:
        world = self.world
        if world.pause_share and world.random() < 10 * world.pause_share:
            self.pause("between the check and the effect")
            leaves = self.paused_until
        else:
            leaves = world.now
        world.at(leaves + world.random() * world.plan.latency_ms, self._touched, thread, touch)

    def _touched(self, thread: Thread, touch: Touch) -> None:
        world = self.world
        bases = world.registers.touch(touch)
        if world.trace is not None:
            world.say(self.name, f"{touch} found {bases}")
        self.resume(thread, bases)


def _deaf() -> Body:
    yield
