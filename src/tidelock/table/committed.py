"""Whether the files that completed writes name are there, and whole.

A listing alone does not tell: where a file is missing, an older version of its group, or the group
without a log file, looks like any other; a log file that was cut ends in what looks like a write
that never finished. The commits on the timeline name each file and its size, so they are asked.
Of commits that were archived nothing is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidelock.base.errors import DataCorrupt
from tidelock.base.runtime import worker_pool
from tidelock.store.uri import is_far
from tidelock.table.filegroup.slice import BaseFile, FileSlice
from tidelock.table.filegroup.view import DataFile, Visibility, file_groups, visible_slices
from tidelock.table.naming import data_file
from tidelock.table.timeline.active import ActiveTimeline
from tidelock.table.timeline.instant import Instant
from tidelock.table.timeline.metadata import CommitMetadata

NamedBy = dict[Instant, tuple[DataFile, ...]]
"""The files that completed writes name, with the sizes they recorded. What was read is kept."""

_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Lost:
    """A file that a completed write names, that the table's rows need, and that is not there."""

    file: DataFile
    instant: Instant


def named_files(
    timeline: ActiveTimeline,
    known: NamedBy,
    read: Callable[[Instant], CommitMetadata],
    partitions: Collection[str] | None = None,
) -> Iterator[tuple[DataFile, Instant]]:
    """Yield the data files that the completed writes of a timeline name.

    Commits that `known` has are not read again; others are read by `read`, and added to it.
    Raises: what `read` raises.
    """
    writes = timeline.writes()
    unread = [instant for instant in writes if instant not in known]
    if len(unread) > 1 and is_far(timeline.store):
        with worker_pool("commits", min(_AT_ONCE, len(unread))) as pool:
            commits = list(pool.map(read, unread))
    else:
        commits = [read(instant) for instant in unread]
    known.update((each, files_of(said)) for each, said in zip(unread, commits, strict=True))
    for instant in writes:
        for file in known[instant]:
            if partitions is None or file.partition in partitions:
                yield file, instant


def files_of(metadata: CommitMetadata) -> tuple[DataFile, ...]:
    """Return the data files that a write names, with the sizes it recorded."""
    found = (
        data_file(partition, (stat.path or "").rpartition("/")[2], stat.file_size_in_bytes or 0)
        for partition, stats in metadata.partition_to_write_stats.items()
        for stat in stats
    )
    return tuple(file for file in found if file is not None)


def lost_files(
    listed: Collection[DataFile],
    named: Iterable[tuple[DataFile, Instant]],
    seen: Visibility,
    *,
    as_of: str | None = None,
    read_optimized: bool = False,
) -> tuple[Lost, ...]:
    """Return the files that are named, not listed, and would be visible if they were there.

    Most that are not there were superseded and cleaned, and are not visible.
    """
    there = {file.key for file in listed}
    gone = {file.key: (file, instant) for file, instant in named if file.key not in there}
    if not gone:
        return ()
    groups = {(file.partition, file.file_id) for file, _ in gone.values()}
    mine = [file for file in listed if (file.partition, file.file_id) in groups]
    whole = file_groups([*mine, *(file for file, _ in gone.values())], seen)
    slices = visible_slices(whole, seen, as_of=as_of, read_optimized=read_optimized)
    return tuple(
        Lost(*gone[file.key]) for piece in slices for file in _files_in(piece) if file.key in gone
    )


def checked_sizes(
    slices: Iterable[FileSlice], named: Mapping[str, tuple[DataFile, Instant]], *, where: str
) -> tuple[FileSlice, ...]:
    """Return the slices, with log files told how much of them commits have recorded.

    Raises: `DataCorrupt` for a file that is not as large as its commit says.
    """
    return tuple(_checked(piece, named, where) for piece in slices)


def _checked(
    piece: FileSlice, named: Mapping[str, tuple[DataFile, Instant]], where: str
) -> FileSlice:
    for file in _files_in(piece):
        said = named.get(file.key)
        if said is None or not said[0].size_bytes:
            continue
        recorded = said[0].size_bytes
        # A Java writer may go on with a log file after it took its size.
        base = isinstance(file, BaseFile)
        if file.size_bytes < recorded or (base and file.size_bytes != recorded):
            raise DataCorrupt(
                f"{where}/{file.key} has {file.size_bytes:,} bytes, and the commit"
                f" {said[1].requested} that wrote it recorded {recorded:,}",
                hint="it was truncated or overwritten: restore it from a copy, or restore the table"
                " to a commit before that",
            )
    sizes = {log.key: named[log.key][0].size_bytes for log in piece.logs if log.key in named}
    logs = tuple(replace(log, committed_bytes=sizes.get(log.key, 0)) for log in piece.logs)
    return replace(piece, logs=logs)


def missing_error(lost: Lost, *, where: str) -> DataCorrupt:
    """Return the error for a file that is lost."""
    return DataCorrupt(
        f"{where}/{lost.file.key} is missing: the commit {lost.instant.requested} wrote it, and"
        " no clean has deleted it",
        hint="restore it from a copy, or restore the table to a commit before that",
    )


def _files_in(piece: FileSlice) -> Iterator[DataFile]:
    if piece.base is not None:
        yield piece.base
    yield from piece.logs
