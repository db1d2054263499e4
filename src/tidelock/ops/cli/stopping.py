"""Signals that end a command: raised while it waits for a lock, noted once it holds one.

An exception out of a signal handler may strike anywhere. Before the lock is held that is wanted,
for it ends the wait; afterwards it could cut a release short, so the signal is only noted.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal asks this command to end."""

    def __init__(self, number: int) -> None:
        """Carry the number of the signal."""
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """Return what a shell reports for this signal."""
        return 128 + self.number


class Stopping:
    """Hears the stopping signals for the length of a `with`, in the main thread."""

    def __init__(self) -> None:
        """Raise `Stopped` at a signal, until `note_only` is called."""
        self._heard = threading.Event()
        self._raises = True
        self._forward: Callable[[int], None] | None = None
        self._waiting: list[int] = []
        self._before: dict[int, signal.Handlers | Callable[[int, FrameType | None], None]] = {}

    def __enter__(self) -> Self:
        """Listen. A signal that is ignored, as under nohup, stays ignored."""
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                before = signal.getsignal(number)
                if before is not None and before is not signal.SIG_IGN:
                    self._before[number] = before  # type: ignore[assignment]
                    signal.signal(number, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Listen no longer."""
        del kind, error, trace
        for number, before in self._before.items():
            signal.signal(number, before)

    def note_only(self) -> None:
        """From now on a signal interrupts nothing; `wait` returns early, `forward_to` gets it."""
        self._raises = False

    def forward_to(self, send: Callable[[int], None]) -> None:
        """Hand every signal to `send`, those included that were noted before."""
        self._forward = send
        while self._waiting:
            send(self._waiting.pop(0))

    def stop(self) -> None:
        """End the wait as a signal would."""
        self._heard.set()

    def wait(self, duration_s: float | None) -> bool:
        """Wait for a signal or `stop`; return whether one came before `duration_s` was over."""
        return self._heard.wait(duration_s)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._raises:
            raise Stopped(number)
        self._heard.set()
        if self._forward is not None:
            self._forward(number)
        else:
            self._waiting.append(number)


def stop_at_end_of_input(stopping: Stopping) -> Callable[[], None]:
    """Return a task that calls `stop` once standard input ends."""

    def read() -> None:
        try:
            while os.read(0, 65_536):
                pass
        except OSError:
            pass
        stopping.stop()

    return read
