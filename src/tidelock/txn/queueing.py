"""Queueing of writers: priority tickets, the local queue, and lock waits (C70-C73).

All of it is advisory and decides nothing. Without priority tickets, a writer with large batches may
conflict again and again with writers of small ones.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from tidelock.core.clock import Clock, Now
from tidelock.core.errors import DataCorrupt, TidelockError
from tidelock.core.threads import start_thread
from tidelock.hudi.file_groups import GroupId
from tidelock.hudi.properties import KEY as PROPERTIES
from tidelock.storage.contract import Create, ObjectStore, Overwrite
from tidelock.storage.local import file_queue
from tidelock.txn.effects import Pause, ReadClock, Steps
from tidelock.txn.footprint import Fields, JsonField, JsonRecord
from tidelock.txn.heartbeats import live_heartbeat
from tidelock.txn.ledger_io import forward
from tidelock.txn.state import LedgerState, View, WaitingWriter

_POLL_MS: Final = (2.0, 50.0)


@dataclass(frozen=True, slots=True)
class WriteSet:
    """The file groups and partitions that a writer is about to write."""

    owner: str
    groups: frozenset[GroupId] = frozenset()
    partitions: frozenset[str] = frozenset()

    def overlaps(self, ticket: WaitingWriter) -> bool:
        """Return whether a ticket is for the same file groups or partitions."""
        return bool(self.groups & ticket.groups or self.partitions & ticket.partitions)


def tickets_ahead(state: LedgerState, write_set: WriteSet) -> tuple[WaitingWriter, ...]:
    """Return the tickets that have priority over this writer, oldest first. Pure."""
    own = min(
        (ticket.position for ticket in state.tickets if ticket.owner == write_set.owner),
        default=None,
    )
    return tuple(
        ticket
        for ticket in state.tickets
        if ticket.owner != write_set.owner
        and write_set.overlaps(ticket)
        and (own is None or ticket.position < own)
    )


def wait(
    view: View, write_set: WriteSet, *, timeout_ms: int, default_lifetime_ms: int
) -> Steps[tuple[View, bool]]:
    """Wait while a live writer has priority; return False after `timeout_ms`."""
    now: Now = yield ReadClock()
    until_ms = now.monotonic_ms + timeout_ms
    pause_ms = _POLL_MS[0]
    while True:
        for ticket in tickets_ahead(view.state, write_set):
            if (yield from live_heartbeat(ticket.instant, default_lifetime_ms=default_lifetime_ms)):
                break
        else:
            return view, True
        now = yield ReadClock()
        if now.monotonic_ms >= until_ms:
            return view, False
        yield Pause(min(pause_ms, until_ms - now.monotonic_ms))
        pause_ms = min(_POLL_MS[1], pause_ms * 1.5)
        view = yield from forward(view)


QUEUE_KEY: Final = ".hoodie/.tidelock/line"
MAINTENANCE_QUEUE_KEY: Final = ".hoodie/.tidelock/keeping"
"""The queue of clean and archive."""

_WAIT_MS: Final = 2_000
_SKIP_MS: Final = 10_000
"""How long the queue is skipped after a wait that timed out, as behind a stopped process."""


@dataclass
class LocalQueue:
    """The queue of local writers in front of a table's ledger, as one process sees it."""

    store: ObjectStore
    clock: Clock
    key: str = QUEUE_KEY
    _skip_until_ms: int = 0
    _skipped: bool = False

    @cached_property
    def is_local(self) -> bool:
        """Whether the table is on a local file system, so that its writers can queue there."""
        return self.store.local_path(PROPERTIES) is not None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Run the block when it is this process's turn, or after a timeout."""
        if not self.is_local or self.clock.now().monotonic_ms < self._skip_until_ms:
            yield
            return
        with file_queue(self._path, wait_ms=_WAIT_MS, clock=self.clock) as mine:
            if not mine:
                self._skip_until_ms = self.clock.now().monotonic_ms + _SKIP_MS
            yield

    @contextmanager
    def try_enter(self) -> Iterator[bool]:
        """Yield whether to run the block: not if another process is running it.

        It is left to the other process once. If the queue is still taken the next time, the other
        process may be stopped.
        """
        if not self.is_local:
            yield True
            return
        with file_queue(self._path, wait_ms=0, clock=self.clock) as mine:
            self._skipped = not mine and not self._skipped
            yield not self._skipped

    @cached_property
    def _path(self) -> str | None:
        self.store.put(self.key, b"", Create(durable=False))
        return self.store.local_path(self.key)


