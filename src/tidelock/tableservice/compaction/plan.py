"""What to compact, and whether it is time to: Hudi's triggers and strategies. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.metadata import CompactionOperation, CompactionPlan

MB: Final = 1024 * 1024
NEW_BASE_MB: Final = 120
"""What a base file is expected to take when a file group has none yet, as Hudi reckons."""


class Trigger(StrEnum):
    """When a compaction is due."""

    NUM_COMMITS = "NUM_COMMITS"
    NUM_COMMITS_AFTER_LAST_REQUEST = "NUM_COMMITS_AFTER_LAST_REQUEST"
    TIME_ELAPSED = "TIME_ELAPSED"
    NUM_AND_TIME = "NUM_AND_TIME"
    NUM_OR_TIME = "NUM_OR_TIME"


class Strategy(StrEnum):
    """Which file groups come first, and how many; the names are those of Hudi's classes."""

    LOG_FILE_SIZE = "LogFileSizeBasedCompactionStrategy"
    LOG_FILE_NUM = "LogFileNumBasedCompactionStrategy"
    BOUNDED_IO = "BoundedIOCompactionStrategy"
    UNBOUNDED = "UnBoundedCompactionStrategy"
    DAY_BASED = "DayBasedCompactionStrategy"
    RECENT_DAYS = "BoundedPartitionAwareCompactionStrategy"
    EARLIER_DAYS = "UnBoundedPartitionAwareCompactionStrategy"
    PARTITION_REGEX = "PartitionRegexBasedCompactionStrategy"


@dataclass(frozen=True, slots=True)
class Due:
    """The trigger's settings."""

    trigger: Trigger = Trigger.NUM_COMMITS
    delta_commits: int = 5
    delta_seconds: int = 3600


