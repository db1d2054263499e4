"""A model of a table's rows as a dictionary, to which the same writes are applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa

import tidelock as tl

Row = dict[str, Any]

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("region", pa.string()), ("v", pa.float64())]
)
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
INDEXES = ("SIMPLE", "BLOOM", "BUCKET")
LAYOUTS = (None, "region")


def row(number: int, ts: int = 1, **more: object) -> Row:
    """Return a row whose region is derived from its number."""
    values = {
        "id": f"k{number:03}",
        "ts": ts,
        "region": "abc"[number % 3],
        "v": number + ts / 8,
    }
    return values | more


def rows(numbers: Iterable[int], ts: int = 1) -> list[Row]:
    """Return rows with these numbers."""
    return [row(number, ts) for number in numbers]


def create_table(
    kind: str = "COPY_ON_WRITE",
    partition_by: str | None = None,
    *,
    index: str = "SIMPLE",
    ordering: str | None = "ts",
    options: Mapping[str, object] | None = None,
) -> tl.Table:
    """Return a new table in memory."""
    buckets = {"hoodie.bucket.index.num.buckets": 4} if index == "BUCKET" else {}
    return tl.Table.create(
        f"memory://tables/{uuid4()}",
        SCHEMA,
        key="id",
        ordering=ordering,
        partition_by=partition_by,
        type=kind,
        name="orders",
        options={"hoodie.index.type": index, **buckets, **(options or {})},
    )


@dataclass
class Model:
    """Rows by partition and key."""

    partition_by: str | None = None
    ordering: str | None = "ts"
    held: dict[tuple[str, str], Row] = field(default_factory=dict)

    def identity(self, item: Row) -> tuple[str, str]:
        """Return the identity of a row."""
        return (item[self.partition_by] if self.partition_by else ""), item["id"]

    def upsert(self, incoming: Sequence[Row]) -> None:
        """Add rows, and replace stored ones that are not newer in event time."""
        for item in incoming:
            identity = self.identity(item)
            known = self.held.get(identity)
            older = known is not None and self.ordering and known["ts"] > item["ts"]
            if not older:
                self.held[identity] = item

    def delete(self, ids: Iterable[str]) -> None:
        """Remove every row with these ids."""
        gone = set(ids)
        self.held = {p: item for p, item in self.held.items() if p[1] not in gone}

    def empty(self, partitions: Iterable[str] | None = None) -> None:
        """Remove the rows of partitions, or all."""
        gone = None if partitions is None else set(partitions)
        self.held = {} if gone is None else {p: i for p, i in self.held.items() if p[0] not in gone}

    def rows(self) -> list[Row]:
        """Return the rows by key and region."""
        return ordered(self.held.values())


def ordered(found: Iterable[Row]) -> list[Row]:
    """Return rows in an order that does not depend on files."""
    return sorted(found, key=lambda item: (item["id"], item["region"], item["ts"], item["v"]))


def stored_rows(table: tl.Table) -> list[Row]:
    """Return the rows of a table in that order."""
    return ordered(table.read().to_pylist())
