"""The simulated store: a `MemoryStore` with an outcome for each request, and a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from testkit.sim.history import History, Landing, Sent
from testkit.sim.plan import Fault
from tidelock.core.clock import Clock
from tidelock.core.errors import DataCorrupt, PermissionDenied, StoreUnreachable, Throttled
from tidelock.core.outcome import Landed
from tidelock.lock.record import LockRecord, decode, decode_counter
from tidelock.lock.record_store import LOCK_KEY, TOKENS_KEY
from tidelock.storage.contract import (
    Busy,
    Overwrite,
    PutMode,
    PutReply,
    Refused,
    StoredObject,
    Unclear,
)
from tidelock.storage.memory import MemoryStore

OPERATOR = "an operator"

_Read = TypeVar("_Read")


class RequestOutcome(Enum):
    """The outcome of the current request."""

    PASS = "reaches the store"
    NO_ANSWER = "no reply within the timeout"
    TWICE = "sent twice by a proxy, which returns the second reply"
    CONFLICT = "409 until the store's own retries are used up"
    THROTTLED = "429"
    UNAVAILABLE = "503"
    DENIED = "403"
    STALE = "stale read"


class SimStore(MemoryStore):
    """Conditional writes in memory. The caller sets `outcome` before each request.

    `author` and `record` are the writer and the content of the lock record, for `history`.
    """

    def __init__(
        self,
        history: History,
        *,
        clock: Clock,
        time_ms: Callable[[], float],
        staleness_ms: float,
        fired: Counter[tuple[Fault, str]],
    ) -> None:
        """Start empty; keep old versions only if stale reads are enabled."""
        super().__init__("sim", clock=clock)
        self._history = history
        self._time_ms = time_ms
        self._fired = fired
        self.staleness_ms = staleness_ms
        self._past: dict[str, list[tuple[float, StoredObject | None]]] = {}
        self.outcome = RequestOutcome.PASS
        self.phase = ""
        self.retry_after_ms: int | None = None
        self.author = OPERATOR
        self.record: LockRecord | None = None
        self.sent: Sent | None = None
        self.current: LockRecord | None = None
        self.garbage = False
        self.counter_garbage = False

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, or what the outcome of the request prescribes."""
        match self.outcome:
            case RequestOutcome.PASS | RequestOutcome.TWICE:
                return super().get(key, start=start, end=end)
            case RequestOutcome.STALE:
                was = self._then(key)
                if was != self._objects.get(key):
                    self._count(Fault.STALE)
                return was
            case RequestOutcome.NO_ANSWER | RequestOutcome.UNAVAILABLE | RequestOutcome.CONFLICT:
                raise StoreUnreachable(f"{key}: {self.outcome.value}")
            case RequestOutcome.THROTTLED:
                raise Throttled(f"{key}: 429", retry_after_ms=self.retry_after_ms)
            case RequestOutcome.DENIED:
                raise PermissionDenied(f"{key}: 403")

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write the object, or do what the outcome of the request prescribes."""
        match self.outcome:
            case RequestOutcome.PASS | RequestOutcome.STALE:
                return self._write(key, body, mode)
            case RequestOutcome.TWICE:
                first = self._write(key, body, mode)
                if isinstance(first, Landed):
                    self._count(Fault.TWICE)
                return self._write(key, body, mode)
            case RequestOutcome.NO_ANSWER:
                return Unclear(self.outcome.value)
            case RequestOutcome.UNAVAILABLE:
                return Unclear("503", self.retry_after_ms)
            case RequestOutcome.CONFLICT:
                self._count(Fault.CONFLICT)
                return Busy(cause="409")
            case RequestOutcome.THROTTLED:
                return Busy(self.retry_after_ms, cause="429")
            case RequestOutcome.DENIED:
                raise PermissionDenied(f"{key}: 403")

    def act_as_operator(self) -> None:
        """Make the next write that of an operator, without faults."""
        self.outcome, self.author, self.sent = RequestOutcome.PASS, OPERATOR, None

    def write_as_operator(self, key: str, body: bytes | None) -> None:
        """Replace (or, with None, delete) an object unconditionally, as an operator."""
        self.act_as_operator()
        if body is not None:
            self._write(key, body, Overwrite())
            return
        self.delete(key)
        self._record_landing(key)

    def _write(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        reply = super().put(key, body, mode)
        if isinstance(reply, Landed):
            self._record_landing(key)
        elif isinstance(reply, Refused):
            self._count(Fault.REFUSED)
        return reply

    def _count(self, fault: Fault) -> None:
        """Count a fault that had an effect."""
        self._fired[fault, self.phase] += 1

    def _record_landing(self, key: str) -> None:
        at = self._time_ms()
        if self.staleness_ms:
            self._past.setdefault(key, []).append((at, self._objects.get(key)))
        history = self._history
        by_operator = self.author is OPERATOR
        if key == TOKENS_KEY:
            if self.counter_garbage and not by_operator:
                history.broken.append(f"L8: {self.author} replaced an unreadable token counter")
            self.counter_garbage = by_operator and self._read(key, decode_counter) is None
        if key != LOCK_KEY:
            return
        if by_operator:
            self.record = self._read(key, decode)
        landing = Landing(
            len(history.landings),
            at,
            self.author,
            self.record,
            self.current,
            self.garbage,
            self.sent,
        )
        history.landings.append(landing)
        if self.sent is not None:
            history.landed_by_nonce.setdefault(self.sent.record.nonce, landing)
        self.current = self.record
        self.garbage = self.record is None and key in self._objects

    def _read(self, key: str, decoder: Callable[[bytes], _Read]) -> _Read | None:
        """Return the decoded object; None if absent or garbage."""
        stored = self._objects.get(key)
        try:
            return decoder(stored.body) if stored is not None else None
        except DataCorrupt:
            return None

    def _then(self, key: str) -> StoredObject | None:
        """Return the object as it was `staleness_ms` ago."""
        then = self._time_ms() - self.staleness_ms
        was = None
        for at, stored in self._past.get(key, ()):
            if at > then:
                break
            was = stored
        return was
