"""File groups and file slices: which files hold the rows of a table. Pure.

The rules, as Hudi's readers apply them:

  V1  A base file begins a slice at its request time.
  V2  A pending compaction begins a slice, without a base file yet, at its request time.
  V3  A log file belongs to the last slice that began no later than the log *completed*; without
      one, it begins a slice at its own request time.
  V4  Files of writes that have not completed are invisible. A write older than the timeline's start
      has completed, unless the timeline lists it as pending.
  V5  A slice that waits for its compaction is read together with the one before it.
  V6  File groups replaced by a completed replacecommit are invisible.

V4 is applied first: an uncommitted base file must not attract committed log files into a slice that
no reader sees. So every completed log file is in exactly one slice.

The module also builds and parses the names of data files.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tidelock.core.errors import DataCorrupt, InvalidInput

GroupId = tuple[str, str]
"""Partition and file id. File ids are unique only within a partition."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a file group, written by the write requested at `instant`."""

    partition: str
    name: str
    file_id: str
    write_token: str
    instant: str

    @property
    def key(self) -> str:
        """The object, relative to the table's base path."""
        return f"{self.partition}/{self.name}" if self.partition else self.name

    @property
    def group_id(self) -> GroupId:
        """The file group of the file."""
        return self.partition, self.file_id


@dataclass(frozen=True, slots=True)
class BaseFile(StoredFile):
    """A base file: all rows of its file group as of `instant`."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogFile(StoredFile):
    """A log file: what the write changed in its file group."""

    version: int
    size_bytes: int
    suffix: str = ""
    committed_bytes: int = field(default=0, compare=False)
    """The size recorded by a completed write, below which the file is corrupt; 0 if unknown."""

    @property
    def order(self) -> tuple[str, int, str, str]:
        """The order in which Hudi merges the log files of one slice."""
        return self.instant, self.version, self.write_token, self.suffix


DataFile = BaseFile | LogFile


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: a base file, if any, and its log files in merge order."""

    partition: str
    file_id: str
    instant: str
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()

    @property
    def group_id(self) -> GroupId:
        """The file group of the slice."""
        return self.partition, self.file_id

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The base file, if any, and the log files."""
        return self.logs if self.base is None else (self.base, *self.logs)

    @property
    def size_bytes(self) -> int:
        """The total stored size of its files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Visibility:
    """The state of the timeline that decides which files are visible."""

    completions: Mapping[str, str] = field(default_factory=dict)
    """Completion times of completed writes, by request time."""

    start: str | None = None
    """The request time of the timeline's first write; None if it has none."""

    pending: frozenset[str] = frozenset()
    """Request times of writes that have not completed."""

    compacting: Mapping[GroupId, str] = field(default_factory=dict)
    """File groups with a pending compaction, with its request time."""

    replaced: Mapping[GroupId, str] = field(default_factory=dict)
    """Replaced file groups, with the request time of the first replacecommit that replaced each."""

    latest: str | None = None
    """The completion time to look back to; None for the present. Later requests are invisible."""

    def completion(self, requested: str) -> str | None:
        """Return the completion time of a write; None if it has not completed (V4)."""
        known = self.completions.get(requested)
        if known is not None:
            return known
        if self.latest is not None and requested > self.latest:
            return None
        if requested in self.pending or self.start is None or requested >= self.start:
            return None
        # Archived, and the history has no more details: it completed before everything on the
        # timeline, so its request time can stand in for the completion time.
        return requested

    def hides(self, group: GroupId, as_of: str | None) -> bool:
        """Return whether a file group was replaced (V6), as of `as_of`."""
        by = self.replaced.get(group)
        return by is not None and (as_of is None or by <= as_of)

    def until(self, completion: str) -> Visibility:
        """Return the visibility at an earlier completion time: later writes are pending."""
        completed = {req: done for req, done in self.completions.items() if done <= completion}
        return replace(
            self,
            completions=completed,
            pending=self.pending | (self.completions.keys() - completed.keys()),
            replaced={group: by for group, by in self.replaced.items() if by in completed},
            latest=completion,
        )


