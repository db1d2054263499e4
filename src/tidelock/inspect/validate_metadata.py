"""Checks of Hudi's metadata table, from which readers list files.

Two views at the same point of the timeline are compared: the files in the folders, and the files in
the metadata table. Current files of one view must be in the other, with the same size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tidelock.core.errors import Conflict, DataCorrupt, NotFound, TidelockError, Unsupported
from tidelock.hudi.file_groups import DataFile, FileGroup, data_file
from tidelock.hudi.metadata_table import (
    ALL_PARTITIONS,
    FILES_PARTITION,
    FilesListing,
    MetadataTable,
    open_metadata_table,
)
from tidelock.hudi.properties import METADATA_FOLDER
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.inspect.validate_files import CompletedFiles
from tidelock.inspect.validate_findings import ValidationCheck, ValidationFinding

CHECK: Final = ValidationCheck("metadata table")

_REBUILD: Final = (
    "delete the metadata table: clear hoodie.table.metadata.partitions, then delete"
    f" {METADATA_FOLDER}; the next Java writer rebuilds it"
)
_UNREADABLE: Final = (Conflict, DataCorrupt, NotFound, Unsupported)
"""Errors caused by the content of the metadata table; others are errors of the store."""
_SHOWN: Final = 3


def check_metadata_table(
    snapshot: TableSnapshot, record: CompletedFiles, listed: Sequence[DataFile]
) -> Iterator[ValidationFinding]:
    """Compare the metadata table, if the table has one, with the files of the table."""
    if FILES_PARTITION not in snapshot.properties.metadata_partitions:
        return
    try:
        table = open_metadata_table(snapshot.store, snapshot.timeline, record.rolled_back)
    except NotFound:
        # Readers fall back to listing folders when it is missing.
        yield CHECK.warning(
            METADATA_FOLDER,
            "missing, although the properties of the table declare it",
            "the next Java writer rebuilds it",
        )
        return
    except _UNREADABLE as error:
        yield _unreadable(error)
        return
    try:
        listing = table.files()
        entered = tuple(_entered(listing))
        by_metadata = snapshot.groups(with_replaced=True, files=entered)
    except _UNREADABLE as error:
        yield _unreadable(error)
        return
    by_folders = snapshot.groups(with_replaced=True, files=listed)
    current = _current(snapshot, by_folders)
    yield from _check_partitions(listing, current.values())
    missing = [
        file
        for file in _files_of(by_folders)
        if file.name not in listing.sizes.get(file.partition, {})
    ]
    # A file that a clean removed and that still exists is a leftover, and correctly not listed.
    missing = [f for f in missing if f.key in current or f.name not in record.removed]
    yield from _check_unlisted(snapshot, table, missing, current)
    yield from _check_sizes(listing, listed)
    existing = {file.key for file in listed}
    absent = [file for file in entered if file.key not in existing]
    yield from _check_absent(snapshot, record, absent, _current(snapshot, by_metadata))


def _unreadable(error: TidelockError) -> ValidationFinding:
    if isinstance(error, Unsupported):
        step = error.hint or "compare it with Apache Hudi's own tools"
        return CHECK.warning(METADATA_FOLDER, f"not checked: {error.message}", step)
    return CHECK.problem(
        METADATA_FOLDER,
        f"cannot be read, so readers that list files from it cannot read the table:"
        f" {error.message}",
        error.hint or _REBUILD,
    )


def _entered(listing: FilesListing) -> Iterator[DataFile]:
    for partition, sizes in sorted(listing.sizes.items()):
        for name, size_bytes in sorted(sizes.items()):
            file = data_file(partition, name, size_bytes)
            if file is not None:
                yield file


def _current(snapshot: TableSnapshot, groups: Iterable[FileGroup]) -> Mapping[str, DataFile]:
    """Return the files of the latest rows."""
    replaced = snapshot.replaced
    pieces = (group.at() for group in groups if group.group_id not in replaced)
    files = (file for piece in pieces if piece is not None for file in (piece.base, *piece.logs))
    return {file.key: file for file in files if file is not None}


def _check_partitions(
    listing: FilesListing, current: Iterable[DataFile]
) -> Iterator[ValidationFinding]:
    for partition in sorted({file.partition for file in current} - listing.partitions):
        yield CHECK.problem(
            partition or ".",
            f"the metadata table does not list this partition ({ALL_PARTITIONS}); Java's readers"
            " skip it",
            _REBUILD,
        )


def _check_unlisted(
    snapshot: TableSnapshot,
    table: MetadataTable,
    missing: Iterable[DataFile],
    needed: Mapping[str, DataFile],
) -> Iterator[ValidationFinding]:
    """Find files of completed writes that the metadata table does not list, and the reason."""
    by_write: defaultdict[str, list[DataFile]] = defaultdict(list)
    for file in missing:
        by_write[file.instant].append(file)
    for requested, files in sorted(by_write.items()):
        unlisted = list(_named(snapshot, requested, files))
        unknown = _unknown(snapshot, table, requested)
        if unlisted and unknown:
            finding = (
                CHECK.problem if any(file.key in needed for file in unlisted) else CHECK.warning
            )
            yield finding(
                METADATA_FOLDER,
                f"it does not contain the write {requested}: {unknown}; readers that list files"
                f" from it do not see {_names(unlisted)}",
                _REBUILD,
            )
            continue
        for file in unlisted:
            # An older version may have been cleaned after the folders were listed.
            if file.key in needed or snapshot.store.head(file.key) is not None:
                yield _unlisted(file, current=file.key in needed)


def _files_of(groups: Iterable[FileGroup]) -> Iterator[DataFile]:
    for piece in (piece for group in groups for piece in group.slices):
        if piece.base is not None:
            yield piece.base
        yield from piece.logs


def _named(
    snapshot: TableSnapshot, requested: str, files: Iterable[DataFile]
) -> Iterator[DataFile]:
    """Return the files that their write names: others are leftovers of retried tasks."""
    commit = snapshot.commit_of(requested)
    names = None if commit is None else {path.rpartition("/")[2] for path in commit.paths}
    return (file for file in files if names is None or file.name in names)


def _unknown(snapshot: TableSnapshot, table: MetadataTable, requested: str) -> str:
    """Return what is missing if a write lacks its deltacommit in the metadata table."""
    completed = snapshot.timeline.completions.get(requested)
    # It was built from the folders; writes that completed before have no deltacommit.
    built = min((each.completion for each in table.timeline.completed()), default="")
    own = table.timeline.find(requested)
    if completed is None or completed <= built or (own is not None and own.is_completed):
        return ""
    found = "none" if own is None else f"one that is {own.state.name.lower()}"
    return f"expected a completed deltacommit of that time, found {found}"


def _unlisted(file: DataFile, *, current: bool) -> ValidationFinding:
    finding = CHECK.problem if current else CHECK.warning
    unseen = f"rows of {file.instant}" if current else f"the table as of {file.instant}"
    return finding(
        file.key,
        f"the metadata table does not list it; expected {file.size_bytes:,} bytes; readers that"
        f" list files from it do not see {unseen}",
        _REBUILD,
    )


def _check_sizes(listing: FilesListing, listed: Iterable[DataFile]) -> Iterator[ValidationFinding]:
    for file in listed:
        size_bytes = listing.sizes.get(file.partition, {}).get(file.name)
        if size_bytes is not None and size_bytes != file.size_bytes:
            yield CHECK.problem(
                file.key,
                f"the metadata table lists it with {size_bytes:,} bytes; it has"
                f" {file.size_bytes:,}. Java's readers rely on the listed size",
                f"if the file is corrupt, restore it from a copy; otherwise {_REBUILD}",
            )


def _check_absent(
    snapshot: TableSnapshot,
    record: CompletedFiles,
    absent: Iterable[DataFile],
    needed: Mapping[str, DataFile],
) -> Iterator[ValidationFinding]:
    """Find files that the metadata table lists and that do not exist."""
    removed: defaultdict[str, list[DataFile]] = defaultdict(list)
    for file in absent:
        by = record.removed.get(file.name)
        if by is not None:
            removed[by].append(file)
            continue
        # A clean deletes before it completes, and a write may have completed meanwhile.
        if file.name in record.removing or snapshot.store.head(file.key) is not None:
            continue
        finding, effect = CHECK.warning, f"cannot read the table as of {file.instant}"
        step = "find the program that deletes files of this table; then"
        if file.key in needed:
            finding, effect = CHECK.problem, "fail"
            step = "restore it from a copy; if its rows are not needed,"
        yield finding(
            file.key,
            f"the metadata table lists it with {file.size_bytes:,} bytes, but it is missing;"
            f" readers that list files from it {effect}",
            f"{step} {_REBUILD}",
        )
    for by, files in sorted(removed.items()):
        yield CHECK.problem(
            METADATA_FOLDER,
            f"it still lists files that the {by} removed: {_names(files)}; readers that list files"
            " from it fail",
            _REBUILD,
        )


def _names(files: Sequence[DataFile]) -> str:
    names = ", ".join(file.key for file in files[:_SHOWN])
    more = len(files) - _SHOWN
    return f"{names} and {more} more" if more > 0 else names
