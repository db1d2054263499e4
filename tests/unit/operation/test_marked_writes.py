"""Writes that carry a mark: applied once, and the table says how far a pipeline has come."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import tidelock as tl
from tests.unit.operation.model import TYPES, held, made, ordered, row, rows
from tests.unit.operation.test_rebase import interrupted, pending
from tidelock.operation.reads import snapshot_now
from tidelock.tableservice.archive import execute as archiving
from tidelock.tableservice.table import Table

ARCHIVING = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
}
KEY = "_hudi_streaming_sink_checkpoint"


def batch(version: int, application: str = "orders") -> tl.Mark:
    return tl.Mark(application, version, {KEY: f'{{"{application}":"{version}"}}'})


def commits(table: tl.Table) -> int:
    table.refresh()
    return len([i for i in table.timeline if i.is_completed])


@pytest.mark.parametrize("operation", ["insert", "bulk_insert", "upsert", "insert_overwrite"])
def test_a_batch_that_is_written_again_is_reported_and_not_applied(operation: str) -> None:
    table = made()
    first = table.write(rows(range(4)), operation, mark=batch(0))
    assert not first.repeated
    before = commits(table)
    again = tl.Table.open(table.uri).write(rows(range(9)), operation, mark=batch(0))
    assert again.repeated
    assert (again.instant, again.completion) == (first.instant, first.completion)
    assert again.rows_inserted == 0
    assert held(table) == ordered(rows(range(4)))
    assert commits(table) == before


def test_deletes_carry_marks_too() -> None:
    table = made(partition_by="region")
    table.upsert(rows(range(6)), mark=batch(0))
    assert not table.delete(["k001"], mark=batch(1)).repeated
    table.upsert([row(1, 2)])
    assert table.delete(["k001"], mark=batch(1)).repeated
    assert table.delete_partition(["b"], mark=batch(1)).repeated
    assert not table.delete_partition(["b"], mark=batch(2)).repeated
    assert {each["region"] for each in held(table)} == {"a", "c"}


@pytest.mark.parametrize("kind", TYPES)
def test_of_two_who_write_one_batch_at_once_one_lands_and_the_other_leaves_nothing(
    kind: str,
) -> None:
    table = made(kind)
    table.upsert(rows(range(4)))
    slow = interrupted(table, lambda other: other.insert(rows(range(20, 24)), mark=batch(5)))
    report = slow.insert(rows(range(20, 24)), mark=batch(5))
    assert report.repeated
    assert held(slow) == ordered([*rows(range(4)), *rows(range(20, 24))])
    assert pending(slow) == []
    assert list(slow._store.list(".hoodie/.heartbeat/")) == []


def test_a_repeated_batch_that_also_conflicts_is_not_merged_again() -> None:
    table = made()
    table.upsert(rows(range(4)))
    slow = interrupted(table, lambda other: other.upsert(rows(range(4), 2), mark=batch(5)))
    assert slow.upsert(rows(range(4), 3), mark=batch(5)).repeated
    assert held(slow) == ordered(rows(range(4), 2))


def test_pipelines_read_back_where_they_stopped() -> None:
    table = made()
    assert table.mark("orders") is None
    table.upsert(rows(range(2)), mark=batch(3))
    table.upsert([], mark=tl.Mark("clicks", 9, "offset 120"))
    other = tl.Table.open(table.uri)
    assert other.mark("orders") == batch(3)
    assert other.mark("clicks") == tl.Mark("clicks", 9, "offset 120")
    table.upsert(rows(range(2)), mark=batch(4))
    assert other.mark("orders") == batch(4), "of the table as it is now"


def test_named_data_of_a_mark_stands_in_the_commit_for_readers_of_hudi() -> None:
    table = made()
    report = table.upsert(rows(range(2)), metadata={"by": "me"}, mark=batch(3))
    (done,) = [i for i in table.timeline if i.requested == report.instant]
    extra = table._snapshot.timeline.commit(done).extra_metadata
    assert extra[KEY] == '{"orders":"3"}'
    assert extra["by"] == "me"


@pytest.mark.parametrize("kind", TYPES)
def test_a_batch_whose_commit_was_rolled_back_is_applied_when_it_is_sent_again(kind: str) -> None:
    """C82: a mark is taken back with its commit."""
    table = serviced(kind)
    table.upsert(rows(range(2)), mark=batch(0))
    table.upsert(rows(range(2, 4)), mark=batch(7))
    gone = table.upsert(rows(range(4, 6)), mark=batch(8))
    other = table.upsert(rows(range(6, 8)), mark=batch(3, "clicks"))
    assert other.instant is not None
    assert gone.instant is not None
    table.rollback(other.instant)
    assert table.mark("clicks") is None
    assert table.mark("orders") == batch(8), "it was not rolled back"
    table.rollback(gone.instant)
    assert table.mark("orders") == batch(7)
    assert held(table) == ordered(rows(range(4)))
    assert table.upsert(rows(range(2, 4), 9), mark=batch(7)).repeated
    again = tl.Table.open(table.uri).upsert(rows(range(4, 6)), mark=batch(8))
    assert not again.repeated
    assert held(table) == ordered(rows(range(6)))
    assert table.upsert(rows(range(4, 6)), mark=batch(8)).repeated


def test_a_restore_takes_back_the_marks_of_what_it_takes_back() -> None:
    table = serviced("COPY_ON_WRITE")
    kept = table.upsert(rows(range(2)), mark=batch(0))
    for version in range(1, 6):
        table.upsert(rows([version + 1]), mark=batch(version))
    assert kept.instant is not None
    table.savepoint(kept.instant)
    table.restore(kept.instant)
    assert table.mark("orders") == batch(0)
    for version in range(1, 6):
        assert not table.upsert(rows([version + 1]), mark=batch(version)).repeated
    assert held(table) == ordered(rows(range(7)))


@pytest.mark.parametrize("first", [True, False])
def test_a_batch_is_applied_again_though_the_one_before_is_long_forgotten(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C82: the entry of the batch before is deleted behind the boundary."""
    monkeypatch.setattr(archiving, "ENTRIES_KEPT", 4)
    table = serviced("COPY_ON_WRITE", ARCHIVING)
    if not first:
        table.upsert(rows(range(2)), mark=batch(7))
    forget(table)
    kept = table.mark("orders")
    gone = [table.upsert(rows([version]), mark=batch(version)) for version in (8, 9)]
    for report in reversed(gone):
        assert report.instant is not None
        table.rollback(report.instant)
    assert kept == (None if first else batch(7))
    assert table.mark("orders") == kept
    again = [table.upsert(rows([version]), mark=batch(version)) for version in (8, 9)]
    assert [report.repeated for report in again] == [False, False]
    assert {"k008", "k009"} <= {each["id"] for each in held(table)}
    assert first or table.upsert(rows(range(2)), mark=batch(7)).repeated


