"""Which files a savepoint names: those that show its state of the table. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.timeline.metadata import SavepointMetadata, SavepointPartition


def savepoint_of(
    slices: Iterable[FileSlice], *, by: str, comment: str, at_epoch_ms: int
) -> SavepointMetadata:
    """Return what a savepoint of a state with these slices says."""
    files: dict[str, list[str]] = {}
    for piece in slices:
        names = files.setdefault(piece.partition, [])
        names += [piece.base.name] if piece.base else []
        names += [log.name for log in piece.logs]
    return SavepointMetadata(
        savepointed_by=by,
        savepointed_at=at_epoch_ms,
        comments=comment,
        partition_metadata={
            partition: SavepointPartition(partition, tuple(sorted(names)))
            for partition, names in sorted(files.items())
        },
    )
