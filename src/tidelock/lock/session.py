"""One client's dealings with one lock, without I/O of its own.

An operation is a generator: it yields what must be done next (a request to the store, or a pause),
is sent the answer, and returns its result. The thread driver, the asyncio driver and the simulator
run these same generators; only how they wait differs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass

from tidelock.base.clock import Clock, Now
from tidelock.base.errors import InvariantBroken
from tidelock.base.ids import IdSource
from tidelock.base.retry import Backoff
from tidelock.lock import events as e
from tidelock.lock.lease import Lease
from tidelock.lock.machine import step
from tidelock.lock.state import Phase, Standing, State, standing
from tidelock.lock.waiting import Streak, Waiting
from tidelock.store.contract import PutReply

POLL = Backoff(first_ms=10, most_ms=1_000, factor=1.6)
"""Between looks at a held lock: 5-10 ms at first, half a second to a second in the long run."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before going on. A driver may end it early when the operation is cancelled."""

    duration_ms: float


Ask = e.Request | Pause
Answer = e.Reading | PutReply | None
Operation = Generator[Ask, Answer, e.Result]
Note = e.Count | e.Audit | e.TellLost


class Session:
    """The state of one client, and the operations on it.

    `note` hears counts, audit entries and the loss of the lock, in the thread that caused them.
    Only one operation may be under way at a time; `tick` and `owner_gone` may come at any time.
    """

    def __init__(
        self,
        lease: Lease,
        *,
        clock: Clock,
        ids: IdSource,
        note: Callable[[Note], None],
        poll: Backoff = POLL,
    ) -> None:
        """Draw an owner id; hold nothing."""
        self._clock = clock
        self._ids = ids
        self._note = note
        self._poll = poll
        self._mutex = threading.Lock()
        self._streak = Streak()
        self._state = State(owner=ids.uuid(), lease=lease)

    @property
    def owner(self) -> str:
        """The name of this client in the lock record."""
        return self._state.owner

    @property
    def lease(self) -> Lease:
        """The terms of the lock."""
        return self._state.lease

    @property
    def state(self) -> State:
        """The machine's state, for those who look and do not touch."""
        return self._state

    def standing(self) -> Standing:
        """Return what the owner may conclude now; never waits for anything."""
        return standing(self._state, self._clock.now())

    def attempt(self) -> Operation:
        """Try once to acquire."""
        return (yield from self._operate(e.Acquire))

    def acquire(
        self, timeout_ms: float | None, *, hopeless: Callable[[], bool] = lambda: False
    ) -> Operation:
        """Try until granted, or until `timeout_ms` is over (None: for ever).

        What no waiting mends ends it at once: an unreadable record, or a store of which `hopeless`
        says that it will always refuse.
        """
        began_ms = self._clock.now().monotonic_ms
        yield from self._step_back(timeout_ms)
        waiting = Waiting(self._poll)
        while True:
            asked_ms = self._clock.now().monotonic_ms
            result = yield from self._operate(e.Acquire)
            if isinstance(result, e.Granted):
                self._streak = self._streak.granted(self._clock.now(), asked_ms)
            if not isinstance(result, e.NotAcquired) or result.why is e.Why.UNREADABLE:
                return result
            self._streak = Streak()
            if hopeless():
                return result
            waiting = waiting.after(result)
            now = self._clock.now()
            pause_ms = waiting.pause_ms(result, self.lease, now, self._ids.jitter())
            if timeout_ms is not None:
                left_ms = began_ms + timeout_ms - now.monotonic_ms
                if left_ms <= 0:
                    return result
                pause_ms = min(pause_ms, left_ms)
            yield Pause(pause_ms)

    def renew(self) -> Operation:
        """Extend the lease."""
        return (yield from self._operate(e.Renew))

    def release(self) -> Operation:
        """Give the lock back."""
        result = yield from self._operate(e.Release)
        self._streak = self._streak.released(self._clock.now())
        return result

    def close(self) -> Operation:
        """Give the lock back if it is held, and leave nothing behind."""
        if self._state.phase is Phase.HOLDING:
            yield from self._operate(e.Release)
        return (yield from self._operate(e.Close))

    def tick(self) -> None:
        """P29: notice a deadline that has passed, even while a request is stalled."""
        self._tell(self._step(e.Tick(self._clock.now())))

    def owner_gone(self, cause: str) -> None:
        """L10: the owner cannot use the lock any more; stop for it."""
        if self._state.phase in (Phase.HOLDING, Phase.RENEWING, Phase.RECHECKING):
            self._tell(self._step(e.OwnerGone(self._clock.now(), cause)))

    def abandon(self) -> None:
        """Forget the operation under way: its request may land, its answer will not be heard."""
        self._tell(self._step(e.Abandon(self._clock.now())))

    def _step_back(self, timeout_ms: float | None) -> Generator[Ask, Answer, None]:
        """P32: let others look first, after having taken the lock many times in a row."""
        pause_ms = self._streak.pause_ms(self._clock.now(), self._ids.jitter())
        if timeout_ms is not None:
            pause_ms = min(pause_ms, timeout_ms)
        if pause_ms > 0:
            self._streak = Streak()
            yield Pause(pause_ms)

    def _operate(self, event: Callable[[Now], e.Event]) -> Operation:
        effects = self._step(event(self._clock.now()))
        while True:
            request, result = self._tell(effects)
            if result is not None:
                return result
            if request is None:
                raise InvariantBroken(f"nothing to do and no result while {self._state.phase}")
            if isinstance(request, e.ReadRecord) and request.after_ms:
                yield Pause(request.after_ms)
            answer = yield request
            now = self._clock.now()
            if isinstance(request, e.WriteRecord | e.WriteCounter):
                effects = self._step(e.WriteDone(now, answer))  # type: ignore[arg-type]
            else:
                effects = self._step(e.ReadDone(now, answer))  # type: ignore[arg-type]

    def _step(self, event: e.Event) -> tuple[e.Effect, ...]:
        # The mutex guards the step, never the request: `tick` must not wait for a stalled store.
        with self._mutex:
            self._state, effects = step(self._state, event)
        return effects

    def _tell(self, effects: tuple[e.Effect, ...]) -> tuple[e.Request | None, e.Result | None]:
        request: e.Request | None = None
        result: e.Result | None = None
        for effect in effects:
            match effect:
                case e.Done(ended):
                    result = ended
                case e.Count() | e.Audit() | e.TellLost():
                    self._note(effect)
                case _:
                    request = effect
        return request, result
