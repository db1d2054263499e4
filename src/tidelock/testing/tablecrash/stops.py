"""A store that kills or stops its process before or after one of its own requests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from tidelock.base.clock import Now, SystemClock
from tidelock.store.contract import ObjectMeta, ObjectStore, PutMode, PutReply, StoredObject, Upload

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

R = TypeVar("R")

Match = Callable[[int, str, str], bool]
"""Tells from the number, the verb and the key of a request whether it is the one."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Where to send which signal to oneself."""

    matches: Match
    number: signal.Signals = signal.SIGKILL
    after: bool = False


@dataclass(slots=True)
class StoppingStore:
    """Every request that changes something is counted; one of them is the last, or a long one."""

    inner: ObjectStore
    stop: Stop | None = None
    requests: list[str] = field(default_factory=list)
    _struck: bool = False

    @property
    def uri(self) -> str:
        """The place this store stands for."""
        return self.inner.uri

    @property
    def identity(self) -> str:
        """The store behind."""
        return self.inner.identity

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Read, uncounted."""
        return self.inner.get(key, start=start, end=end)

    def head(self, key: str) -> ObjectMeta | None:
        """Read, uncounted."""
        return self.inner.head(key)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Read, uncounted."""
        return self.inner.list(prefix, start_after=start_after)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write, counted."""
        return self.around("put", key, lambda: self.inner.put(key, body, mode))

    def delete(self, key: str) -> None:
        """Delete, counted."""
        self.around("delete", key, lambda: self.inner.delete(key))

    def upload(self, key: str) -> Upload:
        """Upload; its end is counted."""
        return _StoppingUpload(self, key, self.inner.upload(key))

    def local_path(self, key: str) -> str | None:
        """The path behind."""
        return self.inner.local_path(key)

    def close(self) -> None:
        """Close the store behind."""
        self.inner.close()

    def around(self, verb: str, key: str, act: Callable[[], R]) -> R:
        """Carry out one request, and strike if it is the one."""
        self.requests.append(f"{verb} {key}")
        stop = self.stop
        due = stop is not None and not self._struck and stop.matches(len(self.requests), verb, key)
        if due and stop is not None and not stop.after:
            self._strike(stop)
        result = act()
        if due and stop is not None and stop.after:
            self._strike(stop)
        return result

    def _strike(self, stop: Stop) -> None:
        self._struck = True
        os.kill(os.getpid(), stop.number)


@dataclass(slots=True)
class _StoppingUpload:
    store: StoppingStore
    key: str
    inner: Upload

    @property
    def path(self) -> str | None:
        return self.inner.path

    def write(self, data: ReadableBuffer) -> None:
        self.inner.write(data)

    def finish(self) -> PutReply:
        return self.store.around("upload", self.key, self.inner.finish)

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.inner.__exit__(kind, error, trace)


@dataclass(frozen=True, slots=True)
class OffClock:
    """The machine's clocks, with the wall clock `offset_ms` off."""

    offset_ms: int

    def now(self) -> Now:
        """Read both clocks."""
        true = SystemClock().now()
        return Now(true.monotonic_ms, true.wall_epoch_ms + self.offset_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """Sleep for real."""
        SystemClock().sleep_ms(duration_ms)
