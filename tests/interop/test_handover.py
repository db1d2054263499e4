"""The lock moves between Hudi's Java writers and us, by release and after a crash."""

from __future__ import annotations

import time
from threading import Timer

from tests.interop.table import Table
from tidelock.lock.state import Standing

HUDI_DRIFT_MS = 500
OUR_WAIT_MS = 1_000
"""Drift and grace (P10)."""
SLACK_MS = 30_000
"""Tolerance for polls, requests and a busy machine."""


def now_epoch_ms() -> int:
    """Return the wall time that the lock file uses."""
    return time.time_ns() // 1_000_000


def test_we_acquire_immediately_after_hudi_releases(table: Table) -> None:
    writer, ours = table.java(), table.ours()
    assert writer.try_lock()
    assert not ours.try_acquire()
    writer.unlock()
    assert ours.try_acquire()


def test_hudi_acquires_immediately_after_we_release(table: Table) -> None:
    writer, ours = table.java(), table.ours()
    ours.acquire(60)
    assert not writer.try_lock()
    ours.release()
    assert writer.try_lock()
    assert table.record().owner == writer.owner


def test_hudi_waits_for_us_and_acquires(table: Table) -> None:
    writer, ours = table.java(), table.ours()
    ours.acquire(60)
    writer.start_command("lock", 120_000)
    # Hudi polls once a second: let it poll at least once before it can succeed.
    time.sleep(1.2)
    assert table.record().owner == ours.owner
    ours.release()
    assert writer.receive() is True


def test_we_wait_for_hudi_and_acquire(table: Table) -> None:
    writer, ours = table.java(), table.ours()
    assert writer.try_lock()
    release = Timer(0.3, writer.unlock)
    began = time.monotonic()
    release.start()
    ours.acquire(60)
    waited_s = time.monotonic() - began
    release.join()
    assert 0.25 < waited_s < 0.3 + SLACK_MS / 1_000


def test_renewals_keep_the_lock_on_both_sides(table: Table) -> None:
    """After the first lease the holder still holds and the other side is still refused."""
    holder, ours = table.java(), table.ours()
    ours.acquire(60)
    first_ms = table.record().valid_until_epoch_ms
    while now_epoch_ms() <= first_ms + OUR_WAIT_MS:
        assert not holder.try_lock()
        assert ours.state is Standing.HELD
        time.sleep(0.2)
    ours.release()
    assert holder.try_lock()
    first_ms = table.record().valid_until_epoch_ms
    while now_epoch_ms() <= first_ms + OUR_WAIT_MS:
        assert not ours.try_acquire()
        time.sleep(0.2)
    holder.unlock()
    assert ours.try_acquire()


def test_killed_hudi_holder_is_replaced_only_after_its_lease(table: Table) -> None:
    writer, ours = table.java(), table.ours()
    assert writer.try_lock()
    writer.kill()
    valid_until_ms = table.record().valid_until_epoch_ms
    assert not ours.try_acquire()
    ours.acquire(60)
    taken_ms = now_epoch_ms()
    assert valid_until_ms + OUR_WAIT_MS < taken_ms < valid_until_ms + OUR_WAIT_MS + SLACK_MS


def test_killed_holder_of_ours_is_replaced_by_hudi_only_after_its_lease(table: Table) -> None:
    holder = table.holder_process()
    writer = table.java()
    holder.kill()
    holder.join()
    record = table.record()
    assert record.is_ours
    assert not writer.try_lock()
    while not writer.try_lock():
        assert now_epoch_ms() < record.valid_until_epoch_ms + HUDI_DRIFT_MS + SLACK_MS
        time.sleep(0.05)
    assert now_epoch_ms() > record.valid_until_epoch_ms + HUDI_DRIFT_MS
