"""Heartbeats are refreshed in the background, and never revived."""

from __future__ import annotations

import time

from tests.unit.doubles import ManualClock, ScriptedStore, answer, landing
from tidelock.base.outcome import Landed
from tidelock.store.contract import Create, Overwrite, StoredObject, Unclear
from tidelock.store.memory import MemoryStore
from tidelock.txn.beating import Beating
from tidelock.txn.heartbeat import Heartbeat, Pulse, encode, heartbeat_key, pulse_of

INSTANT = "20260101000000000"
BEAT = Heartbeat("me", 1, "nonce", 1_000, 3, 0, "UPSERT", "here", 7, markers=True)


def kept(store: MemoryStore | ScriptedStore) -> Beating:
    """Return the keeper of one heartbeat; nothing is refreshed unless told."""
    reply = store.put(heartbeat_key(INSTANT), encode(BEAT), Create())
    assert isinstance(reply, Landed)
    beating = Beating(store, 3_600_000)
    beating.keep(INSTANT, encode(BEAT), reply.version)
    return beating


def held(store: MemoryStore | ScriptedStore) -> StoredObject:
    """Return the heartbeat's object."""
    found = store.get(heartbeat_key(INSTANT))
    assert found is not None
    return found


def test_a_beat_makes_the_file_younger() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    beating = kept(store)
    before = held(store).modified_epoch_ms
    clock.advance(5_000)
    beating.beat()
    beating.beat()
    assert held(store).modified_epoch_ms == before + 5_000
    assert beating.lost(INSTANT) == ""
    beating.close()


def test_a_heartbeat_that_was_removed_is_not_written_again() -> None:
    store = MemoryStore()
    beating = kept(store)
    store.delete(heartbeat_key(INSTANT))
    beating.beat()
    assert store.get(heartbeat_key(INSTANT)) is None
    assert "removed" in beating.lost(INSTANT)
    beating.close()


def test_another_s_heartbeat_is_not_overwritten() -> None:
    store = MemoryStore()
    beating = kept(store)
    store.put(heartbeat_key(INSTANT), b"another", Overwrite())
    beating.beat()
    assert held(store).body == b"another"
    assert beating.lost(INSTANT)
    beating.close()


def test_a_lost_reply_is_no_lost_heartbeat() -> None:
    store = ScriptedStore(MemoryStore())
    beating = kept(store)
    store.puts.extend([landing(Unclear("reset")), None, answer(Unclear("reset")), None])
    for _ in range(4):
        beating.beat()
    assert beating.lost(INSTANT) == ""
    beating.close()


def test_the_thread_beats_by_itself_and_ends() -> None:
    store = MemoryStore()
    reply = store.put(heartbeat_key(INSTANT), encode(BEAT), Create())
    assert isinstance(reply, Landed)
    beating = Beating(store, 5)
    beating.keep(INSTANT, encode(BEAT), reply.version)
    deadline = time.monotonic() + 60
    while held(store).version == reply.version and time.monotonic() < deadline:
        time.sleep(0.005)
    assert held(store).version != reply.version
    beating.close()


def test_the_owner_s_own_word_says_how_long_it_counts_as_alive() -> None:
    now = 1_000_000
    pulse = Pulse(INSTANT, now - 3_000, BEAT)
    assert pulse.is_alive(now, otherwise_ms=1)
    assert not pulse.is_alive(now + 1, otherwise_ms=10**9)
    java = Pulse(INSTANT, now - 3_000)
    assert java.is_alive(now, otherwise_ms=3_000)
    assert not java.is_alive(now, otherwise_ms=2_999)


def test_a_body_that_is_not_ours_tells_only_its_age() -> None:
    for body in (b"", b"{", b"[]", b'{"owner":1}', b"x" * 100_000):
        assert pulse_of(INSTANT, StoredObject(body, "1", 5)) == Pulse(INSTANT, 5)
    assert pulse_of(INSTANT, StoredObject(encode(BEAT), "1", 5)).says == BEAT
