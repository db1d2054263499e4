"""The context of a write, and its data files: markers, uploads, results and write stats.

Everything in the context can be pickled, so that a worker in another process writes the same files.

The names of data files are deterministic. A file that already exists under the expected name was
written by another run of the same task, from the same rows, and is used as the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any, Final, assert_never

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.core.errors import Conflict, DataCorrupt, StoreUnreachable, Throttled, TidelockError
from tidelock.core.limits import MIB
from tidelock.core.outcome import Landed
from tidelock.execution.filegroup.merge import MergeCounts, MergeRule
from tidelock.execution.filegroup.read import StoredRows, open_input
from tidelock.hudi.bloom_filter import ENTRIES, ENTRIES_MAX, FALSE_POSITIVES
from tidelock.hudi.file_groups import FileSlice, LogFile, WriteToken, base_name, data_file, log_name
from tidelock.hudi.log_blocks import (
    Block,
    BlockType,
    CorruptBlock,
    decode_deletes,
    decode_parquet,
    read_log,
    record_offsets,
)
from tidelock.hudi.markers import IoType, Marker
from tidelock.hudi.partitions import encode, metadata_for, metadata_key
from tidelock.hudi.schema import META_COLUMNS, RECORD_KEY, avro_schema, without_meta
from tidelock.hudi.timeline.metadata import NO_COMMIT, WriteStat
from tidelock.storage.contract import Busy, Create, ObjectStore, PutReply, Refused, Unclear

FILE_BYTES_MAX: Final = 120 * MIB
ROW_GROUP_BYTES: Final = 120 * MIB
COMPRESSION: Final = "snappy"


class LogFormat(StrEnum):
    """The format of rows in log files."""

    AVRO = "avro"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class BloomSettings:
    """The settings of the bloom filter in base file footers."""

    entries: int = ENTRIES
    rate: float = FALSE_POSITIVES
    entries_max: int = ENTRIES_MAX


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The layout of files.

    A task that creates files begins a new one at `file_bytes_max`; None puts all rows in one.
    `row_group_bytes` is measured in memory. `dictionary` lists the dictionary-encoded columns; None
    decides by the first rows.
    """

    compression: str = COMPRESSION
    row_group_bytes: int = ROW_GROUP_BYTES
    dictionary: tuple[str, ...] | None = None
    statistics: bool = True
    bloom: BloomSettings | None = None
    log_format: LogFormat = LogFormat.AVRO
    file_bytes_max: int | None = FILE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What all files of one write have in common.

    `schema` is the table's schema after the write, meta columns first; `avro_schema` is the same
    without meta columns, as in the commit metadata. `attempt` and `round` distinguish file names of
    different attempts at the same instant. With `markers`, a marker is created before each data
    file. `known_partitions` already have their metadata file.
    """

    instant: str
    attempt: int
    schema: pa.Schema
    avro_schema: str
    rule: MergeRule = field(default_factory=MergeRule)
    settings: FileSettings = field(default_factory=FileSettings)
    round: int = 0
    markers: bool = True
    known_partitions: frozenset[str] = frozenset()

    def token(self, slot: int) -> WriteToken:
        """Return the write token of a task's files."""
        return WriteToken(slot, self.attempt, self.round)

    def base_name(self, file_id: str, slot: int) -> str:
        """Return the name of the base file that a task writes for a file group."""
        return base_name(file_id, self.token(slot), self.instant)

    def log_name(self, file_id: str, slot: int, *, version: int = 1) -> str:
        """Return the name of the log file that a task writes for a file group."""
        return log_name(file_id, self.instant, self.token(slot), version=version)

    @property
    def log_schema(self) -> dict[str, Any]:
        """The Avro schema of log records: meta columns, then the table's columns."""
        return _log_record_schema(self.avro_schema)

    @property
    def user_schema(self) -> pa.Schema:
        """The table's columns without the meta columns."""
        return without_meta(self.schema)


@dataclass(frozen=True, slots=True)
class FileTarget:
    """The file group that a task writes to, and the slot of the task, which names its files."""

    partition: str
    file_id: str
    slot: int


