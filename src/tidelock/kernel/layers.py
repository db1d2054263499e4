"""From the log blocks of a slice to the layers that are merged: rows, keys, deletes, ordering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.base.errors import DataCorrupt, InvalidInput, Unsupported
from tidelock.kernel.merge import Layer, MergeRule, comparable
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import LogFile
from tidelock.table.logfile.block import Block, BlockType, Header
from tidelock.table.logfile.content import (
    NATURAL,
    RECORD_HEAD_BYTES,
    RECORDS_HEAD_BYTES,
    Delete,
    Ordering,
    decode_deletes,
    decode_parquet,
    decode_records,
    record_places,
)
from tidelock.table.logfile.reader import CorruptBlock, read_log
from tidelock.table.logfile.selection import counting
from tidelock.table.properties import MergeMode
from tidelock.table.schema.avro import parse_schema
from tidelock.table.schema.decoding import can_decode, decode_columns
from tidelock.table.schema.evolution import conformed
from tidelock.table.schema.meta import IS_DELETED, OPERATION, RECORD_KEY
from tidelock.table.schema.rows import decode_rows

_CDC = ".cdc"


def read_layers(
    store: ObjectStore,
    logs: Sequence[LogFile],
    schema: pa.Schema,
    rule: MergeRule,
    *,
    as_of: str | None = None,
    on_corrupt: Callable[[CorruptBlock], None] | None = None,
) -> list[Layer]:
    """Return what the log files changed, oldest first; rows have the columns of `schema`.

    Raises: `NotFound`, `DataCorrupt`, `Unsupported`, `InvalidInput`.
    """
    where = f"{store.uri}/{logs[0].key}" if logs else store.uri
    chosen = read_blocks(store, logs, as_of=as_of, on_corrupt=on_corrupt)
    layers = []
    for _, run in groupby(chosen, key=lambda block: _joined_by(block, rule)):
        blocks = list(run)
        joined = _layer_of_all(blocks, schema, rule, where) if len(blocks) > 1 else None
        if joined is not None:
            layers.append(joined)
            continue
        layers += [
            layer_of(block, schema, rule, f"{where} (block of {block.instant})") for block in blocks
        ]
    return layers


def _joined_by(block: Block, rule: MergeRule) -> object:
    """Return what neighbouring blocks must share to be decoded as one; a block's own self if none.

    Reading a field costs about as much for ten records as for a thousand. Which of two entries
    wins depends on their order alone, except to a merge of the user's own.
    """
    partial = block.headers.get(Header.IS_PARTIAL, "false").lower() == "true"
    if block.type != BlockType.AVRO or partial or rule.mode is MergeMode.CUSTOM:
        return id(block)
    return block.headers.get(Header.SCHEMA, id(block))


def _layer_of_all(
    blocks: Sequence[Block], schema: pa.Schema, rule: MergeRule, where: str
) -> Layer | None:
    """Return what blocks of one schema changed; None where one of them has to be named."""
    try:
        first = blocks[0]
        parts, places, size = [memoryview(first.content)], [], len(first.content)
        places += record_places(first.content, where=where)
        for block in blocks[1:]:
            mine = record_places(block.content, where=where)
            # The place after the last record is that of the next block's first one.
            places += [place + size - RECORDS_HEAD_BYTES for place in mine[1:]]
            parts.append(memoryview(block.content)[RECORDS_HEAD_BYTES:])
            size += len(block.content) - RECORDS_HEAD_BYTES
        whole = replace(first, content=b"".join(parts))
        return _row_layer_of(whole, schema, rule, where, places)
    except DataCorrupt:
        return None


def read_blocks(
    store: ObjectStore,
    logs: Sequence[LogFile],
    *,
    as_of: str | None = None,
    on_corrupt: Callable[[CorruptBlock], None] | None = None,
) -> list[Block]:
    """Return the blocks of log files that count, oldest first.

    Raises: `NotFound`, `DataCorrupt`, `Unsupported`.
    """
    blocks: list[Block] = []
    for log in logs:
        if log.suffix == _CDC:
            continue
        for block in read_log(store, log):
            if isinstance(block, Block):
                blocks.append(block)
            elif on_corrupt is not None:
                on_corrupt(block)
    where = f"{store.uri}/{logs[0].key}" if logs else store.uri
    return counting(blocks, as_of=as_of, where=where)


def layer_of(block: Block, schema: pa.Schema, rule: MergeRule, where: str) -> Layer:
    """Return what a block changed. Raises: `DataCorrupt`, `Unsupported`, `InvalidInput`."""
    if block.headers.get(Header.IS_PARTIAL, "false").lower() == "true":
        raise Unsupported(
            f"{where}: the block holds partial updates, which are not merged",
            hint="compact the table with the writer that made them, then read it",
        )
    if block.type == BlockType.DELETE:
        return _deletes(decode_deletes(block.content, where=where), schema, rule, where)
    return _row_layer_of(block, schema, rule, where)


def _row_layer_of(
    block: Block,
    schema: pa.Schema,
    rule: MergeRule,
    where: str,
    places: Sequence[int] | None = None,
) -> Layer:
    marks = [IS_DELETED, OPERATION, *([rule.delete_field] if rule.delete_field else [])]
    columns = list(dict.fromkeys([*schema.names, *marks]))
    return row_layer(_table_of(block, columns, where, places), schema, rule, where)


def _table_of(
    block: Block, columns: Sequence[str], where: str, places: Sequence[int] | None = None
) -> pa.Table:
    if block.type == BlockType.PARQUET:
        return decode_parquet(block.content, columns=columns, where=where)
    text = block.headers.get(Header.SCHEMA)
    if text is None:
        raise DataCorrupt(f"{where}: the Avro block carries no schema")
    schema = parse_schema(text, where=where)
    if not can_decode(schema):
        return decode_rows(decode_records(block.content, where=where), schema, where=where)
    return decode_columns(
        block.content,
        record_places(block.content, where=where) if places is None else places,
        schema,
        gap_bytes=RECORD_HEAD_BYTES,
        columns=columns,
        where=where,
    )


def row_layer(found: pa.Table, schema: pa.Schema, rule: MergeRule, where: str) -> Layer:
    """Return rows as a layer: those of a data block, or those of a batch that is written."""
    keys = _keys(found, where)
    deleted = deleted_rows(found, rule)
    rows = conformed(found, schema, where=where)
    ordering = [comparable(rows.column(name)) for name in rule.ordered_by]
    natural = deleted
    for column in ordering:
        natural = pc.and_(natural, _is_default(column))
    if rule.ordered_by:
        # A delete in natural order must not be compared, so it takes its ordering values away.
        ordering = [
            pc.if_else(natural, pa.scalar(None, column.type), column) for column in ordering
        ]
    return Layer(keys, rows, deleted, natural, tuple(ordering))


def _keys(found: pa.Table, where: str) -> pa.Array:
    if RECORD_KEY not in found.column_names:
        raise Unsupported(f"{where}: the rows carry no {RECORD_KEY}, so they cannot be merged")
    keys = found.column(RECORD_KEY).cast(pa.string()).combine_chunks()
    if len(keys) and keys.null_count == len(keys):
        raise Unsupported(
            f"{where}: no row has a {RECORD_KEY}, so they cannot be merged",
            hint="log files of tables with hoodie.populate.meta.fields=false are not read",
        )
    if keys.null_count:
        raise DataCorrupt(f"{where}: {keys.null_count} rows have no {RECORD_KEY}")
    return keys


def deleted_rows(found: pa.Table, rule: MergeRule) -> pa.Array:
    """Mark the rows that are deletes, by any of the three ways in which a row can say so."""
    marks = []
    if IS_DELETED in found.column_names and pt.is_boolean(found.schema.field(IS_DELETED).type):
        marks.append(found.column(IS_DELETED))
    if OPERATION in found.column_names:
        marks.append(pc.equal(found.column(OPERATION), "D"))
    if rule.delete_field is not None and rule.delete_field in found.column_names:
        column = found.column(rule.delete_field)
        marks.append(pc.equal(column.cast(pa.string()), rule.delete_marker))
    deleted = pa.repeat(pa.scalar(value=False), found.num_rows)
    for mark in marks:
        whole = mark.combine_chunks()
        deleted = pc.or_(deleted, pc.fill_null(whole, fill_value=False))
    return deleted


def _is_default(column: pa.Array) -> pa.Array:
    """Mark Hudi's default ordering value: no value, or the Java integer 0 (not the long)."""
    if column.type == pa.int32():
        return pc.fill_null(pc.equal(column, 0), fill_value=True)
    return column.is_null()


