"""One lock shard in an event loop: every reply depends only on durable entries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.unit.doubles import ScriptedStore, failing
from tidelock.core.errors import AcquireTimeout, StoreUnreachable, TidelockError, Unavailable
from tidelock.core.system import SystemClock, SystemIds
from tidelock.lock.server import shard as shards
from tidelock.lock.server.backend_lock import BackendLock, LostListener
from tidelock.lock.server.component import Component, LockRequest
from tidelock.lock.server.entries import GrantEnded, KeepAliveMode, LockGranted
from tidelock.lock.server.errors import InstanceFenced, LockNotFound, Overloaded, ResourceLocked
from tidelock.lock.server.journal import LockJournal
from tidelock.lock.server.resource import KeyPrefix
from tidelock.lock.server.shard import LockShard
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import PutReply
from tidelock.storage.memory import MemoryStore


def component_on(store: ScriptedStore, backend: BackendLock | None = None) -> Component:
    clock, ids = SystemClock(), SystemIds()
    shard = LockShard(
        LockJournal(store, ids, ReadbackPolicy(clock=clock, ids=ids)), clock, ids, backend
    )
    return Component("s", "lock.tidelock", shard, KeyPrefix(), 30_000)


@asynccontextmanager
async def started(
    store: ScriptedStore, backend: BackendLock | None = None
) -> AsyncIterator[Component]:
    component = component_on(store, backend)
    await component.shard.start()
    try:
        yield component
    finally:
        await component.shard.stop()


def run(scenario: Callable[[ScriptedStore], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await scenario(ScriptedStore(MemoryStore()))

    asyncio.run(bounded())


def options(
    key: str = "r",
    mode: KeepAliveMode = KeepAliveMode.AUTO_RENEWED,
    ttl_ms: int = 0,
    request_id: str = "",
) -> LockRequest:
    return LockRequest(key, "p", ttl_ms=ttl_ms, mode=mode, request_id=request_id)


async def until_free(component: Component) -> None:
    while (await component.status("r")).granted is not None:  # noqa: ASYNC110 - a state, not an event
        await asyncio.sleep(0.01)


def test_lock_is_granted_renewed_and_released() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            held = await component.try_lock(options())
            assert (await component.renew_lock("r", "p", held.lock_id, 5_000)).ttl_ms == 5_000
            with pytest.raises(ResourceLocked):
                await component.try_lock(options())
            await component.unlock("r", "p", held.lock_id)
            with pytest.raises(LockNotFound):
                await component.unlock("r", "p", held.lock_id)
            with pytest.raises(LockNotFound):
                await component.renew_lock("r", "p", held.lock_id)

    run(scenario)


def test_many_requests_share_one_write() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            before = store.count("put")
            await asyncio.gather(*(component.try_lock(options(f"r{n}")) for n in range(200)))
            assert store.count("put") - before <= 5

    run(scenario)


def test_replies_are_sent_after_their_entry_is_durable() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            backend = threading.Event()

            def slow(through: Callable[[], PutReply]) -> PutReply:
                backend.wait(60)
                return through()

            store.puts.append(slow)
            pending = asyncio.ensure_future(component.try_lock(options()))
            await asyncio.sleep(0.05)  # time for a reply that must not come
            assert not pending.done()
            backend.set()
            await pending

    run(scenario)


def test_ended_wait_leaves_the_queue() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            held = await component.try_lock(options())
            with pytest.raises(AcquireTimeout):
                await component.lock(options(), 50)
            assert (await component.status("r")).waiters == 0
            await component.unlock("r", "p", held.lock_id)
            assert (await component.status("r")).granted is None

    run(scenario)


def test_grant_of_a_disconnected_caller_is_released() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            backend = threading.Event()

            def slow(through: Callable[[], PutReply]) -> PutReply:
                backend.wait(60)
                return through()

            store.puts.append(slow)
            pending = asyncio.ensure_future(component.try_lock(options()))
            await asyncio.sleep(0.05)  # let the request reach the slow store
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
            backend.set()
            await until_free(component)
            assert (await component.status("r")).granted is None

    run(scenario)


def test_renewal_of_a_disconnected_caller_ends_nothing() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            held = await component.try_lock(options(mode=KeepAliveMode.TIMED))
            renewal = asyncio.ensure_future(component.renew_lock("r", "p", held.lock_id, 9_000))
            await asyncio.sleep(0)  # let the renewal start
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            await asyncio.sleep(0.05)  # time for an end that must not come
            assert (await component.status("r")).granted is not None

    run(scenario)


def test_second_instance_replaces_the_first_and_knows_its_locks() -> None:
    async def scenario(store: ScriptedStore) -> None:
        first = component_on(store)
        await first.shard.start()
        held = await first.try_lock(options())
        async with started(store) as second:
            with pytest.raises(InstanceFenced):
                await first.try_lock(options("other"))
            with pytest.raises(ResourceLocked):
                await second.try_lock(options())
            await second.unlock("r", "p", held.lock_id)
            with pytest.raises(InstanceFenced):
                await first.status("r")
        await first.shard.stop()

    run(scenario)


def test_replaced_instance_renews_nothing_and_shows_nothing() -> None:
    async def scenario(store: ScriptedStore) -> None:
        first = component_on(store)
        await first.shard.start()
        held = await first.try_lock(options(mode=KeepAliveMode.TIMED))
        async with started(store):
            # A renewal writes no entry; without a check it would promise a lock that another holds.
            with pytest.raises(InstanceFenced):
                await first.renew_lock("r", "p", held.lock_id)
        await first.shard.stop()

    run(scenario)


def test_idle_instance_notices_its_replacement_and_ends_its_streams() -> None:
    async def scenario(store: ScriptedStore) -> None:
        first = component_on(store)
        await first.shard.start()
        notices: asyncio.Queue[str] = asyncio.Queue()
        handle = first.shard.handle()
        first.shard.listen(handle, notices.put_nowait)
        await first.stream(options(mode=KeepAliveMode.STREAM, ttl_ms=2_000), handle, immediate=True)
        async with started(store):
            assert "taken over" in await asyncio.wait_for(notices.get(), 60)
        await first.shard.stop()

    run(scenario)


def test_stream_is_notified_before_another_instance_can_expire_its_lock() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            notices: asyncio.Queue[str] = asyncio.Queue()
            handle = component.shard.handle()
            component.shard.listen(handle, notices.put_nowait)
            await component.stream(
                options(mode=KeepAliveMode.STREAM, ttl_ms=5_000), handle, immediate=True
            )
            began = asyncio.get_running_loop().time()
            store.gets.extend([StoreUnreachable("away")] * 1_000)
            assert "cannot reach its store" in await asyncio.wait_for(notices.get(), 60)
            assert asyncio.get_running_loop().time() - began < 15
            store.gets.clear()

    run(scenario)


def test_service_resumes_when_the_store_is_available_again() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            store.puts.extend([failing(StoreUnreachable("away"))] * 3)
            await component.try_lock(options())
            assert component.shard.failure is None

    run(scenario)


def test_followers_receive_all_events_once_and_in_order_from_any_cursor() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            start = component.shard.durable
            received: list[int] = []

            async def follow() -> None:
                async for entry in component.shard.follow(start):
                    received.append(entry.number)
                    if len(received) == 40:
                        return

            task = asyncio.ensure_future(follow())
            for number in range(20):
                held = await component.try_lock(options(f"r{number}"))
                await component.unlock(f"r{number}", "p", held.lock_id)
            await task
            assert received == list(range(start + 1, start + 41))
            late = component.shard.follow(start + 30)
            assert (await anext(late)).number == start + 31

    run(scenario)


def test_cursor_survives_a_restart() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            await component.try_lock(options())
            cursor = component.shard.durable - 1
        async with started(store) as component:
            follower = component.shard.follow(cursor)
            assert isinstance((await anext(follower)).decision, LockGranted)

    run(scenario)


def test_expired_or_foreign_cursor_is_an_error() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            with pytest.raises(LookupError):
                await anext(component.shard.follow(10_000))
            component.shard.events.clear()
            with pytest.raises(LookupError):
                await anext(component.shard.follow(0))

    run(scenario)


def test_full_inbox_refuses_before_any_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "REQUESTS_PENDING_MAX", 0)

    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            with pytest.raises(Overloaded):
                await component.try_lock(options())

    run(scenario)


def test_stopped_shard_answers_waiters_and_keeps_no_stream_lock() -> None:
    async def scenario(store: ScriptedStore) -> None:
        async with started(store) as component:
            await component.try_lock(options("kept"))
            handle = component.shard.handle()
            notices: list[str] = []
            component.shard.listen(handle, notices.append)
            await component.stream(
                options("streamed", KeepAliveMode.STREAM), handle, immediate=True
            )
            waiter = asyncio.ensure_future(component.lock(options("kept")))
            await asyncio.sleep(0.02)  # let the waiter join the queue
        with pytest.raises(Unavailable):
            await waiter
        assert "shutting down" in notices[0]
        async with started(store) as component:
            assert (await component.status("streamed")).granted is None
            assert (await component.status("kept")).granted is not None

    run(scenario)


class FakeBackend:
    """A backend controlled by the test."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        self.external: set[str] = set()
        self.given_back: list[tuple[str, bool]] = []
        self.lost: LostListener | None = None
        self.error: TidelockError | None = None
        self.probes = 0

    def listen(self, lost: LostListener) -> None:
        self.lost = lost

    async def try_acquire(self, key: str, ttl_ms: int, *, immediate: bool) -> int | None:
        del immediate
        if self.error is not None:
            raise self.error
        if key in self.external:
            await asyncio.sleep(0.01)  # a backend takes time to refuse
            return None
        self.taken[key] = ttl_ms
        return len(self.taken) + 1_000

    def release(self, key: str, *, by_force: bool) -> None:
        self.given_back.append((key, by_force))

    async def probe(self) -> None:
        self.probes += 1
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        return


