"""Writes of dead writers are rolled back; live and decided ones are left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.doubles import ScriptedStore, failing
from tests.unit.txn.bench import PARTITION, Bench, draft, groups
from tests.unit.txn.test_external_commits import Provider
from tidelock.core.errors import StoreUnreachable
from tidelock.hudi.file_groups import WriteToken, base_name
from tidelock.hudi.markers import IoType, Marker
from tidelock.hudi.snapshot import open_table
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.storage.contract import Create
from tidelock.txn.conflicts import Committed, Conflicted, Rebase
from tidelock.txn.heartbeats import heartbeat_key
from tidelock.txn.ledger_io import write_checkpoint
from tidelock.txn.writers import aborted_instants, conflicts, writers

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
NEVER = {**OCC, "hoodie.clean.failed.writes.policy": "NEVER"}
DEAD_MS = 60_000 * 10 + 1


def test_live_writer_is_left_alone() -> None:
    bench = Bench(OCC)
    transaction = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS - 2)
    recovered = bench.writer().recover()
    assert recovered.rolled_back == ()
    assert recovered.alive == (transaction.instant,)
    assert isinstance(transaction.commit(draft(created=("a",))), Committed)


def test_dead_writer_is_rolled_back_and_cannot_commit() -> None:
    bench = Bench(OCC)
    transaction = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    other = bench.writer()
    assert [each.instant for each in other.recover().rolled_back] == [transaction.instant]
    assert bench.pending() == ()
    result = transaction.commit(draft(created=("a",)))
    assert isinstance(result, Conflicted)
    assert isinstance(result.verdict, Rebase)
    assert bench.completed() == ()


def test_decided_commit_is_published_and_not_rolled_back() -> None:
    bench = Bench(OCC)
    store = ScriptedStore(bench.store)
    transaction = bench.begin(bench.writer(store))
    store.puts.extend([None, failing(StoreUnreachable("gone"))])
    transaction.commit(draft(created=("a",)))
    bench.clock.advance(DEAD_MS)
    assert bench.writer().recover().rolled_back == ()
    assert [done.requested for done in bench.completed()] == [transaction.instant]


def test_policy_never_rolls_nothing_back() -> None:
    bench = Bench(NEVER)
    bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    assert bench.writer().recover().rolled_back == ()
    assert len(bench.pending()) == 1


def test_eager_writer_recovers_before_its_first_write() -> None:
    bench = Bench({"hoodie.clean.failed.writes.policy": "EAGER"})
    dead = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    bench.begin(bench.writer())
    assert dead.instant not in {instant.requested for instant in bench.pending()}


def test_eager_writer_does_not_roll_back_a_running_write() -> None:
    bench = Bench({"hoodie.clean.failed.writes.policy": "EAGER"})
    alive = bench.begin(bench.writer())
    bench.begin(bench.writer())
    assert alive.instant in {instant.requested for instant in bench.pending()}


def test_java_write_without_a_heartbeat_is_left_alone() -> None:
    """Java's writes have none by default: whether the writer is running cannot be determined."""
    bench = Bench(OCC)
    for state in ("commit.requested", "inflight"):
        bench.store.put(f".hoodie/timeline/20200101000000000.{state}", b"", Create())
    bench.clock.advance(DEAD_MS)
    assert bench.writer().recover().alive == ("20200101000000000",)
    assert len(bench.pending()) == 1


def test_request_without_a_heartbeat_is_dead_where_java_is_not_known_to_write() -> None:
    """It may be one of ours that arrived late."""
    bench = Bench(OCC)
    bench.store.put(".hoodie/timeline/20200101000000000.commit.requested", b"", Create())
    assert len(bench.writer().recover().rolled_back) == 1
    assert bench.pending() == ()


def test_java_write_without_a_heartbeat_is_dead_where_all_use_a_lock() -> None:
    """Java refuses to share a lock without heartbeats."""
    bench = Bench(OCC)
    txns = bench.writer()
    txns.lock.provider = Provider()  # type: ignore[assignment]
    bench.store.put(".hoodie/timeline/20200101000000000.commit.requested", b"", Create())
    assert len(txns.recover().rolled_back) == 1
    assert bench.pending() == ()


def test_late_files_of_a_zombie_are_invisible() -> None:
    """T12: once the instant is archived, only the set of aborted writes excludes them."""
    bench = Bench(OCC)
    zombie = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    other = bench.writer()
    other.recover()
    late = base_name("g-0", WriteToken(0, zombie.attempt, 0), zombie.instant)
    bench.store.put(late, b"", Create())
    bench.commit_one(other, "a")
    other.ledger.advance(other.ledger.run(write_checkpoint(other.ledger.view, every=1)))
    plain = open_table(bench.store)
    assert [piece.instant for piece in plain.slices()] == [zombie.instant]
    aborted = aborted_instants(bench.store)
    assert aborted == {zombie.instant}
    assert replace(plain, aborted=aborted).slices() == ()


def test_writers_are_listed_with_their_details_and_file_groups() -> None:
    bench = Bench(OCC)
    txns = bench.writer(owner="me")
    transaction = bench.begin(txns, markers=True)
    name = base_name("g-0", WriteToken(0, 1, 0), transaction.instant)
    bench.store.put(Marker(PARTITION, name, IoType.MERGE).key(transaction.instant), b"", Create())
    bench.clock.advance(5_000)
    (writer,) = writers(bench.store, clock=bench.clock)
    assert (writer.owner, writer.operation, writer.alive) == ("me", "UPSERT", True)
    assert (writer.age_ms, writer.state, writer.groups) == (5_000, "inflight", groups("g-0"))
    bench.clock.advance(DEAD_MS)
    (writer,) = writers(bench.store, clock=bench.clock)
    assert not writer.alive


def test_conflicts_are_recorded() -> None:
    bench = Bench(OCC)
    one, two = bench.begin(bench.writer(owner="one")), bench.begin(bench.writer())
    two.commit(draft(touched=("a",)))
    result = one.commit(draft(touched=("a",)))
    assert isinstance(result, Conflicted)
    one.rollback(conflict=result, files=("x",))
    (conflict,) = conflicts(bench.store)
    assert (conflict.instant, conflict.owner, conflict.conflicts_with) == (
        one.instant,
        "one",
        (two.instant,),
    )
    assert conflict.groups == groups("a")


@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT])
def test_every_kind_of_write_is_rolled_back(action: Action) -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    txns.begin(action, OperationType.UPSERT, markers=False)
    bench.clock.advance(DEAD_MS)
    assert len(bench.writer().recover().rolled_back) == 1
    assert bench.pending() == ()
    assert bench.keys(".hoodie/.heartbeat/") == []


def test_orphaned_heartbeat_is_removed_once_it_is_old() -> None:
    bench = Bench(OCC)
    bench.store.put(heartbeat_key("20200101000000000"), b"", Create())
    txns = bench.writer()
    bench.commit_one(txns, "a")
    txns.recover()
    assert len(bench.keys(".hoodie/.heartbeat/")) == 1
    bench.clock.advance(DEAD_MS)
    txns.recover()
    assert bench.keys(".hoodie/.heartbeat/") == []
