"""A write from begin to commit or rollback, alone and with others."""

from __future__ import annotations

import pytest

from tests.unit.doubles import ScriptedStore, failing
from tests.unit.txn.bench import PARTITION, Bench, draft, groups, stopping
from tidelock.core.errors import Conflict, HoldingLost, InvalidInput, StoreUnreachable
from tidelock.hudi.file_groups import WriteToken, base_name
from tidelock.hudi.markers import IoType, Marker
from tidelock.hudi.timeline.active import TIMELINE_FOLDER, load_timeline
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import OperationType, encode
from tidelock.storage.contract import Create
from tidelock.txn import commit
from tidelock.txn.commit import BeginRequest
from tidelock.txn.conflicts import Abort, CheckKeys, Committed, Conflicted, Rebase
from tidelock.txn.effects import Delete, Get, Head, List, Put, Steps
from tidelock.txn.entries import Commit, StoredContent
from tidelock.txn.heartbeats import heartbeat_key, heartbeat_status
from tidelock.txn.transaction import TransactionPhase

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}


def write_marked(bench: Bench, instant: str, name: str) -> None:
    """Write a data file and its marker."""
    bench.store.put(Marker(PARTITION, name, IoType.CREATE).key(instant), b"", Create())
    bench.store.put(f"{PARTITION}/{name}", b"", Create())


def test_write_goes_through_requested_inflight_and_completed() -> None:
    bench = Bench()
    transaction = bench.begin(bench.writer())
    (pending,) = bench.pending()
    assert (pending.requested, pending.state) == (transaction.instant, InstantState.INFLIGHT)
    result = transaction.commit(draft(created=("a",)))
    assert isinstance(result, Committed)
    assert result.published
    (done,) = bench.completed()
    assert (done.requested, done.completion) == (transaction.instant, result.completion)
    states = [each.state for each in load_timeline(bench.store).states(done)]
    assert states == [InstantState.REQUESTED, InstantState.INFLIGHT, InstantState.COMPLETED]
    assert bench.keys(".hoodie/.heartbeat/") == []


def test_completed_instant_contains_the_metadata() -> None:
    bench = Bench()
    ready = draft(created=("a",))
    bench.begin(bench.writer()).commit(ready)
    (done,) = bench.completed()
    held = bench.store.get(load_timeline(bench.store).key(done))
    assert held is not None
    assert held.body == encode(ready.metadata)


def test_completion_is_later_than_the_request_and_the_request_later_than_the_snapshot() -> None:
    bench = Bench()
    txns = bench.writer()
    bench.clock.wall_offset_ms = 3_600_000
    first = bench.commit_one(txns, "a")
    bench.clock.wall_offset_ms = -3_600_000
    second = bench.commit_one(txns, "a")
    assert first.instant < first.completion < second.instant < second.completion


def test_two_writers_never_get_the_same_time() -> None:
    bench = Bench()
    each_txns = [bench.writer() for _ in range(5)]
    instants = [bench.begin(txns).instant for txns in each_txns]
    assert len(set(instants)) == 5


def test_time_whose_heartbeat_is_gone_is_not_reused() -> None:
    """C44: the stale process reads the ledger after it reserved the time, and takes a later one."""
    bench = Bench()
    stale, other = bench.writer(), bench.writer()
    base = stale.ledger.refresh()
    done = bench.commit_one(other, "a")
    late = stale.begin(Action.REPLACE_COMMIT, OperationType.INSERT_OVERWRITE, base=base)
    assert late.instant > done.completion


