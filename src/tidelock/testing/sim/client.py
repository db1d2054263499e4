"""One client of ours: a session, the thread that owns the lock, its heartbeat, and its watch.

The session, its operations, the heartbeat's schedule and the objects are production code. What is
simulated is what a driver does: run one operation at a time, wait, and look at the deadline.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tidelock.base.errors import InvariantBroken
from tidelock.base.ids import SeededIds
from tidelock.base.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock.heartbeat import Heartbeat
from tidelock.lock.objects import LockObjects
from tidelock.lock.session import Note, Operation, Pause, Session
from tidelock.lock.state import Phase, Standing
from tidelock.testing.sim.clocks import VirtualClock
from tidelock.testing.sim.history import Ended, Holding, LeftBehind, Overlap, Sent, Stood, Watched
from tidelock.testing.sim.plan import Fault
from tidelock.testing.sim.process import MUTEX, Body, Process, Thread
from tidelock.testing.sim.registers import Bases, Touch

if TYPE_CHECKING:
    from tidelock.testing.sim.world import World

_BELIEVING = (Standing.HELD, Standing.UNSURE)


class Client(Process):
    """A process that wants the lock again and again."""

    def __init__(self, world: World, index: int, clock: VirtualClock) -> None:
        """Draw an owner; want nothing yet."""
        super().__init__(world, index, clock)
        self.session = Session(
            world.plan.lease,
            clock=clock,
            ids=SeededIds(world.rng.getrandbits(48)),
            note=self._hear,
            poll=world.plan.poll,
        )
        self.objects = LockObjects(world.store)
        self.holding: Holding | None = None
        self.owner_alive = True
        self.idle = True
        self._sent: dict[str, Sent] = {}
        self._operation = ""
        self._proven: list[str] = []
        self._writes = 0
        self._requests = 0
        self._ghost_versions: list[str] = []
        self._ghosts_returned = 0
        self._unreadable = False
        self._waited_on_unreadable = False
        self._read_failed = False

    @property
    def name(self) -> str:
        """The client, for the trace: its number and the beginning of its owner."""
        return f"client {self.index} ({self.session.owner[:4]})"

    @property
    def phase(self) -> str:
        """Where the session stands."""
        return self.session.state.phase.name

    # --- the store's side ------------------------------------------------------------------------

    def perform(self, request: Any) -> Any:
        """Carry out a request of the session."""
        if type(request) is e.WriteRecord:
            store = self.world.store
            store.author = self.session.owner
            store.record = request.record
            store.sent = self._sent[request.record.nonce]
        return self.objects.perform(request)

    def asking(self, thread: Thread, request: Any) -> None:
        """Take note of what the session sends."""
        del thread
        self._requests += 1
        if type(request) is not e.WriteRecord:
            return
        self._writes += 1
        held = self.holding
        now = self.clock.now()
        record = request.record
        sent = Sent(
            self.world.now,
            self.index,
            self._operation,
            record,
            request.mode,
            now.monotonic_ms,
            now.wall_epoch_ms,
            held.token if held else 0,
            held.extended_monotonic_ms if held else 0,
            held.told if held else False,
            held.ceased if held else "",
        )
        self._sent[record.nonce] = sent
        self.world.history.sent.append(sent)
        if record.expired and getattr(request.mode, "version", "") in self._ghost_versions:
            self._ghosts_returned += 1

    def answered(self, request: Any, answer: Any) -> None:
        """Take note of what the session hears."""
        kind = type(answer)
        if type(request) is e.WriteRecord:
            if kind is Landed:
                self._landed(request.record.nonce)
        elif kind is e.Unreadable:
            self._unreadable = True
        elif kind is e.ReadFailed:
            self._read_failed = True
        elif kind is e.Found and self._operation in ("acquire", "close"):
            record = answer.record
            terms = self.world.plan.lease
            dead = record.valid_until_epoch_ms + terms.drift_ms + terms.grace_ms
            live = not record.expired and self.clock.now().wall_epoch_ms <= dead
            if live and record.nonce.startswith(self.session.owner):
                self._ghost_versions.append(answer.version)

    def _landed(self, nonce: str) -> None:
        self._proven.append(nonce)
        sent, held = self._sent[nonce], self.holding
        if held is not None and not sent.record.expired and sent.record.token == held.token:
            held.extended_at, held.extended_monotonic_ms = sent.at, sent.monotonic_ms

    # --- operations ------------------------------------------------------------------------------

    def _operate(self, name: str, operation: Operation) -> Generator[Any, Any, e.Result]:
        """Run one operation of the session, alone, and take note of its end."""
        yield MUTEX
        if name != "renew" and self.holding is not None and name != "acquire":
            self.holding.ceased = self.holding.ceased or name
        self._operation, self._proven, self._ghost_versions = name, [], []
        self._writes = self._requests = self._ghosts_returned = 0
        self._unreadable = self._waited_on_unreadable = self._read_failed = False
        result = yield from operation
        self._end(name, result)
        self.free_mutex()
        return result

    def _acquiring(self, operation: Operation) -> Operation:
        """Pass on an acquisition; stop it between two looks when the world heals."""
        answer: Any = None
        while True:
            try:
                asked = operation.send(answer)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
            if type(asked) is Pause:
                self._waited_on_unreadable |= self._unreadable
                if self.world.healed:
                    operation.close()
                    return e.NotAcquired(e.Why.HELD)
            answer = yield asked

    def _end(self, name: str, result: e.Result) -> None:
        world, history, held = self.world, self.world.history, self.holding
        if name == "acquire" and isinstance(result, e.Granted):
            if held is None or held.token != result.token or held.ceased:
                self._granted(result.token)
        terms = world.plan.lease
        held = self.holding
        term_ms = terms.validity_ms - max(200, terms.validity_ms // 20)
        ended = Ended(
            at=world.now,
            client=self.index,
            owner=self.session.owner,
            operation=name,
            result=result,
            monotonic_ms=self.clock.now().monotonic_ms,
            token=held.token if held else 0,
            grant_seq=held.grant_seq if held else -1,
            deadline_monotonic_ms=held.extended_monotonic_ms + term_ms if held else None,
            proven=tuple(self._proven),
            writes=self._writes,
            requests=self._requests,
            ghosts_met=len(self._ghost_versions),
            ghosts_returned=self._ghosts_returned,
            last_seq=len(history.landings) - 1,
            waited_on_unreadable=self._waited_on_unreadable,
        )
        history.ended.append(ended)
        if world.trace is not None:
            world.say(self.name, f"{name} ends: {result}")
        if name == "release":
            self.holding = None
        elif name == "close" and not self._read_failed and self._nothing_under_way():
            record = world.store.current
            if record is not None and not record.expired:
                if record.nonce.startswith(self.session.owner):
                    history.left_behind.append(LeftBehind(world.now, self.index, record))

    def _nothing_under_way(self) -> bool:
        """Tell whether every write of ours has landed or never will."""
        return self.world.network.under_way.get(self.index, 0) == 0

    def _granted(self, token: int) -> None:
        """Begin a holding, and look for others who believe in theirs."""
        world, history = self.world, self.world.history
        sent = next(
            (s for s in reversed(self._sent.values()) if s.record.token == token), None
        )
        if sent is None:
            raise InvariantBroken(f"L1: token {token} was granted without a write")
        landing = history.landed_by_nonce.get(sent.record.nonce)
        seq = landing.seq if landing else -1
        held = Holding(
            self.index, self.session.owner, token, seq, world.now, sent.at, sent.monotonic_ms
        )
        self.holding = held
        history.holdings.append(held)
        for other in world.clients:
            if other is not self and other.alive and other.holding is not None:
                if other.session.standing() in _BELIEVING:
                    believed = other.holding.grant_seq
                    history.overlaps.append(
                        Overlap(world.now, self.index, seq, other.index, believed)
                    )
        world.won()

    def _hear(self, note: Note) -> None:
        if isinstance(note, e.TellLost):
            if self.holding is not None:
                self.holding.told = True
            if self.world.trace is not None:
                self.world.say(self.name, f"is told: lost, {note.cause}")

    # --- the owner -------------------------------------------------------------------------------

    def script(self) -> Body:
        """Acquire, work, release, again and again; close at last."""
        world = self.world
        random, validity_ms = world.random, world.plan.lease.validity_ms
        while not world.healed:
            yield Pause(random() * random() * validity_ms)
            result = yield from self.acquire()
            if isinstance(result, e.Granted) and self.holding is not None:
                yield from self._hold(self.holding)
                if not self.owner_alive:
                    return
            elif random() < 0.1:
                # P26: releasing what is not held changes nothing.
                yield from self._operate("release", self.session.release())
            if random() < 0.05 and not world.healed:
                break
        if world.healed:
            self.idle = True
            return
        yield from self._operate("close", self.session.close())
        world.restart(self)

    def acquire(self, *, forever: bool = False) -> Generator[Any, Any, e.Result]:
        """Try, wait for a while, or wait for ever."""
        random = self.world.random
        style = 1.0 if forever else random()
        if style < 0.3:
            operation = self.session.attempt()
        elif style < 0.6:
            operation = self.session.acquire(random() * 2 * self.world.plan.lease.validity_ms)
        else:
            operation = self.session.acquire(None)
        if not forever:
            operation = self._acquiring(operation)
        self.idle = False
        result = yield from self._operate("acquire", operation)
        self.idle = True
        return result

    def _hold(self, held: Holding) -> Body:
        """Keep the lock alive, work, and give it back."""
        world = self.world
        random = world.random
        self.idle = False
        self.start("heartbeat", self._beat(held))
        if Fault.BEAT_TWICE in world.plan.faults and random() < 0.4:
            world.fire(Fault.BEAT_TWICE, self.phase)
            self.start("second heartbeat", self._beat(held), random() * 50)
        self._watch(held, None)
        if random() < 0.1:
            # L12: asking again yields the same token.
            yield from self._operate("acquire", self.session.attempt())
        yield from self._work(held)
        if not self.owner_alive:
            return
        yield from self._operate("release", self.session.release())
        self.idle = True

    def _work(self, held: Holding) -> Body:
        """Add one to both registers, a few times, asking before each effect."""
        world = self.world
        random, validity_ms = world.random, world.plan.lease.validity_ms
        for _ in range(1 + int(random() * world.plan.rounds)):
            if not self._stands(held):
                return
            bases: Bases = yield Touch(held.token)
            if bases.fenced is None or not self.owner_alive or not self._stands(held):
                return
            yield Touch(held.token, bases)
            if not self.owner_alive or world.healed:
                return
            if random() < 0.5:
                yield Pause(random() * random() * validity_ms)
            if not self.owner_alive:
                return

    def _stands(self, held: Holding) -> bool:
        """Ask the session where its owner stands."""
        standing = self.session.standing()
        if standing not in _BELIEVING:
            return False
        self.world.history.stood.append(
            Stood(
                self.world.now,
                self.index,
                held.token,
                standing,
                self.clock.now().monotonic_ms,
                held.extended_monotonic_ms,
                held.extended_at,
                self.clock.rate,
                held.told,
                held.ceased,
            )
        )
        return True

    # --- the heartbeat and the watch -------------------------------------------------------------

    def _beat(self, held: Holding) -> Body:
        """Renew when the production schedule says so. A dead owner is noticed here."""
        world, session = self.world, self.session
        beat: Heartbeat | None = Heartbeat.started(session.lease, held.extended_monotonic_ms)
        late = Fault.BEAT_LATE in world.plan.faults
        stray = False
        while beat is not None and not stray:
            pause_ms = max(0.0, beat.due_monotonic_ms - self.clock.now().monotonic_ms)
            if late and world.random() < 0.1:
                world.fire(Fault.BEAT_LATE, self.phase)
                pause_ms += world.random() * session.lease.validity_ms
            yield Pause(pause_ms)
            if not self.owner_alive:
                session.owner_gone("the owning thread has ended")
            if held.ceased:
                if not (late and world.random() < 0.3):
                    return
                # The driver failed to stop this heartbeat: one stray renewal.
                world.fire(Fault.BEAT_STALE, self.phase)
                stray = True
            sent_ms = self.clock.now().monotonic_ms
            result = yield from self._operate("renew", session.renew())
            beat = beat.after(
                result,
                sent_monotonic_ms=sent_ms,
                now_monotonic_ms=self.clock.now().monotonic_ms,
            )

    def _watch(self, held: Holding, _: None) -> None:
        """P29: look at the deadline when it has passed, whatever else is stalled."""
        if not self.alive or held.ceased or held.told:
            return
        world = self.world
        if self.paused_until > world.now:
            world.at(self.paused_until + world.random() * 2, self._watch, held, None)
            return
        self.session.tick()
        terms = self.session.lease
        deadline = held.extended_monotonic_ms + terms.validity_ms
        deadline -= max(200, terms.validity_ms // 20)
        left_ms = deadline - self.clock.now().monotonic_ms
        if left_ms > 0:
            world.at(world.now + self.clock.true_ms(left_ms) + 1, self._watch, held, None)
            return
        standing = self.session.standing()
        world.history.watched.append(
            Watched(world.now, self.index, held.token, held.told, standing)
        )

    def lose_owner(self) -> bool:
        """F10: the owning thread ends while it holds; tell whether it could."""
        held = self.holding
        busy = self.session.state.phase not in (Phase.HOLDING, Phase.RENEWING, Phase.RECHECKING)
        if held is None or held.ceased or busy or not self.owner_alive:
            return False
        self.owner_alive = False
        held.ceased = "death"
        return True
