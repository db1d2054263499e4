"""One thread renews many locks, and reports a loss even if a request is stalled."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tidelock.core import threads as runtime
from tidelock.core.errors import HoldingLost, Unavailable
from tidelock.core.system import SystemClock
from tidelock.lock import heartbeat
from tidelock.lock.client import Lock
from tidelock.lock.events import RenewalUnknown, Renewed, Result
from tidelock.lock.heartbeat import RENEWALS_AT_ONCE_MAX, Renewals
from tidelock.lock.lease import Lease, RenewalSchedule
from tidelock.lock.state import Standing
from tidelock.storage.contract import PutMode, PutReply
from tidelock.storage.memory import MemoryStore

QUICK = Lease(validity_ms=1_000, renew_ms=40)
LASTING = Lease(validity_ms=60_000, renew_ms=40)
"""Renewed as often, and not lost if the machine does not run this process for a while."""
STALLED_S = 120.0


def eventually(holds: Callable[[], bool], *, within_s: float = 60.0) -> bool:
    until = time.monotonic() + within_s
    while not holds() and time.monotonic() < until:
        time.sleep(0.002)
    return holds()


class CountingStore(MemoryStore):
    """A memory store that counts writes, and whose writes can be delayed."""

    def __init__(self) -> None:
        super().__init__(f"counting-{os.urandom(8).hex()}")
        self.writes = Counter[str]()
        self.gate = threading.Event()
        self.gate.set()

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        self.writes[key.rpartition("/")[2]] += 1
        self.gate.wait(STALLED_S)
        return super().put(key, body, mode)

    @property
    def records(self) -> int:
        return self.writes["table_lock.json"]


def test_held_lock_is_renewed_beyond_its_validity() -> None:
    store = CountingStore()
    renewals = Renewals(SystemClock())
    lease = Lease(validity_ms=8_000, renew_ms=40)
    lock = Lock(store, lease, probe=False, renewals=renewals)
    token = lock.acquire(0)
    first_ms = lock.deadline_monotonic_ms() or 0
    while SystemClock().now().monotonic_ms < first_ms:
        assert lock.check() == token
        time.sleep(0.02)
    assert lock.check() == token
    assert store.records >= 2
    lock.release()
    assert len(renewals) == 0


def test_lock_with_an_earlier_renewal_is_not_delayed() -> None:
    renewals = Renewals(SystemClock())
    slow = Lock(CountingStore(), Lease(300_000, 30_000), probe=False, renewals=renewals)
    store = CountingStore()
    quick = Lock(store, LASTING, probe=False, renewals=renewals)
    slow.acquire(0)
    quick.acquire(0)
    assert eventually(lambda: store.records >= 4)
    quick.release()
    quick.acquire(0)
    assert eventually(lambda: store.records >= 9)
    quick.release()
    slow.release()


def test_nothing_is_written_after_a_release() -> None:
    store = CountingStore()
    lock = Lock(store, LASTING, probe=False)
    lock.acquire(0)
    assert eventually(lambda: store.records >= 3)
    lock.release()
    written = store.records
    time.sleep(0.2)  # several renewal intervals
    assert store.records == written  # L10


def test_nothing_is_written_after_the_owning_thread_has_ended() -> None:
    store = CountingStore()
    renewals = Renewals(SystemClock())
    lock = Lock(store, QUICK, probe=False, renewals=renewals)
    owner = threading.Thread(target=lock.acquire, args=(0,))
    owner.start()
    owner.join()
    notified = threading.Event()
    lock.on_lost(lambda cause: notified.set())
    assert notified.wait(60)
    written = store.records
    time.sleep(0.2)  # several renewal intervals
    assert store.records == written  # L10
    assert lock.state is Standing.LOST
    assert len(renewals) == 0


def test_one_thread_and_a_small_pool_renew_two_hundred_locks() -> None:
    renewals = Renewals(SystemClock())
    lease = Lease(validity_ms=60_000, renew_ms=400)
    before = threading.active_count()
    stores = [CountingStore() for _ in range(200)]
    locks = [Lock(store, lease, probe=False, renewals=renewals) for store in stores]
    for lock in locks:
        lock.acquire(0)
    assert len(renewals) == 200
    assert eventually(lambda: min(store.records for store in stores) >= 3)
    heartbeats = [it for it in threading.enumerate() if it.name == "tidelock-heartbeat"]
    assert threading.active_count() - before <= 1 + RENEWALS_AT_ONCE_MAX
    assert all(lock.state is Standing.HELD for lock in locks)
    assert len(heartbeats) >= 1
    for lock in locks:
        lock.close()
    assert len(renewals) == 0


def test_locks_first_acquired_at_the_same_time_share_one_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    real = runtime.start_thread

    def slow(name: str, target: Callable[[], None]) -> threading.Thread:
        started.append(name)
        time.sleep(0.05)  # widens the race
        return real(name, target)

    monkeypatch.setattr(heartbeat, "start_thread", slow)
    renewals = Renewals(SystemClock())
    locks = [
        Lock(CountingStore(), LASTING, probe=False, renewals=renewals, bind_thread=False)
        for _ in range(8)
    ]
    threads = [threading.Thread(target=lock.acquire, args=(0,)) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert started == ["tidelock-heartbeat"]
    assert len(renewals) == 8
    for lock in locks:
        lock.close()


def test_owner_is_notified_of_a_loss_while_the_renewal_is_stalled() -> None:
    store = CountingStore()
    lock = Lock(store, QUICK, probe=False)
    lock.acquire(0)
    deadline_ms = lock.deadline_monotonic_ms()
    assert deadline_ms is not None
    told_ms: list[int] = []
    store.gate.clear()
    lock.on_lost(lambda cause: told_ms.append(SystemClock().now().monotonic_ms))
    assert eventually(lambda: bool(told_ms))
    deadline_ms = lock.deadline_monotonic_ms() or deadline_ms
    # P29: the deadline plus one interval, and tolerance for a busy machine. The request is stalled
    # for much longer.
    assert told_ms[0] <= deadline_ms + QUICK.renew_ms + 20_000
    with pytest.raises(HoldingLost):
        lock.check()
    store.gate.set()
    # P23: the renewal that lands now is released, not used.
    assert eventually(lambda: not lock.is_bound or store.records >= 4)
    assert lock.state is not Standing.HELD
    lock.close()


def test_stalled_lock_does_not_delay_other_renewals() -> None:
    renewals = Renewals(SystemClock())
    stalled, healthy = CountingStore(), CountingStore()
    first = Lock(stalled, QUICK, probe=False, renewals=renewals)
    second = Lock(healthy, LASTING, probe=False, renewals=renewals)
    first.acquire(0)
    second.acquire(0)
    stalled.gate.clear()
    assert eventually(lambda: first.state is Standing.LOST)
    renewed = healthy.records
    assert eventually(lambda: healthy.records >= renewed + 5)
    assert second.state is Standing.HELD
    stalled.gate.set()
    first.close()
    second.close()


class Fake:
    """A holding whose deadline passes briefly and then moves on."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.deadline_ms: int | None = self.clock.now().monotonic_ms - 1
        self.notices = 0
        self.result: Result = Renewed()

    def renew(self) -> Result | None:
        self.deadline_ms = self.clock.now().monotonic_ms + 60
        return self.result

    def check_deadline(self) -> None:
        self.notices += 1

    def deadline_monotonic_ms(self) -> int | None:
        return self.deadline_ms


