"""What dead writers left is undone; what lives, or is decided, is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.doubles import ScriptedStore, failing
from tests.unit.txn.bench import PARTITION, Bench, draft, groups
from tests.unit.txn.test_foreign import Provider
from tidelock.base.errors import StoreUnreachable
from tidelock.store.contract import Create
from tidelock.table.markers import IoType, Marker
from tidelock.table.naming import WriteToken, base_name
from tidelock.table.snapshot import open_table
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import OperationType
from tidelock.txn.draft import Committed, Overtaken
from tidelock.txn.heartbeat import heartbeat_key
from tidelock.txn.publishing import write_checkpoint
from tidelock.txn.verdict import Rebase
from tidelock.txn.writers import conflicts, void_instants, writers

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
NEVER = {**OCC, "hoodie.clean.failed.writes.policy": "NEVER"}
DEAD_MS = 60_000 * 10 + 1


def test_a_live_writer_is_left_alone() -> None:
    bench = Bench(OCC)
    transaction = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS - 2)
    recovered = bench.writer().recover()
    assert recovered.undone == ()
    assert recovered.alive == (transaction.instant,)
    assert isinstance(transaction.commit(draft(created=("a",))), Committed)


def test_a_dead_writer_is_rolled_back_and_cannot_commit_any_more() -> None:
    bench = Bench(OCC)
    transaction = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    other = bench.writer()
    assert [each.instant for each in other.recover().undone] == [transaction.instant]
    assert bench.pending() == ()
    result = transaction.commit(draft(created=("a",)))
    assert isinstance(result, Overtaken)
    assert isinstance(result.verdict, Rebase)
    assert bench.completed() == ()


def test_a_commit_that_was_decided_is_published_and_not_rolled_back() -> None:
    bench = Bench(OCC)
    store = ScriptedStore(bench.store)
    transaction = bench.begin(bench.writer(store))
    store.puts.extend([None, failing(StoreUnreachable("gone"))])
    transaction.commit(draft(created=("a",)))
    bench.clock.advance(DEAD_MS)
    assert bench.writer().recover().undone == ()
    assert [done.requested for done in bench.completed()] == [transaction.instant]


def test_the_policy_never_undoes_nothing() -> None:
    bench = Bench(NEVER)
    bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    assert bench.writer().recover().undone == ()
    assert len(bench.pending()) == 1


def test_an_eager_writer_cleans_up_before_its_first_write() -> None:
    bench = Bench({"hoodie.clean.failed.writes.policy": "EAGER"})
    dead = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    bench.begin(bench.writer())
    assert dead.instant not in {instant.requested for instant in bench.pending()}


def test_an_eager_writer_does_not_undo_what_another_is_writing() -> None:
    bench = Bench({"hoodie.clean.failed.writes.policy": "EAGER"})
    alive = bench.begin(bench.writer())
    bench.begin(bench.writer())
    assert alive.instant in {instant.requested for instant in bench.pending()}


def test_a_java_write_without_a_heartbeat_is_left_alone() -> None:
    """By default Java's have none: it may be at work, and nobody can tell."""
    bench = Bench(OCC)
    for state in ("commit.requested", "inflight"):
        bench.store.put(f".hoodie/timeline/20200101000000000.{state}", b"", Create())
    bench.clock.advance(DEAD_MS)
    assert bench.writer().recover().alive == ("20200101000000000",)
    assert len(bench.pending()) == 1


def test_a_request_without_a_heartbeat_is_dead_where_java_is_not_known_to_write() -> None:
    """It may be one of ours that arrived late."""
    bench = Bench(OCC)
    bench.store.put(".hoodie/timeline/20200101000000000.commit.requested", b"", Create())
    assert len(bench.writer().recover().undone) == 1
    assert bench.pending() == ()


def test_where_all_take_a_lock_a_java_write_without_a_heartbeat_counts_as_dead() -> None:
    """Java refuses to share a lock without heartbeats."""
    bench = Bench(OCC)
    home = bench.writer()
    home.lock.provider = Provider()  # type: ignore[assignment]
    bench.store.put(".hoodie/timeline/20200101000000000.commit.requested", b"", Create())
    assert len(home.recover().undone) == 1
    assert bench.pending() == ()


def test_files_that_a_zombie_writes_late_are_no_rows() -> None:
    """T12: with the instant archived, they would look committed but for the set of void writes."""
    bench = Bench(OCC)
    zombie = bench.begin(bench.writer())
    bench.clock.advance(DEAD_MS)
    other = bench.writer()
    other.recover()
    late = base_name("g-0", WriteToken(0, zombie.attempt, 0), zombie.instant)
    bench.store.put(late, b"", Create())
    bench.commit_one(other, "a")
    other.ledger.adopt(other.ledger.run(write_checkpoint(other.ledger.view, every=1)))
    plain = open_table(bench.store)
    assert [piece.instant for piece in plain.slices()] == [zombie.instant]
    void = void_instants(bench.store)
    assert void == {zombie.instant}
    assert replace(plain, void=void).slices() == ()


def test_writers_are_shown_with_what_they_say_and_touch() -> None:
    bench = Bench(OCC)
    home = bench.writer(owner="me")
    transaction = bench.begin(home, markers=True)
    name = base_name("g-0", WriteToken(0, 1, 0), transaction.instant)
    bench.store.put(Marker(PARTITION, name, IoType.MERGE).key(transaction.instant), b"", Create())
    bench.clock.advance(5_000)
    (writer,) = writers(bench.store, clock=bench.clock)
    assert (writer.owner, writer.operation, writer.alive) == ("me", "UPSERT", True)
    assert (writer.age_ms, writer.state, writer.groups) == (5_000, "inflight", groups("g-0"))
    bench.clock.advance(DEAD_MS)
    (writer,) = writers(bench.store, clock=bench.clock)
    assert not writer.alive


def test_who_was_overtaken_by_whom_is_kept() -> None:
    bench = Bench(OCC)
    one, two = bench.begin(bench.writer(owner="one")), bench.begin(bench.writer())
    two.commit(draft(touched=("a",)))
    result = one.commit(draft(touched=("a",)))
    assert isinstance(result, Overtaken)
    one.rollback(overtaken=result, files=("x",))
    (met,) = conflicts(bench.store)
    assert (met.instant, met.owner, met.overtaken_by) == (one.instant, "one", (two.instant,))
    assert met.groups == groups("a")


@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT])
def test_every_kind_of_write_is_undone(action: Action) -> None:
    bench = Bench(OCC)
    home = bench.writer()
    home.begin(action, OperationType.UPSERT, markers=False)
    bench.clock.advance(DEAD_MS)
    assert len(bench.writer().recover().undone) == 1
    assert bench.pending() == ()
    assert bench.keys(".hoodie/.heartbeat/") == []


def test_a_heartbeat_without_anything_else_is_removed_once_it_is_old() -> None:
    bench = Bench(OCC)
    bench.store.put(heartbeat_key("20200101000000000"), b"", Create())
    home = bench.writer()
    bench.commit_one(home, "a")
    home.recover()
    assert len(bench.keys(".hoodie/.heartbeat/")) == 1
    bench.clock.advance(DEAD_MS)
    home.recover()
    assert bench.keys(".hoodie/.heartbeat/") == []
