"""One simulated client: the production session and lock objects, run as a lock client runs them.

Requests, replies and conclusions of the session are recorded here for the checkers. The script of
the client is in `owner`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from testkit.sim.clocks import VirtualClock
from testkit.sim.history import (
    DeadlineCheck,
    Holding,
    LeftoverRecord,
    OperationEnd,
    Overlap,
    Sent,
    StandingCheck,
)
from testkit.sim.plan import Fault
from testkit.sim.process import MUTEX, Process, Thread, ThreadBody
from tidelock.core.errors import InvariantBroken
from tidelock.core.outcome import Landed
from tidelock.core.system import SeededIds
from tidelock.lock import events as e
from tidelock.lock.record import LockRecord
from tidelock.lock.record_store import LockObjects
from tidelock.lock.session import LockSession, Notification, Operation, SessionPause
from tidelock.lock.state import Phase, Standing

if TYPE_CHECKING:
    from testkit.sim.world import World

_BELIEVING = (Standing.HELD, Standing.UNSURE)
_HELD_PHASES = (Phase.HOLDING, Phase.RENEWING, Phase.RECHECKING)
_GONE = "the owning thread has ended"


class OperationTrace:
    """Observations about the current operation."""

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
        """Start an operation; `uncertain`: an older write may still land."""
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
    """A process with a session. Its threads run the generators of `owner`."""

    def __init__(self, world: World, index: int, clock: VirtualClock) -> None:
        """Create the session; start no thread."""
        super().__init__(world, index, clock)
        self.session = LockSession(
            world.plan.lease,
            clock=clock,
            ids=SeededIds(world.rng.getrandbits(48)),
            notify=self._on_notification,
            poll=world.plan.poll,
        )
        self.objects = LockObjects(world.store)
        self.holding: Holding | None = None
        self.owner_alive = True
        self._owner_waits = False
        self.closed = False
        self.thread: Thread | None = None
        self.seen = OperationTrace("", uncertain=False)
        self._sent: dict[str, Sent] = {}

    @property
    def name(self) -> str:
        """The client in the trace: its number and the start of its owner id."""
        return f"client {self.index} ({self.session.owner[:4]})"

    @property
    def phase(self) -> str:
        """The phase of the session."""
        return self.session.state.phase.name

    @property
    def at_work(self) -> bool:
        """Whether the script of the owner is still running."""
        running = self.thread is not None and not self.thread.ended
        return self.alive and self.owner_alive and running

    @property
    def ready(self) -> bool:
        """Whether the client can start an acquire."""
        return self.alive and self.owner_alive and not self.closed and not self.at_work

    # --- requests --------------------------------------------------------------------------------

    def perform(self, request: Any) -> Any:
        """Perform a request of the session at the store."""
        if type(request) is e.WriteRecord:
            store = self.world.store
            store.author = self.session.owner
            store.record = request.record
            store.sent = self._sent[request.record.nonce]
        return self.objects.perform(request)

    def on_request(self, request: Any) -> None:
        """Record a request of the session."""
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
            held.notified if held else False,
            held.ended_by if held else "",
        )
        self._sent[record.nonce] = sent
        self.world.history.sent.append(sent)
        if record.expired and getattr(request.mode, "version", "") in seen.ghost_versions:
            seen.ghosts_returned += 1

    def on_reply(self, request: Any, answer: Any) -> None:
        """Record a reply to the session. The end of the owner is detected first."""
        if not self.owner_alive:
            self.session.owner_gone(_GONE)
        seen, kind = self.seen, type(answer)
        if type(request) is e.WriteRecord:
            if kind is Landed:
                self._landed(request.record.nonce)
            else:
                seen.uncertain = True
        elif kind is e.Unreadable:
            # A counter damaged after it was written costs an attempt, but does not end the wait.
            seen.unreadable = self.session.state.phase is not Phase.CONFIRMING
        elif kind is e.ReadFailed:
            seen.uncertain = True
        elif kind is e.Found and not self._concerns_holding() and self._is_ghost(answer.record):
            seen.ghost_versions.append(answer.version)

    def _concerns_holding(self) -> bool:
        """Return whether the current operation concerns a held record."""
        return self.seen.name in ("renew", "release")

    def _is_ghost(self, record: LockRecord) -> bool:
        """Return whether `record`, which is not held, is live and written by this client."""
        terms = self.world.plan.lease
        dead_ms = record.valid_until_epoch_ms + terms.drift_ms + terms.grace_ms
        live = not record.expired and self.clock.now().wall_epoch_ms <= dead_ms
        return live and record.nonce.startswith(self.session.owner)

    def _landed(self, nonce: str) -> None:
        """Move the deadline of the holding, if the reply came before it."""
        self.seen.proven.append(nonce)
        sent, held = self._sent[nonce], self.holding
        if held is None or held.notified or self.left_ms(held) <= 0:
            return
        if not sent.record.expired and sent.record.token == held.token:
            held.extended_at, held.extended_monotonic_ms = sent.at, sent.monotonic_ms

    def left_ms(self, held: Holding) -> int:
        """Return the time left of `held` by P9, computed independently of the production code."""
        validity_ms = self.world.plan.lease.validity_ms
        deadline_ms = held.extended_monotonic_ms + validity_ms - max(200, validity_ms // 20)
        return deadline_ms - self.clock.now().monotonic_ms

    # --- operations ------------------------------------------------------------------------------

    def operate(self, name: str, operation: Operation) -> Generator[Any, Any, e.Result | None]:
        """Run one operation of the session under the mutex. None: the thread was interrupted."""
        if name != "renew":
            self._owner_waits = True
        yield MUTEX
        if self.holding is not None and name in ("release", "close"):
            self.holding.ended_by = self.holding.ended_by or name
        self.seen = OperationTrace(name, uncertain=self.in_flight > 0)
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
        """F10: an exception may interrupt the thread while it waits for a reply."""
        answer: Any = None
        while True:
            try:
                request = operation.send(answer)
            except StopIteration as stop:
                result: e.Result = stop.value
                return result
            if self.world.random() < 0.04:
                self.world.fire(Fault.INTERRUPTED, self.phase)
                self.send_without_reply(request)
                yield SessionPause(self.world.random() * self.world.plan.timeout_ms)
                operation.close()
                self.session.abandon()
                return None
            answer = yield request

    def _end(self, name: str, result: e.Result) -> None:
        world, history, seen = self.world, self.world.history, self.seen
        held = self.holding
        if isinstance(result, e.Granted) and (held is None or held.token != result.token):
            held = self._granted(result.token)
        end = OperationEnd(
            at=world.now,
            client=self.index,
            owner=self.session.owner,
            operation=name,
            result=result,
            token=held.token if held else 0,
            grant_seq=held.grant_seq if held else -1,
            left_ms=self.left_ms(held) if held else 0,
            ended_by=held.ended_by if held else "",
            proven=tuple(seen.proven),
            writes=seen.writes,
            requests=seen.requests,
            ghosts_found=len(seen.ghost_versions),
            ghosts_returned=seen.ghosts_returned,
            last_seq=len(history.landings) - 1,
            waited_on_unreadable=seen.waited_on_unreadable,
        )
        history.operations.append(end)
        if world.trace is not None:
            world.log(self.name, f"{name} ends: {result}")
        record = world.store.current
        if name == "close" and not seen.uncertain and record and self._is_ghost(record):
            history.leftovers.append(LeftoverRecord(world.now, self.index, record))

    def _granted(self, token: int) -> Holding:
        """Start a holding, and record other clients that believe they hold the lock."""
        world, history = self.world, self.world.history
        sent = next((s for s in reversed(self._sent.values()) if s.record.token == token), None)
        if sent is None:
            raise InvariantBroken(f"L1: token {token} was granted without a write")
        landing = history.landed_by_nonce.get(sent.record.nonce)
        seq = landing.seq if landing else -1
        if self.holding is not None:
            self.holding.ended_by = self.holding.ended_by or "lost"
        held = Holding(
            self.index, self.session.owner, token, seq, world.now, sent.at, sent.monotonic_ms
        )
        self.holding = held
        history.holdings.append(held)
        self.world.record_believers(self.index, seq, but=self)
        world.won()
        return held

    def record_belief(self, granted: int, granted_seq: int) -> None:
        """Record whether this client believes it holds the lock when `granted` gets it."""
        held = self.holding
        if self.alive and held is not None and self.session.standing() in _BELIEVING:
            overlap = Overlap(self.world.now, granted, granted_seq, self.index, held.grant_seq)
            self.world.history.overlaps.append(overlap)

    def _on_notification(self, note: Notification) -> None:
        if isinstance(note, e.NotifyLost):
            if self.holding is not None:
                self.holding.notified = True
            if self.world.trace is not None:
                self.world.log(self.name, f"is notified: lost, {note.cause}")

    # --- standing --------------------------------------------------------------------------------

    def check_standing(self, held: Holding) -> bool:
        """Return whether the session reports HELD or UNSURE, and record it."""
        standing = self.session.standing()
        if standing not in _BELIEVING:
            return False
        self.world.history.standing_checks.append(
            StandingCheck(
                self.world.now,
                self.index,
                held.token,
                standing,
                self.left_ms(held),
                held.extended_at,
                self.clock.rate,
                held.notified,
            )
        )
        return True

    def watch(self, held: Holding, _: None) -> None:
        """P29: check the deadline after it has passed, even if a request is stalled."""
        if not self.alive or held.ended_by or held.notified:
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
        world.history.deadline_checks.append(
            DeadlineCheck(world.now, self.index, held.token, held.notified, standing)
        )

    def end_owner_thread(self) -> bool:
        """F10: end the owning thread while it holds the lock; return whether that was possible."""
        held = self.holding
        if self._owner_waits:
            return False
        holds = self.session.state.phase in _HELD_PHASES
        if held is None or held.ended_by or not holds or not self.owner_alive:
            return False
        self.owner_alive = False
        held.ended_by = "death"
        return True

    def leave(self) -> ThreadBody:
        """Close the session; sometimes close it again, and release without a holding."""
        self.closed = True
        yield from self.operate("close", self.session.close())
        if self.world.random() < 0.1:
            yield from self.operate("close again", self.session.close())
            yield from self.operate("release", self.session.release())
