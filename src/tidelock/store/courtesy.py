"""Waiting for one another on one machine, where the store is a folder of it.

Processes that would undo each other's work line up on a file. It is a courtesy: nothing that must
be right rests on it, and who has waited long enough goes ahead.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelock.base.clock import Clock
from tidelock.base.metrics import PROCESS
from tidelock.store.contract import ObjectStore
from tidelock.store.metric_names import LINE_WAIT

_FIRST_MS: Final = 0.5
_MOST_MS: Final = 8.0


@contextmanager
def in_line(store: ObjectStore, key: str, *, wait_ms: float, clock: Clock) -> Iterator[bool]:
    """Have the object's line to oneself for the time of the block; yield whether it is so.

    On other stores than a folder, or when others take longer than `wait_ms`, the block runs
    without.
    """
    with lined_up(store.local_path(key), wait_ms=wait_ms, clock=clock) as mine:
        yield mine


@contextmanager
def lined_up(path: str | None, *, wait_ms: float, clock: Clock) -> Iterator[bool]:
    """Have the line of a file to oneself as `in_line` does, where its path is known already."""
    if path is None:
        yield False
        return
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        began_ms = clock.now().monotonic_ms
        mine = _taken(handle, wait_ms, clock)
        PROCESS.time(LINE_WAIT.name, clock.now().monotonic_ms - began_ms)
        yield mine
    finally:
        os.close(handle)  # the kernel lets the next one in


def _taken(handle: int, wait_ms: float, clock: Clock) -> bool:
    began_ms = clock.now().monotonic_ms
    pause_ms = _FIRST_MS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock.now().monotonic_ms - began_ms >= wait_ms:
                return False
        except OSError:
            return False  # a file system without such locks
        else:
            return True
        clock.sleep_ms(pause_ms)
        pause_ms = min(_MOST_MS, pause_ms * 1.5)
