"""Saying that one waits for the table's lock, for those who watch (C103).

The storage lock and others like it keep no queue: who waits only looks at them. So a process that
has waited for a while says so in an object of its own. Nothing is decided by it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from tidelock.base.clock import Clock, Now
from tidelock.base.errors import DataCorrupt, TidelockError
from tidelock.base.runtime import start_thread
from tidelock.store.contract import ObjectStore, Overwrite
from tidelock.txn.fields import Fields

logger = logging.getLogger(__name__)

WAITING_FOLDER: Final = ".hoodie/.tidelock/waiting"

SAID_AFTER_MS: Final = 1_000
GOOD_FOR_MS: Final = 30_000
_AGAIN_MS: Final = 10_000
_LEFT_BEHIND_MS: Final = 3_600_000
"""Words of the dead are removed after so long, by the next one who waits."""

_LOOK_S: Final = 0.25
_IDLE_LOOKS: Final = 40
_BODY_BYTES_MAX: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Waiter:
    """A process that waits for the table's lock, by its own word."""

    owner: str
    host: str
    pid: int
    since_epoch_ms: int
    until_epoch_ms: int
    """Its word is good until then: it says so again, unless it has died."""


def waiters(store: ObjectStore, now_epoch_ms: int) -> list[Waiter]:
    """Return who waits for the table's lock, the longest first. Raises: what the store raises."""
    found = []
    for meta in store.list(f"{WAITING_FOLDER}/"):
        held = store.get(meta.key, end=_BODY_BYTES_MAX)
        said = None if held is None else _decoded(held.body, meta.key)
        if said is not None and said.until_epoch_ms >= now_epoch_ms:
            found.append(said)
    return sorted(found, key=lambda waiter: waiter.since_epoch_ms)


@dataclass(slots=True)
class Waits:
    """The waits of one process for one table's lock.

    Everything is said by a thread beside it, so that nobody who has the lock is held up by words.
    """

    store: ObjectStore
    clock: Clock
    owner: str
    host: str
    pid: int
    _since: list[Now] = field(default_factory=list)
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _running: bool = False
    _over: threading.Event = field(default_factory=threading.Event)
    _said_ms: int | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Have it said if the block takes long."""
        since = self.clock.now()
        with self._mutex:
            self._since.append(since)
            if not self._running and not self._over.is_set():
                self._running = True
                start_thread("tidelock-txn-waits", self._run)
        try:
            yield
        finally:
            with self._mutex:
                self._since.remove(since)

    def close(self) -> None:
        """End the thread; it takes its word back first."""
        self._over.set()

    def look(self) -> bool:
        """Say what is to be said by now; return whether anybody waits or anything is said."""
        with self._mutex:
            since = min(self._since, key=lambda now: now.monotonic_ms, default=None)
        now = self.clock.now()
        try:
            if since is None:
                self._take_back()
            elif now.monotonic_ms - since.monotonic_ms >= SAID_AFTER_MS:
                self._say(since, now)
        except TidelockError as error:
            logger.debug("a wait for the table's lock was not said: %s", error)
        return since is not None or self._said_ms is not None

    def _say(self, since: Now, now: Now) -> None:
        if self._said_ms is not None and now.monotonic_ms - self._said_ms < _AGAIN_MS:
            return
        if self._said_ms is None:
            self._sweep(now)
        self._said_ms = now.monotonic_ms
        until_epoch_ms = now.wall_epoch_ms + GOOD_FOR_MS
        said = Waiter(self.owner, self.host, self.pid, since.wall_epoch_ms, until_epoch_ms)
        self.store.put(self._key, _encoded(said), Overwrite())

    def _take_back(self) -> None:
        if self._said_ms is not None:
            self.store.delete(self._key)
            self._said_ms = None

    def _sweep(self, now: Now) -> None:
        for meta in self.store.list(f"{WAITING_FOLDER}/"):
            if meta.modified_epoch_ms < now.wall_epoch_ms - _LEFT_BEHIND_MS:
                self.store.delete(meta.key)

    @property
    def _key(self) -> str:
        # Owners may be called anything.
        return f"{WAITING_FOLDER}/{hashlib.sha256(self.owner.encode()).hexdigest()[:32]}"

    def _run(self) -> None:
        idle = 0
        while not self._over.wait(_LOOK_S):
            idle = 0 if self.look() else idle + 1
            with self._mutex:
                if idle >= _IDLE_LOOKS and not self._since:
                    self._running = False
                    return
        with suppress(TidelockError):
            self._take_back()


def _encoded(waiter: Waiter) -> bytes:
    record = {
        "owner": waiter.owner,
        "host": waiter.host,
        "pid": waiter.pid,
        "since": waiter.since_epoch_ms,
        "until": waiter.until_epoch_ms,
    }
    return json.dumps(record, separators=(",", ":")).encode()


def _decoded(body: bytes, where: str) -> Waiter | None:
    try:
        fields = Fields.parse(body, where)
        return Waiter(
            fields.text("owner"),
            fields.text("host"),
            fields.whole("pid"),
            fields.whole("since"),
            fields.whole("until"),
        )
    except DataCorrupt:
        return None
