"""Async services: completed when the table is closed, cancelled after an error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tidelock.execution import service_tasks
from tidelock.execution.filegroup.context import FileResult, WriteContext
from tidelock.execution.service_tasks import CompactSlice, LocalServices, ProgressListener
from tidelock.hudi.timeline.instant import Action
from tidelock.services import runner
from tidelock.services.inline import AsyncServices, split_options
from tidelock.storage.contract import ObjectStore
from tidelock.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
COMPACTS = {
    "hoodie.datasource.compaction.async.enable": "true",
    "hoodie.compact.inline.max.delta.commits": "2",
}
GROUPS = 5
NOTHING = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def rows(*ids: int, v: str = "x") -> pa.Table:
    return pa.table([list(ids), [f"{v}{i}" for i in ids]], schema=SCHEMA)


def create_table(path: Path, **options: str) -> Table:
    return Table.create(
        str(path), SCHEMA, key="id", type="MERGE_ON_READ", options={**NOTHING, **options}
    )


def completed(path: Path, action: Action) -> int:
    with Table.open(str(path)) as table:
        return sum(1 for i in table.timeline if i.is_completed and i.action is action)


def test_due_services_are_done_when_the_table_is_closed(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    def service_threads() -> list[str]:
        started = set(threading.enumerate()) - before
        return [thread.name for thread in started if "tidelock-services" in thread.name]

    with create_table(tmp_path / "t", **COMPACTS) as table:
        table.insert(rows(1, 2, 3))
        for number in range(4):
            table.upsert(rows(1, 2, v=f"v{number}-"))
        assert service_threads()
    assert not service_threads()
    assert completed(tmp_path / "t", Action.COMMIT) >= 1
    with Table.open(str(tmp_path / "t")) as again:
        found = {row["id"]: row["v"] for row in again.read().to_pylist()}
        assert found == {1: "v3-1", 2: "v3-2", 3: "x3"}


def test_services_are_cancelled_between_two_tasks_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    ran: list[CompactSlice] = []
    inner = service_tasks.run_service_task

    def slow(
        store: ObjectStore, context: WriteContext, task: CompactSlice
    ) -> tuple[FileResult, ...]:
        ran.append(task)
        begun.set()
        assert goes_on.wait(60)
        return inner(store, context, task)

    monkeypatch.setattr(service_tasks, "run_service_task", slow)
    monkeypatch.setattr(runner, "LocalServices", partial(LocalServices, workers=1))

    def fail() -> None:
        with create_table(
            tmp_path / "t", **{**COMPACTS, "hoodie.parquet.small.file.limit": "0"}
        ) as table:
            for number in range(GROUPS):
                table.insert(rows(number))
            assert table._async is not None
            table.upsert(rows(*range(GROUPS), v="a"))
            assert begun.wait(60)
            # The caller waits for the running task, but for no other.
            waits = (table._async._stop_reason, goes_on)
            threading.Thread(target=_when_cancelled, args=waits).start()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(ran) < GROUPS
    monkeypatch.undo()
    assert completed(tmp_path / "t", Action.COMMIT) == 0
    with Table.open(str(tmp_path / "t"), options=NOTHING) as again:
        assert again.compact().executed[0].files_written == GROUPS
        found = sorted(row["v"] for row in again.read().to_pylist())
        assert found == [f"a{number}" for number in range(GROUPS)]


def _when_cancelled(cancelled: Callable[[], str | None], goes_on: threading.Event) -> None:
    while cancelled() is None:
        goes_on.wait(0.01)
    goes_on.set()


def test_failing_thread_is_reported_and_writes_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def make(watch: ProgressListener) -> object:
        raise ZeroDivisionError

    services = AsyncServices("t", make)  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR):
        services.notify()
        services.stop()
    assert "async table services ended" in caplog.text
    services.notify()
    services.stop()


def test_async_services_do_not_run_inline() -> None:
    after, services = split_options({"hoodie.compact.inline": "true"})
    assert (after["hoodie.compact.inline"], services) == ("true", None)
    after, services = split_options({**COMPACTS, "hoodie.compact.inline": "true"})
    assert services is not None
    assert (after["hoodie.compact.inline"], services["hoodie.compact.inline"]) == (False, True)
    assert "hoodie.clean.automatic" not in after
    assert services["hoodie.clean.automatic"] is False
    _, services = split_options(
        {"hoodie.clean.async.enabled": "true", "hoodie.clean.automatic": "false"}
    )
    assert services is not None
    assert services["hoodie.clean.automatic"] is False


def test_async_cleaning_follows_the_commits_of_the_writer(tmp_path: Path) -> None:
    options = {
        "hoodie.clean.async.enabled": "true",
        "hoodie.clean.automatic": "true",
        "hoodie.clean.trigger.max.commits": "3",
        "hoodie.clean.commits.retained": "1",
    }
    with Table.create(str(tmp_path / "t"), SCHEMA, key="id", options=options) as table:
        for number in range(8):
            table.upsert(rows(1, v=f"{number}-"))
    assert completed(tmp_path / "t", Action.CLEAN) >= 1


def test_progress_is_reported_to_the_callback(tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    with create_table(tmp_path / "t") as table:
        table.insert(rows(1))
        table.upsert(rows(1, v="a"))
        watch = ProgressListener(progress=lambda done, total: progress.append((done, total)))
        table.writer().services = LocalServices(table._store, listener=watch)
        table.compact()
    assert progress[0][0] == 0
    assert progress[-1][0] == progress[-1][1] > 0
