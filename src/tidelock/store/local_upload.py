"""An upload of the local store: a temporary file beside the object, named at the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tidelock.base.errors import InvalidInput
from tidelock.store import folder
from tidelock.store.contract import PutReply

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Seal = Callable[[int, int, str], PutReply]
"""Gives the temporary file (by folder handle, file handle and name) the object's name."""


class LocalUpload:
    """A file in the making. `seal` is the store's: it syncs, dates and links as `put` does."""

    def __init__(
        self, root: Path, parts: list[str], temp: str, *, fsync: bool, shown: str, seal: Seal
    ) -> None:
        """Create the temporary file `temp` in the folder `parts` below `root`."""
        self._shown = shown
        self._temp = temp
        self._seal = seal
        self._held = ExitStack()
        try:
            self._folder = self._opened_folder(root, parts, fsync=fsync)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(temp, flags, 0o666, dir_fd=self._folder)
        except OSError as error:
            self._held.close()
            folder.fail(error, shown)
        self._held.callback(os.close, self._file)
        self._held.callback(self._drop_temp)
        self._path = str(root.joinpath(*parts, temp))
        self._finished = False

    @property
    def path(self) -> str | None:
        """The temporary file."""
        return self._path

    def write(self, data: ReadableBuffer) -> None:
        """Add bytes at the end."""
        view = memoryview(data).cast("B")
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            folder.fail(error, self._shown)

    def finish(self) -> PutReply:
        """Give the file its name, if that is free."""
        if self._finished:
            raise InvalidInput(f"{self._shown}: the upload is finished already")
        self._finished = True
        try:
            return self._seal(self._folder, self._file, self._temp)
        except OSError as error:
            folder.fail(error, self._shown)
        finally:
            self._held.close()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the temporary file."""
        self._finished = True
        self._held.close()

    def _opened_folder(self, root: Path, parts: list[str], *, fsync: bool) -> int:
        opened = folder.opened(root, parts, create=True, fsync=fsync)
        handle = self._held.enter_context(opened)
        assert handle is not None
        return handle

    def _drop_temp(self) -> None:
        try:
            os.unlink(self._temp, dir_fd=self._folder)
        except OSError:
            return
