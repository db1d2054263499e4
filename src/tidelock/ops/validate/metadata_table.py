"""Whether Hudi's metadata table lists the files that the table has: readers list no others.

Two views of the table are compared, both cut by the table's own timeline: the files in its folders,
and the files in the metadata table. What is current in one has to be in the other, of one size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tidelock.base.errors import Conflict, DataCorrupt, NotFound, TidelockError, Unsupported
from tidelock.ops.validate.files import Record
from tidelock.ops.validate.findings import Finding, problem, warning
from tidelock.table.filegroup.view import DataFile, FileGroup
from tidelock.table.metadatatable.files import ALL_PARTITIONS, PARTITION, FilesListing
from tidelock.table.metadatatable.reader import MetadataTable, open_metadata_table
from tidelock.table.naming import data_file
from tidelock.table.properties import METADATA_FOLDER
from tidelock.table.snapshot import TableSnapshot

CHECK = "metadata table"

_WITHOUT: Final = (
    "delete the metadata table: empty hoodie.table.metadata.partitions first, then delete"
    f" {METADATA_FOLDER}; the next Java writer builds it again"
)
_UNREADABLE: Final = (Conflict, DataCorrupt, NotFound, Unsupported)
"""What reading it raises because of what is there. Anything else is the store's to say."""
_SHOWN: Final = 3


