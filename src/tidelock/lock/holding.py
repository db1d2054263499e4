"""The part that all lock clients share: thread binding, heartbeat, loss callbacks, close at exit.

The storage lock (`client`) and the providers over a lock service (`providers.leased`) derive from
`LockHolding`. They differ in how a holding is acquired, renewed and released.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from tidelock.core.clock import Clock
from tidelock.core.errors import (
    HoldingLost,
    InvalidInput,
    OutcomeUnknown,
    TidelockError,
    Unavailable,
)
from tidelock.core.system import SystemClock
from tidelock.core.telemetry import Metrics
from tidelock.core.threads import start_thread
from tidelock.lock.events import Result
from tidelock.lock.heartbeat import Renewable, Renewals, shared_renewals
from tidelock.lock.lease import RenewalSchedule, RenewalTerms
from tidelock.lock.state import Standing

logger = logging.getLogger(__name__)

LostCallback = Callable[[str], None]

LOSS_CALLBACK_WAIT_S = 5.0
"""How long a holder that checks its lock waits for a loss callback that does not return."""


@dataclass(slots=True)
class _Call:
    callback: LostCallback
    returned: threading.Event = field(default_factory=threading.Event)
    thread_id: int | None = None


class LossCallbacks:
    """Callbacks for the loss of a lock. Each is called once, in its own thread.

    A callback needs its own thread because it may release the lock, and the release would wait for
    the thread that runs the callback.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: list[LostCallback] = []
        self._calls: list[_Call] = []

    def add(self, callback: LostCallback) -> None:
        """Call `callback` on the next loss."""
        with self._mutex:
            self._waiting.append(callback)

    def notify(self, cause: str) -> None:
        """Start the callbacks that have not been called yet; does not wait for them."""
        # Under the mutex: several threads may notice the loss, and each callback is called once.
        with self._mutex:
            calls = [_Call(callback) for callback in self._waiting]
            self._waiting.clear()
            self._calls.extend(calls)
        for call in calls:
            start_thread("tidelock-lost", self._runner(call, cause))

    def notify_and_wait(self, cause: str) -> None:
        """Start the callbacks that have not been called yet, and wait until all have returned.

        A callback that calls this itself does not wait. The wait for one callback ends after
        `LOSS_CALLBACK_WAIT_S`.
        """
        self.notify(cause)
        with self._mutex:
            calls = list(self._calls)
        if any(call.thread_id == threading.get_ident() for call in calls):
            return
        for call in calls:
            if not call.returned.wait(LOSS_CALLBACK_WAIT_S):
                logger.warning("a callback for a lost lock has not returned; not waiting for it")
                return

    def _runner(self, call: _Call, cause: str) -> Callable[[], None]:
        def run() -> None:
            call.thread_id = threading.get_ident()
            try:
                call.callback(cause)
            except Exception:
                # A failing callback must not affect the others.
                logger.exception("a callback for a lost lock failed")
            finally:
                with self._mutex:
                    self._calls.remove(call)
                call.returned.set()

        return run


