"""Tiny tables with rows (id, ts, name), built file by file, in memory or as a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.unit.execution.filegroup.slices import SCHEMA, Row, parquet, rows
from tests.unit.hudi.table_builder import Built, base, log, time
from tidelock.execution.local.read import LocalEngine
from tidelock.hudi.log_blocks import avro_block, log_bytes
from tidelock.hudi.schema import avro_schema, render_schema, with_meta, without_meta
from tidelock.hudi.timeline.instant import Action
from tidelock.table import Table


def schema_json(schema: pa.Schema) -> str:
    """Return the schema as stored in a commit."""
    return render_schema(avro_schema(without_meta(schema), table="built"))


def changed(at: int, values: Sequence[Row]) -> bytes:
    """Return the bytes of a log file with one block of changed rows."""
    avro = avro_schema(SCHEMA, table="built")
    return log_bytes([avro_block(rows(values, time(at)), instant=time(at), schema=avro)])


class Filled(Built):
    """A table under construction, with rows in its files."""

    def insert(
        self,
        at: int,
        done: int,
        group: str,
        values: Sequence[Row],
        *,
        partition: str = "p",
        schema: pa.Schema = SCHEMA,
        recorded: bool = True,
        **options: Any,
    ) -> str:
        """Write a base file and its commit; return its key."""
        key = base(group, at, partition)
        text = schema_json(schema) if recorded else ""
        self.commit(at, done, [key], action=Action.COMMIT, schema=text)
        self.put(key, parquet(rows(values, time(at), with_meta(schema)), **options))
        return key

    def upsert(self, at: int, done: int, group: str, values: Sequence[Row]) -> str:
        """Write a log file and its deltacommit; return its key."""
        key = log(group, at)
        self.commit(at, done, [key], schema=schema_json(SCHEMA))
        self.put(key, changed(at, values))
        return key

    def table(self, workers: int = 2) -> Table:
        """Open the table."""
        return Table(self.open(), engine=LocalEngine(workers))

    def copy_to(self, folder: Path) -> Path:
        """Write the table into a folder."""
        for meta in self.store.list(""):
            found = self.store.get(meta.key)
            assert found is not None
            path = folder / meta.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(found.body)
        return folder


def two_writes() -> Filled:
    """Return a table with three rows in one file group, one of them updated later by a log file."""
    table = Filled()
    table.insert(1, 2, "g-0", [("a", 1, "Ann"), ("b", 1, "Bob"), ("c", 1, "Cid")])
    table.upsert(3, 4, "g-0", [("b", 2, "Ben")])
    return table


def names(rows_read: pa.Table) -> dict[str, str]:
    """Return the names of rows by id."""
    ids, found = rows_read.column("id").to_pylist(), rows_read.column("name").to_pylist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, found, strict=True))
