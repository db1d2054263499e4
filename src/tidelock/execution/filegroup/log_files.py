"""Writing and compacting log files: data blocks followed by a delete block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.core.errors import Unsupported
from tidelock.execution.filegroup.base_file_writer import constant_column, stamp_rows
from tidelock.execution.filegroup.context import (
    KEYS_INLINE_MAX,
    FileKind,
    FileResult,
    LogFormat,
    WriteContext,
    appended_stat,
    count_log_entries,
    create_marker,
    file_path,
    resolve_upload,
)
from tidelock.execution.filegroup.log_layers import block_layer, read_blocks
from tidelock.execution.filegroup.merge import (
    Layer,
    MergeCounts,
    check_ordering,
    deleted_rows,
    winners,
)
from tidelock.hudi.file_groups import FileSlice, LogFile
from tidelock.hudi.log_blocks import (
    Block,
    CorruptBlock,
    DeleteRecord,
    Header,
    avro_block,
    blocks_to_merge,
    decode_deletes,
    delete_block,
    log_bytes,
    parquet_block,
    read_block_headers,
)
from tidelock.hudi.markers import IoType
from tidelock.hudi.properties import MergeMode
from tidelock.hudi.schema import FILE_NAME, PARTITION_PATH, RECORD_KEY
from tidelock.storage.contract import ObjectStore

BLOCK_ROWS_BYTES: Final = 128 * 1024 * 1024
"""The maximum size in memory of the rows of a block, which is encoded and read as a whole."""


def append_log(
    store: ObjectStore,
    ctx: WriteContext,
    group: FileSlice,
    *,
    slot: int,
    rows: pa.Table | None,
    deletes: pa.Array | None = None,
    inserted: pa.Array | None = None,
) -> FileResult:
    """Write rows, and then deletes in natural order, as a log file of a group.

    `inserted` are the keys of rows that are new in the group; the others are updates. Raises: as
    uploading, and `InvalidInput` for rows that do not match the schema.
    """
    partition, file_id = group.partition, group.file_id
    if rows is not None and rows.num_rows:
        rows = stamp_rows(rows, ctx, slot, ctx.schema, where=f"rows for {file_id}")
    else:
        rows = None
    name, is_new = ctx.log_name(file_id, slot), not (group.base or group.logs)
    create_marker(store, ctx, partition, name, IoType.CREATE, first=is_new)
    entries = (0 if rows is None else rows.num_rows) + (0 if deletes is None else len(deletes))
    blocks = _blocks(ctx, partition, file_id, rows, deletes)
    size_bytes = upload_blocks(store, file_path(partition, name), blocks, entries=entries)
    counts = _count_rows(ctx, rows, deletes, inserted)
    stat = appended_stat(
        partition,
        file_id,
        name=name,
        instant=ctx.instant,
        size_bytes=size_bytes,
        counts=counts,
        base_file=group.base.name if group.base else "",
    )
    low, high = _key_bounds(rows, deletes)
    keys = counts.inserted_keys
    return FileResult(
        stat,
        partition,
        file_id,
        FileKind.APPENDED,
        min_key=low,
        max_key=high,
        written_keys=tuple(keys.to_pylist()) if len(keys) <= KEYS_INLINE_MAX else None,
    )


def upload_blocks(store: ObjectStore, key: str, blocks: Iterable[Block], *, entries: int) -> int:
    """Upload blocks with this number of rows and deletes as a log file, and return its size.

    Raises: as `resolve_upload`.
    """
    size_bytes = 0
    with store.upload(key) as upload:
        for block in blocks:
            body = log_bytes([block])
            upload.write(body)
            size_bytes += len(body)
        reply = upload.finish()
    return resolve_upload(
        store, key, reply, size_bytes=size_bytes, rows=entries, count=count_log_entries
    )


def _blocks(
    ctx: WriteContext, partition: str, file_id: str, rows: pa.Table | None, deletes: pa.Array | None
) -> Iterator[Block]:
    """Yield the blocks of the file; several data blocks if there are too many rows for one."""
    if rows is not None and rows.num_rows:
        yield from data_blocks(ctx, partition, file_id, rows)
    if deletes is not None and len(deletes):
        records = [DeleteRecord(deleted, partition) for deleted in deletes.to_pylist()]
        yield delete_block(records, instant=ctx.instant, schema=ctx.log_schema)


def data_blocks(ctx: WriteContext, partition: str, file_id: str, rows: pa.Table) -> Iterator[Block]:
    """Yield rows as data blocks of bounded size."""
    step = max(1, BLOCK_ROWS_BYTES * rows.num_rows // max(1, rows.nbytes))
    make = avro_block if ctx.settings.log_format is LogFormat.AVRO else parquet_block
    for start in range(0, rows.num_rows, step):
        part = _with_location(rows.slice(start, step), partition, file_id)
        yield make(part, instant=ctx.instant, schema=ctx.log_schema)


def _with_location(rows: pa.Table, partition: str, file_id: str) -> pa.Table:
    """Return the rows with their partition, and with the file id as file name, as in Hudi."""
    for name, value in ((PARTITION_PATH, partition), (FILE_NAME, file_id)):
        column = constant_column(value, rows.num_rows).cast(pa.string())
        index = rows.column_names.index(name)
        rows = rows.set_column(index, pa.field(name, pa.string()), column)
    return rows


def _count_rows(
    ctx: WriteContext, rows: pa.Table | None, deletes: pa.Array | None, inserted: pa.Array | None
) -> MergeCounts:
    counts = MergeCounts(deleted=0 if deletes is None else len(deletes))
    if rows is None:
        return counts
    marked = pc.sum(deleted_rows(rows, ctx.rule)).as_py() or 0
    counts.deleted += marked
    if inserted is not None:
        counts.inserted_keys = inserted
        counts.inserted = len(inserted)
    counts.updated = rows.num_rows - marked - counts.inserted
    return counts


def _key_bounds(rows: pa.Table | None, deletes: pa.Array | None) -> tuple[str | None, str | None]:
    keys = [] if rows is None else [rows.column(RECORD_KEY)]
    keys += [] if deletes is None else [deletes]
    bounds = [pc.min_max(values).as_py() for values in keys if len(values)]
    low = min((found["min"] for found in bounds), default=None)
    high = max((found["max"] for found in bounds), default=None)
    return low, high


@dataclass(frozen=True, slots=True)
class CompactedLog:
    """One entry for each key that log files changed.

    `preceding_deletes` are keys whose rows win over all older versions, because a delete precedes
    them. `rows` may be deletes themselves, if marked by a column.
    """

    preceding_deletes: list[DeleteRecord]
    rows: pa.Table
    deletes: list[DeleteRecord]

    @property
    def entries(self) -> int:
        """The number of rows and deletes to write."""
        return len(self.preceding_deletes) + int(self.rows.num_rows) + len(self.deletes)


def count_merged_blocks(store: ObjectStore, logs: Sequence[LogFile]) -> int:
    """Return how many blocks a reader of these log files merges, without reading their content.

    Raises: `NotFound`, `DataCorrupt`, `Unsupported`.
    """
    heads = [head for log in logs for head in read_block_headers(store, log)]
    return len(blocks_to_merge(heads, as_of=None, where=store.uri))


def compact_logs(
    store: ObjectStore, ctx: WriteContext, file_slice: FileSlice, *, slot: int
) -> FileResult:
    """Write the changes in a slice's log files as one additional log file.

    Every row keeps its commit. Raises: as reading and uploading, and `Unsupported` for changes that
    require the base rows.
    """
    corrupt: list[CorruptBlock] = []
    blocks = read_blocks(store, file_slice.logs, on_corrupt=corrupt.append)
    found = compact_blocks(blocks, ctx, where=f"{store.uri}/{file_slice.logs[0].key}")
    name = ctx.log_name(file_slice.file_id, slot)
    create_marker(store, ctx, file_slice.partition, name, IoType.CREATE, first=False)
    instants = ",".join(dict.fromkeys(block.instant for block in blocks))
    written = (
        replace(block, headers={**block.headers, int(Header.COMPACTED_BLOCK_TIMES): instants})
        for block in _compacted_blocks(found, ctx, file_slice)
    )
    size_bytes = upload_blocks(
        store, file_path(file_slice.partition, name), written, entries=found.entries
    )
    stat = appended_stat(
        file_slice.partition,
        file_slice.file_id,
        name=name,
        instant=ctx.instant,
        size_bytes=size_bytes,
        counts=MergeCounts(updated=found.rows.num_rows, deleted=len(found.deletes)),
    )
    stat = replace(
        stat,
        total_log_blocks=len(blocks),
        total_log_files_compacted=len(file_slice.logs),
        total_log_size_compacted=sum(log.size_bytes for log in file_slice.logs),
        total_corrupt_log_block=len(corrupt),
    )
    return FileResult(stat, file_slice.partition, file_slice.file_id, FileKind.APPENDED)


def compact_blocks(blocks: Sequence[Block], ctx: WriteContext, *, where: str) -> CompactedLog:
    """Fold blocks to one entry per key. Raises: `Unsupported`, `DataCorrupt`, `InvalidInput`."""
    rule, schema = ctx.rule, ctx.schema
    if rule.mode is MergeMode.CUSTOM:
        raise Unsupported(
            f"{where}: logs of a table with a custom merge class cannot be compacted",
            hint="compact the table instead",
        )
    check_ordering(rule, schema)
    layers = [block_layer(block, schema, rule, where) for block in blocks]
    at, final = winners(layers)
    preceding_deletes: list[DeleteRecord] = []
    rows: list[pa.Table] = [schema.empty_table()]
    deletes: list[DeleteRecord] = []
    for block, layer, positions, finals in _winners_by_layer(blocks, layers, at, final):
        if layer.rows is None:
            records = decode_deletes(block.content, where=where)
            deletes += [records[position] for position in positions.to_pylist()]
            continue
        rows_of_layer = layer.rows.take(positions)
        _check_delete_columns(rows_of_layer, layer.deleted.take(positions), ctx, where)
        rows.append(rows_of_layer)
        if rule.ordered_by:
            preceding_deletes += [
                DeleteRecord(key, "")
                for key in layer.keys.take(positions).filter(finals).to_pylist()
            ]
    return CompactedLog(preceding_deletes, pa.concat_tables(rows), deletes)


def _winners_by_layer(
    blocks: Sequence[Block], layers: Sequence[Layer], at: pa.Array, final: pa.Array
) -> Iterator[tuple[Block, Layer, pa.Array, pa.Array]]:
    """Yield each layer that has winners, with their positions, and which of them are final."""
    order = pc.sort_indices(at)
    positions = at.take(order).to_numpy(zero_copy_only=False)
    finals = final.take(order)
    start = 0
    for block, layer in zip(blocks, layers, strict=True):
        low, high = np.searchsorted(positions, [start, start + len(layer.keys)])
        if low < high:
            layer_positions = pa.array(positions[low:high] - start)
            yield block, layer, layer_positions, finals.slice(int(low), int(high - low))
        start += len(layer.keys)


def _check_delete_columns(rows: pa.Table, deleted: pa.Array, ctx: WriteContext, where: str) -> None:
    """Check that rows which are deletes are still marked when they are written."""
    if not deleted_rows(rows, ctx.rule).equals(deleted):
        raise Unsupported(
            f"{where}: rows are marked as deletes by a column that the table does not have",
            hint="compact the table instead",
        )


def _compacted_blocks(
    found: CompactedLog, ctx: WriteContext, file_slice: FileSlice
) -> Iterator[Block]:
    """Yield deletes that precede rows, the rows, and the remaining deletes, in this order."""
    if found.preceding_deletes:
        yield _delete_block(found.preceding_deletes, ctx, file_slice)
    if found.rows.num_rows:
        yield from data_blocks(ctx, file_slice.partition, file_slice.file_id, found.rows)
    if found.deletes or not found.entries:
        yield _delete_block(found.deletes, ctx, file_slice)


def _delete_block(
    deletes: Sequence[DeleteRecord], ctx: WriteContext, file_slice: FileSlice
) -> Block:
    records = [replace(each, partition=file_slice.partition) for each in deletes]
    return delete_block(records, instant=ctx.instant, schema=ctx.log_schema)
