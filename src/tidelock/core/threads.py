"""Threads: the only module that starts them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class ParallelMap(Protocol):
    """Applies a function to each item, possibly in parallel, and keeps the order."""

    def __call__(self, run: Callable[[S], T], work: Sequence[S], /) -> list[T]: ...


def sequential_map(run: Callable[[S], T], work: Sequence[S]) -> list[T]:
    """Apply a function to each item without threads."""
    return [run(each) for each in work]


def start_thread(name: str, target: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread, which does not keep the process alive."""
    thread = threading.Thread(name=name, target=target, daemon=True)
    thread.start()
    return thread


def worker_pool(name: str, workers: int) -> ThreadPoolExecutor:
    """Return a pool whose threads start on demand; use it as a context manager."""
    return ThreadPoolExecutor(max_workers=workers, thread_name_prefix=name)


class DaemonPool:
    """Up to `workers_max` daemon threads that start on demand and end with the process.

    Unlike the threads of an executor they are not joined at exit, so a stalled request in one of
    them does not block the exit of the interpreter.
    """

    def __init__(self, name: str, workers_max: int) -> None:
        self._name = name
        self._workers_max = workers_max
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._workers = 0
        self._idle = 0
        self._waiting = 0

    def submit(self, task: Callable[[], None]) -> None:
        """Run `task` in a thread as soon as one is free."""
        with self._mutex:
            self._tasks.put(task)
            self._waiting += 1
            # An idle thread takes one task: with more tasks, one of them would wait for another.
            if self._idle >= self._waiting or self._workers >= self._workers_max:
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
                self._waiting -= 1
            task()
