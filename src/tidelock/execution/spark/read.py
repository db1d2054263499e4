"""Reading a table into a Spark frame: by Spark's Parquet reader where possible, else in workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyarrow import types as pt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from tidelock.core.threads import worker_pool
from tidelock.execution.filegroup.filtering import RowFilter
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.filegroup.read import ObjectFile, slice_batches
from tidelock.execution.local.read import Scan
from tidelock.execution.spark.session import BATCH_ROWS, session_setting
from tidelock.execution.spark.types import spark_schema, worker_schema
from tidelock.hudi.file_groups import BaseFile, FileSlice
from tidelock.hudi.properties import TableProperties
from tidelock.hudi.schema import COMMIT_TIME, arrow_schema, conform, parse_schema, with_meta
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import StoreAddress

_FOOTER_THREADS: Final = 8
_LISTED_BY_DRIVER_MAX: Final = "1024"
"""Up to this many files the driver lists them, which is faster than a Spark job."""

_GLOB_CHARACTERS: Final = frozenset("{}[]*?\\")
_HADOOP_SCHEMES: Final = {"s3": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}


def hadoop_root(spark: SparkSession, uri: str) -> str | None:
    """Return the table's base path in a form that Spark can open; None if it cannot."""
    scheme, _, rest = uri.partition("://")
    if _is_glob(uri):
        return None
    if scheme == "file":
        return uri
    known = _HADOOP_SCHEMES.get(scheme)
    if known is None:
        return None
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - Hadoop has no public API in PySpark
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    assert jvm is not None
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(known, hadoop)
    except Py4JError:
        return None  # the connector's jar is missing
    return f"{known}://{rest}"


def _file_schemas(snapshot: TableSnapshot, bases: Collection[BaseFile]) -> dict[str, pa.Schema]:
    """Return the schema that each base file was written with, by its key.

    It is taken from the commit that wrote the file or, once that is archived, from the file.
    """
    instants = dict.fromkeys(base.instant for base in bases)
    committed = {instant: _committed_schema(snapshot, instant) for instant in instants}
    found = {base.key: schema for base in bases if (schema := committed[base.instant]) is not None}
    unknown = [base for base in bases if base.key not in found]
    if unknown:
        with worker_pool("tidelock-footers", min(_FOOTER_THREADS, len(unknown))) as pool:
            footers = pool.map(lambda base: _read_file_schema(snapshot.store, base), unknown)
            found |= dict(zip((base.key for base in unknown), footers, strict=True))
    return found


def _committed_schema(snapshot: TableSnapshot, requested: str) -> pa.Schema | None:
    timeline = snapshot.timeline
    instant = next((i for i in timeline.writes() if i.requested == requested), None)
    text = None if instant is None else timeline.commit(instant).schema_json
    if not text:
        return None
    where = f"{snapshot.store.uri} (commit {requested})"
    return with_meta(arrow_schema(parse_schema(text, where=where), where=where))


def readable_natively(
    slices: Sequence[FileSlice], schema: pa.Schema, snapshot: TableSnapshot
) -> set[str]:
    """Return the keys of base files that Spark's reader reads with the same result."""
    bases = [
        file_slice.base
        for file_slice in slices
        if file_slice.base is not None and not file_slice.logs and not _is_glob(file_slice.base.key)
    ]
    same: dict[int, bool] = {}
    chosen = set()
    for key, written in _file_schemas(snapshot, bases).items():
        # Many files share a schema object: compare each once.
        if id(written) not in same:
            same[id(written)] = _reads_all_as(written, schema)
        if same[id(written)]:
            chosen.add(key)
    return chosen


def native_frame(
    spark: SparkSession, root: str, keys: Sequence[str], schema: pa.Schema
) -> DataFrame:
    """Return the rows of these files with the table's schema, read by Spark."""
    reader = (
        spark.read.schema(spark_schema(schema))
        .option("mergeSchema", "false")
        .option("datetimeRebaseMode", "CORRECTED")
        .option("int96RebaseMode", "CORRECTED")
        # A missing or corrupt file is an error, whatever the session settings are.
        .option("ignoreMissingFiles", "false")
        .option("ignoreCorruptFiles", "false")
    )
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    with session_setting(spark, name, _LISTED_BY_DRIVER_MAX):
        return reader.parquet(*[f"{root}/{key}" for key in keys])


def _is_glob(path: str) -> bool:
    """Return whether Spark would interpret a path as a glob pattern; it has no escape for that."""
    return any(letter in _GLOB_CHARACTERS for letter in path)


def _read_file_schema(store: ObjectStore, base: BaseFile) -> pa.Schema:
    with pa.PythonFile(ObjectFile(store, base.key, base.size_bytes), mode="r") as source:
        return pq.read_schema(source)


def _reads_all_as(written: pa.Schema, target: pa.Schema) -> bool:
    for column in target:
        index = written.get_field_index(column.name)
        if index >= 0 and not _reads_as(written.field(index).type, column.type):
            return False
    return True


