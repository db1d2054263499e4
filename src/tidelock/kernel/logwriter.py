"""A log file: rows as one data block, then deletes as one delete block, each file a write's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.kernel.columns import constant
from tidelock.kernel.context import LogFormat, WriteContext
from tidelock.kernel.incoming import Tally
from tidelock.kernel.landing import announce, entries_in_log, settled
from tidelock.kernel.layers import deleted_rows
from tidelock.kernel.results import KEYS_INLINE_MAX, FileKind, FileResult
from tidelock.kernel.stats import appended_stat, path_of
from tidelock.store.contract import ObjectStore
from tidelock.table.logfile.block import Block
from tidelock.table.logfile.content import Delete
from tidelock.table.logfile.writer import avro_block, delete_block, log_bytes, parquet_block
from tidelock.table.markers import IoType
from tidelock.table.schema.meta import FILE_NAME, PARTITION_PATH, RECORD_KEY

BLOCK_ROWS_BYTES: Final = 128 * 1024 * 1024
"""Rows of this size in memory make a block, which is encoded, and read, as a whole."""


def write_log(
    store: ObjectStore,
    ctx: WriteContext,
    *,
    partition: str,
    file_id: str,
    slot: int,
    first: bool,
    rows: pa.Table | None,
    deletes: pa.Array | None,
    inserted: pa.Array | None,
    base_file: str = "",
) -> FileResult:
    """Write stamped rows and deletes as the log file of this task; `first` if the group has none.

    `base_file` is the name of the group's base file at the time, "" if there is none.

    Raises: what an upload raises.
    """
    name = ctx.log_name(file_id, slot)
    announce(store, ctx, partition, name, IoType.CREATE, first=first)
    entries = (0 if rows is None else rows.num_rows) + (0 if deletes is None else len(deletes))
    blocks = _blocks(ctx, partition, file_id, rows, deletes)
    size_bytes = land_blocks(store, path_of(partition, name), blocks, entries=entries)
    tally = _tally(ctx, rows, deletes, inserted)
    stat = appended_stat(
        partition,
        file_id,
        name=name,
        instant=ctx.instant,
        size_bytes=size_bytes,
        tally=tally,
        base_file=base_file,
    )
    low, high = _bounds(rows, deletes)
    keys = tally.inserted_keys
    return FileResult(
        stat,
        partition,
        file_id,
        FileKind.APPENDED,
        min_key=low,
        max_key=high,
        written_keys=tuple(keys.to_pylist()) if len(keys) <= KEYS_INLINE_MAX else None,
    )


def land_blocks(store: ObjectStore, key: str, blocks: Iterable[Block], *, entries: int) -> int:
    """Write blocks of so many rows and deletes as a log file, and return its size.

    Raises: what an upload raises.
    """
    size_bytes = 0
    with store.upload(key) as upload:
        for block in blocks:
            body = log_bytes([block])
            upload.write(body)
            size_bytes += len(body)
        reply = upload.finish()
    return settled(store, key, reply, size_bytes=size_bytes, rows=entries, count=entries_in_log)


def _blocks(
    ctx: WriteContext,
    partition: str,
    file_id: str,
    rows: pa.Table | None,
    deletes: pa.Array | None,
) -> Iterator[Block]:
    """Yield the blocks of the file; rows too large for one block become several."""
    if rows is not None and rows.num_rows:
        yield from data_blocks(ctx, partition, file_id, rows)
    if deletes is not None and len(deletes):
        gone = [Delete(deleted, partition) for deleted in deletes.to_pylist()]
        yield delete_block(gone, instant=ctx.instant, schema=ctx.log_schema)


def data_blocks(ctx: WriteContext, partition: str, file_id: str, rows: pa.Table) -> Iterator[Block]:
    """Yield rows as data blocks of a bounded size."""
    step = max(1, BLOCK_ROWS_BYTES * rows.num_rows // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        yield _data_block(ctx, _placed(rows.slice(start, step), partition, file_id))


def _data_block(ctx: WriteContext, rows: pa.Table) -> Block:
    make = avro_block if ctx.settings.log_format is LogFormat.AVRO else parquet_block
    return make(rows, instant=ctx.instant, schema=ctx.log_schema)


def _placed(rows: pa.Table, partition: str, file_id: str) -> pa.Table:
    """Return the rows with their partition, and the file id where base files have their name."""
    for name, value in ((PARTITION_PATH, partition), (FILE_NAME, file_id)):
        column = constant(value, rows.num_rows).cast(pa.string())
        place = rows.column_names.index(name)
        rows = rows.set_column(place, pa.field(name, pa.string()), column)
    return rows


def _tally(
    ctx: WriteContext,
    rows: pa.Table | None,
    deletes: pa.Array | None,
    inserted: pa.Array | None,
) -> Tally:
    tally = Tally(deleted=0 if deletes is None else len(deletes))
    if rows is None:
        return tally
    marked = pc.sum(deleted_rows(rows, ctx.rule)).as_py() or 0
    tally.deleted += marked
    if inserted is not None:
        tally.inserted_keys = inserted
        tally.inserted = len(inserted)
    tally.updated = rows.num_rows - marked - tally.inserted
    return tally


def _bounds(rows: pa.Table | None, deletes: pa.Array | None) -> tuple[str | None, str | None]:
    keys = [] if rows is None else [rows.column(RECORD_KEY)]
    keys += [] if deletes is None else [deletes]
    bounds = [pc.min_max(values).as_py() for values in keys if len(values)]
    low = min((found["min"] for found in bounds), default=None)
    high = max((found["max"] for found in bounds), default=None)
    return low, high
