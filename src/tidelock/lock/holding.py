"""What a lock object is to its user, whatever way it waits: state, token, check, loss.

`driver` and `adriver` add the verbs. Counts, audit entries and the loss callback happen here.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import (
    AcquireTimeout,
    DataCorrupt,
    HoldingLost,
    InvalidInput,
    OutcomeUnknown,
    StoreUnreachable,
    TidelockError,
    Unavailable,
)
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.metrics import Metrics
from tidelock.base.runtime import start_thread
from tidelock.lock import events as e
from tidelock.lock.audit import AuditLog
from tidelock.lock.heartbeat import Heartbeat
from tidelock.lock.lease import Lease
from tidelock.lock.objects import LockObjects
from tidelock.lock.record import Record
from tidelock.lock.renewal import Renewals
from tidelock.lock.session import Answer, Note, Operation, Pause, Session
from tidelock.lock.state import Phase, Standing
from tidelock.store.contract import ObjectStore

logger = logging.getLogger(__name__)

LostCallback = Callable[[str], None]

_system_clock = SystemClock()
shared_renewals = Renewals(_system_clock)
"""All locks of a process share one heartbeat thread."""


LOSS_CALLBACK_WAIT_S = 5.0
"""How long a holder that asks for its lock waits for a callback that does not return."""


@dataclass(slots=True)
class _Call:
    callback: LostCallback
    returned: threading.Event = field(default_factory=threading.Event)
    thread_id: int | None = None


class LossCallbacks:
    """Who hears of the loss of a lock. Each is called once, in a thread of its own.

    In a thread of its own, because a callback may release the lock, which would wait for the thread
    that called it.
    """

    def __init__(self) -> None:
        """Know nobody."""
        self._mutex = threading.Lock()
        self._waiting: list[LostCallback] = []
        self._calls: list[_Call] = []

    def add(self, callback: LostCallback) -> None:
        """Let `callback` hear of the next loss."""
        with self._mutex:
            self._waiting.append(callback)

    def tell(self, cause: str) -> None:
        """Call whoever has not heard yet; do not wait for them."""
        # Taken under a mutex: several may notice a loss, and each callback is called once.
        with self._mutex:
            calls = [_Call(callback) for callback in self._waiting]
            self._waiting.clear()
            self._calls.extend(calls)
        for call in calls:
            start_thread("tidelock-lost", self._calling(call, cause))

    def have_heard(self, cause: str) -> None:
        """Call whoever has not heard yet, and return when every callback has returned.

        A callback that asks for the lock itself does not wait, and nobody waits for one that does
        not return within `LOSS_CALLBACK_WAIT_S`.
        """
        self.tell(cause)
        with self._mutex:
            calls = list(self._calls)
        if any(call.thread_id == threading.get_ident() for call in calls):
            return
        for call in calls:
            if not call.returned.wait(LOSS_CALLBACK_WAIT_S):
                logger.warning("the callback for a lost lock has not returned yet; going on")
                return

    def _calling(self, call: _Call, cause: str) -> Callable[[], None]:
        def run() -> None:
            call.thread_id = threading.get_ident()
            try:
                call.callback(cause)
            except Exception:
                # Its failure is told and harms nobody else.
                logger.exception("the callback for a lost lock failed")
            finally:
                with self._mutex:
                    self._calls.remove(call)
                call.returned.set()

        return run


class Holding:
    """The common face of a lock: what it is called, whether it is held, who hears of its loss."""

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
        """Stand for the lock of the resource at the root of `store`; hold nothing.

        `wait_s` is how long `with` waits (None: for ever). With `bind_thread` the lock is renewed
        only while the thread that acquired it lives. With `probe` the store must prove, once, that
        it honours conditions.
        """
        self.metrics = metrics or Metrics()
        self._store = store
        self._wait_s = wait_s
        self._bind_thread = bind_thread
        self._clock = clock or _system_clock
        # One without holdings is false, and still the one to use.
        self._renewals = shared_renewals if renewals is None else renewals
        self._session = Session(lease, clock=self._clock, ids=ids or SystemIds(), note=self._hear)
        self._objects = LockObjects(store, probe=probe)
        self._probe = probe
        self._closing = threading.Event()
        self._audit = AuditLog(
            store, owner=self._session.owner, validity_ms=lease.validity_ms, clock=self._clock
        )
        self._operation = threading.Lock()
        self._losses = LossCallbacks()
        self._pid = os.getpid()
        self._is_thread_alive = _always
        self._held_since_ms = 0
        self._outage = ""
        _live.add(self)

    @property
    def uri(self) -> str:
        """The lock object."""
        return self._objects.uri

    @property
    def store(self) -> ObjectStore:
        """Where the lock object lies, for those who look at it from outside."""
        return self._store

    @property
    def lease(self) -> Lease:
        """The terms that contenders for this lock agree on."""
        return self._session.lease

    @property
    def owner(self) -> str:
        """The name of this client in the lock record."""
        return self._session.owner

    @property
    def state(self) -> Standing:
        """HELD, UNSURE, LOST or FREE, as of now. Never waits for anything."""
        if os.getpid() != self._pid:
            return Standing.LOST if self._session.state.grant else Standing.FREE
        return self._session.standing()

    @property
    def token(self) -> int:
        """The fencing token of this holding: larger than that of every holding before it.

        Raises: `HoldingLost` when nothing is held.
        """
        grant = self._session.state.grant
        if grant is None or self.state not in (Standing.HELD, Standing.UNSURE):
            if os.getpid() == self._pid:
                self._hear_of_loss()
            raise self._not_held()
        return grant.record.token

    def check(self) -> int:
        """Return the token if the lock is still held; raise `HoldingLost` if it is not.

        Guarantees: the deadline, counted from the sending of the last write known to have landed,
        is ahead (L3). When it raises because the lock was lost, the callbacks of `on_lost` have
        returned, though the process was stopped past its lease and this is its first statement.
        Does not guarantee: that it still is when the next statement runs. Hand the token to
        whatever must not see a late writer.
        """
        return self.token

    def on_lost(self, callback: LostCallback) -> None:
        """Call `callback` with the cause, once, in a thread of its own, when the lock is lost."""
        self._losses.add(callback)
        if self.state is Standing.LOST:
            self._losses.tell(self._lost_cause())

    @property
    def outage(self) -> str:
        """Why the last acquire ended without any answer of the store; empty when it answered."""
        return self._outage

    def notice(self) -> None:
        """Look whether the deadline has passed (P29)."""
        self._session.tick()

    def deadline_monotonic_ms(self) -> int | None:
        """Return when the holding ends unless it is renewed; None when nothing is held."""
        grant = self._session.state.grant
        return grant.deadline_monotonic_ms if grant else None

    @property
    def is_bound(self) -> bool:
        """Tell whether a record of this client may be in the store."""
        state = self._session.state
        return state.phase is not Phase.CLOSED and (state.grant is not None or state.doubtful)

    def renew(self) -> e.Result | None:
        """Extend the lease by one validity; the heartbeat calls this."""
        if os.getpid() != self._pid:
            # As in the other verbs: the mutex may be held by a thread that the fork did not copy.
            return None
        with self._operation:
            # L10: asked last, when nothing stands between the answer and the request.
            cause = self._owner_gone()
            if cause:
                self._session.owner_gone(cause)
                return None
            try:
                return self._run(self._session.renew())
            except Exception as error:
                # Nothing above this frame could tell the owner, so the loss has to.
                logger.exception("renewing %s failed", self.uri)
                self.metrics.count("lock.provider.fatal.error")
                self._session.owner_gone(f"the renewal failed: {error}")
                return None

    def _is_hopeless(self) -> bool:
        """Tell whether a wait for the lock should end: nothing will mend it, or it is closed."""
        return self._objects.hopeless or self._closing.is_set()

    def _hear(self, note: Note) -> None:
        match note:
            case e.Count(metric):
                self.metrics.count(metric)
            case e.Audit():
                held = self._session.standing() is not Standing.LOST
                self._audit.note(note, held=held)
                self._gauge_deadline()
            case e.TellLost(cause):
                self.metrics.count("lock.lost")
                logger.error("lock %s is lost: %s", self.uri, cause)
                self._losses.tell(cause)

    def _hear_of_loss(self) -> None:
        """L7: notice a loss now, and go on when everybody who asked for it has heard of it."""
        self.notice()
        if self.state is Standing.LOST:
            self._losses.have_heard(self._lost_cause())

    def _lost_cause(self) -> str:
        return self._session.state.lost_cause or "the lease has run out"

    def _gauge_deadline(self) -> None:
        deadline_ms = self.deadline_monotonic_ms()
        if deadline_ms is not None:
            left_ms = deadline_ms - self._clock.now().monotonic_ms
            self.metrics.gauge("lock.expiration.deadline", max(0, left_ms))

    def _owner_gone(self) -> str:
        """L10: return why nobody can use this holding any more; empty while somebody can."""
        return "" if self._is_thread_alive() else "the thread that acquired the lock has ended"

    def _not_held(self) -> HoldingLost:
        if os.getpid() != self._pid:
            cause = "this process was forked from the holder"
        else:
            cause = self._session.state.lost_cause or (
                "its lease has run out" if self.state is Standing.LOST else "it was never acquired"
            )
        return HoldingLost(
            f"the lock {self.uri} is not held: {cause}",
            hint="stop what the lock protects; acquire again and start over",
        )

    def _granted(self) -> None:
        self._held_since_ms = self._clock.now().monotonic_ms
        self._outage = ""
        self.metrics.count("lock.acquire.attempts")
        self.metrics.count("lock.acquire.success")

    def _not_granted(self, result: e.NotAcquired, waited_ms: float | None) -> TidelockError:
        """Return the error for an acquire that ended without the lock."""
        self.metrics.count("lock.acquire.failure")
        self._outage = _because(result) if result.why in _NO_ANSWER else ""
        if self._closing.is_set():
            return self._closed()
        if self._objects.hopeless and self._objects.last_error is not None:
            return self._objects.last_error
        if result.why is e.Why.UNREADABLE:
            hint = f"see `tidelock lock doctor {self.uri.split('/.hoodie/')[0]}`"
            return DataCorrupt(f"the lock {self.uri} cannot be read: {result.cause}", hint=hint)
        waited = "" if waited_ms is None else f" within {waited_ms / 1000:g} s"
        if result.why in (e.Why.UNAVAILABLE, e.Why.UNKNOWN) and waited_ms is None:
            return StoreUnreachable(
                f"the lock {self.uri} was not acquired: {result.cause}", hint="try again"
            )
        return AcquireTimeout(
            f"the lock {self.uri} was not acquired{waited}: {_because(result)}",
            hint="wait longer, or see who holds it with `tidelock lock status`",
        )

    def _ended(self, result: e.Result) -> None:
        """Count the end of a holding, and raise if the owner must know of it."""
        held_ms = self._clock.now().monotonic_ms - self._held_since_ms
        match result:
            case e.Released():
                self.metrics.count("lock.release.success")
                self.metrics.time("lock.acquire.duration", held_ms)
            case e.Lost(cause):
                self._losses.have_heard(cause)
                raise HoldingLost(
                    f"the lock {self.uri} was lost before it was released: {cause}",
                    hint="what was done since may have met another writer; check it by its token",
                )
            case e.ReleaseUnknown(cause):
                raise OutcomeUnknown(
                    f"the lock {self.uri} may not have been released: {cause}",
                    hint="it expires by itself; `tidelock lock status` shows when",
                )
            case _:
                return

    def _keep(self) -> None:
        """Start the heartbeat of a grant; a grant that cannot be kept is given back."""
        owner = threading.current_thread()
        self._is_thread_alive = owner.is_alive if self._bind_thread else _always
        self._granted()
        beat = Heartbeat.started(self._session.lease, self._sent_monotonic_ms())
        try:
            self._renewals.add(self, beat)
        except RuntimeError as error:
            self.metrics.count("lock.provider.fatal.error")
            self._run(self._session.release())
            raise Unavailable(
                f"the heartbeat of {self.uri} could not be started: {error}",
                hint="the lock was released; free some threads and try again",
            ) from error

    def _sent_monotonic_ms(self) -> int:
        """P27: renewals count from the sending of the grant, however late its answer came."""
        grant, lease = self._session.state.grant, self._session.lease
        assert grant is not None
        return grant.deadline_monotonic_ms - lease.validity_ms + lease.margin_ms

    def _check_not_forked(self) -> None:
        """Refuse before waiting: a thread that the fork did not copy may hold the mutex."""
        if os.getpid() != self._pid:
            raise InvalidInput(
                f"the lock {self.uri} was made before this process was forked",
                hint="make a lock in the process that uses it",
            )

    def _check_open(self) -> None:
        if self._closing.is_set() or self._session.state.phase is Phase.CLOSED:
            self.metrics.count("lock.provider.fatal.error")
            raise self._closed()

    def _closed(self) -> InvalidInput:
        return InvalidInput(f"the lock {self.uri} is closed", hint="make another one")

    def _timed(self, operation: Operation) -> e.Result:
        began_ms = self._clock.now().monotonic_ms
        result = self._run(operation)
        self.metrics.time("lock.request.latency", self._clock.now().monotonic_ms - began_ms)
        return result

    def _run(self, operation: Operation) -> e.Result:
        """Do what `operation` asks for until it has its result."""
        answer: Answer = None
        try:
            while True:
                ask = operation.send(answer)
                if isinstance(ask, Pause):
                    self._clock.sleep_ms(ask.duration_ms)
                    answer = None
                else:
                    answer = self._objects.perform(ask)
        except StopIteration as ended:
            result: e.Result = ended.value
            return result
        except BaseException:
            # An interrupt, or a bug: the request may still land, and its answer is lost.
            self._session.abandon()
            raise

    def _release(self) -> None:
        if os.getpid() != self._pid:
            return
        self._renewals.remove(self)
        with self._operation:
            if self._session.state.phase not in (Phase.HOLDING, Phase.LOST):
                return
            result = self._run(self._session.release())
        self._ended(result)

    def _close(self) -> None:
        if os.getpid() != self._pid:
            return
        self._closing.set()
        self._renewals.remove(self)
        with self._operation:
            self._run(self._session.close())
        self._store.close()

    def _leave(self, error: BaseException | None) -> None:
        """Release at the end of a `with`; a loss is raised unless an error is on its way."""
        try:
            self._release()
        except TidelockError as lost:
            if error is None:
                raise
            logger.warning("%s", lost)


PLAIN_NO = (e.Why.HELD, e.Why.RACED, e.Why.GHOST, e.Why.LATE, e.Why.THROTTLED)
"""Refusals that are an answer; the others are a failure to get one."""


_NO_ANSWER = (e.Why.UNAVAILABLE, e.Why.UNKNOWN, e.Why.THROTTLED)
"""Refusals that say nothing about who holds the lock."""


def denied(result: e.Result) -> e.NotAcquired:
    """Return the refusal that an acquire ended with."""
    assert isinstance(result, e.NotAcquired), result
    return result


def timeout_ms_of(timeout_s: float | None) -> float | None:
    """Return a timeout in milliseconds; None waits for ever."""
    if timeout_s is None:
        return None
    if not timeout_s >= 0:
        raise InvalidInput(f"a timeout of {timeout_s} s cannot be", hint="use 0 or more")
    return timeout_s * 1000


def _because(result: e.NotAcquired) -> str:
    parts = [result.why.value]
    if result.holder is not None:
        parts.append(describe(result.holder))
    if result.cause:
        parts.append(result.cause)
    return ", ".join(parts)


def describe(record: Record) -> str:
    """Return who a record names, for a message."""
    token = f", token {record.token}" if record.is_ours else ", a Hudi Java writer"
    return f"owner {record.owner}{token}"


def _always() -> bool:
    return True


_live: weakref.WeakSet[Holding] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Leave no lock behind when the interpreter ends, as Hudi's shutdown hook does."""
    for lock in list(_live):
        if lock.is_bound:
            try:
                lock._close()  # noqa: SLF001 - the same file
            except TidelockError as error:
                logger.warning("%s", error)