def test_every_deadline_is_noticed_not_only_the_first() -> None:
    renewals = Renewals(SystemClock())
    fake = Fake()
    lease = Lease(validity_ms=2_000, renew_ms=100)
    renewals.add(fake, RenewalSchedule.started(lease, fake.clock.now().monotonic_ms))
    assert eventually(lambda: fake.notices >= 3)
    renewals.remove(fake)


def test_unclear_renewal_is_retried_soon() -> None:
    renewals = Renewals(SystemClock())
    fake = Fake()
    fake.result = RenewalUnknown("reset")
    calls: list[float] = []
    real = fake.renew

    def noting() -> Result | None:
        calls.append(time.monotonic())
        return real()

    fake.renew = noting  # type: ignore[method-assign]
    lease = Lease(validity_ms=300_000, renew_ms=10_000)
    renewals.add(fake, RenewalSchedule(lease, fake.clock.now().monotonic_ms))
    assert eventually(lambda: len(calls) >= 3)
    renewals.remove(fake)
    # P27: a tenth of the interval, then two tenths.
    assert calls[2] - calls[0] < 0.9 * lease.renew_ms / 1000


def test_lock_without_a_thread_is_not_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, target: Callable[[], None]) -> threading.Thread:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(heartbeat, "start_thread", refuse)
    store = CountingStore()
    renewals = Renewals(SystemClock())
    lock = Lock(store, QUICK, probe=False, renewals=renewals)
    with pytest.raises(Unavailable, match="heartbeat"):
        lock.acquire(0)
    assert lock.state is Standing.FREE
    monkeypatch.undo()
    assert lock.acquire(0) > 0  # released, so another attempt succeeds at once
    lock.close()
