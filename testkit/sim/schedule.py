"""One schedule: run with faults, end them, check liveness, and check the history."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass

from testkit.sim.checkers import violations
from testkit.sim.nemesis import Nemesis
from testkit.sim.owner import waiter
from testkit.sim.plan import Clocks, Fault, Plan, draw
from testkit.sim.world import OFFSET_MS, World
from tidelock.core.errors import InvariantBroken

_ROUND_TRIPS = 12
_HEALED_LATENCY_MS = 20
_EVENTS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one schedule."""

    plan: Plan
    violations: tuple[str, ...]
    events: int
    grants: int
    updates: int
    canary_lost: int
    fired: Counter[tuple[Fault, str]]


def run_schedule(
    seed: int, clocks: Clocks = Clocks.PROMISED, trace: list[str] | None = None
) -> Outcome:
    """Run the schedule of `seed` and check its history."""
    plan, rng = draw(seed, clocks)
    world = World(plan, rng, trace)
    if trace is not None:
        trace.append(f"{plan}")
    try:
        _simulate(world)
    except InvariantBroken as error:
        world.history.broken.append(f"invariant broken: {error}")
    except Exception as error:
        # Any other error is a finding, too: keep the seed.
        world.history.broken.append(f"{type(error).__name__}: {error}")
        if trace is not None:
            trace.append(traceback.format_exc())
    world.history.fenced_lost = world.registers.fenced_lost
    return Outcome(
        plan,
        tuple(violations(world.history, plan)),
        world.events,
        len(world.history.holdings),
        world.registers.acknowledged,
        world.registers.unfenced_lost,
        world.fired,
    )


def _simulate(world: World) -> None:
    plan = world.plan
    for _ in range(plan.clients):
        world.add_client(world.random() * plan.lease.validity_ms / 2)
    for _ in range(plan.java_peers):
        world.add_java_peer()
    nemesis = Nemesis(world)
    world.run(events=plan.events, until=float("inf"))
    quiet_at = world.heal()
    nemesis.operator.repair()
    if world.trace is not None:
        world.log("world", f"faults end; quiet from {quiet_at:.0f}")
    world.run(events=_EVENTS_MAX, until=quiet_at)
    _finish_operations(world)
    if plan.clocks is Clocks.PROMISED:
        _check_liveness(world)


def _finish_operations(world: World) -> None:
    """Wait until all running owners have released the lock."""
    liveness_bound_ms = 4 * world.plan.lease.validity_ms + 10_000
    until = world.now + liveness_bound_ms
    while any(client.at_work for client in world.clients):
        if world.now >= until:
            world.history.broken.append("L9: an operation does not end without faults")
            return
        world.run(events=_EVENTS_MAX, until=world.now + liveness_bound_ms / 40)


def _check_liveness(world: World) -> None:
    """L9: without faults a waiter acquires the lock in time, even if a holder died."""
    if world.random() < 0.4:
        _kill_a_holder(world)
    world.history.quiet_at = world.now
    ready = [client for client in world.clients if client.ready]
    waiters = [world.rng.choice(ready)] if ready and world.random() < 0.6 else []
    if not waiters or world.random() < 0.3:
        waiters.append(world.add_observer())
    for client in waiters:
        client.start("waiter", waiter(client))
    _run_until_won(world)
    if world.history.won_at is not None and world.random() < 0.2:
        for client in world.clients:
            if client.ready and client not in waiters:
                client.start("exit", client.leave())
        world.run(events=_EVENTS_MAX, until=world.now + 1_000)


def _kill_a_holder(world: World) -> None:
    """Let a client acquire the lock, and kill it; its record remains."""
    world.history.quiet_at = world.now
    victim = world.add_observer()
    victim.start("victim", victim.operate("acquire", victim.session.acquire(None)))
    _run_until_won(world)
    victim.kill()
    if world.trace is not None:
        world.log("world", f"kills {victim.name}")
    if world.history.won_at is None:
        world.history.broken.append("L9: no client acquired the lock without faults")
    world.history.won_at = None


def _run_until_won(world: World) -> None:
    until = world.now + liveness_bound_ms(world.plan)
    while world.history.won_at is None and world.now < until:
        world.run(events=1, until=until)


def liveness_bound_ms(plan: Plan) -> float:
    """Return the time bound of L9.

    Validity, drift and grace on the waiter's clock, which may be behind the holder's by the largest
    clock difference; two polls; and the requests of an acquire.
    """
    lease = plan.lease
    clocks_ms = 2 * OFFSET_MS[plan.clocks]
    requests_ms = _ROUND_TRIPS * 2 * _HEALED_LATENCY_MS
    spread_ms = (lease.validity_ms + 1_000) * 0.01
    waiting_ms = lease.validity_ms + lease.drift_ms + lease.grace_ms + clocks_ms + spread_ms
    return waiting_ms + 2 * plan.poll.max_ms + requests_ms
