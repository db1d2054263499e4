"""Writes with an application transaction: applied once, and readable as pipeline progress."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import tidelock as tl
from tests.unit.operations.model import TYPES, create_table, ordered, row, rows, stored_rows
from tests.unit.operations.test_rebase import interrupted, pending
from tidelock.operations.read import snapshot_now
from tidelock.services import archive as archiving
from tidelock.table import Table

ARCHIVING = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
}
KEY = "_hudi_streaming_sink_checkpoint"


def batch(version: int, application: str = "orders") -> tl.AppTransaction:
    return tl.AppTransaction(application, version, {KEY: f'{{"{application}":"{version}"}}'})


def commits(table: tl.Table) -> int:
    table.refresh()
    return len([i for i in table.timeline if i.is_completed])


@pytest.mark.parametrize("operation", ["insert", "bulk_insert", "upsert", "insert_overwrite"])
def test_repeated_batch_is_reported_and_not_applied(operation: str) -> None:
    table = create_table()
    first = table.write(rows(range(4)), operation, app_transaction=batch(0))
    assert not first.repeated
    before = commits(table)
    again = tl.Table.open(table.uri).write(rows(range(9)), operation, app_transaction=batch(0))
    assert again.repeated
    assert (again.instant, again.completion) == (first.instant, first.completion)
    assert again.rows_inserted == 0
    assert stored_rows(table) == ordered(rows(range(4)))
    assert commits(table) == before


def test_deletes_carry_app_transactions_too() -> None:
    table = create_table(partition_by="region")
    table.upsert(rows(range(6)), app_transaction=batch(0))
    assert not table.delete(["k001"], app_transaction=batch(1)).repeated
    table.upsert([row(1, 2)])
    assert table.delete(["k001"], app_transaction=batch(1)).repeated
    assert table.delete_partition(["b"], app_transaction=batch(1)).repeated
    assert not table.delete_partition(["b"], app_transaction=batch(2)).repeated
    assert {each["region"] for each in stored_rows(table)} == {"a", "c"}


@pytest.mark.parametrize("kind", TYPES)
def test_one_of_two_concurrent_writes_of_one_batch_commits_and_the_other_leaves_nothing(
    kind: str,
) -> None:
    table = create_table(kind)
    table.upsert(rows(range(4)))
    slow = interrupted(
        table, lambda other: other.insert(rows(range(20, 24)), app_transaction=batch(5))
    )
    report = slow.insert(rows(range(20, 24)), app_transaction=batch(5))
    assert report.repeated
    assert stored_rows(slow) == ordered([*rows(range(4)), *rows(range(20, 24))])
    assert pending(slow) == []
    assert list(slow._store.list(".hoodie/.heartbeat/")) == []


def test_repeated_batch_that_also_conflicts_is_not_merged_again() -> None:
    table = create_table()
    table.upsert(rows(range(4)))
    slow = interrupted(
        table, lambda other: other.upsert(rows(range(4), 2), app_transaction=batch(5))
    )
    assert slow.upsert(rows(range(4), 3), app_transaction=batch(5)).repeated
    assert stored_rows(slow) == ordered(rows(range(4), 2))


def test_pipelines_read_their_last_version() -> None:
    table = create_table()
    assert table.app_transaction("orders") is None
    table.upsert(rows(range(2)), app_transaction=batch(3))
    table.upsert([], app_transaction=tl.AppTransaction("clicks", 9, "offset 120"))
    other = tl.Table.open(table.uri)
    assert other.app_transaction("orders") == batch(3)
    assert other.app_transaction("clicks") == tl.AppTransaction("clicks", 9, "offset 120")
    table.upsert(rows(range(2)), app_transaction=batch(4))
    assert other.app_transaction("orders") == batch(4), "of the table as it is now"


def test_named_data_of_an_app_transaction_is_in_the_commit_metadata() -> None:
    table = create_table()
    report = table.upsert(rows(range(2)), metadata={"by": "me"}, app_transaction=batch(3))
    (done,) = [i for i in table.timeline if i.requested == report.instant]
    extra = table._snapshot.timeline.commit(done).extra_metadata
    assert extra[KEY] == '{"orders":"3"}'
    assert extra["by"] == "me"


@pytest.mark.parametrize("kind", TYPES)
def test_rolled_back_batch_is_applied_when_sent_again(kind: str) -> None:
    """C82: an application transaction is rolled back with its commit."""
    table = serviced(kind)
    table.upsert(rows(range(2)), app_transaction=batch(0))
    table.upsert(rows(range(2, 4)), app_transaction=batch(7))
    gone = table.upsert(rows(range(4, 6)), app_transaction=batch(8))
    other = table.upsert(rows(range(6, 8)), app_transaction=batch(3, "clicks"))
    assert other.instant is not None
    assert gone.instant is not None
    table.rollback(other.instant)
    assert table.app_transaction("clicks") is None
    assert table.app_transaction("orders") == batch(8), "it was not rolled back"
    table.rollback(gone.instant)
    assert table.app_transaction("orders") == batch(7)
    assert stored_rows(table) == ordered(rows(range(4)))
    assert table.upsert(rows(range(2, 4), 9), app_transaction=batch(7)).repeated
    again = tl.Table.open(table.uri).upsert(rows(range(4, 6)), app_transaction=batch(8))
    assert not again.repeated
    assert stored_rows(table) == ordered(rows(range(6)))
    assert table.upsert(rows(range(4, 6)), app_transaction=batch(8)).repeated


def test_restore_rolls_back_the_app_transactions_of_its_commits() -> None:
    table = serviced("COPY_ON_WRITE")
    kept = table.upsert(rows(range(2)), app_transaction=batch(0))
    for version in range(1, 6):
        table.upsert(rows([version + 1]), app_transaction=batch(version))
    assert kept.instant is not None
    table.savepoint(kept.instant)
    table.restore(kept.instant)
    assert table.app_transaction("orders") == batch(0)
    for version in range(1, 6):
        assert not table.upsert(rows([version + 1]), app_transaction=batch(version)).repeated
    assert stored_rows(table) == ordered(rows(range(7)))


@pytest.mark.parametrize("first", [True, False])
def test_rolled_back_batch_is_applied_again_after_its_predecessor_was_forgotten(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C82: the entry of the previous batch is deleted behind the boundary."""
    monkeypatch.setattr(archiving, "ENTRIES_KEPT", 4)
    table = serviced("COPY_ON_WRITE", ARCHIVING)
    if not first:
        table.upsert(rows(range(2)), app_transaction=batch(7))
    forget(table)
    kept = table.app_transaction("orders")
    gone = [table.upsert(rows([version]), app_transaction=batch(version)) for version in (8, 9)]
    for report in reversed(gone):
        assert report.instant is not None
        table.rollback(report.instant)
    assert kept == (None if first else batch(7))
    assert table.app_transaction("orders") == kept
    again = [table.upsert(rows([version]), app_transaction=batch(version)) for version in (8, 9)]
    assert [report.repeated for report in again] == [False, False]
    assert {"k008", "k009"} <= {each["id"] for each in stored_rows(table)}
    assert first or table.upsert(rows(range(2)), app_transaction=batch(7)).repeated


