"""The network between a process and the store: latency and request faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testkit.sim.plan import Fault
from testkit.sim.process import Process, Thread
from testkit.sim.store import RequestOutcome

if TYPE_CHECKING:
    from testkit.sim.world import World

_AT_THE_STORE = {
    Fault.TWICE: RequestOutcome.TWICE,
    Fault.CONFLICT: RequestOutcome.CONFLICT,
    Fault.THROTTLED: RequestOutcome.THROTTLED,
    Fault.UNAVAILABLE: RequestOutcome.UNAVAILABLE,
    Fault.STALE: RequestOutcome.STALE,
}
_ASKING = {
    RequestOutcome.THROTTLED: (Fault.THROTTLED, Fault.THROTTLED_ASKING),
    RequestOutcome.UNAVAILABLE: (Fault.UNAVAILABLE, Fault.UNAVAILABLE_ASKING),
}


class Network:
    """Delivers requests. Each request ends exactly once, by a reply or by its timeout."""

    def __init__(self, world: World) -> None:
        """Use the plan of `world`."""
        self._world = world
        self._faults = world.plan.request_faults
        self._latency_ms = world.plan.latency_ms
        self._timeout_ms = world.plan.timeout_ms
        self.throttled_until = 0.0

    def heal(self) -> None:
        """End all faults."""
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
        outcome = RequestOutcome.PASS
        if fault is not None:
            outcome = _AT_THE_STORE.get(fault, RequestOutcome.PASS)
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
        process.in_flight += 1
        if there + back >= gives_up:
            world.at(there, self._perform_unheard, (process, request), outcome)
            world.at(gives_up, self._timed_out, (process, thread, request))
        else:
            world.at(there, self._arrived, (process, thread, request), (outcome, back))

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

    def _perform(self, process: Process, request: Any, outcome: RequestOutcome) -> Any:
        world = self._world
        process.in_flight -= 1
        if process.denied_until > world.now:
            outcome = RequestOutcome.DENIED
            world.fire(Fault.DENIED, process.phase)
        elif self.throttled_until > world.now:
            outcome = RequestOutcome.THROTTLED
        store = world.store
        store.outcome = outcome
        store.phase = process.phase
        if outcome in _ASKING:
            self._prepare(process, outcome)
        return process.perform(request)

    def _prepare(self, process: Process, outcome: RequestOutcome) -> None:
        """Count the fault, and decide whether the store sends Retry-After."""
        world = self._world
        on_request = world.random() < 0.5
        world.fire(_ASKING[outcome][on_request], process.phase)
        after_ms = int(world.random() * world.plan.lease.validity_ms / 2)
        world.store.retry_after_ms = after_ms if on_request else None

    def _arrived(
        self, what: tuple[Process, Thread, Any], how: tuple[RequestOutcome, float]
    ) -> None:
        process, thread, request = what
        answer = self._perform(process, request, how[0])
        world = self._world
        if world.trace is not None:
            world.log("store", f"{type(request).__name__} of {process.name}: {answer}")
        world.at(world.now + how[1], process.resume, thread, answer)

    def _perform_unheard(self, what: tuple[Process, Any], outcome: RequestOutcome) -> None:
        process, request = what
        answer = self._perform(process, request, outcome)
        world = self._world
        if world.trace is not None:
            world.log("store", f"{type(request).__name__} of {process.name}: {answer}, reply lost")

    def _timed_out(self, what: tuple[Process, Thread, Any], _: None) -> None:
        process, thread, request = what
        self._world.store.outcome = RequestOutcome.NO_ANSWER
        process.resume(thread, process.perform(request))

    def _fired(self, process: Process, fault: Fault) -> None:
        self._world.fire(fault, process.phase)