def test_a_restore_goes_back_to_a_batch_that_is_long_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archiving, "ENTRIES_KEPT", 4)
    table = serviced("COPY_ON_WRITE", ARCHIVING)
    table.upsert(rows(range(2)), mark=batch(7))
    forget(table)
    kept = table.upsert(rows([2])).instant
    assert kept is not None
    table.savepoint(kept)
    table.upsert(rows([8]), mark=batch(8))
    table.upsert(rows([9]), mark=batch(9))
    table.restore(kept)
    assert table.mark("orders") == batch(7)
    assert not table.upsert(rows([8]), mark=batch(8)).repeated


def test_a_mark_whose_predecessor_is_not_known_stays_and_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archiving, "ENTRIES_KEPT", 4)
    table = serviced("COPY_ON_WRITE", ARCHIVING)
    kept = table.upsert(rows(range(2)), mark=batch(7)).instant
    assert kept is not None
    table.savepoint(kept)
    table.upsert(rows([8]), mark=batch(8))
    forget(table)
    table.upsert(rows([9]), mark=batch(9))
    table.restore(kept)
    assert table.mark("orders") == batch(9)
    assert "'orders'" in caplog.text
    assert "larger number" in caplog.text


def forget(table: Table) -> None:
    """Let the ledger delete the entries of what was written."""
    for number in range(20, 28):
        table.upsert(rows([number]))
    table.clean()
    assert table.archive().entries


def serviced(kind: str, options: Mapping[str, object] | None = None) -> Table:
    return Table(snapshot_now(made(kind)._store), options=dict(options or {}))
