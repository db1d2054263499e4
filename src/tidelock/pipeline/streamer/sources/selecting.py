"""Which files of a folder come next: by time of change and name, as Hudi selects them. Pure.

Hudi remembers the time alone, so a file that appears later with the same time is never read. Here
the files of that time are remembered too, and those of a while before it where a store shows files
under the time at which their upload began.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelock.base.errors import ConfigInvalid
from tidelock.store.contract import ObjectMeta

_HIDDEN: Final = (".", "_")
_DIGEST_BYTES: Final = 9


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Every file up to `time_epoch_ms` was read, if it is older than `floor_epoch_ms`.

    From there on those were read that `seen` names, with their times.
    """

    time_epoch_ms: int = -1
    floor_epoch_ms: int = -1
    seen: Mapping[str, int] = field(default_factory=dict)

    def is_news(self, file: ObjectMeta, lookback_ms: int) -> bool:
        """Tell whether a file was not read yet."""
        if file.modified_epoch_ms > self.time_epoch_ms:
            return True
        # What was seen before a longer look back was asked for is not known, so it stays read.
        near_epoch_ms = max(self.time_epoch_ms - lookback_ms, self.floor_epoch_ms)
        return file.modified_epoch_ms >= near_epoch_ms and digest(file.key) not in self.seen

    def after(self, read: Iterable[ObjectMeta], lookback_ms: int) -> FilePlace:
        """Return the place after these files were read, too."""
        seen = dict(self.seen)
        seen.update((digest(file.key), file.modified_epoch_ms) for file in read)
        newest = max([self.time_epoch_ms, *seen.values()])
        floor = max(self.floor_epoch_ms, newest - lookback_ms)
        near = {name: time for name, time in seen.items() if time >= floor}
        return FilePlace(newest, floor, near)

    def text(self) -> str:
        """Return it for a checkpoint; times are told by how far they lie behind the newest."""
        newest = self.time_epoch_ms
        held = {
            "time": newest,
            "floor": self.floor_epoch_ms,
            "seen": {name: newest - time for name, time in sorted(self.seen.items())},
        }
        return json.dumps(held, separators=(",", ":"))


def file_place(text: str | None) -> FilePlace:
    """Return the place that a checkpoint says: ours, or the bare time of Hudi's.

    Raises: `ConfigInvalid`.
    """
    if text is None:
        return FilePlace()
    try:
        if text.isdigit():
            # Hudi's streamer read all files of that time that it saw, and named none.
            return FilePlace(int(text) + 1, int(text) + 1)
        held = json.loads(text)
        newest = int(held["time"])
        seen = {str(name): newest - int(behind) for name, behind in held["seen"].items()}
        return FilePlace(newest, int(held["floor"]), seen)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigInvalid(
            f"{text[:80]!r} is no checkpoint of a folder", hint="give a time in milliseconds"
        ) from error


def digest(key: str) -> str:
    """Return a short name for a file."""
    hashed = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES)
    return urlsafe_b64encode(hashed.digest()).decode().rstrip("=")


def is_data(file: ObjectMeta, suffixes: Sequence[str] = ()) -> bool:
    """Tell whether a file has records: it is not empty, and no part of its path is hidden."""
    hidden = any(part.startswith(_HIDDEN) for part in file.key.split("/"))
    wanted = not suffixes or file.key.lower().endswith(tuple(suffixes))
    return file.size_bytes > 0 and not hidden and wanted


def selected(
    files: Iterable[ObjectMeta], since: FilePlace, *, bytes_max: int, lookback_ms: int = 0
) -> tuple[ObjectMeta, ...]:
    """Return the files of the next batch: the oldest first, up to a size, at least one."""
    news = sorted(
        (file for file in files if since.is_news(file, lookback_ms)),
        key=lambda file: (file.modified_epoch_ms, file.key),
    )
    chosen: list[ObjectMeta] = []
    size = 0
    for file in news:
        if chosen and size + file.size_bytes > bytes_max:
            break
        chosen.append(file)
        size += file.size_bytes
    return tuple(chosen)
