"""The storage lock: `Lock`, its base class, and `lock()`, which opens one.

`BaseLock` runs the operations of a `LockSession` and handles its notifications: metrics, audit
entries and loss callbacks. `Lock` adds the blocking methods, `async_client.AsyncLock` those for
asyncio.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from tidelock.core.clock import Clock
from tidelock.core.config import unknown_key, unknown_keys
from tidelock.core.errors import (
    AcquireTimeout,
    DataCorrupt,
    InvalidInput,
    StoreUnreachable,
    TidelockError,
)
from tidelock.core.ids import IdSource
from tidelock.core.limits import REQUEST_TIMEOUT_MS
from tidelock.core.system import SystemClock, SystemIds
from tidelock.core.telemetry import Metrics
from tidelock.lock import events as e
from tidelock.lock.alerts import Alert, AlertKind, Alerts
from tidelock.lock.audit import AuditLog
from tidelock.lock.config import RENEW_S, VALIDITY_S, LockSettings
from tidelock.lock.events import NotAcquiredReason as Reason
from tidelock.lock.heartbeat import Renewals
from tidelock.lock.holding import LockHolding, close_at_exit
from tidelock.lock.lease import Lease
from tidelock.lock.local_queue import shared_queues
from tidelock.lock.record import LockRecord
from tidelock.lock.record_store import LockObjects
from tidelock.lock.session import LockSession, Notification, Operation
from tidelock.lock.state import Phase, Standing
from tidelock.storage.config import REQUEST_TIMEOUT
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import open_store

if TYPE_CHECKING:
    from tidelock.lock.async_client import AsyncLock


logger = logging.getLogger(__name__)


class BaseLock(LockHolding):
    """A storage lock without the methods that wait: state, token, renewal, loss."""

    def __init__(
        self,
        store: ObjectStore,
        lease: Lease,
        *,
        wait_s: float | None = None,
        bind_thread: bool = True,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        metrics: Metrics | None = None,
        renewals: Renewals | None = None,
        probe: bool = True,
    ) -> None:
        """Create a client for the lock of the resource at the root of `store`; acquires nothing.

        `wait_s` is how long `with` waits (None: no limit). With `bind_thread` the lock is renewed
        only while the thread that acquired it is alive. With `probe` the store is tested once for
        conditional writes.
        """
        super().__init__(bind_thread=bind_thread, clock=clock, metrics=metrics, renewals=renewals)
        self.store = store
        self._wait_s = wait_s
        self._session = LockSession(
            lease, clock=self._clock, ids=ids or SystemIds(), notify=self._on_notification
        )
        self._objects = LockObjects(store, probe=probe)
        self._probe = probe
        self._audit = AuditLog(
            store, owner=self._session.owner, validity_ms=lease.validity_ms, clock=self._clock
        )
        close_at_exit(self)

    @property
    def uri(self) -> str:
        """URI of the lock object."""
        return self._objects.uri

    @property
    def lease(self) -> Lease:
        """The lease terms of this lock."""
        return self._session.lease

    @property
    def owner(self) -> str:
        """The owner id of this client in the lock record."""
        return self._session.owner

    @property
    def state(self) -> Standing:
        if self._is_forked:
            return Standing.LOST if self._session.state.grant else Standing.FREE
        return self._session.standing()

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier holding. Raises: `HoldingLost`."""
        grant = self._session.state.grant
        if grant is None or not self.is_held:
            self._raise_not_held()
        return grant.record.token

    def check(self) -> int:
        """Return the token if the lock is still held; raise `HoldingLost` if it is not.

        Guarantees: the deadline, counted from the sending of the last write known to have landed,
        has not passed (L3). If it raises because the lock was lost, the `on_lost` callbacks have
        returned, even if the process was suspended past its lease and this is its first call.
        Does not guarantee: that the lock is still held when the next statement runs. Pass the token
        to every resource that must reject a late writer.
        """
        return self.token

    def check_deadline(self) -> None:
        self._session.tick()

    def deadline_monotonic_ms(self) -> int | None:
        grant = self._session.state.grant
        return grant.deadline_monotonic_ms if grant else None

    @property
    def is_bound(self) -> bool:
        state = self._session.state
        return state.phase is not Phase.CLOSED and (state.grant is not None or state.ghost_possible)

    def _renew(self) -> e.Result | None:
        # L10: checked last, so that nothing happens between the check and the request.
        cause = self._owner_gone()
        if cause:
            self._lose(cause)
            return None
        return self._run(self._session.renew())

    def _lose(self, cause: str) -> None:
        self._session.owner_gone(cause)

    def _should_stop(self) -> bool:
        """Return whether to stop waiting: the failure is permanent, or the lock is closed."""
        return self._objects.failed_permanently or self._closing.is_set()

    def _on_notification(self, notification: Notification) -> None:
        match notification:
            case e.Count(metric):
                self.metrics.count(metric)
            case e.Audit():
                held = self._session.standing() is not Standing.LOST
                self._audit.record(notification, held=held)
                self._update_deadline_gauge()
            case e.NotifyLost(cause):
                self._report_lost(cause)
                self._losses.notify(cause)

    def _loss_cause(self) -> str:
        return self._session.state.lost_cause or "the lease has expired"

    def _update_deadline_gauge(self) -> None:
        deadline_ms = self.deadline_monotonic_ms()
        if deadline_ms is not None:
            left_ms = deadline_ms - self._clock.now().monotonic_ms
            self.metrics.gauge("lock.expiration.deadline", max(0, left_ms))

    def _acquire_error(self, result: e.NotAcquired, waited_ms: float | None) -> TidelockError:
        """Return the error for an acquire that ended without the lock."""
        self.metrics.count("lock.acquire.failure")
        self._outage = _reason_text(result) if result.reason in _NO_ANSWER else ""
        if self._closing.is_set():
            return self._closed_error()
        if self._objects.failed_permanently and self._objects.last_error is not None:
            return self._objects.last_error
        if result.reason is Reason.UNREADABLE:
            hint = f"run `tidelock lock doctor {self.uri.split('/.hoodie/')[0]}`"
            return DataCorrupt(f"lock {self.uri} cannot be read: {result.cause}", hint=hint)
        if waited_ms is None and result.reason in (Reason.UNAVAILABLE, Reason.UNKNOWN):
            return StoreUnreachable(
                f"lock {self.uri} was not acquired: {result.cause}", hint="try again"
            )
        waited = "" if waited_ms is None else f" within {waited_ms / 1000:g} s"
        return AcquireTimeout(
            f"lock {self.uri} was not acquired{waited}: {_reason_text(result)}",
            hint="wait longer, or find the holder with `tidelock lock status`",
        )

    def _refused(self, refusal: e.NotAcquired) -> bool:
        """Return False for a definite refusal of a single attempt; raise otherwise."""
        error = self._acquire_error(refusal, None)
        if refusal.reason in _REFUSAL_REASONS and not self._should_stop():
            return False
        raise error

    def _finish_release(self, result: e.Result) -> None:
        """Count the end of a holding; raise if the lock was lost or the release is unknown."""
        match result:
            case e.Released():
                self._count_release(self._held_ms())
            case e.LockLost(cause):
                self._losses.notify_and_wait(cause)
                raise self._lost_error(cause)
            case e.ReleaseUnknown(cause):
                raise self._unknown_release_error(
                    cause, "the lease expires by itself; `tidelock lock status` shows when"
                )
            case _:
                return

    def _keep(self) -> None:
        """Count a grant and start its heartbeat; release it if the heartbeat cannot start."""
        self._bind_current_thread()
        self._held_since_ms = self._clock.now().monotonic_ms
        self._outage = ""
        self.metrics.count("lock.acquire.attempts")
        self.metrics.count("lock.acquire.success")
        grant, lease = self._session.state.grant, self._session.lease
        assert grant is not None
        # P27: renewals count from the sending of the grant, however late its answer came.
        sent_monotonic_ms = grant.deadline_monotonic_ms - lease.validity_ms + lease.margin_ms
        self._start_heartbeat(
            lease, sent_monotonic_ms, undo=lambda: self._run(self._session.release())
        )

    def _run_timed(self, operation: Operation) -> e.Result:
        began_ms = self._clock.now().monotonic_ms
        result = self._run(operation)
        self.metrics.time("lock.request.latency", self._clock.now().monotonic_ms - began_ms)
        return result

    def _run(self, operation: Operation) -> e.Result:
        """Run an operation, blocking."""
        try:
            return self._objects.run(operation, self._clock)
        except BaseException:
            # An interrupt, or a bug: the request may still land, and its reply is lost.
            self._session.abandon()
            raise

    def _release(self) -> None:
        if self._is_forked:
            return
        self._renewals.remove(self)
        with self._operation:
            if self._session.state.phase not in (Phase.HOLDING, Phase.LOST):
                return
            result = self._run(self._session.release())
        self._finish_release(result)

    def _shutdown(self) -> None:
        if self._is_forked:
            return
        self._closing.set()
        self._renewals.remove(self)
        with self._operation:
            self._run(self._session.close())
        self.store.close()

    def _release_on_exit(self, error: BaseException | None) -> None:
        """Release at the end of a `with`; a loss is raised unless `error` is being raised."""
        try:
            self._release()
        except TidelockError as lost:
            if error is None:
                raise
            logger.warning("%s", lost)


