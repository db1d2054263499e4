"""The probe: a store that ignores conditions is refused, and a successful probe is remembered."""

from __future__ import annotations

import os
import threading
import time

import pytest

from tests.unit.doubles import ManualClock, ScriptedStore, answer
from tidelock.core.errors import StoreUnreachable, StoreUnsafe
from tidelock.core.outcome import Landed
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.storage.contract import (
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
from tidelock.storage.memory import MemoryStore
from tidelock.storage.probe import PROOF_KEY, ensure_safe, probe_store


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
    """Checks the condition, yields, and writes: two steps instead of one."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        found = self.get(key)
        if isinstance(mode, Create) and found is not None:
            return Refused()
        if isinstance(mode, Match) and (found is None or found.version != mode.version):
            return Refused()
        time.sleep(0.02)  # widens the race
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
    (ChecksThenActs, "concurrent creates"),
    (OneVersionForAll, "the same version"),
    (ReadsAnotherVersion, "read back"),
    (ReadsOldBytes, "read back"),
]


@pytest.mark.parametrize(("liar", "says"), LIARS)
def test_nonconforming_store_is_refused_with_its_violation(
    liar: type[MemoryStore], says: str
) -> None:
    store = liar(fresh())
    with pytest.raises(StoreUnsafe, match=says) as raised:
        probe_store(store)
    assert store.uri in str(raised.value)
    assert "several owners" in raised.value.hint


def test_conforming_store_passes_and_is_left_clean() -> None:
    store = MemoryStore(fresh())
    probe_store(store)
    assert list(store.list("")) == []


def test_refused_store_is_left_clean_too() -> None:
    store = IgnoresMatch(fresh())
    with pytest.raises(StoreUnsafe):
        probe_store(store)
    assert list(store.list("")) == []


def test_lock_on_a_nonconforming_store_is_never_granted() -> None:
    lock = Lock(ChecksThenActs(fresh()), Lease(validity_ms=10_000, renew_ms=1_000))
    with pytest.raises(StoreUnsafe):
        lock.acquire(5)
    with pytest.raises(StoreUnsafe):
        lock.try_acquire()


def test_probe_result_is_remembered_in_the_process() -> None:
    verbs: list[str] = []
    store = MemoryStore(fresh(), observe=verbs.append)
    ensure_safe(store)
    assert verbs.count("put") > 10
    verbs.clear()
    ensure_safe(store)
    assert verbs == []


def test_probe_result_is_remembered_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs: list[str] = []
    store = MemoryStore(fresh(), observe=verbs.append)
    ensure_safe(store)
    forget(monkeypatch)
    verbs.clear()
    ensure_safe(store)
    assert verbs == ["get"]


@pytest.mark.parametrize("proof", [b"not json", b"[]", b'{"uri":"s3://another/gateway"}'])
def test_probe_result_of_another_store_is_ignored(
    monkeypatch: pytest.MonkeyPatch, proof: bytes
) -> None:
    store = IgnoresMatch(fresh())
    store.put(PROOF_KEY, proof, Overwrite())
    forget(monkeypatch)
    with pytest.raises(StoreUnsafe):
        ensure_safe(store)


def test_unclear_reply_neither_passes_nor_refuses_the_store() -> None:
    store = ScriptedStore(MemoryStore(fresh()))
    store.puts.append(answer(Unclear("reset")))
    with pytest.raises(StoreUnreachable, match="reset"):
        ensure_safe(store)
    ensure_safe(store)


def test_busy_store_is_probed_again_later() -> None:
    clock = ManualClock()
    store = ScriptedStore(MemoryStore(fresh()))
    store.puts.append(answer(Busy(3_000)))
    probe_store(store, clock=clock)
    assert clock.slept_ms[0] >= 3_000


def test_concurrent_threads_probe_once() -> None:
    verbs: list[str] = []
    store = MemoryStore(fresh(), observe=verbs.append)
    threads = [threading.Thread(target=ensure_safe, args=(store,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone: list[str] = []
    ensure_safe(MemoryStore(fresh(), observe=alone.append))
    assert verbs.count("put") == alone.count("put")


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a process that has probed nothing yet."""
    monkeypatch.setattr("tidelock.storage.probe._safe", set())
