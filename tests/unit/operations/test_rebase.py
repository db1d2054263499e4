"""Conflicts: one writer commits between another's data files and its commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import tidelock as tl
from tests.unit.operations.model import TYPES, create_table, ordered, row, rows, stored_rows
from tidelock.core.errors import WriteConflict
from tidelock.execution.engine import TaggedRows, WriteEngine
from tidelock.execution.filegroup.context import FileResult, WriteContext
from tidelock.execution.write_plan import WritePlan
from tidelock.operations import write as writing
from tidelock.operations.file_view import load_view
from tidelock.txn import transaction_manager

LARGE = range(3_000)
"""More new rows than a ledger entry names."""

NEW_GROUPS = {"hoodie.parquet.small.file.limit": 0}
HUDI = {
    "hoodie.write.lock.conflict.resolution.strategy": "org.apache.hudi.client.transaction."
    "SimpleConcurrentFileWritesConflictResolutionStrategy"
}


@dataclass
class Interrupted:
    """An engine that lets others write after its own files are written, this many times."""

    inner: WriteEngine
    meanwhile: Callable[[int], object]
    times: int = 1
    done: int = field(default=0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def write(
        self, tagged: TaggedRows, plan: WritePlan, context: WriteContext, **more: Any
    ) -> tuple[FileResult, ...]:
        results = self.inner.write(tagged, plan, context, **more)
        if self.done < self.times:
            self.done += 1
            self.meanwhile(self.done)
        return results


def interrupted(
    table: tl.Table, meanwhile: Callable[[tl.Table], object], *, times: int = 1
) -> tl.Table:
    """Return another handle on the table, during whose next write `meanwhile` runs."""
    other = tl.Table.open(table.uri, options=table._options)
    slow = tl.Table.open(table.uri, options=table._options)
    engine = slow.writer().engine
    slow.writer().engine = Interrupted(engine, lambda _: meanwhile(other), times)
    return slow


def pending(table: tl.Table) -> list[str]:
    table.refresh()
    return [i.file_name for i in table.timeline if not i.is_completed and i.action.writes_data]


@pytest.mark.parametrize("index", ["SIMPLE", "BUCKET"])
@pytest.mark.parametrize("kind", TYPES)
def test_conflicted_upsert_is_merged_on_top_of_the_other(kind: str, index: str) -> None:
    table = create_table(kind, index=index, ordering=None)
    table.upsert(rows(range(8)))
    slow = interrupted(table, lambda other: other.upsert(rows(range(4, 12), 2)))
    report = slow.upsert(rows(range(6), 3))
    assert report.rebases == 1
    assert stored_rows(slow) == ordered([*rows(range(6), 3), *rows(range(6, 12), 2)])
    assert pending(slow) == []


@pytest.mark.parametrize("kind", TYPES)
def test_files_of_a_conflicted_attempt_are_deleted(kind: str) -> None:
    table = create_table(kind)
    table.upsert(rows(range(4)))
    slow = interrupted(table, lambda other: other.upsert([row(1, 2)]))
    slow.upsert([row(1, 3)])
    store = slow._store
    named = {file.key for piece in slow._snapshot.groups() for file in _files(piece)}
    present = {
        meta.key
        for meta in store.list("")
        if not meta.key.startswith(".hoodie") and "partition_metadata" not in meta.key
    }
    assert present == named
    assert list(store.list(".hoodie/.temp/")) == []
    assert list(store.list(".hoodie/.heartbeat/")) == []


def _files(group: Any) -> list[Any]:
    return [file for piece in group.slices for file in (piece.base, *piece.logs) if file]


def test_two_writers_of_one_new_key_make_one_row() -> None:
    table = create_table(options=NEW_GROUPS)
    slow = interrupted(table, lambda other: other.upsert([row(1, 2), row(2)]))
    report = slow.upsert([row(1, 3), row(3)])
    assert report.rebases == 1
    assert stored_rows(slow) == [row(1, 3), row(2), row(3)]


def test_distinct_new_keys_need_no_retry() -> None:
    table = create_table(options=NEW_GROUPS)
    slow = interrupted(table, lambda other: other.upsert([row(2)]))
    assert slow.upsert([row(1)]).rebases == 0
    assert stored_rows(slow) == [row(1), row(2)]


@pytest.mark.parametrize(("first", "rebases"), [(5_000, 0), (2_999, 1)])
def test_keys_too_many_for_the_ledger_are_compared_in_the_files(first: int, rebases: int) -> None:
    table = create_table(options=NEW_GROUPS)
    theirs = range(first, first + 3_000)
    slow = interrupted(table, lambda other: other.upsert(rows(theirs, 2)))
    assert slow.upsert(rows(LARGE)).rebases == rebases
    found = slow.read(columns=["id", "ts"])
    assert found.num_rows == len({*LARGE, *theirs})
    kept = {item["id"]: item["ts"] for item in found.to_pylist()}
    assert kept[row(2_999)["id"]] == (2 if rebases else 1)


def test_delete_of_a_row_inserted_concurrently_deletes_it() -> None:
    table = create_table(options=NEW_GROUPS)
    table.upsert([row(1)])
    slow = interrupted(table, lambda other: other.upsert([row(2)]))
    slow.delete(["k001", "k002"])
    assert stored_rows(slow) == []


def test_blind_inserts_of_several_writers_use_separate_files() -> None:
    table = create_table()
    table.insert([row(1)])
    slow = interrupted(table, lambda other: other.insert([row(2)]))
    assert slow.insert([row(3)]).rebases == 0
    assert stored_rows(slow) == [row(1), row(2), row(3)]


def test_blind_insert_that_lost_a_small_file_creates_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No other writer was visible.
    monkeypatch.setattr(transaction_manager.TransactionManager, "is_contended", False)
    table = create_table()
    table.insert([row(1)])
    slow = interrupted(table, lambda other: other.insert([row(2)]))
    report = slow.insert([row(3)])
    assert report.rebases == 1
    assert stored_rows(slow) == [row(1), row(2), row(3)]
    assert len(slow.files()) == 2


def test_bulk_inserts_never_conflict() -> None:
    table = create_table()
    slow = interrupted(table, lambda other: other.bulk_insert(rows(range(3))))
    assert slow.bulk_insert(rows(range(3, 6))).rebases == 0
    assert stored_rows(slow) == rows(range(6))


@pytest.mark.parametrize("index", ["SIMPLE", "BUCKET"])
@pytest.mark.parametrize("kind", TYPES)
def test_overwrite_also_replaces_concurrent_inserts(kind: str, index: str) -> None:
    table = create_table(kind, "region", index=index, options=NEW_GROUPS)
    table.upsert(rows(range(6)))
    slow = interrupted(table, lambda other: other.upsert([row(3, 2), row(30), row(31)]))
    report = slow.insert_overwrite([row(60)])
    kept = [item for item in [*rows(range(6)), row(31)] if item["region"] != "a"]
    assert stored_rows(slow) == ordered([*kept, row(60)])
    assert report.rebases == (1 if index == "BUCKET" else 0)


@pytest.mark.parametrize("index", ["SIMPLE", "BUCKET"])
@pytest.mark.parametrize("kind", TYPES)
def test_upsert_into_an_overwritten_partition_is_not_lost(kind: str, index: str) -> None:
    table = create_table(kind, "region", index=index)
    table.upsert(rows(range(6)))
    slow = interrupted(table, lambda other: other.delete_partition(["a"]))
    slow.upsert([row(3, 2), row(4, 2)])
    kept = [item for item in rows(range(6)) if item["region"] != "a" and item["id"] != "k004"]
    assert stored_rows(slow) == ordered([*kept, row(3, 2), row(4, 2)])


def nonblocking(ordering: str | None) -> tl.Table:
    return create_table(
        "MERGE_ON_READ",
        index="BUCKET",
        ordering=ordering,
        options={"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"},
    )


def test_nonblocking_mode_uses_event_time_and_never_retries() -> None:
    table = nonblocking("ts")
    slow = interrupted(table, lambda other: other.upsert(rows(range(4), 3)))
    assert slow.upsert([row(1, 2), row(2, 4), row(9)]).rebases == 0
    assert stored_rows(slow) == [row(0, 3), row(1, 3), row(2, 4), row(3, 3), row(9)]
    assert all(piece.base is None for piece in slow.files())


def test_nonblocking_mode_keeps_commit_order_where_it_matters() -> None:
    table = nonblocking(None)
    slow = interrupted(table, lambda other: other.upsert(rows(range(4), 3)))
    assert slow.upsert([row(1, 2)]).rebases == 1
    assert stored_rows(slow) == [row(0, 3), row(1, 2), row(2, 3), row(3, 3)]


def test_nonblocking_delete_and_later_row_keep_their_order() -> None:
    table = nonblocking("ts")
    table.upsert([row(1)])
    slow = interrupted(table, lambda other: other.delete(["k001"]))
    slow.upsert([row(1, 2)])
    assert stored_rows(slow) == [row(1, 2)]


def test_hudi_strategy_refuses_the_later_writer_and_names_the_conflict() -> None:
    table = create_table(options=HUDI)
    table.upsert([row(1)])
    slow = interrupted(table, lambda other: other.upsert([row(1, 2)]))
    with pytest.raises(
        WriteConflict, match=r"conflicts with upsert .*overlapping writes"
    ) as caught:
        slow.upsert([row(1, 3)])
    report = caught.value.report
    assert report is not None
    assert len(report.others) == 1  # type: ignore[attr-defined]
    assert pending(slow) == []
    assert stored_rows(slow) == [row(1, 2)]


def test_hudi_retries_are_honoured() -> None:
    table = create_table(options=HUDI | {"hoodie.write.num.retries.on.conflict.failures": 1})
    table.upsert([row(1)])
    slow = interrupted(table, lambda other: other.upsert([row(1, 2)]))
    assert slow.upsert([row(1, 3)]).rebases == 1
    assert stored_rows(slow) == [row(1, 3)]


def test_writer_that_always_conflicts_gives_up_eventually() -> None:
    rude = {"tidelock.write.turn.wait.ms": 1}
    table = create_table(options=rude | {"tidelock.write.rebase.rounds.max": 3})
    table.upsert([row(1)])
    slow = interrupted(table, lambda other: other.upsert([row(1, 2)]), times=9)
    with pytest.raises(WriteConflict, match="4 times"):
        slow.upsert([row(1, 3)])
    assert pending(slow) == []


EARLY = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.concurrency.early.conflict.detection.enable": "true",
}


@dataclass
class InterruptedBeforeWriting(Interrupted):
    """An engine that lets others write before it writes its first file."""

    def write(
        self, tagged: TaggedRows, plan: WritePlan, context: WriteContext, **more: Any
    ) -> tuple[FileResult, ...]:
        if self.done < self.times:
            self.done += 1
            self.meanwhile(self.done)
        return self.inner.write(tagged, plan, context, **more)


def interrupted_before_writing(table: tl.Table) -> tl.Table:
    slow = interrupted(table, lambda other: other.upsert([row(1, 2)]))
    engine = slow.writer().engine
    assert isinstance(engine, Interrupted)
    slow.writer().engine = InterruptedBeforeWriting(engine.inner, engine.meanwhile)
    return slow


def test_write_that_cannot_commit_is_stopped_early_and_retried() -> None:
    table = create_table(options=EARLY)
    table.upsert([row(1)])
    slow = interrupted_before_writing(table)
    assert slow.upsert([row(1, 3)]).rebases == 1
    assert stored_rows(slow) == [row(1, 3)]
    # The stopped attempt wrote no data file: every existing version was committed.
    files = [meta.key for meta in slow._store.list("") if meta.key.endswith(".parquet")]
    assert len(files) == 3


def test_hudi_strategy_fails_a_write_that_cannot_commit_early() -> None:
    table = create_table(options=EARLY | HUDI)
    table.upsert([row(1)])
    slow = interrupted_before_writing(table)
    with pytest.raises(WriteConflict, match="both changed these file groups"):
        slow.upsert([row(1, 3)])
    assert pending(slow) == []


def test_concurrent_schema_changes_keep_both_columns() -> None:
    table = create_table(options=NEW_GROUPS)
    slow = interrupted(table, lambda other: other.upsert([row(1, theirs="x")]))
    slow.upsert([row(2, mine="y")])
    found = {item["id"]: (item["theirs"], item["mine"]) for item in slow.read().to_pylist()}
    assert found == {"k001": ("x", None), "k002": (None, "y")}


def test_write_that_fails_half_way_leaves_no_trace() -> None:
    table = create_table()
    table.upsert([row(1)])

    def fail(_: tl.Table) -> None:
        raise OSError("the machine is on fire")

    slow = interrupted(table, fail)
    with pytest.raises(OSError, match="on fire"):
        slow.upsert([row(2)])
    assert pending(slow) == []
    assert stored_rows(slow) == [row(1)]
    assert len([m for m in slow._store.list("") if m.key.endswith(".parquet")]) == 1
    slow.upsert([row(2)])
    assert stored_rows(slow) == [row(1), row(2)]


def test_writer_lists_the_table_once_and_then_follows_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads: list[int] = []
    real = load_view

    def counting(*args: Any, **named: Any) -> Any:
        loads.append(1)
        return real(*args, **named)

    table = create_table("MERGE_ON_READ", "region", options=NEW_GROUPS)
    other, mine = tl.Table.open(table.uri), tl.Table.open(table.uri)
    monkeypatch.setattr(writing, "load_view", counting)
    mine.upsert(rows(range(6)))
    other.upsert(rows(range(3, 9), 2))
    mine.insert_overwrite([row(30)])
    other.delete_partition(["b"])
    mine.delete(["k002"])
    other.upsert([row(2, 5), row(30, 2)])
    mine.upsert([row(30, 3)])
    assert len(loads) == 2
    view = mine.writer().view()
    listed = real(mine._store, mine.properties, view.state, least_bytes=view.least_bytes)
    assert view.file_slices() == listed.file_slices()
    assert (view.schema_json, view.replaced) == (listed.schema_json, listed.replaced)
