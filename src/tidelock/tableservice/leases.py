"""Leases of readers: a long query says from when on it needs the table's files, and a clean waits.

A courtesy, on which nothing rests. A query whose lease ran out, or was not seen by a clean that had
its plan already, fails with `NotFound` when it comes to a file that is gone; no query ever returns
fewer rows.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from tidelock.base.clock import Clock
from tidelock.base.config import ConfigKey, declare
from tidelock.base.errors import TidelockError
from tidelock.base.ids import IdSource
from tidelock.base.runtime import start_thread
from tidelock.store.contract import ObjectStore, Overwrite
from tidelock.table.cleaned import needed_since
from tidelock.table.snapshot import TableSnapshot

logger = logging.getLogger(__name__)

FOLDER: Final = ".hoodie/.tidelock/readers"
TTL_MS: Final = 600_000

LEASE_MS: Final = declare(
    ConfigKey(
        "tidelock.read.lease.ms",
        int,
        default=0,
        doc="how long a clean of ours keeps what an open table reads, after its reader was last"
        " heard of; it is renewed while the table is open. 0 for not at all",
        group="Table services",
    )
)


@dataclass(frozen=True, slots=True)
class Lease:
    """What one reader needs: the table as it was at `since`, until a time."""

    key: str
    since: str
    until_epoch_ms: int


def leases(store: ObjectStore) -> Iterator[Lease]:
    """Yield every lease of a table, those that ran out included. Others' objects are left alone."""
    for meta in store.list(f"{FOLDER}/"):
        found = store.get(meta.key)
        if found is None:
            continue
        try:
            says = json.loads(found.body)
            yield Lease(meta.key, str(says["since"]), int(says["until_epoch_ms"]))
        except (ValueError, KeyError, TypeError):
            logger.warning("%s/%s is no lease of a reader", store.uri, meta.key)


def leased_since(store: ObjectStore, clock: Clock) -> str | None:
    """Return the earliest instant that a live reader needs; leases that ran out are removed."""
    now_epoch_ms = clock.now().wall_epoch_ms
    needed: list[str] = []
    for lease in leases(store):
        if lease.until_epoch_ms >= now_epoch_ms:
            needed.append(lease.since)
        else:
            store.delete(lease.key)
    return min(needed, default=None)


class ReaderLease:
    """Holds a lease and renews it, until the block is left.

    Does not guarantee anything: see the module.
    """

    def __init__(
        self,
        store: ObjectStore,
        snapshot: TableSnapshot,
        *,
        clock: Clock,
        ids: IdSource,
        ttl_ms: int = TTL_MS,
    ) -> None:
        """Ask for the files of a snapshot to stay."""
        self._store = store
        self._clock = clock
        self._ttl_ms = max(1, ttl_ms)
        self.since = needed_since(snapshot.timeline)
        self.key = f"{FOLDER}/{ids.uuid()}.json"
        self._over = threading.Event()
        self._join: Callable[[], None] | None = None

    def begin(self) -> None:
        """Say what is needed, and keep saying it."""
        self.renew()
        self._join = start_thread("tidelock-read-lease", self._keep).join

    def end(self) -> None:
        """Let a clean go on; what goes wrong ends when the lease runs out."""
        self._over.set()
        if self._join is not None:
            self._join()
        try:
            self._store.delete(self.key)
        except TidelockError as problem:
            logger.info("%s/%s was left to run out: %s", self._store.uri, self.key, problem)

    def __enter__(self) -> Self:
        """Begin."""
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self.end()

    def renew(self) -> None:
        """Say once more what is needed. What goes wrong is told in the log: reading goes on."""
        until = self._clock.now().wall_epoch_ms + self._ttl_ms
        body = json.dumps({"since": self.since, "until_epoch_ms": until}).encode()
        try:
            self._store.put(self.key, body, Overwrite())
        except TidelockError as problem:
            logger.info("%s/%s was not renewed: %s", self._store.uri, self.key, problem)

    def _keep(self) -> None:
        while not self._over.wait(self._ttl_ms / 3_000):
            self.renew()
