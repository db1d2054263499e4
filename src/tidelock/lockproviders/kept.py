"""A holding of a leased lock: its state, its deadline, its renewals, and the news of its end.

The deadline is counted on the monotonic clock from the sending of the last request that the
service is known to have heard, minus a margin (L3), whatever the service itself counts by.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from tidelock.base.clock import Clock, Now, SystemClock
from tidelock.base.errors import HoldingLost, TidelockError, Unavailable
from tidelock.base.metrics import Metrics
from tidelock.lock import events as e
from tidelock.lock.heartbeat import Heartbeat
from tidelock.lock.holding import LossCallbacks, LostCallback, shared_renewals
from tidelock.lock.renewal import Renewals
from tidelock.lock.state import Standing
from tidelock.lockproviders.backend import Attempt, Backend, Gone, Grant, Kept, RenewReply, Unclear

logger = logging.getLogger(__name__)


class KeptLease:
    """What one client holds of one lock, if anything."""

    def __init__(
        self,
        backend: Backend,
        *,
        bind_thread: bool,
        clock: Clock | None,
        metrics: Metrics | None,
        renewals: Renewals | None,
    ) -> None:
        """Hold nothing."""
        self.metrics = metrics or Metrics()
        self._backend = backend
        self._bind_thread = bind_thread
        self._clock = clock or SystemClock()
        # One without holdings is false, and still the one to use.
        self._renewals = shared_renewals if renewals is None else renewals
        self._operation = threading.Lock()
        self._mutex = threading.Lock()
        self._grant: Grant | None = None
        self._deadline_ms: int | None = None
        self._unsure = False
        self._lost_cause = ""
        self._doubtful: list[Attempt] = []
        self._losses = LossCallbacks()
        self._is_thread_alive: Callable[[], bool] = _always
        self._held_since_ms = 0
        self._pid = os.getpid()

    @property
    def uri(self) -> str:
        """The lock, for messages."""
        return self._backend.uri

    @property
    def owner(self) -> str:
        """The name of this holding in the service; empty when nothing is held."""
        grant = self._grant
        return grant.attempt.id if grant else ""

    @property
    def state(self) -> Standing:
        """HELD, UNSURE, LOST or FREE, as of now. Never waits for anything."""
        with self._mutex:
            if self._lost_cause:
                return Standing.LOST
            if self._grant is None:
                return Standing.FREE
            if os.getpid() != self._pid or self._is_over(self._clock.now()):
                return Standing.LOST
            return Standing.UNSURE if self._unsure else Standing.HELD

    @property
    def is_held(self) -> bool:
        """Tell whether the lock is held as of now, surely or not."""
        return self.state in (Standing.HELD, Standing.UNSURE)

    def check(self) -> int:
        """Return the fencing token (0 without one), or raise `HoldingLost`.

        When it raises because the lock was lost, the callbacks of `on_lost` have returned.
        """
        grant = self._grant
        if grant is None or not self.is_held:
            if os.getpid() == self._pid:
                self._hear_of_loss()
            cause = self._lost_cause or ("it was never acquired" if not grant else "its time is up")
            raise HoldingLost(
                f"the lock {self.uri} is not held: {cause}",
                hint="stop what the lock protects; acquire again and start over",
            )
        return grant.token

    def on_lost(self, callback: LostCallback) -> None:
        """Call `callback` once with the cause, in a thread of its own, when the lock is lost."""
        self._losses.add(callback)
        if self.state is Standing.LOST:
            self._losses.tell(self._lost_cause or "the lease has run out")

    def renew(self) -> e.Result | None:
        """Extend the lease by one validity; the heartbeat calls this."""
        if os.getpid() != self._pid:
            # The mutex may be held by a thread that the fork did not copy.
            return None
        with self._operation:
            grant = self._grant
            if grant is None:
                return None
            # L10: asked last, when nothing stands between the answer and the request.
            cause = self._owner_gone()
            sent = self._clock.now()
            if not cause and self._is_over(sent):
                cause = "its lease ran out before it could be renewed"
            if cause:
                return self._lose(cause)
            try:
                reply = self._backend.renew(grant)
            except TidelockError as error:
                reply = Unclear(str(error))
            except Exception as error:
                # Nothing above this frame could tell the owner, so the loss has to.
                logger.exception("renewing %s failed", self.uri)
                self.metrics.count("lock.provider.fatal.error")
                return self._lose(f"the renewal failed: {error}")
            return self._renewed(reply, sent)

    def notice(self) -> None:
        """P29: look whether the deadline has passed, even while a request is stalled."""
        if self._grant is not None and self._is_over(self._clock.now()):
            self._lose("its lease has run out")

    def deadline_monotonic_ms(self) -> int | None:
        """Return when the holding ends unless it is renewed; None when it does not."""
        return self._deadline_ms if self._grant is not None else None

    def _keep(self, grant: Grant, sent: Now) -> None:
        """Start the heartbeat of a grant; a grant that cannot be kept is given back."""
        terms = self._backend.terms
        owner = threading.current_thread()
        with self._mutex:
            self._is_thread_alive = owner.is_alive if self._bind_thread else _always
            self._grant, self._unsure = grant, False
            self._deadline_ms = terms.deadline_monotonic_ms(sent.monotonic_ms)
            self._held_since_ms = sent.monotonic_ms
        try:
            self._renewals.add(self, Heartbeat.started(terms, sent.monotonic_ms))
        except RuntimeError as error:
            self.metrics.count("lock.provider.fatal.error")
            with self._mutex:
                self._grant = None
            self._doubtful.append(grant.attempt)
            self._settle()
            raise Unavailable(
                f"the heartbeat of {self.uri} could not be started: {error}",
                hint="the lock was released; free some threads and try again",
            ) from error

    def _renewed(self, reply: RenewReply, sent: Now) -> e.Result | None:
        match reply:
            case Kept(grant):
                with self._mutex:
                    in_time = self._grant is not None and not self._is_over(self._clock.now())
                    if in_time:
                        terms = self._backend.terms
                        self._grant, self._unsure = grant, False
                        self._deadline_ms = terms.deadline_monotonic_ms(sent.monotonic_ms)
                if in_time:
                    return e.Renewed()
                # L11: a renewal that lands after the deadline is given back, never believed.
                self._doubtful.append(grant.attempt)
                with suppress(TidelockError):
                    self._settle()
                return self._lose("its lease ran out while it was renewed")
            case Gone(cause):
                self.metrics.count("lock.acquired.others.error")
                return self._lose(cause)
            case Unclear(cause):
                self.metrics.count("lock.state.unknown")
                with self._mutex:
                    self._unsure = True
                return e.Doubtful(cause)

    def _settle(self) -> None:
        """Undo what earlier attempts may have left; raises while the service does not answer."""
        while self._doubtful:
            if self._backend.leave(self._doubtful[0]):
                self.metrics.count("lock.ghost")
            self._doubtful.pop(0)

    def _is_over(self, now: Now) -> bool:
        return self._deadline_ms is not None and now.monotonic_ms >= self._deadline_ms

    def _owner_gone(self) -> str:
        """L10: return why nobody can use this holding any more; empty while somebody can."""
        return "" if self._is_thread_alive() else "the thread that acquired the lock has ended"

    def _lose(self, cause: str) -> e.Result:
        with self._mutex:
            grant, self._grant = self._grant, None
            if grant is not None:
                self._lost_cause = cause
        if grant is not None:
            self.metrics.count("lock.lost")
            logger.error("lock %s is lost: %s", self.uri, cause)
            self._backend.forsake(grant)
            self._losses.tell(cause)
        return e.Lost(cause)

    def _hear_of_loss(self) -> None:
        """L7: notice a loss now, and go on when everybody who asked for it has heard of it."""
        self.notice()
        if self.state is Standing.LOST:
            self._losses.have_heard(self._lost_cause or "the lease has run out")


def _always() -> bool:
    return True
