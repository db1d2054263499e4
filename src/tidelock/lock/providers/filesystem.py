"""Lock provider for a lock file in a folder: Hudi's `FileSystemBasedLockProvider`, made safe.

The file is Hudi's `lock`. It is created atomically with its content (by a hard link) and expires as
in Hudi, some minutes after its last modification. A renewal modifies it, so a slow holder keeps its
lock (in Hudi it silently loses it). The file is removed only by its creator, an operator, or a
client that found it expired; clients of Tidelock exclude each other with `flock` on the folder.

Does not guarantee: exclusion against Java writers that race for a free lock, give up or close. On a
local disk, Hudi's provider checks and creates in two steps, and deletes the file when it gives up
or closes, whoever created it. Both are detected only afterwards.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from tidelock.core.clock import Clock
from tidelock.core.errors import (
    ConfigInvalid,
    PermissionDenied,
    StoreUnreachable,
    TidelockError,
    Unsupported,
)
from tidelock.core.system import SystemClock
from tidelock.lock.config import BASE_PATH
from tidelock.lock.provider import Features, Holder
from tidelock.lock.providers import backend as b
from tidelock.lock.providers import config
from tidelock.lock.providers.leased import ConfiguredProvider

FILE = "lock"
_ATTEMPT_FIELD = "tidelockAttempt"
_RENEWALS = 10
_CHECK_MS = 1_000
_MINUTE_MS = 60_000
_CONTENT_BYTES_MAX = 64 * 1024


class FileSystemBackend:
    """The lock file of one folder. `expire_ms` None: the file does not expire."""

    features = Features(blocking_wait=True, force_release=True)

    def __init__(self, folder: Path, *, expire_ms: int | None, clock: Clock | None = None) -> None:
        self.uri = f"file://{folder / FILE}"
        self.terms = b.LeaseTerms(
            expire_ms, _CHECK_MS if expire_ms is None else max(1, expire_ms // _RENEWALS)
        )
        self._folder = folder
        self._path = folder / FILE
        self._clock = clock or SystemClock()

    def try_acquire(self, attempt: b.Attempt) -> b.AcquireReply:
        """Create the file if it is absent or has expired."""
        with self._exclusive():
            found = self._inspect()
            if found is not None:
                owner, left_ms = found
                if left_ms is None or left_ms >= 0:
                    return b.HeldByOther(owner, poll_after_ms=left_ms)
                self._path.unlink(missing_ok=True)
            temporary = self._folder / f".{FILE}-{attempt.id}"
            try:
                temporary.write_bytes(self._content(attempt))
                os.link(temporary, self._path)
            except FileExistsError:
                return b.HeldByOther()
            finally:
                temporary.unlink(missing_ok=True)
        return b.BackendAcquired(b.BackendGrant(attempt, attempt.id))

    def cancel(self, attempt: b.Attempt) -> bool:
        """Remove the file if this attempt created it."""
        with self._exclusive():
            if self._creator() != attempt.id:
                return False
            self._path.unlink(missing_ok=True)
        return True

    def renew(self, grant: b.BackendGrant) -> b.RenewReply:
        """Update the modification time, if the file is still ours."""
        with self._exclusive():
            if self._creator() != grant.attempt.id:
                return b.GrantLost(self._loss_cause())
            now_ns = self._clock.now().wall_epoch_ms * 1_000_000
            os.utime(self._path, ns=(now_ns, now_ns), follow_symlinks=False)
        return b.RenewedLease(grant)

    def release(self, grant: b.BackendGrant) -> b.ReleaseReply:
        """Remove the file, if it is still ours."""
        return b.GrantReleased() if self.cancel(grant.attempt) else b.GrantLost(self._loss_cause())

    def abandon(self, grant: b.BackendGrant) -> None:
        """Let the file expire; remove it if it does not expire."""
        if self.terms.validity_ms is None:
            with suppress(TidelockError):
                self.cancel(grant.attempt)

    def holder(self) -> Holder | None:
        """Return the creator of the file."""
        with self._exclusive():
            found = self._inspect()
            if found is None or (found[1] is not None and found[1] < 0):
                return None
            modified_ms = self._path.stat().st_mtime_ns // 1_000_000
        owner, left_ms = found
        expires_ms = None if left_ms is None else self._clock.now().wall_epoch_ms + int(left_ms)
        return Holder(owner, since_epoch_ms=modified_ms, expires_epoch_ms=expires_ms)

    def force_release(self) -> bool:
        """Remove the file."""
        with self._exclusive():
            if not self._path.exists():
                return False
            self._path.unlink(missing_ok=True)
        return True

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _inspect(self) -> tuple[str, float | None] | None:
        """Return the creator of the file and its time left; None if it does not exist."""
        try:
            modified_ms = self._path.lstat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None
        left_ms = None
        if self.terms.validity_ms is not None:
            left_ms = modified_ms + self.terms.validity_ms - self._clock.now().wall_epoch_ms
        return self._creator() or "a Hudi Java writer", left_ms

    def _creator(self) -> str:
        """Return the attempt that created the file; empty if Java did, or if it does not exist."""
        try:
            with self._path.open("rb") as file:
                content = json.loads(file.read(_CONTENT_BYTES_MAX))
        except (FileNotFoundError, ValueError):
            return ""
        return str(content.get(_ATTEMPT_FIELD, "")) if isinstance(content, dict) else ""

    def _loss_cause(self) -> str:
        creator = self._creator()
        if creator:
            return f"the file was created by {creator}"
        return "a Java writer created the file" if self._path.exists() else "the file was removed"

    def _content(self, attempt: b.Attempt) -> bytes:
        """Return Hudi's three fields and the id of the attempt."""
        created = datetime.fromtimestamp(self._clock.now().wall_epoch_ms / 1000).astimezone()
        content = {
            "lockCreateTime": created.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
            "lockThreadName": threading.current_thread().name,
            "lockStacksInfo": [f"tidelock, process {os.getpid()}"],
            _ATTEMPT_FIELD: attempt.id,
        }
        return json.dumps(content, indent=2, separators=(",", " : ")).encode()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Exclude other clients of Tidelock during one operation."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
            finally:
                os.close(handle)
        except PermissionError as error:
            raise PermissionDenied(f"{self.uri}: {os.strerror(error.errno or 0)}") from error
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.EROFS, errno.ENAMETOOLONG):
                raise ConfigInvalid(f"{self.uri}: {os.strerror(error.errno)}") from error
            raise StoreUnreachable(f"{self.uri}: {os.strerror(error.errno or 0)}") from error


