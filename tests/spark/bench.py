"""Runs the engines without transactions: prepares, tags, plans and writes rows directly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from testkit.slices import read_slice
from tidelock.execution.engine import PrepareRule, TagRule, WriteEngine
from tidelock.execution.filegroup.context import FileResult, WriteContext
from tidelock.execution.filegroup.key_lookup import BucketRule, IndexKind
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.local.write import LocalWriter
from tidelock.execution.spark.write import SparkWriter
from tidelock.execution.write_plan import WritePlan
from tidelock.hudi.file_groups import BaseFile, FileSlice, data_file
from tidelock.hudi.keys import KeyRule
from tidelock.hudi.properties import KeyGenerator, MergeMode
from tidelock.hudi.schema import RECORD_KEY, avro_schema, render_schema, with_meta
from tidelock.operations.planner import Capacity, TableShape, plan_bulk, plan_write
from tidelock.storage.uri import StoreAddress

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("day", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("_hoodie_is_deleted", pa.bool_()),
    ]
)
KEYS = KeyRule(KeyGenerator.SIMPLE, ("id",), ("day",), hive_style=True)
KEYS_FLAT = KeyRule(KeyGenerator.NON_PARTITION, ("id",))
MERGE = MergeRule(MergeMode.EVENT_TIME_ORDERING, ("ts",))


def rows(ids: Iterable[int], version: int = 1, days: int = 2) -> pa.Table:
    """Return a row for each id; a later one of the same id has a larger `ts`."""
    made = [
        {
            "id": f"k{number:05}",
            "day": f"2024-01-0{1 + number % days}",
            "ts": version * 1000 + at,
            "name": f"v{version}-{number}-{at}",
            "_hoodie_is_deleted": version > 1 and number % 10 == 9,
        }
        for at, number in enumerate(ids)
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


@dataclass
class Bench:
    """A table without a timeline: the last file of each file group is current."""

    folder: Path
    index: str = "SIMPLE"
    spark: SparkSession | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    slices: dict[tuple[str, str], FileSlice] = field(default_factory=dict)
    instants: count[int] = field(default_factory=lambda: count(1))
    names: count[int] = field(default_factory=lambda: count(1))
    keys: KeyRule = KEYS

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.address = StoreAddress(str(self.folder))
        self.store = self.address.open()

    def engine(self) -> WriteEngine:
        if self.spark is None:
            return LocalWriter(self.store, 2)
        return SparkWriter(self.spark, self.address, **self.limits)

    def data(self, table: object) -> object:
        """Return rows in the form that the engine accepts."""
        if self.spark is None or not isinstance(table, pa.Table):
            return table
        # One partition: the order of rows decides between equal event times.
        return self.spark.createDataFrame(table).coalesce(1)

    def context(self) -> WriteContext:
        text = render_schema(avro_schema(SCHEMA, table="bench"))
        instant = f"202401010000{next(self.instants):05}"
        return WriteContext(instant, 0, with_meta(SCHEMA), text, MERGE, markers=False)

    def upsert(self, table: object) -> tuple[FileResult, ...]:
        """Upsert rows by key."""
        return self.write(table, dedupe=True)

    def bulk(self, table: object, **options: Any) -> tuple[FileResult, ...]:
        """Insert rows."""
        return self.write(table, dedupe=False, bulk=True, **options)

    def write(
        self, table: object, *, dedupe: bool, bulk: bool = False, **options: Any
    ) -> tuple[FileResult, ...]:
        engine = self.engine()
        rule = PrepareRule(SCHEMA, self.keys, MERGE, dedupe=dedupe, where="bench")
        prepared = engine.prepare(self.data(table), rule)
        try:
            tagged = engine.tag(prepared, self.tag_rule(bulk=bulk))
            plan = self.plan(tagged.profile, bulk=bulk, **options)
            results = engine.write(tagged, plan, self.context())
        finally:
            engine.release(prepared)
        self.land(results)
        return results

    def tag_rule(self, *, bulk: bool = False) -> TagRule:
        kind = IndexKind.NONE if bulk else IndexKind(self.index)
        bucket = BucketRule(3, (), ("id",)) if kind is IndexKind.BUCKET else None
        deletes = None if bulk else "_hoodie_is_deleted"
        pieces = tuple(self.slices[key] for key in sorted(self.slices))
        return TagRule(kind, pieces, bucket, delete_column=deletes)

    def plan(self, profile: Any, *, bulk: bool, **options: Any) -> WritePlan:
        capacity = Capacity(1 << 20, 1 << 16, 1000, 15)
        if bulk:
            return plan_bulk(profile, capacity, self.name, **options)
        return plan_write(profile, self.slices, TableShape(), capacity, self.name)

    def name(self) -> str:
        return f"00000000-0000-0000-0000-{next(self.names):012}"

    def land(self, results: Iterable[FileResult]) -> None:
        for result in results:
            path, size = result.stat.path, result.stat.file_size_in_bytes
            assert path is not None
            assert size is not None
            base = data_file(result.partition, path.rpartition("/")[2], size)
            assert isinstance(base, BaseFile)
            group = result.partition, result.file_id
            self.slices[group] = FileSlice(*group, base.instant, base)

    def placed(self) -> dict[tuple[str, str], list[str]]:
        """Return the keys of each file group."""
        return {
            group: sorted(self._read(piece, RECORD_KEY)) for group, piece in self.slices.items()
        }

    def seen(self) -> list[dict[str, Any]]:
        """Return the user's rows, by key."""
        found = [
            row
            for piece in self.slices.values()
            for row in read_slice(
                self.store, piece, with_meta(SCHEMA), rule=MERGE, columns=SCHEMA.names
            ).to_pylist()
        ]
        return sorted(found, key=lambda row: (row["id"], row["name"]))

    def _read(self, piece: FileSlice, column: str) -> list[str]:
        table = read_slice(self.store, piece, with_meta(SCHEMA), rule=MERGE, columns=[column])
        values: list[str] = table.column(column).to_pylist()
        return values
