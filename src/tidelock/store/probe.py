"""Proof that a store honours conditions, before any lock on it is trusted.

Many S3-compatible servers ignore `If-None-Match` or `If-Match`, or check and write in two steps; on
them every contender is told that it won. The probe tries it: one after the other, then racing.
A proof is remembered in the store, so that the next process only reads it.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import StoreUnreachable, StoreUnsafe, TidelockError
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.outcome import Landed
from tidelock.base.runtime import worker_pool
from tidelock.store.contract import (
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

_proven: set[str] = set()
_proving: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def ensure_proven(
    store: ObjectStore, *, clock: Clock | None = None, ids: IdSource | None = None
) -> None:
    """Prove `store` unless this process, or another one before, has done so.

    Raises: `StoreUnsafe` when a condition was ignored.
    """
    # A lock for each store: one that stalls keeps nobody from using another.
    with _proving[store.identity]:
        if store.identity in _proven:
            return
        if not _has_proof(store):
            prove(store, clock=clock, ids=ids)
            body = json.dumps({"store": store.identity, "conditions": "honoured"}).encode()
            store.put(PROOF_KEY, body, Overwrite())
        _proven.add(store.identity)


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


def prove(store: ObjectStore, *, clock: Clock | None = None, ids: IdSource | None = None) -> None:
    """Try every condition on scratch objects of `store`.

    Raises: `StoreUnsafe` naming the condition that was ignored.
    """
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
            raise StoreUnsafe(f"{self._store.uri} gave two writes one version", hint=_HINT)
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
            raise StoreUnsafe(f"{self._store.uri} lost an object it had created", hint=_HINT)
        self._one_winner(key, Match(found.version), "replacements of one version")

    def clean_up(self) -> None:
        for key in self._keys:
            try:
                self._store.delete(key)
            except TidelockError:
                # Scratch objects are harmless; the finding matters more than the broom.
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
                f"{self._store.uri} let {winners} of {_RACERS} racing {what} win", hint=_HINT
            )
        if winners == 0 and not unclear:
            self._landed(key, b"after the race " + self._ids.uuid().encode(), mode)

    def _landed(self, key: str, body: bytes, mode: PutMode) -> str:
        reply = self._answered(key, body, mode)
        if isinstance(reply, Landed):
            return reply.version
        raise StoreUnsafe(
            f"{self._store.uri} refused a write whose condition holds ({mode})", hint=_HINT
        )

    def _refused(self, key: str, body: bytes, mode: PutMode, sin: str) -> None:
        if not isinstance(self._answered(key, body, mode), Refused):
            raise StoreUnsafe(f"{self._store.uri} {sin}", hint=_HINT)

    def _answered(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        return answered(lambda: self._store.put(key, body, mode), self._clock, self._store.uri)

    def _key(self) -> str:
        key = f"{_SCRATCH}/{self._ids.uuid()}"
        self._keys.append(key)
        return key


def answered(put: Callable[[], PutReply], clock: Clock, uri: str) -> PutReply:
    """Return the first clear answer: a busy store is asked again, an unclear one proves nothing."""
    for attempt in range(_TRIES):
        match put():
            case Busy(asked_ms):
                clock.sleep_ms(max(asked_ms or 0, 100 * 2**attempt))
            case Unclear(cause):
                raise StoreUnreachable(f"{uri} could not be probed: {cause}", hint="try again")
            case reply:
                return reply
    raise StoreUnreachable(f"{uri} could not be probed: it stays busy", hint="try again later")


_HINT = (
    "a lock on this store would be granted to several owners at once; use a store with atomic"
    " conditional writes, or upgrade the server"
)
