"""Tables of every kind that we write, and the operations on each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidelock as tl

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("sub", pa.string()),
        ("ts", pa.int64()),
        ("region", pa.string()),
        ("kind", pa.string()),
        ("seen_ms", pa.int64()),
        ("amount", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("share", pa.float64()),
        ("ratio", pa.float32()),
        ("small", pa.int32()),
        ("good", pa.bool_()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    ]
)
"""One column of each type that a table can have."""

BY_TIME = {
    "hoodie.datasource.write.keygenerator.type": "TIMESTAMP",
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    "hoodie.keygen.timebased.timezone": "UTC",
}
KEEP_ALL = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
EAGER = {
    "tidelock.clustering.copied.row.group.min.bytes": "0",
    "hoodie.log.compaction.blocks.threshold": "2",
}
"""Row groups of any size are copied, and any number of log files is merged."""
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Kind:
    """One way to create a table."""

    name: str
    key: str | Sequence[str]
    partition_by: str | Sequence[str] | None = None
    ordering: str | None = "ts"
    options: Mapping[str, str] = field(default_factory=dict)


KINDS = (
    Kind("flat", "id"),
    Kind("flat-two-keys-no-ordering", ("id", "sub"), ordering=None),
    Kind("simple", "id", "region"),
    Kind(
        "complex-hive-style",
        ("id", "sub"),
        ("region", "kind"),
        options={"hoodie.datasource.write.hive_style_partitioning": "true"},
    ),
    Kind("by-time", "id", "seen_ms", options=BY_TIME),
)
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
VERSIONS = (8, 9)


@dataclass(frozen=True)
class StoryTable:
    """A table, and its partitions."""

    kind: Kind
    type: str
    version: int
    uri: str

    @property
    def is_partitioned(self) -> bool:
        """Whether rows lie in partition folders."""
        return self.kind.partition_by is not None

    def open(self) -> tl.Table:
        """Open the table; its history stays readable."""
        return tl.Table.open(self.uri, options={**KEEP_ALL, **EAGER})


def row(number: int, ts: int = 1, **other: Any) -> Row:
    """Return a row with values derived from its number."""
    return {
        "id": number,
        "sub": f"s{number % 3}",
        "ts": ts,
        "region": ("eu", "us", "apac")[number % 3],
        "kind": ("a", "b")[number % 2],
        "seen_ms": 1_700_000_000_000 + number % 3 * 24 * HOUR_MS,
        "amount": Decimal(number * 100 + ts) / 100,
        "day": date(2024, 1, 1 + number % 28),
        "at": datetime(2024, 1, 1, number % 24, 30, ts % 60, 123_456, tzinfo=UTC),
        "share": number / 7,
        "ratio": number / 4,
        "small": -number,
        "good": bool(number % 2),
        "raw": bytes([number % 256, ts % 256]),
        "tags": [f"t{number}", None, "x"] if number % 4 else [],
        "counts": {"n": number, "ts": ts} if number % 5 else None,
        "place": {"city": f"Ürüm{number}", "zip": ts} if number % 6 else None,
        **other,
    }


def make(folder: Path, kind: Kind, table_type: str, version: int) -> StoryTable:
    """Create an empty table."""
    uri = str(folder / f"{kind.name}-{table_type}-{version}")
    tl.Table.create(
        uri,
        SCHEMA,
        key=kind.key,
        ordering=kind.ordering,
        partition_by=kind.partition_by,
        type=table_type,
        version=version,
        name="judged",
        options=kind.options,
    ).close()
    return StoryTable(kind, table_type, version, uri)


def run_story(made: StoryTable) -> None:
    """Run every operation on a table."""
    with made.open() as table:
        for step in _steps(made):
            step(table)


def _steps(made: StoryTable) -> Iterator[Callable[[tl.Table], object]]:
    yield lambda table: table.insert([row(n) for n in range(1, 13)])
    yield lambda table: table.upsert([row(n, 2) for n in (1, 2, 3, 20, 21)])
    # The second is older than the stored row, so with an ordering column it loses.
    yield lambda table: table.upsert([row(4, 5), row(5, 0)])
    yield lambda table: table.delete([row(n) for n in (2, 6, 21)])
    if made.type == "MERGE_ON_READ":
        yield lambda table: table.log_compact()
        yield lambda table: table.compact()
    yield lambda table: table.upsert([row(n, 3) for n in (2, 3)])
    yield lambda table: table.bulk_insert([row(n) for n in range(30, 36)])
    yield lambda table: table.cluster()
    yield lambda table: table.upsert([row(n, 4) for n in (2, 30)])
    if made.is_partitioned:
        # Rows 3, 6, 9 … share a partition in every kind of table; 33 is odd, so in one kind it does
        # not.
        yield lambda table: table.insert_overwrite([row(n, 4) for n in (36, 42)])
        yield lambda table: table.delete_partition([_partition_of(table, 31)])
    else:
        yield lambda table: table.insert_overwrite_table([row(n, 4) for n in range(1, 10)])
    yield lambda table: table.upsert([row(n, 6) for n in (1, 36, 50)])
    yield lambda table: table.delete([row(36)])
    yield lambda table: table.upsert([row(n, 7) for n in (50, 51)])
    if made.type == "MERGE_ON_READ":
        # Updates of existing rows go to log files, which then wait for another compaction.
        yield lambda table: table.upsert([row(n, 8) for n in (1, 50)])
        yield lambda table: table.upsert([row(1, 9)])
        yield lambda table: table.log_compact()
        yield lambda table: table.upsert([row(50, 9)])


def _partition_of(table: tl.Table, number: int) -> str:
    rows = table.read(columns=["id"], meta_columns=True).to_pylist()
    return str(next(each["_hoodie_partition_path"] for each in rows if each["id"] == number))
