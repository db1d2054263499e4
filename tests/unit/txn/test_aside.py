"""What a committed write leaves is removed beside what its caller does next."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from tests.unit.txn.bench import PARTITION, Bench, draft
from tidelock.store.contract import Create
from tidelock.store.memory import MemoryStore
from tidelock.store.uri import is_far
from tidelock.table.markers import IoType, Marker
from tidelock.table.properties_file import KEY as PROPERTIES
from tidelock.txn import aside
from tidelock.txn.aside import Aside, at_once
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.draft import Committed
from tidelock.txn.entry import Boundary
from tidelock.txn.publishing import write_checkpoint
from tidelock.txn.reading import catch_up

PATIENCE_S = 60.0


class Far(MemoryStore):
    """A store that says that it is behind a server."""

    @property
    def uri(self) -> str:
        return "s3://bucket/table"


class Held:
    """Work that waits until it may end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.done = 0

    def __call__(self) -> None:
        assert self.may_end.wait(PATIENCE_S)
        self.done += 1


def test_work_is_done_in_another_thread_and_waited_for_at_the_end() -> None:
    beside, work = Aside(), Held()
    threads: list[threading.Thread] = []
    beside(lambda: threads.append(threading.current_thread()))
    beside(work)
    assert not beside.drain(0.0)
    work.may_end.set()
    assert beside.drain(PATIENCE_S)
    assert work.done == 1
    assert threads != [threading.current_thread()]


def test_whoever_brings_too_much_work_does_it_himself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "_WAITING_MAX", 1)
    beside, work = Aside(), Held()
    beside(work)
    threads: list[threading.Thread] = []
    beside(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]
    work.may_end.set()
    assert beside.drain(PATIENCE_S)


def test_a_forked_child_which_has_none_of_the_threads_does_its_own_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aside, "_pid", -1)
    threads: list[threading.Thread] = []
    Aside()(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]


def test_work_that_fails_is_told_and_keeps_nobody_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise ValueError("no such thing")

    beside = Aside()
    with caplog.at_level(logging.ERROR, logger="tidelock.txn.aside"):
        beside(fail)
        assert beside.drain(PATIENCE_S)
    assert "no such thing" in caplog.text


def test_only_where_requests_are_round_trips_is_work_put_aside() -> None:
    bench = Bench()
    assert not is_far(bench.store)
    assert bench.writer().aside is at_once
    held = bench.store.get(PROPERTIES)
    assert held is not None
    far = Far("table")
    far.put(PROPERTIES, held.body, Create())
    with bench.writer(far) as home:
        assert isinstance(home.aside, Aside)


def test_a_commit_is_on_the_timeline_when_it_returns_and_is_tidied_later() -> None:
    bench = Bench()
    home = bench.writer()
    later: list[Callable[[], object]] = []
    home.aside = later.append
    transaction = bench.begin(home)
    assert isinstance(transaction.commit(draft(created=("a",))), Committed)
    assert [done.requested for done in bench.completed()] == [transaction.instant]
    assert bench.keys(".hoodie/.heartbeat/") != []
    (work,) = later
    work()
    assert bench.keys(".hoodie/.heartbeat/") == []


def test_a_process_that_ends_before_it_has_tidied_leaves_what_a_clean_removes() -> None:
    bench = Bench()
    home = bench.writer()
    home.aside = lambda _: None
    transaction = bench.begin(home, markers=True)
    marker = Marker(PARTITION, "a", IoType.CREATE)
    bench.store.put(marker.key(transaction.instant), b"", Create())
    transaction.commit(draft(created=("a",), files=(marker.data_key,)))
    bench.clock.advance(home.life_ms + 1)
    other = bench.writer()
    assert other.recover(delay_ms=0).undone == ()
    assert bench.keys(".hoodie/.heartbeat/") == bench.keys(".hoodie/.temp/") == []
    assert [done.requested for done in bench.completed()] == [transaction.instant]


def test_what_was_archived_before_the_look_back_is_taken_away_again() -> None:
    bench = Bench()
    home, archiver = bench.writer(), bench.writer()
    later: list[Callable[[], object]] = []
    home.aside = later.append
    transaction = bench.begin(home)
    transaction.commit(draft(created=("a",)))
    (file,) = bench.keys(f".hoodie/timeline/{transaction.instant}_")
    bench.commit_one(archiver, "b")
    archiver.ledger.append(lambda view: Boundary(1, view.fold.time))
    archiver.ledger.publish()
    archiver.ledger.run(write_checkpoint(archiver.ledger.view, every=0))
    assert bench.keys(file) == [file]
    later[0]()
    assert bench.keys(file) == []
    assert bench.keys(CHECKPOINT_KEY) == [CHECKPOINT_KEY]


def test_what_is_learnt_aside_of_the_checkpoint_is_not_lost_to_what_was_read_meanwhile() -> None:
    bench = Bench()
    home, other = bench.writer(), bench.writer()
    bench.commit_one(home, "a")
    before = home.ledger.view
    bench.commit_one(other, "b")
    read = home.ledger.run(catch_up(before))
    learnt = home.ledger.run(write_checkpoint(before, every=0))
    for joined in (read.joined(learnt), learnt.joined(read)):
        assert joined.position == before.position + 1
        assert (joined.checkpoint, joined.checkpointed) == (learnt.checkpoint, before.position)
