"""Bringing a data file to its place: partition first, then the marker, then the file itself.

The names of data files are deterministic. A file that is there already under the name of ours was
made by a twin of this task, from the same rows, and stands: twins may both be asked for it, and
whoever comes second takes it as its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.base.errors import (
    Conflict,
    DataCorrupt,
    StoreUnreachable,
    Throttled,
    TidelockError,
)
from tidelock.base.outcome import Landed
from tidelock.kernel.context import WriteContext
from tidelock.kernel.objectfile import opened_input
from tidelock.store.contract import Busy, Create, ObjectStore, PutReply, Refused, Unclear
from tidelock.table.filegroup.slice import LogFile
from tidelock.table.logfile.block import Block, BlockType
from tidelock.table.logfile.content import decode_deletes, decode_parquet, record_places
from tidelock.table.logfile.reader import CorruptBlock, read_log
from tidelock.table.markers import IoType, Marker
from tidelock.table.naming import data_file
from tidelock.table.partition import encode, metadata_for, metadata_key
from tidelock.table.schema.meta import RECORD_KEY


def announce(
    store: ObjectStore,
    ctx: WriteContext,
    partition: str,
    name: str,
    io_type: IoType,
    *,
    first: bool,
) -> None:
    """Say which file will be made, in a partition that Java sees.

    `first` is for a file group without files: its partition may have none either.
    """
    key = metadata_key(partition)
    if first and partition not in ctx.settled and store.head(key) is None:
        # Refused means that another writer made the partition at the same moment.
        _put(store, key, encode(metadata_for(partition, ctx.instant)))
    if ctx.markers:
        _put(store, Marker(partition, name, io_type).key(ctx.instant), b"")


def settled(
    store: ObjectStore,
    key: str,
    reply: PutReply,
    *,
    size_bytes: int,
    rows: int,
    count: Callable[[ObjectStore, str, int], int],
) -> int:
    """Return the size of the data file at `key` after `reply` to the upload of ours.

    A twin may have got its rows in another order, which changes a file's size but not how many
    rows it has; `count` looks, and is negative for a file that cannot be read.

    Raises: `StoreUnreachable` or `Throttled` when the file is not there, and the same task may be
    run again; `Conflict` when a file of other rows has the name.
    """
    match reply:
        case Landed():
            return size_bytes
        case Refused():
            cause = "the store says that the file exists, and does not have it"
        case Unclear(cause, volatile=True):
            raise _perhaps_not_durable(store, key, cause)
        case Unclear(cause) | Busy(_, cause):
            pass
        case _:
            assert_never(reply)
    meta = store.head(key)
    if meta is None and isinstance(reply, Busy):
        raise _throttled(store, key, reply)
    if meta is None:
        # Should the upload still land, it is the file that the next attempt would make.
        raise StoreUnreachable(f"{store.uri}/{key}: {cause}", hint="run the write again")
    if meta.size_bytes != size_bytes and count(store, key, meta.size_bytes) != rows:
        raise Conflict(
            f"{store.uri}/{key} exists with {meta.size_bytes} bytes, and is not the file of"
            f" {rows} rows that this write makes",
            hint="another write used its instant; roll both back and write again",
        )
    return meta.size_bytes


def rows_in_base(store: ObjectStore, key: str, size_bytes: int) -> int:
    """Return how many rows a base file has; -1 for anything else."""
    try:
        with opened_input(store, key, size_bytes) as source:
            return int(pq.read_metadata(source).num_rows)
    except (pa.ArrowInvalid, OSError, TidelockError):
        return -1


def entries_in_log(store: ObjectStore, key: str, size_bytes: int) -> int:
    """Return how many rows and deletes a log file has; -1 for anything else."""
    partition, _, name = key.rpartition("/")
    log = data_file(partition, name, size_bytes)
    assert isinstance(log, LogFile)
    try:
        return sum(_entries(block, key) for block in read_log(store, log))
    except TidelockError:
        return -1


def _entries(block: Block | CorruptBlock, where: str) -> int:
    if isinstance(block, CorruptBlock):
        raise DataCorrupt(f"{where}: the log file is torn")
    match block.type:
        case BlockType.PARQUET:
            rows = decode_parquet(block.content, columns=[RECORD_KEY], where=where)
            return int(rows.num_rows)
        case BlockType.DELETE:
            return len(decode_deletes(block.content, where=where))
        case _:
            return len(record_places(block.content, where=where)) - 1


def _put(store: ObjectStore, key: str, body: bytes) -> None:
    """Create a small object; one that is there already is as good."""
    reply = store.put(key, body, Create())
    match reply:
        case Landed() | Refused():
            return
        case Busy():
            raise _throttled(store, key, reply)
        case Unclear(cause, volatile=True):
            raise _perhaps_not_durable(store, key, cause)
        case Unclear(cause):
            if store.head(key) is None:
                raise StoreUnreachable(f"{store.uri}/{key}: {cause}", hint="run the write again")
        case _:
            assert_never(reply)


def _perhaps_not_durable(store: ObjectStore, key: str, cause: str) -> StoreUnreachable:
    """Remove a file that a crash may take away, lest a twin takes it; return the error."""
    store.delete(key)
    return StoreUnreachable(
        f"{store.uri}/{key}: {cause}", hint="look after the disk, then write again"
    )


def _throttled(store: ObjectStore, key: str, reply: Busy) -> Throttled:
    return Throttled(
        f"{store.uri}/{key}: {reply.cause}",
        hint="run the write again",
        retry_after_ms=reply.retry_after_ms,
    )
