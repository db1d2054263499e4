"""The contract of an object store: five verbs, one vocabulary for conditions, and uploads.

`put` answers first-hand what the store said. Whether an unclear answer landed is settled by
`tidelock.store.readback`, or by the lock machine, which reads back in its own way.

An implementation must
  * apply `Create` and `Match` atomically against every other writer, in this and any process;
  * never let a reader see a part of an object;
  * give each write its own version (bodies carry a nonce, so a content hash is enough);
  * send a conditional write at most once per call, except after an answer that proves that
    nothing landed (409 on S3: another write is under way);
  * raise only errors of `tidelock.base.errors`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from tidelock.base.outcome import Landed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@dataclass(frozen=True, slots=True)
class Create:
    """Write only if the key does not exist.

    One that is not `lasting` may be gone after a power failure: it says something of a process,
    and that is gone then, too.
    """

    lasting: bool = True


@dataclass(frozen=True, slots=True)
class Match:
    """Write only if the object still has `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Write whatever is there."""


PutMode = Create | Match | Overwrite


@dataclass(frozen=True, slots=True)
class Refused:
    """The store says the condition was false.

    A hop that retried for us may have turned our own success into this answer (RFC-91, update
    of November 2025), so it proves a loss only once the object has been read back.
    """


@dataclass(frozen=True, slots=True)
class Busy:
    """Nothing landed; the store asks to wait (429, or 409 that would not clear)."""

    retry_after_ms: int | None = None
    cause: str = "throttled"


@dataclass(frozen=True, slots=True)
class Unclear:
    """No answer, or one that proves nothing (time-out, reset, 5xx): the write may have landed.

    After a `volatile` one the object can be seen, and may be gone after a crash: the device failed
    while it was made durable. Reading it back proves nothing, because it is read from memory.
    """

    cause: str
    retry_after_ms: int | None = None
    volatile: bool = False


PutReply = Landed | Refused | Busy | Unclear


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What a listing or a head tells of one object."""

    key: str
    size_bytes: int
    version: str
    modified_epoch_ms: int


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's bytes (all, or the range asked for) and the version they belong to."""

    body: bytes
    version: str
    modified_epoch_ms: int


class Upload(Protocol):
    """A large object on its way, written piece by piece in bounded memory.

    Nothing is visible before `finish`. Leaving the context without it takes back what was sent.
    """

    @property
    def path(self) -> str | None:
        """A file that a native writer may fill instead of calling `write`; None if there is none.

        Whoever uses it writes the whole object there, and closes it before `finish`.
        """
        ...

    def write(self, data: ReadableBuffer) -> None:
        """Add bytes at the end. Raises: what `ObjectStore.put` raises."""
        ...

    def finish(self) -> PutReply:
        """Create the object if its key is free, and say first-hand what came of it."""
        ...

    def __enter__(self) -> Self:
        """Begin; the upload is its own context."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give up what was not finished."""
        ...


class ObjectStore(Protocol):
    """Objects with conditional writes. Keys are relative, `/`-separated, without `.` or `..` parts.

    Raises (every verb): `Throttled`, `StoreUnreachable`, `PermissionDenied`, `NotFound` for a
    missing bucket or root, `InvalidInput` for a key that cannot be.
    """

    @property
    def uri(self) -> str:
        """The place this store stands for, for messages; without secrets."""
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
        """Write the object under the condition of `mode`, and say first-hand what came of it.

        An exception proves that nothing was written; what is not certain is `Unclear`.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the object; an absent one is no error."""
        ...

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects whose key starts with `prefix`, in key order, after `start_after`."""
        ...

    def upload(self, key: str) -> Upload:
        """Return an upload that creates the object, for bodies too large to hold."""
        ...

    def local_path(self, key: str) -> str | None:
        """Return a path by which native readers may open the object; None if there is none."""
        ...

    def close(self) -> None:
        """Give back connections and handles; closing twice is no error."""
        ...