class LockHolding(Renewable):
    """Base of a lock client: its holding, its loss callbacks and its end."""

    def __init__(
        self,
        *,
        bind_thread: bool,
        clock: Clock | None,
        metrics: Metrics | None,
        renewals: Renewals | None,
    ) -> None:
        self.metrics = metrics or Metrics()
        self._bind_thread = bind_thread
        self._clock = clock or SystemClock()
        # Not `or`: a `Renewals` without entries is falsy.
        self._renewals = shared_renewals if renewals is None else renewals
        self._operation = threading.Lock()
        self._losses = LossCallbacks()
        self._closing = threading.Event()
        self._is_thread_alive: Callable[[], bool] = _always
        self._held_since_ms = 0
        self._outage = ""
        self._pid = os.getpid()

    @property
    @abstractmethod
    def uri(self) -> str:
        """URI of the lock, for messages."""

    @property
    @abstractmethod
    def state(self) -> Standing:
        """HELD, UNSURE, LOST or FREE, as of now. Never blocks."""

    @property
    @abstractmethod
    def is_bound(self) -> bool:
        """Whether this client may have left something in the backend."""

    @abstractmethod
    def _renew(self) -> Result | None:
        """Send one renewal, if the lock is held and its owner still exists."""

    @abstractmethod
    def _lose(self, cause: str) -> Result | None:
        """Declare the lock lost."""

    @abstractmethod
    def _loss_cause(self) -> str:
        """Return why the lock was lost."""

    @abstractmethod
    def _shutdown(self) -> None:
        """Release the lock and close the client."""

    def renew(self) -> Result | None:
        """Extend the lease by one validity; called by the heartbeat."""
        if self._is_forked:
            return None
        with self._operation:
            try:
                return self._renew()
            except Exception as error:
                # The heartbeat has no caller to raise to; the loss notifies the owner.
                logger.exception("renewing %s failed", self.uri)
                self.metrics.count("lock.provider.fatal.error")
                return self._lose(f"the renewal failed: {error}")

    @property
    def is_held(self) -> bool:
        """Whether the lock is held as of now: HELD or UNSURE."""
        return self.state in (Standing.HELD, Standing.UNSURE)

    @property
    def outage(self) -> str:
        """Why the last acquire got no answer from the backend; empty if it answered."""
        return self._outage

    def on_lost(self, callback: LostCallback) -> None:
        """Call `callback` with the cause, once, in its own thread, when the lock is lost."""
        self._losses.add(callback)
        if self.state is Standing.LOST:
            self._losses.notify(self._loss_cause())

    def _report_lost(self, cause: str) -> None:
        self.metrics.count("lock.lost")
        logger.error("lock %s is lost: %s", self.uri, cause)

    @property
    def _is_forked(self) -> bool:
        """Whether this process is a fork: its mutexes may be held by threads that do not exist."""
        return os.getpid() != self._pid

    def _raise_not_held(self) -> NoReturn:
        """L7: raise `HoldingLost`, after the loss callbacks have returned."""
        if self._is_forked:
            cause = "this process was forked from the holder"
        else:
            self.check_deadline()
            lost = self.state is Standing.LOST
            if lost:
                self._losses.notify_and_wait(self._loss_cause())
            cause = self._loss_cause() if lost else "it was not acquired"
        raise HoldingLost(
            f"lock {self.uri} is not held: {cause}",
            hint="stop the work that the lock protects; acquire the lock and start over",
        )

    def _owner_gone(self) -> str:
        """L10: return why the owner can no longer use this holding; empty while it can."""
        return "" if self._is_thread_alive() else "the thread that acquired the lock has ended"

    def _bind_current_thread(self) -> None:
        owner = threading.current_thread()
        self._is_thread_alive = owner.is_alive if self._bind_thread else _always

    def _start_heartbeat(
        self, terms: RenewalTerms, sent_monotonic_ms: int, undo: Callable[[], object]
    ) -> None:
        """Start the renewals of a grant sent at `sent_monotonic_ms` (P27).

        Raises: `Unavailable` if that is impossible, after `undo` has released the grant.
        """
        try:
            self._renewals.add(self, RenewalSchedule.started(terms, sent_monotonic_ms))
        except RuntimeError as error:
            self.metrics.count("lock.provider.fatal.error")
            undo()
            raise Unavailable(
                f"{self.uri}: the heartbeat thread could not be started: {error}",
                hint="the lock was released; reduce the number of threads and try again",
            ) from error

    def _held_ms(self) -> int:
        return self._clock.now().monotonic_ms - self._held_since_ms

    def _count_release(self, held_ms: int) -> None:
        self.metrics.count("lock.release.success")
        self.metrics.time("lock.acquire.duration", held_ms)

    def _check_not_forked(self) -> None:
        if self._is_forked:
            raise InvalidInput(
                f"lock {self.uri} was created before this process was forked",
                hint="create the lock in the process that uses it",
            )

    def _check_open(self) -> None:
        if self._closing.is_set():
            self.metrics.count("lock.provider.fatal.error")
            raise self._closed_error()

    def _closed_error(self) -> InvalidInput:
        return InvalidInput(f"lock {self.uri} is closed", hint="create a new one")

    def _lost_error(self, cause: str) -> HoldingLost:
        return HoldingLost(
            f"lock {self.uri} was lost before it was released: {cause}",
            hint="writes since then may conflict with another writer; check them by their token",
        )

    def _unknown_release_error(self, cause: str, hint: str) -> OutcomeUnknown:
        return OutcomeUnknown(f"lock {self.uri} may not have been released: {cause}", hint=hint)


def _always() -> bool:
    return True


_live: weakref.WeakSet[LockHolding] = weakref.WeakSet()


def close_at_exit(holding: LockHolding) -> None:
    """Close `holding` when the interpreter exits, as Hudi's shutdown hook does."""
    _live.add(holding)


@atexit.register
def _close_all() -> None:
    for holding in list(_live):
        if holding.is_bound:
            try:
                holding._shutdown()  # noqa: SLF001 - the same file
            except TidelockError as error:
                logger.warning("%s", error)
