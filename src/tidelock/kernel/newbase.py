"""A base file on its way to its place: announced, uploaded piece by piece, there as a whole."""

from __future__ import annotations

import io
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from tidelock.kernel.context import WriteContext
from tidelock.kernel.landing import announce, rows_in_base, settled
from tidelock.store.contract import ObjectStore, Upload
from tidelock.table.markers import IoType

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class NewBase:
    """One base file in the making. Leaving the context without `land` leaves nothing behind."""

    def __init__(
        self,
        store: ObjectStore,
        ctx: WriteContext,
        *,
        partition: str,
        file_id: str,
        slot: int,
        first: bool,
    ) -> None:
        """Announce the file, the group's `first` or one for all of it, and begin its upload."""
        self.name = ctx.base_name(file_id, slot)
        self._store = store
        self._key = f"{partition}/{self.name}" if partition else self.name
        io_type = IoType.CREATE if first else IoType.MERGE
        announce(store, ctx, partition, self.name, io_type, first=first)
        self._held = ExitStack()
        self._upload = self._held.enter_context(store.upload(self._key))
        self.sink = self._held.enter_context(_sink(self._upload))

    @property
    def size_bytes(self) -> int:
        """How much has gone to the file."""
        return int(self.sink.tell())

    def land(self, rows: int) -> int:
        """Bring the file, which has so many rows, to its place and return its size.

        Raises: what `landing.settled` raises.
        """
        size_bytes = self.size_bytes
        self.sink.close()
        reply = self._upload.finish()
        size_bytes = settled(
            self._store, self._key, reply, size_bytes=size_bytes, rows=rows, count=rows_in_base
        )
        self._held.close()
        return size_bytes

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give up what has not landed."""
        self._held.__exit__(kind, error, trace)


def _sink(upload: Upload) -> pa.NativeFile:
    """Return a file that Arrow writes to, natively where the upload has a path."""
    if upload.path is not None:
        return pa.OSFile(upload.path, mode="wb")
    return pa.PythonFile(_UploadFile(upload), mode="w")


class _UploadFile(io.RawIOBase):
    """An upload as a file to write to."""

    def __init__(self, upload: Upload) -> None:
        super().__init__()
        self._upload = upload
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer) -> int:
        size = memoryview(data).nbytes
        self._upload.write(data)
        self._position += size
        return size
