"""The thread that keeps the heartbeats of running writes fresh (C39, C40)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from tidelock.base.errors import TidelockError
from tidelock.base.outcome import Landed
from tidelock.base.runtime import start_thread
from tidelock.store.contract import Match, ObjectStore, Refused
from tidelock.txn.heartbeat import heartbeat_key
from tidelock.txn.observing import Observing


@dataclass(slots=True)
class _Beat:
    body: bytes
    version: str
    lost: str = ""
    failed: int = 0
    """Refreshes in a row that failed."""


@dataclass(slots=True)
class Beating:
    """Refreshes every kept heartbeat once per interval, in one thread for all.

    A heartbeat that somebody else removed or replaced is not written again: the write it belongs
    to was given up for dead, and its owner is told so.
    """

    store: ObjectStore
    interval_ms: int
    observing: Observing | None = None
    _beats: dict[str, _Beat] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _wake: threading.Event = field(default_factory=threading.Event)
    _running: bool = False

    def keep(self, instant: str, body: bytes, version: str) -> None:
        """Keep the heartbeat of `instant` fresh from now on."""
        with self._mutex:
            self._beats[instant] = _Beat(body, version)
            if not self._running:
                self._running = True
                start_thread("tidelock-txn-heartbeat", self._run)

    def drop(self, instant: str) -> None:
        """Stop refreshing; the file is left to the caller."""
        with self._mutex:
            self._beats.pop(instant, None)

    def instants(self) -> tuple[str, ...]:
        """Return the instants whose heartbeats are kept."""
        with self._mutex:
            return tuple(self._beats)

    def lost(self, instant: str) -> str:
        """Return why the heartbeat was lost; "" if it was not."""
        with self._mutex:
            beat = self._beats.get(instant)
            return beat.lost if beat is not None else ""

    def close(self) -> None:
        """End the thread; files are left as they are."""
        with self._mutex:
            self._beats.clear()
        self._wake.set()

    def beat(self) -> None:
        """Refresh every heartbeat once."""
        with self._mutex:
            due = [(instant, beat) for instant, beat in self._beats.items() if not beat.lost]
        for instant, beat in due:
            try:
                self._refresh(instant, beat)
                beat.failed = 0
            except TidelockError as error:
                beat.failed += 1
                if self.observing is not None:
                    self.observing.not_refreshed(instant, str(error), failed=beat.failed)

    def _refresh(self, instant: str, beat: _Beat) -> None:
        reply = self.store.put(heartbeat_key(instant), beat.body, Match(beat.version))
        if isinstance(reply, Landed):
            beat.version = reply.version
            return
        found = self.store.get(heartbeat_key(instant))
        if found is not None and found.body == beat.body:
            beat.version = found.version  # our own write, whose answer was lost
        elif isinstance(reply, Refused) and self._is_kept(instant):
            beat.lost = f"the heartbeat of {instant} was removed by somebody else"
            if self.observing is not None:
                self.observing.heart_lost(instant, beat.lost)

    def _is_kept(self, instant: str) -> bool:
        with self._mutex:
            return instant in self._beats

    def _run(self) -> None:
        while not self._wake.wait(self.interval_ms / 1000):
            self.beat()
            with self._mutex:
                if not self._beats:
                    self._running = False
                    return
