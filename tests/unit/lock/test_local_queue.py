"""Threads of one process poll a lock one at a time, in order of arrival."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tidelock.core.system import SystemClock
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.lock.local_queue import LocalQueues
from tidelock.storage.memory import MemoryStore

CLOCK = SystemClock()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


def test_queue_is_served_in_order_of_arrival() -> None:
    queues, order = LocalQueues(), []

    def poll(number: int) -> None:
        with queues.wait("orders", None, CLOCK):
            order.append(number)

    with queues.wait("orders", None, CLOCK):
        threads = []
        for number in range(5):
            threads.append(threading.Thread(target=poll, args=(number,)))
            threads[-1].start()
            _until(lambda expected=number + 2: queues.waiting("orders") == expected)  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]
    assert queues.waiting("orders") == 0


def test_wait_that_expires_in_the_queue_still_polls_once() -> None:
    queues = LocalQueues()
    with queues.wait("orders", None, CLOCK), queues.wait("orders", 5, CLOCK) as left_ms:
        assert left_ms == 0


def test_different_locks_do_not_wait_for_each_other() -> None:
    queues = LocalQueues()
    with queues.wait("orders", None, CLOCK), queues.wait("lines", 1_000, CLOCK) as left_ms:
        assert left_ms is not None
        assert left_ms > 0


def test_one_of_many_waiting_threads_polls_the_store() -> None:
    requests: list[str] = []
    store = MemoryStore(observe=lambda verb: requests.append(threading.current_thread().name))
    lease = Lease(validity_ms=60_000, renew_ms=1_000)
    holder = Lock(store, lease, probe=False)
    holder.acquire()

    def wait() -> None:
        with Lock(store, lease, probe=False):
            pass

    waiters = [threading.Thread(target=wait, name=f"waiter-{number}") for number in range(4)]
    requests.clear()
    for waiter in waiters:
        waiter.start()
    _until(lambda: len(requests) >= 5)
    assert len({name for name in requests if name.startswith("waiter-")}) == 1
    # L12: an owner acquires again although another thread is first in the queue.
    assert holder.acquire() == holder.token
    holder.release()
    for waiter in waiters:
        waiter.join(60)
    assert not any(waiter.is_alive() for waiter in waiters)


def test_forked_child_starts_with_empty_queues() -> None:
    queues = LocalQueues()
    with queues.wait("orders", None, CLOCK):
        queues._reset()
        assert queues.waiting("orders") == 0
        with queues.wait("orders", 1_000, CLOCK) as left_ms:
            assert left_ms is not None
