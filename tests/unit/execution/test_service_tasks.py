"""Tasks of table services: concurrency, order and cancellation."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from tests.unit.execution.filegroup.writing import context
from tests.unit.services.file_slices import piece
from tidelock.core.errors import Conflict
from tidelock.execution import service_tasks
from tidelock.execution.filegroup.clustering import SORTED_BYTES_MAX
from tidelock.execution.service_tasks import (
    ClusterSlices,
    CompactSlice,
    LocalServices,
    ProgressListener,
    ServiceTask,
    task_memory,
)
from tidelock.storage.memory import MemoryStore

AT = "20260101000000009"


def tasks(*logs_mb: float) -> list[ServiceTask]:
    return [CompactSlice(slot, piece(f"g{slot}", logs_mb=(mb,))) for slot, mb in enumerate(logs_mb)]


class Recorded:
    """Runs no task, and records their concurrency and start order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._mutex = threading.Lock()
        self._running = 0
        self.most = 0
        self.order: list[int] = []
        monkeypatch.setattr(service_tasks, "run_service_task", self._run)

    def _run(self, _store: object, _context: object, task: ServiceTask) -> Sequence[object]:
        with self._mutex:
            self._running += 1
            self.most = max(self.most, self._running)
            self.order.append(task.slot)
        with self._mutex:
            self._running -= 1
        return ()


def test_tasks_with_large_memory_do_not_run_concurrently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = Recorded(monkeypatch)
    LocalServices(MemoryStore(), 8).run(tasks(900, 200, 900, 900), context(AT))
    assert (ran.most, sorted(ran.order)) == (1, [0, 1, 2, 3])
    assert ran.order[-1] == 1


def test_sort_memory_is_limited_to_its_buffer() -> None:
    wide = tuple(piece(f"g{i}", size_mb=1000) for i in range(3))
    assert task_memory(ClusterSlices(0, wide, "f-0")) == 0
    assert task_memory(ClusterSlices(0, wide, "f-0", ("a",))) == SORTED_BYTES_MAX


def test_no_further_task_is_started_after_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Recorded(monkeypatch)
    with pytest.raises(Conflict, match="conflicted"):
        LocalServices(MemoryStore(), 1).run(
            tasks(1, 1, 1), context(AT), is_cancelled=lambda: "conflicted"
        )
    assert len(ran.order) == 1


def test_finished_service_is_not_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    Recorded(monkeypatch)
    progress: list[tuple[int, int]] = []
    watch = ProgressListener(lambda *at: progress.append(at), lambda: "closing")
    LocalServices(MemoryStore(), 4, watch).run(tasks(1), context(AT))
    assert progress[-1][0] == progress[-1][1]


def test_error_ends_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(service_tasks, "run_service_task", fails)
    with pytest.raises(ZeroDivisionError):
        LocalServices(MemoryStore(), 2).run(tasks(1, 1, 1), context(AT))


def test_every_thread_releases_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_back: list[str] = []
    ran = Recorded(monkeypatch)
    monkeypatch.setattr(
        service_tasks, "release_memory", lambda: given_back.append(threading.current_thread().name)
    )
    LocalServices(MemoryStore(), 4).run(tasks(1, 1, 1), context(AT))
    assert len(ran.order) == 3
    workers = [name for name in given_back if name.startswith("tidelock-service")]
    assert (len(workers), len(given_back)) == (3, 4)