@lru_cache(maxsize=64)
def _log_record_schema(text: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(text)
    meta = pa.schema([pa.field(name, pa.string()) for name in META_COLUMNS])
    fields = avro_schema(meta, table="t")["fields"]
    return {**schema, "fields": [*fields, *schema["fields"]]}


def create_marker(
    store: ObjectStore,
    ctx: WriteContext,
    partition: str,
    name: str,
    io_type: IoType,
    *,
    first: bool,
) -> None:
    """Create the marker of a data file, and the partition's metadata file if it may be missing.

    `first` means that the file group is new, so its partition may be new as well.
    """
    if first and partition not in ctx.known_partitions:
        key = metadata_key(partition)
        if store.head(key) is None:
            _create_object(store, key, encode(metadata_for(partition, ctx.instant)))
    if ctx.markers:
        _create_object(store, Marker(partition, name, io_type).key(ctx.instant), b"")


def resolve_upload(
    store: ObjectStore,
    key: str,
    reply: PutReply,
    *,
    size_bytes: int,
    rows: int,
    count: Callable[[ObjectStore, str, int], int],
) -> int:
    """Return the size of the data file at `key`, given the `reply` to its upload.

    Another run of the task may have received its rows in another order, which changes the size but
    not the number of rows. `count` returns that number, negative for an unreadable file. Raises:
    `StoreUnreachable` or `Throttled` if the file does not exist, and the task may be retried;
    `Conflict` if the existing file has other rows.
    """
    match reply:
        case Landed():
            return size_bytes
        case Refused():
            cause = "the store reported an existing file, but has none"
        case Unclear(cause, volatile=True):
            raise _volatile_error(store, key, cause)
        case Unclear(cause) | Busy(_, cause):
            pass
        case _:
            assert_never(reply)
    meta = store.head(key)
    if meta is None and isinstance(reply, Busy):
        raise _throttled_error(store, key, reply)
    if meta is None:
        # If the upload still succeeds later, it is the file that a retry would write.
        raise StoreUnreachable(f"{store.uri}/{key}: {cause}", hint="run the write again")
    if meta.size_bytes != size_bytes and count(store, key, meta.size_bytes) != rows:
        raise Conflict(
            f"{store.uri}/{key}: expected a file of {rows} rows, found another file of"
            f" {meta.size_bytes} bytes",
            hint="another write used the same instant; roll both back and write again",
        )
    return meta.size_bytes


def count_base_rows(store: ObjectStore, key: str, size_bytes: int) -> int:
    """Return the number of rows of a base file; -1 if it cannot be read."""
    try:
        with open_input(store, key, size_bytes) as source:
            return int(pq.read_metadata(source).num_rows)
    except (pa.ArrowInvalid, OSError, TidelockError):
        return -1


def count_log_entries(store: ObjectStore, key: str, size_bytes: int) -> int:
    """Return the number of rows and deletes of a log file; -1 if it cannot be read."""
    partition, _, name = key.rpartition("/")
    log = data_file(partition, name, size_bytes)
    assert isinstance(log, LogFile)
    try:
        return sum(_count_entries(block, key) for block in read_log(store, log))
    except TidelockError:
        return -1


def _count_entries(block: Block | CorruptBlock, where: str) -> int:
    if isinstance(block, CorruptBlock):
        raise DataCorrupt(f"{where}: the log file has a corrupt block")
    match block.type:
        case BlockType.PARQUET:
            rows = decode_parquet(block.content, columns=[RECORD_KEY], where=where)
            return int(rows.num_rows)
        case BlockType.DELETE:
            return len(decode_deletes(block.content, where=where))
        case _:
            return len(record_offsets(block.content, where=where)) - 1


def _create_object(store: ObjectStore, key: str, body: bytes) -> None:
    """Create a small object; an existing one is kept."""
    reply = store.put(key, body, Create())
    match reply:
        case Landed() | Refused():
            return
        case Busy():
            raise _throttled_error(store, key, reply)
        case Unclear(cause, volatile=True):
            raise _volatile_error(store, key, cause)
        case Unclear(cause):
            if store.head(key) is None:
                raise StoreUnreachable(f"{store.uri}/{key}: {cause}", hint="run the write again")
        case _:
            assert_never(reply)


def _volatile_error(store: ObjectStore, key: str, cause: str) -> StoreUnreachable:
    """Delete a file that may not survive a crash, so that no retry uses it; return the error."""
    store.delete(key)
    return StoreUnreachable(f"{store.uri}/{key}: {cause}", hint="check the disk, then write again")


def _throttled_error(store: ObjectStore, key: str, reply: Busy) -> Throttled:
    return Throttled(
        f"{store.uri}/{key}: {reply.cause}",
        hint="run the write again",
        retry_after_ms=reply.retry_after_ms,
    )


@dataclass(frozen=True, slots=True)
class WrittenBaseFile:
    """A base file that was written."""

    name: str
    rows: int
    size_bytes: int
    min_key: str | None
    max_key: str | None


KEYS_INLINE_MAX: Final = 512
"""The maximum number of inserted keys in a result; conflicts of larger files ignore keys."""


class FileKind(Enum):
    """The role of a written file in its file group."""

    CREATED = "created"  # the base file of a new group
    MERGED = "merged"  # a new base file of an existing group
    APPENDED = "appended"  # a log file


@dataclass(frozen=True, slots=True)
class FileResult:
    """A written file.

    `replaced_base` is the name of the previous base file. `min_key` and `max_key` bound the record
    keys in the file. `written_keys` are the inserted keys, None for more than `KEYS_INLINE_MAX`.
    `marker_type` is the IO type in its marker. `ignored` counts rows that lost to stored ones by
    their ordering value.
    """

    stat: WriteStat
    partition: str
    file_id: str
    kind: FileKind
    replaced_base: str | None = None
    min_key: str | None = None
    max_key: str | None = None
    written_keys: tuple[str, ...] | None = ()
    marker_type: IoType = IoType.CREATE
    ignored: int = 0


def created_stat(partition: str, file_id: str, written: WrittenBaseFile) -> WriteStat:
    """Return the write stat of a group's first base file."""
    return WriteStat(
        file_id=file_id,
        path=file_path(partition, written.name),
        prev_commit=NO_COMMIT,
        partition_path=partition,
        num_writes=written.rows,
        num_inserts=written.rows,
        total_write_bytes=written.size_bytes,
        file_size_in_bytes=written.size_bytes,
    )


def created_result(
    target: FileTarget, written: WrittenBaseFile, keys: tuple[str, ...] | None = ()
) -> FileResult:
    """Return the result of a group's first base file, with its inserted keys."""
    return FileResult(
        created_stat(target.partition, target.file_id, written),
        target.partition,
        target.file_id,
        FileKind.CREATED,
        min_key=written.min_key,
        max_key=written.max_key,
        written_keys=keys,
    )


def merged_stat(file_slice: FileSlice, written: WrittenBaseFile, counts: MergeCounts) -> WriteStat:
    """Return the write stat of a base file with merged changes."""
    stat = replace(
        created_stat(file_slice.partition, file_slice.file_id, written),
        num_inserts=counts.inserted,
        num_update_writes=counts.updated,
        num_deletes=counts.deleted,
    )
    return _with_previous_base(file_slice, stat)


def compacted_stat(
    file_slice: FileSlice, written: WrittenBaseFile, stored: StoredRows
) -> WriteStat:
    """Return the write stat of a compacted base file."""
    stat = replace(
        created_stat(file_slice.partition, file_slice.file_id, written),
        num_inserts=0,
        total_log_records=stored.log_records,
        total_log_blocks=stored.log_blocks,
        total_corrupt_log_block=stored.corrupt_blocks,
        total_updated_records_compacted=0 if stored.changes is None else len(stored.changes.keys),
        total_log_files_compacted=len(file_slice.logs),
        total_log_size_compacted=sum(log.size_bytes for log in file_slice.logs),
    )
    return _with_previous_base(file_slice, stat)


def appended_stat(
    partition: str,
    file_id: str,
    *,
    name: str,
    instant: str,
    size_bytes: int,
    counts: MergeCounts,
    base_file: str = "",
) -> WriteStat:
    """Return the write stat of a log file; like Hudi, with its own instant as previous commit.

    `base_file` is the base file in which the writer found the keys, "" if there is none.
    """
    return WriteStat(
        file_id=file_id,
        path=file_path(partition, name),
        prev_commit=instant,
        partition_path=partition,
        num_writes=counts.inserted + counts.updated,
        num_inserts=counts.inserted,
        num_update_writes=counts.updated,
        num_deletes=counts.deleted,
        total_write_bytes=size_bytes,
        file_size_in_bytes=size_bytes,
        log_version=1,
        log_offset=0,
        base_file=base_file,
        log_files=(name,),
    )


def file_path(partition: str, name: str) -> str:
    """Return a file's path, relative to the table's base path."""
    return f"{partition}/{name}" if partition else name


def _with_previous_base(file_slice: FileSlice, stat: WriteStat) -> WriteStat:
    if file_slice.base is None:
        return stat
    return replace(stat, prev_commit=file_slice.base.instant, prev_base_file=file_slice.base.name)