def check_metadata_table(
    snapshot: TableSnapshot, record: Record, listed: Sequence[DataFile]
) -> Iterator[Finding]:
    """Compare the metadata table, if readers use one, with the files of the table."""
    if PARTITION not in snapshot.properties.metadata_partitions:
        return
    try:
        table = open_metadata_table(snapshot.store, snapshot.timeline, record.rolled_back)
    except NotFound:
        # Readers fall back to listing folders when it is gone.
        yield warning(
            CHECK,
            METADATA_FOLDER,
            "the properties say that there is one, but it is missing",
            "the next Java writer builds it again",
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
    missing = [file for file in _files_of(by_folders) if not _has(listing, file)]
    # What a clean removed and is still there is left over, and rightly not listed.
    missing = [f for f in missing if f.key in current or f.name not in record.removed]
    yield from _check_unlisted(snapshot, table, missing, current)
    yield from _check_sizes(listing, listed)
    there = {file.key for file in listed}
    absent = [file for file in entered if file.key not in there]
    yield from _check_absent(snapshot, record, absent, _current(snapshot, by_metadata))


def _unreadable(error: TidelockError) -> Finding:
    if isinstance(error, Unsupported):
        step = error.hint or "compare it with Apache Hudi's own tools"
        return warning(CHECK, METADATA_FOLDER, f"it was not compared: {error.message}", step)
    return problem(
        CHECK,
        METADATA_FOLDER,
        f"it cannot be read, and neither can the table by readers that list files from it:"
        f" {error.message}",
        error.hint or _WITHOUT,
    )


def _entered(listing: FilesListing) -> Iterator[DataFile]:
    for partition, sizes in sorted(listing.sizes.items()):
        for name, size_bytes in sorted(sizes.items()):
            file = data_file(partition, name, size_bytes)
            if file is not None:
                yield file


def _current(snapshot: TableSnapshot, groups: Iterable[FileGroup]) -> Mapping[str, DataFile]:
    """Return the files that today's rows are read from."""
    replaced = snapshot.replaced_groups
    pieces = (group.at() for group in groups if group.group_id not in replaced)
    files = (file for piece in pieces if piece is not None for file in (piece.base, *piece.logs))
    return {file.key: file for file in files if file is not None}


def _check_partitions(listing: FilesListing, current: Iterable[DataFile]) -> Iterator[Finding]:
    for partition in sorted({file.partition for file in current} - listing.partitions):
        yield problem(
            CHECK,
            partition or ".",
            f"the metadata table does not name this partition among all ({ALL_PARTITIONS}); Java's"
            " readers do not look for rows in it",
            _WITHOUT,
        )


def _check_unlisted(
    snapshot: TableSnapshot,
    table: MetadataTable,
    missing: Iterable[DataFile],
    needed: Mapping[str, DataFile],
) -> Iterator[Finding]:
    """Say which files of completed writes the metadata table does not list, and why."""
    by_write: defaultdict[str, list[DataFile]] = defaultdict(list)
    for file in missing:
        by_write[file.instant].append(file)
    for requested, files in sorted(by_write.items()):
        unlisted = list(_named(snapshot, requested, files))
        unknown = _unknown(snapshot, table, requested)
        if unlisted and unknown:
            told = problem if any(file.key in needed for file in unlisted) else warning
            yield told(
                CHECK,
                METADATA_FOLDER,
                f"it does not know the write {requested}: {unknown}; readers that list files from"
                f" it do not see {_names(unlisted)}",
                _WITHOUT,
            )
            continue
        for file in unlisted:
            # An old version may have been cleaned since the folders were listed.
            if file.key in needed or snapshot.store.head(file.key) is not None:
                yield _unlisted(file, current=file.key in needed)


def _has(listing: FilesListing, file: DataFile) -> bool:
    return file.name in listing.sizes.get(file.partition, {})


def _files_of(groups: Iterable[FileGroup]) -> Iterator[DataFile]:
    for piece in (piece for group in groups for piece in group.slices):
        if piece.base is not None:
            yield piece.base
        yield from piece.logs


def _named(
    snapshot: TableSnapshot, requested: str, files: Iterable[DataFile]
) -> Iterator[DataFile]:
    """Leave out files that their write does not name: they are of tasks that were tried again."""
    commit = snapshot.commit_of(requested)
    names = None if commit is None else {path.rpartition("/")[2] for path in commit.paths}
    return (file for file in files if names is None or file.name in names)


def _unknown(snapshot: TableSnapshot, table: MetadataTable, requested: str) -> str:
    """Say what is missing if a write has no deltacommit of its own, though it should have one."""
    completed = snapshot.timeline.completions.get(requested)
    # It was built from the folders, and what completed before that has no deltacommit.
    built = min((each.completion for each in table.timeline.completed()), default="")
    own = table.timeline.find(requested)
    if completed is None or completed <= built or (own is not None and own.is_completed):
        return ""
    found = "none" if own is None else f"one that is {own.state.name.lower()}"
    return f"expected a completed deltacommit of that time, found {found}"


def _unlisted(file: DataFile, *, current: bool) -> Finding:
    says = f"the metadata table does not list it; expected it there with {file.size_bytes:,} bytes"
    if current:
        return problem(
            CHECK,
            file.key,
            f"{says}; readers that list files from it do not see what {file.instant} wrote",
            _WITHOUT,
        )
    return warning(
        CHECK,
        file.key,
        f"{says}; readers that list files from it do not see the table as of {file.instant}",
        _WITHOUT,
    )


def _check_sizes(listing: FilesListing, listed: Iterable[DataFile]) -> Iterator[Finding]:
    for file in listed:
        size_bytes = listing.sizes.get(file.partition, {}).get(file.name)
        if size_bytes is not None and size_bytes != file.size_bytes:
            yield problem(
                CHECK,
                file.key,
                f"the metadata table lists it with {size_bytes:,} bytes; it has"
                f" {file.size_bytes:,}. Java's readers take the listed size for the file's",
                f"if the file is damaged, restore it from a copy; otherwise {_WITHOUT}",
            )


def _check_absent(
    snapshot: TableSnapshot,
    record: Record,
    absent: Iterable[DataFile],
    needed: Mapping[str, DataFile],
) -> Iterator[Finding]:
    """Look for files that the metadata table lists, and that are not there."""
    removed: defaultdict[str, list[DataFile]] = defaultdict(list)
    for file in absent:
        by = record.removed.get(file.name)
        if by is not None:
            removed[by].append(file)
            continue
        # A clean deletes first and says so when it completes; a write may have completed since.
        if file.name in record.removing or snapshot.store.head(file.key) is not None:
            continue
        says = f"the metadata table lists it with {file.size_bytes:,} bytes, but it is not there"
        if file.key in needed:
            yield problem(
                CHECK,
                file.key,
                f"{says}; readers that list files from it look for it, and fail",
                f"restore it from a copy; if its rows are not to be there, {_WITHOUT}",
            )
        else:
            yield warning(
                CHECK,
                file.key,
                f"{says}; readers that list files from it cannot read the table as of"
                f" {file.instant}",
                f"find out who deletes files of this table; then {_WITHOUT}",
            )
    for by, files in sorted(removed.items()):
        yield problem(
            CHECK,
            METADATA_FOLDER,
            f"it still lists what the {by} removed: {_names(files)}; readers that list files from"
            " it look for files that are gone",
            _WITHOUT,
        )


def _names(files: Sequence[DataFile]) -> str:
    names = ", ".join(file.key for file in files[:_SHOWN])
    more = len(files) - _SHOWN
    return f"{names} and {more} more" if more > 0 else names
