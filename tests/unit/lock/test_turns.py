"""Threads of one process look at a lock one at a time, in order of arrival."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tidelock.base.clock import SystemClock
from tidelock.lock.driver import Lock
from tidelock.lock.lease import Lease
from tidelock.lock.turns import Turns
from tidelock.store.memory import MemoryStore

CLOCK = SystemClock()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


def test_turns_are_taken_in_order_of_arrival() -> None:
    turns, order = Turns(), []

    def look(number: int) -> None:
        with turns.wait("orders", None, CLOCK):
            order.append(number)

    with turns.wait("orders", None, CLOCK):
        threads = []
        for number in range(5):
            threads.append(threading.Thread(target=look, args=(number,)))
            threads[-1].start()
            _until(lambda expected=number + 2: turns.waiting("orders") == expected)  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]
    assert turns.waiting("orders") == 0


def test_a_wait_that_runs_out_in_the_queue_still_ends_with_one_look() -> None:
    turns = Turns()
    with turns.wait("orders", None, CLOCK), turns.wait("orders", 5, CLOCK) as left_ms:
        assert left_ms == 0


def test_different_locks_do_not_wait_for_each_other() -> None:
    turns = Turns()
    with turns.wait("orders", None, CLOCK), turns.wait("lines", 1_000, CLOCK) as left_ms:
        assert left_ms is not None
        assert left_ms > 0


def test_of_many_waiting_threads_one_polls_the_store() -> None:
    looks: list[str] = []
    store = MemoryStore(observe=lambda verb: looks.append(threading.current_thread().name))
    lease = Lease(validity_ms=10_000, renew_ms=1_000)
    holder = Lock(store, lease, probe=False)
    holder.acquire()
    waiters = [
        threading.Thread(target=Lock(store, lease, probe=False).acquire, name=f"waiter-{number}")
        for number in range(4)
    ]
    looks.clear()
    for waiter in waiters:
        waiter.start()
    _until(lambda: len(looks) >= 5)
    assert len({name for name in looks if name.startswith("waiter-")}) == 1
    # L12: an owner asks again although somebody else has the turn.
    assert holder.acquire() == holder.token
    holder.release()


def test_a_forked_child_starts_with_empty_queues() -> None:
    turns = Turns()
    with turns.wait("orders", None, CLOCK):
        turns._forget()
        assert turns.waiting("orders") == 0
        with turns.wait("orders", 1_000, CLOCK) as left_ms:
            assert left_ms is not None