@dataclass(frozen=True, slots=True)
class FileGroup:
    """All slices of a file group with visible files, oldest first."""

    partition: str
    file_id: str
    slices: tuple[FileSlice, ...]
    compacting: str | None = None

    @property
    def group_id(self) -> GroupId:
        """Partition and file id."""
        return self.partition, self.file_id

    def at(self, as_of: str | None = None) -> FileSlice | None:
        """Return the slice that holds the rows of this group, from writes requested by `as_of`."""
        started = [each for each in self.slices if as_of is None or each.instant <= as_of]
        if not started:
            return None
        found = started[-1]
        if self.compacting == found.instant and found.base is None and len(started) > 1:
            # V5: until the compaction completes, its slice holds only changes made after the plan.
            before = started[-2]
            found = replace(before, logs=_sort_logs([*before.logs, *found.logs]))
        if as_of is not None:
            # V3 assigns a log file that completed after a later slice began to that slice. It was
            # requested by `as_of` all the same, and other files of its write are visible.
            later = [log for each in self.slices[len(started) :] for log in each.logs]
            logs = (log for log in (*found.logs, *later) if log.instant <= as_of)
            found = replace(found, logs=_sort_logs(logs))
        return found if found.base or found.logs else None

    def base_at(self, as_of: str | None = None) -> FileSlice | None:
        """Return the latest base file without log files: the read-optimized view."""
        for each in reversed(self.slices):
            if each.base is not None and (as_of is None or each.instant <= as_of):
                return replace(each, logs=())
        return None


def file_groups(files: Iterable[DataFile], visibility: Visibility) -> tuple[FileGroup, ...]:
    """Group the files of a table, or of some partitions, into file groups and slices (V1-V4).

    The order of `files` does not matter. The result includes replaced groups.
    Raises: `DataCorrupt` for two base files of one group and instant.
    """
    bases: defaultdict[GroupId, list[BaseFile]] = defaultdict(list)
    logs: defaultdict[GroupId, list[tuple[LogFile, str]]] = defaultdict(list)
    for file in files:
        completion = visibility.completion(file.instant)
        if completion is None:
            continue
        if isinstance(file, BaseFile):
            bases[file.group_id].append(file)
        elif not file.suffix:  # CDC log files hold no rows
            logs[file.group_id].append((file, completion))
    return tuple(
        _file_group(group, bases[group], logs[group], visibility.compacting.get(group))
        for group in sorted(bases.keys() | logs.keys())
    )


def visible_slices(
    groups: Iterable[FileGroup],
    visibility: Visibility,
    *,
    as_of: str | None = None,
    read_optimized: bool = False,
) -> tuple[FileSlice, ...]:
    """Return the slice to read of each file group that is not replaced (V5, V6)."""
    found = (
        (group.base_at(as_of) if read_optimized else group.at(as_of))
        for group in groups
        if not visibility.hides(group.group_id, as_of)
    )
    return tuple(each for each in found if each is not None)


def duplicate_base_files(files: Iterable[BaseFile]) -> tuple[tuple[BaseFile, ...], ...]:
    """Return groups of base files that claim to be the same version of a file group.

    Retried tasks leave them if a writer dies before it compares files with results.
    """
    by_version: defaultdict[tuple[str, str, str], list[BaseFile]] = defaultdict(list)
    for file in files:
        by_version[file.partition, file.file_id, file.instant].append(file)
    return tuple(
        tuple(sorted(each, key=lambda file: file.name))
        for each in by_version.values()
        if len(each) > 1
    )


