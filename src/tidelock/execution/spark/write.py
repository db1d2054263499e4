"""The Spark write engine: batches that fit the driver are placed there, others in workers.

A batch of moderate size is collected, prepared and tagged in the driver by the local engine, and
only the work on file groups is distributed: that takes most of the time, since file groups are many
times larger than the rows written to them. A larger batch stays in the workers
(`tidelock.execution.spark.large_write`). Both give the same table.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyarrow import types as pt
from pyspark.sql import DataFrame, SparkSession

from tidelock.core.errors import InvalidInput
from tidelock.execution.engine import (
    IsCancelled,
    PreparedRows,
    PrepareRule,
    TaggedRows,
    TagRule,
    results_by_slot,
    rows_by_task,
    run_task,
)
from tidelock.execution.filegroup.context import FileResult, WriteContext
from tidelock.execution.local.write import LocalWriter
from tidelock.execution.spark.arrow_column import from_ipc, to_ipc
from tidelock.execution.spark.frame_size import (
    estimated_bytes,
    is_expected_small,
    is_local,
    plan_of,
    record_size,
)
from tidelock.execution.spark.job import decode_outcome, run_job, run_outcome
from tidelock.execution.spark.large_write import LargeRows, LargeWriter
from tidelock.execution.spark.session import is_local_master
from tidelock.execution.spark.types import arrow_schema_of
from tidelock.execution.write_plan import GroupTask, WritePlan
from tidelock.hudi.schema import META_COLUMNS
from tidelock.storage.uri import StoreAddress

_FORMAT: Final = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_RELATION: Final = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
_PATH_OPTIONS: Final = frozenset({"path", "paths"})
"""Options that select files; any other may change how they are read."""

_LEGACY_CALENDAR_KEYS: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Footer keys of files with legacy calendar dates, which Spark rebases on read."""

_FILES_MAX: Final = 1_000


def local_files(frame: DataFrame) -> tuple[str, ...] | None:
    """Return the files of a frame that only reads local Parquet files; None for other frames."""
    plan = plan_of(frame)
    if str(plan.getClass().getSimpleName()) != "LogicalRelation":
        return None
    relation = plan.relation()
    if str(relation.getClass().getName()) != _RELATION:
        return None
    if str(relation.fileFormat().getClass().getName()) != _FORMAT:
        return None
    if not relation.partitionSchema().isEmpty() or not _has_only_paths(relation):
        return None
    uris = [urlsplit(str(uri)) for uri in relation.location().inputFiles()]
    if not 0 < len(uris) <= _FILES_MAX or any(uri.scheme != "file" for uri in uris):
        return None
    return tuple(unquote(uri.path) for uri in uris)


def read_local_table(frame: DataFrame, size_bytes_max: int) -> pa.Table | None:
    """Return the rows of a frame of local files; None for other frames, or too many rows.

    Any error is left to Spark to report.
    """
    try:
        files = local_files(frame) if size_bytes_max else None
        if files is None:
            return None
        target = arrow_schema_of(frame.schema)
        footers = [pq.read_metadata(file) for file in files]
        if sum(map(_size_bytes, footers)) > size_bytes_max:
            return None
        if not all(_reads_like_spark(footer, target) for footer in footers):
            return None
        tables = [pq.read_table(file, columns=target.names, partitioning=None) for file in files]
        return pa.concat_tables([table.cast(target) for table in tables])
    except (OSError, pa.ArrowException, Py4JError):
        return None


def _has_only_paths(relation: Any) -> bool:
    options = relation.options()
    names = options.keySet().toSeq()
    return all(str(names.apply(i)) in _PATH_OPTIONS for i in range(names.length()))


def _size_bytes(footer: pq.FileMetaData) -> int:
    """Return the uncompressed size of the rows according to the footer."""
    return sum(int(footer.row_group(i).total_byte_size) for i in range(footer.num_row_groups))


