"""Objects in the memory of this process, for tests and simulations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count

from tidelock.core.clock import Clock
from tidelock.core.outcome import Landed
from tidelock.core.system import SystemClock
from tidelock.storage.contract import (
    Create,
    Match,
    ObjectMeta,
    Overwrite,
    PutMode,
    PutReply,
    Refused,
    StoredObject,
    Upload,
)
from tidelock.storage.uploads import BufferedUpload
from tidelock.storage.uri import checked_key, checked_prefix

# Not `id()`: Python reuses the address of a deleted object for another one.
_numbers = count(1)


class MemoryStore:
    """A dictionary with conditional writes. Versions are increasing numbers."""

    def __init__(
        self,
        name: str = "memory",
        *,
        clock: Clock | None = None,
        observe: Callable[[str], None] | None = None,
    ) -> None:
        """Create an empty store."""
        self._name = name
        self._number = next(_numbers)
        self._clock = clock or SystemClock()
        self._observe = observe or (lambda _: None)
        self._mutex = threading.Lock()
        self._objects: dict[str, StoredObject] = {}
        self._writes = 0

    @property
    def uri(self) -> str:
        """The URI of the store."""
        return f"memory://{self._name}"

    @property
    def identity(self) -> str:
        """The URI and a number: another store of the same name has other objects."""
        return f"{self.uri}#{self._number}"

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, or a range of it; None if absent."""
        self._observe("get")
        found = self._objects.get(checked_key(key))
        if found is None or (start == 0 and end is None):
            return found
        return StoredObject(found.body[start:end], found.version, found.modified_epoch_ms)

    def head(self, key: str) -> ObjectMeta | None:
        """Return size, version and age of the object; None if absent."""
        self._observe("head")
        found = self._objects.get(checked_key(key))
        return None if found is None else _meta(key, found)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write under the condition of `mode`."""
        self._observe("put")
        checked_key(key)
        with self._mutex:
            found = self._objects.get(key)
            match mode:
                case Create() if found is not None:
                    return Refused()
                case Match(version) if found is None or found.version != version:
                    return Refused()
                case Create() | Match() | Overwrite():
                    self._writes += 1
                    modified = self._clock.now().wall_epoch_ms
                    self._objects[key] = StoredObject(bytes(body), str(self._writes), modified)
                    return Landed(str(self._writes))

    def delete(self, key: str) -> None:
        """Delete the object; an absent one is not an error."""
        self._observe("delete")
        with self._mutex:
            self._objects.pop(checked_key(key), None)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects below `prefix` in the byte order of their keys."""
        self._observe("list")
        checked_prefix(prefix)
        with self._mutex:
            found = [
                (key, stored) for key, stored in self._objects.items() if key.startswith(prefix)
            ]
        for key, stored in sorted(found, key=lambda pair: pair[0].encode()):
            if key.encode() > start_after.encode():
                yield _meta(key, stored)

    def upload(self, key: str) -> Upload:
        """Return an upload that buffers the object."""
        checked_key(key)
        return BufferedUpload(lambda body: self.put(key, body, Create()))

    def local_path(self, key: str) -> str | None:
        """Return None: objects in memory have no path."""
        del key
        return None

    def close(self) -> None:
        """Do nothing: the objects stay in memory."""


def _meta(key: str, stored: StoredObject) -> ObjectMeta:
    return ObjectMeta(key, len(stored.body), stored.version, stored.modified_epoch_ms)


_shared: dict[str, MemoryStore] = {}


def shared_memory(authority: str, path: str) -> MemoryStore:
    """Return the store `memory://name/path` of this process, the same one for each call."""
    name = f"{authority}/{path}".rstrip("/")
    return _shared.setdefault(name, MemoryStore(name))
