"""The operations of one lock client, without I/O.

An operation is a generator: it yields a request to the store or a pause, is sent the reply, and
returns its result. `Lock`, `AsyncLock` and the simulator run the same generators and differ only in
how they wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass

from tidelock.core.clock import Clock, Now
from tidelock.core.errors import InvariantBroken
from tidelock.core.ids import IdSource
from tidelock.core.retry import Backoff
from tidelock.lock import events as e
from tidelock.lock.backoff import ReacquireHistory, WaitHistory
from tidelock.lock.lease import Lease
from tidelock.lock.machine import step
from tidelock.lock.state import LockClientState, Phase, Standing, standing
from tidelock.storage.contract import PutReply

POLL = Backoff(first_ms=10, max_ms=1_000, factor=1.6)
"""Pauses between polls of a held lock: 5-10 ms at first, 0.5-1 s in the long run."""


@dataclass(frozen=True, slots=True)
class SessionPause:
    """Wait before the next request. May be cut short when the operation is cancelled."""

    duration_ms: float


SessionRequest = e.Request | SessionPause
SessionReply = e.ReadReply | PutReply | None
Operation = Generator[SessionRequest, SessionReply, e.Result]
Notification = e.Count | e.Audit | e.NotifyLost


class LockSession:
    """The state of one client, and the operations on it.

    `notify` is called with counts, audit entries and the loss of the lock, in the thread that
    caused them. Only one operation may run at a time; `tick` and `owner_gone` may be called at any
    time.
    """

    def __init__(
        self,
        lease: Lease,
        *,
        clock: Clock,
        ids: IdSource,
        notify: Callable[[Notification], None],
        poll: Backoff = POLL,
    ) -> None:
        """Generate an owner id; acquires nothing."""
        self._clock = clock
        self._ids = ids
        self._notify = notify
        self._poll = poll
        self._mutex = threading.Lock()
        self._reacquired = ReacquireHistory()
        self.state = LockClientState(owner=ids.uuid(), lease=lease)

    @property
    def owner(self) -> str:
        """The owner id of this client in the lock record."""
        return self.state.owner

    @property
    def lease(self) -> Lease:
        """The lease terms of the lock."""
        return self.state.lease

    def standing(self) -> Standing:
        """Return what the owner may conclude now. Never blocks."""
        return standing(self.state, self._clock.now())

    def attempt(self) -> Operation:
        return (yield from self._operate(e.Acquire))

    def acquire(
        self, timeout_ms: float | None, *, should_stop: Callable[[], bool] = lambda: False
    ) -> Operation:
        """Try until granted, or until `timeout_ms` is over (None: no limit).

        Returns at once if waiting cannot help: the record is unreadable, or `should_stop` returns
        True.
        """
        began_ms = self._clock.now().monotonic_ms
        yield from self._yield_to_others(timeout_ms)
        waiting = WaitHistory(self._poll)
        while True:
            sent_ms = self._clock.now().monotonic_ms
            result = yield from self._operate(e.Acquire)
            if isinstance(result, e.Granted):
                self._reacquired = self._reacquired.granted(self._clock.now(), sent_ms)
            if not isinstance(result, e.NotAcquired) or (
                result.reason is e.NotAcquiredReason.UNREADABLE
            ):
                return result
            self._reacquired = ReacquireHistory()
            if should_stop():
                return result
            waiting = waiting.after(result)
            now = self._clock.now()
            pause_ms = waiting.pause_ms(result, self.lease, now, self._ids.jitter())
            if timeout_ms is not None:
                left_ms = began_ms + timeout_ms - now.monotonic_ms
                if left_ms <= 0:
                    return result
                pause_ms = min(pause_ms, left_ms)
            yield SessionPause(pause_ms)

    def renew(self) -> Operation:
        return (yield from self._operate(e.Renew))

    def release(self) -> Operation:
        result = yield from self._operate(e.Release)
        self._reacquired = self._reacquired.released(self._clock.now())
        return result

    def close(self) -> Operation:
        """Release the lock if it is held, look for a ghost, and close."""
        if self.state.phase is Phase.HOLDING:
            yield from self._operate(e.Release)
        return (yield from self._operate(e.Close))

    def tick(self) -> None:
        """P29: declare the lock lost if its deadline has passed, even if a request is stalled."""
        self._handle(self._step(e.Tick(self._clock.now())))

    def owner_gone(self, cause: str) -> None:
        """L10: declare the lock lost, because its owner is gone."""
        if self.state.phase in (Phase.HOLDING, Phase.RENEWING, Phase.RECHECKING):
            self._handle(self._step(e.OwnerGone(self._clock.now(), cause)))

    def abandon(self) -> None:
        """Abandon the running operation: its request may land, its reply will not be received."""
        self._handle(self._step(e.Abandon(self._clock.now())))

    def _yield_to_others(
        self, timeout_ms: float | None
    ) -> Generator[SessionRequest, SessionReply, None]:
        """P32: pause after many acquisitions in a row, so that others can acquire."""
        pause_ms = self._reacquired.pause_ms(self._clock.now(), self._ids.jitter())
        if timeout_ms is not None:
            pause_ms = min(pause_ms, timeout_ms)
        if pause_ms > 0:
            self._reacquired = ReacquireHistory()
            yield SessionPause(pause_ms)

    def _operate(self, event: Callable[[Now], e.Event]) -> Operation:
        effects = self._step(event(self._clock.now()))
        while True:
            request, result = self._handle(effects)
            if result is not None:
                return result
            if request is None:
                raise InvariantBroken(f"no request and no result while {self.state.phase}")
            if isinstance(request, e.ReadRecord) and request.after_ms:
                yield SessionPause(request.after_ms)
            reply = yield request
            is_write = isinstance(request, e.WriteRecord | e.WriteCounter)
            done = e.WriteDone if is_write else e.ReadDone
            effects = self._step(done(self._clock.now(), reply))  # type: ignore[arg-type]

    def _step(self, event: e.Event) -> tuple[e.Effect, ...]:
        # Held for the step, not for the request: `tick` must not wait for a stalled store.
        with self._mutex:
            self.state, effects = step(self.state, event)
        return effects

    def _handle(self, effects: tuple[e.Effect, ...]) -> tuple[e.Request | None, e.Result | None]:
        request: e.Request | None = None
        result: e.Result | None = None
        for effect in effects:
            match effect:
                case e.OperationDone(done):
                    result = done
                case e.Count() | e.Audit() | e.NotifyLost():
                    self._notify(effect)
                case _:
                    request = effect
        return request, result
