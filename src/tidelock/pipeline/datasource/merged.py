"""File slices with log files as a source that Spark tells its filters.

Slices that must be merged are read in Python workers, and a function in a worker is not told what
a query keeps. A data source is: so of many or large slices those that lie in partitions which the
filters exclude are not read, and rows are left out before they travel. Planning costs a process, so
few small slices are read without it.
"""

from __future__ import annotations

import pickle
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from tidelock.engine.spark.read import SliceReading, packed, size_of
from tidelock.engine.spark.schema import spark_schema
from tidelock.kernel.filtering import RowFilter
from tidelock.operation.filters import without_impossible
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.properties import TableProperties

NAME: Final = "tidelock-merged"
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
SLICES_MIN: Final = 32
BYTES_MIN: Final = 64 * 1024 * 1024
"""Fewer and smaller slices than these are read without asking for filters."""

_READING: Final = "reading"


@dataclass(frozen=True, slots=True)
class Merging:
    """Slices to merge, and the table that they are of."""

    reading: SliceReading
    properties: TableProperties
    tasks_min: int

    def passing(self, expression: pc.Expression | None) -> SliceReading:
        """Return the read of the rows that may pass."""
        slices = [piece for task in self.reading.tasks for piece in task]
        if expression is None:
            return self._tasks(slices, None)
        rows = RowFilter.of(expression, self.reading.schema)
        return self._tasks(without_impossible(slices, rows, self.properties), rows)

    def _tasks(self, slices: Sequence[FileSlice], rows: RowFilter | None) -> SliceReading:
        tasks = packed(slices, tasks_min=self.tasks_min)
        return replace(self.reading, tasks=tasks, passing=rows)


def merged_frame(
    spark: SparkSession, reading: SliceReading, properties: TableProperties
) -> DataFrame | None:
    """Return the frame that takes filters; None where it would not pay, or Spark has them off."""
    slices = [piece for task in reading.tasks for piece in task]
    small = len(slices) < SLICES_MIN and sum(map(size_of, slices)) < BYTES_MIN
    if small or str(spark.conf.get(PUSHDOWN, "false")).lower() != "true":
        return None
    made = Merging(reading, properties, spark.sparkContext.defaultParallelism)
    text = b64encode(zlib.compress(pickle.dumps(made), 1)).decode("ascii")
    return spark.read.format(NAME).option(_READING, text).load()


class MergedSource(ds.DataSource):
    """Slices of one table, as the driver has chosen them."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns that are read."""
        reading = self._merging().reading
        return spark_schema(pa.schema([reading.schema.field(name) for name in reading.columns]))

    def reader(self, schema: StructType) -> ds.DataSourceReader:  # noqa: ARG002 - it is ours
        """Return what reads the slices."""
        return _Reader(self._merging())

    def _merging(self) -> Merging:
        packed_text = zlib.decompress(b64decode(self.options[_READING]))
        made: Merging = pickle.loads(packed_text)  # noqa: S301 - our own driver wrote it
        return made


class _Reader(ds.DataSourceReader):
    def __init__(self, merging: Merging) -> None:
        self._merging = merging
        self._made = merging.passing(None)

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802
        """Take what can be told from files; Spark looks at the rows that are left once more."""
        known = [
            each
            for each in (expression_of(f, self._made.schema) for f in filters)
            if each is not None
        ]
        if known:
            whole = known[0]
            for each in known[1:]:
                whole &= each
            self._made = self._merging.passing(whole)
        return filters

    def partitions(self) -> list[ds.InputPartition]:
        # A source without parts is an error to Spark, so nothing is one empty part.
        return [ds.InputPartition(task) for task in range(max(1, len(self._made.tasks)))]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        if self._made.tasks:
            yield from self._made.rows(partition.value)


def expression_of(given: ds.Filter, schema: pa.Schema) -> pc.Expression | None:
    """Return what a filter of Spark's is to Arrow; None where both might not mean the same."""
    match given:
        case ds.Not(child):
            # Null stays null under both, and is no row that passes.
            inner = expression_of(child, schema)
            return None if inner is None or not _is_exact(child) else ~inner
        case ds.IsNull((name,)) if name in schema.names:
            return pc.field(name).is_null()
        case ds.IsNotNull((name,)) if name in schema.names:
            return pc.field(name).is_valid()
        case ds.EqualTo((name,), value) if _comparable(schema, name, value):
            return pc.field(name) == _scalar(schema, name, value)
        case ds.In((name,), values) if all(_comparable(schema, name, value) for value in values):
            return pc.field(name).isin(pa.array(list(values), schema.field(name).type))
        case ds.LessThan((name,), value) if _comparable(schema, name, value):
            return pc.field(name) < _scalar(schema, name, value)
        case ds.LessThanOrEqual((name,), value) if _comparable(schema, name, value):
            return pc.field(name) <= _scalar(schema, name, value)
        case ds.GreaterThan((name,), value) if _comparable(schema, name, value):
            return pc.field(name) > _scalar(schema, name, value)
        case ds.GreaterThanOrEqual((name,), value) if _comparable(schema, name, value):
            return pc.field(name) >= _scalar(schema, name, value)
        case _:
            return None


def _is_exact(child: ds.Filter) -> bool:
    return isinstance(child, ds.EqualTo | ds.IsNull | ds.IsNotNull | ds.In)


def _comparable(schema: pa.Schema, name: str, value: object) -> bool:
    """Tell whether Spark and Arrow compare these alike: texts, whole numbers, days, truths.

    To Spark NaN is larger than every number and to Arrow it is nothing; times have zones.
    """
    if name not in schema.names or value is None or isinstance(value, datetime):
        return False
    kind = schema.field(name).type
    if isinstance(value, bool):
        return bool(pt.is_boolean(kind))
    if isinstance(value, int):
        return bool(pt.is_integer(kind))
    if isinstance(value, str):
        return bool(pt.is_string(kind))
    return isinstance(value, date) and bool(pt.is_date32(kind))


def _scalar(schema: pa.Schema, name: str, value: Any) -> pa.Scalar:
    return pa.scalar(value, schema.field(name).type)
