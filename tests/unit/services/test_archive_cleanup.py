"""Files the archive deletes permanently: leftovers of dead attempts, old rollbacks, stored
contents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testkit.tablecrash.stops import OffClock
from tests.txnsim.planted_rows import rollbacks_are_forgotten_by_time
from tidelock.core.errors import OutcomeUnknown
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.instant import Action, Instant
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.inspect.validate import validate
from tidelock.inspect.validate_ledger import check_ledger
from tidelock.operations.read import snapshot_now
from tidelock.services import archive as archiving
from tidelock.storage.contract import Create
from tidelock.storage.local import LocalStore
from tidelock.table import Table
from tidelock.txn import commit
from tidelock.txn import commit as begin
from tidelock.txn.effects import Steps
from tidelock.txn.heartbeats import heartbeat_key
from tidelock.txn.ledger_io import CONTENT_FOLDER, write_checkpoint
from tidelock.txn.state import View

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])
OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
}
DAY_MS = 86_400_000


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with Table.create(
        str(tmp_path / "t"), SCHEMA, key="id", ordering="ts", type="MERGE_ON_READ", options=OPTIONS
    ) as made:
        made.insert(rows(1))
        yield made


def rows(ts: int) -> pa.Table:
    return pa.table([[1, 2], [f"v{ts}"] * 2, [ts] * 2], schema=SCHEMA)


def write_more(table: Table, count: int = 5) -> None:
    for number in range(count):
        table.upsert(rows(100 + number))
        table.compact()


def test_late_files_of_a_dead_attempt_at_a_plan_are_deleted(table: Table) -> None:
    """A zombie's base file of a compaction that another attempt completed."""
    table.upsert(rows(2))
    (done,) = table.compact().executed
    (piece,) = [each for each in table.files() if each.base]
    assert piece.base is not None
    stray = f"{piece.file_id}_0-77-0_{done.instant}.parquet"
    table.writer().store.put(stray, b"late", Create())
    write_more(table)
    table.clean()
    assert table.archive().instants > 0
    assert table.writer().store.head(stray) is None
    table.refresh()
    assert table.read().num_rows == 2
    assert validate(table.writer().store, more=[check_ledger]).findings == ()


