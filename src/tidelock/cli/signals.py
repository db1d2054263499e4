"""Signals that end a command: raised while it waits for a lock, recorded once it holds one.

An exception from a signal handler can interrupt any code. While a command waits for the lock that
is intended, because it ends the wait. Later it could interrupt a release, so it is only recorded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal requests the end of this command."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """The exit status that a shell reports for this signal."""
        return 128 + self.number


class Stopping:
    """Handles the stopping signals inside a `with` block, in the main thread."""

    def __init__(self) -> None:
        """Raise `Stopped` on a signal until `record_only` is called."""
        self._received = threading.Event()
        self._raises = True
        self._forward: Callable[[int], None] | None = None
        self._undelivered: list[int] = []
        self._previous: dict[int, signal.Handlers | Callable[[int, FrameType | None], None]] = {}

    def __enter__(self) -> Self:
        """Install the handlers. A signal that is ignored, as under nohup, stays ignored."""
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                previous = signal.getsignal(number)
                if previous is not None and previous is not signal.SIG_IGN:
                    self._previous[number] = previous  # type: ignore[assignment]
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the previous handlers."""
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def record_only(self) -> None:
        """Raise no more: a signal ends `wait` and is passed to the target of `forward_to`."""
        self._raises = False

    def forward_to(self, send: Callable[[int], None]) -> None:
        """Pass every signal to `send`, including those recorded earlier."""
        self._forward = send
        while self._undelivered:
            send(self._undelivered.pop(0))

    def stop(self) -> None:
        """End the wait like a signal."""
        self._received.set()

    def wait(self, duration_s: float | None) -> bool:
        """Wait for a signal or `stop`; return whether one came within `duration_s`."""
        return self._received.wait(duration_s)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._raises:
            raise Stopped(number)
        self._received.set()
        if self._forward is not None:
            self._forward(number)
        else:
            self._undelivered.append(number)


def stop_at_end_of_input(stopping: Stopping) -> None:
    """Read standard input to its end, and then call `stop`."""
    with contextlib.suppress(OSError):
        while os.read(0, 65_536):
            pass
    stopping.stop()
