"""Buffered uploads: the object is sent at the end, or in parts that are joined at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from tidelock.core.errors import InvalidInput, TidelockError
from tidelock.core.limits import UPLOAD_PART_BYTES
from tidelock.storage.contract import PutReply

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class PartWriter(ABC):
    """How a store takes an object in parts, each of `part_bytes` except the last."""

    part_bytes = UPLOAD_PART_BYTES

    @abstractmethod
    def send(self, body: bytes) -> None:
        """Send the next part; the first one starts the upload."""

    @abstractmethod
    def complete(self, last: bytes) -> PutReply:
        """Send the remaining bytes, if any, and create the object from all parts."""

    @abstractmethod
    def abort(self) -> None:
        """Discard the parts that were sent."""


class BufferedUpload(AbstractContextManager["BufferedUpload", None]):
    """An upload that sends a small object in one request, by `put_whole`.

    Of a large object it buffers at most one part of `parts`; without them, the whole object.
    """

    def __init__(
        self, put_whole: Callable[[bytes], PutReply], parts: PartWriter | None = None
    ) -> None:
        """Create an empty upload; sends no request."""
        self._put_whole = put_whole
        self._parts = parts
        self._buffer = bytearray()
        self._started = False
        self._finished = False

    @property
    def path(self) -> str | None:
        """None: there is no local file."""
        return None

    def write(self, data: ReadableBuffer) -> None:
        """Append bytes; a part that is full is sent."""
        if self._finished:
            raise InvalidInput("the upload is finished already")
        self._buffer += memoryview(data).cast("B")
        # One byte is held back, so that the last part is never empty.
        while self._parts is not None and len(self._buffer) > (size := self._parts.part_bytes):
            with memoryview(self._buffer) as view:
                part = bytes(view[:size])
            del self._buffer[:size]
            self._started = True
            self._parts.send(part)

    def finish(self) -> PutReply:
        """Create the object if its key is free."""
        if self._finished:
            raise InvalidInput("the upload is finished already")
        last = bytes(self._buffer)
        self._buffer.clear()
        if not self._started or self._parts is None:
            self._finished = True
            return self._put_whole(last)
        reply = self._parts.complete(last)
        # An exception above proves that nothing was created; `__exit__` discards the parts.
        self._finished = True
        return reply

    def __exit__(self, *failure: object) -> None:
        """Discard the parts of an upload that was not finished."""
        started, finished = self._started, self._finished
        self._finished = True
        if started and not finished and self._parts is not None:
            # Parts are invisible, and stores remove them in time. A failure here must not hide
            # the error that ended the upload.
            with suppress(TidelockError):
                self._parts.abort()
