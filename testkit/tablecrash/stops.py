"""A store that kills or stops its process before or after one of its own requests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from tidelock.core.clock import Now
from tidelock.core.system import SystemClock
from tidelock.storage.contract import (
    ObjectMeta,
    ObjectStore,
    PutMode,
    PutReply,
    StoredObject,
    Upload,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

R = TypeVar("R")

Match = Callable[[int, str, str], bool]
"""Returns whether a request, given its number, verb and key, is the one to stop at."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Where to send which signal to this process."""

    matches: Match
    number: signal.Signals = signal.SIGKILL
    after: bool = False


@dataclass(slots=True)
class StoppingStore:
    """Counts all modifying requests, and stops the process at one of them."""

    inner: ObjectStore
    stop: Stop | None = None
    requests: list[str] = field(default_factory=list)
    _signalled: bool = False

    @property
    def uri(self) -> str:
        """The URI of the store."""
        return self.inner.uri

    @property
    def identity(self) -> str:
        """The wrapped store."""
        return self.inner.identity

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Read, not counted."""
        return self.inner.get(key, start=start, end=end)

    def head(self, key: str) -> ObjectMeta | None:
        """Read, not counted."""
        return self.inner.head(key)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Read, not counted."""
        return self.inner.list(prefix, start_after=start_after)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write, counted."""
        return self.around("put", key, lambda: self.inner.put(key, body, mode))

    def delete(self, key: str) -> None:
        """Delete, counted."""
        self.around("delete", key, lambda: self.inner.delete(key))

    def upload(self, key: str) -> Upload:
        """Upload; its end is counted."""
        return InterceptedUpload(
            self.inner.upload(key), lambda finish: self.around("upload", key, finish)
        )

    def local_path(self, key: str) -> str | None:
        """The path in the wrapped store."""
        return self.inner.local_path(key)

    def close(self) -> None:
        """Close the wrapped store."""
        self.inner.close()

    def around(self, verb: str, key: str, act: Callable[[], R]) -> R:
        """Execute one request, and send the signal if it is the one."""
        self.requests.append(f"{verb} {key}")
        stop = self.stop
        due = (
            stop is not None and not self._signalled and stop.matches(len(self.requests), verb, key)
        )
        if due and stop is not None and not stop.after:
            self._send_signal(stop)
        result = act()
        if due and stop is not None and stop.after:
            self._send_signal(stop)
        return result

    def _send_signal(self, stop: Stop) -> None:
        self._signalled = True
        os.kill(os.getpid(), stop.number)


@dataclass(slots=True)
class InterceptedUpload:
    """An upload with an intercepted end: `on_finish` receives the function that ends `inner`."""

    inner: Upload
    on_finish: Callable[[Callable[[], PutReply]], PutReply]

    @property
    def path(self) -> str | None:
        """The path of the file, if it is one."""
        return self.inner.path

    def write(self, data: ReadableBuffer) -> None:
        """Write to the upload."""
        self.inner.write(data)

    def finish(self) -> PutReply:
        """Call `on_finish`."""
        return self.on_finish(self.inner.finish)

    def __enter__(self) -> Self:
        """Enter the upload."""
        self.inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Exit the upload."""
        self.inner.__exit__(kind, error, trace)


@dataclass(frozen=True, slots=True)
class OffClock:
    """The system clocks, with the wall clock `offset_ms` off."""

    offset_ms: int

    def now(self) -> Now:
        """Read both clocks."""
        true = SystemClock().now()
        return Now(true.monotonic_ms, true.wall_epoch_ms + self.offset_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """Sleep for real."""
        SystemClock().sleep_ms(duration_ms)
