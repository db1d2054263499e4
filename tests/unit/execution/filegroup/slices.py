"""Builds file slices in a memory store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.hudi.file_groups import BaseFile, FileSlice, LogFile
from tidelock.hudi.log_blocks import (
    NATURAL,
    Block,
    DeleteRecord,
    Ordering,
    avro_block,
    delete_block,
    log_bytes,
    parquet_block,
)
from tidelock.hudi.schema import META_COLUMNS, avro_schema, with_meta
from tidelock.storage.contract import Overwrite
from tidelock.storage.memory import MemoryStore

SCHEMA = with_meta(pa.schema([("id", pa.string()), ("ts", pa.int64()), ("name", pa.string())]))
GROUP = "f-0"

Row = tuple[str, int | None, str]


def rows(values: Sequence[Row], instant: str, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return rows (id, ts, name) with the meta columns of the write at `instant`."""
    found = [
        {
            **dict.fromkeys(META_COLUMNS, ""),
            "_hoodie_commit_time": instant,
            "_hoodie_commit_seqno": f"{instant}_0_{number}",
            "_hoodie_record_key": key,
            "id": key,
            "ts": ts,
            "name": name,
        }
        for number, (key, ts, name) in enumerate(values)
    ]
    return pa.Table.from_pylist(found, schema=schema)


def parquet(table: pa.Table, **options: Any) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


class SliceBuilder:
    """A file slice under construction: a base file, and log files in instant order."""

    def __init__(self, schema: pa.Schema = SCHEMA) -> None:
        """Start without files."""
        self.store = MemoryStore("lake")
        self.schema = schema
        self.base: BaseFile | None = None
        self.logs: list[LogFile] = []

    def with_base(self, values: Sequence[Row], instant: str = "1", **options: Any) -> SliceBuilder:
        """Add the base file."""
        return self.with_base_table(rows(values, instant, self.schema), instant, **options)

    def with_base_table(self, table: pa.Table, instant: str = "1", **options: Any) -> SliceBuilder:
        """Add a base file with arbitrary columns."""
        body = parquet(table, **options)
        self.base = BaseFile("p", f"{GROUP}_0-0-0_{instant}.parquet", GROUP, "0-0-0", instant, 0)
        self.store.put(self.base.key, body, Overwrite())
        self.base = BaseFile("p", self.base.name, GROUP, "0-0-0", instant, size_bytes=len(body))
        return self

    def with_log(self, instant: str, *blocks: Block) -> SliceBuilder:
        """Add a log file with blocks."""
        return self.with_log_bytes(instant, log_bytes(blocks))

    def with_log_bytes(self, instant: str, body: bytes) -> SliceBuilder:
        """Add a log file with arbitrary bytes."""
        name = f".{GROUP}_{instant}.log.1_0-0-0"
        log = LogFile("p", name, GROUP, "0-0-0", instant, 1, len(body))
        self.store.put(log.key, body, Overwrite())
        self.logs.append(log)
        return self

    def upsert(self, instant: str, *values: Row, as_parquet: bool = False) -> SliceBuilder:
        """Add a log file with changed rows."""
        table = rows(values, instant, self.schema)
        make = parquet_block if as_parquet else avro_block
        return self.with_log(instant, make(table, instant=instant, schema=self.avro))

    def delete(self, instant: str, *keys: str, ordering: Ordering | None = NATURAL) -> SliceBuilder:
        """Add a log file with deletes."""
        deletes = [DeleteRecord(key, "p", ordering) for key in keys]
        return self.with_log(instant, delete_block(deletes, instant=instant, schema=self.avro))

    @property
    def avro(self) -> dict[str, Any]:
        """The table's Avro schema."""
        return avro_schema(self.schema, table="t")

    @property
    def piece(self) -> FileSlice:
        """The slice."""
        return FileSlice("p", GROUP, "1", self.base, tuple(self.logs))
