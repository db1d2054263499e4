"""Tasks of table services on file groups, and the engines that run them.

A task is a value that can be sent to any process. File names are derived from it, so running it
twice gives the same file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

from tidelock.core.errors import Conflict
from tidelock.core.threads import worker_pool
from tidelock.execution.engine import IsCancelled, release_memory, results_by_slot
from tidelock.execution.filegroup.clustering import SORTED_BYTES_MAX, LayoutStrategy, cluster_base
from tidelock.execution.filegroup.context import FileResult, WriteContext
from tidelock.execution.filegroup.log_files import compact_logs
from tidelock.execution.filegroup.parquet_splice import GROUP_BYTES_MIN
from tidelock.execution.filegroup.write import rewrite_base
from tidelock.execution.local.read import default_workers
from tidelock.hudi.file_groups import FileSlice
from tidelock.storage.contract import ObjectStore


@dataclass(frozen=True, slots=True)
class _SliceTask:
    slot: int
    file_slice: FileSlice

    @property
    def file_slices(self) -> tuple[FileSlice, ...]:
        """The slices to read."""
        return (self.file_slice,)


class CompactSlice(_SliceTask):
    """Compaction: a slice becomes the next base file of its group."""


class CompactLogs(_SliceTask):
    """Log compaction: the log files of a slice become one."""


@dataclass(frozen=True, slots=True)
class ClusterSlices:
    """Clustering: slices of one partition become new groups, beginning with `file_id`.

    Rows are sorted by `sort_by`; without it, row groups of at least `copied_bytes_min` are copied.
    """

    slot: int
    file_slices: tuple[FileSlice, ...]
    file_id: str
    sort_by: tuple[str, ...] = ()
    layout: LayoutStrategy = LayoutStrategy.LINEAR
    copied_bytes_min: int = GROUP_BYTES_MIN


ServiceTask = CompactSlice | CompactLogs | ClusterSlices

MEMORY_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The memory limit of concurrent tasks; a task that exceeds it runs by itself."""

_MEMORY_RATIO: Final = 4


def task_bytes(task: ServiceTask) -> int:
    """Return the stored size of a task's input."""
    return sum(file_slice.size_bytes for file_slice in task.file_slices)


def task_memory(task: ServiceTask) -> int:
    """Return the estimated memory of a task: log files, and rows that are sorted.

    Rows of base files stream. Stored rows are a few times larger in memory.
    """
    logs = sum(log.size_bytes for file_slice in task.file_slices for log in file_slice.logs)
    memory = _MEMORY_RATIO * logs
    if isinstance(task, ClusterSlices) and task.sort_by:
        memory += min(_MEMORY_RATIO * task_bytes(task), SORTED_BYTES_MAX)
    return memory


def run_service_task(
    store: ObjectStore, context: WriteContext, task: ServiceTask
) -> tuple[FileResult, ...]:
    """Run one task and return the results. May run repeatedly and concurrently.

    Raises: as reading and uploading, each naming the object.
    """
    match task:
        case CompactSlice(slot, file_slice):
            return (rewrite_base(store, context, file_slice, slot=slot),)
        case CompactLogs(slot, file_slice):
            return (compact_logs(store, context, file_slice, slot=slot),)
        case ClusterSlices():
            return cluster_base(
                store,
                context,
                task.file_slices,
                file_id=task.file_id,
                slot=task.slot,
                sort_by=task.sort_by,
                layout=task.layout,
                group_bytes_min=task.copied_bytes_min,
            )
        case other:
            assert_never(other)


@dataclass(frozen=True, slots=True)
class ProgressListener:
    """Observes tasks: `progress` gets the finished and total bytes, `stop_reason` may end the work.

    Both may be called from the thread that runs the tasks.
    """

    progress: Callable[[int, int], None] = field(default=lambda _done, _total: None)
    stop_reason: Callable[[], str | None] = field(default=lambda: None)


class ServiceEngine(Protocol):
    """Runs the tasks of table services on one table."""

    def run(
        self,
        tasks: Sequence[ServiceTask],
        context: WriteContext,
        *,
        is_cancelled: IsCancelled | None = None,
    ) -> tuple[FileResult, ...]:
        """Run all tasks; results are ordered by slot.

        Raises: `Conflict` once `is_cancelled`, which is polled, returns a reason.
        """
        ...


@dataclass(frozen=True, slots=True)
class LocalServices:
    """Runs tasks in up to `workers` threads of this process."""

    store: ObjectStore
    workers: int = field(default_factory=default_workers)
    listener: ProgressListener = field(default_factory=ProgressListener)

    def run(
        self,
        tasks: Sequence[ServiceTask],
        context: WriteContext,
        *,
        is_cancelled: IsCancelled | None = None,
    ) -> tuple[FileResult, ...]:
        """Run the tasks, the largest first; `is_cancelled` is checked between them."""
        waiting = deque(sorted(tasks, key=task_bytes, reverse=True))
        total = sum(task_bytes(task) for task in tasks)
        done: list[tuple[int, tuple[FileResult, ...]]] = []
        running: dict[Future[tuple[FileResult, ...]], ServiceTask] = {}
        finished = 0
        self.listener.progress(finished, total)
        with worker_pool("tidelock-service", max(1, min(self.workers, len(tasks)))) as pool:
            while waiting or running:
                while waiting and self._has_room(running.values(), waiting[0]):
                    task = waiting.popleft()
                    running[pool.submit(_run_and_release, self.store, context, task)] = task
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    task = running.pop(future)
                    done.append((task.slot, future.result()))
                    finished += task_bytes(task)
                    self.listener.progress(finished, total)
                if waiting or running:
                    check_cancelled(context, self.listener, is_cancelled)
        release_memory()
        return results_by_slot(done)

    def _has_room(self, running: Collection[ServiceTask], task: ServiceTask) -> bool:
        """Return whether a task fits next to the running ones; a single task always does."""
        if not running:
            return True
        memory = sum(task_memory(each) for each in running)
        return len(running) < self.workers and memory + task_memory(task) <= MEMORY_BYTES_MAX


def _run_and_release(
    store: ObjectStore, context: WriteContext, task: ServiceTask
) -> tuple[FileResult, ...]:
    try:
        return run_service_task(store, context, task)
    finally:
        release_memory()


def check_cancelled(
    context: WriteContext, listener: ProgressListener, is_cancelled: IsCancelled | None
) -> None:
    """Raise `Conflict` if the listener or `is_cancelled` returns a reason to stop."""
    reason = listener.stop_reason() or (is_cancelled() if is_cancelled is not None else None)
    if reason is not None:
        raise Conflict(
            f"the table service at {context.instant} was stopped: {reason}",
            hint="run the service again",
        )
