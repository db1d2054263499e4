"""Folders of the local store, opened part by part without following links.

A `Folder` is an open directory. Everything below it is named relative to its handle, so nobody can
swap a part of the path for a link between a check and its use.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from tidelock.base.clock import Clock
from tidelock.base.errors import (
    InvalidInput,
    PermissionDenied,
    StoreUnreachable,
    TidelockError,
    Unsupported,
)
from tidelock.base.limits import FLOCK_WAIT_MS

_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FLOCK_PAUSE_MS = (0.1, 2.0)


@contextmanager
def opened(root: Path, parts: list[str], *, create: bool, fsync: bool) -> Iterator[int | None]:
    """Open the folder `parts` below `root` and yield its handle; None if it does not exist.

    The root itself may be a link. No part below it may be.
    """
    handle = _open_root(root, create=create, fsync=fsync)
    if handle is None:
        yield None
        return
    try:
        for part in parts:
            below = _open_part(handle, part, create=create, fsync=fsync)
            if below is None:
                yield None
                return
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _open_root(root: Path, *, create: bool, fsync: bool) -> int | None:
    try:
        return os.open(root, _OPEN_DIR)
    except FileNotFoundError:
        if not create:
            return None
    made = [place for place in (root, *root.parents) if not place.exists()]
    root.mkdir(parents=True, exist_ok=True)
    for place in made if fsync else ():
        _sync(place.parent)
    return os.open(root, _OPEN_DIR)


def _sync(place: Path) -> None:
    """Make the names in a folder durable: an object is only as durable as the path to it."""
    handle = os.open(place, _OPEN_DIR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_new(handle: int, part: str) -> None:
    """Make the name of a new folder durable; one that may not be does not stay to be relied on."""
    try:
        os.fsync(handle)
    except OSError:
        with suppress(OSError):
            os.rmdir(part, dir_fd=handle)
        raise


def _open_part(handle: int, part: str, *, create: bool, fsync: bool) -> int | None:
    try:
        return os.open(part, _OPEN_DIR | os.O_NOFOLLOW, dir_fd=handle)
    except FileNotFoundError:
        if not create:
            return None
    try:
        os.mkdir(part, dir_fd=handle)
        if fsync:
            _sync_new(handle, part)
    except FileExistsError:
        pass
    return os.open(part, _OPEN_DIR | os.O_NOFOLLOW, dir_fd=handle)


@contextmanager
def exclusive(handle: int, clock: Clock, shown: str) -> Iterator[None]:
    """Keep every other process and thread out of replacing or deleting in this folder.

    The kernel ends this when the process dies, however it dies. It covers a look and a rename, so
    a wait that is not over at once means that somebody was stopped exactly there.
    """
    pause_ms, most_ms = _FLOCK_PAUSE_MS
    began_ms = clock.now().monotonic_ms
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            waited_ms = clock.now().monotonic_ms - began_ms
            if waited_ms > FLOCK_WAIT_MS:
                raise StoreUnreachable(
                    f"{shown}: another process has been replacing an object in this folder for"
                    f" {waited_ms} ms",
                    hint="it is probably stopped: find it in /proc/locks, continue or end it",
                ) from None
        clock.sleep_ms(pause_ms)
        pause_ms = min(most_ms, pause_ms * 1.5)
    try:
        yield
    finally:
        # The handle is closed next, which ends the turn for certain; what was done in it stands.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)


_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def fail(error: OSError, shown: str) -> NoReturn:
    """Raise what the operating system said as one of our errors, naming the object."""
    raise translated(error, shown) from error


def translated(error: OSError, shown: str) -> TidelockError:
    """Return what the operating system said as one of our errors."""
    said = error.strerror or str(error)
    if error.errno in _DENIED:
        return PermissionDenied(f"{shown}: {said}", hint="check the owner and mode of the folder")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return InvalidInput(
            f"{shown}: a part of the path is a link, or a file of the wrong kind",
            hint="the local store follows no links below its root",
        )
    if error.errno == errno.EISDIR:
        return InvalidInput(f"{shown} is a folder, not an object")
    if error.errno == errno.ENAMETOOLONG:
        return InvalidInput(f"{shown}: the name is too long for this filesystem")
    if error.errno in _FULL:
        return StoreUnreachable(f"{shown}: {said}", hint="make room; nothing was written")
    if error.errno in (errno.ENOTSUP, errno.ENOLCK):
        return Unsupported(
            f"{shown}: {said}",
            hint="the local store needs flock and hard links: use ext4, xfs or the like",
        )
    return StoreUnreachable(f"{shown}: {said}", hint="look at the disk; nothing was written")
