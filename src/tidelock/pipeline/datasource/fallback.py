"""The plain Python data source, for reads that do not come through PySpark's reader: SQL, Scala.

It reads snapshots, as of a moment too, increments, and streams of changes. It reads every column,
because Spark tells a Python data source nothing of the columns that a query needs, and it does not
write, because it could not bring the rows of a file group together.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tidelock.base.errors import Unsupported
from tidelock.engine.spark.read import SliceReading, packed
from tidelock.engine.spark.schema import spark_schema
from tidelock.operation.reads import snapshot_now
from tidelock.pipeline.datasource.options import FORMAT, canonical, split_path
from tidelock.pipeline.datasource.reading import asked_scan
from tidelock.pipeline.streaming.source import ChangeStream
from tidelock.store.address import StoreAddress

TASKS_MIN = 8
"""The driver's cores are not known where a data source is planned."""


class TidelockSource(DataSource):
    """Tables of the format "tidelock", to be read."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the table's columns, meta columns first."""
        reading = self._reading()
        return spark_schema(pa.schema([reading.schema.field(name) for name in reading.columns]))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the slices."""
        return _Reader(self._reading(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002, FBT001
        """Refuse: rows of one file group could not be brought together here."""
        raise Unsupported(
            "this way of writing does not reach tidelock's writer",
            hint='call tl.enable(spark), then df.write.format("tidelock").save(uri) from Python',
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads the table's changes as they come."""
        address = self._address()
        return ChangeStream(address, address.settings, schema)

    def _address(self) -> StoreAddress:
        uri, options = split_path(canonical(dict(self.options)), None)
        return StoreAddress(uri, options)

    def _reading(self) -> SliceReading:
        address = self._address()
        options = address.settings
        scan = asked_scan(snapshot_now(address.open()), options)
        times = None if scan.commit_times is None else frozenset(scan.commit_times)
        return SliceReading(
            address,
            packed(scan.slices, tasks_min=TASKS_MIN),
            scan.schema,
            scan.rule,
            tuple(scan.columns or scan.schema.names),
            scan.as_of,
            times,
        )


class _Reader(DataSourceReader):
    def __init__(self, reading: SliceReading, schema: StructType) -> None:
        self._made = reading
        self._names = schema.names

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in range(len(self._made.tasks))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self._made.rows(partition.value):
            yield batch.select(self._names)
