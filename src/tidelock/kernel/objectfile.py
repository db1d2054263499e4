"""An object of a store as a file to read from at any place, fetched range by range.

A small one is fetched as a whole: a request takes as long as a few hundred kilobytes do.
"""

from __future__ import annotations

import io
from typing import Final

import pyarrow as pa

from tidelock.base.errors import DataCorrupt, NotFound
from tidelock.store.contract import ObjectStore

WHOLE_BYTES_MAX: Final = 256 * 1024
"""Objects up to this size are fetched at once."""


class ObjectFile(io.RawIOBase):
    """A read-only file over one object. Each read is one ranged request; nothing is kept."""

    def __init__(self, store: ObjectStore, key: str, size_bytes: int) -> None:
        """Stand for the object `key`, which a listing says has `size_bytes`."""
        super().__init__()
        self._store = store
        self._key = key
        self._size = size_bytes
        self._position = 0

    @property
    def where(self) -> str:
        """The object, for messages."""
        return f"{self._store.uri}/{self._key}"

    def readable(self) -> bool:
        """Reading is all it can."""
        return True

    def seekable(self) -> bool:
        """Any place can be read next."""
        return True

    def tell(self) -> int:
        """Return the place that is read next."""
        return self._position

    def size(self) -> int:
        """Return the size of the object."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Choose the place that is read next."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, fewer only at the end.

        Raises: `NotFound`, `DataCorrupt` when the object is shorter than it was listed.
        """
        left = max(0, self._size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted == 0:
            return b""
        end = self._position + wanted
        found = self._store.get(self._key, start=self._position, end=end)
        if found is None:
            raise NotFound(
                f"{self.where}: the object is gone",
                hint="a cleaner may have removed it; open the table again",
            )
        if len(found.body) != wanted:
            raise DataCorrupt(
                f"{self.where}: bytes {self._position} to {end} were asked for and"
                f" {len(found.body)} came: the object is shorter than the listing says"
            )
        self._position = end
        return found.body


def opened_input(store: ObjectStore, key: str, size_bytes: int) -> pa.NativeFile:
    """Return an object as a file that Arrow reads from, natively where the store has a path.

    Raises: `NotFound`.
    """
    path = store.local_path(key)
    if path is None:
        file = ObjectFile(store, key, size_bytes)
        if size_bytes <= WHOLE_BYTES_MAX:
            return pa.BufferReader(file.read())
        return pa.PythonFile(file, mode="r")
    try:
        return pa.OSFile(path)
    except FileNotFoundError as error:
        raise NotFound(
            f"{store.uri}/{key}: the object is gone",
            hint="a cleaner may have removed it; open the table again",
        ) from error
