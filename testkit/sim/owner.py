"""The script of a client: its owning thread and its heartbeat.

`RenewalSchedule` is production code; the heartbeat here sleeps until it is due, and stops when the
holding ends.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from testkit.sim.client import Client
from testkit.sim.history import Holding
from testkit.sim.plan import Fault
from testkit.sim.process import ThreadBody
from testkit.sim.registers import RegisterAccess, RegisterValues
from tidelock.lock import events as e
from tidelock.lock.lease import RenewalSchedule
from tidelock.lock.session import Operation, SessionPause


def script(client: Client) -> ThreadBody:
    """Acquire, work and release repeatedly; finally close, and restart as another owner."""
    world = client.world
    random, validity_ms = world.random, world.plan.lease.validity_ms
    while not world.healed:
        yield SessionPause(random() * random() * validity_ms)
        result = yield from acquire(client)
        if isinstance(result, e.Granted) and client.holding is not None:
            yield from _hold(client, client.holding)
            if not client.owner_alive:
                return
        elif random() < 0.1:
            # P26: a release without a holding changes nothing.
            yield from client.operate("release", client.session.release())
        if random() < world.plan.quit_share and not world.healed:
            yield from client.leave()
            world.restart(client)
            return


def waiter(client: Client) -> ThreadBody:
    """Wait for the lock without faults, and release it."""
    result = yield from client.operate("acquire", client.session.acquire(None))
    if isinstance(result, e.Granted):
        yield from client.operate("release", client.session.release())


def acquire(client: Client) -> Generator[Any, Any, e.Result | None]:
    """Acquire: try once, wait with a limit, or wait without one."""
    random, session = client.world.random, client.session
    style = random()
    if style < 0.3:
        operation = session.attempt()
    elif style < 0.6:
        operation = session.acquire(random() * 2 * session.lease.validity_ms)
    else:
        operation = session.acquire(None)
    return (yield from client.operate("acquire", _until_healed(client, operation)))


def _until_healed(client: Client, operation: Operation) -> Operation:
    """Forward an acquire; end it between two polls when faults end."""
    answer: Any = None
    while True:
        try:
            request = operation.send(answer)
        except StopIteration as stop:
            result: e.Result = stop.value
            return result
        if type(request) is SessionPause:
            client.seen.waited_on_unreadable |= client.seen.unreadable
            if client.world.healed:
                operation.close()
                return e.NotAcquired(e.NotAcquiredReason.HELD)
        answer = yield request


def _hold(client: Client, held: Holding) -> ThreadBody:
    """Renew the lock, work, and release it."""
    world = client.world
    random = world.random
    client.start("heartbeat", _heartbeat(client, held))
    if Fault.BEAT_TWICE in world.plan.faults and random() < 0.4:
        world.fire(Fault.BEAT_TWICE, client.phase)
        client.start("second heartbeat", _heartbeat(client, held), random() * 50)
    client.watch(held, None)
    if random() < 0.1:
        # L12: acquiring again returns the same token, unless the holding has ended.
        yield SessionPause(random() * 10)
        if not client.owner_alive:
            return
        yield from client.operate("acquire", client.session.attempt())
        if client.holding is not held or held.notified:
            held.ended_by = held.ended_by or "lost"
            if client.holding is not held and client.holding is not None:
                yield from _hold(client, client.holding)
            client.holding = None
            return
    yield from _work(client, held)
    if client.owner_alive:
        yield from client.operate("release", client.session.release())


def _work(client: Client, held: Holding) -> ThreadBody:
    """Increment both registers a few times, with a check before each write."""
    world = client.world
    random, validity_ms = world.random, world.plan.lease.validity_ms
    for _ in range(1 + int(random() * world.plan.rounds)):
        if not _may_go_on(client, held):
            return
        values: RegisterValues = yield RegisterAccess(held.token)
        if values.fenced is None or not _may_go_on(client, held):
            return
        yield RegisterAccess(held.token, values)
        if world.healed:
            return
        if random() < 0.5:
            yield SessionPause(random() * random() * validity_ms)


def _may_go_on(client: Client, held: Holding) -> bool:
    return client.owner_alive and client.check_standing(held)


def _heartbeat(client: Client, held: Holding) -> ThreadBody:
    """Renew by the production schedule."""
    world, session, clock = client.world, client.session, client.clock
    beat: RenewalSchedule | None = RenewalSchedule.started(session.lease, clock.now().monotonic_ms)
    late = Fault.BEAT_LATE in world.plan.faults
    stray = False
    while beat is not None and not stray:
        pause_ms = max(0.0, beat.due_monotonic_ms - clock.now().monotonic_ms)
        if late and world.random() < 0.1:
            world.fire(Fault.BEAT_LATE, client.phase)
            pause_ms += world.random() * session.lease.validity_ms
        yield SessionPause(pause_ms)
        if held.ended_by and client.owner_alive:
            if not (late and world.random() < 0.3):
                return
            # A client that failed to stop this heartbeat: one stray renewal and one stray check.
            world.fire(Fault.BEAT_STALE, client.phase)
            session.tick()
            stray = True
        sent_ms = clock.now().monotonic_ms
        result = yield from client.operate("renew", session.renew())
        beat = beat.after(
            result or e.RenewalUnknown("interrupted"),
            sent_monotonic_ms=sent_ms,
            now_monotonic_ms=clock.now().monotonic_ms,
        )