def test_backend_confirms_every_grant_and_gets_every_release() -> None:
    async def scenario(store: ScriptedStore) -> None:
        backend = FakeBackend()
        async with started(store, backend) as component:
            held = await component.try_lock(options(ttl_ms=8_000))
            assert held.token == 1_001
            assert backend.taken["r"] >= 8_000, "the backend's lease outlives the client's"
            await component.unlock("r", "p", held.lock_id)
            assert backend.given_back == [("r", False)]

    run(scenario)


def test_lock_held_by_another_program_in_the_backend_is_waited_for() -> None:
    async def scenario(store: ScriptedStore) -> None:
        backend = FakeBackend()
        backend.external.add("r")
        async with started(store, backend) as component:
            with pytest.raises(ResourceLocked):
                await component.try_lock(options())
            waiter = asyncio.ensure_future(component.lock(options()))
            await asyncio.sleep(0.05)  # time for a grant that must not come
            assert not waiter.done()
            backend.external.clear()
            assert (await waiter).token

    run(scenario)


def test_failing_backend_gives_unavailable_and_no_grant() -> None:
    async def scenario(store: ScriptedStore) -> None:
        backend = FakeBackend()
        backend.error = StoreUnreachable("away")
        async with started(store, backend) as component:
            with pytest.raises(Unavailable, match="away"):
                await component.try_lock(options())
            assert not any(isinstance(e.decision, LockGranted) for e in component.shard.events)

    run(scenario)


