"""Threads: the only file that starts them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Each(Protocol):
    """Does something for each of some things, in its order, maybe several at a time."""

    def __call__(self, run: Callable[[S], T], work: Sequence[S], /) -> list[T]:
        """Return the outcomes."""
        ...


def one_by_one(run: Callable[[S], T], work: Sequence[S]) -> list[T]:
    """Do it without any thread."""
    return [run(each) for each in work]


def start_thread(name: str, target: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread: it never keeps a finished program alive."""
    thread = threading.Thread(name=name, target=target, daemon=True)
    thread.start()
    return thread


def worker_pool(name: str, workers: int) -> ThreadPoolExecutor:
    """Return a pool whose threads start when they are first needed; use it in a `with`."""
    return ThreadPoolExecutor(max_workers=workers, thread_name_prefix=name)


class DaemonPool:
    """Up to `workers_max` daemon threads that start when needed and end with the program.

    Unlike an executor's threads they are not joined at exit, so a request that is stalled in one
    of them cannot hold the interpreter back.
    """

    def __init__(self, name: str, workers_max: int) -> None:
        """Start no thread yet."""
        self._name = name
        self._workers_max = workers_max
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._workers = 0
        self._idle = 0

    def submit(self, task: Callable[[], None]) -> None:
        """Run `task` in one of the threads, as soon as one is free."""
        self._tasks.put(task)
        with self._mutex:
            if self._idle > 0 or self._workers >= self._workers_max:
                return
            self._workers += 1
            number = self._workers
        start_thread(f"{self._name}-{number}", self._work)

    def _work(self) -> None:
        while True:
            with self._mutex:
                self._idle += 1
            task = self._tasks.get()
            with self._mutex:
                self._idle -= 1
            task()