def _file_group(
    group: GroupId, bases: list[BaseFile], logs: list[tuple[LogFile, str]], compacting: str | None
) -> FileGroup:
    for duplicates in duplicate_base_files(bases) if len(bases) > 1 else ():
        raise DataCorrupt(
            f"{' and '.join(file.key for file in duplicates)} are both the base file of the same"
            f" file group at {duplicates[0].instant}",
            hint="delete the file that the commit's write stats do not list",
        )
    base_at = {base.instant: base for base in bases}
    begins = sorted({*base_at, *([compacting] if compacting else [])})
    logs_at: dict[str, list[LogFile]] = {begin: [] for begin in begins}
    for log, completion in sorted(logs, key=lambda pair: pair[0].order):
        at = bisect_right(begins, completion)
        begin = begins[at - 1] if at else log.instant
        if begin not in logs_at:
            insort(begins, begin)
        logs_at.setdefault(begin, []).append(log)
    partition, file_id = group
    slices = (
        FileSlice(partition, file_id, begin, base_at.get(begin), _sort_logs(logs_at[begin]))
        for begin in begins
    )
    return FileGroup(partition, file_id, tuple(slices), compacting)


def _sort_logs(logs: Iterable[LogFile]) -> tuple[LogFile, ...]:
    return tuple(sorted(logs, key=lambda log: log.order))


_BASE: Final = re.compile(r"([^_.]+)_([^_.]+)_(\d+)\.(parquet|hfile)", re.ASCII)
# Java readers skip a log file whose token is not three numbers, so it is skipped here too.
_LOG: Final = re.compile(r"\.([^._]+)_(\d+)\.log\.(\d+)(?:_(\d+-\d+-\d+)(\.cdc)?)?", re.ASCII)
_TOKEN: Final = re.compile(r"(\d+)-(\d+)-(\d+)", re.ASCII)
_FILE_ID: Final = re.compile(r"[^_./\x00-\x1f\x7f]+")

CDC_SUFFIX: Final = ".cdc"
"""The suffix of log files with change data; they hold no rows of the table."""


@dataclass(frozen=True, slots=True)
class WriteToken:
    """Identifies the task and attempt that wrote a file."""

    task: int
    stage: int
    attempt: int

    def __str__(self) -> str:
        """Return the token in the form used in file names."""
        return f"{self.task}-{self.stage}-{self.attempt}"


def parse_token(text: str) -> WriteToken | None:
    """Parse a write token; None if it is not three numbers."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else WriteToken(*(int(part) for part in found.groups()))


def file_id(prefix: str, number: int = 0) -> str:
    """Return a file group id: a UUID, and a number that one task increments per file."""
    return _check_file_id(f"{prefix}-{number}")


def base_name(group: str, token: WriteToken, instant: str) -> str:
    """Return the name of a base file."""
    return f"{_check_file_id(group)}_{token}_{_check_time(instant)}.parquet"


def log_name(
    group: str, instant: str, token: WriteToken, *, version: int = 1, suffix: str = ""
) -> str:
    """Return the name of a log file. `version` increases if one write needs several."""
    if version < 1 or suffix not in ("", CDC_SUFFIX):
        raise InvalidInput(f"log file: invalid version {version} or suffix {suffix!r}")
    return f".{_check_file_id(group)}_{_check_time(instant)}.log.{version}_{token}{suffix}"


def data_file(
    partition: str, name: str, size_bytes: int, extension: str = "parquet"
) -> DataFile | None:
    """Parse the name of a file in a partition; None if it is not a data file.

    `extension` is that of base files: `hfile` in the metadata table.
    """
    if (found := _BASE.fullmatch(name)) and found[4] == extension:
        group, token, instant, _ = found.groups()
        return BaseFile(partition, name, group, token, instant, size_bytes)
    if found := _LOG.fullmatch(name):
        group, instant, version, token, suffix = found.groups()
        return LogFile(
            partition, name, group, token or "", instant, int(version), size_bytes, suffix or ""
        )
    return None


def _check_file_id(group: str) -> str:
    if not _FILE_ID.fullmatch(group):
        raise InvalidInput(
            f"invalid file id {group!r}",
            hint="use letters, digits and '-': file names are split at '_' and '.'",
        )
    return group


def _check_time(instant: str) -> str:
    if not re.fullmatch(r"\d+", instant, re.ASCII):
        raise InvalidInput(f"invalid request time {instant!r}", hint="use yyyyMMddHHmmssSSS")
    return instant
