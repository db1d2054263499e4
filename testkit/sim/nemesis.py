"""Faults that occur from time to time: crashes, partitions, denials, clock changes, operators."""

from __future__ import annotations

from testkit.sim.client import Client
from testkit.sim.operator_faults import OperatorFaults
from testkit.sim.plan import BY_OPERATOR, Clocks, Fault
from testkit.sim.world import OFFSET_MS, World

_HOUR_MS = 3_600_000


class Nemesis:
    """Applies one of the faults of the schedule to a random client, or to the record."""

    def __init__(self, world: World) -> None:
        """Schedule the first fault."""
        self._world = world
        self.operator = OperatorFaults(world)
        if world.plan.nemesis_faults:
            self._wait()

    def _wait(self) -> None:
        world = self._world
        world.at(
            world.now + 2 * world.random() * world.plan.nemesis_every_ms, self._inject_fault, None
        )

    def _inject_fault(self, _: None, __: None) -> None:
        world = self._world
        if world.healed:
            return
        fault = world.rng.choice(world.plan.nemesis_faults)
        living = [client for client in world.clients if client.alive]
        lasting_ms = world.plan.lease.validity_ms * 3 * world.random() ** 2
        if fault in BY_OPERATOR:
            self.operator.inject(fault)
        elif fault is Fault.THROTTLED:
            world.network.throttled_until = world.now + lasting_ms / 3
        elif living:
            self._apply(fault, world.rng.choice(living), lasting_ms)
        self._wait()

    def _apply(self, fault: Fault, client: Client, lasting_ms: float) -> None:
        world = self._world
        if fault is Fault.CRASH:
            world.fire(fault, client.phase)
            client.kill()
            world.restart(client)
        elif fault is Fault.OWNER_DEATH:
            if not client.end_owner_thread():
                return
            world.fire(fault, client.phase)
            client.start("exit", client.leave(), 2 * lasting_ms)
            world.restart(client)
        elif fault is Fault.CLOCK:
            world.fire(fault, client.phase)
            self._move_clock(client)
        elif fault is Fault.PARTITION:
            client.cut_off_until = world.now + lasting_ms
        elif fault is Fault.ONE_WAY:
            client.replies_cut_until = world.now + lasting_ms
        elif fault is Fault.DENIED:
            client.denied_until = world.now + lasting_ms
        if world.trace is not None:
            world.log("nemesis", f"{fault.value} on {client.name} ({lasting_ms:.0f} ms)")

    def _move_clock(self, client: Client) -> None:
        world = self._world
        spread_ms = OFFSET_MS[world.plan.clocks]
        if world.plan.clocks is Clocks.WILD and world.random() < 0.5:
            spread_ms = _HOUR_MS
        client.clock.set_wall((2 * world.random() - 1) * spread_ms)