def _deletes(deletes: Sequence[Delete], schema: pa.Schema, rule: MergeRule, where: str) -> Layer:
    keys = pa.array([delete.key for delete in deletes], pa.string())
    if keys.null_count:
        raise DataCorrupt(f"{where}: {keys.null_count} deletes have no key")
    everywhere = pa.repeat(pa.scalar(value=True), len(deletes))
    if not rule.ordered_by:
        return Layer(keys, None, everywhere, everywhere)
    values = [None if delete.ordering == NATURAL else delete.ordering for delete in deletes]
    natural = pa.array([value is None for value in values], pa.bool_())
    several = len(rule.ordered_by) > 1
    ordering = [
        _ordering([_part(value, i) if several else value for value in values], field, where)
        for i, field in enumerate(schema.field(name) for name in rule.ordered_by)
    ]
    return Layer(keys, None, everywhere, natural, tuple(ordering))


def deletes_layer(keys: pa.Array, schema: pa.Schema, rule: MergeRule) -> Layer:
    """Return deletes in natural order: they beat whatever was there before."""
    everywhere = pa.repeat(pa.scalar(value=True), len(keys))
    ordering = [comparable(pa.nulls(len(keys), schema.field(n).type)) for n in rule.ordered_by]
    return Layer(keys, None, everywhere, everywhere, tuple(ordering))


