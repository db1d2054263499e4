"""The Spark engine's writing half: rows that fit the driver are placed there, others in workers.

A batch of moderate size is collected, prepared and tagged in the driver by the code of the local
engine, and only the work on file groups is spread over the cluster: that is where the time goes,
since a file group is many times larger than what is written to it. A batch that does not fit stays
in the workers from beginning to end (`tidelock.engine.spark.large`). Both make the same table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelock.base.errors import InvalidInput
from tidelock.engine.contract import GroupTask, Prepared, Tagged, TagRule, WritePlan
from tidelock.engine.local_write import LocalWriter
from tidelock.engine.moving import parts
from tidelock.engine.spark.expecting import is_expected_small, remember
from tidelock.engine.spark.files import table_of
from tidelock.engine.spark.job import Doomed, outcome_of, run_job, sent, value_of
from tidelock.engine.spark.large import LargeRows, LargeWriter
from tidelock.engine.spark.parcel import packed, unpacked
from tidelock.engine.spark.schema import arrow_schema_of
from tidelock.engine.spark.session import is_local_master
from tidelock.engine.spark.source import estimated_bytes, is_local
from tidelock.engine.task import by_slot, run_task
from tidelock.kernel.context import WriteContext
from tidelock.kernel.prepare import PrepareRule
from tidelock.kernel.results import FileResult
from tidelock.store.address import StoreAddress
from tidelock.table.schema.meta import META_COLUMNS

COLLECTED_BYTES_MAX: Final = 64 * 1024 * 1024
"""A frame that Spark thinks is smaller is collected at once; a larger one is measured first."""

DRIVER_BYTES_MAX: Final = 256 * 1024 * 1024
"""As Arrow. Larger batches do not come to the driver."""

DRIVER_WORK_BYTES_MAX: Final = 32 * 1024 * 1024
"""Writes that touch less run in the driver: a Spark job costs more than the work itself.

Where Spark runs in the driver's own machine, all that were collected do. Its workers would be other
processes on the same cores, to which every row would have to be carried first.
"""

FILES_BYTES_MAX: Final = 1024 * 1024 * 1024
FILES_SHARE: Final = 16
"""Files on a laptop are read by the driver itself up to this size, as Parquet counts it, and up to
this part of the machine's memory: rows take a few times as much on their way."""

TASKS_MAX: Final = 4_000
"""Tasks of one job; more file groups than these share tasks."""


