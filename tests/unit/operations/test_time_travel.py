"""Time travel: an instant always shows the same rows, regardless of later commits and cleans."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tidelock as tl
from tests.unit.operations.model import TYPES, create_table, ordered, row, rows
from tidelock.core.errors import NotFound
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.operations.read import snapshot_now
from tidelock.services.runner import compaction as compactions
from tidelock.storage.contract import Create
from tidelock.table import Table
from tidelock.txn.commit import CommitDraft
from tidelock.txn.conflicts import CommitResult
from tidelock.txn.transaction import Transaction

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
BY_HAND = {
    **OCC,
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}


def read(table: tl.Table, as_of: str) -> list[dict[str, object]]:
    table.refresh()
    return ordered(table.read(as_of=as_of).to_pylist())


@pytest.mark.parametrize("kind", TYPES)
def test_instant_shows_the_same_rows_after_an_older_request_completes(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_table(kind, "region", options=OCC)
    table.upsert(rows([0, 1, 2]))
    slow = tl.Table(snapshot_now(table._store), options=OCC)
    seen: dict[str, list[dict[str, object]]] = {}
    commit = Transaction.commit

    def commit_late(transaction: Transaction, draft: CommitDraft, **more: object) -> CommitResult:
        if not seen:
            seen["first"] = []
            quick = table.upsert([row(1, 2)])
            assert transaction.instant < quick.instant
            seen.clear()
            for instant in (quick.instant, quick.completion):
                assert instant is not None
                seen[instant] = read(table, instant)
        return commit(transaction, draft, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Transaction, "commit", commit_late)
    late = slow.upsert([row(0, 3)])
    assert len(seen) == 2
    assert late.instant is not None
    assert late.instant < min(seen), "it was requested before, and completed after"
    for instant, before in seen.items():
        assert before == [row(0), row(1, 2), row(2)]
        assert read(table, instant) == before
    assert read(table, late.instant) == [row(0, 3), row(1, 2), row(2)]


@pytest.fixture(params=TYPES)
def serviced(request: pytest.FixtureRequest) -> Iterator[Table]:
    created = create_table(request.param, "region", options=BY_HAND)
    with Table(snapshot_now(created._store), options=BY_HAND) as table:
        yield table


def test_savepoint_can_be_read_after_clean_and_archive(serviced: Table) -> None:
    table = serviced
    table.upsert(rows(range(6)))
    kept = table.upsert([row(1, 2), row(7)])
    assert kept.instant is not None
    before = read(table, kept.instant)
    table.savepoint(kept.instant)
    for ts in range(3, 12):
        table.upsert(rows(range(8), ts))
        table.compact() if table.properties.type.value == "MERGE_ON_READ" else None
    table.clean()
    assert table.archive().instants > 0
    assert before == ordered([row(1, 2), row(7), *rows([0, 2, 3, 4, 5])])
    assert read(table, kept.instant) == before
    assert table.read(partitions=["b"], as_of=kept.instant).num_rows == 3
    later = table.latest_completion
    assert later is not None
    assert read(table, later) == rows(range(8), 11)


@pytest.mark.parametrize("index", ["SIMPLE", "BUCKET"])
@pytest.mark.parametrize("compaction", ["none", "done", "planned", "planned before"])
def test_base_files_of_a_savepoint_can_be_read_after_clean_and_archive(
    compaction: str, index: str
) -> None:
    store = create_table("MERGE_ON_READ", "region", index=index, options=BY_HAND)._store
    with Table(snapshot_now(store), options=BY_HAND) as table:
        table.upsert(rows(range(6)))
        kept = table.upsert([row(1, 2), row(7, 2)])
        if compaction == "done":
            table.compact()
        elif compaction != "none":
            compactions(table.writer(), table._options).schedule()
        if compaction in ("done", "planned before"):
            kept = table.upsert([row(1, 3)])
        assert kept.instant is not None
        before = both_reads(table, kept.instant)
        table.savepoint(kept.instant)
        for ts in range(4, 12):
            table.upsert(rows(range(8), ts))
            table.compact()
            table.clean()
        assert table.archive().instants > 0
        assert both_reads(table, kept.instant) == before


def both_reads(table: Table, as_of: str) -> list[list[dict[str, object]]]:
    """Return the rows as of an instant, and those of its base files."""
    table.refresh()
    found = [table.read(as_of=as_of, read_optimized=each) for each in (False, True)]
    return [ordered(each.to_pylist()) for each in found]


def _late_commit(
    table: Table, others: list[list[dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], str]:
    """Let other writes complete before one that began first; return their instants, and its."""
    overtaking: list[str] = []
    commit = Transaction.commit

    def commit_late(transaction: Transaction, draft: CommitDraft, **more: object) -> CommitResult:
        if not overtaking:
            overtaking.append("")
            overtaking[:] = [str(table.upsert(each).instant) for each in others]
        return commit(transaction, draft, **more)  # type: ignore[arg-type]

    slow = tl.Table(snapshot_now(table._store), options=BY_HAND)
    monkeypatch.setattr(Transaction, "commit", commit_late)
    late = str(slow.upsert([row(0, 3)]).instant)
    monkeypatch.undo()
    assert late < min(overtaking)
    return overtaking, late


@pytest.mark.parametrize("archives", [False, True])
def test_instant_is_complete_or_refused_after_a_clean_of_files_replaced_by_an_older_request(
    serviced: Table, archives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = serviced
    merges = table.properties.type.value == "MERGE_ON_READ"
    table.upsert(rows(range(3)))
    instants, late = _late_commit(table, [[row(1, 2)], [row(1, 3)]], monkeypatch)
    expected = [
        [row(0), row(1, 2), row(2)],
        [row(0), row(1, 3), row(2)],
        [row(0, 3), row(1, 3), row(2)],
    ]
    for instant, then in zip([*instants, late], expected, strict=True):
        assert read(table, instant) == then
    for ts in range(4, 12 if archives else 5):
        # Another partition is written, so that these stay unchanged.
        table.upsert([row(2, ts)])
        if merges:
            table.compact()
        table.clean()
        if archives:
            table.archive()
    for instant, then in zip([*instants, late], expected, strict=True):
        try:
            assert read(table, instant) == then
        except NotFound:
            continue
    with pytest.raises(NotFound):
        read(table, instants[0])


def test_restore_to_a_savepoint_shows_commits_archived_before_it(serviced: Table) -> None:
    table = serviced
    for ts in range(1, 8):
        table.upsert([row(ts % 3, ts), row(ts + 10, ts)])
    before = ordered(table.read().to_pylist())
    table.savepoint()
    table.upsert([row(0, 9)])
    table.clean()
    assert table.archive().instants > 0
    table.restore(table.savepoints()[-1].instant, fence=True)
    table.refresh()
    assert ordered(table.read().to_pylist()) == before
    table.insert_overwrite([row(0, 10)])
    table.refresh()
    left = [each for each in before if each["region"] != row(0)["region"]]
    assert ordered(table.read().to_pylist()) == ordered([row(0, 10), *left])


def test_archived_instant_stays_decided_when_a_late_timeline_file_appears(
    serviced: Table,
) -> None:
    table = serviced
    merges = table.properties.type.value == "MERGE_ON_READ"
    action = Action.DELTA_COMMIT if merges else Action.COMMIT
    late = Instant(str(table.upsert([row(0)]).instant), action, InstantState.INFLIGHT)
    for ts in range(1, 9):
        table.upsert([row(1, ts)])
    assert table.archive().instants > 0
    assert late.requested not in {each.requested for each in table.timeline}
    table._store.put(f"{TIMELINE_FOLDER}/{late.file_name}", b"", Create())
    table.refresh()
    assert ordered(table.read().to_pylist()) == [row(0), row(1, 8)]