def test_time_abandoned_by_others_meanwhile_is_rolled_back_in_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request for it may land late: no process should wait for a writer that does not exist."""
    bench = Bench()
    slow, other = bench.writer(), bench.writer()
    announce, given_up = commit._create_pending, list[Instant]()

    def slowly(instant: Instant, what: BeginRequest) -> Steps[bool]:
        if not given_up:
            given_up.append(instant)
            bench.clock.sleep_ms(what.heartbeat.interval_ms)
            bench.store.delete(heartbeat_key(instant.requested))
        return (yield from announce(instant, what))

    monkeypatch.setattr(commit, "_create_pending", slowly)
    begun = bench.begin(slow)
    (late,) = given_up
    assert begun.instant > late.requested
    assert late.requested in other.ledger.refresh().aborted
    bench.store.put(f"{TIMELINE_FOLDER}/{late.started().file_name}", b"", Create())
    assert isinstance(begun.commit(draft(created=("a",))), Committed)
    bench.commit_one(other, "b")


def test_attempt_ids_are_unique() -> None:
    bench = Bench()
    txns = bench.writer()
    attempts = {bench.begin(txns).attempt for _ in range(20)}
    assert len(attempts) == 20


def test_disjoint_writers_both_commit() -> None:
    bench = Bench()
    one, two = bench.begin(bench.writer()), bench.begin(bench.writer())
    assert isinstance(two.commit(draft(touched=("b",))), Committed)
    assert isinstance(one.commit(draft(touched=("a",))), Committed)


def test_later_of_two_overlapping_writers_conflicts() -> None:
    bench = Bench()
    one, two = bench.begin(bench.writer()), bench.begin(bench.writer())
    assert isinstance(two.commit(draft(touched=("a", "b"))), Committed)
    result = one.commit(draft(touched=("a", "c")))
    assert isinstance(result, Conflicted)
    assert isinstance(result.verdict, Rebase)
    assert result.verdict.groups == groups("a")
    assert len(bench.completed()) == 1
    one.rollback(conflict=result)
    assert bench.pending() == ()


def test_compared_keys_need_not_be_compared_again() -> None:
    bench = Bench()
    one, two = bench.begin(bench.writer()), bench.begin(bench.writer())
    two.commit(draft(created=("x",), inserts={PARTITION: None}))
    ready = draft(created=("y",), inserts={PARTITION: None})
    result = one.commit(ready)
    assert isinstance(result, Conflicted)
    assert isinstance(result.verdict, CheckKeys)
    (check,) = result.verdict.checks
    assert check.files == ("x",)
    assert isinstance(one.commit(ready, cleared={check.position}), Committed)


def test_transaction_ends_once() -> None:
    bench = Bench()
    done = bench.begin(bench.writer())
    done.commit(draft())
    with pytest.raises(InvalidInput):
        done.commit(draft())
    with pytest.raises(Conflict):
        done.rollback()


def test_leaving_the_context_rolls_back_a_running_transaction() -> None:
    bench = Bench()
    with pytest.raises(RuntimeError), bench.begin(bench.writer()) as transaction:
        raise RuntimeError
    assert transaction.phase is TransactionPhase.ROLLED_BACK
    assert bench.pending() == ()
    assert bench.keys(".hoodie/.heartbeat/") == []


def test_rollback_removes_marked_files_and_nothing_else() -> None:
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


def test_rollback_without_markers_finds_its_files_by_name() -> None:
    bench = Bench()
    txns = bench.writer()
    other = bench.begin(bench.writer())
    transaction = bench.begin(txns)
    for instant in (transaction.instant, other.instant):
        name = base_name("g-0", WriteToken(0, 1, 0), instant)
        bench.store.put(f"{PARTITION}/{name}", b"", Create())
    transaction.rollback()
    (left,) = bench.keys(PARTITION)
    assert other.instant in left


def test_commit_removes_files_of_retried_tasks() -> None:
    bench = Bench()
    transaction = bench.begin(bench.writer(), markers=True)
    remaining, stray = (
        base_name("g-0", WriteToken(0, transaction.attempt, n), transaction.instant) for n in (0, 1)
    )
    for name in (remaining, stray):
        bench.store.put(
            Marker(PARTITION, name, IoType.CREATE).key(transaction.instant), b"", Create()
        )
        bench.store.put(f"{PARTITION}/{name}", b"", Create())
    result = transaction.commit(draft(created=("g-0",), files=(f"{PARTITION}/{remaining}",)))
    assert isinstance(result, Committed)
    assert bench.keys(PARTITION) == [f"{PARTITION}/{remaining}"]
    assert bench.keys(".hoodie/.temp/") == []


def test_large_metadata_is_stored_next_to_the_entry() -> None:
    bench = Bench()
    txns = bench.writer()
    ready = draft(created=("a",), extra={"much": "x" * 400_000})
    result = bench.begin(txns).commit(ready)
    assert isinstance(result, Committed)
    (entry,) = txns.ledger.view.tail
    assert isinstance(entry.fact, Commit)
    assert isinstance(entry.fact.content, StoredContent)
    (done,) = bench.completed()
    held = bench.store.get(load_timeline(bench.store).key(done))
    assert held is not None
    assert held.body == encode(ready.metadata)


def test_commit_that_cannot_be_published_stays_and_is_published_by_the_next() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    txns = bench.writer(store)
    transaction = bench.begin(txns)
    store.puts.extend([None, failing(StoreUnreachable("gone"))])
    result = transaction.commit(draft(created=("a",)))
    assert isinstance(result, Committed)
    assert not result.published
    assert bench.completed() == ()
    bench.writer().ledger.refresh()
    assert [done.requested for done in bench.completed()] == [transaction.instant]


def test_commits_are_published_in_order() -> None:
    bench = Bench()
    store = ScriptedStore(bench.store)
    slow, quick = bench.writer(store), bench.writer()
    first = bench.begin(slow)
    second = bench.begin(quick)
    store.puts.extend([None, failing(StoreUnreachable("gone"))])
    first.commit(draft(created=("a",)))
    second.commit(draft(created=("b",)))
    assert [done.requested for done in bench.completed()] == [first.instant, second.instant]


def test_lost_lock_is_noticed_before_anything_is_decided() -> None:
    bench = Bench()
    txns = bench.writer()
    transaction = bench.begin(txns)

    def lost() -> object:
        raise HoldingLost("the lease ran out")

    with pytest.raises(HoldingLost):
        txns.ledger.run(transaction.commit_steps(draft(created=("a",))), lost)
    assert bench.keys(".hoodie/.tidelock/ledger/") == []
    assert bench.completed() == ()


def test_heartbeat_identifies_the_writer() -> None:
    bench = Bench()
    txns = bench.writer(owner="me")
    transaction = bench.begin(txns)
    held = bench.store.get(heartbeat_key(transaction.instant))
    assert held is not None
    says = heartbeat_status(transaction.instant, held).record
    assert says is not None
    assert (says.owner, says.attempt, says.operation) == ("me", transaction.attempt, "UPSERT")


def test_hudi_strategy_refuses_what_ours_would_rebase() -> None:
    name = "org.apache.hudi.client.transaction.SimpleConcurrentFileWritesConflictResolutionStrategy"
    bench = Bench({**OCC, "hoodie.write.lock.conflict.resolution.strategy": name})
    one, two = bench.begin(bench.writer()), bench.begin(bench.writer())
    two.commit(draft(touched=("a",)))
    result = one.commit(draft(touched=("a",)))
    assert isinstance(result, Conflicted)
    assert isinstance(result.verdict, Abort)


def test_minimal_write_sends_exactly_these_requests() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    bench.commit_one(txns, "a")
    runner = stopping(txns, 10**6)
    begun = bench.begin(txns)
    assert [type(effect) for effect in runner.done if isinstance(effect, Get | Head | Put)] == [
        Get,  # refresh: may the table still be changed?
        Get,  # is there a next entry?
        Head,  # has the boundary moved?
        Get,  # begin: may the table be changed?
        Put,  # the heartbeat reserves the time
        Get,  # was the time used before?
        Head,
        Put,  # requested
        Put,  # inflight
    ]
    del runner.done[:]
    begun.commit(draft(touched=("a",)))
    requests = [e for e in runner.done if isinstance(e, Get | Head | Put | List | Delete)]
    assert [type(effect) for effect in requests] == [
        Get,  # may the table still be changed?
        List,  # is there a commit without an entry?
        Put,  # the entry
        Head,  # is its name behind the boundary?
        Put,  # completed
        Head,  # was it archived meanwhile?
        Delete,  # the heartbeat
    ]
