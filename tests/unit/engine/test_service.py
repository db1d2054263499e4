"""Tasks of table services: how many at once, in which order, and when they are given up."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from tests.unit.kernel.writing import context
from tests.unit.tableservice.pieces import piece
from tidelock.base.errors import Conflict
from tidelock.engine import service
from tidelock.engine.service import LocalServices, Regroup, Rewrite, ServiceTask, Watch, task_memory
from tidelock.kernel.sorting import SORTED_BYTES_MAX
from tidelock.store.memory import MemoryStore

AT = "20260101000000009"


def tasks(*logs_mb: float) -> list[ServiceTask]:
    return [Rewrite(slot, piece(f"g{slot}", logs_mb=(mb,))) for slot, mb in enumerate(logs_mb)]


class Recorded:
    """Runs no task, and notes how many were running at once, and in which order they began."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._mutex = threading.Lock()
        self._running = 0
        self.most = 0
        self.order: list[int] = []
        monkeypatch.setattr(service, "run_service_task", self._run)

    def _run(self, _store: object, _context: object, task: ServiceTask) -> Sequence[object]:
        with self._mutex:
            self._running += 1
            self.most = max(self.most, self._running)
            self.order.append(task.slot)
        with self._mutex:
            self._running -= 1
        return ()


def test_tasks_that_hold_much_do_not_run_beside_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = Recorded(monkeypatch)
    LocalServices(MemoryStore(), 8).serve(tasks(900, 200, 900, 900), context(AT))
    assert (ran.most, sorted(ran.order)) == (1, [0, 1, 2, 3])
    assert ran.order[-1] == 1


def test_sorting_counts_up_to_what_it_holds_at_once() -> None:
    wide = tuple(piece(f"g{i}", size_mb=1000) for i in range(3))
    assert task_memory(Regroup(0, wide, "f-0")) == 0
    assert task_memory(Regroup(0, wide, "f-0", ("a",))) == SORTED_BYTES_MAX


def test_nothing_more_is_begun_once_it_is_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Recorded(monkeypatch)
    with pytest.raises(Conflict, match="overtaken"):
        LocalServices(MemoryStore(), 1).serve(
            tasks(1, 1, 1), context(AT), doomed=lambda: "overtaken"
        )
    assert len(ran.order) == 1


def test_what_is_done_is_done_whoever_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Recorded(monkeypatch)
    told: list[tuple[int, int]] = []
    watch = Watch(lambda *at: told.append(at), lambda: "closing")
    LocalServices(MemoryStore(), 4, watch).serve(tasks(1), context(AT))
    assert told[-1][0] == told[-1][1]


def test_an_error_ends_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(service, "run_service_task", fails)
    with pytest.raises(ZeroDivisionError):
        LocalServices(MemoryStore(), 2).serve(tasks(1, 1, 1), context(AT))


def test_every_thread_gives_back_what_the_allocator_kept_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_back: list[str] = []
    ran = Recorded(monkeypatch)
    monkeypatch.setattr(
        service, "give_back", lambda: given_back.append(threading.current_thread().name)
    )
    LocalServices(MemoryStore(), 4).serve(tasks(1, 1, 1), context(AT))
    assert len(ran.order) == 3
    workers = [name for name in given_back if name.startswith("tidelock-service")]
    assert (len(workers), len(given_back)) == (3, 4)
