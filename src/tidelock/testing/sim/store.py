"""The store of the simulated world: MemoryStore, with a fate for each request, and a witness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from tidelock.base.clock import Clock
from tidelock.base.errors import DataCorrupt, PermissionDenied, StoreUnreachable, Throttled
from tidelock.base.outcome import Landed
from tidelock.lock.objects import LOCK_KEY, TOKENS_KEY
from tidelock.lock.record import Record, decode, decode_counter
from tidelock.store.contract import (
    Busy,
    Overwrite,
    PutMode,
    PutReply,
    Refused,
    StoredObject,
    Unclear,
)
from tidelock.store.memory import MemoryStore
from tidelock.testing.sim.history import History, Landing, Sent
from tidelock.testing.sim.plan import Fault

OPERATOR = "an operator"

_Read = TypeVar("_Read")


class Fate(Enum):
    """What becomes of the request that is being performed."""

    PASS = "reaches the store"
    NO_ANSWER = "nothing was heard within the time-out"
    TWICE = "a hop sends it twice and passes on the second answer"
    CONFLICT = "409 until the store's own retries are used up"
    THROTTLED = "429"
    UNAVAILABLE = "503"
    DENIED = "403"
    STALE = "reads the past"


class SimStore(MemoryStore):
    """Conditional writes in memory. The caller sets `fate` before each request.

    `author` and `record` say who writes the lock record and what; the witness is `history`.
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
        """Start empty; keep the past only where stale reads are wanted."""
        super().__init__("sim", clock=clock)
        self._history = history
        self._time_ms = time_ms
        self._fired = fired
        self.staleness_ms = staleness_ms
        self._past: dict[str, list[tuple[float, StoredObject | None]]] = {}
        self.fate = Fate.PASS
        self.phase = ""
        self.retry_after_ms: int | None = None
        self.author = OPERATOR
        self.record: Record | None = None
        self.sent: Sent | None = None
        self.current: Record | None = None
        self.garbage = False
        self.counter_garbage = False

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, as far as the fate of the request allows."""
        match self.fate:
            case Fate.PASS | Fate.TWICE:
                return super().get(key, start=start, end=end)
            case Fate.STALE:
                was = self._then(key)
                if was != self._objects.get(key):
                    self._count(Fault.STALE)
                return was
            case Fate.NO_ANSWER | Fate.UNAVAILABLE | Fate.CONFLICT:
                raise StoreUnreachable(f"{key}: {self.fate.value}")
            case Fate.THROTTLED:
                raise Throttled(f"{key}: 429", retry_after_ms=self.retry_after_ms)
            case Fate.DENIED:
                raise PermissionDenied(f"{key}: 403")

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write the object, as far as the fate of the request allows."""
        match self.fate:
            case Fate.PASS | Fate.STALE:
                return self._write(key, body, mode)
            case Fate.TWICE:
                first = self._write(key, body, mode)
                if isinstance(first, Landed):
                    self._count(Fault.TWICE)
                return self._write(key, body, mode)
            case Fate.NO_ANSWER:
                return Unclear(self.fate.value)
            case Fate.UNAVAILABLE:
                return Unclear("503", self.retry_after_ms)
            case Fate.CONFLICT:
                self._count(Fault.CONFLICT)
                return Busy(cause="409")
            case Fate.THROTTLED:
                return Busy(self.retry_after_ms, cause="429")
            case Fate.DENIED:
                raise PermissionDenied(f"{key}: 403")

    def hand_over(self) -> None:
        """Let an operator write next, undisturbed."""
        self.fate, self.author, self.sent = Fate.PASS, OPERATOR, None

    def meddle(self, key: str, body: bytes | None) -> None:
        """Let an operator replace (or, with None, delete) an object without asking anybody."""
        self.hand_over()
        if body is not None:
            self._write(key, body, Overwrite())
            return
        self.delete(key)
        self._witness(key)

    def _write(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        reply = super().put(key, body, mode)
        if isinstance(reply, Landed):
            self._witness(key)
        elif isinstance(reply, Refused):
            self._count(Fault.REFUSED)
        return reply

    def _count(self, fault: Fault) -> None:
        """Count a fault that made a difference."""
        self._fired[fault, self.phase] += 1

    def _witness(self, key: str) -> None:
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
        """Return what an operator left there; None for nothing, and for garbage."""
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
