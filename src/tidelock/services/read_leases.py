"""Reader leases: a long query asks cleans to keep the files that it reads.

Leases are advisory. A query whose lease expired, or was not seen by a clean that was already
planned, fails with `NotFound` when it needs a deleted file. No query ever returns fewer rows.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Self

from tidelock.core.clock import Clock
from tidelock.core.errors import TidelockError
from tidelock.core.ids import IdSource
from tidelock.core.threads import start_thread
from tidelock.hudi.clean_history import oldest_needed_instant
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.storage.contract import ObjectStore, Overwrite

logger = logging.getLogger(__name__)

FOLDER: Final = ".hoodie/.tidelock/readers"
TTL_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The lease of one reader: it needs the files from `since` on, until the lease expires."""

    key: str
    since: str
    until_epoch_ms: int


def leases(store: ObjectStore) -> Iterator[LeaseRecord]:
    """Yield every lease of a table, including expired ones; skip objects that are not leases."""
    for meta in store.list(f"{FOLDER}/"):
        found = store.get(meta.key)
        if found is None:
            continue
        try:
            fields = json.loads(found.body)
            yield LeaseRecord(meta.key, str(fields["since"]), int(fields["until_epoch_ms"]))
        except (ValueError, KeyError, TypeError):
            logger.warning("%s/%s is not a reader lease and is ignored", store.uri, meta.key)


def leased_since(store: ObjectStore, clock: Clock) -> str | None:
    """Return the earliest instant that a live lease needs; delete expired leases."""
    now_epoch_ms = clock.now().wall_epoch_ms
    needed: list[str] = []
    for lease in leases(store):
        if lease.until_epoch_ms >= now_epoch_ms:
            needed.append(lease.since)
        else:
            store.delete(lease.key)
    return min(needed, default=None)


class ReaderLease:
    """A context manager that holds a lease and renews it in a thread.

    Does not guarantee that files are kept: leases are advisory.
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
        """Prepare a lease for the files of a snapshot."""
        self._store = store
        self._clock = clock
        self._ttl_ms = max(1, ttl_ms)
        self.since = oldest_needed_instant(snapshot.timeline)
        self.key = f"{FOLDER}/{ids.uuid()}.json"
        self._ended = threading.Event()
        self._join: Callable[[], None] | None = None

    def begin(self) -> None:
        """Write the lease, and start to renew it."""
        self.renew()
        self._join = start_thread("tidelock-read-lease", self._renew_until_ended).join

    def end(self) -> None:
        """Delete the lease. On failure it expires by itself."""
        self._ended.set()
        if self._join is not None:
            self._join()
        try:
            self._store.delete(self.key)
        except TidelockError as problem:
            logger.info(
                "%s/%s was not deleted and will expire: %s", self._store.uri, self.key, problem
            )

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def renew(self) -> None:
        """Extend the lease. A failure is logged, and reading goes on."""
        until = self._clock.now().wall_epoch_ms + self._ttl_ms
        body = json.dumps({"since": self.since, "until_epoch_ms": until}).encode()
        try:
            self._store.put(self.key, body, Overwrite())
        except TidelockError as problem:
            logger.info("%s/%s was not renewed: %s", self._store.uri, self.key, problem)

    def _renew_until_ended(self) -> None:
        while not self._ended.wait(self._ttl_ms / 3_000):
            self.renew()
