"""Heartbeats: which writers are running, and whether they are alive (C38-C42).

The files have Hudi's layout, one per running instant; Java uses only their modification time. Our
files also contain a record of the writer and its heartbeat interval.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from tidelock.core.clock import Now
from tidelock.core.errors import DataCorrupt, TidelockError
from tidelock.core.outcome import Landed
from tidelock.core.threads import start_thread
from tidelock.storage.contract import Match, ObjectStore, Refused, StoredObject
from tidelock.txn.effects import Get, ReadClock, Steps
from tidelock.txn.footprint import Fields, JsonField, JsonRecord
from tidelock.txn.telemetry import TransactionTelemetry

HEARTBEAT_FOLDER: Final = ".hoodie/.heartbeat"
JAVA_LIFETIME_MS: Final = 600_000
"""How long diagnostics count a Java writer as alive after a heartbeat: ten of its intervals."""

_BODY_BYTES_MAX: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The record in the heartbeat file of a running instant."""

    owner: str
    attempt: int
    nonce: str
    interval_ms: int
    misses: int
    since_epoch_ms: int
    operation: str = ""
    host: str = ""
    pid: int = 0
    markers: bool = False
    """Whether every data file has a marker, so that rollback can find the files by markers."""
    lock: str = ""
    """The writer's lock provider, "" for none."""
    mode: str = ""
    """The concurrency mode of its writer."""

    @property
    def lifetime_ms(self) -> int:
        """How long the writer counts as alive after a heartbeat."""
        return self.interval_ms * self.misses


@dataclass(frozen=True, slots=True)
class HeartbeatStatus:
    """A heartbeat file as found in the store; `record` is None for a Java writer's file."""

    instant: str
    modified_epoch_ms: int
    record: Heartbeat | None = None

    def age_ms(self, now_epoch_ms: int) -> int:
        """Return the age of the heartbeat by the reader's clock."""
        return max(0, now_epoch_ms - self.modified_epoch_ms)

    def left_ms(self, now_epoch_ms: int, *, default_lifetime_ms: int) -> int:
        """Return how much longer the writer counts as alive, negative if it is dead.

        Files without a record use `default_lifetime_ms`.
        """
        lifetime_ms = self.record.lifetime_ms if self.record is not None else default_lifetime_ms
        return lifetime_ms - self.age_ms(now_epoch_ms)

    def is_alive(self, now_epoch_ms: int, *, default_lifetime_ms: int) -> bool:
        return self.left_ms(now_epoch_ms, default_lifetime_ms=default_lifetime_ms) >= 0


def heartbeat_key(instant: str) -> str:
    return f"{HEARTBEAT_FOLDER}/{instant}"


def for_attempt(beat: Heartbeat, nonce: str, attempt: int, since_epoch_ms: int) -> Heartbeat:
    """Return the heartbeat of one attempt at an instant."""
    return replace(beat, nonce=nonce, attempt=attempt, since_epoch_ms=since_epoch_ms)


def encode(beat: Heartbeat) -> bytes:
    return json.dumps(_HEARTBEAT.encode(beat), separators=(",", ":")).encode()


def heartbeat_status(instant: str, found: StoredObject) -> HeartbeatStatus:
    """Return the status of a heartbeat file; a file that is not ours has only an age."""
    record: Heartbeat | None = None
    if found.body and len(found.body) <= _BODY_BYTES_MAX:
        with suppress(DataCorrupt):
            record = _HEARTBEAT.decode(Fields.parse(found.body, heartbeat_key(instant)))
    return HeartbeatStatus(instant, found.modified_epoch_ms, record)


def live_heartbeat(instant: str, *, default_lifetime_ms: int) -> Steps[HeartbeatStatus | None]:
    """Read the heartbeat of an instant; return None if it is missing or its writer is dead."""
    found: StoredObject | None = yield Get(heartbeat_key(instant))
    now: Now = yield ReadClock()
    if found is None:
        return None
    status = heartbeat_status(instant, found)
    alive = status.is_alive(now.wall_epoch_ms, default_lifetime_ms=default_lifetime_ms)
    return status if alive else None