def _reads_like_spark(footer: pq.FileMetaData, target: pa.Schema) -> bool:
    """Return whether Arrow reads a file with the same result as Spark."""
    if any(mark in (footer.metadata or {}) for mark in _LEGACY_CALENDAR_KEYS):
        return False
    found = footer.schema.to_arrow_schema()
    # Spark ignores the case of names; leave files that rely on it to Spark.
    if len(set(found.names)) < len(found.names) or set(found.names) != set(target.names):
        return False
    return all(_same_type(found.field(field.name).type, field.type) for field in target)


def _same_type(found: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a type is read unchanged. Timestamps and nested types are left to Spark."""
    if pt.is_nested(target) or pt.is_timestamp(target):
        return False
    if pt.is_large_string(found) or pt.is_dictionary(found):
        return bool(pt.is_string(target))
    return bool(found.equals(target))


COLLECTED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Frames with a smaller estimated size are collected; larger ones are measured first."""

DRIVER_BYTES_MAX: Final = 256 * 1024 * 1024
"""The maximum size, as Arrow, of a batch that is collected in the driver."""

DRIVER_WORK_BYTES_MAX: Final = 32 * 1024 * 1024
"""Smaller writes run in the driver: a Spark job would cost more than the work.

With a local master all collected batches do, since workers are processes on the same cores, and
every row would have to be copied to them.
"""

FILES_BYTES_MAX: Final = 1024 * 1024 * 1024
FILES_SHARE: Final = 16
"""With a local master, files are read by the driver up to this uncompressed size, and up to this
fraction of the machine's memory: rows take a few times as much during a write."""

TASKS_MAX: Final = 4_000
"""The maximum number of Spark tasks of a job; more file groups share tasks."""


@dataclass(frozen=True, slots=True)
class SparkWriter:
    """Writes to one table from a Spark driver.

    Accepts Arrow tables as well, like the local engine.
    """

    spark: SparkSession
    address: StoreAddress
    collected_bytes_max: int = COLLECTED_BYTES_MAX
    driver_bytes_max: int = DRIVER_BYTES_MAX
    driver_work_bytes_max: int | None = None
    files_bytes_max: int = FILES_BYTES_MAX
    retries_tasks: bool = field(default=True, init=False)
    """Spark retries failed tasks, and may run slow ones twice."""
    local: LocalWriter = field(init=False)
    large: LargeWriter = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "local", LocalWriter(self.address.open()))
        object.__setattr__(self, "large", LargeWriter(self.spark, self.address))

    def schema(self, data: object) -> pa.Schema:
        """Return the Arrow schema of a frame's user columns."""
        if not isinstance(data, DataFrame):
            return self.local.schema(data)
        return arrow_schema_of(_without_meta(data).schema)

    def prepare(self, data: object, rule: PrepareRule) -> PreparedRows:
        """Prepare the rows of a frame: in the driver if they fit, otherwise in the workers."""
        if not isinstance(data, DataFrame):
            return self.local.prepare(data, rule)
        frame = _without_meta(data)
        local_table = read_local_table(frame, self._files_bytes_max)
        if local_table is not None:
            record_size(local_table.nbytes)
            return self.local.prepare(local_table, rule)
        size = estimated_bytes(frame)
        small = is_expected_small() if size is None else size <= self.collected_bytes_max
        if small or is_local(frame):
            table = run_job(self.spark, f"rows for {rule.where}", frame.toArrow, group=self._group)
            record_size(table.nbytes)
            return self.local.prepare(table, rule)
        prepared = self.large.prepare(frame, rule)
        rows = prepared.rows
        assert isinstance(rows, LargeRows)
        if not rows.raw:
            record_size(rows.size_bytes)
        if rows.fits(self.driver_bytes_max):
            try:
                return self.large.collect(rows)
            finally:
                self.large.release(prepared)
        return prepared

    def tag(self, prepared: PreparedRows, rule: TagRule) -> TaggedRows:
        """Return the rows with the file groups that the index finds."""
        if isinstance(prepared.rows, LargeRows):
            return self.large.tag(prepared, rule)
        return self.local.tag(prepared, rule)

    def write(
        self,
        tagged: TaggedRows,
        plan: WritePlan,
        context: WriteContext,
        *,
        is_cancelled: IsCancelled | None = None,
    ) -> tuple[FileResult, ...]:
        """Write every file group of the plan: each is a task of one Spark job.

        `is_cancelled` is polled while the job runs; once it returns a reason, the job is cancelled.
        Raises: `Conflict` then.
        """
        if not isinstance(tagged.rows, pa.Table):
            return self.large.write(tagged, plan, context, is_cancelled=is_cancelled)
        bytes_max = self._driver_work_bytes_max
        if bytes_max is None:
            return self.local.write(tagged, plan, context)
        work = list(rows_by_task(tagged.rows, plan))
        if sum(_work_bytes(task, rows) for task, rows in work) <= bytes_max:
            return self.local.write(tagged, plan, context)
        return self._spread(work, context, is_cancelled)

    def release(self, prepared: PreparedRows) -> None:
        """Unpersist the rows of a large batch."""
        if isinstance(prepared.rows, LargeRows):
            self.large.release(prepared)

    @property
    def _files_bytes_max(self) -> int:
        """The maximum size of local files that the driver reads itself."""
        if not is_local_master(self.spark):
            return 0
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min(self.files_bytes_max, memory // FILES_SHARE)

    @property
    def _group(self) -> str:
        return f"tidelock {self.address.uri}"

    @property
    def _driver_work_bytes_max(self) -> int | None:
        """The maximum work done in the driver; None for no limit."""
        if self.driver_work_bytes_max is not None:
            return self.driver_work_bytes_max
        return None if is_local_master(self.spark) else DRIVER_WORK_BYTES_MAX

    def _spread(
        self,
        work: Sequence[tuple[GroupTask, pa.Table]],
        context: WriteContext,
        is_cancelled: IsCancelled | None,
    ) -> tuple[FileResult, ...]:
        # The largest first, so that no large task starts last.
        ordered = sorted(work, key=lambda part: -_work_bytes(*part))
        items = [(task, to_ipc(rows)) for task, rows in ordered]
        tasks = self.spark.sparkContext.parallelize(items, min(len(items), TASKS_MAX))
        found = run_job(
            self.spark,
            f"{len(items)} file groups of {self.address.uri} ({context.instant})",
            tasks.map(_runner(self.address, context)).collect,
            group=f"{self._group} {context.instant}",
            is_cancelled=is_cancelled,
        )
        return results_by_slot([decode_outcome(each) for each in found])


def _runner(
    address: StoreAddress, context: WriteContext
) -> Callable[[tuple[GroupTask, bytes]], bytes]:
    def run(item: tuple[GroupTask, bytes]) -> bytes:
        task, payload = item
        return pickle.dumps(
            run_outcome(
                lambda: (task.slot, run_task(address.open(), context, task, from_ipc(payload)))
            )
        )

    return run


def _work_bytes(task: GroupTask, rows: pa.Table) -> int:
    """Return the size of a task's work: stored rows are compressed, new ones are not."""
    stored = 0
    if task.file_slice is not None and task.kind not in ("APPEND", "REPLACE"):
        stored = task.file_slice.size_bytes
    return int(rows.nbytes) + 4 * stored


def _without_meta(frame: DataFrame) -> DataFrame:
    """Return the user columns: frames read from a table also have meta columns."""
    duplicates = {name for name in frame.columns if frame.columns.count(name) > 1}
    if duplicates:
        raise InvalidInput(f"duplicate column {min(duplicates)!r}", hint="rename one of them")
    meta = [name for name in META_COLUMNS if name in frame.columns]
    return frame.drop(*meta) if meta else frame
