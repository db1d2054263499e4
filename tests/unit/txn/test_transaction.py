"""A write from begin to commit or roll-back, alone and among others."""

from __future__ import annotations

import pytest

from tests.unit.doubles import ScriptedStore, failing
from tests.unit.txn.bench import PARTITION, Bench, draft, groups, stopping
from tidelock.base.errors import Conflict, HoldingLost, InvalidInput, StoreUnreachable
from tidelock.store.contract import Create
from tidelock.table.markers import IoType, Marker
from tidelock.table.naming import WriteToken, base_name
from tidelock.table.timeline.active import TIMELINE_FOLDER, load_timeline
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import OperationType
from tidelock.txn import beginning
from tidelock.txn.beginning import Announcement
from tidelock.txn.content import Stored
from tidelock.txn.draft import Committed, Overtaken
from tidelock.txn.effects import Delete, Get, Head, List, Put, Steps
from tidelock.txn.entry import Commit
from tidelock.txn.heartbeat import heartbeat_key, pulse_of
from tidelock.txn.transaction import Phase
from tidelock.txn.verdict import CheckKeys, Rebase, Refuse

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}


def write_marked(bench: Bench, instant: str, name: str) -> None:
    """Write a data file, announced by its marker."""
    bench.store.put(Marker(PARTITION, name, IoType.CREATE).key(instant), b"", Create())
    bench.store.put(f"{PARTITION}/{name}", b"", Create())


def test_a_write_goes_through_requested_inflight_and_completed() -> None:
    bench = Bench()
    transaction = bench.begin(bench.writer())
    (pending,) = bench.pending()
    assert (pending.requested, pending.state) == (transaction.instant, State.INFLIGHT)
    result = transaction.commit(draft(created=("a",)))
    assert isinstance(result, Committed)
    assert result.published
    (done,) = bench.completed()
    assert (done.requested, done.completion) == (transaction.instant, result.completion)
    states = [each.state for each in load_timeline(bench.store).states(done)]
    assert states == [State.REQUESTED, State.INFLIGHT, State.COMPLETED]
    assert bench.keys(".hoodie/.heartbeat/") == []


def test_a_completed_instant_holds_the_metadata() -> None:
    bench = Bench()
    ready = draft(created=("a",))
    bench.begin(bench.writer()).commit(ready)
    (done,) = bench.completed()
    held = bench.store.get(load_timeline(bench.store).key(done))
    assert held is not None
    assert held.body == encode(ready.metadata)


def test_completion_is_later_than_the_request_and_request_later_than_what_was_read() -> None:
    bench = Bench()
    home = bench.writer()
    bench.clock.wall_offset_ms = 3_600_000
    first = bench.commit_one(home, "a")
    bench.clock.wall_offset_ms = -3_600_000
    second = bench.commit_one(home, "a")
    assert first.instant < first.completion < second.instant < second.completion


def test_two_writers_never_get_the_same_time() -> None:
    bench = Bench()
    homes = [bench.writer() for _ in range(5)]
    instants = [bench.begin(home).instant for home in homes]
    assert len(set(instants)) == 5


def test_a_time_whose_heartbeat_is_gone_is_not_given_again() -> None:
    """C44: the stale process reads the ledger once it has taken the time, and takes a later one."""
    bench = Bench()
    stale, other = bench.writer(), bench.writer()
    base = stale.ledger.refresh()
    done = bench.commit_one(other, "a")
    late = stale.begin(Action.REPLACE_COMMIT, OperationType.INSERT_OVERWRITE, base=base)
    assert late.instant > done.completion


