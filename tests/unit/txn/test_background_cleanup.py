"""Cleanup after a commit runs in the background while the caller continues."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from tests.unit.txn.bench import PARTITION, Bench, draft
from tidelock.hudi.markers import IoType, Marker
from tidelock.hudi.properties import KEY as PROPERTIES
from tidelock.storage.contract import Create
from tidelock.storage.memory import MemoryStore
from tidelock.storage.uri import is_remote
from tidelock.txn import transaction_manager
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.conflicts import Committed
from tidelock.txn.entries import Boundary
from tidelock.txn.ledger_io import catch_up, write_checkpoint
from tidelock.txn.transaction_manager import BackgroundCleanup, run_inline

PATIENCE_S = 60.0


class Far(MemoryStore):
    """A store that reports a remote URI."""

    @property
    def uri(self) -> str:
        return "s3://bucket/table"


class Held:
    """Work that blocks until it is released."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.done = 0

    def __call__(self) -> None:
        assert self.may_end.wait(PATIENCE_S)
        self.done += 1


def test_work_runs_in_another_thread_and_is_awaited_at_the_end() -> None:
    cleanup, work = BackgroundCleanup(), Held()
    threads: list[threading.Thread] = []
    cleanup(lambda: threads.append(threading.current_thread()))
    cleanup(work)
    assert not cleanup.drain(0.0)
    work.may_end.set()
    assert cleanup.drain(PATIENCE_S)
    assert work.done == 1
    assert threads != [threading.current_thread()]


def test_caller_with_too_much_work_does_it_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_manager, "_WAITING_MAX", 1)
    cleanup, work = BackgroundCleanup(), Held()
    cleanup(work)
    threads: list[threading.Thread] = []
    cleanup(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]
    work.may_end.set()
    assert cleanup.drain(PATIENCE_S)


def test_forked_child_without_threads_does_its_own_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_manager, "_pid", -1)
    threads: list[threading.Thread] = []
    BackgroundCleanup()(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]


def test_failing_work_is_reported_and_blocks_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise ValueError("no such thing")

    cleanup = BackgroundCleanup()
    with caplog.at_level(logging.ERROR, logger="tidelock.txn.transaction_manager"):
        cleanup(fail)
        assert cleanup.drain(PATIENCE_S)
    assert "no such thing" in caplog.text


def test_work_is_deferred_only_where_requests_are_round_trips() -> None:
    bench = Bench()
    assert not is_remote(bench.store)
    assert bench.writer().cleanup is run_inline
    held = bench.store.get(PROPERTIES)
    assert held is not None
    far = Far("table")
    far.put(PROPERTIES, held.body, Create())
    with bench.writer(far) as txns:
        assert isinstance(txns.cleanup, BackgroundCleanup)


def test_commit_is_on_the_timeline_when_it_returns_and_cleaned_up_later() -> None:
    bench = Bench()
    txns = bench.writer()
    later: list[Callable[[], object]] = []
    txns.cleanup = later.append
    transaction = bench.begin(txns)
    assert isinstance(transaction.commit(draft(created=("a",))), Committed)
    assert [done.requested for done in bench.completed()] == [transaction.instant]
    assert bench.keys(".hoodie/.heartbeat/") != []
    (work,) = later
    work()
    assert bench.keys(".hoodie/.heartbeat/") == []


def test_process_that_ends_before_cleanup_leaves_what_a_clean_removes() -> None:
    bench = Bench()
    txns = bench.writer()
    txns.cleanup = lambda _: None
    transaction = bench.begin(txns, markers=True)
    marker = Marker(PARTITION, "a", IoType.CREATE)
    bench.store.put(marker.key(transaction.instant), b"", Create())
    transaction.commit(draft(created=("a",), files=(marker.data_key,)))
    bench.clock.advance(txns.lifetime_ms + 1)
    other = bench.writer()
    assert other.recover(delay_ms=0).rolled_back == ()
    assert bench.keys(".hoodie/.heartbeat/") == bench.keys(".hoodie/.temp/") == []
    assert [done.requested for done in bench.completed()] == [transaction.instant]


def test_files_archived_before_the_check_are_removed_again() -> None:
    bench = Bench()
    txns, archiver = bench.writer(), bench.writer()
    later: list[Callable[[], object]] = []
    txns.cleanup = later.append
    transaction = bench.begin(txns)
    transaction.commit(draft(created=("a",)))
    (file,) = bench.keys(f".hoodie/timeline/{transaction.instant}_")
    bench.commit_one(archiver, "b")
    archiver.ledger.append(lambda view: Boundary(1, view.state.time))
    archiver.ledger.publish()
    archiver.ledger.run(write_checkpoint(archiver.ledger.view, every=0))
    assert bench.keys(file) == [file]
    later[0]()
    assert bench.keys(file) == []
    assert bench.keys(CHECKPOINT_KEY) == [CHECKPOINT_KEY]


def test_checkpoint_learnt_in_the_background_is_not_lost_to_a_concurrent_read() -> None:
    bench = Bench()
    txns, other = bench.writer(), bench.writer()
    bench.commit_one(txns, "a")
    before = txns.ledger.view
    bench.commit_one(other, "b")
    read = txns.ledger.run(catch_up(before))
    learnt = txns.ledger.run(write_checkpoint(before, every=0))
    for joined in (read.merged_with(learnt), learnt.merged_with(read)):
        assert joined.position == before.position + 1
        assert (joined.checkpoint, joined.checkpointed) == (learnt.checkpoint, before.position)
