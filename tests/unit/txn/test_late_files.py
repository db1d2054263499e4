"""Files that a suspended executor writes after its plan was completed by another, and archived."""

from __future__ import annotations

import pytest

from tests.unit.txn.bench import PARTITION, Bench, draft
from tests.unit.txn.test_planning import COMPACT, DEAD_MS, OCC, claimed, compaction, planned
from tidelock.core.outcome import Unknown
from tidelock.hudi.file_groups import WriteToken, base_name
from tidelock.hudi.markers import IoType, Marker
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.history import Archive, ArchivedInstant
from tidelock.storage.contract import Create
from tidelock.txn.conflicts import Committed
from tidelock.txn.entries import Boundary, Fact
from tidelock.txn.ledger_io import Appended, Decline
from tidelock.txn.state import View
from tidelock.txn.transaction_manager import TransactionManager


def archive_past(bench: Bench, txns: TransactionManager) -> None:
    """Move all completed instants to the history, and record that in the ledger."""
    timeline = load_timeline(bench.store)
    for each in timeline.writes():
        found = bench.store.get(timeline.key(each))
        assert found is not None
        old = ArchivedInstant(each.requested, each.completion, each.action, found.body)
        Archive(bench.store).append([old])
        bench.store.delete(timeline.key(each))
    later = bench.commit_one(txns, "b").instant

    def propose(view: View) -> Fact | Decline[str]:
        return Boundary(view.position - 1, later, "")

    assert isinstance(txns.ledger.append(propose), Appended)


@pytest.mark.parametrize("counts", [1, 2])
def test_late_file_of_an_archived_plan_is_deleted_unless_the_history_lists_it(
    counts: int,
) -> None:
    """C98: the archive cleaned up before the file appeared, so nothing else looks for it."""
    bench = Bench(OCC)
    one, two = bench.writer(), bench.writer()
    plan = planned(bench, one)
    suspended = claimed(one, plan)
    bench.clock.advance(DEAD_MS)
    files = [
        f"{PARTITION}/{base_name('a', WriteToken(0, number, 0), plan.instant)}" for number in (1, 2)
    ]
    bench.store.put(files[1], b"", Create())
    named = draft(COMPACT, touched=("a",), files=(files[counts - 1],))
    assert isinstance(claimed(two, plan).commit(named), Committed)
    archive_past(bench, two)
    bench.store.put(files[0], b"", Create())
    assert isinstance(suspended.commit(compaction()), Unknown)
    assert bench.keys(PARTITION) == (files if counts == 1 else files[1:])


@pytest.mark.parametrize("stays", [True, False])
def test_late_marked_file_of_a_killed_executor_is_deleted_by_the_next_clean(*, stays: bool) -> None:
    """C98: the plan was completed by another attempt, or was rolled back."""
    bench = Bench(OCC)
    one, two = bench.writer(), bench.writer()
    plan = planned(bench, one, removable=not stays)
    suspended = claimed(one, plan)
    bench.clock.advance(DEAD_MS)
    if stays:
        named = base_name("a", WriteToken(0, 2, 0), plan.instant)
        bench.store.put(f"{PARTITION}/{named}", b"", Create())
        done = draft(COMPACT, touched=("a",), files=(f"{PARTITION}/{named}",))
        assert isinstance(claimed(two, plan).commit(done), Committed)
    else:
        assert two.remove_plan(plan.instant, delay_ms=0) is None
    before = bench.keys(PARTITION)
    late = base_name("a", WriteToken(0, suspended.attempt, 0), plan.instant)
    marker = Marker(PARTITION, late, IoType.MERGE)
    bench.store.put(marker.key(plan.instant), b"", Create())
    bench.store.put(f"{PARTITION}/{late}", b"", Create())
    two.recover()
    assert f"{PARTITION}/{late}" in bench.keys(PARTITION), "only a clean looks for it"
    two.recover(delay_ms=0)
    assert bench.keys(PARTITION) == before
    assert bench.keys(".hoodie/.temp/") == []


def test_files_of_a_running_write_are_not_deleted() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    write = bench.begin(txns, markers=True)
    name = base_name("a", WriteToken(0, write.attempt, 0), write.instant)
    bench.store.put(Marker(PARTITION, name, IoType.CREATE).key(write.instant), b"", Create())
    bench.store.put(f"{PARTITION}/{name}", b"", Create())
    bench.writer().recover(delay_ms=0)
    assert bench.keys(PARTITION) == [f"{PARTITION}/{name}"]
    assert isinstance(
        write.commit(draft(touched=("a",), files=(f"{PARTITION}/{name}",))), Committed
    )
    bench.writer().recover(delay_ms=0)
    assert bench.keys(PARTITION) == [f"{PARTITION}/{name}"]