def _text_or_empty(fields: Fields, name: str) -> str:
    return str(fields.raw(name) or "")  # heartbeats of older releases lack the field


_HEARTBEAT: Final = JsonRecord(
    Heartbeat,
    JsonField("owner", Fields.text),
    JsonField("attempt", Fields.integer),
    JsonField("nonce", Fields.text),
    JsonField("intervalMs", Fields.integer, attribute="interval_ms"),
    JsonField("misses", Fields.integer),
    JsonField("since", Fields.integer, attribute="since_epoch_ms"),
    JsonField("operation", Fields.text),
    JsonField("host", Fields.text),
    JsonField("pid", Fields.integer),
    JsonField("markers", Fields.is_true),
    JsonField("lock", _text_or_empty),
    JsonField("mode", _text_or_empty),
)


@dataclass(slots=True)
class _HeldHeartbeat:
    body: bytes
    version: str
    lost: str = ""
    failed: int = 0
    """Number of consecutive failed refreshes."""


@dataclass(slots=True)
class HeartbeatThread:
    """Refreshes all registered heartbeats once per interval, in one thread.

    A heartbeat that another process removed or replaced is not written again: its write was rolled
    back as dead, and its owner is notified.
    """

    store: ObjectStore
    interval_ms: int
    telemetry: TransactionTelemetry | None = None
    _held: dict[str, _HeldHeartbeat] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _wake: threading.Event = field(default_factory=threading.Event)
    _running: bool = False

    def keep(self, instant: str, body: bytes, version: str) -> None:
        """Refresh the heartbeat of `instant` from now on."""
        with self._mutex:
            self._held[instant] = _HeldHeartbeat(body, version)
            if not self._running:
                self._running = True
                start_thread("tidelock-txn-heartbeat", self._run)

    def drop(self, instant: str) -> None:
        """Stop refreshing. The file is left to the caller."""
        with self._mutex:
            self._held.pop(instant, None)

    def instants(self) -> tuple[str, ...]:
        """Return the instants whose heartbeats are refreshed."""
        with self._mutex:
            return tuple(self._held)

    def lost(self, instant: str) -> str:
        """Return why the heartbeat was lost, "" if it was not."""
        with self._mutex:
            return self._held[instant].lost if instant in self._held else ""

    def close(self) -> None:
        """Stop the thread. The files stay."""
        with self._mutex:
            self._held.clear()
        self._wake.set()

    def beat(self) -> None:
        """Refresh every heartbeat once."""
        with self._mutex:
            due = [(instant, beat) for instant, beat in self._held.items() if not beat.lost]
        for instant, beat in due:
            try:
                self._refresh(instant, beat)
                beat.failed = 0
            except TidelockError as error:
                beat.failed += 1
                if self.telemetry is not None:
                    self.telemetry.not_refreshed(instant, str(error), failed=beat.failed)

    def _refresh(self, instant: str, beat: _HeldHeartbeat) -> None:
        reply = self.store.put(heartbeat_key(instant), beat.body, Match(beat.version))
        if isinstance(reply, Landed):
            beat.version = reply.version
            return
        found = self.store.get(heartbeat_key(instant))
        if found is not None and found.body == beat.body:
            beat.version = found.version  # our own write, whose answer was lost
        elif isinstance(reply, Refused) and instant in self.instants():
            beat.lost = f"the heartbeat of {instant} was removed by another process"
            if self.telemetry is not None:
                self.telemetry.heartbeat_lost(instant, beat.lost)

    def _run(self) -> None:
        while not self._wake.wait(self.interval_ms / 1000):
            self.beat()
            with self._mutex:
                if not self._held:
                    self._running = False
                    return
