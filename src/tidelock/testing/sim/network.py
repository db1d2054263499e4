"""Between a process and the store: latency, and everything that may become of one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelock.testing.sim.plan import Fault
from tidelock.testing.sim.process import Process, Thread
from tidelock.testing.sim.store import Fate

if TYPE_CHECKING:
    from tidelock.testing.sim.world import World

_AT_THE_STORE = {
    Fault.TWICE: Fate.TWICE,
    Fault.CONFLICT: Fate.CONFLICT,
    Fault.THROTTLED: Fate.THROTTLED,
    Fault.UNAVAILABLE: Fate.UNAVAILABLE,
    Fault.STALE: Fate.STALE,
}
_ASKING = {
    Fate.THROTTLED: (Fault.THROTTLED, Fault.THROTTLED_ASKING),
    Fate.UNAVAILABLE: (Fault.UNAVAILABLE, Fault.UNAVAILABLE_ASKING),
}


class Network:
    """Carries requests. Each request is answered exactly once, by the store or by its time-out."""

    def __init__(self, world: World) -> None:
        """Serve `world`, by its plan."""
        self._world = world
        self._faults = world.plan.request_faults
        self._latency_ms = world.plan.latency_ms
        self._timeout_ms = world.plan.timeout_ms
        self.throttled_until = 0.0

    def heal(self) -> None:
        """Lose, delay and refuse nothing from now on."""
        self._faults = ()
        self._latency_ms = min(self._latency_ms, 20.0)
        self._timeout_ms = max(self._timeout_ms, 200.0)
        self.throttled_until = 0.0

    def send(self, process: Process, thread: Thread, request: Any) -> None:
        """Send `request` for `thread`."""
        world = self._world
        leaves = process.departure_ms()
        fault = self._fault(process, leaves)
        there = leaves + world.random() * self._latency_ms
        back = world.random() * self._latency_ms
        gives_up = leaves + self._timeout_ms
        fate = Fate.PASS
        if fault is not None:
            fate = _AT_THE_STORE.get(fault, Fate.PASS)
            if fault is Fault.REQUEST_LOST or fault is Fault.PARTITION:
                self._fired(process, fault)
                world.at(gives_up, self._timed_out, (process, thread, request))
                return
            if fault is Fault.REPLY_LOST or fault is Fault.ONE_WAY:
                self._fired(process, fault)
                back = self._timeout_ms
            elif fault is Fault.DELAYED:
                self._fired(process, fault)
                there = gives_up + world.plan.lease.validity_ms * 3 * world.random() ** 2
                world.disturb_until(there)
            elif fault is Fault.SLOW:
                self._fired(process, fault)
                there = leaves + self._timeout_ms * 0.95 * world.random()
        process.flying += 1
        if there + back >= gives_up:
            world.at(there, self._unheard, (process, request), fate)
            world.at(gives_up, self._timed_out, (process, thread, request))
        else:
            world.at(there, self._arrived, (process, thread, request), (fate, back))

    def _fault(self, process: Process, leaves: float) -> Fault | None:
        if process.cut_off_until > leaves:
            return Fault.PARTITION
        if process.replies_cut_until > leaves:
            return Fault.ONE_WAY
        if self._faults:
            drawn = self._world.random()
            if drawn < self._faults[-1][0]:
                return next(fault for share, fault in self._faults if drawn < share)
        return None

    def _perform(self, process: Process, request: Any, fate: Fate) -> Any:
        world = self._world
        process.flying -= 1
        if process.denied_until > world.now:
            fate = Fate.DENIED
            world.fire(Fault.DENIED, process.phase)
        elif self.throttled_until > world.now:
            fate = Fate.THROTTLED
        store = world.store
        store.fate = fate
        store.phase = process.phase
        if fate in _ASKING:
            self._prepare(process, fate)
        return process.perform(request)

    def _prepare(self, process: Process, fate: Fate) -> None:
        """Count the fault, and decide whether the store names a pause."""
        world = self._world
        asking = world.random() < 0.5
        world.fire(_ASKING[fate][asking], process.phase)
        after_ms = int(world.random() * world.plan.lease.validity_ms / 2)
        world.store.retry_after_ms = after_ms if asking else None

    def _arrived(self, what: tuple[Process, Thread, Any], how: tuple[Fate, float]) -> None:
        process, thread, request = what
        answer = self._perform(process, request, how[0])
        world = self._world
        if world.trace is not None:
            world.say("store", f"{type(request).__name__} of {process.name}: {answer}")
        world.at(world.now + how[1], process.resume, thread, answer)

    def _unheard(self, what: tuple[Process, Any], fate: Fate) -> None:
        process, request = what
        answer = self._perform(process, request, fate)
        world = self._world
        if world.trace is not None:
            world.say("store", f"{type(request).__name__} of {process.name}: {answer}, unheard")

    def _timed_out(self, what: tuple[Process, Thread, Any], _: None) -> None:
        process, thread, request = what
        self._world.store.fate = Fate.NO_ANSWER
        process.resume(thread, process.perform(request))

    def _fired(self, process: Process, fault: Fault) -> None:
        self._world.fire(fault, process.phase)
