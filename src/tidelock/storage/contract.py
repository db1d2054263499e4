"""The contract of an object store: five verbs, conditional writes, and uploads.

`put` returns the store's own answer. Whether a write with an unclear answer succeeded is resolved
by `tidelock.storage.conditional`, or by the lock machine, which reads back on its own.

An implementation must
  * apply `Create` and `Match` atomically against every other writer, in this and any process;
  * never let a reader see a partial object;
  * give each write its own version (bodies carry a nonce, so a content hash is sufficient);
  * send a conditional write at most once per call, except after an answer that proves that
    nothing was written (409 on S3: another write is in progress);
  * raise only errors of `tidelock.core.errors`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidelock.core.outcome import Landed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@dataclass(frozen=True, slots=True)
class Create:
    """Write only if the key does not exist.

    An object that is not `durable` may be lost in a power failure. Use it for data about a running
    process, which does not survive a power failure either.
    """

    durable: bool = True


@dataclass(frozen=True, slots=True)
class Match:
    """Write only if the object still has `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Write unconditionally."""


PutMode = Create | Match | Overwrite


@dataclass(frozen=True, slots=True)
class Refused:
    """The store reports that the condition was false.

    A proxy that retried the request may have turned our own success into this answer (RFC-91,
    update of November 2025), so it proves a loss only once the object has been read back.
    """


@dataclass(frozen=True, slots=True)
class Busy:
    """Nothing was written; the client should wait (429, or a 409 that does not clear)."""

    retry_after_ms: int | None = None
    cause: str = "throttled"


@dataclass(frozen=True, slots=True)
class Unclear:
    """No answer, or one that proves nothing (timeout, reset, 5xx): the write may have succeeded.

    After a `volatile` reply the object is visible but may be lost in a crash: the device failed
    while it was made durable. Reading it back proves nothing, because it is read from memory.
    """

    cause: str
    retry_after_ms: int | None = None
    volatile: bool = False


PutReply = Landed | Refused | Busy | Unclear


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """An object as returned by `list` and `head`."""

    key: str
    size_bytes: int
    version: str
    modified_epoch_ms: int


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The bytes of an object (all, or the requested range) and the version they belong to."""

    body: bytes
    version: str
    modified_epoch_ms: int


class Upload(AbstractContextManager["Upload", None], Protocol):
    """An upload of a large object, written piece by piece in bounded memory.

    Nothing is visible before `finish`. Leaving the context without `finish` discards what was
    sent.
    """

    @property
    def path(self) -> str | None:
        """A file that a native writer may fill instead of calling `write`; None if there is none.

        A caller that uses it writes the whole object there, and closes it before `finish`.
        """
        ...

    def write(self, data: ReadableBuffer) -> None:
        """Append bytes. Raises: the errors of `ObjectStore.put`."""
        ...

    def finish(self) -> PutReply:
        """Create the object if its key is free, and return the store's own answer."""
        ...


class ObjectStore(Protocol):
    """Objects with conditional writes. Keys are relative, `/`-separated, without `.` or `..` parts.

    Raises (every verb): `Throttled`, `StoreUnreachable`, `PermissionDenied`, `NotFound` for a
    missing bucket or root, `InvalidInput` for an invalid key.
    """

    @property
    def uri(self) -> str:
        """The URI of the root of this store, for messages; without secrets."""
        ...

    @property
    def identity(self) -> str:
        """The URI and the server behind it: two stores of one identity hold the same objects."""
        ...

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, or bytes `start` to `end` (exclusive) of it; None if absent."""
        ...

    def head(self, key: str) -> ObjectMeta | None:
        """Return size, version and age of the object without its bytes; None if absent."""
        ...

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write the object under the condition of `mode`, and return the store's own answer.

        An exception proves that nothing was written; an uncertain result is `Unclear`.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete the object; an absent one is not an error."""
        ...

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects whose key starts with `prefix`, in key order, after `start_after`."""
        ...

    def upload(self, key: str) -> Upload:
        """Return an upload that creates the object, for bodies too large for memory."""
        ...

    def local_path(self, key: str) -> str | None:
        """Return a path by which native readers may open the object; None if there is none."""
        ...

    def close(self) -> None:
        """Close connections and handles; closing twice is not an error."""
        ...