@dataclass(frozen=True, slots=True)
class SparkWriter:
    """Writes to one table from a Spark driver.

    Arrow tables are taken too, as the local engine takes them.
    """

    spark: SparkSession
    address: StoreAddress
    collected_bytes_max: int = COLLECTED_BYTES_MAX
    driver_bytes_max: int = DRIVER_BYTES_MAX
    driver_work_bytes_max: int | None = None
    files_bytes_max: int = FILES_BYTES_MAX
    local: LocalWriter = field(init=False)
    large: LargeWriter = field(init=False)

    def __post_init__(self) -> None:
        """Make the halves that small and large batches go to."""
        object.__setattr__(self, "local", LocalWriter(self.address.open()))
        object.__setattr__(self, "large", LargeWriter(self.spark, self.address))

    @property
    def tries_twice(self) -> bool:
        """Spark runs a task again that failed, and a slow one beside itself."""
        return True

    def schema(self, data: object) -> pa.Schema:
        """Return the user's columns of a frame, as Arrow sees them."""
        if not isinstance(data, DataFrame):
            return self.local.schema(data)
        return arrow_schema_of(_without_meta(data).schema)

    def prepare(self, data: object, rule: PrepareRule) -> Prepared:
        """Return the rows of a frame, prepared: in the driver if they fit, else in the workers."""
        if not isinstance(data, DataFrame):
            return self.local.prepare(data, rule)
        frame = _without_meta(data)
        here = table_of(frame, self._files_bytes_max)
        if here is not None:
            remember(here.nbytes)
            return self.local.prepare(here, rule)
        size = estimated_bytes(frame)
        small = is_expected_small() if size is None else size <= self.collected_bytes_max
        if small or is_local(frame):
            table = run_job(self.spark, f"rows for {rule.where}", frame.toArrow, group=self._group)
            remember(table.nbytes)
            return self.local.prepare(table, rule)
        kept = self.large.prepare(frame, rule)
        rows = kept.rows
        if isinstance(rows, LargeRows) and not rows.raw:
            remember(rows.size_bytes)
        if isinstance(rows, LargeRows) and rows.fits(self.driver_bytes_max):
            try:
                return self.large.collected(rows)
            finally:
                self.large.release(kept)
        return kept

    def tag(self, prepared: Prepared, rule: TagRule) -> Tagged:
        """Return the rows with the file groups that the index finds."""
        if isinstance(prepared.rows, LargeRows):
            return self.large.tag(prepared, rule)
        return self.local.tag(prepared, rule)

    def write(
        self,
        tagged: Tagged,
        plan: WritePlan,
        context: WriteContext,
        *,
        doomed: Doomed | None = None,
    ) -> tuple[FileResult, ...]:
        """Write every file group of the plan: each is a task of one Spark job.

        `doomed` is asked while the job runs; once it says why the write is in vain, the job is
        cancelled. Raises: `Conflict` then.
        """
        if not isinstance(tagged.rows, pa.Table):
            return self.large.write(tagged, plan, context, doomed=doomed)
        most = self._driver_work_bytes_max
        if most is None:
            return self.local.write(tagged, plan, context)
        work = list(parts(tagged.rows, plan))
        if sum(_work_bytes(task, rows) for task, rows in work) <= most:
            return self.local.write(tagged, plan, context)
        return self._spread(work, context, doomed)

    def release(self, prepared: Prepared) -> None:
        """Let Spark forget the rows that were kept."""
        if isinstance(prepared.rows, LargeRows):
            self.large.release(prepared)

    @property
    def _files_bytes_max(self) -> int:
        """How much of local files is read by the driver itself."""
        if not is_local_master(self.spark):
            return 0
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min(self.files_bytes_max, memory // FILES_SHARE)

    @property
    def _group(self) -> str:
        return f"tidelock {self.address.uri}"

    @property
    def _driver_work_bytes_max(self) -> int | None:
        """How much is written in the driver; None for all."""
        if self.driver_work_bytes_max is not None:
            return self.driver_work_bytes_max
        return None if is_local_master(self.spark) else DRIVER_WORK_BYTES_MAX

    def _spread(
        self,
        work: Sequence[tuple[GroupTask, pa.Table]],
        context: WriteContext,
        doomed: Doomed | None,
    ) -> tuple[FileResult, ...]:
        # The longest first: a task that begins last should not be the one that all wait for.
        ordered = sorted(work, key=lambda part: -_work_bytes(*part))
        items = [(task, packed(rows)) for task, rows in ordered]
        sparks = self.spark.sparkContext
        tasks = sparks.parallelize(items, min(len(items), TASKS_MAX))
        found = run_job(
            self.spark,
            f"{len(items)} file groups of {self.address.uri} ({context.instant})",
            tasks.map(_runner(self.address, context)).collect,
            group=f"{self._group} {context.instant}",
            doomed=doomed,
        )
        return by_slot([value_of(each) for each in found])


def _runner(
    address: StoreAddress, context: WriteContext
) -> Callable[[tuple[GroupTask, bytes]], bytes]:
    def run(item: tuple[GroupTask, bytes]) -> bytes:
        task, payload = item
        return sent(
            outcome_of(
                lambda: (task.slot, run_task(address.open(), context, task, unpacked(payload)))
            )
        )

    return run


def _work_bytes(task: GroupTask, rows: pa.Table) -> int:
    """Return what a task reads and writes: the stored rows are compressed, the others are not."""
    stored = 0
    if task.piece is not None and task.kind not in ("APPEND", "REPLACE"):
        base = task.piece.base
        stored = (base.size_bytes if base else 0) + sum(log.size_bytes for log in task.piece.logs)
    return int(rows.nbytes) + 4 * stored


def _without_meta(frame: DataFrame) -> DataFrame:
    """Return the user's columns: frames read from a table carry its meta columns too."""
    twice = {name for name in frame.columns if frame.columns.count(name) > 1}
    if twice:
        raise InvalidInput(f"the column {min(twice)!r} comes twice", hint="rename one of them")
    own = [name for name in META_COLUMNS if name in frame.columns]
    return frame.drop(*own) if own else frame
