"""The advisory queue of writers on one machine: every wait is bounded."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.unit.doubles import ManualClock
from tests.unit.txn.bench import Bench, draft
from tidelock.hudi.properties import KEY as PROPERTIES
from tidelock.hudi.timeline.instant import parse_time
from tidelock.storage.contract import Create
from tidelock.storage.local import LocalStore
from tidelock.storage.memory import MemoryStore
from tidelock.txn.conflicts import Committed
from tidelock.txn.queueing import MAINTENANCE_QUEUE_KEY, QUEUE_KEY, LocalQueue


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Return a folder that looks like a table."""
    made = LocalStore(tmp_path)
    made.put(PROPERTIES, b"hoodie.table.name=t\n", Create())
    return made


def _taken(path: Path) -> int:
    """Enter the queue, as another process would."""
    handle = os.open(path / QUEUE_KEY, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def test_one_writer_at_a_time_passes(store: LocalStore, tmp_path: Path) -> None:
    clock = ManualClock()
    line = LocalQueue(store, clock)
    with line.held():
        handle = os.open(tmp_path / QUEUE_KEY, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
    assert clock.slept_ms == []
    os.close(_taken(tmp_path))


def test_writer_whose_wait_timed_out_skips_the_queue_for_a_while(
    store: LocalStore, tmp_path: Path
) -> None:
    clock = ManualClock()
    line = LocalQueue(store, clock)
    with line.held():
        pass
    stopped = _taken(tmp_path)
    with line.held():
        waited_ms = sum(clock.slept_ms)
    assert 2_000 <= waited_ms <= 2_100
    with line.held():
        assert sum(clock.slept_ms) == waited_ms, "a stopped process is waited for once"
    clock.advance(10_000)
    with line.held():
        assert sum(clock.slept_ms) > waited_ms
    os.close(stopped)


def test_work_of_another_process_is_skipped_once(store: LocalStore, tmp_path: Path) -> None:
    line = LocalQueue(store, ManualClock(), MAINTENANCE_QUEUE_KEY)
    with line.try_enter() as mine:
        assert mine
    other = os.open(tmp_path / MAINTENANCE_QUEUE_KEY, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    seen = []
    for _ in range(3):
        with line.try_enter() as mine:
            seen.append(mine)
    os.close(other)
    assert seen == [False, True, False], "whoever is at it may be a stopped process"
    with line.try_enter() as mine:
        assert mine


def test_nothing_is_skipped_outside_of_local_folders() -> None:
    store = MemoryStore("table")
    with LocalQueue(store, ManualClock(), MAINTENANCE_QUEUE_KEY).try_enter() as mine:
        assert mine
    assert store.head(MAINTENANCE_QUEUE_KEY) is None


def test_there_is_no_queue_outside_of_local_folders() -> None:
    store = MemoryStore("table")
    line = LocalQueue(store, ManualClock())
    assert not line.is_local
    with line.held():
        pass
    assert store.head(QUEUE_KEY) is None


def test_lone_writer_does_not_queue() -> None:
    bench = Bench()
    alone = bench.writer()
    bench.commit_one(alone, "a")
    seen = [alone.is_contended]
    bench.commit_one(bench.writer(), "b")
    alone.ledger.refresh()
    seen.append(alone.is_contended)
    bench.clock.advance(3_000)
    seen.append(alone.is_contended)
    assert seen == [False, True, False]


def test_begin_that_loses_its_time_takes_one_ahead_of_the_clock() -> None:
    """C43, C44: the time is later than every time read, and unique; nothing more."""
    bench = Bench()
    slow, busy = bench.writer(owner="slow"), bench.writer(owner="busy")
    slow.ledger.refresh()
    store = bench.store
    put, left = store.put, [3]

    def interrupted(key: str, body: bytes, mode: object) -> object:
        reply = put(key, body, mode)  # type: ignore[arg-type]
        if ".heartbeat/" in key and left[0] and b'"slow"' in body:
            left[0] -= 1
            bench.clock.advance(5)
            bench.commit_one(busy, "a")
        return reply

    store.put = interrupted  # type: ignore[method-assign, assignment]
    transaction = bench.begin(slow)
    store.put = put  # type: ignore[method-assign]
    assert left == [1], "the second time was far enough ahead of the others"
    assert transaction.instant > slow.ledger.state.time
    ahead_ms = parse_time(transaction.instant) - bench.clock.now().wall_epoch_ms
    assert 0 < ahead_ms <= 64
    assert isinstance(transaction.commit(draft(touched=("b",))), Committed)
    assert len(bench.completed()) == 3