@dataclass(frozen=True, slots=True)
class Since:
    """What happened since the last compaction: completed, or requested; its age in seconds.

    Before the first compaction the age is that of the first delta commit.
    """

    commits_since_completed: int
    commits_since_requested: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The strategy's settings, and strategies that choose of what it has chosen.

    `io_mb_max` bounds what one plan reads and writes. `days` are the last partitions by name that
    are taken, or with `earliest_day` the border between recent and earlier ones; partitions are
    days then, as 2024-01-31 or 2024/01/31. `pattern` is found in the names of partitions.
    """

    strategy: Strategy = Strategy.LOG_FILE_SIZE
    io_mb_max: int = 500 * 1024
    log_bytes_min: int = 0
    log_files_min: int = 0
    days: int = 10
    earliest_day: str = ""
    pattern: str = ""
    then: tuple[Strategy, ...] = ()


def is_due(due: Due, since: Since) -> bool:
    """Tell whether a compaction should be planned now."""
    enough = since.commits_since_completed >= due.delta_commits
    late = since.seconds >= due.delta_seconds
    match due.trigger:
        case Trigger.NUM_COMMITS:
            return enough
        case Trigger.NUM_COMMITS_AFTER_LAST_REQUEST:
            return since.commits_since_requested >= due.delta_commits
        case Trigger.TIME_ELAPSED:
            return late
        case Trigger.NUM_AND_TIME:
            return enough and late
        case Trigger.NUM_OR_TIME:
            return enough or late


def plan_compaction(
    slices: Iterable[FileSlice], choice: Choice, *, busy: Collection[GroupId] = ()
) -> CompactionPlan | None:
    """Return the plan for the latest slices of a table; None if there is nothing to compact.

    File groups in `busy` belong to another pending plan. The order of the plan is the strategy's;
    of equal file groups the first by partition and file id comes first, so that everybody who
    plans from the same slices makes the same plan.
    """
    every = list(slices)
    ready = [
        piece for piece in every if piece.logs and (piece.partition, piece.file_id) not in busy
    ]
    ready.sort(key=lambda piece: (piece.partition, piece.file_id))
    days = sorted({_day(piece.partition) for piece in every}, reverse=True)
    for strategy in (choice.strategy, *choice.then):
        passing = [piece for piece in ready if _passes(piece, strategy, choice, days)]
        ready = _within(_ordered(passing, strategy), strategy, choice)
    if not ready:
        return None
    return CompactionPlan(operations=tuple(operation_of(piece) for piece in ready))


def _passes(piece: FileSlice, strategy: Strategy, choice: Choice, days: Sequence[str]) -> bool:
    day = _day(piece.partition)
    match strategy:
        case Strategy.LOG_FILE_SIZE:
            return log_bytes(piece) >= choice.log_bytes_min
        case Strategy.LOG_FILE_NUM:
            return len(piece.logs) >= choice.log_files_min
        case Strategy.DAY_BASED:
            return day in days[: choice.days]
        case Strategy.RECENT_DAYS:
            return day >= choice.earliest_day
        case Strategy.EARLIER_DAYS:
            return day < choice.earliest_day
        case Strategy.PARTITION_REGEX:
            return re.search(choice.pattern, piece.partition) is not None
        case Strategy.BOUNDED_IO | Strategy.UNBOUNDED:
            return True


def _ordered(slices: list[FileSlice], strategy: Strategy) -> list[FileSlice]:
    match strategy:
        case Strategy.LOG_FILE_SIZE:
            return sorted(slices, key=log_bytes, reverse=True)
        case Strategy.LOG_FILE_NUM:
            return sorted(slices, key=lambda piece: len(piece.logs), reverse=True)
        case Strategy.DAY_BASED | Strategy.RECENT_DAYS | Strategy.EARLIER_DAYS:
            return sorted(slices, key=lambda piece: _day(piece.partition), reverse=True)
        case Strategy.BOUNDED_IO | Strategy.UNBOUNDED | Strategy.PARTITION_REGEX:
            return slices


_BOUNDED: Final = (Strategy.LOG_FILE_SIZE, Strategy.LOG_FILE_NUM, Strategy.BOUNDED_IO)


def _within(slices: list[FileSlice], strategy: Strategy, choice: Choice) -> list[FileSlice]:
    """Return the first slices that fit into the plan; the one that exceeds it is the last."""
    if strategy not in _BOUNDED:
        return slices
    left: float = choice.io_mb_max
    for number, piece in enumerate(slices, start=1):
        left -= sum(_io_mb(piece))
        if left <= 0:
            return slices[:number]
    return slices


def _day(partition: str) -> str:
    """Return a partition as a day: those of every spelling are in one order."""
    return "-".join(part.rpartition("=")[2] for part in partition.split("/"))


def operation_of(piece: FileSlice) -> CompactionOperation:
    """Return the part of a plan that is about one slice."""
    read_mb, write_mb = _io_mb(piece)
    return CompactionOperation(
        base_instant_time=piece.instant,
        file_id=piece.file_id,
        delta_file_paths=tuple(log.name for log in piece.logs),
        data_file_path=piece.base.name if piece.base else None,
        partition_path=piece.partition,
        metrics={
            "TOTAL_LOG_FILES": float(len(piece.logs)),
            "TOTAL_IO_READ_MB": read_mb,
            "TOTAL_IO_WRITE_MB": write_mb,
            "TOTAL_IO_MB": read_mb + write_mb,
            "TOTAL_LOG_FILES_SIZE": float(log_bytes(piece)),
        },
    )


def log_bytes(piece: FileSlice) -> int:
    """Return the size of a slice's log files."""
    return sum(log.size_bytes for log in piece.logs)


def _io_mb(piece: FileSlice) -> tuple[float, float]:
    """Return what compacting a slice reads and writes, in whole megabytes as Hudi counts."""
    base_bytes = piece.base.size_bytes if piece.base else 0
    read = (base_bytes + log_bytes(piece)) // MB
    write = base_bytes // MB if piece.base else NEW_BASE_MB
    return float(read), float(write)
