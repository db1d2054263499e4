"""Lock providers over a backend: waiting, renewing, releasing and the notice of a loss.

`LeasedProvider` implements them once for all backends. `ConfiguredProvider` opens its backend from
settings; the providers by name (`registry`) derive from it.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress

from tidelock.core.clock import Clock, Now
from tidelock.core.errors import TidelockError, Unavailable, Unsupported
from tidelock.core.ids import IdSource
from tidelock.core.limits import RELEASE_TRIES
from tidelock.core.retry import Backoff
from tidelock.core.system import SystemIds
from tidelock.core.telemetry import Metrics
from tidelock.lock import events as e
from tidelock.lock.heartbeat import Renewals
from tidelock.lock.holding import LockHolding, close_at_exit
from tidelock.lock.local_queue import shared_queues
from tidelock.lock.provider import Features, Holder
from tidelock.lock.providers import backend as b
from tidelock.lock.providers.config import PollingPolicy, RetryState
from tidelock.lock.state import Standing

logger = logging.getLogger(__name__)

_RELEASE_BACKOFF = Backoff(first_ms=20, max_ms=1_000)


class LeasedProvider(LockHolding):
    """One client of one lock of a service.

    Guarantees:
      * `state` is HELD or UNSURE only while the lease has more than its margin left (L3).
      * A holder is notified of a loss: `check` raises, `on_lost` callbacks are called (L7).
      * Nothing is renewed for a thread that has ended, after a release or a close (L10).
      * A grant whose reply was lost is cancelled before the next attempt (L5).
    Does not guarantee:
      * anything that the service itself does not: see docs/lock-providers.md for each of them.
    """

    def __init__(
        self,
        backend: b.Backend,
        *,
        polling: PollingPolicy | None = None,
        bind_thread: bool = True,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        metrics: Metrics | None = None,
        renewals: Renewals | None = None,
    ) -> None:
        """Create a client for the lock of `backend`; makes no request."""
        super().__init__(bind_thread=bind_thread, clock=clock, metrics=metrics, renewals=renewals)
        self._backend = backend
        self._polling = polling or PollingPolicy.read({})
        self._ids = ids or SystemIds()
        self._mutex = threading.Lock()
        self._grant: b.BackendGrant | None = None
        self._deadline_ms: int | None = None
        self._unsure = False
        self._lost_cause = ""
        self._unresolved: list[b.Attempt] = []
        close_at_exit(self)

    @property
    def uri(self) -> str:
        return self._backend.uri

    @property
    def owner(self) -> str:
        """The id of this holding in the service; empty if nothing is held."""
        grant = self._grant
        return grant.attempt.id if grant else ""

    @property
    def state(self) -> Standing:
        with self._mutex:
            if self._lost_cause:
                return Standing.LOST
            if self._grant is None:
                return Standing.FREE
            if self._is_forked or self._is_expired(self._clock.now()):
                return Standing.LOST
            return Standing.UNSURE if self._unsure else Standing.HELD

    @property
    def is_bound(self) -> bool:
        return self._grant is not None or bool(self._unresolved)

    def features(self) -> Features:
        return self._backend.features

    def check(self) -> int:
        """Return the token, or raise `HoldingLost` after the `on_lost` callbacks have returned."""
        grant = self._grant
        if grant is None or not self.is_held:
            self._raise_not_held()
        return grant.token

    def holder(self) -> Holder | None:
        """Return who holds the lock, as the service reports it; None if it is free."""
        self._check_usable()
        return self._backend.holder()

    def force_release(self) -> bool:
        """Release the lock, whoever holds it; return whether it was held."""
        self._check_usable()
        if not self.features().force_release:
            raise Unsupported(
                f"{self.uri}: this lock cannot be released by force",
                hint="end its holder, or wait until the lock expires",
            )
        return self._backend.force_release()

    def try_lock(self, wait_ms: float) -> bool:
        """Try for up to `wait_ms`, at least once. As in Hudi, no answer counts as a refusal."""
        self._check_usable()
        if self.is_held:
            return True  # L12
        began_ms = self._clock.now().monotonic_ms
        # If the service has no queue, the waiters of this process poll it one at a time.
        turn: AbstractContextManager[float | None] = nullcontext(wait_ms)
        if not self.features().fair_queue:
            turn = shared_queues.wait(self.uri, wait_ms, self._clock)
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

    def _renew(self) -> e.Result | None:
        grant = self._grant
        if grant is None:
            return None
        # L10: checked last, so that nothing happens between the check and the request.
        cause = self._owner_gone()
        sent = self._clock.now()
        if not cause and self._is_expired(sent):
            cause = "the lease expired before it could be renewed"
        if cause:
            return self._lose(cause)
        try:
            reply = self._backend.renew(grant)
        except TidelockError as error:
            reply = b.BackendUnclear(str(error))
        return self._finish_renewal(reply, sent)

    def check_deadline(self) -> None:
        if self._grant is not None and self._is_expired(self._clock.now()):
            self._lose("the lease has expired")

    def deadline_monotonic_ms(self) -> int | None:
        """Return when the holding ends unless it is renewed; None if it has no end."""
        return self._deadline_ms if self._grant is not None else None

    def unlock(self) -> None:
        """Release the lock. Has no effect if it is not held.

        Raises: `HoldingLost` if it was lost before; `OutcomeUnknown` if the outcome is unknown.
        """
        if self._is_forked:
            return
        self._renewals.remove(self)
        with self._operation:
            self.check_deadline()
            with self._mutex:
                grant, cause = self._grant, self._lost_cause
                self._grant, self._lost_cause = None, ""
            if not cause and grant is not None:
                self._release_grant(grant)
        if cause:
            # Outside of the mutex: a callback may unlock, too.
            self._losses.notify_and_wait(cause)
            raise self._lost_error(cause)

    def close(self) -> None:
        """Unlock if locked, and close the backend. May be called twice."""
        self._shutdown()

    def _shutdown(self) -> None:
        if self._is_forked or self._closing.is_set():
            return
        self._closing.set()
        try:
            self.unlock()
        except TidelockError as error:
            logger.warning("%s", error)
        with self._operation:
            with suppress(TidelockError):
                self._cancel_unresolved()
            self._backend.close()

    def _acquire(self, wait_ms: float) -> tuple[b.BackendGrant, Now] | None:
        retry = RetryState(self._polling, self._clock, self._ids, wait_ms)
        attempt = b.Attempt(self._ids.uuid())
        queued = False
        self._outage = ""
        try:
            while True:
                sent = self._clock.now()
                reply = self._poll(attempt)
                match reply:
                    case b.BackendAcquired(grant) if not self._is_late(sent):
                        queued = False
                        return grant, sent
                    case b.HeldByOther():
                        queued = reply.queued
                        pause_ms = retry.after_refusal(reply)
                    case b.BackendAcquired() | b.BackendUnclear():
                        self._unresolved.append(attempt)
                        attempt, queued = b.Attempt(self._ids.uuid()), False
                        pause_ms = retry.after_unclear()
                    case _:
                        pause_ms = retry.after_failure(reply)
                self._outage = _outage_of(reply)
                if pause_ms is None:
                    return None
                self._pause(reply, pause_ms)
                if self._closing.is_set():
                    return None
        finally:
            if queued:
                self._unresolved.append(attempt)
            if self._unresolved:
                with suppress(TidelockError):
                    self._cancel_unresolved()

    def _poll(self, attempt: b.Attempt) -> b.AcquireReply | Unavailable:
        """L5: cancel what earlier attempts may have left, then try once."""
        try:
            self._cancel_unresolved()
            return self._backend.try_acquire(attempt)
        except Unavailable as error:
            logger.info("%s: %s", self.uri, error)
            self.metrics.count("lock.state.unknown")
            return error
        except TidelockError:
            raise
        except BaseException:
            # An interrupt, or a bug: the request may have landed, and its reply is lost.
            self._unresolved.append(attempt)
            raise

    def _cancel_unresolved(self) -> None:
        """Cancel attempts that may have left a grant; raises while the service does not answer."""
        while self._unresolved:
            if self._backend.cancel(self._unresolved[0]):
                self.metrics.count("lock.ghost")
            self._unresolved.pop(0)

    def _pause(self, reply: b.AcquireReply | Unavailable, pause_ms: float) -> None:
        if isinstance(reply, b.HeldByOther) and reply.changed is not None:
            reply.changed.wait(pause_ms / 1000)
        else:
            self._clock.sleep_ms(pause_ms)

    def _is_late(self, sent: Now) -> bool:
        deadline_ms = self._backend.terms.deadline_monotonic_ms(sent.monotonic_ms)
        return deadline_ms is not None and self._clock.now().monotonic_ms >= deadline_ms

    def _is_expired(self, now: Now) -> bool:
        return self._deadline_ms is not None and now.monotonic_ms >= self._deadline_ms

    def _keep(self, grant: b.BackendGrant, sent: Now) -> None:
        """Start the heartbeat of a grant; cancel the grant if the heartbeat cannot start."""
        terms = self._backend.terms
        with self._mutex:
            self._bind_current_thread()
            self._grant, self._unsure = grant, False
            self._deadline_ms = terms.deadline_monotonic_ms(sent.monotonic_ms)
            self._held_since_ms = sent.monotonic_ms

        def undo() -> None:
            with self._mutex:
                self._grant = None
            self._unresolved.append(grant.attempt)
            self._cancel_unresolved()

        self._start_heartbeat(terms, sent.monotonic_ms, undo)

    def _finish_renewal(self, reply: b.RenewReply, sent: Now) -> e.Result | None:
        match reply:
            case b.RenewedLease(grant):
                with self._mutex:
                    in_time = self._grant is not None and not self._is_expired(self._clock.now())
                    if in_time:
                        terms = self._backend.terms
                        self._grant, self._unsure = grant, False
                        self._deadline_ms = terms.deadline_monotonic_ms(sent.monotonic_ms)
                if in_time:
                    return e.Renewed()
                # L11: a renewal that lands after the deadline does not count; it is cancelled.
                self._unresolved.append(grant.attempt)
                with suppress(TidelockError):
                    self._cancel_unresolved()
                return self._lose("the lease expired while it was being renewed")
            case b.GrantLost(cause):
                self.metrics.count("lock.acquired.others.error")
                return self._lose(cause)
            case b.BackendUnclear(cause):
                self.metrics.count("lock.state.unknown")
                with self._mutex:
                    self._unsure = True
                return e.RenewalUnknown(cause)

    def _lose(self, cause: str) -> e.Result:
        with self._mutex:
            grant, self._grant = self._grant, None
            if grant is not None:
                self._lost_cause = cause
        if grant is not None:
            self._report_lost(cause)
            self._backend.abandon(grant)
            self._losses.notify(cause)
        return e.LockLost(cause)

    def _loss_cause(self) -> str:
        return self._lost_cause or "the lease has expired"

    def _release_grant(self, grant: b.BackendGrant) -> None:
        held_ms = self._held_ms()
        match self._release_with_retries(grant):
            case b.GrantReleased():
                self._count_release(held_ms)
            case b.GrantLost(cause):
                self.metrics.count("lock.release.failure")
                raise self._lost_error(cause)
            case b.BackendUnclear(cause):
                self.metrics.count("lock.release.failure")
                self._unresolved.append(grant.attempt)
                self._backend.abandon(grant)
                raise self._unknown_release_error(
                    cause, "the lease expires by itself, or this client's next acquire cancels it"
                )

    def _release_with_retries(self, grant: b.BackendGrant) -> b.ReleaseReply:
        unclear = ""
        for number in range(RELEASE_TRIES):
            try:
                reply = self._backend.release(grant)
            except TidelockError as error:
                reply = b.BackendUnclear(str(error))
            match reply:
                case b.GrantLost() if unclear and not self._is_expired(self._clock.now()):
                    # Until the deadline nobody else can have acquired it: our release landed.
                    return b.GrantReleased()
                case b.GrantLost(cause) if unclear:
                    return b.BackendUnclear(f"{unclear}; then: {cause}")
                case b.BackendUnclear(cause):
                    unclear = cause
                    self._clock.sleep_ms(_RELEASE_BACKOFF.delay_ms(number, self._ids.jitter()))
                case _:
                    return reply
        return b.BackendUnclear(unclear)

    def _check_usable(self) -> None:
        self._check_not_forked()
        self._check_open()


class ConfiguredProvider(LeasedProvider):
    """A provider that opens its backend from settings."""

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read and validate the settings; makes no request. Raises: `ConfigInvalid`."""
        backend = self.open_backend(settings)
        polling = PollingPolicy.read(settings)
        super().__init__(backend, polling=polling, metrics=metrics, bind_thread=bind_thread)

    @abstractmethod
    def open_backend(self, settings: Mapping[str, object]) -> b.Backend:
        """Return the backend that the settings describe; makes no request."""


def _outage_of(reply: b.AcquireReply | Unavailable) -> str:
    match reply:
        case b.HeldByOther():
            return ""
        case b.BackendUnclear(cause):
            return cause
        case b.BackendAcquired():
            return "the reply came after the lease had expired"
        case _:
            return str(reply)
