"""The pool of daemon threads."""

from __future__ import annotations

import threading
import time

from tidelock.core.threads import DaemonPool

PATIENCE_S = 60.0


def idle_pool(workers_max: int) -> DaemonPool:
    """Return a pool with one idle thread."""
    pool, ran = DaemonPool("test", workers_max), threading.Event()
    pool.submit(ran.set)
    assert ran.wait(PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while pool._idle == 0 and time.monotonic() < until:
        time.sleep(0.001)
    assert pool._idle == 1
    return pool


def test_stalled_task_does_not_delay_the_one_submitted_with_it() -> None:
    pool = idle_pool(2)
    may_end, ran = threading.Event(), threading.Event()

    def stall() -> None:
        may_end.wait(2 * PATIENCE_S)

    pool.submit(stall)
    pool.submit(ran.set)
    assert ran.wait(PATIENCE_S)
    may_end.set()


def test_idle_thread_is_used_again() -> None:
    pool = idle_pool(2)
    ran = threading.Event()
    pool.submit(ran.set)
    assert ran.wait(PATIENCE_S)
    assert pool._workers == 1


def test_tasks_beyond_the_maximum_run_when_a_thread_is_free() -> None:
    pool, may_end, left = DaemonPool("test", 2), threading.Event(), threading.Semaphore(0)

    def work() -> None:
        may_end.wait(PATIENCE_S)
        left.release()

    for _ in range(5):
        pool.submit(work)
    assert pool._workers == 2
    may_end.set()
    for _ in range(5):
        assert left.acquire(timeout=PATIENCE_S)
