"""The store requests of a commit."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.txn.bench import PARTITION, Bench, StoppingRunner, draft, stopping
from tidelock.hudi.file_groups import WriteToken, base_name
from tidelock.hudi.markers import IoType, Marker
from tidelock.storage.contract import Create
from tidelock.txn.conflicts import Committed
from tidelock.txn.effects import Delete, Effect, Get, Head, List, Put
from tidelock.txn.entries import LEDGER_FOLDER


def requests(runner: StoppingRunner) -> list[Effect]:
    """Return the requests to the store, in order."""
    return [each for each in runner.done if isinstance(each, Get | Head | Put | List | Delete)]


def on_ledger(runner: StoppingRunner) -> list[type[Effect]]:
    """Return the requests for ledger entries, in order."""
    keyed = [each for each in runner.done if isinstance(each, Get | Put)]
    return [type(each) for each in keyed if each.key.startswith(LEDGER_FOLDER)]


def test_writer_that_knows_its_markers_lists_none_and_removes_them() -> None:
    bench = Bench()
    txns = bench.writer()
    transaction = bench.begin(txns, markers=True)
    name = base_name("g-0", WriteToken(0, transaction.attempt, 0), transaction.instant)
    marker = Marker(PARTITION, name, IoType.CREATE)
    bench.store.put(marker.key(transaction.instant), b"", Create())
    ready = draft(created=("g-0",), files=(f"{PARTITION}/{name}",))
    runner = stopping(txns, 10**6)
    result = transaction.commit(replace(ready, markers=frozenset({marker})))
    assert isinstance(result, Committed)
    listed = [each.prefix for each in requests(runner) if isinstance(each, List)]
    assert listed == [".hoodie/timeline/"], "for commits without an entry, and no markers"
    assert bench.keys(".hoodie/.temp/") == []


def test_entry_of_a_lone_writer_is_created_without_a_read() -> None:
    bench = Bench()
    txns = bench.writer()
    bench.commit_one(txns, "a")
    transaction = bench.begin(txns)
    runner = stopping(txns, 10**6)
    transaction.commit(draft(created=("b",)))
    assert on_ledger(runner) == [Put]


def test_entries_of_concurrent_writers_are_read_before_an_own_one_is_created() -> None:
    bench = Bench()
    txns, other = bench.writer(), bench.writer()
    bench.commit_one(other, "a")
    transaction = bench.begin(txns)
    for group in ("b", "c"):
        bench.commit_one(other, group)
    runner = stopping(txns, 10**6)
    assert isinstance(transaction.commit(draft(created=("d",))), Committed)
    assert on_ledger(runner) == [Get, Get, Get, Put]


def test_commits_seen_on_the_timeline_cause_their_entries_to_be_read_first() -> None:
    bench = Bench()
    txns, other = bench.writer(), bench.writer()
    transaction = bench.begin(txns)
    for group in ("a", "b"):
        bench.commit_one(other, group)
    runner = stopping(txns, 10**6)
    assert isinstance(transaction.commit(draft(created=("d",))), Committed)
    assert on_ledger(runner) == [Get, Get, Get, Put]


def test_race_lost_right_after_reading_costs_an_attempt_and_a_read() -> None:
    bench = Bench()
    txns, other = bench.writer(), bench.writer()
    bench.commit_one(other, "a")
    transaction, between = bench.begin(txns), bench.begin(other)
    runner = stopping(txns, 10**6)
    steps = transaction.commit_steps(draft(created=("b",)))
    answer: object = None
    raced = False
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration:
            break
        if isinstance(effect, Put) and effect.key.startswith(LEDGER_FOLDER) and not raced:
            raced = True
            between.commit(draft(created=("c",)))
        answer = runner._answer(effect, None)
    assert on_ledger(runner) == [Get, Put, Get, Put]
    assert len(bench.completed()) == 3


def test_published_commit_implies_that_all_earlier_ones_are() -> None:
    bench = Bench()
    txns, *others = (bench.writer() for _ in range(4))
    begun = [bench.begin(other) for other in others]
    transaction = bench.begin(txns)
    for number, each in enumerate(begun):
        each.commit(draft(created=(f"g{number}",)))
    runner = stopping(txns, 10**6)
    assert isinstance(transaction.commit(draft(created=("mine",))), Committed)
    looked = [each.key for each in requests(runner) if isinstance(each, Head)]
    completed = [key for key in looked if key.endswith(".commit")]
    assert completed == bench.keys(f".hoodie/timeline/{begun[-1].instant}_")


def test_unpublished_commits_are_published_in_order() -> None:
    bench = Bench()
    txns, *others = (bench.writer() for _ in range(4))
    begun = [bench.begin(other) for other in others]
    transaction = bench.begin(txns)
    for number, (other, each) in enumerate(zip(others, begun, strict=True)):
        ready = draft(created=(f"g{number}",))
        assert isinstance(other.ledger.run(each._decide(ready, ())), Committed)
    runner = stopping(txns, 10**6)
    transaction.commit(draft(created=("mine",)))
    put = [each.key for each in requests(runner) if isinstance(each, Put)]
    order = [key for key in put if key.endswith(".commit")]
    instants = [each.instant for each in (*begun, transaction)]
    assert [key.rpartition("/")[2].partition("_")[0] for key in order] == instants
