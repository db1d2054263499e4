"""The probe: a store that ignores conditions is refused, and a proof is remembered."""

from __future__ import annotations

import os
import threading
import time

import pytest

from tests.unit.doubles import ManualClock, ScriptedStore, answer
from tidelock.base.errors import StoreUnreachable, StoreUnsafe
from tidelock.base.outcome import Landed
from tidelock.lock.driver import Lock
from tidelock.lock.lease import Lease
from tidelock.store.contract import (
    Busy,
    Create,
    Match,
    Overwrite,
    PutMode,
    PutReply,
    Refused,
    StoredObject,
    Unclear,
)
from tidelock.store.memory import MemoryStore
from tidelock.store.probe import PROOF_KEY, ensure_proven, prove


def fresh() -> str:
    return f"probe-{os.urandom(8).hex()}"


class IgnoresCreate(MemoryStore):
    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        return super().put(key, body, Overwrite() if isinstance(mode, Create) else mode)


class IgnoresMatch(MemoryStore):
    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        return super().put(key, body, Overwrite() if isinstance(mode, Match) else mode)


class MatchesTheAbsent(MemoryStore):
    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        absent = isinstance(mode, Match) and self.get(key) is None
        return super().put(key, body, Overwrite() if absent else mode)


class RefusesEverything(MemoryStore):
    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        return Refused()


class ChecksThenActs(MemoryStore):
    """Checks the condition, looks away, and writes: two steps where there must be one."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        found = self.get(key)
        if isinstance(mode, Create) and found is not None:
            return Refused()
        if isinstance(mode, Match) and (found is None or found.version != mode.version):
            return Refused()
        time.sleep(0.02)
        return super().put(key, body, Overwrite())


class OneVersionForAll(MemoryStore):
    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        reply = super().put(key, body, Overwrite() if isinstance(mode, Match) else mode)
        return Landed("1") if isinstance(reply, Landed) else reply


class ReadsAnotherVersion(MemoryStore):
    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        found = super().get(key, start=start, end=end)
        return found and StoredObject(found.body, f"W/{found.version}", found.modified_epoch_ms)


class ReadsOldBytes(MemoryStore):
    """A cache in between: reads lag one write behind."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._before: dict[str, StoredObject | None] = {}

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        before = super().get(key)
        reply = super().put(key, body, mode)
        if isinstance(reply, Landed):
            self._before[key] = before
        return reply

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        return self._before.get(key) or super().get(key, start=start, end=end)


LIARS = [
    (IgnoresCreate, "If-None-Match"),
    (IgnoresMatch, "If-Match"),
    (MatchesTheAbsent, "does not exist"),
    (RefusesEverything, "refused a write"),
    (ChecksThenActs, "racing creates"),
    (OneVersionForAll, "one version"),
    (ReadsAnotherVersion, "read back"),
    (ReadsOldBytes, "read back"),
]


@pytest.mark.parametrize(("liar", "says"), LIARS)
def test_a_store_that_lies_is_refused_by_name_and_sin(liar: type[MemoryStore], says: str) -> None:
    store = liar(fresh())
    with pytest.raises(StoreUnsafe, match=says) as raised:
        prove(store)
    assert store.uri in str(raised.value)
    assert "several owners" in raised.value.hint


def test_an_honest_store_is_proven_and_left_clean() -> None:
    store = MemoryStore(fresh())
    prove(store)
    assert list(store.list("")) == []


def test_a_store_that_was_refused_is_left_clean_too() -> None:
    store = IgnoresMatch(fresh())
    with pytest.raises(StoreUnsafe):
        prove(store)
    assert list(store.list("")) == []


def test_a_lock_on_a_store_that_lies_is_never_granted() -> None:
    lock = Lock(ChecksThenActs(fresh()), Lease(validity_ms=10_000, renew_ms=1_000))
    with pytest.raises(StoreUnsafe):
        lock.acquire(5)
    with pytest.raises(StoreUnsafe):
        lock.try_acquire()


def test_a_proof_is_remembered_in_the_process() -> None:
    verbs: list[str] = []
    store = MemoryStore(fresh(), observe=verbs.append)
    ensure_proven(store)
    assert verbs.count("put") > 10
    verbs.clear()
    ensure_proven(store)
    assert verbs == []


def test_a_proof_is_remembered_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs: list[str] = []
    store = MemoryStore(fresh(), observe=verbs.append)
    ensure_proven(store)
    forget(monkeypatch)
    verbs.clear()
    ensure_proven(store)
    assert verbs == ["get"]


@pytest.mark.parametrize("proof", [b"not json", b"[]", b'{"uri":"s3://another/gateway"}'])
def test_a_proof_of_something_else_is_no_proof(
    monkeypatch: pytest.MonkeyPatch, proof: bytes
) -> None:
    store = IgnoresMatch(fresh())
    store.put(PROOF_KEY, proof, Overwrite())
    forget(monkeypatch)
    with pytest.raises(StoreUnsafe):
        ensure_proven(store)


def test_a_store_that_gives_no_clear_answer_is_neither_proven_nor_refused() -> None:
    store = ScriptedStore(MemoryStore(fresh()))
    store.puts.append(answer(Unclear("reset")))
    with pytest.raises(StoreUnreachable, match="reset"):
        ensure_proven(store)
    ensure_proven(store)


def test_a_busy_store_is_asked_again_later() -> None:
    clock = ManualClock()
    store = ScriptedStore(MemoryStore(fresh()))
    store.puts.append(answer(Busy(3_000)))
    prove(store, clock=clock)
    assert clock.slept_ms[0] >= 3_000


def test_threads_that_ask_at_once_prove_once() -> None:
    verbs: list[str] = []
    store = MemoryStore(fresh(), observe=verbs.append)
    threads = [threading.Thread(target=ensure_proven, args=(store,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone: list[str] = []
    ensure_proven(MemoryStore(fresh(), observe=alone.append))
    assert verbs.count("put") == alone.count("put")


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a process that has proven nothing yet."""
    monkeypatch.setattr("tidelock.store.probe._proven", set())
