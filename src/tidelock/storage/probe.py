"""A probe of the conditional writes of a store, before any lock on it is trusted.

Many S3-compatible servers ignore `If-None-Match` or `If-Match`, or check and write in two steps; on
them every contender wins. The probe tests conditions in sequence and in a race. Its result is
stored as an object, so that the next process only reads it.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable

from tidelock.core.clock import Clock
from tidelock.core.errors import StoreUnreachable, StoreUnsafe, TidelockError
from tidelock.core.ids import IdSource
from tidelock.core.outcome import Landed
from tidelock.core.system import SystemClock, SystemIds
from tidelock.core.threads import worker_pool
from tidelock.storage.contract import (
    Busy,
    Create,
    Match,
    ObjectStore,
    Overwrite,
    PutMode,
    PutReply,
    Refused,
    Unclear,
)

PROOF_KEY = ".hoodie/.locks/.tidelock-proof.json"
_SCRATCH = ".hoodie/.locks/.tidelock-probe"
_RACERS = 6
_ROUNDS = 2
_TRIES = 5

_safe: set[str] = set()
_probing: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def ensure_safe(
    store: ObjectStore, *, clock: Clock | None = None, ids: IdSource | None = None
) -> None:
    """Probe `store`, unless a process has done so before. Raises: `StoreUnsafe`."""
    # A mutex per store: a store that stalls does not block the others.
    with _probing[store.identity]:
        if store.identity in _safe:
            return
        if not _has_proof(store):
            probe_store(store, clock=clock, ids=ids)
            body = json.dumps({"store": store.identity, "conditions": "honoured"}).encode()
            store.put(PROOF_KEY, body, Overwrite())
        _safe.add(store.identity)


def _has_proof(store: ObjectStore) -> bool:
    found = store.get(PROOF_KEY)
    if found is None:
        return False
    try:
        proof = json.loads(found.body)
    except ValueError:
        return False
    # The same bucket behind another gateway is another store.
    return isinstance(proof, dict) and proof.get("store") == store.identity


def probe_store(
    store: ObjectStore, *, clock: Clock | None = None, ids: IdSource | None = None
) -> None:
    """Test every condition on scratch objects. Raises: `StoreUnsafe` naming the ignored one."""
    run = _Probe(store, clock or SystemClock(), ids or SystemIds())
    try:
        run.in_sequence()
        for _ in range(_ROUNDS):
            run.racing()
    finally:
        run.clean_up()


class _Probe:
    def __init__(self, store: ObjectStore, clock: Clock, ids: IdSource) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._keys: list[str] = []

    def in_sequence(self) -> None:
        key = self._key()
        first = self._landed(key, b"1", Create())
        self._refused(key, b"2", Create(), "created an object that exists (If-None-Match)")
        second = self._landed(key, b"3", Match(first))
        if first == second:
            raise StoreUnsafe(f"{self._store.uri} gave two writes the same version", hint=_HINT)
        self._refused(key, b"4", Match(first), "replaced an object on a stale version (If-Match)")
        found = self._store.get(key)
        if found is None or found.body != b"3" or found.version != second:
            raise StoreUnsafe(f"{self._store.uri} does not read back what it wrote", hint=_HINT)
        self._refused(self._key(), b"5", Match(second), "matched an object that does not exist")

    def racing(self) -> None:
        key = self._key()
        self._one_winner(key, Create(), "creates")
        found = self._store.get(key)
        if found is None:
            raise StoreUnsafe(f"{self._store.uri} lost an object that it created", hint=_HINT)
        self._one_winner(key, Match(found.version), "replacements of one version")

    def clean_up(self) -> None:
        for key in self._keys:
            try:
                self._store.delete(key)
            except TidelockError:
                # Scratch objects have no effect; the result of the probe matters more.
                continue

    def _one_winner(self, key: str, mode: PutMode, what: str) -> None:
        start = threading.Barrier(_RACERS)
        bodies = [f"{number} {self._ids.uuid()}".encode() for number in range(_RACERS)]

        def race(body: bytes) -> PutReply:
            start.wait()
            return self._store.put(key, body, mode)

        with worker_pool("probe", _RACERS) as pool:
            replies = list(pool.map(race, bodies))
        winners = sum(isinstance(reply, Landed) for reply in replies)
        unclear = sum(isinstance(reply, Unclear) for reply in replies)
        if winners > 1:
            raise StoreUnsafe(
                f"{self._store.uri} accepted {winners} of {_RACERS} concurrent {what}", hint=_HINT
            )
        if winners == 0 and not unclear:
            self._landed(key, b"after the race " + self._ids.uuid().encode(), mode)

    def _landed(self, key: str, body: bytes, mode: PutMode) -> str:
        reply = self._reply(key, body, mode)
        if isinstance(reply, Landed):
            return reply.version
        raise StoreUnsafe(
            f"{self._store.uri} refused a write whose condition holds ({mode})", hint=_HINT
        )

    def _refused(self, key: str, body: bytes, mode: PutMode, violation: str) -> None:
        if not isinstance(self._reply(key, body, mode), Refused):
            raise StoreUnsafe(f"{self._store.uri} {violation}", hint=_HINT)

    def _reply(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        return definite_reply(
            lambda: self._store.put(key, body, mode), self._clock, self._store.uri
        )

    def _key(self) -> str:
        key = f"{_SCRATCH}/{self._ids.uuid()}"
        self._keys.append(key)
        return key


def definite_reply(put: Callable[[], PutReply], clock: Clock, uri: str) -> PutReply:
    """Return the first definite reply; retry a busy store. Raises: `StoreUnreachable`."""
    for attempt in range(_TRIES):
        match put():
            case Busy(retry_after_ms):
                clock.sleep_ms(max(retry_after_ms or 0, 100 * 2**attempt))
            case Unclear(cause):
                raise StoreUnreachable(f"cannot probe {uri}: {cause}", hint="try again")
            case reply:
                return reply
    raise StoreUnreachable(f"cannot probe {uri}: the store stays busy", hint="retry later")


_HINT = (
    "a lock on this store would be granted to several owners at once; use a store with atomic"
    " conditional writes, or upgrade the server"
)
