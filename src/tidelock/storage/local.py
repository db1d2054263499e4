"""Objects as files in a local folder.

Guarantees:
  * `Create` and `Match` are atomic between all processes and threads on this machine. `Create` is a
    hard link, which fails if the name exists; replace and delete hold an exclusive `flock` on the
    folder, which the kernel releases when a process dies.
  * A reader sees a complete object: bytes are written to a temporary file, synced, then linked or
    renamed. A kill or a power failure at any time leaves the old or the new object.
Does not guarantee:
  * any of this on network filesystems that emulate `flock` per machine; the probe detects some.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidelock.core.clock import Clock
from tidelock.core.errors import (
    InvalidInput,
    PermissionDenied,
    StoreUnreachable,
    TidelockError,
    Unsupported,
)
from tidelock.core.ids import IdSource
from tidelock.core.limits import FLOCK_WAIT_MS, TEMP_AGE_MS
from tidelock.core.outcome import Landed
from tidelock.core.system import SystemClock, SystemIds
from tidelock.core.telemetry import PROCESS
from tidelock.storage.contract import (
    Create,
    Match,
    ObjectMeta,
    Overwrite,
    PutMode,
    PutReply,
    Refused,
    StoredObject,
    Unclear,
    Upload,
)
from tidelock.storage.telemetry import QUEUE_WAIT
from tidelock.storage.uri import checked_key, checked_prefix, is_key

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_PAUSE_MS = (0.1, 2.0)
_QUEUE_PAUSE_MS = (0.5, 8.0)
"""The first and the longest pause between two attempts to get a lock."""


@contextmanager
def opened_folder(
    root: Path, parts: list[str], *, create: bool = False, fsync: bool = False
) -> Iterator[int | None]:
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
    created = [folder for folder in (root, *root.parents) if not folder.exists()]
    root.mkdir(parents=True, exist_ok=True)
    for folder in created if fsync else ():
        _sync(folder.parent)
    return os.open(root, _OPEN_DIR)


def _sync(folder: Path) -> None:
    """Make the names in a folder durable: an object is only as durable as the path to it."""
    handle = os.open(folder, _OPEN_DIR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_new(handle: int, part: str) -> None:
    """Make the name of a new folder durable; remove the folder if that fails."""
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
def exclusive_flock(handle: int, clock: Clock, subject: str) -> Iterator[None]:
    """Exclude other processes and threads from replacing or deleting in this folder.

    The kernel releases the lock when the process dies, however it dies. It is held for a stat and
    a rename, so a long wait means that its holder was suspended exactly there.
    """
    if not _try_flock(handle, FLOCK_WAIT_MS, clock, _FOLDER_PAUSE_MS):
        raise StoreUnreachable(
            f"{subject}: another process has held the folder lock for {FLOCK_WAIT_MS} ms",
            hint="it is probably suspended: find it in /proc/locks, resume or kill it",
        )
    try:
        yield
    finally:
        # The handle is closed next, which releases the lock in any case.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)


def _try_flock(handle: int, wait_ms: float, clock: Clock, pauses_ms: tuple[float, float]) -> bool:
    """Lock a file; return False if another process holds the lock for more than `wait_ms`."""
    began_ms = clock.now().monotonic_ms
    pause_ms, pause_ms_max = pauses_ms
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock.now().monotonic_ms - began_ms >= wait_ms:
                return False
        else:
            return True
        clock.sleep_ms(pause_ms)
        pause_ms = min(pause_ms_max, pause_ms * 1.5)


_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class _TranslatedErrors:
    """A context in which errors of the operating system are raised as our errors."""

    __slots__ = ("_subject",)

    def __init__(self, subject: str) -> None:
        self._subject = subject

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise translated(error, self._subject) from error


def translated(error: OSError, subject: str) -> TidelockError:
    """Return one of our errors for an error of the operating system."""
    cause = error.strerror or str(error)
    if error.errno in _DENIED:
        return PermissionDenied(
            f"{subject}: {cause}", hint="check the owner and mode of the folder"
        )
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return InvalidInput(
            f"{subject}: a part of the path is a symbolic link or not a regular file",
            hint="the local store does not follow links below its root",
        )
    if error.errno == errno.EISDIR:
        return InvalidInput(f"{subject} is a folder, not an object")
    if error.errno == errno.ENAMETOOLONG:
        return InvalidInput(f"{subject}: the name is too long for this filesystem")
    if error.errno in _FULL:
        return StoreUnreachable(f"{subject}: {cause}", hint="free some space; nothing was written")
    if error.errno in (errno.ENOTSUP, errno.ENOLCK):
        return Unsupported(
            f"{subject}: {cause}",
            hint="the local store needs flock and hard links: use ext4 or xfs",
        )
    return StoreUnreachable(f"{subject}: {cause}", hint="check the disk; nothing was written")


Publish = Callable[[int, int, str], PutReply]
"""Gives a temporary file (folder handle, file handle, name) the name of the object."""


class LocalUpload(AbstractContextManager["LocalUpload", None]):
    """An upload to a temporary file, which `publish` syncs and links as `put` does."""

    def __init__(
        self,
        root: Path,
        parts: list[str],
        temp: str,
        *,
        fsync: bool,
        subject: str,
        publish: Publish,
    ) -> None:
        """Create the temporary file `temp` in the folder `parts` below `root`."""
        self._subject = subject
        self._temp = temp
        self._publish = publish
        self._resources = ExitStack()
        for left in reversed(range(_FOLDER_TRIES)):
            try:
                opened = opened_folder(root, parts, create=True, fsync=fsync)
                folder = self._resources.enter_context(opened)
                assert folder is not None
                self._folder = folder
                self._file = os.open(temp, _NEW_FILE, 0o666, dir_fd=self._folder)
                break
            except OSError as error:
                self._resources.close()
                # Another process may remove the empty folder before the first file is in it.
                if not left or not isinstance(error, FileNotFoundError):
                    raise translated(error, subject) from error
        self._resources.callback(os.close, self._file)
        self._resources.callback(_try_unlink, self._folder, temp)
        self._path = str(root.joinpath(*parts, temp))
        self._finished = False

    @property
    def path(self) -> str | None:
        """The temporary file."""
        return self._path

    def write(self, data: ReadableBuffer) -> None:
        """Append bytes."""
        view = memoryview(data).cast("B")
        with _TranslatedErrors(self._subject):
            while view:
                view = view[os.write(self._file, view) :]

    def finish(self) -> PutReply:
        """Create the object if its key is free."""
        if self._finished:
            raise InvalidInput(f"{self._subject}: the upload is finished already")
        self._finished = True
        with self._resources, _TranslatedErrors(self._subject):
            return self._publish(self._folder, self._file, self._temp)

    def __exit__(self, *failure: object) -> None:
        """Remove the temporary file."""
        self._finished = True
        self._resources.close()


_FOLDER_TRIES = 100
"""A try fails only if another process removed the folder meanwhile, so that one has progressed.

