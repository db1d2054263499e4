"""Whether a past state of the table is still whole: a clean may have deleted some of its files."""

from __future__ import annotations

from collections.abc import Iterator

from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.filegroup.view import DataFile
from tidelock.table.naming import data_file
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import CleanMetadata


def lost_files(snapshot: TableSnapshot, completion: str) -> tuple[str, ...]:
    """Return files of the state at `completion` that a clean has deleted since.

    What was deleted is put back among the files in thought; a file of it that shows then is lost.
    """
    # Two cleans that ran at once may both say that they deleted a file.
    deleted = {file.key: file for file in _deleted_since(snapshot, completion)}.values()
    if not deleted:
        return ()
    present = {file.key for each in snapshot.slices_until(completion) for file in files_in(each)}
    shown = snapshot.slices_until(completion, deleted=deleted)
    needed = {file.key for each in shown for file in files_in(each)}
    return tuple(sorted(needed - present))


def files_in(piece: FileSlice) -> tuple[DataFile, ...]:
    """Return the files of a slice."""
    return (*((piece.base,) if piece.base else ()), *piece.logs)


def _deleted_since(snapshot: TableSnapshot, completion: str) -> Iterator[DataFile]:
    for instant in snapshot.timeline.completed(Action.CLEAN):
        if instant.completion <= completion:
            continue
        cleaned = snapshot.timeline.read(CleanMetadata, instant)
        for partition, each in cleaned.partition_metadata.items():
            for path in each.success_delete_files:
                file = data_file(partition, path.rpartition("/")[2], 0)
                if file is not None:
                    yield file