def _reads_as(written: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Spark reads a `written` column as `target` with the same result."""
    if _without_names(written).equals(_without_names(target)):
        return True
    # Spark treats evolved nested types differently: a struct without any of the requested fields
    # would be null. So only primitive numbers may differ.
    return bool(
        (pt.is_int32(written) and pt.is_int64(target))
        or (pt.is_float32(written) and pt.is_float64(target))
    )


def _without_names(kind: pa.DataType) -> pa.DataType:
    """Return the type without names and nullability of inner fields."""
    if pt.is_struct(kind):
        return pa.struct([pa.field(part.name, _without_names(part.type)) for part in kind])
    if pt.is_list(kind) or pt.is_large_list(kind):
        return pa.list_(_without_names(kind.value_type))
    if pt.is_map(kind):
        return pa.map_(_without_names(kind.key_type), _without_names(kind.item_type))
    return kind


TASK_BYTES: Final = 128 * 1024 * 1024
"""The input size of a task that reads small slices; the same as Spark's default."""

MergeFrame = Callable[[SparkSession, "SliceScan", TableProperties], DataFrame | None]
"""Returns a frame of slices with log files; None falls back to reading in Python workers."""


@dataclass(frozen=True, slots=True)
class SliceScan:
    """What Python workers read: the slices of each task, and how."""

    address: StoreAddress
    tasks: tuple[tuple[FileSlice, ...], ...]
    schema: pa.Schema
    rule: MergeRule
    columns: tuple[str, ...]
    as_of: str | None
    commit_times: frozenset[str] | None
    row_filter: RowFilter | None = None

    def rows(self, task: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task's slices, in the types that Spark expects."""
        target = worker_schema(pa.schema([self.schema.field(name) for name in self.columns]))
        store = self.address.open()
        for file_slice in self.tasks[task]:
            batches = slice_batches(
                store,
                file_slice,
                self.schema,
                rule=self.rule,
                columns=self.columns,
                as_of=self.as_of,
                commit_times=self.commit_times,
                batch_rows=BATCH_ROWS,
                row_filter=self.row_filter,
            )
            for rows in batches:
                plain = conform(rows, target, where=f"{store.uri}/{file_slice.file_id}")
                yield from plain.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def read_frame(
    spark: SparkSession,
    snapshot: TableSnapshot,
    scan: Scan,
    address: StoreAddress,
    *,
    native: bool = True,
    merging: MergeFrame | None = None,
) -> DataFrame:
    """Return the rows of a scan as a frame; nothing is read before an action.

    `merging` may provide the frame of slices with log files.

    Guarantees: every action on the frame sees the writes in the snapshot. Does not guarantee: that
    their files remain until then; a clean may delete old ones. Raises: `Unsupported` for a column
    without a Spark type.
    """
    columns = tuple(scan.columns if scan.columns is not None else scan.schema.names)
    chosen = pa.schema([scan.schema.field(name) for name in columns])
    root = hadoop_root(spark, address.uri) if native else None
    plain = set() if root is None else readable_natively(scan.slices, scan.schema, snapshot)
    frames = []
    if root is not None and plain:
        extra = [] if scan.commit_times is None or COMMIT_TIME in columns else [COMMIT_TIME]
        target = pa.schema([*chosen, *(scan.schema.field(name) for name in extra)])
        rows = native_frame(spark, root, sorted(plain), target)
        if scan.commit_times is not None:
            rows = rows.where(F.col(COMMIT_TIME).isin(sorted(scan.commit_times)))
        frames.append(rows.select(*quote_columns(columns)))
    merged = [p for p in scan.slices if p.logs or p.base is None or p.base.key not in plain]
    if merged or not frames:
        tasks = pack_tasks(merged, tasks_min=spark.sparkContext.defaultParallelism)
        times = None if scan.commit_times is None else frozenset(scan.commit_times)
        reading = SliceScan(address, tasks, scan.schema, scan.rule, columns, scan.as_of, times)
        frame = None if merging is None else merging(spark, reading, snapshot.properties)
        frames.append(_worker_frame(spark, reading) if frame is None else frame)
    return frames[0] if len(frames) == 1 else frames[0].union(frames[1])


def pack_tasks(
    slices: Sequence[FileSlice], *, tasks_min: int, task_bytes: int = TASK_BYTES
) -> tuple[tuple[FileSlice, ...], ...]:
    """Group slices into tasks of similar size: many small ones together, a large one alone.

    The result is deterministic. There are at least `tasks_min` tasks if there are as many slices,
    so that all cores are used.
    """
    by_size = sorted(slices, key=lambda each: (-each.size_bytes, each.partition, each.file_id))
    total = sum(file_slice.size_bytes for file_slice in by_size)
    count = max(min(tasks_min, len(by_size)), min(len(by_size), -(-total // task_bytes)))
    bins: list[list[FileSlice]] = [[] for _ in range(count)]
    filled = [0] * count
    for file_slice in by_size:
        smallest = filled.index(min(filled))
        bins[smallest].append(file_slice)
        filled[smallest] += file_slice.size_bytes + 1
    return tuple(tuple(each) for each in bins)


def _worker_frame(spark: SparkSession, reading: SliceScan) -> DataFrame:
    tasks = reading.tasks
    schema = spark_schema(pa.schema([reading.schema.field(name) for name in reading.columns]))
    numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    return numbers.mapInArrow(_reader(reading), schema)


def _reader(reading: SliceScan) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def rows(numbers: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in numbers:
            for task in batch.column(0).to_pylist():
                yield from reading.rows(task)

    return rows


def quote_columns(columns: Iterable[str]) -> list[str]:
    """Return column names quoted for Spark."""
    return ["`" + name.replace("`", "``") + "`" for name in columns]
