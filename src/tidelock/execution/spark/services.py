"""Table services on Spark: each task runs in a Python worker."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from tidelock.execution.engine import IsCancelled, results_by_slot
from tidelock.execution.filegroup.context import FileResult, WriteContext
from tidelock.execution.local.read import default_workers
from tidelock.execution.service_tasks import (
    LocalServices,
    ProgressListener,
    ServiceTask,
    run_service_task,
    task_bytes,
)
from tidelock.execution.spark.job import decode_outcome, run_job, run_outcome
from tidelock.execution.spark.session import is_local_master
from tidelock.storage.uri import StoreAddress

POOL: Final = "tidelock-services"
"""The scheduler pool of services; with `spark.scheduler.mode=FAIR` they share cores with writes."""

DRIVER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Stored bytes; less work runs in the driver, because a Spark job would cost more."""

_POOL_PROPERTY: Final = "spark.scheduler.pool"
_TASKS_MAX: Final = 4_000


@dataclass(frozen=True, slots=True)
class SparkServices:
    """Runs tasks in the workers of a session.

    With a local master, tasks run in threads of the driver, since workers would be processes on the
    same cores; `driver_bytes_max` overrides this.
    """

    spark: SparkSession
    address: StoreAddress
    driver_bytes_max: int | None = None
    listener: ProgressListener = field(default_factory=ProgressListener)

    def run(
        self,
        tasks: Sequence[ServiceTask],
        context: WriteContext,
        *,
        is_cancelled: IsCancelled | None = None,
    ) -> tuple[FileResult, ...]:
        """Run the tasks of one service as one Spark job, which can be cancelled."""
        total = sum(task_bytes(task) for task in tasks)
        if not tasks or self._fits_driver(total):
            here = LocalServices(self.address.open(), default_workers(), self.listener)
            return here.run(tasks, context, is_cancelled=is_cancelled)
        self.listener.progress(0, total)
        # The largest first, so that no large task starts last.
        ordered = sorted(tasks, key=task_bytes, reverse=True)
        spread = self.spark.sparkContext.parallelize(ordered, min(len(ordered), _TASKS_MAX))
        with _scheduler_pool(self.spark):
            found = run_job(
                self.spark,
                f"{len(tasks)} tasks of {self.address.uri} ({context.instant})",
                spread.map(_runner(self.address, context)).collect,
                group=f"tidelock services {self.address.uri} {context.instant}",
                is_cancelled=lambda: (
                    self.listener.stop_reason()
                    or (is_cancelled() if is_cancelled is not None else None)
                ),
            )
        results = results_by_slot([decode_outcome(each) for each in found])
        self.listener.progress(total, total)
        return results

    def _fits_driver(self, total: int) -> bool:
        if self.driver_bytes_max is not None:
            return total <= self.driver_bytes_max
        return is_local_master(self.spark) or total <= DRIVER_BYTES_MAX


@contextmanager
def _scheduler_pool(spark: SparkSession) -> Iterator[None]:
    """Run the jobs of this thread in the pool of services."""
    context = spark.sparkContext
    before = context.getLocalProperty(_POOL_PROPERTY)
    context.setLocalProperty(_POOL_PROPERTY, POOL)
    try:
        yield
    finally:
        context.setLocalProperty(_POOL_PROPERTY, before)  # type: ignore[arg-type]  # None removes it


def _runner(address: StoreAddress, context: WriteContext) -> Callable[[ServiceTask], bytes]:
    def run(task: ServiceTask) -> bytes:
        return pickle.dumps(
            run_outcome(lambda: (task.slot, run_service_task(address.open(), context, task)))
        )

    return run
