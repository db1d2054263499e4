"""What the log files of a slice amount to, as one log file: a log compaction.

Its blocks say whose place they take. A reader that knows this skips the others; one that does not
merges them too and comes to the same rows, since nothing changes when it is applied once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.errors import Unsupported
from tidelock.kernel.context import WriteContext
from tidelock.kernel.incoming import Tally
from tidelock.kernel.landing import announce
from tidelock.kernel.layers import check_ordering, deleted_rows, layer_of, read_blocks
from tidelock.kernel.logwriter import data_blocks, land_blocks
from tidelock.kernel.merge import Layer, winners
from tidelock.kernel.results import FileKind, FileResult
from tidelock.kernel.stats import appended_stat, path_of
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice, LogFile
from tidelock.table.logfile.block import Block, Header
from tidelock.table.logfile.content import Delete, decode_deletes
from tidelock.table.logfile.heads import read_heads
from tidelock.table.logfile.reader import CorruptBlock
from tidelock.table.logfile.selection import counting
from tidelock.table.logfile.writer import delete_block
from tidelock.table.markers import IoType
from tidelock.table.properties import MergeMode


@dataclass(frozen=True, slots=True)
class Condensed:
    """One entry for each key that log files changed.

    `wiped` are keys whose rows nothing older can beat, because a delete came before them. `rows`
    may be deletes themselves, where a column of theirs says so.
    """

    wiped: list[Delete]
    rows: pa.Table
    deletes: list[Delete]

    @property
    def entries(self) -> int:
        """How many rows and deletes are written."""
        return len(self.wiped) + int(self.rows.num_rows) + len(self.deletes)


def blocks_that_count(store: ObjectStore, logs: Sequence[LogFile]) -> int:
    """Return how many blocks a reader of these log files merges; their content is not fetched.

    Raises: `NotFound`, `DataCorrupt`, `Unsupported`.
    """
    heads = [head for log in logs for head in read_heads(store, log)]
    return len(counting(heads, as_of=None, where=store.uri))


def condense_logs(
    store: ObjectStore, ctx: WriteContext, piece: FileSlice, *, slot: int
) -> FileResult:
    """Write the changes that a slice's log files hold as one log file more.

    Every row keeps the commit that wrote it.

    Raises: what reading and uploading raise, `Unsupported` for changes that cannot be told without
    the rows below them.
    """
    corrupt: list[CorruptBlock] = []
    blocks = read_blocks(store, piece.logs, on_corrupt=corrupt.append)
    found = condensed(blocks, ctx, where=f"{store.uri}/{piece.logs[0].key}")
    name = ctx.log_name(piece.file_id, slot)
    announce(store, ctx, piece.partition, name, IoType.CREATE, first=False)
    instants = ",".join(dict.fromkeys(block.instant for block in blocks))
    written = (
        replace(block, headers={**block.headers, int(Header.COMPACTED_BLOCK_TIMES): instants})
        for block in _blocks(found, ctx, piece)
    )
    size_bytes = land_blocks(store, path_of(piece.partition, name), written, entries=found.entries)
    stat = appended_stat(
        piece.partition,
        piece.file_id,
        name=name,
        instant=ctx.instant,
        size_bytes=size_bytes,
        tally=Tally(updated=found.rows.num_rows, deleted=len(found.deletes)),
    )
    stat = replace(
        stat,
        total_log_blocks=len(blocks),
        total_log_files_compacted=len(piece.logs),
        total_log_size_compacted=sum(log.size_bytes for log in piece.logs),
        total_corrupt_log_block=len(corrupt),
    )
    return FileResult(stat, piece.partition, piece.file_id, FileKind.APPENDED)


def condensed(blocks: Sequence[Block], ctx: WriteContext, *, where: str) -> Condensed:
    """Return what blocks amount to. Raises: `Unsupported`, `DataCorrupt`, `InvalidInput`."""
    rule, schema = ctx.rule, ctx.schema
    if rule.mode is MergeMode.CUSTOM:
        raise Unsupported(
            f"{where}: the table merges by a class of its own, which must see every row",
            hint="compact the table instead",
        )
    check_ordering(rule, schema)
    layers = [layer_of(block, schema, rule, where) for block in blocks]
    at, final = winners(layers)
    wiped: list[Delete] = []
    rows: list[pa.Table] = [schema.empty_table()]
    deletes: list[Delete] = []
    for block, layer, places, finals in _by_layer(blocks, layers, at, final):
        if layer.rows is None:
            every = decode_deletes(block.content, where=where)
            deletes += [every[place] for place in places.to_pylist()]
            continue
        mine = layer.rows.take(places)
        _check_deletes(mine, layer.deleted.take(places), ctx, where)
        rows.append(mine)
        if rule.ordered_by:
            wiped += [Delete(key, "") for key in layer.keys.take(places).filter(finals).to_pylist()]
    return Condensed(wiped, pa.concat_tables(rows), deletes)


def _by_layer(
    blocks: Sequence[Block], layers: Sequence[Layer], at: pa.Array, final: pa.Array
) -> Iterator[tuple[Block, Layer, pa.Array, pa.Array]]:
    """Yield each layer that has winners, with their places in it and which of them are final."""
    order = pc.sort_indices(at)
    places = at.take(order).to_numpy(zero_copy_only=False)
    finals = final.take(order)
    start = 0
    for block, layer in zip(blocks, layers, strict=True):
        low, high = np.searchsorted(places, [start, start + len(layer.keys)])
        if low < high:
            mine = pa.array(places[low:high] - start)
            yield block, layer, mine, finals.slice(int(low), int(high - low))
        start += len(layer.keys)


def _check_deletes(rows: pa.Table, deleted: pa.Array, ctx: WriteContext, where: str) -> None:
    """Make sure that rows which are deletes still say so when they are written."""
    if not deleted_rows(rows, ctx.rule).equals(deleted):
        raise Unsupported(
            f"{where}: rows are deletes by a column that the table does not have",
            hint="compact the table instead",
        )


def _blocks(found: Condensed, ctx: WriteContext, piece: FileSlice) -> Iterator[Block]:
    """Yield deletes that rows follow, the rows, and the deletes that remain, in this order."""
    if found.wiped:
        yield _deletes(found.wiped, ctx, piece)
    if found.rows.num_rows:
        yield from data_blocks(ctx, piece.partition, piece.file_id, found.rows)
    if found.deletes or not found.entries:
        yield _deletes(found.deletes, ctx, piece)


def _deletes(deletes: Sequence[Delete], ctx: WriteContext, piece: FileSlice) -> Block:
    placed = [replace(each, partition=piece.partition) for each in deletes]
    return delete_block(placed, instant=ctx.instant, schema=ctx.log_schema)
