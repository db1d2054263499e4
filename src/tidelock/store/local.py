"""Objects in a local folder: the embedded default.

Guarantees:
  * `Create` and `Match` are atomic between all processes and threads on this machine. `Create` is a
    hard link, which the kernel refuses when the name exists; replacing and deleting take turns by
    `flock` on the folder, which the kernel ends when a process dies.
  * A reader sees a whole object: bytes are written to a temporary file, synced, then linked or
    renamed. A kill or a power failure at any moment leaves the old or the new object.
Does not guarantee:
  * anything on network filesystems that emulate `flock` per machine; the probe finds some of them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import InvalidInput
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.limits import TEMP_AGE_MS
from tidelock.base.outcome import Landed
from tidelock.store import folder
from tidelock.store.contract import (
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
from tidelock.store.local_upload import LocalUpload
from tidelock.store.uri import checked_key, checked_prefix, is_key

_FOLDER_TRIES = 8
_PASSING_DEPTH = 3
"""Folders this deep, such as those of one write's markers, are removed when they are empty."""

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

        Without `fsync` a power failure may undo writes; a killed process still cannot.
        """
        self._root = root.absolute()
        self._fsync = fsync
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._observe = observe or _ignore

    @property
    def uri(self) -> str:
        """The place this store stands for."""
        return f"file://{self._root}"

    @property
    def identity(self) -> str:
        """The URI: there is no server."""
        return self.uri

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, or a range of it; None if absent."""
        self._observe("get")
        parts, name = _parted(key)
        try:
            with folder.opened(self._root, parts, create=False, fsync=False) as handle:
                if handle is None:
                    return None
                return _read(handle, name, start, end)
        except FileNotFoundError:
            return None
        except OSError as error:
            folder.fail(error, self._shown(key))

    def head(self, key: str) -> ObjectMeta | None:
        """Return what is known of the object without its bytes; None if absent."""
        self._observe("head")
        parts, name = _parted(key)
        try:
            with folder.opened(self._root, parts, create=False, fsync=False) as handle:
                found = None if handle is None else _stat(handle, name)
                if found is not None:
                    _check_is_object(found)
        except OSError as error:
            folder.fail(error, self._shown(key))
        return None if found is None else _meta(key, found)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write under the condition of `mode`."""
        self._observe("put")
        parts, name = _parted(key)
        # An empty object has no bytes to lose, and a file system keeps the order of names: its
        # name is durable once that of any later object is.
        lasting = not isinstance(mode, Create) or mode.lasting
        durable = self._fsync and bool(body) and lasting
        for left in reversed(range(_FOLDER_TRIES)):
            try:
                with folder.opened(self._root, parts, create=True, fsync=durable) as handle:
                    assert handle is not None
                    return self._put(handle, name, body, mode, self._shown(key), durable=durable)
            except FileNotFoundError as error:
                # Somebody removed the folder as empty before the first file was in it.
                if not left:
                    folder.fail(error, self._shown(key))
            except OSError as error:
                folder.fail(error, self._shown(key))
        raise AssertionError("the last try returns or raises")

    def delete(self, key: str) -> None:
        """Remove the object; an absent one is no error."""
        self._observe("delete")
        parts, name = _parted(key)
        try:
            with folder.opened(self._root, parts, create=False, fsync=False) as handle:
                if handle is None:
                    return
                # After a power failure the object may be back, as if the failure had come before.
                with folder.exclusive(handle, self._clock, self._shown(key)):
                    os.unlink(name, dir_fd=handle)
            self._remove_empty(parts)
        except FileNotFoundError:
            return
        except OSError as error:
            folder.fail(error, self._shown(key))

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects below `prefix` in the byte order of their keys."""
        self._observe("list")
        base, _, _ = checked_prefix(prefix).rpartition("/")
        parts = base.split("/") if base else []
        try:
            with folder.opened(self._root, parts, create=False, fsync=False) as handle:
                if handle is not None:
                    yield from self._walk(handle, f"{base}/" if base else "", prefix, start_after)
        except OSError as error:
            folder.fail(error, self._shown(prefix))

    def _remove_empty(self, parts: Sequence[str]) -> None:
        """Remove the folder of a deleted object if nothing else is in it, and those above it.

        Folders near the root are used again and again, so they stay.
        """
        for depth in range(len(parts) - 1, _PASSING_DEPTH - 2, -1):
            last = parts[depth]
            with folder.opened(self._root, [*parts[:depth]], create=False, fsync=False) as above:
                if above is None:
                    return
                try:
                    os.rmdir(last, dir_fd=above)
                except OSError:
                    return  # somebody put something into it, or removed it first

    def upload(self, key: str) -> Upload:
        """Return an upload: a temporary file in the object's folder."""
        self._observe("put")
        parts, name = _parted(key)
        shown = self._shown(key)

        def seal(handle: int, file: int, temp: str) -> PutReply:
            durable = self._fsync
            version = self._sealed(file, above_ns=0, durable=durable)
            return self._named(
                handle, temp, name, version=version, mode=Create(), shown=shown, durable=durable
            )

        temp = self._temp_name()
        return LocalUpload(self._root, parts, temp, fsync=self._fsync, shown=shown, seal=seal)

    def local_path(self, key: str) -> str | None:
        """Return the object's file if it is there, and no part of the way to it is a link."""
        return None if self.head(key) is None else str(self._root / key)

    def close(self) -> None:
        """Nothing is kept open between calls."""

    def _put(
        self, handle: int, name: str, body: bytes, mode: PutMode, shown: str, *, durable: bool
    ) -> PutReply:
        found = _stat(handle, name)
        if _condition_fails(found, mode):
            # Seen without the turn, but true at that moment: the write may be refused right away.
            return Refused()
        if not body and isinstance(mode, Create):
            return self._created(handle, name, shown)
        above_ns = found.st_mtime_ns if found else 0
        temp, version = self._write_temp(handle, body, above_ns=above_ns, durable=durable)
        try:
            return self._named(
                handle, temp, name, version=version, mode=mode, shown=shown, durable=durable
            )
        finally:
            _unlink_quietly(handle, temp)

    def _created(self, handle: int, name: str, shown: str) -> PutReply:
        """Create an empty object, which is whole as soon as it has its name."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            file = os.open(name, flags, 0o666, dir_fd=handle)
        except FileExistsError:
            return Refused()
        try:
            return Landed(self._sealed(file, above_ns=0, durable=False))
        except OSError as error:
            return Unclear(f"{shown}: {error.strerror} while giving the object its time")
        finally:
            os.close(file)

    def _named(
        self,
        handle: int,
        temp: str,
        name: str,
        *,
        version: str,
        mode: PutMode,
        shown: str,
        durable: bool,
    ) -> PutReply:
        """Give the temporary file the object's name, durably, and say what came of it."""
        try:
            landed = self._name(handle, temp, name, mode, shown)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            # The device failed in the middle of a change of the folder: before or after, who knows.
            cause = f"{shown}: {error.strerror} while giving the object its name"
            return Unclear(cause, volatile=True)
        if not landed:
            return Refused()
        try:
            if durable:
                os.fsync(handle)
        except OSError as error:
            # Visible, but perhaps not durable: the one answer that is neither.
            cause = f"{shown}: {error.strerror} while making the name durable"
            return Unclear(cause, volatile=True)
        return Landed(version)

    def _name(self, handle: int, temp: str, name: str, mode: PutMode, shown: str) -> bool:
        """Give the temporary file the object's name if the condition holds at that moment."""
        if isinstance(mode, Create):
            return _link(handle, temp, name)
        with folder.exclusive(handle, self._clock, shown):
            if _condition_fails(_stat(handle, name), mode):
                return False
            os.rename(temp, name, src_dir_fd=handle, dst_dir_fd=handle)
        return True

    def _write_temp(
        self, handle: int, body: bytes, *, above_ns: int, durable: bool
    ) -> tuple[str, str]:
        """Write `body` under a temporary name and return that name and the version it will have."""
        temp = self._temp_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temp, flags, 0o666, dir_fd=handle)
        try:
            view = memoryview(body)
            while view:
                view = view[os.write(file, view) :]
            return temp, self._sealed(file, above_ns=above_ns, durable=durable)
        except BaseException:
            _unlink_quietly(handle, temp)
            raise
        finally:
            os.close(file)

    def _sealed(self, file: int, *, above_ns: int, durable: bool) -> str:
        """Make a file's bytes durable and return the version that the object will have.

        The modification time is part of the version. It is later than that of the object replaced,
        and its last digits are drawn, so no two writes of one key share it.
        """
        drawn = int(self._ids.jitter() * _NS_PER_MS)
        modified_ns = max(self._clock.now().wall_epoch_ms * _NS_PER_MS + drawn, above_ns + 1)
        os.utime(file, ns=(modified_ns, modified_ns))
        if durable:
            os.fsync(file)
        return _version(os.fstat(file))

    def _temp_name(self) -> str:
        return f"{_TEMP_PREFIX}{self._ids.uuid()}{_TEMP_SUFFIX}"

    def _walk(self, handle: int, base: str, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        with os.scandir(handle) as entries:
            # Others may leave names here that no key can have; they are not objects.
            found = [
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in entries
                if is_key(entry.name)
            ]
        # A folder sorts as its name with a slash: that is how keys below it compare.
        found.sort(key=lambda item: (item[0] + "/" if item[1] else item[0]).encode())
        for name, is_folder in found:
            key = base + name
            if is_folder:
                yield from self._walk_below(handle, name, key + "/", prefix, start_after)
            elif key.startswith(prefix) and key.encode() > start_after.encode():
                status = _stat(handle, name)
                if status is None or not stat.S_ISREG(status.st_mode):
                    continue
                if _is_temp(name):
                    self._sweep(handle, name, status)
                else:
                    yield _meta(key, status)

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

    def _sweep(self, handle: int, name: str, status: os.stat_result) -> None:
        """Remove the temporary file of a writer that died long ago."""
        age_ms = self._clock.now().wall_epoch_ms - status.st_mtime_ns // _NS_PER_MS
        if age_ms > TEMP_AGE_MS:
            _unlink_quietly(handle, name)

    def _shown(self, key: str) -> str:
        return f"{self.uri}/{key}"


def _parted(key: str) -> tuple[list[str], str]:
    *parts, name = checked_key(key).split("/")
    if _is_temp(name):
        raise InvalidInput(f"{key} is not a key: the local store names its temporary files so")
    return parts, name


def _condition_fails(found: os.stat_result | None, mode: PutMode) -> bool:
    match mode:
        case Create():
            return found is not None
        case Match(version):
            return found is None or _version(found) != version
        case Overwrite():
            return False


def _link(handle: int, temp: str, name: str) -> bool:
    try:
        os.link(temp, name, src_dir_fd=handle, dst_dir_fd=handle, follow_symlinks=False)
    except FileExistsError:
        return False
    return True


def _read(handle: int, name: str, start: int, end: int | None) -> StoredObject:
    # Without waiting: a pipe by that name would keep its reader for ever.
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
    """Refuse what is neither a file nor absent, in the words `folder.translated` knows."""
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


def _unlink_quietly(handle: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=handle)
    except OSError:
        return


def _ignore(verb: str) -> None:
    del verb
