"""What the timeline says of roll-backs and restores, as Hudi's records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelock.table.timeline.metadata import (
    InstantInfo,
    RestoreMetadata,
    RestorePlan,
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
)


@dataclass(frozen=True, slots=True)
class Undone:
    """What a roll-back removed: the data files of one instant."""

    instant: str
    files: tuple[str, ...] = ()
    action: str = "commit"


def rollback_plan(instant: str, action: str, files: Iterable[str], *, base: str) -> RollbackPlan:
    """Return the plan to remove an instant: one request for each file, as Hudi writes it.

    `base` is the table's base path; Java deletes by absolute paths.
    """
    return RollbackPlan(
        instant_to_rollback=InstantInfo(instant, action),
        rollback_requests=tuple(
            RollbackRequest(file.rpartition("/")[0], files_to_be_deleted=(f"{base}/{file}",))
            for file in sorted(files)
        ),
    )


def rollback_metadata(
    rollback: str, undone: Sequence[Undone], *, took_ms: int, base: str
) -> RollbackMetadata:
    """Return what a roll-back did."""
    by_partition: dict[str, list[str]] = {}
    for each in undone:
        for file in each.files:
            by_partition.setdefault(file.rpartition("/")[0], []).append(f"{base}/{file}")
    return RollbackMetadata(
        start_rollback_time=rollback,
        time_taken_in_millis=took_ms,
        total_files_deleted=sum(len(each.files) for each in undone),
        commits_rollback=tuple(each.instant for each in undone),
        partition_metadata={
            partition: RollbackPartition(partition, success_delete_files=tuple(files))
            for partition, files in sorted(by_partition.items())
        },
        instants_rollback=tuple(InstantInfo(each.instant, each.action) for each in undone),
    )


def restore_plan(instants: Iterable[tuple[str, str]], *, to: str) -> RestorePlan:
    """Return the plan to take back instants, each with its action, to be as of `to`."""
    return RestorePlan(
        instants_to_rollback=tuple(InstantInfo(instant, action) for instant, action in instants),
        savepoint_to_restore_timestamp=to,
    )


def restore_metadata(
    restore: str, undone: Sequence[Undone], *, took_ms: int, base: str
) -> RestoreMetadata:
    """Return what a restore did: one roll-back for each instant."""
    return RestoreMetadata(
        start_restore_time=restore,
        time_taken_in_millis=took_ms,
        instants_to_rollback=tuple(each.instant for each in undone),
        hoodie_restore_metadata={
            each.instant: (rollback_metadata(restore, (each,), took_ms=took_ms, base=base),)
            for each in undone
        },
        restore_instant_info=tuple(InstantInfo(each.instant, each.action) for each in undone),
    )
