"""Plans that are broken, or in the way: each is freed by a word, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.tableservice.layered import QUIET, content, layered, rows
from tidelock.base.errors import Conflict, DataCorrupt, NotFound
from tidelock.ops.validate.ledger import check_ledger
from tidelock.ops.validate.validating import validate
from tidelock.store.contract import Create
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.metadata import OperationType
from tidelock.tableservice.cancelling import cancel
from tidelock.tableservice.clean.execute import Clean
from tidelock.tableservice.clean.plan import Keep
from tidelock.tableservice.clustering.execute import Clustering
from tidelock.tableservice.clustering.plan import Sizes
from tidelock.tableservice.compaction.execute import Compaction
from tidelock.tableservice.compaction.plan import Choice
from tidelock.tableservice.guard import claimed
from tidelock.tableservice.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with layered(tmp_path / "t", QUIET) as made:
        yield made


def compaction(table: Table) -> str:
    planned = Compaction(table.writer()).schedule(Choice())
    assert planned is not None
    return planned


def plan_file(table: Table, instant: str, action: str) -> Path:
    home = Path(table.uri.removeprefix("file://"))
    return home / f".hoodie/timeline/{instant}.{action}.requested"


def freed(table: Table, before: list[object]) -> None:
    """The file groups can be planned and compacted again, and nothing is left of the plan."""
    assert content(table) == before
    assert table.writer().transactions.ledger.refresh().plans == {}
    assert load_timeline(table.writer().store).pending() == ()
    (done,) = table.compact().executed
    assert done.files_written
    assert content(table) == before
    assert validate(table.writer().store, more=[check_ledger]).findings == ()


@pytest.mark.parametrize("left", [0, 40])
def test_a_plan_that_is_empty_or_truncated_is_freed(table: Table, left: int) -> None:
    before = content(table)
    planned = compaction(table)
    path = plan_file(table, planned, "compaction")
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(DataCorrupt):
        Compaction(table.writer()).execute(planned)
    assert cancel(table.writer(), planned).fault
    freed(table, before)


def test_a_plan_that_is_missing_is_freed(table: Table) -> None:
    before = content(table)
    planned = compaction(table)
    plan_file(table, planned, "compaction").unlink()
    assert "missing" in cancel(table.writer(), planned).fault
    freed(table, before)


def test_a_plan_that_names_missing_files_is_freed(table: Table) -> None:
    planned = compaction(table)
    (log,) = (log for piece in table.files() for log in piece.logs)
    store = table.writer().store
    body = store.get(log.key)
    assert body is not None
    store.delete(log.key)
    assert log.name in cancel(table.writer(), planned).fault
    store.put(log.key, body.body, Create())
    freed(table, content(table))


def test_a_plan_that_can_be_executed_goes_only_by_force(table: Table) -> None:
    before = content(table)
    planned = compaction(table)
    with pytest.raises(Conflict, match="can be executed"):
        cancel(table.writer(), planned)
    assert cancel(table.writer(), planned, force=True).fault == ""
    freed(table, before)


def test_a_removable_plan_goes_at_once(table: Table) -> None:
    before = content(table)
    planned = Clustering(table.writer()).schedule(Sizes())
    assert planned is not None
    assert cancel(table.writer(), planned).action == "clustering"
    freed(table, before)


def test_a_clean_is_cancelled_and_planned_anew(table: Table) -> None:
    table.compact()
    table.upsert(rows(1, ts=3))
    before = content(table)
    planned = Clean(table.writer()).schedule(Keep(commits=1))
    assert planned is not None
    assert cancel(table.writer(), planned, force=True).action == "clean"
    assert (table.clean().executed) == ()
    freed(table, before)


def test_what_is_being_executed_is_not_cancelled(table: Table) -> None:
    planned = compaction(table)
    with Table.open(table.uri, options=QUIET) as other:
        home = other.writer().transactions
        with claimed(home, planned, OperationType.COMPACT):
            with pytest.raises(Conflict, match="alive"):
                cancel(table.writer(), planned, force=True)
            assert planned in home.ledger.refresh().plans


def test_a_plan_of_java_goes_by_force_unless_its_heart_beats(table: Table) -> None:
    planned = "20200101000000000"
    store = table.writer().store
    store.put(f".hoodie/timeline/{planned}.compaction.requested", b"Obj", Create())
    store.put(f".hoodie/.heartbeat/{planned}", b"", Create())
    with pytest.raises(Conflict, match="alive"):
        cancel(table.writer(), planned)
    beat = Path(table.uri.removeprefix("file://")) / f".hoodie/.heartbeat/{planned}"
    os.utime(beat, (1, 1))
    assert cancel(table.writer(), planned).fault
    freed(table, content(table))


def test_what_is_not_pending_is_not_found(table: Table) -> None:
    with pytest.raises(NotFound):
        cancel(table.writer(), "20200101000000000")


def test_a_live_heartbeat_of_java_is_respected_by_executors(table: Table) -> None:
    planned = compaction(table)
    table.writer().store.put(f".hoodie/.heartbeat/{planned}", b"", Create())
    with pytest.raises(Conflict, match="executed by"):
        Compaction(table.writer()).execute(planned)


def test_without_the_guard_a_plan_is_taken_over_at_once(table: Table) -> None:
    planned = compaction(table)
    before = content(table)
    table.writer().store.put(f".hoodie/.heartbeat/{planned}", b"", Create())
    with Table.open(table.uri, options={**QUIET, "tidelock.table.services.guard": "false"}) as bold:
        assert Compaction(bold.writer()).execute(planned).files_written
    assert content(table) == before
