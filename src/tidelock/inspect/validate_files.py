"""Checks of files: those of completed writes exist, and readers see no others."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelock.core.errors import DataCorrupt
from tidelock.hudi.file_groups import BaseFile, DataFile, GroupId, data_file
from tidelock.hudi.markers import TEMP_FOLDER
from tidelock.hudi.partitions import METADATA_NAME, decode, metadata_for, metadata_key
from tidelock.hudi.properties import BACKUP_KEY, KEY
from tidelock.inspect.validate_findings import ValidationCheck, ValidationFinding
from tidelock.storage.contract import ObjectMeta, ObjectStore

FILES: Final = ValidationCheck("files")


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A data file in the metadata of a completed write."""

    key: str
    group: GroupId
    requested: str
    completion: str
    size_bytes: int | None
    is_base: bool


@dataclass(frozen=True, slots=True)
class PartitionOverwrite:
    """A completed write that replaced whole partitions; all of them for None."""

    requested: str
    completion: str
    partitions: frozenset[str] | None

    def covers(self, partition: str) -> bool:
        """Return whether a partition was overwritten."""
        return self.partitions is None or partition in self.partitions


@dataclass(slots=True)
class CompletedFiles:
    """The files in the metadata of the completed actions on the timeline."""

    named: list[NamedFile] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)
    """File names that an action removed, without folders, and that action: `clean <time>`."""
    removing: set[str] = field(default_factory=set)
    """Names of files that a pending clean will remove, or has removed already."""
    replaced: set[GroupId] = field(default_factory=set)
    completed: frozenset[str] = frozenset()
    """Request times of completed writes on the timeline."""
    pending: frozenset[str] = frozenset()
    rolled_back: dict[str, str] = field(default_factory=dict)
    """Instants that a rollback names, and when the last one completed."""
    start: str | None = None
    archived: frozenset[str] = frozenset()
    """The older instants of listed files that are in the archived timeline."""
    operations: dict[str, str] = field(default_factory=dict)
    """The operation of each completed write, by its request time."""
    completions: Mapping[str, str] = field(default_factory=dict)
    """The completion time of each completed write, by its request time."""
    overwrites: list[PartitionOverwrite] = field(default_factory=list)


def check_files(record: CompletedFiles, listed: Sequence[DataFile]) -> Iterator[ValidationFinding]:
    """Compare the files on the timeline with the files in the store."""
    existing = {file.key: file for file in listed}
    needed = _needed(record)
    for named in record.named:
        found = existing.get(named.key)
        if found is None:
            yield from _missing(named, record, needed=named.key in needed)
        elif named.size_bytes is not None and found.size_bytes != named.size_bytes:
            yield FILES.problem(
                named.key,
                f"expected {named.size_bytes:,} bytes as recorded by its write {named.requested},"
                f" found {found.size_bytes:,}",
                "restore it from a copy, or roll back that write",
            )
    names = {named.key for named in record.named}
    for file in listed:
        if file.key not in names:
            yield from _unnamed(file, record)
    yield from _check_duplicates(listed, names)


def _needed(record: CompletedFiles) -> set[str]:
    """Return the files of the latest rows: the last base file of a group, and later logs."""
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


def _missing(
    named: NamedFile, record: CompletedFiles, *, needed: bool
) -> Iterator[ValidationFinding]:
    removed = named.key.rpartition("/")[2] in record.removed
    if needed:
        by = " because a clean removed it" if removed else ""
        yield FILES.problem(
            named.key,
            f"missing{by}; rows that {named.requested} wrote are lost",
            "restore it from a copy, or restore the table to a savepoint before that write",
        )
    elif not removed:
        yield FILES.warning(
            named.key,
            f"an older version is missing, and no clean removed it; the table as of"
            f" {named.requested} cannot be read",
            "the latest rows are not affected; find the program that deletes files of this table",
        )


def _unnamed(file: DataFile, record: CompletedFiles) -> Iterator[ValidationFinding]:
    if file.instant in record.pending or file.instant in record.archived:
        return
    if file.instant in record.completed:
        yield FILES.problem(
            file.key,
            f"the write {file.instant} completed without it, but readers that list folders read it",
            "a retried task left it: delete it",
        )
    elif file.instant in record.rolled_back:
        yield FILES.warning(
            file.key,
            f"{file.instant} was rolled back, but this file still exists",
            "delete it before the active timeline starts after its time, or readers read it",
        )
    elif record.start is not None and file.instant < record.start:
        yield FILES.problem(
            file.key,
            f"its write {file.instant} is on neither the active nor the archived timeline; it is"
            " older than the active timeline, so readers read it",
            "a failed write left it: delete it",
        )
    else:
        yield FILES.warning(
            file.key,
            f"its write {file.instant} is not on the timeline; no reader reads it yet",
            "delete it before the active timeline starts after its time, or readers read it",
        )


def _check_duplicates(listed: Sequence[DataFile], names: set[str]) -> Iterator[ValidationFinding]:
    same: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for file in listed:
        if isinstance(file, BaseFile) and file.key in names:
            same[file.partition, file.file_id, file.instant].append(file.key)
    for (_, group, instant), keys in sorted(same.items()):
        if len(keys) > 1:
            yield FILES.problem(
                keys[0],
                f"the write {instant} has {len(keys)} base files of file group {group}:"
                f" {', '.join(keys)}",
                "readers cannot decide between them: roll that write back",
            )


