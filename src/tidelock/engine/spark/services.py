"""Table services on Spark: each task runs in a Python worker, which reads and writes the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from tidelock.engine.contract import Doomed
from tidelock.engine.local import default_workers
from tidelock.engine.service import (
    LocalServices,
    ServiceTask,
    Watch,
    run_service_task,
    task_bytes,
)
from tidelock.engine.spark.job import outcome_of, run_job, sent, value_of
from tidelock.engine.spark.session import is_local_master
from tidelock.engine.task import by_slot
from tidelock.kernel.context import WriteContext
from tidelock.kernel.results import FileResult
from tidelock.store.address import StoreAddress

POOL: Final = "tidelock-services"
"""Spark's pool for services; with `spark.scheduler.mode=FAIR` writes and they share the cores."""

DRIVER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Stored bytes. Less is done in the driver: a Spark job costs more than the work itself."""

_POOL_PROPERTY: Final = "spark.scheduler.pool"
_TASKS_MAX: Final = 4_000


@dataclass(frozen=True, slots=True)
class SparkServices:
    """Runs tasks in the workers of a session.

    Where Spark runs in the driver's own machine, tasks run in threads of the driver: its workers
    would be other processes on the same cores. `driver_bytes_max` says otherwise.
    """

    spark: SparkSession
    address: StoreAddress
    driver_bytes_max: int | None = None
    watch: Watch = field(default_factory=Watch)

    def serve(
        self, tasks: Sequence[ServiceTask], context: WriteContext, *, doomed: Doomed | None = None
    ) -> tuple[FileResult, ...]:
        """Run the tasks of one service as one Spark job, which is cancelled once it is in vain."""
        total = sum(task_bytes(task) for task in tasks)
        if not tasks or self._fits_driver(total):
            here = LocalServices(self.address.open(), default_workers(), self.watch)
            return here.serve(tasks, context, doomed=doomed)
        self.watch.progress(0, total)
        # The longest first: a task that begins last should not be the one that all wait for.
        ordered = sorted(tasks, key=task_bytes, reverse=True)
        spread = self.spark.sparkContext.parallelize(ordered, min(len(ordered), _TASKS_MAX))
        with _in_pool(self.spark):
            found = run_job(
                self.spark,
                f"{len(tasks)} tasks of {self.address.uri} ({context.instant})",
                spread.map(_runner(self.address, context)).collect,
                group=f"tidelock services {self.address.uri} {context.instant}",
                doomed=lambda: self.watch.stopped() or (doomed() if doomed is not None else None),
            )
        results = by_slot([value_of(each) for each in found])
        self.watch.progress(total, total)
        return results

    def _fits_driver(self, total: int) -> bool:
        if self.driver_bytes_max is not None:
            return total <= self.driver_bytes_max
        return is_local_master(self.spark) or total <= DRIVER_BYTES_MAX


@contextmanager
def _in_pool(spark: SparkSession) -> Iterator[None]:
    """Let the jobs of this thread run in the pool of services."""
    context = spark.sparkContext
    before = context.getLocalProperty(_POOL_PROPERTY)
    context.setLocalProperty(_POOL_PROPERTY, POOL)
    try:
        yield
    finally:
        context.setLocalProperty(_POOL_PROPERTY, before)  # type: ignore[arg-type]  # None removes it


def _runner(address: StoreAddress, context: WriteContext) -> Callable[[ServiceTask], bytes]:
    def run(task: ServiceTask) -> bytes:
        return sent(
            outcome_of(lambda: (task.slot, run_service_task(address.open(), context, task)))
        )

    return run