def test_a_time_that_others_gave_up_meanwhile_is_rolled_back_in_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request of it may land late: nobody is to wait for a writer that is not there."""
    bench = Bench()
    slow, other = bench.writer(), bench.writer()
    announce, given_up = beginning._announce, list[Instant]()

    def slowly(instant: Instant, what: Announcement) -> Steps[bool]:
        if not given_up:
            given_up.append(instant)
            bench.clock.sleep_ms(what.beat.interval_ms)
            bench.store.delete(heartbeat_key(instant.requested))
        return (yield from announce(instant, what))

    monkeypatch.setattr(beginning, "_announce", slowly)
    begun = bench.begin(slow)
    (late,) = given_up
    assert begun.instant > late.requested
    assert late.requested in other.ledger.refresh().void
    bench.store.put(f"{TIMELINE_FOLDER}/{late.started().file_name}", b"", Create())
    assert isinstance(begun.commit(draft(created=("a",))), Committed)
    bench.commit_one(other, "b")


def test_an_attempt_is_unlike_any_other() -> None:
    bench = Bench()
    home = bench.writer()
    attempts = {bench.begin(home).attempt for _ in range(20)}
    assert len(attempts) == 20


def test_disjoint_writers_both_commit() -> None:
    bench = Bench()
    one, two = bench.begin(bench.writer()), bench.begin(bench.writer())
    assert isinstance(two.commit(draft(touched=("b",))), Committed)
    assert isinstance(one.commit(draft(touched=("a",))), Committed)


def test_the_later_of_two_overlapping_writers_is_overtaken() -> None:
    bench = Bench()
    one, two = bench.begin(bench.writer()), bench.begin(bench.writer())
    assert isinstance(two.commit(draft(touched=("a", "b"))), Committed)
    result = one.commit(draft(touched=("a", "c")))
    assert isinstance(result, Overtaken)
    assert isinstance(result.verdict, Rebase)
    assert result.verdict.groups == groups("a")
    assert len(bench.completed()) == 1
    one.rollback(overtaken=result)
    assert bench.pending() == ()


def test_keys_that_were_compared_need_not_be_compared_again() -> None:
    bench = Bench()
    one, two = bench.begin(bench.writer()), bench.begin(bench.writer())
    two.commit(draft(created=("x",), inserts={PARTITION: None}))
    ready = draft(created=("y",), inserts={PARTITION: None})
    result = one.commit(ready)
    assert isinstance(result, Overtaken)
    assert isinstance(result.verdict, CheckKeys)
    (check,) = result.verdict.checks
    assert check.files == ("x",)
    assert isinstance(one.commit(ready, cleared={check.position}), Committed)


def test_a_transaction_ends_once() -> None:
    bench = Bench()
    done = bench.begin(bench.writer())
    done.commit(draft())
    with pytest.raises(InvalidInput):
        done.commit(draft())
    with pytest.raises(Conflict):
        done.rollback()


def test_leaving_the_context_rolls_back_what_is_running() -> None:
    bench = Bench()
    with pytest.raises(RuntimeError), bench.begin(bench.writer()) as transaction:
        raise RuntimeError
    assert transaction.phase is Phase.ROLLED_BACK
    assert bench.pending() == ()
    assert bench.keys(".hoodie/.heartbeat/") == []


def test_a_rollback_removes_marked_files_and_nothing_else() -> None:
    bench = Bench()
    transaction = bench.begin(bench.writer(), markers=True)
    names = [
        base_name(f"g-{n}", WriteToken(0, transaction.attempt, 0), transaction.instant)
        for n in range(3)
    ]
    for name in names:
        bench.store.put(
            Marker(PARTITION, name, IoType.CREATE).key(transaction.instant), b"", Create()
        )
        bench.store.put(f"{PARTITION}/{name}", b"", Create())
    bench.store.put(f"{PARTITION}/other.parquet", b"", Create())
    undone = transaction.rollback()
    assert list(undone.files) == sorted(f"{PARTITION}/{name}" for name in names)
    assert bench.keys(PARTITION) == [f"{PARTITION}/other.parquet"]
    assert bench.keys(".hoodie/.temp/") == []


def test_a_rollback_without_markers_finds_its_files_by_name() -> None:
    bench = Bench()
    home = bench.writer()
    other = bench.begin(bench.writer())
    transaction = bench.begin(home)
    for instant in (transaction.instant, other.instant):
        name = base_name("g-0", WriteToken(0, 1, 0), instant)
        bench.store.put(f"{PARTITION}/{name}", b"", Create())
    transaction.rollback()
    (left,) = bench.keys(PARTITION)
    assert other.instant in left


def test_a_commit_removes_files_of_tasks_that_were_tried_twice() -> None:
    bench = Bench()
    transaction = bench.begin(bench.writer(), markers=True)
    kept, stray = (
        base_name("g-0", WriteToken(0, transaction.attempt, n), transaction.instant) for n in (0, 1)
    )
    for name in (kept, stray):
        bench.store.put(
            Marker(PARTITION, name, IoType.CREATE).key(transaction.instant), b"", Create()
        )
        bench.store.put(f"{PARTITION}/{name}", b"", Create())
    result = transaction.commit(draft(created=("g-0",), files=(f"{PARTITION}/{kept}",)))
    assert isinstance(result, Committed)
    assert bench.keys(PARTITION) == [f"{PARTITION}/{kept}"]
    assert bench.keys(".hoodie/.temp/") == []


def test_large_metadata_lies_beside_the_entry() -> None:
    bench = Bench()
    home = bench.writer()
    ready = draft(created=("a",), extra={"much": "x" * 400_000})
    result = bench.begin(home).commit(ready)
    assert isinstance(result, Committed)
    (entry,) = home.ledger.view.tail
    assert isinstance(entry.fact, Commit)
    assert isinstance(entry.fact.content, Stored)
    (done,) = bench.completed()
    held = bench.store.get(load_timeline(bench.store).key(done))
    assert held is not None
    assert held.body == encode(ready.metadata)


def test_a_commit_that_cannot_be_published_stands_and_is_published_by_the_next() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    home = bench.writer(store)
    transaction = bench.begin(home)
    store.puts.extend([None, failing(StoreUnreachable("gone"))])
    result = transaction.commit(draft(created=("a",)))
    assert isinstance(result, Committed)
    assert not result.published
    assert bench.completed() == ()
    bench.writer().ledger.refresh()
    assert [done.requested for done in bench.completed()] == [transaction.instant]


def test_nobody_publishes_before_what_was_decided_earlier_is_published() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    slow, quick = bench.writer(store), bench.writer()
    first = bench.begin(slow)
    second = bench.begin(quick)
    store.puts.extend([None, failing(StoreUnreachable("gone"))])
    first.commit(draft(created=("a",)))
    second.commit(draft(created=("b",)))
    assert [done.requested for done in bench.completed()] == [first.instant, second.instant]


def test_a_lost_lock_is_noticed_before_anything_is_decided() -> None:
    bench = Bench()
    home = bench.writer()
    transaction = bench.begin(home)

    def lost() -> object:
        raise HoldingLost("the lease ran out")

    with pytest.raises(HoldingLost):
        home.ledger.run(transaction.commit_steps(draft(created=("a",))), lost)
    assert bench.keys(".hoodie/.tidelock/ledger/") == []
    assert bench.completed() == ()


def test_a_heartbeat_says_who_writes() -> None:
    bench = Bench()
    home = bench.writer(owner="me")
    transaction = bench.begin(home)
    held = bench.store.get(heartbeat_key(transaction.instant))
    assert held is not None
    says = pulse_of(transaction.instant, held).says
    assert says is not None
    assert (says.owner, says.attempt, says.operation) == ("me", transaction.attempt, "UPSERT")


def test_hudi_s_strategy_refuses_what_ours_would_solve() -> None:
    name = "org.apache.hudi.client.transaction.SimpleConcurrentFileWritesConflictResolutionStrategy"
    bench = Bench({**OCC, "hoodie.write.lock.conflict.resolution.strategy": name})
    one, two = bench.begin(bench.writer()), bench.begin(bench.writer())
    two.commit(draft(touched=("a",)))
    result = one.commit(draft(touched=("a",)))
    assert isinstance(result, Overtaken)
    assert isinstance(result.verdict, Refuse)


def test_a_bare_write_takes_these_requests_and_no_more() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    bench.commit_one(home, "a")
    world = stopping(home, 10**6)
    begun = bench.begin(home)
    assert [type(effect) for effect in world.done if isinstance(effect, Get | Head | Put)] == [
        Get,  # refresh: is the table still one that may be changed?
        Get,  # is there a next entry?
        Head,  # has the boundary moved?
        Get,  # begin: may the table be changed?
        Put,  # the heartbeat takes the time
        Get,  # did anybody have it before?
        Head,
        Put,  # requested
        Put,  # inflight
    ]
    del world.done[:]
    begun.commit(draft(touched=("a",)))
    asked = [e for e in world.done if isinstance(e, Get | Head | Put | List | Delete)]
    assert [type(effect) for effect in asked] == [
        Get,  # may the table still be changed?
        List,  # is there a commit without an entry?
        Put,  # the entry
        Head,  # is its name behind the boundary?
        Put,  # completed
        Head,  # was it archived meanwhile?
        Delete,  # the heartbeat
    ]
