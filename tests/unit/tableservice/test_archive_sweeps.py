"""What the archive takes away for good: strays of dead attempts, old roll-backs, contents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.txnsim.planted_rows import roll_backs_are_forgotten_by_the_clock
from tidelock.base.errors import OutcomeUnknown
from tidelock.operation.reads import snapshot_now
from tidelock.ops.validate.ledger import check_ledger
from tidelock.ops.validate.validating import validate
from tidelock.store.contract import Create
from tidelock.store.local import LocalStore
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.instant import Action, Instant
from tidelock.table.timeline.metadata import OperationType
from tidelock.tableservice.archive import execute as archiving
from tidelock.tableservice.table import Table
from tidelock.testing.tablecrash.stops import OffClock
from tidelock.txn import beginning, committing
from tidelock.txn.effects import Steps
from tidelock.txn.heartbeat import heartbeat_key
from tidelock.txn.publishing import CONTENT_FOLDER, write_checkpoint
from tidelock.txn.view import View

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


def test_what_a_dead_attempt_at_a_plan_wrote_late_is_swept(table: Table) -> None:
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


@pytest.mark.parametrize("kept", [archiving.VOID_KEPT, 0])
def test_what_a_rolled_back_write_leaves_late_is_never_a_row_whatever_clocks_say(
    table: Table, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """A writer whose clock is far ahead archives; the sleeper's file comes after that (C95)."""
    monkeypatch.setattr(archiving, "VOID_KEPT", kept)
    home = table.writer().transactions
    table.insert(pa.table([[7], ["old"], [1]], schema=SCHEMA))
    table.compact()
    gone = home.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
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
        fold = ahead.writer().transactions.ledger.refresh()
        assert (gone.instant in fold.void) == bool(kept)
        assert fold.is_settled(gone.instant)
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


def test_the_archive_waits_before_it_passes_what_was_taken_for_dead_just_now(table: Table) -> None:
    """Hudi's readers would take a file for committed that a sleeper writes behind the archive."""
    store = LocalStore(Path(table.uri.removeprefix("file://")))
    with Table.open(table.uri, options=OPTIONS) as sleeper:
        gone = sleeper.writer().transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
        sleeper.writer().transactions.beating.close()
    age(store, gone.instant)
    write_more(table)
    (done,) = table.rollback()
    assert [undone.instant for undone in done.undone] == [gone.instant]
    table.clean()
    table.archive()
    start = load_timeline(store).start
    assert start is not None
    assert start < gone.instant
    life_ms = table.writer().transactions.life_ms
    with Table(snapshot_now(store), options=OPTIONS, clock=OffClock(life_ms + 1_000)) as later:
        assert later.archive().instants > 0
        late = f"x_0-{gone.attempt}-0_{gone.instant}.parquet"
        store.put(late, b"late", Create())
        assert later.archive().instants == 0, "there is nothing to archive"
        assert store.head(late) is None, "and still it is swept"


def archived_while_a_time_is_reserved(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """Archive while a writer has taken a time and announced nothing.

    Return that time, and from which one on the ledger says that nothing is archived.
    """
    reserved: list[str] = []
    true = beginning._announce

    def slowly(instant: Instant, what: beginning.Announcement) -> Steps[bool]:
        if not reserved:
            reserved.append(instant.requested)
            write_more(table)
            table.clean()
            table.archive()
        return (yield from true(instant, what))

    with Table.open(table.uri, options=OPTIONS) as slow, monkeypatch.context() as patch:
        patch.setattr(beginning, "_announce", slowly)
        slow.upsert(rows(50))
    fold = table.writer().transactions.ledger.refresh()
    return reserved[0], fold.archived


def test_the_archive_does_not_pass_a_time_that_is_reserved_and_not_announced(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_more(table)
    reserved, archived = archived_while_a_time_is_reserved(table, monkeypatch)
    assert "" < archived <= reserved
    table.refresh()
    assert {row["v"] for row in table.read().to_pylist()} == {"v104"}


def test_an_archive_that_ignores_reserved_times_is_caught(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving.Archiving, "_reserved", lambda _held, _fold: set())
    write_more(table)
    with pytest.raises(OutcomeUnknown, match="is archived"):
        archived_while_a_time_is_reserved(table, monkeypatch)


def test_roll_backs_that_a_clock_forgets_are_caught(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    roll_backs_are_forgotten_by_the_clock(monkeypatch)
    with pytest.raises(AssertionError):
        test_what_a_rolled_back_write_leaves_late_is_never_a_row_whatever_clocks_say(
            table, monkeypatch, archiving.VOID_KEPT
        )


def age(store: LocalStore, instant: str) -> None:
    """Let the heartbeat of an instant be old."""
    path = store.local_path(heartbeat_key(instant))
    assert path is not None
    os.utime(path, (1, 1))


def test_a_checkpoint_without_the_boundary_is_replaced_and_not_archived_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C22: nothing is deleted before a checkpoint has the boundary, whoever else writes it."""
    write_more(table)
    table.clean()
    with Table.open(table.uri, options=OPTIONS) as other:
        ledger = other.writer().transactions.ledger
        ledger.refresh()
        replaced: list[int] = []

        def overtaken(view: View, *, every: int) -> Steps[View]:
            if not replaced:
                behind = ledger.run(write_checkpoint(ledger.view, every=1))
                replaced.append(behind.checkpointed)
            return write_checkpoint(view, every=every)

        monkeypatch.setattr(archiving, "write_checkpoint", overtaken)
        monkeypatch.setattr(archiving, "_TRIES", 1)
        assert table.archive().instants > 0
    view = table.writer().transactions.ledger.view
    assert replaced[0] < view.checkpointed
    assert view.sealed is not None
    assert view.sealed.archived == view.archived > ""
    assert validate(table.writer().store, more=[check_ledger]).findings == ()


def test_stored_contents_go_when_their_instants_are_archived(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committing, "INLINE_BYTES_MAX", 0)
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