_REFUSAL_REASONS = (Reason.HELD, Reason.RACED, Reason.GHOST, Reason.LATE, Reason.THROTTLED)
"""Reasons that are a definite refusal; the others are failures to get an answer."""


_NO_ANSWER = (Reason.UNAVAILABLE, Reason.UNKNOWN, Reason.THROTTLED)
"""Reasons that do not show who holds the lock."""


def as_refusal(result: e.Result) -> e.NotAcquired:
    """Return `result` as the refusal that it must be."""
    assert isinstance(result, e.NotAcquired), result
    return result


def timeout_ms_of(timeout_s: float | None) -> float | None:
    """Return a timeout in milliseconds; None means no limit."""
    if timeout_s is None:
        return None
    if not timeout_s >= 0:
        raise InvalidInput(
            f"timeout: expected 0 or more seconds, got {timeout_s}",
            hint="use 0 to try once; None, on the command line inf, waits forever",
        )
    return timeout_s * 1000


def _reason_text(result: e.NotAcquired) -> str:
    parts = [result.reason.value]
    if result.holder is not None:
        parts.append(describe_owner(result.holder))
    if result.cause:
        parts.append(result.cause)
    return ", ".join(parts)


def describe_owner(record: LockRecord) -> str:
    """Return the owner that a record names, for a message."""
    token = f", token {record.token}" if record.is_ours else ", a Hudi Java writer"
    return f"owner {record.owner}{token}"


