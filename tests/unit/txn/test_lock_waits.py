"""C103: a process that waits for a lock without a queue announces it, and withdraws that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.program import eventually
from tests.unit.doubles import ManualClock
from tidelock.storage.contract import Overwrite
from tidelock.storage.memory import MemoryStore
from tidelock.txn.queueing import PUBLISH_AFTER_MS, VALID_FOR_MS, WAITING_FOLDER, LockWaits, waiters


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands still."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """Return an empty store."""
    return MemoryStore("waited-for", clock=clock)


@pytest.fixture
def waits(store: MemoryStore, clock: ManualClock) -> Iterator[LockWaits]:
    """Return the waits of a process."""
    made = LockWaits(store, clock, "orders / hourly", "host-1", 42)
    yield made
    made.close()


def _now(clock: ManualClock) -> int:
    return clock.now().wall_epoch_ms


def test_long_wait_is_announced_and_withdrawn(
    waits: LockWaits, store: MemoryStore, clock: ManualClock
) -> None:
    began = _now(clock)
    with waits.waiting():
        clock.advance(PUBLISH_AFTER_MS)
        eventually(lambda: bool(waiters(store, _now(clock))), within_s=30)
        (waiter,) = waiters(store, _now(clock))
        assert (waiter.owner, waiter.host, waiter.pid) == ("orders / hourly", "host-1", 42)
        assert waiter.since_epoch_ms == began
    eventually(lambda: not list(store.list(WAITING_FOLDER)), within_s=30)


def test_short_wait_is_not_announced(
    waits: LockWaits, store: MemoryStore, clock: ManualClock
) -> None:
    with waits.waiting():
        clock.advance(PUBLISH_AFTER_MS - 1)
        assert waits.poll()
    assert list(store.list(WAITING_FOLDER)) == []


def test_announcement_is_renewed_during_the_wait_and_expired_ones_are_ignored(
    waits: LockWaits, store: MemoryStore, clock: ManualClock
) -> None:
    with waits.waiting():
        clock.advance(PUBLISH_AFTER_MS)
        eventually(lambda: bool(waiters(store, _now(clock))), within_s=30)
        clock.advance(VALID_FOR_MS)
        eventually(lambda: bool(waiters(store, _now(clock) + VALID_FOR_MS)), within_s=30)
        assert waiters(store, _now(clock) + VALID_FOR_MS + 1) == []


def test_leftovers_of_dead_waiters_are_deleted_by_the_next_one(
    waits: LockWaits, store: MemoryStore, clock: ManualClock
) -> None:
    store.put(f"{WAITING_FOLDER}/dead", b"no JSON", Overwrite())
    assert waiters(store, _now(clock)) == []
    clock.advance(4_000_000)
    with waits.waiting():
        clock.advance(PUBLISH_AFTER_MS)
        eventually(lambda: bool(waiters(store, _now(clock))), within_s=30)
        (left,) = store.list(WAITING_FOLDER)
        assert left.key != f"{WAITING_FOLDER}/dead"
