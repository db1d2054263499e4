"""Forked processes that run one function and exit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

_PATIENCE_S = 180


def fork(act: Callable[[], object]) -> int:
    """Run a function in a forked process; return its id. This process must have no threads."""
    pid = os.fork()
    if pid == 0:
        _be_child(act)
    return pid


def wait(pid: int) -> int:
    """Return how a child ended, as reported by `os.waitpid`."""
    return os.waitpid(pid, 0)[1]


def _be_child(act: Callable[[], object]) -> NoReturn:
    signal.alarm(_PATIENCE_S)
    code = 1
    try:
        act()
        code = 0
    finally:
        os._exit(code)
