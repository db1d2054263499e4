"""One client of ours: the production session and objects, run as a driver would run them.

What the session sends, hears and concludes is witnessed here, for the checkers. What the client
does with its lock is in `owner`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tidelock.base.errors import InvariantBroken
from tidelock.base.ids import SeededIds
from tidelock.base.outcome import Landed
from tidelock.lock import events as e
from tidelock.lock.objects import LockObjects
from tidelock.lock.record import Record
from tidelock.lock.session import Note, Operation, Pause, Session
from tidelock.lock.state import Phase, Standing
from tidelock.testing.sim.clocks import VirtualClock
from tidelock.testing.sim.history import Ended, Holding, LeftBehind, Overlap, Sent, Stood, Watched
from tidelock.testing.sim.plan import Fault
from tidelock.testing.sim.process import MUTEX, Body, Process, Thread

if TYPE_CHECKING:
    from tidelock.testing.sim.world import World

_BELIEVING = (Standing.HELD, Standing.UNSURE)
_KEPT = (Phase.HOLDING, Phase.RENEWING, Phase.RECHECKING)
_GONE = "the owning thread has ended"


class Witnessed:
    """What was seen of the operation under way."""

    __slots__ = (
        "ghost_versions",
        "ghosts_returned",
        "name",
        "proven",
        "requests",
        "uncertain",
        "unreadable",
        "waited_on_unreadable",
        "writes",
    )

    def __init__(self, name: str, *, uncertain: bool) -> None:
        """See the beginning of an operation; `uncertain`: an older write may still land."""
        self.name = name
        self.uncertain = uncertain
        self.proven: list[str] = []
        self.ghost_versions: list[str] = []
        self.ghosts_returned = 0
        self.requests = 0
        self.writes = 0
        self.unreadable = False
        self.waited_on_unreadable = False


class Client(Process):
    """A process with a session. Its threads are generators of `owner`."""

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
        self._owner_waits = False
        self.closed = False
        self.thread: Thread | None = None
        self.seen = Witnessed("", uncertain=False)
        self._sent: dict[str, Sent] = {}

    @property
    def name(self) -> str:
        """The client, for the trace: its number and the beginning of its owner."""
        return f"client {self.index} ({self.session.owner[:4]})"

    @property
    def phase(self) -> str:
        """Where the session stands."""
        return self.session.state.phase.name

    @property
    def at_work(self) -> bool:
        """Tell whether the owner's script has not come to its end."""
        running = self.thread is not None and not self.thread.ended
        return self.alive and self.owner_alive and running

    @property
    def ready(self) -> bool:
        """Tell whether the client could be asked to acquire."""
        return self.alive and self.owner_alive and not self.closed and not self.at_work

    # --- requests --------------------------------------------------------------------------------

    def perform(self, request: Any) -> Any:
        """Carry out a request of the session at the store."""
        if type(request) is e.WriteRecord:
            store = self.world.store
            store.author = self.session.owner
            store.record = request.record
            store.sent = self._sent[request.record.nonce]
        return self.objects.perform(request)

    def asking(self, request: Any) -> None:
        """Take note of what the session sends."""
        seen = self.seen
        seen.requests += 1
        if type(request) is not e.WriteRecord:
            return
        seen.writes += 1
        held = self.holding
        now = self.clock.now()
        record = request.record
        sent = Sent(
            self.world.now,
            self.index,
            seen.name,
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
        if record.expired and getattr(request.mode, "version", "") in seen.ghost_versions:
            seen.ghosts_returned += 1

    def answered(self, request: Any, answer: Any) -> None:
        """Take note of what the session hears. A dead owner is noticed before anything else."""
        if not self.owner_alive:
            self.session.owner_gone(_GONE)
        seen, kind = self.seen, type(answer)
        if type(request) is e.WriteRecord:
            if kind is Landed:
                self._landed(request.record.nonce)
            else:
                seen.uncertain = True
        elif kind is e.Unreadable:
            # A counter spoilt after it was written costs another attempt, not the wait.
            seen.unreadable = self.session.state.phase is not Phase.CONFIRMING
        elif kind is e.ReadFailed:
            seen.uncertain = True
        elif kind is e.Found and not self._keeps() and self._is_ghost(answer.record):
            seen.ghost_versions.append(answer.version)

    def _keeps(self) -> bool:
        """Tell whether the operation under way is about a record that is held."""
        return self.seen.name in ("renew", "release")

    def _is_ghost(self, record: Record) -> bool:
        """Tell whether `record` is live and one of ours; the caller knows that it is not held."""
        terms = self.world.plan.lease
        dead_ms = record.valid_until_epoch_ms + terms.drift_ms + terms.grace_ms
        live = not record.expired and self.clock.now().wall_epoch_ms <= dead_ms
        return live and record.nonce.startswith(self.session.owner)

    def _landed(self, nonce: str) -> None:
        """Move the deadline of the holding, if the answer came before it."""
        self.seen.proven.append(nonce)
        sent, held = self._sent[nonce], self.holding
        if held is None or held.told or self.left_ms(held) <= 0:
            return
        if not sent.record.expired and sent.record.token == held.token:
            held.extended_at, held.extended_monotonic_ms = sent.at, sent.monotonic_ms

    def left_ms(self, held: Holding) -> int:
        """Return how long `held` still lasts by P9, written out again: the product is not asked."""
        validity_ms = self.world.plan.lease.validity_ms
        deadline_ms = held.extended_monotonic_ms + validity_ms - max(200, validity_ms // 20)
        return deadline_ms - self.clock.now().monotonic_ms

    # --- operations ------------------------------------------------------------------------------

    def operate(self, name: str, operation: Operation) -> Generator[Any, Any, e.Result | None]:
        """Run one operation of the session, alone. None: the thread was interrupted in it."""
        if name != "renew":
            self._owner_waits = True
        yield MUTEX
        if self.holding is not None and name in ("release", "close"):
            self.holding.ceased = self.holding.ceased or name
        self.seen = Witnessed(name, uncertain=self.flying > 0)
        if not self.owner_alive:
            self.session.owner_gone(_GONE)
        if Fault.INTERRUPTED in self.world.plan.faults and not self.world.healed:
            result = yield from self._interruptible(operation)
        else:
            result = yield from operation
        if result is not None:
            self._end(name, result)
        if name in ("release", "close"):
            self.holding = None
        if name != "renew":
            self._owner_waits = False
        self.free_mutex()
        return result

    def _interruptible(self, operation: Operation) -> Generator[Any, Any, e.Result | None]:
        """F10: an exception may strike the thread while it waits for an answer."""
        answer: Any = None
        while True:
            try:
                asked = operation.send(answer)
            except StopIteration as ended:
                result: e.Result = ended.value
                return result
            if self.world.random() < 0.04:
                self.world.fire(Fault.INTERRUPTED, self.phase)
                self.send_unheard(asked)
                yield Pause(self.world.random() * self.world.plan.timeout_ms)
                operation.close()
                self.session.abandon()
                return None
            answer = yield asked

    def _end(self, name: str, result: e.Result) -> None:
        world, history, seen = self.world, self.world.history, self.seen
        held = self.holding
        if isinstance(result, e.Granted) and (held is None or held.token != result.token):
            held = self._granted(result.token)
        ended = Ended(
            at=world.now,
            client=self.index,
            owner=self.session.owner,
            operation=name,
            result=result,
            token=held.token if held else 0,
            grant_seq=held.grant_seq if held else -1,
            left_ms=self.left_ms(held) if held else 0,
            ceased=held.ceased if held else "",
            proven=tuple(seen.proven),
            writes=seen.writes,
            requests=seen.requests,
            ghosts_met=len(seen.ghost_versions),
            ghosts_returned=seen.ghosts_returned,
            last_seq=len(history.landings) - 1,
            waited_on_unreadable=seen.waited_on_unreadable,
        )
        history.ended.append(ended)
        if world.trace is not None:
            world.say(self.name, f"{name} ends: {result}")
        record = world.store.current
        if name == "close" and not seen.uncertain and record and self._is_ghost(record):
            history.left_behind.append(LeftBehind(world.now, self.index, record))

    def _granted(self, token: int) -> Holding:
        """Begin a holding, and look for others who believe in theirs."""
        world, history = self.world, self.world.history
        sent = next((s for s in reversed(self._sent.values()) if s.record.token == token), None)
        if sent is None:
            raise InvariantBroken(f"L1: token {token} was granted without a write")
        landing = history.landed_by_nonce.get(sent.record.nonce)
        seq = landing.seq if landing else -1
        if self.holding is not None:
            self.holding.ceased = self.holding.ceased or "lost"
        held = Holding(
            self.index, self.session.owner, token, seq, world.now, sent.at, sent.monotonic_ms
        )
        self.holding = held
        history.holdings.append(held)
        self.world.note_believers(self.index, seq, but=self)
        world.won()
        return held

    def note_belief(self, granted: int, granted_seq: int) -> None:
        """Take note if this client believes while `granted` is given the lock."""
        held = self.holding
        if self.alive and held is not None and self.session.standing() in _BELIEVING:
            overlap = Overlap(self.world.now, granted, granted_seq, self.index, held.grant_seq)
            self.world.history.overlaps.append(overlap)

    def _hear(self, note: Note) -> None:
        if isinstance(note, e.TellLost):
            if self.holding is not None:
                self.holding.told = True
            if self.world.trace is not None:
                self.world.say(self.name, f"is told: lost, {note.cause}")

    # --- standing --------------------------------------------------------------------------------

    def stands(self, held: Holding) -> bool:
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
                self.left_ms(held),
                held.extended_at,
                self.clock.rate,
                held.told,
            )
        )
        return True

    def watch(self, held: Holding, _: None) -> None:
        """P29: look at the deadline when it has passed, whatever else is stalled."""
        if not self.alive or held.ceased or held.told:
            return
        world = self.world
        if self.paused_until > world.now:
            world.at(self.paused_until + world.random() * 2, self.watch, held)
            return
        self.session.tick()
        left_ms = self.left_ms(held)
        if left_ms > 0:
            world.at(world.now + self.clock.true_ms(left_ms) + 1, self.watch, held)
            return
        standing = self.session.standing()
        world.history.watched.append(
            Watched(world.now, self.index, held.token, held.told, standing)
        )

    def lose_owner(self) -> bool:
        """F10: the owning thread ends while it works; tell whether it could."""
        held = self.holding
        if self._owner_waits:
            return False
        kept = self.session.state.phase in _KEPT
        if held is None or held.ceased or not kept or not self.owner_alive:
            return False
        self.owner_alive = False
        held.ceased = "death"
        return True

    def leave(self) -> Body:
        """Close the session; now and then again, and release what is not there."""
        self.closed = True
        yield from self.operate("close", self.session.close())
        if self.world.random() < 0.1:
            yield from self.operate("close again", self.session.close())
            yield from self.operate("release", self.session.release())