@pytest.mark.parametrize("kept", [archiving.ABORTED_KEPT, 0])
def test_late_file_of_a_rolled_back_write_is_never_visible_whatever_clocks_say(
    table: Table, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """A writer whose clock is far ahead archives; the suspended writer's file comes after that
    (C95)."""
    monkeypatch.setattr(archiving, "ABORTED_KEPT", kept)
    transactions = table.writer().transactions
    table.insert(pa.table([[7], ["old"], [1]], schema=SCHEMA))
    table.compact()
    gone = transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
    gone.rollback("no")
    write_more(table)
    table.clean()
    assert table.archive().instants > 0
    store = LocalStore(Path(table.uri.removeprefix("file://")))
    with Table(snapshot_now(store), options=OPTIONS, clock=OffClock(8 * DAY_MS)) as ahead:
        for _ in range(2):
            write_more(ahead)
            ahead.clean()
            assert ahead.archive().instants > 0
        state = ahead.writer().transactions.ledger.refresh()
        assert (gone.instant in state.aborted) == bool(kept)
        assert state.is_resolved(gone.instant)
        expected = ahead.read().sort_by("id")
        late = f"zombie_0-{gone.attempt}-0_{gone.instant}.parquet"
        rotten = pa.table([[9], ["never"], [9]], schema=SCHEMA)
        pq.write_table(rotten, str(Path(table.uri.removeprefix("file://")) / late))
        start = load_timeline(store).start
        assert start is not None
        assert gone.instant < start, "it looks older than the timeline"
        assert late not in [each.base.key for each in ahead.files() if each.base]
        for _ in range(2):
            with Table.open(table.uri, options=OPTIONS) as reader:
                assert reader.read().sort_by("id") == expected
                as_of = reader.latest_completion
                assert reader.read(as_of=as_of).sort_by("id") == expected
                reader.upsert(rows(9_000))
                assert reader.read().num_rows == expected.num_rows
                expected = reader.read().sort_by("id")


def test_archive_waits_before_it_passes_a_writer_just_declared_dead(table: Table) -> None:
    """Hudi's readers would treat a file written behind the archive boundary as committed."""
    store = LocalStore(Path(table.uri.removeprefix("file://")))
    with Table.open(table.uri, options=OPTIONS) as suspended:
        gone = suspended.writer().transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
        suspended.writer().transactions.heartbeat_thread.close()
    age(store, gone.instant)
    write_more(table)
    (done,) = table.rollback()
    assert [undone.instant for undone in done.rolled_back] == [gone.instant]
    table.clean()
    table.archive()
    start = load_timeline(store).start
    assert start is not None
    assert start < gone.instant
    lifetime_ms = table.writer().transactions.lifetime_ms
    with Table(snapshot_now(store), options=OPTIONS, clock=OffClock(lifetime_ms + 1_000)) as later:
        assert later.archive().instants > 0
        late = f"x_0-{gone.attempt}-0_{gone.instant}.parquet"
        store.put(late, b"late", Create())
        assert later.archive().instants == 0, "there is nothing to archive"
        assert store.head(late) is None, "and still it is swept"


def archived_while_a_time_is_reserved(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """Archive while a writer has reserved an instant time and written nothing.

    Return that time, and the archive boundary in the ledger.
    """
    reserved: list[str] = []
    true = begin._create_pending

    def slowly(instant: Instant, what: begin.BeginRequest) -> Steps[bool]:
        if not reserved:
            reserved.append(instant.requested)
            write_more(table)
            table.clean()
            table.archive()
        return (yield from true(instant, what))

    with Table.open(table.uri, options=OPTIONS) as slow, monkeypatch.context() as patch:
        patch.setattr(begin, "_create_pending", slowly)
        slow.upsert(rows(50))
    state = table.writer().transactions.ledger.refresh()
    return reserved[0], state.archived


def test_archive_does_not_pass_a_reserved_unannounced_time(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_more(table)
    reserved, archived = archived_while_a_time_is_reserved(table, monkeypatch)
    assert "" < archived <= reserved
    table.refresh()
    assert {row["v"] for row in table.read().to_pylist()} == {"v104"}


def test_archive_that_ignores_reserved_times_is_caught(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving.ArchiveService, "_reserved", lambda _held, _fold: set())
    write_more(table)
    with pytest.raises(OutcomeUnknown, match="is archived"):
        archived_while_a_time_is_reserved(table, monkeypatch)


def test_rollbacks_forgotten_by_clock_are_caught(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollbacks_are_forgotten_by_time(monkeypatch)
    with pytest.raises(AssertionError):
        test_late_file_of_a_rolled_back_write_is_never_visible_whatever_clocks_say(
            table, monkeypatch, archiving.ABORTED_KEPT
        )


def age(store: LocalStore, instant: str) -> None:
    """Age the heartbeat of an instant."""
    path = store.local_path(heartbeat_key(instant))
    assert path is not None
    os.utime(path, (1, 1))


def test_checkpoint_without_the_boundary_is_replaced_and_not_archived_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C22: nothing is deleted before a checkpoint has the boundary, whoever else writes it."""
    write_more(table)
    table.clean()
    with Table.open(table.uri, options=OPTIONS) as other:
        ledger = other.writer().transactions.ledger
        ledger.refresh()
        replaced: list[int] = []

        def checkpoint_by_another(view: View, *, every: int) -> Steps[View]:
            if not replaced:
                behind = ledger.run(write_checkpoint(ledger.view, every=1))
                replaced.append(behind.checkpointed)
            return write_checkpoint(view, every=every)

        monkeypatch.setattr(archiving, "write_checkpoint", checkpoint_by_another)
        monkeypatch.setattr(archiving, "_TRIES", 1)
        assert table.archive().instants > 0
    view = table.writer().transactions.ledger.view
    assert replaced[0] < view.checkpointed
    assert view.checkpoint_state is not None
    assert view.checkpoint_state.archived == view.archived > ""
    assert validate(table.writer().store, more=[check_ledger]).findings == ()


def test_stored_contents_are_deleted_when_their_instants_are_archived(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "INLINE_BYTES_MAX", 0)
    monkeypatch.setattr(archiving, "ENTRIES_KEPT", 4)
    write_more(table)
    table.clean()
    store = table.writer().store
    before = {meta.key for meta in store.list(f"{CONTENT_FOLDER}/")}
    assert table.archive().instants > 0
    after = {meta.key for meta in store.list(f"{CONTENT_FOLDER}/")}
    assert after < before
    archived = table.writer().transactions.ledger.refresh().archived
    for key in after:
        name = key.rpartition("/")[2]
        assert name.startswith("plan-") or name >= archived
    write_more(table, 1)
    assert validate(store, more=[check_ledger]).findings == ()
