"""The state of one schedule: virtual time, the event queue, and the processes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from testkit.sim.client import Client
from testkit.sim.clocks import VirtualClock
from testkit.sim.history import History
from testkit.sim.java_peer import JavaPeer
from testkit.sim.network import Network
from testkit.sim.owner import script
from testkit.sim.plan import Clocks, Fault, Plan
from testkit.sim.process import Process
from testkit.sim.registers import Registers
from testkit.sim.store import SimStore

OFFSET_MS = {Clocks.PROMISED: 250.0, Clocks.WILD: 10_000.0}
"""Largest offset of a wall clock from the true time; two clocks differ by up to twice this."""

_RATE = 0.005
_CLIENTS_MAX = 12


class World:
    """A running schedule. All random numbers are drawn from `rng`, in one order."""

    def __init__(self, plan: Plan, rng: random.Random, trace: list[str] | None = None) -> None:
        """Create the processes and the store; `run` processes events."""
        self.plan = plan
        self.rng = rng
        self.random = rng.random
        self.trace = trace
        self.now = 0.0
        self.events = 0
        self.healed = False
        self.pause_share = plan.pause_share
        self.fired: Counter[tuple[Fault, str]] = Counter()
        self.history = History()
        self.registers = Registers()
        self._heap: list[tuple[float, int, Callable[..., None], Any, Any]] = []
        self._pushed = 0
        self._disturbed_until = 0.0
        self.store = SimStore(
            self.history,
            clock=self.clock(),
            time_ms=self.time_ms,
            staleness_ms=plan.staleness_ms if Fault.STALE in plan.faults else 0.0,
            fired=self.fired,
        )
        self.network = Network(self)
        self.clients: list[Client] = []
        self.java_peers: list[JavaPeer] = []

    def time_ms(self) -> float:
        """Return the true time."""
        return self.now

    def at(self, when: float, action: Callable[..., None], one: Any, two: Any = None) -> None:
        """Schedule `action(one, two)` at `when`."""
        self._pushed += 1
        heappush(self._heap, (when, self._pushed, action, one, two))

    def run(self, *, events: int, until: float) -> None:
        """Process events, up to a number of events or a time."""
        heap = self._heap
        left = events
        while heap and left and heap[0][0] <= until:
            self.now, _, action, one, two = heappop(heap)
            action(one, two)
            left -= 1
        self.events += events - left
        if left and until != float("inf"):
            self.now = max(self.now, until)

    def clock(self) -> VirtualClock:
        """Return random clocks for one process."""
        off_ms = OFFSET_MS[self.plan.clocks]
        return VirtualClock(
            self.time_ms,
            offset_ms=(2 * self.random() - 1) * off_ms,
            rate=1 + (2 * self.random() - 1) * _RATE,
            started_ms=self.random() * 1e6,
        )

    def add_client(self, delay_ms: float = 0.0) -> Client:
        """Add a client that starts its script after `delay_ms`."""
        client = self.add_observer()
        client.thread = client.start("owner", script(client), delay_ms)
        return client

    def add_observer(self) -> Client:
        """Add a client without a script."""
        client = Client(self, len(self.clients), self.clock())
        self.clients.append(client)
        return client

    def add_java_peer(self) -> None:
        """Add a Java writer."""
        peer = JavaPeer(self, len(self.java_peers), self.clock())
        self.java_peers.append(peer)
        peer.start("writer", peer.script(), self.random() * self.plan.lease.validity_ms)

    def restart(self, after: Process) -> None:
        """F10: restart the program, as another owner."""
        if not self.healed and len(self.clients) < _CLIENTS_MAX:
            self.fire(Fault.RESTART, after.phase)
            self.add_client(self.random() * self.plan.lease.validity_ms)

    def disturb_until(self, when: float) -> None:
        """Record that a fault in progress lasts until `when`."""
        self._disturbed_until = max(self._disturbed_until, when)

    def heal(self) -> float:
        """End all faults; return when the last one in progress is over."""
        self.healed = True
        self.pause_share = 0.0
        for peer in self.java_peers:
            peer.kill()
        for client in self.clients:
            client.cut_off_until = client.replies_cut_until = client.denied_until = 0.0
        under_way_ms = self.plan.timeout_ms + 2 * self.plan.latency_ms
        self.network.heal()
        return max(self.now, self._disturbed_until) + under_way_ms

    def record_believers(self, granted: int, granted_seq: int, but: Client | None = None) -> None:
        """Record which clients other than `but` believe they hold the lock."""
        for client in self.clients:
            if client is not but:
                client.record_belief(granted, granted_seq)

    def won(self) -> None:
        """Record that a client was granted the lock."""
        if self.history.quiet_at is not None and self.history.won_at is None:
            self.history.won_at = self.now

    def fire(self, fault: Fault, operation: str) -> None:
        """Count a fault in `operation`."""
        self.fired[fault, operation] += 1

    def log(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now:12.3f}  {who:<18} {what}")