class Lock(BaseLock):
    """A lock on one resource, for one owner at a time.

    Guarantees:
      * `state` is HELD or UNSURE only while the lease, counted from the sending of the last write
        known to have landed, has more than its margin left (L3), whatever the wall clock does.
      * Tokens of successive holdings strictly increase (L1), also with Java writers in between.
      * A holder is notified of a loss: `check` raises, `on_lost` callbacks are called (L7).
    Does not guarantee:
      * that no other process believes it holds the lock while clocks differ by more than the
        allowed drift, or while this process is suspended between a check and its effect. Compare
        tokens at the resource where that matters.
    """

    def try_acquire(self) -> bool:
        """Try once. If this client already holds the lock, return True; the token stays (L12).

        Raises: `DataCorrupt`, `PermissionDenied`, `StoreUnreachable` if there is no definite
        answer.
        """
        self._check_not_forked()
        with self._operation:
            self._check_open()
            result = self._run_timed(self._session.attempt())
            if isinstance(result, e.Granted):
                self._keep()
                return True
        return self._refused(as_refusal(result))

    def acquire(self, timeout_s: float | None = None) -> int:
        """Wait for the lock and return its token. With `timeout_s` None there is no limit.

        Raises: `AcquireTimeout`, and the errors of `try_acquire`.
        """
        timeout_ms = timeout_ms_of(timeout_s)
        began_ms = self._clock.now().monotonic_ms
        self._check_not_forked()
        if self.is_held:
            # L12. The head of the local queue may wait for this very lock: do not queue behind it.
            return self.token
        turn = shared_queues.wait(self.store.identity, timeout_ms, self._clock)
        with turn as left_ms, self._operation:
            self._check_open()
            result = self._run_timed(self._session.acquire(left_ms, should_stop=self._should_stop))
            if isinstance(result, e.Granted):
                self._keep()
                return result.token
        raise self._acquire_error(as_refusal(result), self._clock.now().monotonic_ms - began_ms)

    def release(self) -> None:
        """Release the lock. Has no effect if it is not held.

        Raises: `HoldingLost` if it was lost before; `OutcomeUnknown` if the outcome is unknown.
        """
        self._release()

    def close(self) -> None:
        """Release the lock if it is held, and close the client. May be called twice."""
        self._shutdown()

    def __enter__(self) -> Self:
        """Acquire the lock; wait for `wait_s`."""
        self.acquire(self._wait_s)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Release the lock. A loss is raised unless the block raised an error."""
        self._release_on_exit(error)

    async def __aenter__(self) -> AsyncLock:
        """Acquire the lock without blocking the event loop; returns an `AsyncLock`."""
        from tidelock.lock.async_client import AsyncLock  # only for asyncio users

        self._async_lock = AsyncLock(
            self.store,
            self._session.lease,
            wait_s=self._wait_s,
            bind_thread=self._bind_thread,
            clock=self._clock,
            metrics=self.metrics,
            renewals=self._renewals,
            probe=self._probe,
        )
        return await self._async_lock.__aenter__()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Release the lock without blocking the event loop."""
        await self._async_lock.__aexit__(kind, error, trace)


