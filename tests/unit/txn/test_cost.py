"""What a commit asks of the store, and what it does not."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.txn.bench import PARTITION, Bench, StoppingWorld, draft, stopping
from tidelock.store.contract import Create
from tidelock.table.markers import IoType, Marker
from tidelock.table.naming import WriteToken, base_name
from tidelock.txn.draft import Committed
from tidelock.txn.effects import Delete, Effect, Get, Head, List, Put
from tidelock.txn.entry import LEDGER_FOLDER


def requests(world: StoppingWorld) -> list[Effect]:
    """Return what was asked of the store, in order."""
    return [each for each in world.done if isinstance(each, Get | Head | Put | List | Delete)]


def on_ledger(world: StoppingWorld) -> list[type[Effect]]:
    """Return what was asked of the ledger's entries, in order."""
    keyed = [each for each in world.done if isinstance(each, Get | Put)]
    return [type(each) for each in keyed if each.key.startswith(LEDGER_FOLDER)]


def test_a_writer_that_knows_its_markers_lists_none_and_removes_them() -> None:
    bench = Bench()
    home = bench.writer()
    transaction = bench.begin(home, markers=True)
    name = base_name("g-0", WriteToken(0, transaction.attempt, 0), transaction.instant)
    marker = Marker(PARTITION, name, IoType.CREATE)
    bench.store.put(marker.key(transaction.instant), b"", Create())
    ready = draft(created=("g-0",), files=(f"{PARTITION}/{name}",))
    world = stopping(home, 10**6)
    result = transaction.commit(replace(ready, markers=frozenset({marker})))
    assert isinstance(result, Committed)
    listed = [each.prefix for each in requests(world) if isinstance(each, List)]
    assert listed == [".hoodie/timeline/"], "for commits without an entry, and no markers"
    assert bench.keys(".hoodie/.temp/") == []


def test_a_lone_writer_s_entry_is_created_without_a_look() -> None:
    bench = Bench()
    home = bench.writer()
    bench.commit_one(home, "a")
    transaction = bench.begin(home)
    world = stopping(home, 10**6)
    transaction.commit(draft(created=("b",)))
    assert on_ledger(world) == [Put]


def test_where_others_commit_their_entries_are_read_before_one_s_own_is_made() -> None:
    bench = Bench()
    home, other = bench.writer(), bench.writer()
    bench.commit_one(other, "a")
    transaction = bench.begin(home)
    for group in ("b", "c"):
        bench.commit_one(other, group)
    world = stopping(home, 10**6)
    assert isinstance(transaction.commit(draft(created=("d",))), Committed)
    assert on_ledger(world) == [Get, Get, Get, Put]


def test_whoever_sees_others_commits_on_the_timeline_reads_their_entries_first() -> None:
    bench = Bench()
    home, other = bench.writer(), bench.writer()
    transaction = bench.begin(home)
    for group in ("a", "b"):
        bench.commit_one(other, group)
    world = stopping(home, 10**6)
    assert isinstance(transaction.commit(draft(created=("d",))), Committed)
    assert on_ledger(world) == [Get, Get, Get, Put]


def test_a_race_lost_right_after_reading_costs_a_try_and_a_read() -> None:
    bench = Bench()
    home, other = bench.writer(), bench.writer()
    bench.commit_one(other, "a")
    transaction, between = bench.begin(home), bench.begin(other)
    world = stopping(home, 10**6)
    steps = transaction.commit_steps(draft(created=("b",)))
    answer: object = None
    met = False
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration:
            break
        if isinstance(effect, Put) and effect.key.startswith(LEDGER_FOLDER) and not met:
            met = True
            between.commit(draft(created=("c",)))
        answer = world._answer(effect, None)
    assert on_ledger(world) == [Get, Put, Get, Put]
    assert len(bench.completed()) == 3


def test_what_is_on_the_timeline_tells_that_all_before_it_is() -> None:
    bench = Bench()
    home, *others = (bench.writer() for _ in range(4))
    begun = [bench.begin(other) for other in others]
    transaction = bench.begin(home)
    for number, each in enumerate(begun):
        each.commit(draft(created=(f"g{number}",)))
    world = stopping(home, 10**6)
    assert isinstance(transaction.commit(draft(created=("mine",))), Committed)
    looked = [each.key for each in requests(world) if isinstance(each, Head)]
    completed = [key for key in looked if key.endswith(".commit")]
    assert completed == bench.keys(f".hoodie/timeline/{begun[-1].instant}_")


def test_what_nobody_has_published_is_published_in_order() -> None:
    bench = Bench()
    home, *others = (bench.writer() for _ in range(4))
    begun = [bench.begin(other) for other in others]
    transaction = bench.begin(home)
    for number, (other, each) in enumerate(zip(others, begun, strict=True)):
        ready = draft(created=(f"g{number}",))
        assert isinstance(other.ledger.run(each._decide(ready, ())), Committed)
    world = stopping(home, 10**6)
    transaction.commit(draft(created=("mine",)))
    put = [each.key for each in requests(world) if isinstance(each, Put)]
    order = [key for key in put if key.endswith(".commit")]
    instants = [each.instant for each in (*begun, transaction)]
    assert [key.rpartition("/")[2].partition("_")[0] for key in order] == instants