def test_health_checks_the_backend_and_each_change_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(store: ScriptedStore) -> None:
        backend = FakeBackend()
        async with started(store, backend) as component:
            backend.error = StoreUnreachable("away")
            notices = await asyncio.gather(*(component.shard.outage_cause() for _ in range(20)))
            assert all("away" in cause for cause in notices)
            assert backend.probes == 1, "many who ask at once cost one question"
            for _ in range(3):
                with pytest.raises(Unavailable):
                    await component.try_lock(options())
            backend.error = None
            await component.try_lock(options())
            assert component.shard.outage == ""
        messages = [record.getMessage() for record in caplog.records]
        assert len([text for text in messages if "does not answer: away" in text]) == 1
        assert len([text for text in messages if "answers again" in text]) == 1

    run(scenario)


def test_wait_that_ends_during_a_backend_outage_is_not_a_plain_refusal() -> None:
    async def scenario(store: ScriptedStore) -> None:
        backend = FakeBackend()
        backend.error = StoreUnreachable("away")
        async with started(store, backend) as component:
            with pytest.raises(Unavailable, match="away"):
                await component.lock(options(), 50)
            # The backend request of the disconnected caller is still running.
            with pytest.raises(Unavailable, match="away"):
                await component.try_lock(options())

    run(scenario)


class SilentBackend(FakeBackend):
    """A backend that has stopped replying; callers time out."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.ended = asyncio.Event()

    async def try_acquire(self, key: str, ttl_ms: int, *, immediate: bool) -> int | None:
        self.asked.set()
        await self.ended.wait()
        return await super().try_acquire(key, ttl_ms, immediate=immediate)


@pytest.mark.parametrize("away", [True, False])
def test_caller_without_a_wait_is_notified_of_an_undetected_outage(away: bool) -> None:
    async def scenario(store: ScriptedStore) -> None:
        backend = SilentBackend()
        backend.error = StoreUnreachable("away") if away else None
        async with started(store, backend) as component:
            waiter = asyncio.ensure_future(component.lock(options()))
            await backend.asked.wait()
            other = asyncio.ensure_future(component.try_lock(options()))
            for _ in range(2):
                await component.status("r")  # requests sent before this are answered before it
            backend.ended.set()
            if away:
                with pytest.raises(Unavailable, match="away"):
                    await other
                backend.error = None
            else:
                with pytest.raises(ResourceLocked, match="token"):
                    await other
            assert (await waiter).token, "whoever came first gets the lock"

    run(scenario)


def test_loss_in_the_backend_is_recorded() -> None:
    async def scenario(store: ScriptedStore) -> None:
        backend = FakeBackend()
        async with started(store, backend) as component:
            await component.try_lock(options())
            assert backend.lost is not None
            backend.lost("r", "stolen")
            await until_free(component)
            assert any(
                isinstance(e.decision, GrantEnded) and e.decision.cause == "stolen"
                for e in component.shard.events
            )

    run(scenario)