def without_key(message: str, key: str) -> str:
    """Return an error message without the key of its object, which the finding has already."""
    return message.removeprefix(f"{key}: ").removeprefix(f"{key} ")


FOLDERS: Final = ValidationCheck("partitions")

_PARQUET_METADATA = f"{METADATA_NAME}.parquet"
_SKIPPED_AT_ROOT = ("metadata", "_delta_log")


def check_folders(
    store: ObjectStore, metas: Sequence[ObjectMeta], listed: Sequence[DataFile]
) -> Iterator[ValidationFinding]:
    """Check the folders with data files."""
    partitions = sorted({file.partition for file in listed})
    keys = {meta.key for meta in metas}
    for partition in partitions:
        yield from _check_metadata(store, partition, keys)
        if partition.partition("/")[0] in _SKIPPED_AT_ROOT:
            yield FOLDERS.problem(
                partition,
                "readers other than Java's assume another format in this folder, and skip it",
                "use another partition value",
            )
    yield from _check_unexpected(metas, set(partitions))


def _check_metadata(
    store: ObjectStore, partition: str, keys: set[str]
) -> Iterator[ValidationFinding]:
    key = metadata_key(partition)
    if key not in keys:
        if key.removesuffix(METADATA_NAME) + _PARQUET_METADATA not in keys:
            yield FOLDERS.problem(
                key,
                "missing; Java's readers silently skip this partition",
                "create it with commitTime and partitionDepth, as in another partition",
            )
        return
    found = store.get(key)
    if found is None:
        return
    try:
        depth = decode(found.body, where=key).depth
    except DataCorrupt as error:
        yield FOLDERS.problem(key, without_key(error.message, key), error.hint)
        return
    expected = metadata_for(partition, "").depth
    if depth != expected:
        yield FOLDERS.problem(
            key,
            f"partitionDepth: expected {expected} for this folder, found {depth}",
            f"set partitionDepth={expected}",
        )


def _check_unexpected(
    metas: Sequence[ObjectMeta], partitions: set[str]
) -> Iterator[ValidationFinding]:
    """Find files that are not Hudi's, and partitions that contain folders."""
    nested: set[str] = set()
    for meta in metas:
        folder, _, name = meta.key.rpartition("/")
        if folder in partitions and data_file(folder, name, meta.size_bytes) is None:
            yield from _unexpected(meta.key, name)
        above = folder.rpartition("/")[0]
        while above:
            nested.add(above)
            above = above.rpartition("/")[0]
    for partition in sorted(nested & partitions):
        yield FOLDERS.warning(
            partition,
            "this partition contains folders; some readers then see none of its rows",
            "move the folders out of the partition",
        )


def _unexpected(key: str, name: str) -> Iterator[ValidationFinding]:
    if name.endswith(".parquet") and name != _PARQUET_METADATA:
        yield FOLDERS.warning(
            key,
            "not a file of Hudi; some readers refuse the table because of it",
            "move it out of the table",
        )
    elif name.startswith(".") and ".log." in name and not name.endswith(".crc"):
        yield FOLDERS.problem(
            key,
            "it looks like a log file, but readers skip it because of its name",
            "its write token must be three numbers: find the writer that created it",
        )


PROPERTIES: Final = ValidationCheck("properties")
LEFTOVERS: Final = ValidationCheck("leftovers")
_CHECKSUM_FILE = ".hoodie/.hoodie.properties.crc"
_HEARTBEATS = ".hoodie/.heartbeat/"


def check_properties_files(store: ObjectStore) -> Iterator[ValidationFinding]:
    """Check the backup and the checksum of the properties."""
    if store.head(BACKUP_KEY) is not None:
        yield PROPERTIES.warning(
            BACKUP_KEY,
            "an update of the properties is in progress or was interrupted",
            "if no update is in progress, the next update by tidelock or Hudi repairs it",
        )
    checksum, body = store.get(_CHECKSUM_FILE), store.get(KEY)
    if checksum is not None and body is not None and not _matches(checksum.body, body.body):
        yield PROPERTIES.problem(
            _CHECKSUM_FILE,
            f"not the checksum of {KEY}; Java refuses to open the table",
            "delete it",
        )


def _matches(checksum: bytes, body: bytes) -> bool:
    """Return whether the checksum file that Hadoop writes for a local file matches its bytes."""
    if checksum[:4] != b"crc\x00" or len(checksum) < 8:
        return False
    size = int.from_bytes(checksum[4:8], "big")
    sums = [zlib.crc32(body[at : at + size]) for at in range(0, len(body), size)] if size else []
    return checksum[8:] == b"".join(each.to_bytes(4, "big") for each in sums)


def check_leftovers(store: ObjectStore, record: CompletedFiles) -> Iterator[ValidationFinding]:
    """Find markers and heartbeats that completed writes should have deleted."""
    for folder, what, they in (
        (f"{TEMP_FOLDER}/", "markers of a completed write", "they"),
        (_HEARTBEATS, "the heartbeat of a completed write", "it"),
    ):
        found = {meta.key.removeprefix(folder).partition("/")[0] for meta in store.list(folder)}
        for instant in sorted(found & record.completed):
            step = f"its writer died during cleanup; {they} can be deleted"
            yield LEFTOVERS.warning(f"{folder}{instant}", what, step)
