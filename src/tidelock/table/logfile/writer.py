"""The blocks of a delta commit, ready to be written as one log file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidelock.table.logfile.block import Block, BlockType, Header, encode_block
from tidelock.table.logfile.content import (
    Delete,
    encode_deletes,
    encode_parquet,
    frame_records,
)
from tidelock.table.schema.avro import render_schema
from tidelock.table.schema.encoding import encode_framed

_ROLLBACK = "0"


def avro_block(rows: pa.Table, *, instant: str, schema: Mapping[str, Any]) -> Block:
    """Return rows, meta columns included, as Avro records of `schema`."""
    framed = encode_framed(rows, schema, where=f"log block of {instant}")
    content = frame_records(rows.num_rows, framed)
    return Block(BlockType.AVRO, _headers(instant, schema), content)


def parquet_block(rows: pa.Table, *, instant: str, schema: Mapping[str, Any]) -> Block:
    """Return rows, meta columns included, as a Parquet file whose Avro schema is `schema`."""
    return Block(BlockType.PARQUET, _headers(instant, schema), encode_parquet(rows))


def delete_block(deletes: Sequence[Delete], *, instant: str, schema: Mapping[str, Any]) -> Block:
    """Return deletes; the schema is the table's, as Hudi's writers put it there."""
    return Block(BlockType.DELETE, _headers(instant, schema), encode_deletes(deletes))


def rollback_block(*, instant: str, target: str) -> Block:
    """Return the command that voids the blocks which `target` wrote into this slice before."""
    headers = {
        Header.INSTANT_TIME: instant,
        Header.TARGET_INSTANT_TIME: target,
        Header.COMMAND_BLOCK_TYPE: _ROLLBACK,
    }
    return Block(BlockType.COMMAND, {int(key): text for key, text in headers.items()}, b"")


def log_bytes(blocks: Sequence[Block]) -> bytes:
    """Return the log file of these blocks; data before deletes, as Hudi orders one write."""
    return b"".join(encode_block(block) for block in blocks)


def _headers(instant: str, schema: Mapping[str, Any]) -> dict[int, str]:
    return {int(Header.INSTANT_TIME): instant, int(Header.SCHEMA): render_schema(schema)}
