"""Reading the log files of a slice as layers to merge: rows, keys, deletes, ordering values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from tidelock.core.errors import DataCorrupt, Unsupported
from tidelock.execution.filegroup.merge import Layer, MergeRule, comparable_values, row_layer
from tidelock.hudi.avro_records import can_decode, decode_columns, decode_rows
from tidelock.hudi.file_groups import CDC_SUFFIX, LogFile
from tidelock.hudi.log_blocks import (
    NATURAL,
    RECORD_HEAD_BYTES,
    RECORDS_HEAD_BYTES,
    Block,
    BlockType,
    CorruptBlock,
    DeleteRecord,
    Header,
    Ordering,
    blocks_to_merge,
    decode_deletes,
    decode_parquet,
    decode_records,
    read_log,
    record_offsets,
)
from tidelock.hudi.properties import MergeMode
from tidelock.hudi.schema import IS_DELETED, OPERATION, parse_schema
from tidelock.storage.contract import ObjectStore


def read_layers(
    store: ObjectStore,
    logs: Sequence[LogFile],
    schema: pa.Schema,
    rule: MergeRule,
    *,
    as_of: str | None = None,
    on_corrupt: Callable[[CorruptBlock], None] | None = None,
) -> list[Layer]:
    """Return the changes of log files, oldest first; rows have the columns of `schema`.

    Raises: `NotFound`, `DataCorrupt`, `Unsupported`, `InvalidInput`.
    """
    where = f"{store.uri}/{logs[0].key}" if logs else store.uri
    chosen = read_blocks(store, logs, as_of=as_of, on_corrupt=on_corrupt)
    layers = []
    for _, run in groupby(chosen, key=lambda block: _join_key(block, rule)):
        blocks = list(run)
        joined = _joined_layer(blocks, schema, rule, where) if len(blocks) > 1 else None
        if joined is not None:
            layers.append(joined)
            continue
        layers += [
            block_layer(block, schema, rule, f"{where} (block of {block.instant})")
            for block in blocks
        ]
    return layers


def _join_key(block: Block, rule: MergeRule) -> object:
    """Return the key by which consecutive blocks are decoded together; unique if they are not.

    Decoding a field costs about the same for ten records as for a thousand. Which entry wins
    depends only on their order, except for a user-defined merge.
    """
    if block.type != BlockType.AVRO or _is_partial(block) or rule.mode is MergeMode.CUSTOM:
        return id(block)
    return block.headers.get(Header.SCHEMA, id(block))


def _is_partial(block: Block) -> bool:
    return block.headers.get(Header.IS_PARTIAL, "false").lower() == "true"


def _joined_layer(
    blocks: Sequence[Block], schema: pa.Schema, rule: MergeRule, where: str
) -> Layer | None:
    """Return the layer of blocks with one schema; None if the corrupt one must be identified."""
    try:
        first = blocks[0]
        parts, offsets, size = [memoryview(first.content)], [], len(first.content)
        offsets += record_offsets(first.content, where=where)
        for block in blocks[1:]:
            block_offsets = record_offsets(block.content, where=where)
            # The offset after the last record is that of the next block's first record.
            offsets += [offset + size - RECORDS_HEAD_BYTES for offset in block_offsets[1:]]
            parts.append(memoryview(block.content)[RECORDS_HEAD_BYTES:])
            size += len(block.content) - RECORDS_HEAD_BYTES
        joined_block = replace(first, content=b"".join(parts))
        return _data_block_layer(joined_block, schema, rule, where, offsets)
    except DataCorrupt:
        return None


def read_blocks(
    store: ObjectStore,
    logs: Sequence[LogFile],
    *,
    as_of: str | None = None,
    on_corrupt: Callable[[CorruptBlock], None] | None = None,
) -> list[Block]:
    """Return the blocks of log files to merge, oldest first.

    Raises: `NotFound`, `DataCorrupt`, `Unsupported`.
    """
    blocks: list[Block] = []
    for log in logs:
        if log.suffix == CDC_SUFFIX:
            continue
        for block in read_log(store, log):
            if isinstance(block, Block):
                blocks.append(block)
            elif on_corrupt is not None:
                on_corrupt(block)
    where = f"{store.uri}/{logs[0].key}" if logs else store.uri
    return blocks_to_merge(blocks, as_of=as_of, where=where)


def block_layer(block: Block, schema: pa.Schema, rule: MergeRule, where: str) -> Layer:
    """Return the layer of a block. Raises: `DataCorrupt`, `Unsupported`, `InvalidInput`."""
    if _is_partial(block):
        raise Unsupported(
            f"{where}: partial updates are not supported",
            hint="compact the table with the writer that wrote them, then read it",
        )
    if block.type == BlockType.DELETE:
        return _delete_block_layer(decode_deletes(block.content, where=where), schema, rule, where)
    return _data_block_layer(block, schema, rule, where)


def _data_block_layer(
    block: Block,
    schema: pa.Schema,
    rule: MergeRule,
    where: str,
    offsets: Sequence[int] | None = None,
) -> Layer:
    delete_columns = [IS_DELETED, OPERATION, *([rule.delete_field] if rule.delete_field else [])]
    columns = list(dict.fromkeys([*schema.names, *delete_columns]))
    return row_layer(_decode_block(block, columns, where, offsets), schema, rule, where)


def _decode_block(
    block: Block, columns: Sequence[str], where: str, offsets: Sequence[int] | None = None
) -> pa.Table:
    if block.type == BlockType.PARQUET:
        return decode_parquet(block.content, columns=columns, where=where)
    text = block.headers.get(Header.SCHEMA)
    if text is None:
        raise DataCorrupt(f"{where}: the Avro block has no schema")
    schema = parse_schema(text, where=where)
    if not can_decode(schema):
        return decode_rows(decode_records(block.content, where=where), schema, where=where)
    return decode_columns(
        block.content,
        record_offsets(block.content, where=where) if offsets is None else offsets,
        schema,
        gap_bytes=RECORD_HEAD_BYTES,
        columns=columns,
        where=where,
    )


def _delete_block_layer(
    deletes: Sequence[DeleteRecord], schema: pa.Schema, rule: MergeRule, where: str
) -> Layer:
    keys = pa.array([delete.key for delete in deletes], pa.string())
    if keys.null_count:
        raise DataCorrupt(f"{where}: {keys.null_count} deletes have no key")
    all_true = pa.repeat(pa.scalar(value=True), len(deletes))
    if not rule.ordered_by:
        return Layer(keys, None, all_true, all_true)
    values = [None if delete.ordering == NATURAL else delete.ordering for delete in deletes]
    natural = pa.array([value is None for value in values], pa.bool_())
    multiple = len(rule.ordered_by) > 1
    ordering = [
        _ordering_values(
            [_ordering_part(value, i) if multiple else value for value in values], field, where
        )
        for i, field in enumerate(schema.field(name) for name in rule.ordered_by)
    ]
    return Layer(keys, None, all_true, natural, tuple(ordering))


def _ordering_part(value: Ordering | None, number: int) -> Ordering | None:
    """Return one of several ordering values, which an array wrapper combines."""
    if value is None or value.wrapper != "Array" or not isinstance(value.value, tuple):
        return value
    part: Ordering | None = value.value[number]
    return part


def _ordering_values(values: Sequence[Ordering | None], field: pa.Field, where: str) -> pa.Array:
    """Convert the ordering values of deletes to the type of the ordering column."""
    kind, plain = field.type, [None if value is None else value.value for value in values]
    try:
        if all(value is None for value in plain):
            return comparable_values(pa.nulls(len(plain), kind))
        return comparable_values(_typed_values(plain, kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise DataCorrupt(
            f"{where}: ordering value of a delete: expected {kind} for {field.name}: {error}",
            hint="write the delete again with the type of the column",
        ) from error


def _typed_values(plain: list[Any], kind: pa.DataType) -> pa.Array:
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
