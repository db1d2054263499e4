"""C103: who waits for a lock without a queue says so, and takes it back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ops.program import eventually
from tests.unit.doubles import ManualClock
from tidelock.store.contract import Overwrite
from tidelock.store.memory import MemoryStore
from tidelock.txn.waits import GOOD_FOR_MS, SAID_AFTER_MS, WAITING_FOLDER, Waits, waiters


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands still."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """Return an empty store."""
    return MemoryStore("waited-for", clock=clock)


@pytest.fixture
def waits(store: MemoryStore, clock: ManualClock) -> Iterator[Waits]:
    """Return the waits of a process."""
    made = Waits(store, clock, "orders / hourly", "host-1", 42)
    yield made
    made.close()


def _now(clock: ManualClock) -> int:
    return clock.now().wall_epoch_ms


def test_a_long_wait_is_said_and_taken_back(
    waits: Waits, store: MemoryStore, clock: ManualClock
) -> None:
    began = _now(clock)
    with waits.waiting():
        clock.advance(SAID_AFTER_MS)
        eventually(lambda: bool(waiters(store, _now(clock))), within_s=30)
        (said,) = waiters(store, _now(clock))
        assert (said.owner, said.host, said.pid) == ("orders / hourly", "host-1", 42)
        assert said.since_epoch_ms == began
    eventually(lambda: not list(store.list(WAITING_FOLDER)), within_s=30)


def test_a_short_wait_is_not_worth_a_word(
    waits: Waits, store: MemoryStore, clock: ManualClock
) -> None:
    with waits.waiting():
        clock.advance(SAID_AFTER_MS - 1)
        assert waits.look()
    assert list(store.list(WAITING_FOLDER)) == []


def test_a_word_is_renewed_while_the_wait_goes_on_and_the_dead_are_not_listened_to(
    waits: Waits, store: MemoryStore, clock: ManualClock
) -> None:
    with waits.waiting():
        clock.advance(SAID_AFTER_MS)
        eventually(lambda: bool(waiters(store, _now(clock))), within_s=30)
        clock.advance(GOOD_FOR_MS)
        eventually(lambda: bool(waiters(store, _now(clock) + GOOD_FOR_MS)), within_s=30)
        assert waiters(store, _now(clock) + GOOD_FOR_MS + 1) == []


def test_what_the_dead_left_is_swept_by_the_next_who_waits(
    waits: Waits, store: MemoryStore, clock: ManualClock
) -> None:
    store.put(f"{WAITING_FOLDER}/dead", b"no JSON", Overwrite())
    assert waiters(store, _now(clock)) == []
    clock.advance(4_000_000)
    with waits.waiting():
        clock.advance(SAID_AFTER_MS)
        eventually(lambda: bool(waiters(store, _now(clock))), within_s=30)
        (left,) = store.list(WAITING_FOLDER)
        assert left.key != f"{WAITING_FOLDER}/dead"
