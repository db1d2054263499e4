"""Services beside the writer: done when the table is closed, given up after an error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tidelock.engine import service
from tidelock.engine.service import LocalServices, Rewrite, Watch
from tidelock.kernel.context import WriteContext
from tidelock.kernel.results import FileResult
from tidelock.store.contract import ObjectStore
from tidelock.table.timeline.instant import Action
from tidelock.tableservice import engines
from tidelock.tableservice.beside import Beside, split
from tidelock.tableservice.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
COMPACTS = {
    "hoodie.datasource.compaction.async.enable": "true",
    "hoodie.compact.inline.max.delta.commits": "2",
}
GROUPS = 5
NOTHING = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def rows(*ids: int, v: str = "x") -> pa.Table:
    return pa.table([list(ids), [f"{v}{i}" for i in ids]], schema=SCHEMA)


def made(place: Path, **options: str) -> Table:
    return Table.create(
        str(place), SCHEMA, key="id", type="MERGE_ON_READ", options={**NOTHING, **options}
    )


def completed(place: Path, action: Action) -> int:
    with Table.open(str(place)) as table:
        return sum(1 for i in table.timeline if i.is_completed and i.action is action)


def test_what_is_due_is_done_by_the_time_that_the_table_is_closed(tmp_path: Path) -> None:
    with made(tmp_path / "t", **COMPACTS) as table:
        table.insert(rows(1, 2, 3))
        for number in range(4):
            table.upsert(rows(1, 2, v=f"v{number}-"))
        assert any("tidelock-services" in thread.name for thread in threading.enumerate())
    assert not any("tidelock-services" in thread.name for thread in threading.enumerate())
    assert completed(tmp_path / "t", Action.COMMIT) >= 1
    with Table.open(str(tmp_path / "t")) as again:
        found = {row["id"]: row["v"] for row in again.read().to_pylist()}
        assert found == {1: "v3-1", 2: "v3-2", 3: "x3"}


def test_after_an_error_work_is_given_up_between_two_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    ran: list[Rewrite] = []
    inner = service.run_service_task

    def slow(store: ObjectStore, context: WriteContext, task: Rewrite) -> tuple[FileResult, ...]:
        ran.append(task)
        begun.set()
        assert goes_on.wait(60)
        return inner(store, context, task)

    monkeypatch.setattr(service, "run_service_task", slow)
    monkeypatch.setattr(engines, "LocalServices", partial(LocalServices, workers=1))

    def fail() -> None:
        with made(tmp_path / "t", **{**COMPACTS, "hoodie.parquet.small.file.limit": "0"}) as table:
            for number in range(GROUPS):
                table.insert(rows(number))
            assert table._beside is not None
            table.upsert(rows(*range(GROUPS), v="a"))
            assert begun.wait(60)
            # Whoever stops it waits for the task that is running, but for no other.
            waits = (table._beside._why_stopped, goes_on)
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


def test_a_thread_that_fails_says_so_and_writes_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def make(watch: Watch) -> object:
        raise ZeroDivisionError

    beside = Beside("t", make)  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR):
        beside.nudge()
        beside.stop()
    assert "services beside the writer ended" in caplog.text
    beside.nudge()
    beside.stop()


def test_what_runs_beside_writes_does_not_run_after_them() -> None:
    after, beside = split({"hoodie.compact.inline": "true"})
    assert (after["hoodie.compact.inline"], beside) == ("true", None)
    after, beside = split({**COMPACTS, "hoodie.compact.inline": "true"})
    assert beside is not None
    assert (after["hoodie.compact.inline"], beside["hoodie.compact.inline"]) == (False, True)
    assert "hoodie.clean.automatic" not in after
    assert beside["hoodie.clean.automatic"] is False
    _, beside = split({"hoodie.clean.async.enabled": "true", "hoodie.clean.automatic": "false"})
    assert beside is not None
    assert beside["hoodie.clean.automatic"] is False


def test_cleaning_beside_writes_follows_the_writers_commits(tmp_path: Path) -> None:
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


def test_progress_is_told_to_whoever_looks_on(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with made(tmp_path / "t") as table:
        table.insert(rows(1))
        table.upsert(rows(1, v="a"))
        watch = Watch(progress=lambda done, total: told.append((done, total)))
        table.writer().services = LocalServices(table._store, watch=watch)
        table.compact()
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1] > 0
