"""What came of writing one file: the write stat that a commit records, and what judges need."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelock.table.markers import IoType
from tidelock.table.timeline.metadata import WriteStat

KEYS_INLINE_MAX: Final = 512
"""A result names the keys it inserted up to this many; a commit of more is judged without them."""


class FileKind(Enum):
    """What a file is to its file group."""

    CREATED = "created"  # the base file of a group that this write begins
    MERGED = "merged"  # a base file that stands for all of an existing group
    APPENDED = "appended"  # a log file on top of a group


@dataclass(frozen=True, slots=True)
class FileResult:
    """One file that was written.

    `replaced_base` is the name of the base file it takes the place of. `min_key` and `max_key`
    bound the record keys in it. `written_keys` are those that were inserted, None when there are
    more than `KEYS_INLINE_MAX`. `announced` is what its marker says of it. `ignored` counts rows
    that lost to stored ones by their ordering value.
    """

    stat: WriteStat
    partition: str
    file_id: str
    kind: FileKind
    replaced_base: str | None = None
    min_key: str | None = None
    max_key: str | None = None
    written_keys: tuple[str, ...] | None = ()
    announced: IoType = IoType.CREATE
    ignored: int = 0