The bound only makes sure that a put ends: eight tries were too few on a loaded machine.
"""

_TRANSIENT_DEPTH = 3
"""Folders at least this deep, such as the marker folders of a write, are removed when empty."""

_TEMP_PREFIX = ".tidelock-"
_TEMP_SUFFIX = ".tmp"
_NS_PER_MS = 1_000_000


class LocalStore:
    """Objects as files below `root`."""

    def __init__(
        self,
        root: Path,
        *,
        fsync: bool = True,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        observe: Callable[[str], None] | None = None,
    ) -> None:
        """Use `root`, which the first write creates.

        Without `fsync` a power failure may lose writes; a killed process cannot.
        """
        self._root = root.absolute()
        self._fsync = fsync
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._observe = observe or (lambda _: None)

    @property
    def uri(self) -> str:
        """The URI of the root folder."""
        return f"file://{self._root}"

    @property
    def identity(self) -> str:
        """The URI: there is no server."""
        return self.uri

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, or a range of it; None if absent."""
        self._observe("get")
        parts, name = _split_key(key)
        with (
            self._errors(key),
            suppress(FileNotFoundError),
            opened_folder(self._root, parts) as handle,
        ):
            return None if handle is None else _read(handle, name, start, end)
        return None

    def head(self, key: str) -> ObjectMeta | None:
        """Return size, version and age of the object; None if absent."""
        self._observe("head")
        parts, name = _split_key(key)
        with self._errors(key), opened_folder(self._root, parts) as handle:
            found = None if handle is None else _stat(handle, name)
            if found is None:
                return None
            _check_is_object(found)
            return _meta(key, found)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write under the condition of `mode`."""
        self._observe("put")
        parts, name = _split_key(key)
        # An empty object has no bytes to lose, and file systems keep the order of names: its name
        # is durable once the name of any later object is.
        durable = self._fsync and bool(body) and (not isinstance(mode, Create) or mode.durable)
        for left in reversed(range(_FOLDER_TRIES)):
            try:
                with opened_folder(self._root, parts, create=True, fsync=durable) as handle:
                    assert handle is not None
                    return self._put(handle, name, body, mode, self._subject(key), durable=durable)
            except OSError as error:
                # Another process may remove the empty folder before the first file is in it.
                if not left or not isinstance(error, FileNotFoundError):
                    raise translated(error, self._subject(key)) from error
        raise AssertionError("the last try returns or raises")

    def delete(self, key: str) -> None:
        """Delete the object; an absent one is not an error."""
        self._observe("delete")
        parts, name = _split_key(key)
        with self._errors(key), suppress(FileNotFoundError):
            with opened_folder(self._root, parts) as handle:
                if handle is None:
                    return
                # After a power failure the object may exist again, as if the failure came first.
                with exclusive_flock(handle, self._clock, self._subject(key)):
                    os.unlink(name, dir_fd=handle)
            self._remove_empty(parts)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects below `prefix` in the byte order of their keys."""
        self._observe("list")
        base, _, _ = checked_prefix(prefix).rpartition("/")
        parts = base.split("/") if base else []
        with self._errors(prefix), opened_folder(self._root, parts) as handle:
            if handle is not None:
                yield from self._walk(handle, f"{base}/" if base else "", prefix, start_after)

    def _remove_empty(self, parts: Sequence[str]) -> None:
        """Remove the empty folders above a deleted object, except those near the root."""
        for depth in range(len(parts) - 1, _TRANSIENT_DEPTH - 2, -1):
            last = parts[depth]
            with opened_folder(self._root, [*parts[:depth]]) as above:
                if above is None:
                    return
                try:
                    os.rmdir(last, dir_fd=above)
                except OSError:
                    return  # not empty any more, or already removed

    def upload(self, key: str) -> Upload:
        """Return an upload: a temporary file in the object's folder."""
        self._observe("put")
        parts, name = _split_key(key)
        subject = self._subject(key)

        def publish(handle: int, file: int, temp: str) -> PutReply:
            durable = self._fsync
            version = self._finish_file(file, after_ns=0, durable=durable)
            return self._publish(
                handle, temp, name, version=version, mode=Create(), subject=subject, durable=durable
            )

        temp = self._temp_name()
        return LocalUpload(
            self._root, parts, temp, fsync=self._fsync, subject=subject, publish=publish
        )

    def local_path(self, key: str) -> str | None:
        """Return the path of the object's file if it exists and no part of it is a link."""
        return None if self.head(key) is None else str(self._root / key)

    def close(self) -> None:
        """Do nothing: no handle is kept between calls."""

    def _put(
        self, handle: int, name: str, body: bytes, mode: PutMode, subject: str, *, durable: bool
    ) -> PutReply:
        found = _stat(handle, name)
        if _condition_fails(found, mode):
            # Checked without the lock, which is sufficient to refuse: the condition was false now.
            return Refused()
        if not body and isinstance(mode, Create):
            return self._create_empty(handle, name, subject)
        after_ns = found.st_mtime_ns if found else 0
        temp, version = self._write_temp(handle, body, after_ns=after_ns, durable=durable)
        try:
            return self._publish(
                handle, temp, name, version=version, mode=mode, subject=subject, durable=durable
            )
        finally:
            _try_unlink(handle, temp)

    def _create_empty(self, handle: int, name: str, subject: str) -> PutReply:
        """Create an empty object, which is complete as soon as it has its name."""
        try:
            file = os.open(name, _NEW_FILE, 0o666, dir_fd=handle)
        except FileExistsError:
            return Refused()
        try:
            return Landed(self._finish_file(file, after_ns=0, durable=False))
        except OSError as error:
            return Unclear(f"{subject}: {error.strerror} while setting the time of the object")
        finally:
            os.close(file)

    def _publish(
        self,
        handle: int,
        temp: str,
        name: str,
        *,
        version: str,
        mode: PutMode,
        subject: str,
        durable: bool,
    ) -> PutReply:
        """Give the temporary file the name of the object, durably."""
        try:
            landed = self._rename(handle, temp, name, mode, subject)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            # The device failed during a change of the folder: it may or may not have happened.
            cause = f"{subject}: {error.strerror} while naming the object"
            return Unclear(cause, volatile=True)
        if not landed:
            return Refused()
        try:
            if durable:
                os.fsync(handle)
        except OSError as error:
            # Visible, but perhaps not durable.
            cause = f"{subject}: {error.strerror} while making the name durable"
            return Unclear(cause, volatile=True)
        return Landed(version)

    def _rename(self, handle: int, temp: str, name: str, mode: PutMode, subject: str) -> bool:
        """Give the temporary file the name of the object if the condition holds."""
        if isinstance(mode, Create):
            try:
                os.link(temp, name, src_dir_fd=handle, dst_dir_fd=handle, follow_symlinks=False)
            except FileExistsError:
                return False
            return True
        with exclusive_flock(handle, self._clock, subject):
            if _condition_fails(_stat(handle, name), mode):
                return False
            os.rename(temp, name, src_dir_fd=handle, dst_dir_fd=handle)
        return True

    def _write_temp(
        self, handle: int, body: bytes, *, after_ns: int, durable: bool
    ) -> tuple[str, str]:
        """Write `body` to a temporary file; return its name and the version it will have."""
        temp = self._temp_name()
        file = os.open(temp, _NEW_FILE, 0o666, dir_fd=handle)
        try:
            view = memoryview(body)
            while view:
                view = view[os.write(file, view) :]
            return temp, self._finish_file(file, after_ns=after_ns, durable=durable)
        except BaseException:
            _try_unlink(handle, temp)
            raise
        finally:
            os.close(file)

    def _finish_file(self, file: int, *, after_ns: int, durable: bool) -> str:
        """Make the bytes of a file durable and return the version that the object will have.

        The modification time is part of the version. It is later than that of the replaced object,
        and its last digits are random, so no two writes of a key share it.
        """
        random_ns = int(self._ids.jitter() * _NS_PER_MS)
        modified_ns = max(self._clock.now().wall_epoch_ms * _NS_PER_MS + random_ns, after_ns + 1)
        os.utime(file, ns=(modified_ns, modified_ns))
        if durable:
            os.fsync(file)
        return _version(os.fstat(file))

    def _temp_name(self) -> str:
        return f"{_TEMP_PREFIX}{self._ids.uuid()}{_TEMP_SUFFIX}"

    def _walk(self, handle: int, base: str, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        with os.scandir(handle) as entries:
            # Files of other programs may have names that are not valid keys; they are not objects.
            found = [
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in entries
                if is_key(entry.name)
            ]
        # A folder sorts by its name with a slash, as the keys below it do.
        found.sort(key=lambda item: (item[0] + "/" if item[1] else item[0]).encode())
        for name, is_folder in found:
            key = base + name
            if is_folder:
                yield from self._walk_below(handle, name, key + "/", prefix, start_after)
            elif key.startswith(prefix) and key.encode() > start_after.encode():
                status = _stat(handle, name)
                if status is None or not stat.S_ISREG(status.st_mode):
                    continue
                if not _is_temp(name):
                    yield _meta(key, status)
                elif self._is_stale(status):
                    _try_unlink(handle, name)

    def _walk_below(
        self, handle: int, name: str, base: str, prefix: str, start_after: str
    ) -> Iterator[ObjectMeta]:
        if not (base.startswith(prefix) or prefix.startswith(base)):
            return
        if base.encode() < start_after.encode() and not start_after.startswith(base):
            return
        try:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
        except FileNotFoundError:
            return
        try:
            yield from self._walk(below, base, prefix, start_after)
        finally:
            os.close(below)

    def _is_stale(self, status: os.stat_result) -> bool:
        """Return whether the writer of a temporary file has died."""
        age_ms = self._clock.now().wall_epoch_ms - status.st_mtime_ns // _NS_PER_MS
        return age_ms > TEMP_AGE_MS

    def _subject(self, key: str) -> str:
        return f"{self.uri}/{key}"

    def _errors(self, key: str) -> _TranslatedErrors:
        return _TranslatedErrors(self._subject(key))


def _split_key(key: str) -> tuple[list[str], str]:
    *parts, name = checked_key(key).split("/")
    if _is_temp(name):
        raise InvalidInput(
            f"{key} is not a key: the name is reserved for temporary files of the local store"
        )
    return parts, name


def _condition_fails(found: os.stat_result | None, mode: PutMode) -> bool:
    match mode:
        case Create():
            return found is not None
        case Match(version):
            return found is None or _version(found) != version
        case Overwrite():
            return False


def _read(handle: int, name: str, start: int, end: int | None) -> StoredObject:
    # Non-blocking: opening a named pipe would block forever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    file = os.open(name, flags, dir_fd=handle)
    try:
        status = os.fstat(file)
        _check_is_object(status)
        stop = status.st_size if end is None else min(end, status.st_size)
        body = bytearray()
        while start + len(body) < stop:
            piece = os.pread(file, stop - start - len(body), start + len(body))
            if not piece:
                break
            body += piece
        return StoredObject(bytes(body), _version(status), status.st_mtime_ns // _NS_PER_MS)
    finally:
        os.close(file)


def _check_is_object(status: os.stat_result) -> None:
    """Reject anything but a regular file, with errors that `translated` knows."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _stat(handle: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}"


def _meta(key: str, status: os.stat_result) -> ObjectMeta:
    return ObjectMeta(key, status.st_size, _version(status), status.st_mtime_ns // _NS_PER_MS)


def _is_temp(name: str) -> bool:
    return name.startswith(_TEMP_PREFIX) and name.endswith(_TEMP_SUFFIX)


def _try_unlink(handle: int, name: str) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=handle)


@contextmanager
def file_queue(path: str | None, *, wait_ms: float, clock: Clock) -> Iterator[bool]:
    """Queue with the other processes of this machine for a file; yield whether it is our turn.

    The queue is advisory. Without a path, as on other stores than a local folder, or if the wait
    takes longer than `wait_ms`, the block runs without it.
    """
    if path is None:
        yield False
        return
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        began_ms = clock.now().monotonic_ms
        try:
            first = _try_flock(handle, wait_ms, clock, _QUEUE_PAUSE_MS)
        except OSError:
            first = False  # a file system without flock
        PROCESS.time(QUEUE_WAIT.name, clock.now().monotonic_ms - began_ms)
        yield first
    finally:
        os.close(handle)  # releases the lock
