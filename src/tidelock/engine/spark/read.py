"""Reading a table into a Spark frame: Spark's own reader where it can, the kernel elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from tidelock.engine.local import Scan
from tidelock.engine.spark.native import FileSchemas, hadoop_root, native_frame, readable_natively
from tidelock.engine.spark.schema import spark_schema, workable
from tidelock.engine.spark.session import BATCH_ROWS
from tidelock.kernel.filtering import RowFilter
from tidelock.kernel.merge import MergeRule
from tidelock.kernel.read import slice_batches
from tidelock.store.address import StoreAddress
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.properties import TableProperties
from tidelock.table.schema.evolution import conformed
from tidelock.table.schema.meta import COMMIT_TIME
from tidelock.table.snapshot import TableSnapshot

TASK_BYTES: Final = 128 * 1024 * 1024
"""How much of small slices one task reads; Spark gives its own readers as much."""


Merging = Callable[[SparkSession, "SliceReading", TableProperties], DataFrame | None]
"""Makes a frame of slices with log files; None leaves it to the function in a worker."""


@dataclass(frozen=True, slots=True)
class SliceReading:
    """What the kernel reads in Python workers: the slices of each task, and how."""

    address: StoreAddress
    tasks: tuple[tuple[FileSlice, ...], ...]
    schema: pa.Schema
    rule: MergeRule
    columns: tuple[str, ...]
    as_of: str | None
    commit_times: frozenset[str] | None
    passing: RowFilter | None = None

    def rows(self, task: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task's slices, in the types that Spark expects."""
        target = workable(pa.schema([self.schema.field(name) for name in self.columns]))
        store = self.address.open()
        for piece in self.tasks[task]:
            batches = slice_batches(
                store,
                piece,
                self.schema,
                rule=self.rule,
                columns=self.columns,
                as_of=self.as_of,
                commit_times=self.commit_times,
                batch_rows=BATCH_ROWS,
                passing=self.passing,
            )
            for rows in batches:
                plain = conformed(rows, target, where=f"{store.uri}/{piece.file_id}")
                yield from plain.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def frame_of(
    spark: SparkSession,
    snapshot: TableSnapshot,
    scan: Scan,
    address: StoreAddress,
    *,
    native: bool = True,
    merging: Merging | None = None,
) -> DataFrame:
    """Return the rows of a scan as a frame; nothing is read before an action asks for it.

    `merging` makes the frame of slices with log files, where it wants to.

    Guarantees: every action on the frame sees the writes that the snapshot saw. Does not guarantee:
    that their files stay until then; a cleaner may remove old ones.

    Raises: `Unsupported` for a column that Spark has no type for.
    """
    columns = tuple(scan.columns if scan.columns is not None else scan.schema.names)
    chosen = pa.schema([scan.schema.field(name) for name in columns])
    root = hadoop_root(spark, address.uri) if native else None
    plain = (
        set()
        if root is None
        else readable_natively(scan.slices, scan.schema, FileSchemas(snapshot))
    )
    frames = []
    if root is not None and plain:
        extra = [] if scan.commit_times is None or COMMIT_TIME in columns else [COMMIT_TIME]
        wanted = pa.schema([*chosen, *(scan.schema.field(name) for name in extra)])
        rows = native_frame(spark, root, sorted(plain), wanted)
        if scan.commit_times is not None:
            rows = rows.where(F.col(COMMIT_TIME).isin(sorted(scan.commit_times)))
        frames.append(rows.select(*quoted(columns)))
    merged = [p for p in scan.slices if p.logs or p.base is None or p.base.key not in plain]
    if merged or not frames:
        reading = _kernel_reading(spark, scan, address, merged, columns)
        frame = None if merging is None else merging(spark, reading, snapshot.properties)
        frames.append(_kernel_frame(spark, reading) if frame is None else frame)
    return frames[0] if len(frames) == 1 else frames[0].union(frames[1])


def packed(
    slices: Sequence[FileSlice], *, tasks_min: int, task_bytes: int = TASK_BYTES
) -> tuple[tuple[FileSlice, ...], ...]:
    """Return the slices in tasks of like size: many small ones together, a large one alone.

    The same slices give the same tasks. There are at least `tasks_min` where there are as many
    slices, so that every core has work.
    """
    sized = sorted(slices, key=lambda piece: (-size_of(piece), piece.partition, piece.file_id))
    whole = sum(size_of(piece) for piece in sized)
    count = max(min(tasks_min, len(sized)), min(len(sized), -(-whole // task_bytes)))
    bins: list[list[FileSlice]] = [[] for _ in range(count)]
    filled = [0] * count
    for piece in sized:
        least = filled.index(min(filled))
        bins[least].append(piece)
        filled[least] += size_of(piece) + 1
    return tuple(tuple(each) for each in bins)


def _kernel_reading(
    spark: SparkSession,
    scan: Scan,
    address: StoreAddress,
    slices: Sequence[FileSlice],
    columns: tuple[str, ...],
) -> SliceReading:
    tasks = packed(slices, tasks_min=spark.sparkContext.defaultParallelism)
    times = None if scan.commit_times is None else frozenset(scan.commit_times)
    return SliceReading(address, tasks, scan.schema, scan.rule, columns, scan.as_of, times)


def _kernel_frame(spark: SparkSession, reading: SliceReading) -> DataFrame:
    tasks = reading.tasks
    schema = spark_schema(pa.schema([reading.schema.field(name) for name in reading.columns]))
    numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    return numbers.mapInArrow(_reader(reading), schema)


def _reader(
    reading: SliceReading,
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def rows(numbers: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in numbers:
            for task in batch.column(0).to_pylist():
                yield from reading.rows(task)

    return rows


def size_of(piece: FileSlice) -> int:
    """Return how many bytes the files of a slice have."""
    base = 0 if piece.base is None else piece.base.size_bytes
    return base + sum(log.size_bytes for log in piece.logs)


def quoted(columns: Sequence[str]) -> list[str]:
    """Return names as Spark takes them, whatever letters they have."""
    return ["`" + name.replace("`", "``") + "`" for name in columns]
