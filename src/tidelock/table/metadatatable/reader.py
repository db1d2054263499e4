"""Reading the metadata table, as Hudi's readers do.

It is a merge-on-read table with HFiles as base files, and HFiles and deletes in its log files. Each
action on the data table has a deltacommit of the same request time here, which completes first. So
there are rules about which log blocks count:

  M1  A file belongs to a slice if its instant is complete on the timeline of the metadata table,
      or older than that timeline.
  M2  A block counts if its instant is complete on the timeline of the data table, or if it is a
      completed deltacommit here that the data table's timeline does not show as pending, or if it
      was rolled back there: that rollback has taken the block away here if it was to go.
  M3  Blocks are merged in the order of their request times, and what comes of it with the base
      file. So a record that was deleted and written again is combined with that of the base file:
      in between, the deletion is forgotten.

An instant that has left both timelines does not count any more by M2, whatever a log still has of
it. Hudi compacts the metadata table before it archives that far.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import DataCorrupt, NotFound
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice, LogFile
from tidelock.table.filegroup.view import DataFile, GroupId, Visibility, file_groups, visible_slices
from tidelock.table.logfile.block import Block, BlockType, Header
from tidelock.table.logfile.content import decode_deletes
from tidelock.table.logfile.reader import read_log
from tidelock.table.logfile.selection import counting
from tidelock.table.metadatatable.files import (
    PARTITION,
    FilesListing,
    FilesRecord,
    combine,
    decode_record,
    listing_of,
)
from tidelock.table.metadatatable.hfile import HFile, open_hfile
from tidelock.table.naming import data_file
from tidelock.table.properties import METADATA_FOLDER
from tidelock.table.timeline.active import ActiveTimeline, load_timeline
from tidelock.table.timeline.archive import Archive
from tidelock.table.timeline.instant import Action

TIMELINE: Final = f"{METADATA_FOLDER}/.hoodie/timeline"
PROPERTIES: Final = f"{METADATA_FOLDER}/.hoodie/hoodie.properties"

_EXTENSION: Final = "hfile"
_BLOCKS: Final = (BlockType.HFILE, BlockType.DELETE)
_SCHEMA: Final = "schema"


@dataclass(frozen=True, slots=True)
class MetadataTable:
    """The metadata table of a data table, when it was opened."""

    store: ObjectStore
    timeline: ActiveTimeline
    counted: frozenset[str]
    """The instants whose log blocks count (M2)."""

    def files(self) -> FilesListing:
        """Return the files of the data table that are listed here.

        Raises: `DataCorrupt`, `NotFound` if a file is gone since, `Unsupported`.
        """
        return listing_of(
            pair for piece in self._slices(PARTITION) for pair in self._merged(piece).items()
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
                f"{self.store.uri}/{folder} has no file, but the properties say that readers use it"
            )
        seen = self._visibility(files)
        return visible_slices(file_groups(files, seen), seen)

    def _visibility(self, files: Collection[DataFile]) -> Visibility:
        timeline = self.timeline
        old = {
            file.instant
            for file in files
            if isinstance(file, LogFile) and timeline.start and file.instant < timeline.start
        }
        known = Archive(self.store, f"{TIMELINE}/history").completions(old) if old else {}
        return Visibility(
            completions={**known, **timeline.completions},
            start=timeline.start,
            pending=timeline.pending_writes,
            compacting=dict(self._compacting()),
        )

    def _compacting(self) -> Iterator[tuple[GroupId, str]]:
        for instant in self.timeline.pending(Action.COMPACTION):
            for operation in self.timeline.compaction_plan(instant).operations or ():
                if operation.file_id is not None:
                    folder = f"{METADATA_FOLDER}/{operation.partition_path or ''}"
                    yield (folder, operation.file_id), instant.requested

    def _merged(self, piece: FileSlice) -> dict[str, FilesRecord]:
        """Return the records of a slice (M3)."""
        changes: dict[str, FilesRecord | None] = {}
        for key, record in self._logged(piece):
            older = changes.get(key)
            changes[key] = record if record is None or older is None else combine(older, record)
        merged = dict(self._based(piece))
        for key, change in changes.items():
            if change is None:
                merged.pop(key, None)
            else:
                merged[key] = combine(merged.get(key, {}), change)
        return merged

    def _based(self, piece: FileSlice) -> Iterator[tuple[str, FilesRecord]]:
        if piece.base is None:
            return
        where = f"{self.store.uri}/{piece.base.key}"
        found = self.store.get(piece.base.key)
        if found is None:
            raise NotFound(f"{where} is gone", hint="it was cleaned since: look again")
        file = open_hfile(found.body, where=where)
        yield from _decoded(file, file.info.get(_SCHEMA, b"").decode(errors="replace"))

    def _logged(self, piece: FileSlice) -> Iterator[tuple[str, FilesRecord | None]]:
        """Yield the records of the log files, oldest first; None where a record was deleted."""
        blocks = (
            block
            for log in piece.logs
            for block in read_log(self.store, log)
            if isinstance(block, Block) and block.instant in self.counted
        )
        where = f"{self.store.uri}/{piece.partition}"
        keys = {log.instant: log.key for log in piece.logs}
        for block in counting(blocks, as_of=None, where=where, kinds=_BLOCKS):
            at = f"{self.store.uri}/{keys.get(block.instant, piece.partition)}"
            if block.type is BlockType.DELETE:
                for delete in decode_deletes(block.content, where=at):
                    yield delete.key, None
            else:
                file = open_hfile(block.content, where=at)
                yield from _decoded(file, block.headers.get(Header.SCHEMA, ""))


def _decoded(file: HFile, schema: str) -> Iterator[tuple[str, FilesRecord]]:
    for key, value in file.entries():
        yield (
            str(key, "utf-8", "replace"),
            decode_record(value, schema=schema, where=f"{file.where}: {key!r}"),
        )


def open_metadata_table(
    store: ObjectStore, data: ActiveTimeline, rolled_back: Collection[str]
) -> MetadataTable:
    """Open the metadata table of the data table in `store`, whose timeline is `data`.

    `rolled_back` are the instants that completed rollbacks and restores of `data` name.
    Raises: `NotFound` if there is none, `DataCorrupt`.
    """
    if store.head(PROPERTIES) is None:
        raise NotFound(f"{store.uri}/{PROPERTIES} is missing")
    timeline = load_timeline(store, TIMELINE)
    return MetadataTable(store, timeline, counted_instants(data, timeline, rolled_back))


def counted_instants(
    data: ActiveTimeline, metadata: ActiveTimeline, rolled_back: Collection[str]
) -> frozenset[str]:
    """Return the instants whose log blocks in the metadata table count (M2)."""
    done = {instant.requested for instant in data.completed()}
    pending = {instant.requested for instant in data.pending()}
    own = metadata.completed(Action.DELTA_COMMIT, Action.ROLLBACK, Action.RESTORE)
    return frozenset(done | {i.requested for i in own if i.requested not in pending}).union(
        rolled_back
    )
