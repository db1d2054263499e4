"""A provider over any backend: it waits, takes, keeps and gives back."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from contextlib import AbstractContextManager, nullcontext, suppress

from tidelock.base.clock import Clock, Now
from tidelock.base.errors import (
    HoldingLost,
    InvalidInput,
    OutcomeUnknown,
    TidelockError,
    Unavailable,
    Unsupported,
)
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.limits import RELEASE_TRIES
from tidelock.base.metrics import Metrics
from tidelock.base.retry import Backoff
from tidelock.lock.provider import Features, Holder
from tidelock.lock.renewal import Renewals
from tidelock.lock.turns import shared_turns
from tidelock.lockproviders.backend import (
    Attempt,
    Backend,
    Freed,
    Gone,
    Grant,
    Held,
    ReleaseReply,
    Taken,
    TakeReply,
    Unclear,
)
from tidelock.lockproviders.kept import KeptLease
from tidelock.lockproviders.pace import Pace, Patience

logger = logging.getLogger(__name__)

_RELEASE_PAUSE = Backoff(first_ms=20, most_ms=1_000)


class LeasedProvider(KeptLease):
    """One client of one lock of a service.

    Guarantees:
      * `state` is HELD or UNSURE only while the lease has more than its margin left (L3).
      * A holder that loses the lock hears of it: `check` raises, `on_lost` is called (L7).
      * Nothing is renewed for a thread that has ended, after a release or a close (L10).
      * A grant whose answer was lost is undone before anything else is tried (L5).
    Does not guarantee:
      * more than the service does: docs/lock-providers.md says what that is for each of them.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        pace: Pace | None = None,
        bind_thread: bool = True,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        metrics: Metrics | None = None,
        renewals: Renewals | None = None,
    ) -> None:
        """Stand for the lock of `backend`; hold nothing, and connect to nothing yet."""
        super().__init__(
            backend, bind_thread=bind_thread, clock=clock, metrics=metrics, renewals=renewals
        )
        self._pace = pace or Pace()
        self._ids = ids or SystemIds()
        self._closing = threading.Event()
        self._outage = ""
        _live.add(self)

    def features(self) -> Features:
        """Return what the service can do."""
        return self._backend.features()

    @property
    def outage(self) -> str:
        """Why the last `try_lock` ended without any answer; empty when the service answered."""
        return self._outage

    def holder(self) -> Holder | None:
        """Ask the service who holds the lock; None when it is free."""
        self._check_usable()
        return self._backend.holder()

    def force_release(self) -> bool:
        """Free the lock, whoever holds it; return whether anybody did."""
        self._check_usable()
        if not self.features().force_release:
            raise Unsupported(f"{self.uri}: this lock cannot be released by force")
        return self._backend.break_lock()

    def try_lock(self, wait_ms: float) -> bool:
        """Try for up to `wait_ms`, at least once. No answer is a no, as in Hudi."""
        self._check_usable()
        if self.is_held:
            return True  # L12
        began_ms = self._clock.now().monotonic_ms
        # Where the service has no queue, the waiters of this process look one at a time.
        turn: AbstractContextManager[float | None] = nullcontext(wait_ms)
        if not self.features().fair_queue:
            turn = shared_turns.wait(self.uri, wait_ms, self._clock)
        with turn as left_ms, self._operation:
            self._check_usable()
            with self._mutex:
                self._lost_cause = ""
            granted = self._acquire(left_ms or 0)
            if granted is not None:
                self._keep(*granted)
        took_ms = self._clock.now().monotonic_ms - began_ms
        self.metrics.time("lock.request.latency", took_ms)
        self.metrics.count("lock.acquire.failure" if granted is None else "lock.acquire.success")
        return granted is not None

    def unlock(self) -> None:
        """Give the lock back. Releasing what is not held changes nothing.

        Raises: `HoldingLost` if it was lost before; `OutcomeUnknown` if nobody can tell.
        """
        if os.getpid() != self._pid:
            return
        self._renewals.remove(self)
        with self._operation:
            self.notice()
            with self._mutex:
                grant, cause = self._grant, self._lost_cause
                self._grant, self._lost_cause = None, ""
            if not cause and grant is not None:
                self._give_back(grant)
        if cause:
            # Outside of the mutex: a callback may unlock, too.
            self._losses.have_heard(cause)
            raise self._was_lost(cause)

    def close(self) -> None:
        """Unlock if locked, and leave nothing behind; closing twice changes nothing."""
        if os.getpid() != self._pid or self._closing.is_set():
            return
        self._closing.set()
        try:
            self.unlock()
        except TidelockError as error:
            logger.warning("%s", error)
        with self._operation:
            with suppress(TidelockError):
                self._settle()
            self._backend.close()

    @property
    def is_bound(self) -> bool:
        """Tell whether something of this client may be in the service."""
        return self._grant is not None or bool(self._doubtful)

    def _acquire(self, wait_ms: float) -> tuple[Grant, Now] | None:
        patience = Patience(self._pace, self._clock, self._ids, wait_ms)
        attempt = Attempt(self._ids.uuid())
        queued = False
        self._outage = ""
        try:
            while True:
                sent = self._clock.now()
                reply = self._look(attempt)
                match reply:
                    case Taken(grant) if not self._is_late(sent):
                        queued = False
                        return grant, sent
                    case Held():
                        queued = reply.queued
                        pause_ms = patience.after_look(reply)
                    case Taken() | Unclear():
                        self._doubtful.append(attempt)
                        attempt, queued = Attempt(self._ids.uuid()), False
                        pause_ms = patience.after_doubt()
                    case _:
                        pause_ms = patience.after_failure(reply)
                self._outage = _outage_of(reply)
                if pause_ms is None:
                    return None
                self._pause(reply, pause_ms)
                if self._closing.is_set():
                    return None
        finally:
            if queued:
                self._doubtful.append(attempt)
            if self._doubtful:
                with suppress(TidelockError):
                    self._settle()

    def _look(self, attempt: Attempt) -> TakeReply | Unavailable:
        """L5: undo what may have landed of earlier attempts, then try once."""
        try:
            self._settle()
            return self._backend.take(attempt)
        except Unavailable as error:
            logger.info("%s: %s", self.uri, error)
            self.metrics.count("lock.state.unknown")
            return error
        except TidelockError:
            raise
        except BaseException:
            # An interrupt, or a bug: the request may have landed, and its answer is lost.
            self._doubtful.append(attempt)
            raise

    def _pause(self, reply: TakeReply | Unavailable, pause_ms: float) -> None:
        if isinstance(reply, Held) and reply.changed is not None:
            reply.changed.wait(pause_ms / 1000)
        else:
            self._clock.sleep_ms(pause_ms)

    def _is_late(self, sent: Now) -> bool:
        deadline_ms = self._backend.terms.deadline_monotonic_ms(sent.monotonic_ms)
        return deadline_ms is not None and self._clock.now().monotonic_ms >= deadline_ms

    def _give_back(self, grant: Grant) -> None:
        held_ms = self._clock.now().monotonic_ms - self._held_since_ms
        match self._release_surely(grant):
            case Freed():
                self.metrics.count("lock.release.success")
                self.metrics.time("lock.acquire.duration", held_ms)
            case Gone(cause):
                self.metrics.count("lock.release.failure")
                raise self._was_lost(cause)
            case Unclear(cause):
                self.metrics.count("lock.release.failure")
                self._doubtful.append(grant.attempt)
                self._backend.forsake(grant)
                raise OutcomeUnknown(
                    f"the lock {self.uri} may not have been released: {cause}",
                    hint="it expires by itself, and this client's next acquire looks for it",
                )

    def _release_surely(self, grant: Grant) -> ReleaseReply:
        unclear = ""
        for number in range(RELEASE_TRIES):
            try:
                reply = self._backend.release(grant)
            except TidelockError as error:
                reply = Unclear(str(error))
            match reply:
                case Gone() if unclear and not self._is_over(self._clock.now()):
                    # Until the deadline nobody else may have taken it: our own release landed.
                    return Freed()
                case Gone(cause) if unclear:
                    return Unclear(f"{unclear}; then: {cause}")
                case Unclear(cause):
                    unclear = cause
                    self._clock.sleep_ms(_RELEASE_PAUSE.delay_ms(number, self._ids.jitter()))
                case _:
                    return reply
        return Unclear(unclear)

    def _was_lost(self, cause: str) -> HoldingLost:
        return HoldingLost(
            f"the lock {self.uri} was lost before it was released: {cause}",
            hint="what was done since may have met another writer; check it by its token",
        )

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise InvalidInput(
                f"the lock {self.uri} was made before this process was forked",
                hint="make a lock in the process that uses it",
            )
        if self._closing.is_set():
            self.metrics.count("lock.provider.fatal.error")
            raise InvalidInput(f"the lock {self.uri} is closed", hint="make another one")


def _outage_of(reply: TakeReply | Unavailable) -> str:
    match reply:
        case Held():
            return ""
        case Unclear(cause):
            return cause
        case Taken():
            return "the answer came after the lease had run out"
        case _:
            return str(reply)


_live: weakref.WeakSet[LeasedProvider] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Leave no lock behind when the interpreter ends, as Hudi's shutdown hook does."""
    for provider in list(_live):
        if provider.is_bound:
            provider.close()