_TIMEOUT_SHARE = 5
"""As in Hudi, one request may take a fifth of the validity: four more fit before the lease ends."""


def lock(
    uri: str,
    *,
    settings: Mapping[str, object] | None = None,
    validity_s: int | None = None,
    renew_s: int | None = None,
    wait_s: float | None = None,
    bind_thread: bool = True,
    metrics: Metrics | None = None,
) -> Lock:
    """Return the lock of a table or of any other resource, not yet acquired.

    `uri` is a path, `file://`, `s3://`, `gs://`, `abfss://` or `memory://`. `settings` takes Hudi's
    keys (`hoodie.write.lock.storage.*` …); keyword arguments override them. `wait_s` is how long
    `with` and `async with` wait; None means no limit.

        with tl.lock("s3://lake/orders") as held:
            publish(held.token)

    Raises: `ResourceInvalid`, `ConfigInvalid`, `Unsupported`, `MissingExtra`.
    """
    options = dict(settings or {})
    if validity_s is not None:
        options[VALIDITY_S.key] = validity_s
    if renew_s is not None:
        options[RENEW_S.key] = renew_s
    elif validity_s is not None and RENEW_S.value(settings or {}) == RENEW_S.default:
        options[RENEW_S.key] = max(1, min(30, validity_s // 10))
    reject_unknown_keys(options)
    read = LockSettings.read(options)
    share_ms = read.lease.validity_ms // _TIMEOUT_SHARE
    options.setdefault(REQUEST_TIMEOUT.key, min(REQUEST_TIMEOUT_MS, share_ms))
    alerts, clock = Alerts.read(options), SystemClock()
    client = Lock(
        open_store(uri, options),
        read.lease,
        wait_s=wait_s,
        bind_thread=bind_thread,
        metrics=metrics or Metrics(read.metrics_prefix),
    )

    # The callback must not refer to the client, which would keep it alive.
    lock_uri, owner = client.uri, client.owner

    def alert_lost(cause: str) -> None:
        now_ms = clock.now().wall_epoch_ms
        alerts.fire(Alert(AlertKind.LOCK_LOST, lock_uri, cause, now_ms, owner))

    client.on_lost(alert_lost)
    return client


def reject_unknown_keys(settings: Mapping[str, object]) -> None:
    """Raise `ConfigInvalid` for a misspelled lock key; keys of other parts of Hudi pass."""
    for name, near in unknown_keys(settings, prefixes=("tidelock.", "hoodie.write.lock.")).items():
        raise unknown_key(name, [near] if near else [])