def test_restore_goes_back_to_a_forgotten_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archiving, "ENTRIES_KEPT", 4)
    table = serviced("COPY_ON_WRITE", ARCHIVING)
    table.upsert(rows(range(2)), app_transaction=batch(7))
    forget(table)
    kept = table.upsert(rows([2])).instant
    assert kept is not None
    table.savepoint(kept)
    table.upsert(rows([8]), app_transaction=batch(8))
    table.upsert(rows([9]), app_transaction=batch(9))
    table.restore(kept)
    assert table.app_transaction("orders") == batch(7)
    assert not table.upsert(rows([8]), app_transaction=batch(8)).repeated


def test_app_transaction_without_a_known_predecessor_stays_and_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archiving, "ENTRIES_KEPT", 4)
    table = serviced("COPY_ON_WRITE", ARCHIVING)
    kept = table.upsert(rows(range(2)), app_transaction=batch(7)).instant
    assert kept is not None
    table.savepoint(kept)
    table.upsert(rows([8]), app_transaction=batch(8))
    forget(table)
    table.upsert(rows([9]), app_transaction=batch(9))
    table.restore(kept)
    assert table.app_transaction("orders") == batch(9)
    assert "'orders'" in caplog.text
    assert "number them above that" in caplog.text


def forget(table: Table) -> None:
    """Let the ledger delete the entries of earlier writes."""
    for number in range(20, 28):
        table.upsert(rows([number]))
    table.clean()
    assert table.archive().entries


def serviced(kind: str, options: Mapping[str, object] | None = None) -> Table:
    return Table(snapshot_now(create_table(kind)._store), options=dict(options or {}))


def test_deprecated_names_of_app_transactions_work_and_warn() -> None:
    table = create_table(partition_by="region")
    with pytest.warns(DeprecationWarning, match=r"use tidelock\.AppTransaction"):
        old = tl.Mark
    assert old is tl.AppTransaction
    for version, (write, given) in enumerate(
        [
            (table.upsert, rows(range(6))),
            (table.insert, [row(7)]),
            (table.bulk_insert, [row(8)]),
            (table.insert_overwrite, [row(1, 2)]),
            (table.insert_overwrite_table, rows(range(6))),
            (table.delete, ["k001"]),
            (table.delete_partition, ["a"]),
            (table.write, [row(1, 3)]),
        ]
    ):
        with pytest.warns(DeprecationWarning, match="'mark' is deprecated") as warned:
            write(given, mark=batch(version))  # type: ignore[call-arg, arg-type]
        assert warned[0].filename == __file__
        with pytest.warns(DeprecationWarning, match=r"use Table\.app_transaction"):
            assert table.mark("orders") == batch(version)
    with pytest.warns(DeprecationWarning, match="'mark' is deprecated"):
        table.rewrite(lambda now: now.read(), mark=batch(0))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="both 'mark' and 'app_transaction'"):
        table.upsert([row(1)], mark=batch(9), app_transaction=batch(9))  # type: ignore[call-arg]
