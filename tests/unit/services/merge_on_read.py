"""A merge-on-read table with a log file, for tests of services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tidelock.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])
QUIET = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
}


@contextmanager
def layered(folder: Path, options: Mapping[str, str]) -> Iterator[Table]:
    """Open a new table with two file groups, one of which has a log file."""
    with Table.create(
        str(folder), SCHEMA, key="id", ordering="ts", type="MERGE_ON_READ", options=options
    ) as made:
        made.insert(rows(1, 2, ts=1))
        made.insert(rows(3, ts=1))
        made.upsert(rows(1, ts=2))
        yield made


def rows(*ids: int, ts: int) -> pa.Table:
    return pa.table([list(ids), [f"v{ts}"] * len(ids), [ts] * len(ids)], schema=SCHEMA)


def content(table: Table) -> list[object]:
    table.refresh()
    return list(table.read().sort_by("id").to_pylist())
