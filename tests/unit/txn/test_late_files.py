"""Files that a sleeping executor writes after its plan was completed by another, and archived."""

from __future__ import annotations

import pytest

from tests.unit.txn.bench import PARTITION, Bench, draft
from tests.unit.txn.test_planning import COMPACT, DEAD_MS, OCC, claimed, compaction, planned
from tidelock.base.outcome import Unknown
from tidelock.store.contract import Create
from tidelock.table.markers import IoType, Marker
from tidelock.table.naming import WriteToken, base_name
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.archive import Archive, ArchivedInstant
from tidelock.txn.appending import Appended, No
from tidelock.txn.draft import Committed
from tidelock.txn.entry import Boundary, Fact
from tidelock.txn.transactions import Transactions
from tidelock.txn.view import View


def archive_past(bench: Bench, home: Transactions) -> None:
    """Move everything that completed to the history, and let the ledger say so."""
    timeline = load_timeline(bench.store)
    for each in timeline.writes():
        found = bench.store.get(timeline.key(each))
        assert found is not None
        old = ArchivedInstant(each.requested, each.completion, each.action, found.body)
        Archive(bench.store).append([old])
        bench.store.delete(timeline.key(each))
    later = bench.commit_one(home, "b").instant

    def propose(view: View) -> Fact | No[str]:
        return Boundary(view.position - 1, later, "")

    assert isinstance(home.ledger.append(propose), Appended)


@pytest.mark.parametrize("counts", [1, 2])
def test_what_a_sleeper_writes_for_an_archived_plan_goes_unless_the_history_names_it(
    counts: int,
) -> None:
    """C98: the archive swept before the file came, so nobody else looks for it."""
    bench = Bench(OCC)
    one, two = bench.writer(), bench.writer()
    plan = planned(bench, one)
    sleeper = claimed(one, plan)
    bench.clock.advance(DEAD_MS)
    files = [
        f"{PARTITION}/{base_name('a', WriteToken(0, number, 0), plan.instant)}" for number in (1, 2)
    ]
    bench.store.put(files[1], b"", Create())
    named = draft(COMPACT, touched=("a",), files=(files[counts - 1],))
    assert isinstance(claimed(two, plan).commit(named), Committed)
    archive_past(bench, two)
    bench.store.put(files[0], b"", Create())
    assert isinstance(sleeper.commit(compaction()), Unknown)
    assert bench.keys(PARTITION) == (files if counts == 1 else files[1:])


@pytest.mark.parametrize("stays", [True, False])
def test_what_a_sleeper_announced_and_wrote_before_it_was_killed_goes_with_the_next_clean(
    *, stays: bool
) -> None:
    """C98: the plan is complete by another attempt, or was rolled back."""
    bench = Bench(OCC)
    one, two = bench.writer(), bench.writer()
    plan = planned(bench, one, removable=not stays)
    sleeper = claimed(one, plan)
    bench.clock.advance(DEAD_MS)
    if stays:
        named = base_name("a", WriteToken(0, 2, 0), plan.instant)
        bench.store.put(f"{PARTITION}/{named}", b"", Create())
        done = draft(COMPACT, touched=("a",), files=(f"{PARTITION}/{named}",))
        assert isinstance(claimed(two, plan).commit(done), Committed)
    else:
        assert two.remove_plan(plan.instant, delay_ms=0) is None
    before = bench.keys(PARTITION)
    late = base_name("a", WriteToken(0, sleeper.attempt, 0), plan.instant)
    marker = Marker(PARTITION, late, IoType.MERGE)
    bench.store.put(marker.key(plan.instant), b"", Create())
    bench.store.put(f"{PARTITION}/{late}", b"", Create())
    two.recover()
    assert f"{PARTITION}/{late}" in bench.keys(PARTITION), "only a clean looks for it"
    two.recover(delay_ms=0)
    assert bench.keys(PARTITION) == before
    assert bench.keys(".hoodie/.temp/") == []


def test_files_of_a_running_write_are_not_swept() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    write = bench.begin(home, markers=True)
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
