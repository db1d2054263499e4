"""What a client does with its lock: the script of its owning thread, and its heartbeat.

`Heartbeat` is production code; here is what a driver adds to it: sleeping until it is due, and
stopping it when the holding ends.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tidelock.lock import events as e
from tidelock.lock.heartbeat import Heartbeat
from tidelock.lock.session import Operation, Pause
from tidelock.testing.sim.client import Client
from tidelock.testing.sim.history import Holding
from tidelock.testing.sim.plan import Fault
from tidelock.testing.sim.process import Body
from tidelock.testing.sim.registers import Bases, Touch


def script(client: Client) -> Body:
    """Acquire, work, release, again and again; close at last, and start again as another owner."""
    world = client.world
    random, validity_ms = world.random, world.plan.lease.validity_ms
    while not world.healed:
        yield Pause(random() * random() * validity_ms)
        result = yield from acquire(client)
        if isinstance(result, e.Granted) and client.holding is not None:
            yield from _hold(client, client.holding)
            if not client.owner_alive:
                return
        elif random() < 0.1:
            # P26: releasing what is not held changes nothing.
            yield from client.operate("release", client.session.release())
        if random() < world.plan.quit_share and not world.healed:
            yield from client.leave()
            world.restart(client)
            return


def waiter(client: Client) -> Body:
    """Wait for the lock in a healthy world, and give it back."""
    result = yield from client.operate("acquire", client.session.acquire(None))
    if isinstance(result, e.Granted):
        yield from client.operate("release", client.session.release())


def acquire(client: Client) -> Generator[Any, Any, e.Result | None]:
    """Try, wait for a while, or wait for ever."""
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
    """Pass on an acquisition; end it between two looks when the world heals."""
    answer: Any = None
    while True:
        try:
            asked = operation.send(answer)
        except StopIteration as ended:
            result: e.Result = ended.value
            return result
        if type(asked) is Pause:
            client.seen.waited_on_unreadable |= client.seen.unreadable
            if client.world.healed:
                operation.close()
                return e.NotAcquired(e.Why.HELD)
        answer = yield asked


def _hold(client: Client, held: Holding) -> Body:
    """Keep the lock alive, work, and give it back."""
    world = client.world
    random = world.random
    client.start("heartbeat", _beat(client, held))
    if Fault.BEAT_TWICE in world.plan.faults and random() < 0.4:
        world.fire(Fault.BEAT_TWICE, client.phase)
        client.start("second heartbeat", _beat(client, held), random() * 50)
    client.watch(held, None)
    if random() < 0.1:
        # L12: asking again yields the same token, unless the holding is over by now.
        yield Pause(random() * 10)
        if not client.owner_alive:
            return
        yield from client.operate("acquire", client.session.attempt())
        if client.holding is not held or held.told:
            held.ceased = held.ceased or "lost"
            if client.holding is not held and client.holding is not None:
                yield from _hold(client, client.holding)
            client.holding = None
            return
    yield from _work(client, held)
    if client.owner_alive:
        yield from client.operate("release", client.session.release())


def _work(client: Client, held: Holding) -> Body:
    """Add one to both registers, a few times, asking before each effect."""
    world = client.world
    random, validity_ms = world.random, world.plan.lease.validity_ms
    for _ in range(1 + int(random() * world.plan.rounds)):
        if not _may_go_on(client, held):
            return
        bases: Bases = yield Touch(held.token)
        if bases.fenced is None or not _may_go_on(client, held):
            return
        yield Touch(held.token, bases)
        if world.healed:
            return
        if random() < 0.5:
            yield Pause(random() * random() * validity_ms)


def _may_go_on(client: Client, held: Holding) -> bool:
    return client.owner_alive and client.stands(held)


def _beat(client: Client, held: Holding) -> Body:
    """Renew when the production schedule says so."""
    world, session, clock = client.world, client.session, client.clock
    beat: Heartbeat | None = Heartbeat.started(session.lease, clock.now().monotonic_ms)
    late = Fault.BEAT_LATE in world.plan.faults
    stray = False
    while beat is not None and not stray:
        pause_ms = max(0.0, beat.due_monotonic_ms - clock.now().monotonic_ms)
        if late and world.random() < 0.1:
            world.fire(Fault.BEAT_LATE, client.phase)
            pause_ms += world.random() * session.lease.validity_ms
        yield Pause(pause_ms)
        if held.ceased and client.owner_alive:
            if not (late and world.random() < 0.3):
                return
            # A driver that failed to stop this heartbeat: one stray renewal and one stray look.
            world.fire(Fault.BEAT_STALE, client.phase)
            session.tick()
            stray = True
        sent_ms = clock.now().monotonic_ms
        result = yield from client.operate("renew", session.renew())
        beat = beat.after(
            result or e.Doubtful("interrupted"),
            sent_monotonic_ms=sent_ms,
            now_monotonic_ms=clock.now().monotonic_ms,
        )
