"""The asyncio lock client: it never blocks the loop, and leaves nothing after a cancellation."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tidelock.core.errors import AcquireTimeout, HoldingLost, InvalidInput
from tidelock.lock.async_client import AsyncLock
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.lock.record import decode
from tidelock.lock.record_store import LOCK_KEY
from tidelock.lock.state import Standing
from tidelock.storage.contract import PutMode, PutReply
from tidelock.storage.memory import MemoryStore

LEASE = Lease(validity_ms=60_000, renew_ms=1_000)
QUICK = Lease(validity_ms=600, renew_ms=60)

T = TypeVar("T")


class GatedStore(MemoryStore):
    """A memory store whose writes wait until `gate` is set."""

    def __init__(self) -> None:
        super().__init__(f"gated-{os.urandom(8).hex()}")
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Event()

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        self.arrived.set()
        self.gate.wait(60)
        return super().put(key, body, mode)

    def is_free(self) -> bool:
        found = self.get(LOCK_KEY)
        return found is None or decode(found.body).expired


def run(scenario: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(scenario(), 120)

    return asyncio.run(bounded())


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(12_000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to pass")


def test_acquire_check_and_release_without_blocking() -> None:
    async def scenario() -> None:
        store = GatedStore()
        lock = AsyncLock(store, LEASE, probe=False)
        token = await lock.acquire(60)
        assert lock.check() == lock.token == token
        other = AsyncLock(store, LEASE, probe=False)
        assert not await other.try_acquire()
        with pytest.raises(AcquireTimeout, match=lock.owner):
            await other.acquire(0.05)
        await lock.release()
        assert await other.try_acquire()
        await other.close()
        assert store.is_free()

    run(scenario)


def test_async_with_has_the_same_methods_as_with() -> None:
    async def scenario() -> None:
        store = GatedStore()
        async with Lock(store, LEASE, probe=False) as held:
            assert held.state is Standing.HELD
            assert held.check() == held.token
            assert not store.is_free()
        assert store.is_free()

    run(scenario)


def test_event_loop_continues_while_a_request_is_stalled() -> None:
    async def scenario() -> None:
        store = GatedStore()
        store.gate.clear()
        lock = AsyncLock(store, LEASE, probe=False)
        task = asyncio.create_task(lock.acquire(60))
        ticks = 0
        while not store.arrived.is_set() or ticks < 20:
            await asyncio.sleep(0.001)
            ticks += 1
        assert not task.done()
        store.gate.set()
        assert await task > 0
        await lock.close()

    run(scenario)


def test_cancelled_acquire_leaves_no_ghost_after_close() -> None:
    async def scenario() -> None:
        store = GatedStore()
        warm = AsyncLock(store, LEASE, probe=False)
        await warm.acquire(60)
        await warm.close()
        store.arrived.clear()
        store.gate.clear()
        lock = AsyncLock(store, LEASE, probe=False)
        task = asyncio.create_task(lock.acquire(60))
        await until(store.arrived.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert lock.state is Standing.FREE
        store.gate.set()
        # The request continues in its thread and lands, unseen.
        await until(lambda: not store.is_free())
        await lock.close()
        assert store.is_free()

    run(scenario)


def test_cancelled_wait_for_another_task_leaves_the_lock_usable() -> None:
    async def scenario() -> None:
        store = GatedStore()
        store.gate.clear()
        lock = AsyncLock(store, LEASE, probe=False)
        first = asyncio.create_task(lock.acquire(60))
        await until(store.arrived.is_set)
        second = asyncio.create_task(lock.acquire(60))
        await asyncio.sleep(0.05)  # let the second task start to wait
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        store.gate.set()
        token = await first
        assert await lock.acquire(60) == token
        await lock.release()
        await lock.close()

    run(scenario)


def test_more_waiting_tasks_than_threads_do_not_block_the_holder() -> None:
    async def scenario() -> None:
        store = GatedStore()
        holder = AsyncLock(store, LEASE, probe=False)
        await holder.acquire(60)
        lock = AsyncLock(store, LEASE, probe=False)
        tasks = [asyncio.create_task(lock.acquire(60)) for _ in range(100)]
        await asyncio.sleep(0.1)  # let all tasks start to wait
        await holder.release()
        assert len(set(await asyncio.gather(*tasks))) == 1
        await lock.close()

    run(scenario)


def test_loss_is_reported_and_raised_at_the_end_of_the_block() -> None:
    async def scenario() -> None:
        store = GatedStore()
        notified = threading.Event()
        async with Lock(store, QUICK, probe=False) as held:
            held.on_lost(lambda cause: notified.set())
            store.gate.clear()
            await until(notified.is_set)
            assert held.state is Standing.LOST
            store.gate.set()

    with pytest.raises(HoldingLost):
        run(scenario)


def test_closed_lock_reports_it() -> None:
    async def scenario() -> None:
        lock = AsyncLock(GatedStore(), LEASE, probe=False)
        await lock.close()
        with pytest.raises(InvalidInput, match="closed"):
            await lock.acquire(60)

    run(scenario)


def test_close_ends_the_wait_of_another_task() -> None:
    async def scenario() -> None:
        store = GatedStore()
        holder = AsyncLock(store, LEASE, probe=False)
        await holder.acquire(60)
        waiter = AsyncLock(store, LEASE, probe=False)
        waiting = asyncio.create_task(waiter.acquire(60))
        await asyncio.sleep(0.05)  # let the task start to wait
        await waiter.close()
        with pytest.raises(InvalidInput, match="closed"):
            await waiting
        await holder.close()

    run(scenario)
