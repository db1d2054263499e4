"""A lock file in a folder: Hudi's `FileSystemBasedLockProvider`, without its unsafe unlock.

The file is Hudi's `lock`, made by one atomic link with its whole content; its expiry is Hudi's too:
so many minutes after it was last modified. A renewal modifies it, so a slow holder keeps its lock
(in Hudi it silently loses it). It is removed only by its maker, an operator, or a taker that found
it expired; our own takers do that in turns, by `flock` on the folder.
Does not guarantee: exclusion against Java writers that race for a free lock, give up or close. On a
local disk Hudi's provider looks and then creates, in two steps, and when it gives up or closes it
deletes the file, whoever made it. We notice both, afterwards.
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

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import (
    ConfigInvalid,
    PermissionDenied,
    StoreUnreachable,
    TidelockError,
    Unsupported,
)
from tidelock.base.metrics import Metrics
from tidelock.lock.config import BASE_PATH
from tidelock.lock.provider import Features, Holder
from tidelock.lockproviders import keys
from tidelock.lockproviders.backend import (
    Attempt,
    Freed,
    Gone,
    Grant,
    Held,
    Kept,
    ReleaseReply,
    RenewReply,
    Taken,
    TakeReply,
    Terms,
)
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace

FILE = "lock"
_OURS = "tidelockAttempt"
_RENEWALS = 10
_CHECK_MS = 1_000
_MINUTE_MS = 60_000
_CONTENT_BYTES_MAX = 64 * 1024


class FileSystemBackend:
    """The lock file of one folder. `expire_ms` None: it stays until somebody removes it."""

    def __init__(self, folder: Path, *, expire_ms: int | None, clock: Clock | None = None) -> None:
        """Touch nothing yet."""
        self.uri = f"file://{folder / FILE}"
        self.terms = Terms(
            expire_ms, _CHECK_MS if expire_ms is None else max(1, expire_ms // _RENEWALS)
        )
        self._folder = folder
        self._path = folder / FILE
        self._clock = clock or SystemClock()

    def features(self) -> Features:
        """Return what a file can do."""
        return Features(blocking_wait=True, force_release=True)

    def take(self, attempt: Attempt) -> TakeReply:
        """Make the file if it is not there, or if it has expired."""
        with self._turn():
            there = self._seen()
            if there is not None:
                owner, left_ms = there
                if left_ms is None or left_ms >= 0:
                    return Held(owner, look_after_ms=left_ms)
                self._path.unlink(missing_ok=True)
            made = self._folder / f".{FILE}-{attempt.id}"
            try:
                made.write_bytes(self._content(attempt))
                os.link(made, self._path)
            except FileExistsError:
                return Held()
            finally:
                made.unlink(missing_ok=True)
        return Taken(Grant(attempt, attempt.id))

    def leave(self, attempt: Attempt) -> bool:
        """Remove the file if this attempt made it."""
        return self._remove(attempt)

    def renew(self, grant: Grant) -> RenewReply:
        """Modify the file, if it is still ours."""
        with self._turn():
            if self._maker() != grant.attempt.id:
                return Gone(self._whose())
            now_ns = self._clock.now().wall_epoch_ms * 1_000_000
            os.utime(self._path, ns=(now_ns, now_ns), follow_symlinks=False)
        return Kept(grant)

    def release(self, grant: Grant) -> ReleaseReply:
        """Remove the file, if it is still ours."""
        return Freed() if self._remove(grant.attempt) else Gone(self._whose())

    def forsake(self, grant: Grant) -> None:
        """Leave the file to expire; one that never does is removed, being ours."""
        if self.terms.validity_ms is None:
            with suppress(TidelockError):
                self._remove(grant.attempt)

    def holder(self) -> Holder | None:
        """Return who made the file."""
        with self._turn():
            there = self._seen()
            if there is None or (there[1] is not None and there[1] < 0):
                return None
            modified_ms = self._path.stat().st_mtime_ns // 1_000_000
        owner, left_ms = there
        expires_ms = None if left_ms is None else self._clock.now().wall_epoch_ms + int(left_ms)
        return Holder(owner, since_epoch_ms=modified_ms, expires_epoch_ms=expires_ms)

    def break_lock(self) -> bool:
        """Remove the file."""
        with self._turn():
            if not self._path.exists():
                return False
            self._path.unlink(missing_ok=True)
        return True

    def close(self) -> None:
        """Nothing is kept open."""

    def _seen(self) -> tuple[str, float | None] | None:
        """Return who made the file and how long it is good for; None if there is none."""
        try:
            modified_ms = self._path.lstat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None
        left_ms = None
        if self.terms.validity_ms is not None:
            left_ms = modified_ms + self.terms.validity_ms - self._clock.now().wall_epoch_ms
        return self._maker() or "a Hudi Java writer", left_ms

    def _maker(self) -> str:
        """Return the attempt that made the file; empty for one of Java's, or none."""
        try:
            with self._path.open("rb") as file:
                said = json.loads(file.read(_CONTENT_BYTES_MAX))
        except (FileNotFoundError, ValueError):
            return ""
        return str(said.get(_OURS, "")) if isinstance(said, dict) else ""

    def _remove(self, attempt: Attempt) -> bool:
        with self._turn():
            if self._maker() != attempt.id:
                return False
            self._path.unlink(missing_ok=True)
        return True

    def _whose(self) -> str:
        maker = self._maker()
        if maker:
            return f"the file was made by {maker}"
        return "the file is a Java writer's" if self._path.exists() else "the file was removed"

    def _content(self, attempt: Attempt) -> bytes:
        """Return Hudi's three fields, for people, and who we are, for ourselves."""
        moment = datetime.fromtimestamp(self._clock.now().wall_epoch_ms / 1000).astimezone()
        said = {
            "lockCreateTime": moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
            "lockThreadName": threading.current_thread().name,
            "lockStacksInfo": [f"tidelock, process {os.getpid()}"],
            _OURS: attempt.id,
        }
        return json.dumps(said, indent=2, separators=(",", " : ")).encode()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Keep other clients of ours out for the few system calls of one verb."""
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


class FileSystemLockProvider(LeasedProvider):
    """Hudi's provider: `…filesystem.path` or `.hoodie` of the table, `…filesystem.expire`."""

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read and check the settings; touch nothing.

        Raises: `ConfigInvalid`, `Unsupported` for a scheme other than `file`.
        """
        minutes = keys.FS_EXPIRE_MIN.required(settings)
        if minutes < 0:
            raise ConfigInvalid(f"{keys.FS_EXPIRE_MIN.key} = {minutes} must not be negative")
        folder = keys.FS_PATH.value(settings)
        if folder is None:
            folder = f"{BASE_PATH.required(settings).rstrip('/')}/.hoodie"
        backend = FileSystemBackend(
            local_folder(folder), expire_ms=minutes * _MINUTE_MS if minutes else None
        )
        pace = Pace.read(settings)
        super().__init__(backend, pace=pace, metrics=metrics, bind_thread=bind_thread)


def local_folder(place: str) -> Path:
    """Return the folder that a path or a `file:` URI names.

    Raises: `Unsupported` for other schemes: their stores have no atomic create in this form.
    """
    scheme, found, rest = place.partition(":")
    if not found or "/" in scheme:
        return Path(place).absolute()
    if scheme.lower() != "file":
        raise Unsupported(
            f"{place}: the filesystem lock works on local folders only",
            hint="use the storage lock provider for object stores",
        )
    return Path("/" + rest.lstrip("/"))
