"""One schedule: disturb the world for a while, heal it, see whether somebody still wins, check."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass

from tidelock.base.errors import InvariantBroken
from tidelock.testing.sim.checkers import violations
from tidelock.testing.sim.nemesis import Nemesis
from tidelock.testing.sim.owner import waiter
from tidelock.testing.sim.plan import Clocks, Fault, Plan, draw
from tidelock.testing.sim.world import OFFSET_MS, World

_ROUND_TRIPS = 12
_HEALED_LATENCY_MS = 20
_EVENTS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one schedule."""

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
    """Run the schedule of `seed` to its end and check everything that happened."""
    plan, rng = draw(seed, clocks)
    world = World(plan, rng, trace)
    if trace is not None:
        trace.append(f"{plan}")
    try:
        _play(world)
    except InvariantBroken as error:
        world.history.broken.append(f"the machine stopped itself: {error}")
    except Exception as error:
        # Whatever it is, the seed that leads to it must not be lost.
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


def _play(world: World) -> None:
    plan = world.plan
    for _ in range(plan.clients):
        world.add_client(world.random() * plan.lease.validity_ms / 2)
    for _ in range(plan.java_peers):
        world.add_java_peer()
    nemesis = Nemesis(world)
    world.run(events=plan.events, until=float("inf"))
    quiet_at = world.heal()
    nemesis.operator.mend()
    if world.trace is not None:
        world.say("world", f"heals; quiet from {quiet_at:.0f}")
    world.run(events=_EVENTS_MAX, until=quiet_at)
    _settle(world)
    if plan.clocks is Clocks.PROMISED:
        _see_who_wins(world)


def _settle(world: World) -> None:
    """Wait until the owners that are still at work have given the lock back."""
    patience_ms = 4 * world.plan.lease.validity_ms + 10_000
    until = world.now + patience_ms
    while any(client.at_work for client in world.clients):
        if world.now >= until:
            world.history.broken.append("L9: an operation does not end in a healthy world")
            return
        world.run(events=_EVENTS_MAX, until=world.now + patience_ms / 40)


def _see_who_wins(world: World) -> None:
    """L9: in a healthy world a waiter wins in time, whoever died holding the lock."""
    if world.random() < 0.4:
        _die_holding(world)
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


def _die_holding(world: World) -> None:
    """Let a client win, and kill it at once: its record is all that is left of it."""
    world.history.quiet_at = world.now
    victim = world.add_observer()
    victim.start("victim", victim.operate("acquire", victim.session.acquire(None)))
    _run_until_won(world)
    victim.kill()
    if world.trace is not None:
        world.say("world", f"kills {victim.name}")
    if world.history.won_at is None:
        world.history.broken.append("L9: nobody won the lock in a healthy world")
    world.history.won_at = None


def _run_until_won(world: World) -> None:
    until = world.now + patience_ms(world.plan)
    while world.history.won_at is None and world.now < until:
        world.run(events=1, until=until)


def patience_ms(plan: Plan) -> float:
    """Return how long L9 allows.

    Validity, drift and grace by the waiter's clock, which may itself be behind the holder's by as
    much as clocks differ; two polls; and the requests of an acquisition.
    """
    lease = plan.lease
    clocks_ms = 2 * OFFSET_MS[plan.clocks]
    requests_ms = _ROUND_TRIPS * 2 * _HEALED_LATENCY_MS
    spread_ms = (lease.validity_ms + 1_000) * 0.01
    waiting_ms = lease.validity_ms + lease.drift_ms + lease.grace_ms + clocks_ms + spread_ms
    return waiting_ms + 2 * plan.poll.most_ms + requests_ms
