"""Python data sources that `tl.enable` registers with Spark.

`TidelockSource` serves reads that do not come through PySpark's reader, such as SQL and Scala, and
streaming reads. It reads all columns, because Spark does not push projections to a Python data
source. It does not write, because it cannot bring the rows of one file group together.

`MergedSource` reads file slices that have log files. These are merged in Python workers, and a
function in a worker does not see the filters of a query; a data source does. Slices in partitions
that the filters exclude are skipped, and other rows are dropped before they are transferred.
Planning a data source starts a process, so a few small slices are read without it.
"""

from __future__ import annotations

import pickle
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from tidelock.core.errors import Unsupported
from tidelock.execution.filegroup.filtering import RowFilter
from tidelock.execution.spark.read import SliceScan, pack_tasks
from tidelock.execution.spark.types import spark_schema
from tidelock.hudi.properties import TableProperties
from tidelock.operations.query import prune_partitions
from tidelock.operations.read import snapshot_now
from tidelock.spark.datasource.read import requested_scan
from tidelock.spark.options import FORMAT, canonical_options, split_path
from tidelock.spark.streaming.source import TASKS_MIN, ChangeStreamReader, slice_reading
from tidelock.storage.uri import StoreAddress

MERGED_FORMAT: Final = "tidelock-merged"
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
SLICES_MIN: Final = 32
BYTES_MIN: Final = 64 * 1024 * 1024
"""Reads with fewer slices and fewer bytes than these do not use filter pushdown."""

_SLICES: Final = "slices"


class TidelockSource(ds.DataSource):
    """Reads tables of the format "tidelock"."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return _projected_schema(self._reading())

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        return _SnapshotReader(self._reading(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> ds.DataSourceWriter:  # noqa: ARG002, FBT001
        """Reject the write: rows of one file group cannot be brought together here."""
        raise Unsupported(
            "tidelock tables cannot be written from SQL or Scala without tl.enable",
            hint='call tl.enable(spark), then df.write.format("tidelock").save(uri) from Python',
        )

    def streamReader(self, schema: StructType) -> ds.DataSourceStreamReader:  # noqa: N802
        address = self._address()
        return ChangeStreamReader(address, address.settings, schema)

    def _address(self) -> StoreAddress:
        uri, options = split_path(canonical_options(dict(self.options)), None)
        return StoreAddress(uri, options)

    def _reading(self) -> SliceScan:
        address = self._address()
        scan = requested_scan(snapshot_now(address.open()), address.settings)
        tasks = pack_tasks(scan.slices, tasks_min=TASKS_MIN)
        return slice_reading(address, scan, tasks, scan.columns or scan.schema.names)


class _SnapshotReader(ds.DataSourceReader):
    def __init__(self, reading: SliceScan, schema: StructType) -> None:
        self._reading = reading
        self._names = schema.names

    def partitions(self) -> list[ds.InputPartition]:
        return [ds.InputPartition(task) for task in range(len(self._reading.tasks))]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self._reading.rows(partition.value):
            yield batch.select(self._names)


@dataclass(frozen=True, slots=True)
class MergedSlices:
    """Slices to merge, and the properties of their table."""

    reading: SliceScan
    properties: TableProperties
    tasks_min: int

    def filtered(self, expression: pc.Expression | None) -> SliceScan:
        """Return the read of the rows that may match a filter."""
        slices = [piece for task in self.reading.tasks for piece in task]
        rows = None
        if expression is not None:
            rows = RowFilter.of(expression, self.reading.schema)
            slices = list(prune_partitions(slices, rows, self.properties))
        tasks = pack_tasks(slices, tasks_min=self.tasks_min)
        return replace(self.reading, tasks=tasks, row_filter=rows)


def merged_frame(
    spark: SparkSession, reading: SliceScan, properties: TableProperties
) -> DataFrame | None:
    """Return a frame with filter pushdown; None if it would not pay or Spark has it disabled."""
    slices = [piece for task in reading.tasks for piece in task]
    small = len(slices) < SLICES_MIN and sum(each.size_bytes for each in slices) < BYTES_MIN
    if small or str(spark.conf.get(PUSHDOWN, "false")).lower() != "true":
        return None
    merged = MergedSlices(reading, properties, spark.sparkContext.defaultParallelism)
    text = b64encode(zlib.compress(pickle.dumps(merged), 1)).decode("ascii")
    return spark.read.format(MERGED_FORMAT).option(_SLICES, text).load()


class MergedSource(ds.DataSource):
    """Reads slices of one table that the driver has selected."""

    @classmethod
    def name(cls) -> str:
        return MERGED_FORMAT

    def schema(self) -> StructType:
        return _projected_schema(self._merged().reading)

    def reader(self, schema: StructType) -> ds.DataSourceReader:  # noqa: ARG002 - same as ours
        return _MergedReader(self._merged())

    def _merged(self) -> MergedSlices:
        body = zlib.decompress(b64decode(self.options[_SLICES]))
        merged: MergedSlices = pickle.loads(body)  # noqa: S301 - written by our own driver
        return merged


class _MergedReader(ds.DataSourceReader):
    def __init__(self, merged: MergedSlices) -> None:
        self._merged = merged
        self._reading = merged.filtered(None)

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802
        """Use the filters that Arrow can evaluate; Spark applies all of them again."""
        schema = self._reading.schema
        usable = [each for f in filters if (each := arrow_filter(f, schema)) is not None]
        if usable:
            combined = usable[0]
            for each in usable[1:]:
                combined &= each
            self._reading = self._merged.filtered(combined)
        return filters

    def partitions(self) -> list[ds.InputPartition]:
        # Spark rejects a source without partitions, so an empty read has one empty partition.
        return [ds.InputPartition(task) for task in range(max(1, len(self._reading.tasks)))]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        if self._reading.tasks:
            yield from self._reading.rows(partition.value)


def _projected_schema(reading: SliceScan) -> StructType:
    return spark_schema(pa.schema([reading.schema.field(name) for name in reading.columns]))


def arrow_filter(spark_filter: ds.Filter, schema: pa.Schema) -> pc.Expression | None:
    """Return a Spark filter as an Arrow expression; None if the two might differ."""
    match spark_filter:
        case ds.Not(child):
            # Null stays null in both, and the row does not match.
            exact = isinstance(child, ds.EqualTo | ds.IsNull | ds.IsNotNull | ds.In)
            inner = arrow_filter(child, schema) if exact else None
            return None if inner is None else ~inner
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


_SAME_TYPES: Final[Mapping[type, Callable[[pa.DataType], bool]]] = {
    bool: pt.is_boolean,
    int: pt.is_integer,
    str: pt.is_string,
    date: pt.is_date32,
}


def _comparable(schema: pa.Schema, name: str, value: object) -> bool:
    """Return whether Spark and Arrow compare these alike: strings, integers, dates, booleans.

    NaN is the largest number in Spark and unordered in Arrow; timestamps have time zones.
    """
    is_same = _SAME_TYPES.get(type(value))
    return name in schema.names and is_same is not None and is_same(schema.field(name).type)


def _scalar(schema: pa.Schema, name: str, value: Any) -> pa.Scalar:
    return pa.scalar(value, schema.field(name).type)
