"""File slices and instants for tests of plans, described by sizes and times."""

from __future__ import annotations

from tidelock.hudi.file_groups import BaseFile, FileGroup, FileSlice, LogFile
from tidelock.hudi.timeline.instant import Action, Instant, InstantState

MB = 1024 * 1024


def at(number: int) -> str:
    return f"{20260101000000000 + number * 1000}"


def base(file_id: str, number: int, size_mb: float = 10, partition: str = "p") -> BaseFile:
    name = f"{file_id}_0-1-1_{at(number)}.parquet"
    return BaseFile(partition, name, file_id, "0-1-1", at(number), int(size_mb * MB))


def log(file_id: str, number: int, size_mb: float = 1, partition: str = "p") -> LogFile:
    name = f".{file_id}_{at(number)}.log.1_0-1-1"
    return LogFile(partition, name, file_id, "0-1-1", at(number), 1, int(size_mb * MB))


def piece(
    file_id: str,
    number: int = 1,
    *,
    size_mb: float | None = 10,
    logs_mb: tuple[float, ...] = (),
    partition: str = "p",
) -> FileSlice:
    first = None if size_mb is None else base(file_id, number, size_mb, partition)
    logs = tuple(
        log(file_id, number + 1 + index, mb, partition) for index, mb in enumerate(logs_mb)
    )
    return FileSlice(partition, file_id, at(number), first, logs)


def group(file_id: str, *numbers: int, partition: str = "p") -> FileGroup:
    slices = tuple(piece(file_id, number, partition=partition) for number in numbers)
    return FileGroup(partition, file_id, slices)


def done(number: int, action: Action = Action.COMMIT) -> Instant:
    return Instant(at(number), action, InstantState.COMPLETED, f"{int(at(number)) + 500}")


def begun(number: int, action: Action = Action.COMMIT) -> Instant:
    return Instant(at(number), action, InstantState.INFLIGHT)