logger = logging.getLogger(__name__)

WAITING_FOLDER: Final = ".hoodie/.tidelock/waiting"

PUBLISH_AFTER_MS: Final = 1_000
VALID_FOR_MS: Final = 30_000
_RENEW_MS: Final = 10_000
_STALE_MS: Final = 3_600_000
"""Records of dead processes are removed after this time, by the next process that waits."""

_POLL_S: Final = 0.25
_IDLE_POLLS: Final = 40
_BODY_BYTES_MAX: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class LockWaiter:
    """A process that waits for the table's lock, as recorded by itself."""

    owner: str
    host: str
    pid: int
    since_epoch_ms: int
    until_epoch_ms: int
    """The record is valid until then; a live process renews it."""


def waiters(store: ObjectStore, now_epoch_ms: int) -> list[LockWaiter]:
    """Return the processes waiting for the table's lock, longest wait first."""
    found: list[LockWaiter] = []
    for meta in store.list(f"{WAITING_FOLDER}/"):
        held = store.get(meta.key, end=_BODY_BYTES_MAX)
        if held is not None:
            with suppress(DataCorrupt):
                found.append(_WAITER.decode(Fields.parse(held.body, meta.key)))
    valid = (waiter for waiter in found if waiter.until_epoch_ms >= now_epoch_ms)
    return sorted(valid, key=lambda waiter: waiter.since_epoch_ms)


@dataclass(slots=True)
class LockWaits:
    """The waits of one process for a table's lock.

    A background thread publishes them, so that the holder of the lock is not delayed.
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
    _published_ms: int | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Record the wait if the block takes long."""
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
        """Stop the thread, which removes the record first."""
        self._over.set()

    def poll(self) -> bool:
        """Publish or remove the record as needed; return whether there is a wait or a record."""
        with self._mutex:
            since = min(self._since, key=lambda now: now.monotonic_ms, default=None)
        now = self.clock.now()
        try:
            if since is None:
                self._withdraw()
            elif now.monotonic_ms - since.monotonic_ms >= PUBLISH_AFTER_MS:
                self._publish(since, now)
        except TidelockError as error:
            logger.debug("a wait for the table's lock could not be recorded: %s", error)
        return since is not None or self._published_ms is not None

    def _publish(self, since: Now, now: Now) -> None:
        if self._published_ms is not None and now.monotonic_ms - self._published_ms < _RENEW_MS:
            return
        if self._published_ms is None:
            self._remove_stale(now)
        self._published_ms = now.monotonic_ms
        until_epoch_ms = now.wall_epoch_ms + VALID_FOR_MS
        waiter = LockWaiter(self.owner, self.host, self.pid, since.wall_epoch_ms, until_epoch_ms)
        body = json.dumps(_WAITER.encode(waiter), separators=(",", ":")).encode()
        self.store.put(self._key, body, Overwrite())

    def _withdraw(self) -> None:
        if self._published_ms is not None:
            self.store.delete(self._key)
            self._published_ms = None

    def _remove_stale(self, now: Now) -> None:
        for meta in self.store.list(f"{WAITING_FOLDER}/"):
            if meta.modified_epoch_ms < now.wall_epoch_ms - _STALE_MS:
                self.store.delete(meta.key)

    @property
    def _key(self) -> str:
        # Owners may contain any characters.
        return f"{WAITING_FOLDER}/{hashlib.sha256(self.owner.encode()).hexdigest()[:32]}"

    def _run(self) -> None:
        idle = 0
        while not self._over.wait(_POLL_S):
            idle = 0 if self.poll() else idle + 1
            with self._mutex:
                if idle >= _IDLE_POLLS and not self._since:
                    self._running = False
                    return
        with suppress(TidelockError):
            self._withdraw()


_WAITER: Final = JsonRecord(
    LockWaiter,
    JsonField("owner", Fields.text),
    JsonField("host", Fields.text),
    JsonField("pid", Fields.integer),
    JsonField("since", Fields.integer, attribute="since_epoch_ms"),
    JsonField("until", Fields.integer, attribute="until_epoch_ms"),
)
