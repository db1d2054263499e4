"""The work of table services on file groups: tasks that bring no rows, and who runs them.

A task is a value that goes to any process. Names of files follow from it, so running it twice makes
the file that is there already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

from tidelock.base.errors import Conflict
from tidelock.base.runtime import worker_pool
from tidelock.engine.contract import Doomed
from tidelock.engine.local import default_workers
from tidelock.engine.memory import give_back
from tidelock.engine.task import by_slot
from tidelock.kernel.clustering import cluster_base
from tidelock.kernel.condense import condense_logs
from tidelock.kernel.context import WriteContext
from tidelock.kernel.curve import Layout
from tidelock.kernel.results import FileResult
from tidelock.kernel.sorting import SORTED_BYTES_MAX
from tidelock.kernel.splice import GROUP_BYTES_MIN
from tidelock.kernel.write import rewrite_base
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A slice becomes the next base file of its group: a compaction."""

    slot: int
    piece: FileSlice

    @property
    def pieces(self) -> tuple[FileSlice, ...]:
        """What is read."""
        return (self.piece,)


@dataclass(frozen=True, slots=True)
class Condense:
    """The log files of a slice become one: a log compaction."""

    slot: int
    piece: FileSlice

    @property
    def pieces(self) -> tuple[FileSlice, ...]:
        """What is read."""
        return (self.piece,)


@dataclass(frozen=True, slots=True)
class Regroup:
    """Slices of one partition become other groups, the first of which is `file_id`: a clustering.

    Rows are sorted by `sort_by`; without any, row groups of `copied_bytes_min` are copied.
    """

    slot: int
    pieces: tuple[FileSlice, ...]
    file_id: str
    sort_by: tuple[str, ...] = ()
    layout: Layout = Layout.LINEAR
    copied_bytes_min: int = GROUP_BYTES_MIN


ServiceTask = Rewrite | Condense | Regroup

MEMORY_BYTES_MAX: Final = 1024 * 1024 * 1024
"""What the tasks that run at once hold in memory together; one that holds more runs alone."""

_UNPACKED: Final = 4


def task_bytes(task: ServiceTask) -> int:
    """Return what a task reads, as it is stored."""
    return sum(piece.size_bytes for piece in task.pieces)


def task_memory(task: ServiceTask) -> int:
    """Return about what a task holds in memory: log files, and rows that are sorted.

    Rows of base files stream. Stored rows are a few times as large in memory.
    """
    logs = sum(log.size_bytes for piece in task.pieces for log in piece.logs)
    held = _UNPACKED * logs
    if isinstance(task, Regroup) and task.sort_by:
        held += min(_UNPACKED * task_bytes(task), SORTED_BYTES_MAX)
    return held


def run_service_task(
    store: ObjectStore, context: WriteContext, task: ServiceTask
) -> tuple[FileResult, ...]:
    """Carry out one task and return what was written. It may be run again, or twice.

    Raises: what reading and uploading raise, each naming the object.
    """
    match task:
        case Rewrite(slot, piece):
            return (rewrite_base(store, context, piece, slot=slot),)
        case Condense(slot, piece):
            return (condense_logs(store, context, piece, slot=slot),)
        case Regroup():
            return cluster_base(
                store,
                context,
                task.pieces,
                file_id=task.file_id,
                slot=task.slot,
                sort_by=task.sort_by,
                layout=task.layout,
                group_bytes_min=task.copied_bytes_min,
            )
        case other:
            assert_never(other)


def _nothing(_done: int, _total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Who looks on: `progress` is told the bytes that are done, of how many; `stopped` why to stop.

    Both may be called from the thread that runs the tasks.
    """

    progress: Callable[[int, int], None] = _nothing
    stopped: Callable[[], str | None] = field(default=lambda: None)


class ServiceEngine(Protocol):
    """Runs the tasks of a table service. It is made for one table's store."""

    def serve(
        self, tasks: Sequence[ServiceTask], context: WriteContext, *, doomed: Doomed | None = None
    ) -> tuple[FileResult, ...]:
        """Run all tasks; results are by slot.

        `doomed` is asked now and then. Raises: `Conflict` once it says why the work is in vain.
        """
        ...


@dataclass(frozen=True, slots=True)
class LocalServices:
    """Runs tasks in up to `workers` threads of this process."""

    store: ObjectStore
    workers: int = field(default_factory=default_workers)
    watch: Watch = field(default_factory=Watch)

    def serve(
        self, tasks: Sequence[ServiceTask], context: WriteContext, *, doomed: Doomed | None = None
    ) -> tuple[FileResult, ...]:
        """Run the tasks, the largest first; `doomed` is asked between them."""
        waiting = deque(sorted(tasks, key=task_bytes, reverse=True))
        total = sum(task_bytes(task) for task in tasks)
        done: list[tuple[int, tuple[FileResult, ...]]] = []
        running: dict[Future[tuple[FileResult, ...]], ServiceTask] = {}
        finished = 0
        self.watch.progress(finished, total)
        with worker_pool("tidelock-service", max(1, min(self.workers, len(tasks)))) as pool:
            while waiting or running:
                while waiting and self._has_room(running.values(), waiting[0]):
                    task = waiting.popleft()
                    running[pool.submit(_run_lean, self.store, context, task)] = task
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    task = running.pop(future)
                    done.append((task.slot, future.result()))
                    finished += task_bytes(task)
                    self.watch.progress(finished, total)
                if waiting or running:
                    check_worth(context, self.watch, doomed)
        give_back()
        return by_slot(done)

    def _has_room(self, running: Collection[ServiceTask], task: ServiceTask) -> bool:
        """Tell whether a task may begin beside others; one alone always may."""
        if not running:
            return True
        held = sum(task_memory(each) for each in running)
        return len(running) < self.workers and held + task_memory(task) <= MEMORY_BYTES_MAX


def _run_lean(
    store: ObjectStore, context: WriteContext, task: ServiceTask
) -> tuple[FileResult, ...]:
    try:
        return run_service_task(store, context, task)
    finally:
        give_back()


def check_worth(context: WriteContext, watch: Watch, doomed: Doomed | None) -> None:
    """Raise `Conflict` if somebody says that the work need not go on."""
    reason = watch.stopped() or (doomed() if doomed is not None else None)
    if reason is not None:
        raise Conflict(
            f"the work on {context.instant} was stopped: {reason}",
            hint="run the service again",
        )
