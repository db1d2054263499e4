"""Work that no caller has to wait for: what a committed write leaves is removed aside (C52).

It is nothing that must be done: what is lost with the process is found by recovery.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Final

from tidelock.base.runtime import DaemonPool

logger = logging.getLogger(__name__)

Work = Callable[[], object]

_WAITING_MAX: Final = 32
"""So many pieces of work may wait; further ones are done by whoever brings them."""

_END_WAIT_S: Final = 10.0
"""So long the end of a process, or of a table, is held back by a store that does not answer."""

_pool = DaemonPool("tidelock-aside", 4)
_pid = os.getpid()
_all: weakref.WeakSet[Aside] = weakref.WeakSet()


def at_once(work: Work) -> None:
    """Do the work before the caller goes on: where a request takes no time, a thread would."""
    work()


class Aside:
    """Does work in threads that all of this process's tables share, in any order."""

    def __init__(self) -> None:
        """Have nothing to do."""
        self._left = 0
        self._ended = threading.Condition()
        _all.add(self)

    def __call__(self, work: Work) -> None:
        """Let `work` be done soon."""
        with self._ended:
            # The threads are not there in a child that was forked.
            takes = self._left < _WAITING_MAX and _pid == os.getpid()
            self._left += takes
        if takes:
            _pool.submit(lambda: self._do(work))
        else:
            work()

    def drain(self, timeout_s: float = _END_WAIT_S) -> bool:
        """Wait until everything is done; False if it takes longer."""
        with self._ended:
            return _pid != os.getpid() or self._ended.wait_for(lambda: not self._left, timeout_s)

    def _do(self, work: Work) -> None:
        try:
            work()
        except Exception:
            # Nobody waits for it, so nobody else can be told.
            logger.exception("work beside a write failed")
        finally:
            with self._ended:
                self._left -= 1
                self._ended.notify_all()


def _drain_all() -> None:
    for each in list(_all):
        if not each.drain():
            return


atexit.register(_drain_all)
