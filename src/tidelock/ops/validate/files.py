"""Whether the files that completed writes name are there, and no others that readers see. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidelock.ops.validate.findings import Finding, problem, warning
from tidelock.table.filegroup.slice import BaseFile
from tidelock.table.filegroup.view import DataFile, GroupId

CHECK = "files"


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A data file that a completed write says it wrote."""

    key: str
    group: GroupId
    requested: str
    completion: str
    size_bytes: int | None
    is_base: bool


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A completed write that took the place of whole partitions, or of all for None."""

    requested: str
    completion: str
    partitions: frozenset[str] | None

    def covers(self, partition: str) -> bool:
        """Tell whether a partition was overwritten."""
        return self.partitions is None or partition in self.partitions


@dataclass(frozen=True, slots=True)
class Record:
    """What the completed actions of the timeline say about files."""

    named: tuple[NamedFile, ...] = ()
    removed: Mapping[str, str] = field(default_factory=dict)
    """Names, without folders, of files that an action removed, and which: `clean <time>`."""
    removing: frozenset[str] = frozenset()
    """Names of files that a pending clean is to remove, and may have."""
    replaced: frozenset[GroupId] = frozenset()
    completed: frozenset[str] = frozenset()
    """Request times of completed writes on the timeline."""
    pending: frozenset[str] = frozenset()
    rolled_back: frozenset[str] = frozenset()
    start: str | None = None
    archived: frozenset[str] = frozenset()
    """Those of the listed files' older instants that the history knows."""
    operations: Mapping[str, str] = field(default_factory=dict)
    """The operation of each completed write, by its request time."""
    completions: Mapping[str, str] = field(default_factory=dict)
    """The completion time of each completed write, by its request time."""
    overwrites: tuple[Overwritten, ...] = ()


def check_files(record: Record, listed: Sequence[DataFile]) -> Iterator[Finding]:
    """Compare what the timeline names with what is there."""
    there = {file.key: file for file in listed}
    needed = _needed(record)
    for named in record.named:
        found = there.get(named.key)
        if found is None:
            yield from _missing(named, record, needed=named.key in needed)
        elif named.size_bytes is not None and found.size_bytes != named.size_bytes:
            yield problem(
                CHECK,
                named.key,
                f"it has {found.size_bytes:,} bytes; its write {named.requested} recorded"
                f" {named.size_bytes:,}",
                "restore it from a copy, or roll back that write",
            )
    names = {named.key for named in record.named}
    for file in listed:
        if file.key not in names:
            yield from _unnamed(file, record)
    yield from _check_twins(listed, names)


def _needed(record: Record) -> set[str]:
    """Return what the newest rows are read from: the last base file of a group, and later logs."""
    groups: defaultdict[GroupId, list[NamedFile]] = defaultdict(list)
    for named in record.named:
        if named.group not in record.replaced:
            groups[named.group].append(named)
    needed: set[str] = set()
    for files in groups.values():
        last = max((file.requested for file in files if file.is_base), default="")
        needed.update(
            file.key
            for file in files
            if (file.requested == last if file.is_base else file.completion >= last)
        )
    return needed


def _missing(named: NamedFile, record: Record, *, needed: bool) -> Iterator[Finding]:
    removed = named.key.rpartition("/")[2] in record.removed
    if needed:
        by = " though a clean removed it" if removed else ""
        yield problem(
            CHECK,
            named.key,
            f"it is missing{by}; rows that {named.requested} wrote are lost",
            "restore it from a copy, or restore the table to a savepoint before that write",
        )
    elif not removed:
        yield warning(
            CHECK,
            named.key,
            f"an older version is missing that no clean removed; the table as of"
            f" {named.requested} cannot be read",
            "nothing for today's rows; find out who deletes files of this table",
        )


def _unnamed(file: DataFile, record: Record) -> Iterator[Finding]:
    if file.instant in record.pending or file.instant in record.archived:
        return
    if file.instant in record.completed:
        yield problem(
            CHECK,
            file.key,
            f"the write {file.instant} completed without naming it, and readers that list folders"
            " take it for rows",
            "it is of a task that was tried twice: delete it",
        )
    elif file.instant in record.rolled_back:
        yield warning(
            CHECK,
            file.key,
            f"{file.instant} was rolled back, but this file is still there",
            "delete it before the timeline's start passes its time, or readers take it for rows",
        )
    elif record.start is not None and file.instant < record.start:
        yield problem(
            CHECK,
            file.key,
            f"no write {file.instant} is on the timeline or in the history; it is older than the"
            " timeline, so readers take it for rows",
            "it is of a write that failed: delete it",
        )
    else:
        yield warning(
            CHECK,
            file.key,
            f"no write {file.instant} is on the timeline; nobody reads it yet",
            "delete it before the timeline's start passes its time, or readers take it for rows",
        )


def _check_twins(listed: Sequence[DataFile], names: set[str]) -> Iterator[Finding]:
    same: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for file in listed:
        if isinstance(file, BaseFile) and file.key in names:
            same[file.partition, file.file_id, file.instant].append(file.key)
    for (_, group, instant), keys in sorted(same.items()):
        if len(keys) > 1:
            yield problem(
                CHECK,
                keys[0],
                f"the write {instant} names {len(keys)} base files of the file group {group}:"
                f" {', '.join(keys)}",
                "no reader can know which one counts: roll that write back",
            )
