"""Reads the metadata table, as Hudi's readers do.

It is a merge-on-read table with HFiles as base files, and HFiles and deletes in its log files. Each
action on the data table has a deltacommit of the same request time here, which completes first. So
these rules determine which log blocks are valid:

  M1  A file belongs to a slice if its instant has completed on the timeline of the metadata table,
      or is older than that timeline.
  M2  A block is valid if its instant has completed on the timeline of the data table; or if it is a
      completed deltacommit here that is not pending on the data table's timeline; or if it was
      rolled back there, since that rollback has removed the block here if necessary.
  M3  Blocks are merged in the order of their request times, and the result with the base file. So a
      record that was deleted and written again is combined with that of the base file: the deletion
      in between is lost.

An instant that has left both timelines is no longer valid by M2, even if a log file still has its
blocks. Hudi compacts the metadata table before it archives that far.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import fastavro

from tidelock.core.errors import DataCorrupt, NotFound
from tidelock.hudi.file_groups import (
    DataFile,
    FileSlice,
    LogFile,
    Visibility,
    data_file,
    file_groups,
    visible_slices,
)
from tidelock.hudi.hfile import HFile, open_hfile
from tidelock.hudi.log_blocks import (
    Block,
    BlockType,
    Header,
    blocks_to_merge,
    decode_deletes,
    read_log,
)
from tidelock.hudi.properties import METADATA_FOLDER
from tidelock.hudi.timeline.active import ActiveTimeline, load_timeline
from tidelock.hudi.timeline.history import Archive
from tidelock.hudi.timeline.instant import Action
from tidelock.storage.contract import ObjectStore

FILES_PARTITION: Final = "files"
"""The partition with the file listing; readers use the metadata table only if it exists."""

ALL_PARTITIONS: Final = "__all_partitions__"
NON_PARTITIONED: Final = "."
"""The name of the only partition of a non-partitioned table."""

_FIELD: Final = "filesystemMetadata"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """The entry of a file: its size, or that it was deleted."""

    size_bytes: int
    is_deleted: bool = False


FilesRecord = Mapping[str, FileInfo]
"""Files by name; for `__all_partitions__`, the partitions."""


def decode_record(value: bytes | memoryview, *, schema: str, where: str) -> FilesRecord:
    """Decode the files in a value written with `schema` (Avro JSON). Raises: `DataCorrupt`."""
    source = io.BytesIO(value)
    try:
        record: Any = fastavro.schemaless_reader(source, _parsed(schema), None)
        found = {
            name: FileInfo(info["size"], is_deleted=info["isDeleted"])
            for name, info in (record[_FIELD] or {}).items()
        }
    # fastavro raises many exception types on corrupt bytes; callers get one.
    except Exception as error:
        raise DataCorrupt(
            f"{where}: expected a HoodieMetadataRecord with {_FIELD}: {error!r}"
        ) from error
    if source.tell() != len(value):
        raise DataCorrupt(f"{where}: {len(value) - source.tell()} bytes follow the record")
    return found


@lru_cache(maxsize=16)
def _parsed(schema: str) -> Any:
    """Parse a schema. Nearly all blocks have the same one."""
    return fastavro.parse_schema(json.loads(schema))


def combine_records(older: FilesRecord, newer: FilesRecord) -> FilesRecord:
    """Combine two records of one key, by Hudi's rule.

    A deletion removes the file's entry, or stays if there is none, because the entry may be in an
    older record. Of two sizes the larger one counts, since files only grow.
    """
    found = dict(older)
    for name, entry in newer.items():
        previous = older.get(name)
        if previous is None or previous.is_deleted:
            found[name] = entry
        elif entry.is_deleted:
            del found[name]
        else:
            found[name] = FileInfo(max(previous.size_bytes, entry.size_bytes))
    return found


@dataclass(frozen=True, slots=True)
class FilesListing:
    """The files of a data table, according to its metadata table."""

    partitions: frozenset[str]
    """The partitions that readers list; "" for a non-partitioned table."""

    sizes: Mapping[str, Mapping[str, int]]
    """The size of each file, by partition and name."""


def list_files_in(records: Iterable[tuple[str, FilesRecord]]) -> FilesListing:
    """Return the listing of all records, one for each key, without deleted files."""
    partitions: frozenset[str] = frozenset()
    sizes: dict[str, Mapping[str, int]] = {}
    for key, record in records:
        present = {name: info.size_bytes for name, info in record.items() if not info.is_deleted}
        if key == ALL_PARTITIONS:
            partitions = frozenset(map(_partition, present))
        else:
            sizes[_partition(key)] = present
    return FilesListing(partitions, sizes)


def _partition(key: str) -> str:
    return "" if key == NON_PARTITIONED else key


TIMELINE: Final = f"{METADATA_FOLDER}/.hoodie/timeline"
PROPERTIES: Final = f"{METADATA_FOLDER}/.hoodie/hoodie.properties"

_EXTENSION: Final = "hfile"
_BLOCKS: Final = (BlockType.HFILE, BlockType.DELETE)
_SCHEMA: Final = "schema"


@dataclass(frozen=True, slots=True)
class MetadataTable:
    """The metadata table of a data table, as of the time it was opened."""

    store: ObjectStore
    timeline: ActiveTimeline
    valid: frozenset[str]
    """The instants whose log blocks are valid (M2)."""

    def files(self) -> FilesListing:
        """Return the listed files. Raises: `DataCorrupt`, `NotFound`, `Unsupported`."""
        return list_files_in(
            pair
            for file_slice in self._slices(FILES_PARTITION)
            for pair in self._merged(file_slice).items()
        )

    def _slices(self, partition: str) -> tuple[FileSlice, ...]:
        folder = f"{METADATA_FOLDER}/{partition}"
        named = (
            data_file(folder, meta.key.removeprefix(f"{folder}/"), meta.size_bytes, _EXTENSION)
            for meta in self.store.list(f"{folder}/")
        )
        files = [file for file in named if file is not None]
        if not files:
            raise DataCorrupt(
                f"{self.store.uri}/{folder} has no files, although the table properties list it"
            )
        visibility = self._visibility(files)
        return visible_slices(file_groups(files, visibility), visibility)

    def _visibility(self, files: Collection[DataFile]) -> Visibility:
        timeline = self.timeline
        archived = {
            file.instant
            for file in files
            if isinstance(file, LogFile) and timeline.start and file.instant < timeline.start
        }
        known = Archive(self.store, f"{TIMELINE}/history").completions(archived) if archived else {}
        return Visibility(
            completions={**known, **timeline.completions},
            start=timeline.start,
            pending=timeline.pending_writes,
            compacting={
                (f"{METADATA_FOLDER}/{partition}", file_id): requested
                for partition, file_id, requested in timeline.compacting()
            },
        )

    def _merged(self, file_slice: FileSlice) -> dict[str, FilesRecord]:
        """Return the merged records of a slice (M3)."""
        changes: dict[str, FilesRecord | None] = {}
        for key, record in self._log_records(file_slice):
            older = changes.get(key)
            changes[key] = (
                record if record is None or older is None else combine_records(older, record)
            )
        merged = dict(self._base_records(file_slice))
        for key, change in changes.items():
            if change is None:
                merged.pop(key, None)
            else:
                merged[key] = combine_records(merged.get(key, {}), change)
        return merged

    def _base_records(self, file_slice: FileSlice) -> Iterator[tuple[str, FilesRecord]]:
        if file_slice.base is None:
            return
        where = f"{self.store.uri}/{file_slice.base.key}"
        found = self.store.get(file_slice.base.key)
        if found is None:
            raise NotFound(
                f"{where} does not exist", hint="a clean may have deleted it; open the table again"
            )
        file = open_hfile(found.body, where=where)
        yield from _decode_entries(file, file.info.get(_SCHEMA, b"").decode(errors="replace"))

    def _log_records(self, file_slice: FileSlice) -> Iterator[tuple[str, FilesRecord | None]]:
        """Yield the records of the log files, oldest first; None for deleted records."""
        blocks = (
            block
            for log in file_slice.logs
            for block in read_log(self.store, log)
            if isinstance(block, Block) and block.instant in self.valid
        )
        where = f"{self.store.uri}/{file_slice.partition}"
        keys = {log.instant: log.key for log in file_slice.logs}
        for block in blocks_to_merge(blocks, as_of=None, where=where, kinds=_BLOCKS):
            at = f"{self.store.uri}/{keys.get(block.instant, file_slice.partition)}"
            if block.type is BlockType.DELETE:
                for delete in decode_deletes(block.content, where=at):
                    yield delete.key, None
            else:
                file = open_hfile(block.content, where=at)
                yield from _decode_entries(file, block.headers.get(Header.SCHEMA, ""))


def _decode_entries(file: HFile, schema: str) -> Iterator[tuple[str, FilesRecord]]:
    for key, value in file.entries():
        yield (
            str(key, "utf-8", "replace"),
            decode_record(value, schema=schema, where=f"{file.where}: {key!r}"),
        )


def open_metadata_table(
    store: ObjectStore, data: ActiveTimeline, rolled_back: Collection[str]
) -> MetadataTable:
    """Open the metadata table of the data table in `store`, whose timeline is `data`.

    `rolled_back` are the instants rolled back by completed rollbacks and restores of `data`.
    Raises: `NotFound` if there is none, `DataCorrupt`.
    """
    if store.head(PROPERTIES) is None:
        raise NotFound(f"{store.uri}/{PROPERTIES} does not exist")
    timeline = load_timeline(store, TIMELINE)
    return MetadataTable(store, timeline, valid_instants(data, timeline, rolled_back))


def valid_instants(
    data: ActiveTimeline, metadata: ActiveTimeline, rolled_back: Collection[str]
) -> frozenset[str]:
    """Return the instants whose log blocks in the metadata table are valid (M2)."""
    done = {instant.requested for instant in data.completed()}
    pending = {instant.requested for instant in data.pending()}
    own = metadata.completed(Action.DELTA_COMMIT, Action.ROLLBACK, Action.RESTORE)
    return frozenset(done | {i.requested for i in own if i.requested not in pending}).union(
        rolled_back
    )
