"""The line before the ledger: a courtesy of writers on one machine, with an end to every wait."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.unit.doubles import ManualClock
from tests.unit.txn.bench import Bench, draft
from tidelock.store.contract import Create
from tidelock.store.local import LocalStore
from tidelock.store.memory import MemoryStore
from tidelock.table.properties_file import KEY as PROPERTIES
from tidelock.table.timeline.instant import parse_time
from tidelock.txn.draft import Committed
from tidelock.txn.lining import KEEPING_KEY, LINE_KEY, Line


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Return a folder that looks like a table's."""
    made = LocalStore(tmp_path)
    made.put(PROPERTIES, b"hoodie.table.name=t\n", Create())
    return made


def _taken(path: Path) -> int:
    """Stand in the line, as another process would."""
    handle = os.open(path / LINE_KEY, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def test_one_at_a_time_goes_through(store: LocalStore, tmp_path: Path) -> None:
    clock = ManualClock()
    line = Line(store, clock)
    with line.held():
        handle = os.open(tmp_path / LINE_KEY, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
    assert clock.slept_ms == []
    os.close(_taken(tmp_path))


def test_who_waited_in_vain_does_not_wait_again_for_a_while(
    store: LocalStore, tmp_path: Path
) -> None:
    clock = ManualClock()
    line = Line(store, clock)
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


def test_what_another_process_is_at_is_left_to_it_once(store: LocalStore, tmp_path: Path) -> None:
    line = Line(store, ManualClock(), KEEPING_KEY)
    with line.unless_taken() as mine:
        assert mine
    other = os.open(tmp_path / KEEPING_KEY, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    seen = []
    for _ in range(3):
        with line.unless_taken() as mine:
            seen.append(mine)
    os.close(other)
    assert seen == [False, True, False], "whoever is at it may be a stopped process"
    with line.unless_taken() as mine:
        assert mine


def test_elsewhere_than_in_a_folder_nothing_is_left_to_others() -> None:
    store = MemoryStore("table")
    with Line(store, ManualClock(), KEEPING_KEY).unless_taken() as mine:
        assert mine
    assert store.head(KEEPING_KEY) is None


def test_elsewhere_than_in_a_folder_there_is_no_line() -> None:
    store = MemoryStore("table")
    line = Line(store, ManualClock())
    assert not line.is_here
    with line.held():
        pass
    assert store.head(LINE_KEY) is None


def test_a_writer_without_others_does_not_line_up() -> None:
    bench = Bench()
    alone = bench.writer()
    bench.commit_one(alone, "a")
    seen = [alone.is_crowded]
    bench.commit_one(bench.writer(), "b")
    alone.ledger.refresh()
    seen.append(alone.is_crowded)
    bench.clock.advance(3_000)
    seen.append(alone.is_crowded)
    assert seen == [False, True, False]


def test_a_begin_that_others_overtake_takes_a_time_ahead_of_the_clock() -> None:
    """C43, C44: the time is later than all that was read, and nobody else's; nothing more."""
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
    assert transaction.instant > slow.ledger.fold.time
    ahead_ms = parse_time(transaction.instant) - bench.clock.now().wall_epoch_ms
    assert 0 < ahead_ms <= 64
    assert isinstance(transaction.commit(draft(touched=("b",))), Committed)
    assert len(bench.completed()) == 3