def _part(value: Ordering | None, number: int) -> Ordering | None:
    """Return one of several ordering values, which an array wrapper holds together."""
    if value is None or value.wrapper != "Array" or not isinstance(value.value, tuple):
        return value
    part: Ordering | None = value.value[number]
    return part


def _ordering(values: Sequence[Ordering | None], field: pa.Field, where: str) -> pa.Array:
    """Return the ordering values of deletes as the type of the ordering column."""
    kind, plain = field.type, [None if value is None else value.value for value in values]
    try:
        if all(value is None for value in plain):
            return comparable(pa.nulls(len(plain), kind))
        return comparable(_typed(plain, kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise DataCorrupt(
            f"{where}: a delete's ordering value does not fit {field.name}, a {kind}: {error}",
            hint="the writer used the wrong type; write the delete again with the column's",
        ) from error


def _typed(plain: list[Any], kind: pa.DataType) -> pa.Array:
    if pt.is_date32(kind):
        return pa.array(plain, pa.int32()).view(kind)
    if pt.is_timestamp(kind):
        return pa.array(plain, pa.int64()).view(pa.timestamp("us", kind.tz)).cast(kind)
    if pt.is_time(kind):
        return pa.array(plain, pa.int64()).view(pa.time64("us")).cast(kind)
    if pt.is_decimal(kind):
        unit = Decimal(1).scaleb(-kind.scale)
        scaled = [None if value is None else Decimal(value).quantize(unit) for value in plain]
        return pa.array(scaled, kind)
    return pa.array(plain, kind)


def check_ordering(rule: MergeRule, schema: pa.Schema) -> None:
    """Raise `InvalidInput` when the table is ordered by a column that it does not have."""
    for name in rule.ordered_by:
        if name not in schema.names:
            raise InvalidInput(
                f"the ordering field {name!r} is not a column of the table",
                hint=f"the columns are {', '.join(schema.names)}",
            )
