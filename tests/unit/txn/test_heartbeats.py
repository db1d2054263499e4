"""Heartbeats are refreshed in the background, and never revived."""

from __future__ import annotations

import time

from tests.unit.doubles import ManualClock, ScriptedStore, answer, landing
from tidelock.core.outcome import Landed
from tidelock.storage.contract import Create, Overwrite, StoredObject, Unclear
from tidelock.storage.memory import MemoryStore
from tidelock.txn.heartbeats import (
    Heartbeat,
    HeartbeatStatus,
    HeartbeatThread,
    encode,
    heartbeat_key,
    heartbeat_status,
)

INSTANT = "20260101000000000"
BEAT = Heartbeat("me", 1, "nonce", 1_000, 3, 0, "UPSERT", "here", 7, markers=True)


def remaining(store: MemoryStore | ScriptedStore) -> HeartbeatThread:
    """Return the keeper of one heartbeat; it refreshes only on request."""
    reply = store.put(heartbeat_key(INSTANT), encode(BEAT), Create())
    assert isinstance(reply, Landed)
    heartbeat_thread = HeartbeatThread(store, 3_600_000)
    heartbeat_thread.keep(INSTANT, encode(BEAT), reply.version)
    return heartbeat_thread


def held(store: MemoryStore | ScriptedStore) -> StoredObject:
    """Return the heartbeat's object."""
    found = store.get(heartbeat_key(INSTANT))
    assert found is not None
    return found


def test_refresh_updates_the_modification_time() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    heartbeat_thread = remaining(store)
    before = held(store).modified_epoch_ms
    clock.advance(5_000)
    heartbeat_thread.beat()
    heartbeat_thread.beat()
    assert held(store).modified_epoch_ms == before + 5_000
    assert heartbeat_thread.lost(INSTANT) == ""
    heartbeat_thread.close()


def test_removed_heartbeat_is_not_written_again() -> None:
    store = MemoryStore()
    heartbeat_thread = remaining(store)
    store.delete(heartbeat_key(INSTANT))
    heartbeat_thread.beat()
    assert store.get(heartbeat_key(INSTANT)) is None
    assert "removed" in heartbeat_thread.lost(INSTANT)
    heartbeat_thread.close()


def test_heartbeat_of_another_writer_is_not_overwritten() -> None:
    store = MemoryStore()
    heartbeat_thread = remaining(store)
    store.put(heartbeat_key(INSTANT), b"another", Overwrite())
    heartbeat_thread.beat()
    assert held(store).body == b"another"
    assert heartbeat_thread.lost(INSTANT)
    heartbeat_thread.close()


def test_lost_reply_is_not_a_lost_heartbeat() -> None:
    store = ScriptedStore(MemoryStore())
    heartbeat_thread = remaining(store)
    store.puts.extend([landing(Unclear("reset")), None, answer(Unclear("reset")), None])
    for _ in range(4):
        heartbeat_thread.beat()
    assert heartbeat_thread.lost(INSTANT) == ""
    heartbeat_thread.close()


def test_thread_refreshes_by_itself_and_ends() -> None:
    store = MemoryStore()
    reply = store.put(heartbeat_key(INSTANT), encode(BEAT), Create())
    assert isinstance(reply, Landed)
    heartbeat_thread = HeartbeatThread(store, 5)
    heartbeat_thread.keep(INSTANT, encode(BEAT), reply.version)
    deadline = time.monotonic() + 60
    while held(store).version == reply.version and time.monotonic() < deadline:
        time.sleep(0.005)
    assert held(store).version != reply.version
    heartbeat_thread.close()


def test_owner_declares_its_own_heartbeat_lifetime() -> None:
    now = 1_000_000
    heartbeat = HeartbeatStatus(INSTANT, now - 3_000, BEAT)
    assert heartbeat.is_alive(now, default_lifetime_ms=1)
    assert not heartbeat.is_alive(now + 1, default_lifetime_ms=10**9)
    java = HeartbeatStatus(INSTANT, now - 3_000)
    assert java.is_alive(now, default_lifetime_ms=3_000)
    assert not java.is_alive(now, default_lifetime_ms=2_999)


def test_foreign_heartbeat_has_only_its_age() -> None:
    for body in (b"", b"{", b"[]", b'{"owner":1}', b"x" * 100_000):
        assert heartbeat_status(INSTANT, StoredObject(body, "1", 5)) == HeartbeatStatus(INSTANT, 5)
    assert heartbeat_status(INSTANT, StoredObject(encode(BEAT), "1", 5)).record == BEAT