class FileSystemLockProvider(ConfiguredProvider):
    """Hudi's provider: the file is in `…filesystem.path`, or in `.hoodie` of the table."""

    def open_backend(self, settings: Mapping[str, object]) -> b.Backend:
        """Return the lock file of the folder. Raises: `ConfigInvalid`, `Unsupported`."""
        minutes = config.FS_EXPIRE_MIN.required(settings)
        if minutes < 0:
            raise ConfigInvalid(
                f"{config.FS_EXPIRE_MIN.key}: expected 0 or more, got {minutes}",
                hint="use 0 for a lock that never expires",
            )
        folder = config.FS_PATH.value(settings)
        if folder is None:
            folder = f"{BASE_PATH.required(settings).rstrip('/')}/.hoodie"
        return FileSystemBackend(
            local_folder(folder), expire_ms=minutes * _MINUTE_MS if minutes else None
        )


def local_folder(location: str) -> Path:
    """Return the folder of a path or a `file:` URI. Raises: `Unsupported` for other schemes."""
    scheme, found, rest = location.partition(":")
    if not found or "/" in scheme:
        return Path(location).absolute()
    if scheme.lower() != "file":
        raise Unsupported(
            f"{location}: the filesystem lock works on local folders only",
            hint="use the storage lock provider for object stores",
        )
    return Path("/" + rest.lstrip("/"))
