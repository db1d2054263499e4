"""Which file slices Spark's own Parquet reader can read, and the frame that it makes of them.

A base file without log files is a Parquet file with the table's rows, so Spark reads it natively:
only the columns and row groups that a query needs. That holds where Spark can reach the files, and
where it would read the same values that the kernel reads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyarrow import types as pt
from pyspark.sql import DataFrame, SparkSession

from tidelock.base.runtime import worker_pool
from tidelock.engine.spark.schema import spark_schema
from tidelock.engine.spark.session import setting
from tidelock.kernel.objectfile import ObjectFile
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile, FileSlice
from tidelock.table.schema.avro import arrow_schema, parse_schema
from tidelock.table.schema.meta import with_meta
from tidelock.table.snapshot import TableSnapshot

_FOOTER_THREADS: Final = 8
_LISTED_BY_DRIVER_MAX: Final = "1024"
"""Spark looks each file up; up to this many the driver does it, which is faster than a job."""

_PATTERN: Final = frozenset("{}[]*?\\")
_HADOOP_SCHEMES: Final = {"s3": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}


def hadoop_root(spark: SparkSession, uri: str) -> str | None:
    """Return the table's base path as Spark itself can open it; None where it cannot."""
    scheme, _, rest = uri.partition("://")
    if _is_pattern(uri):
        return None
    if scheme == "file":
        return uri
    known = _HADOOP_SCHEMES.get(scheme)
    if known is None:
        return None
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no public way to ask Hadoop
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    assert jvm is not None
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(known, hadoop)
    except Py4JError:
        return None  # the connector's jar is not there
    return f"{known}://{rest}"


@dataclass(eq=False, slots=True)
class FileSchemas:
    """The schemas that base files were written under, looked up where they are cheapest."""

    snapshot: TableSnapshot
    _by_instant: dict[str, pa.Schema | None] = field(default_factory=dict)

    def of(self, bases: Collection[BaseFile]) -> dict[str, pa.Schema]:
        """Return the schema of each file by its key.

        The commit that wrote a file says its schema; once that is archived the file itself does.
        """
        found: dict[str, pa.Schema] = {}
        unknown = []
        for base in bases:
            schema = self._committed(base.instant)
            if schema is None:
                unknown.append(base)
            else:
                found[base.key] = schema
        if unknown:
            store = self.snapshot.store
            with worker_pool("tidelock-footers", min(_FOOTER_THREADS, len(unknown))) as pool:
                footers = pool.map(lambda base: _footer(store, base), unknown)
                found |= dict(zip((base.key for base in unknown), footers, strict=True))
        return found

    def _committed(self, requested: str) -> pa.Schema | None:
        if requested not in self._by_instant:
            self._by_instant[requested] = self._read(requested)
        return self._by_instant[requested]

    def _read(self, requested: str) -> pa.Schema | None:
        timeline = self.snapshot.timeline
        instant = next((i for i in timeline.writes() if i.requested == requested), None)
        text = None if instant is None else timeline.commit(instant).schema_json
        if not text:
            return None
        where = f"{self.snapshot.store.uri} (commit {requested})"
        return with_meta(arrow_schema(parse_schema(text, where=where), where=where))


def readable_natively(
    slices: Sequence[FileSlice], schema: pa.Schema, files: FileSchemas
) -> set[str]:
    """Return the keys of the base files from which Spark reads what the kernel would read."""
    bases = [
        piece.base
        for piece in slices
        if piece.base is not None and not piece.logs and not _is_pattern(piece.base.key)
    ]
    same: dict[int, bool] = {}
    chosen = set()
    for key, written in files.of(bases).items():
        # Many files share one schema object, so most of them are compared once.
        if id(written) not in same:
            same[id(written)] = _same_values(written, schema)
        if same[id(written)]:
            chosen.add(key)
    return chosen


def native_frame(
    spark: SparkSession, root: str, keys: Sequence[str], schema: pa.Schema
) -> DataFrame:
    """Return the rows of exactly these files under the table's schema."""
    reader = (
        spark.read.schema(spark_schema(schema))
        .option("mergeSchema", "false")
        .option("datetimeRebaseMode", "CORRECTED")
        .option("int96RebaseMode", "CORRECTED")
        # A file that is gone or broken is an error, whatever the session says about others.
        .option("ignoreMissingFiles", "false")
        .option("ignoreCorruptFiles", "false")
    )
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    with setting(spark, name, _LISTED_BY_DRIVER_MAX):
        return reader.parquet(*[f"{root}/{key}" for key in keys])


def _is_pattern(path: str) -> bool:
    """Tell whether Spark would take a path for a pattern: it has no way to say that it is none."""
    return any(letter in _PATTERN for letter in path)


def _footer(store: ObjectStore, base: BaseFile) -> pa.Schema:
    with pa.PythonFile(ObjectFile(store, base.key, base.size_bytes), mode="r") as source:
        return pq.read_schema(source)


def _same_values(written: pa.Schema, wanted: pa.Schema) -> bool:
    for column in wanted:
        index = written.get_field_index(column.name)
        if index >= 0 and not _reads_as(written.field(index).type, column.type):
            return False
    return True


def _reads_as(written: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether Spark's reader gives `wanted` for a file with `written`, as the kernel does."""
    if _plain(written).equals(_plain(wanted)):
        return True
    # Nested parts that grew are read in a way of Spark's own: a struct without any of the wanted
    # fields would be null. So plain numbers are all that may differ.
    return bool(
        (pt.is_int32(written) and pt.is_int64(wanted))
        or (pt.is_float32(written) and pt.is_float64(wanted))
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type without what does not matter here: names and nullability of inner parts."""
    if pt.is_struct(kind):
        return pa.struct([pa.field(part.name, _plain(part.type)) for part in kind])
    if pt.is_list(kind) or pt.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pt.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind
