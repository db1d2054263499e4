"""What changed between two moments: which writes completed, and where their rows are now. Pure.

The rows of an incremental read are those whose `_hoodie_commit_time` is the request time of a write
that completed in the range. Compaction and clustering move rows without changing that time, so the
slices to read are those of every file group that anything in the range touched, as they stood at
the end of the range.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelock.base.errors import NotFound
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.filegroup.view import FileGroup, GroupId, Visibility, visible_slices


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a completed write named in its write stats."""

    completion: str
    partition: str
    file_id: str
    path: str

    @property
    def group_id(self) -> GroupId:
        """The file group it belongs to."""
        return self.partition, self.file_id


@dataclass(frozen=True, slots=True)
class Changes:
    """The writes that completed in (`begin`, `end`], and the slices that hold their rows.

    Rows with another commit time than one of `instants` are not part of the change.
    """

    begin: str
    end: str
    instants: frozenset[str]
    slices: tuple[FileSlice, ...]


def changed_slices(
    groups: Iterable[FileGroup], written: Iterable[WrittenFile], at_end: Visibility
) -> tuple[FileSlice, ...]:
    """Return the slices, at the end of a range, of the file groups written in the range.

    `written` is without file groups that were replaced by the end of the range.
    Raises: `NotFound` if a file that is needed has been cleaned: rows would silently be missing.
    """
    last: dict[GroupId, WrittenFile] = {}
    for file in sorted(written, key=lambda each: each.completion):
        last[file.group_id] = file
    slices = {
        (each.partition, each.file_id): each
        for each in visible_slices(groups, at_end)
        if (each.partition, each.file_id) in last
    }
    for group, file in last.items():
        found = slices.get(group)
        if found is None or file.path not in _keys(found):
            raise NotFound(
                f"{file.path} was written at {file.completion} and has been cleaned since",
                hint="begin later, or read a snapshot and go on from its time",
            )
    return tuple(slices[group] for group in sorted(slices))


def _keys(found: FileSlice) -> set[str]:
    base = [found.base.key] if found.base else []
    return {*base, *(log.key for log in found.logs)}
