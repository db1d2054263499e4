"""Uploads in parts: bytes are gathered, sent a part at a time, and joined at the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from tidelock.base.errors import InvalidInput, TidelockError
from tidelock.store.contract import PutReply

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Parts(Protocol):
    """How one store takes an object in parts, each of `part_bytes` but the last."""

    @property
    def part_bytes(self) -> int:
        """The size of a part."""
        ...

    def whole(self, body: bytes) -> PutReply:
        """Create the object in one request; no part was sent."""
        ...

    def send(self, body: bytes) -> None:
        """Send the next part; the first one begins the upload."""
        ...

    def complete(self, last: bytes) -> PutReply:
        """Send what is left, which may be nothing, and create the object of all parts."""
        ...

    def abort(self) -> None:
        """Take back the parts that were sent."""
        ...


class PartedUpload:
    """An upload that holds at most one part, and sends a small object in one request."""

    def __init__(self, parts: Parts) -> None:
        """Send nothing yet."""
        self._parts = parts
        self._gathered = bytearray()
        self._begun = False
        self._over = False

    @property
    def path(self) -> str | None:
        """There is no file."""
        return None

    def write(self, data: ReadableBuffer) -> None:
        """Add bytes at the end; a part that is full is sent."""
        if self._over:
            raise InvalidInput("the upload is finished already")
        size = self._parts.part_bytes
        self._gathered += memoryview(data).cast("B")
        # One byte is kept back, so that the last part is never an empty one.
        while len(self._gathered) > size:
            with memoryview(self._gathered) as view:
                part = bytes(view[:size])
            del self._gathered[:size]
            self._begun = True
            self._parts.send(part)

    def finish(self) -> PutReply:
        """Create the object if its key is free."""
        if self._over:
            raise InvalidInput("the upload is finished already")
        last = bytes(self._gathered)
        self._gathered.clear()
        if not self._begun:
            self._over = True
            return self._parts.whole(last)
        reply = self._parts.complete(last)
        # An exception above proves that nothing landed, and leaves the parts to `__exit__`.
        self._over = True
        return reply

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take back what was sent, unless it was finished."""
        begun, over = self._begun, self._over
        self._over = True
        if begun and not over:
            # Parts are invisible, and stores drop them in time: a failure here must not hide
            # the reason for giving up.
            with suppress(TidelockError):
                self._parts.abort()


def gathered_upload(create: Callable[[bytes], PutReply]) -> PartedUpload:
    """Return an upload that holds everything, and has `create` make the object at the end."""
    return PartedUpload(_Gathered(create))


class _Gathered:
    """Parts that are kept here."""

    part_bytes = 1 << 20

    def __init__(self, create: Callable[[bytes], PutReply]) -> None:
        self.whole = create
        self._parts: list[bytes] = []

    def send(self, body: bytes) -> None:
        self._parts.append(body)

    def complete(self, last: bytes) -> PutReply:
        return self.whole(b"".join([*self._parts, last]))

    def abort(self) -> None:
        self._parts.clear()
