"""Which files of a table are its rows: file groups cut into slices by completion time. Pure.

The rules, as Hudi's readers follow them:

  V1  A base file begins a slice at its request time.
  V2  A pending compaction begins a slice, without a base file yet, at its request time.
  V3  A log file belongs to the last slice that began no later than the log *completed*; without
      one, it begins a slice of its own at its request time.
  V4  Files of writes that have not completed are not seen. A write older than the timeline's start
      has completed, unless the timeline says that it is pending.
  V5  A slice that waits for its compaction is read together with the one before it.
  V6  File groups that a completed replacecommit replaced are not seen.

V4 comes first here: an unfinished base file must not draw finished log files into a slice that
nobody sees. So every completed log file is in exactly one slice.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidelock.base.errors import DataCorrupt
from tidelock.table.filegroup.slice import BaseFile, FileSlice, LogFile

DataFile = BaseFile | LogFile
GroupId = tuple[str, str]
"""Partition and file id: file ids are unique only within a partition."""


@dataclass(frozen=True, slots=True)
class Visibility:
    """What the timeline says about files, at one moment."""

    completions: Mapping[str, str] = field(default_factory=dict)
    """Completion time by request time, of completed writes."""

    start: str | None = None
    """The request time of the timeline's first write; None if it has none."""

    pending: frozenset[str] = frozenset()
    """Request times of writes that have not completed."""

    compacting: Mapping[GroupId, str] = field(default_factory=dict)
    """File groups with a pending compaction, and its request time."""

    replaced: Mapping[GroupId, str] = field(default_factory=dict)
    """Replaced file groups, and the request time of the first replacecommit that did it."""

    latest: str | None = None
    """The moment that is looked at; None for now. What was requested later completed later."""

    def completion(self, requested: str) -> str | None:
        """Return when a write completed; None if it has not, as far as is known (V4)."""
        known = self.completions.get(requested)
        if known is not None:
            return known
        if self.latest is not None and requested > self.latest:
            return None
        if requested in self.pending or self.start is None or requested >= self.start:
            return None
        # Archived, and the history does not tell more: it completed long before anything that
        # the timeline still knows, so its request time serves as well.
        return requested

    def hides(self, group: GroupId, as_of: str | None) -> bool:
        """Tell whether a file group was replaced (V6), looking back to `as_of`."""
        by = self.replaced.get(group)
        return by is not None and (as_of is None or by <= as_of)

    def until(self, completion: str) -> Visibility:
        """Return the same at an earlier moment: what completed later is pending."""
        kept = {req: done for req, done in self.completions.items() if done <= completion}
        return replace(
            self,
            completions=kept,
            pending=self.pending | (self.completions.keys() - kept.keys()),
            replaced={group: by for group, by in self.replaced.items() if by in kept},
            latest=completion,
        )


@dataclass(frozen=True, slots=True)
class FileGroup:
    """All slices of a file group whose files are seen, oldest first."""

    partition: str
    file_id: str
    slices: tuple[FileSlice, ...]
    compacting: str | None = None

    @property
    def group_id(self) -> GroupId:
        """Partition and file id."""
        return self.partition, self.file_id

    def at(self, as_of: str | None = None) -> FileSlice | None:
        """Return the slice to read for the rows of this group, of writes requested by `as_of`."""
        begun = [each for each in self.slices if as_of is None or each.instant <= as_of]
        if not begun:
            return None
        found = begun[-1]
        if self.compacting == found.instant and found.base is None and len(begun) > 1:
            # V5: until the compaction is done, its slice has only what came after the plan.
            before = begun[-2]
            found = replace(before, logs=_ordered([*before.logs, *found.logs]))
        if as_of is not None:
            # V3 puts a log file that completed after the request of a later version there; it was
            # requested by then all the same, and other files of its write show.
            later = [log for each in self.slices[len(begun) :] for log in each.logs]
            logs = (log for log in (*found.logs, *later) if log.instant <= as_of)
            found = replace(found, logs=_ordered(logs))
        return found if found.base or found.logs else None

    def base_at(self, as_of: str | None = None) -> FileSlice | None:
        """Return the newest base file, without logs: the read-optimised view."""
        for each in reversed(self.slices):
            if each.base is not None and (as_of is None or each.instant <= as_of):
                return replace(each, logs=())
        return None


def file_groups(files: Iterable[DataFile], seen: Visibility) -> tuple[FileGroup, ...]:
    """Cut the files of a table, or of some partitions, into file groups and slices (V1-V4).

    The order of `files` does not matter. Replaced groups are among the result.
    Raises: `DataCorrupt` for two base files of one group and instant.
    """
    bases: defaultdict[GroupId, list[BaseFile]] = defaultdict(list)
    logs: defaultdict[GroupId, list[tuple[LogFile, str]]] = defaultdict(list)
    for file in files:
        completion = seen.completion(file.instant)
        if completion is None:
            continue
        group = (file.partition, file.file_id)
        if isinstance(file, BaseFile):
            bases[group].append(file)
        elif not file.suffix:  # a change feed holds no rows
            logs[group].append((file, completion))
    return tuple(
        _file_group(group, bases[group], logs[group], seen.compacting.get(group))
        for group in sorted(bases.keys() | logs.keys())
    )


def visible_slices(
    groups: Iterable[FileGroup],
    seen: Visibility,
    *,
    as_of: str | None = None,
    read_optimized: bool = False,
) -> tuple[FileSlice, ...]:
    """Return the slice to read of each file group that is not replaced (V5, V6)."""
    found = (
        (group.base_at(as_of) if read_optimized else group.at(as_of))
        for group in groups
        if not seen.hides(group.group_id, as_of)
    )
    return tuple(each for each in found if each is not None)


def twins(files: Iterable[BaseFile]) -> tuple[tuple[BaseFile, ...], ...]:
    """Return base files that claim to be the same version of a file group.

    Retried tasks leave them when a writer died before it could compare files with results.
    """
    same: defaultdict[tuple[str, str, str], list[BaseFile]] = defaultdict(list)
    for file in files:
        same[file.partition, file.file_id, file.instant].append(file)
    return tuple(
        tuple(sorted(each, key=lambda file: file.name)) for each in same.values() if len(each) > 1
    )


def _file_group(
    group: GroupId,
    bases: list[BaseFile],
    logs: list[tuple[LogFile, str]],
    compacting: str | None,
) -> FileGroup:
    for same in twins(bases) if len(bases) > 1 else ():
        raise DataCorrupt(
            f"{' and '.join(file.key for file in same)} are both the file group's version of"
            f" {same[0].instant}",
            hint="delete the one that the commit's write stats do not name",
        )
    base_at = {base.instant: base for base in bases}
    begins = sorted({*base_at, *([compacting] if compacting else [])})
    placed: dict[str, list[LogFile]] = {begin: [] for begin in begins}
    for log, completion in sorted(logs, key=lambda pair: pair[0].order):
        at = bisect_right(begins, completion)
        begin = begins[at - 1] if at else log.instant
        if begin not in placed:
            insort(begins, begin)
        placed.setdefault(begin, []).append(log)
    partition, file_id = group
    slices = (
        FileSlice(partition, file_id, begin, base_at.get(begin), _ordered(placed[begin]))
        for begin in begins
    )
    return FileGroup(partition, file_id, tuple(slices), compacting)


def _ordered(logs: Iterable[LogFile]) -> tuple[LogFile, ...]:
    return tuple(sorted(logs, key=lambda log: log.order))
