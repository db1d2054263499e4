"""One component at work in an event loop: answers rest on what is durable, and on nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.unit.doubles import ScriptedStore, failing
from tidelock.base.clock import SystemClock
from tidelock.base.errors import AcquireTimeout, StoreUnreachable, TidelockError, Unavailable
from tidelock.base.ids import SystemIds
from tidelock.lock.provider import Features
from tidelock.lockservice.answers import Deposed, LockNotFound, Overloaded, ResourceLocked
from tidelock.lockservice.cell import Cell
from tidelock.lockservice.component import Component, LockRequest
from tidelock.lockservice.entries import Ended, Granted, Mode
from tidelock.lockservice.gate import Gate, LostListener
from tidelock.lockservice.journal import Journal
from tidelock.lockservice.resource import KeyPrefix
from tidelock.store.contract import PutReply
from tidelock.store.memory import MemoryStore
from tidelock.store.readback import Patience


def component_on(store: ScriptedStore, gate: Gate | None = None) -> Component:
    clock, ids = SystemClock(), SystemIds()
    cell = Cell(Journal(store, ids, Patience(clock=clock, ids=ids)), clock, ids, gate)
    return Component("s", "lock.tidelock", cell, KeyPrefix(), 30_000)


@asynccontextmanager
async def started(store: ScriptedStore, gate: Gate | None = None) -> AsyncIterator[Component]:
    component = component_on(store, gate)
    await component.cell.start()
    try:
        yield component
    finally:
        await component.cell.stop()


def run(talk: Callable[[ScriptedStore], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await talk(ScriptedStore(MemoryStore()))

    asyncio.run(bounded())


def wish(
    key: str = "r", mode: Mode = Mode.KEPT, ttl_ms: int = 0, request_id: str = ""
) -> LockRequest:
    return LockRequest(key, "p", ttl_ms=ttl_ms, mode=mode, request_id=request_id)


async def until_free(component: Component) -> None:
    while (await component.look("r")).granted is not None:  # noqa: ASYNC110 - a state, not an event
        await asyncio.sleep(0.01)


def test_a_lock_is_granted_renewed_and_released() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            held = await component.try_lock(wish())
            assert (await component.renew_lock("r", "p", held.lock_id, 5_000)).ttl_ms == 5_000
            with pytest.raises(ResourceLocked):
                await component.try_lock(wish())
            await component.unlock("r", "p", held.lock_id)
            with pytest.raises(LockNotFound):
                await component.unlock("r", "p", held.lock_id)
            with pytest.raises(LockNotFound):
                await component.renew_lock("r", "p", held.lock_id)

    run(talk)


def test_many_requests_share_one_write() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            before = store.count("put")
            await asyncio.gather(*(component.try_lock(wish(f"r{n}")) for n in range(200)))
            assert store.count("put") - before <= 5

    run(talk)


def test_no_answer_comes_before_its_entry_is_durable() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            gate = threading.Event()

            def slow(through: Callable[[], PutReply]) -> PutReply:
                gate.wait(10)
                return through()

            store.puts.append(slow)
            asked = asyncio.ensure_future(component.try_lock(wish()))
            await asyncio.sleep(0.05)
            assert not asked.done()
            gate.set()
            await asked

    run(talk)


def test_a_wait_that_is_over_leaves_the_queue() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            held = await component.try_lock(wish())
            with pytest.raises(AcquireTimeout):
                await component.lock(wish(), 50)
            assert (await component.look("r")).waiters == 0
            await component.unlock("r", "p", held.lock_id)
            assert (await component.look("r")).granted is None

    run(talk)


def test_a_grant_whose_caller_has_gone_is_given_back() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            gate = threading.Event()

            def slow(through: Callable[[], PutReply]) -> PutReply:
                gate.wait(10)
                return through()

            store.puts.append(slow)
            asked = asyncio.ensure_future(component.try_lock(wish()))
            await asyncio.sleep(0.05)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            gate.set()
            await until_free(component)

    run(talk)


def test_a_renewal_whose_caller_has_gone_ends_nothing() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            held = await component.try_lock(wish(mode=Mode.TIMED))
            renewal = asyncio.ensure_future(component.renew_lock("r", "p", held.lock_id, 9_000))
            await asyncio.sleep(0)
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            await asyncio.sleep(0.05)
            assert (await component.look("r")).granted is not None

    run(talk)


def test_a_second_instance_deposes_the_first_and_knows_its_locks() -> None:
    async def talk(store: ScriptedStore) -> None:
        first = component_on(store)
        await first.cell.start()
        held = await first.try_lock(wish())
        async with started(store) as second:
            with pytest.raises(Deposed):
                await first.try_lock(wish("other"))
            with pytest.raises(ResourceLocked):
                await second.try_lock(wish())
            await second.unlock("r", "p", held.lock_id)
            with pytest.raises(Deposed):
                await first.look("r")
        await first.cell.stop()

    run(talk)


def test_a_replaced_instance_renews_nothing_and_shows_nothing() -> None:
    async def talk(store: ScriptedStore) -> None:
        first = component_on(store)
        await first.cell.start()
        held = await first.try_lock(wish(mode=Mode.TIMED))
        async with started(store):
            # A renewal writes no entry; without a look it would promise what another has taken.
            with pytest.raises(Deposed):
                await first.renew_lock("r", "p", held.lock_id)
        await first.cell.stop()

    run(talk)


def test_an_idle_instance_notices_that_it_was_deposed_and_tells_its_streams() -> None:
    async def talk(store: ScriptedStore) -> None:
        first = component_on(store)
        await first.cell.start()
        told: asyncio.Queue[str] = asyncio.Queue()
        handle = first.cell.handle()
        first.listen(handle, told.put_nowait)
        await first.stream(wish(mode=Mode.STREAM, ttl_ms=2_000), handle, immediate=True)
        async with started(store):
            assert "taken over" in await asyncio.wait_for(told.get(), 5)
        await first.cell.stop()

    run(talk)


def test_a_stream_is_told_before_another_instance_could_let_its_lock_expire() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            told: asyncio.Queue[str] = asyncio.Queue()
            handle = component.cell.handle()
            component.listen(handle, told.put_nowait)
            await component.stream(wish(mode=Mode.STREAM, ttl_ms=1_000), handle, immediate=True)
            began = asyncio.get_running_loop().time()
            store.gets.extend([StoreUnreachable("away")] * 1_000)
            assert "cannot reach its store" in await asyncio.wait_for(told.get(), 5)
            assert asyncio.get_running_loop().time() - began < 3
            store.gets.clear()

    run(talk)


def test_a_store_that_comes_back_finds_the_service_where_it_was() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            store.puts.extend([failing(StoreUnreachable("away"))] * 3)
            await component.try_lock(wish())
            assert component.cell.fallen is None

    run(talk)


def test_followers_hear_everything_once_and_in_order_from_any_cursor() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            start = component.cell.durable
            heard: list[int] = []

            async def follow() -> None:
                async for entry in component.follow(start):
                    heard.append(entry.number)
                    if len(heard) == 40:
                        return

            task = asyncio.ensure_future(follow())
            for number in range(20):
                held = await component.try_lock(wish(f"r{number}"))
                await component.unlock(f"r{number}", "p", held.lock_id)
            await task
            assert heard == list(range(start + 1, start + 41))
            late = component.follow(start + 30)
            assert (await anext(late)).number == start + 31

    run(talk)


def test_a_cursor_survives_a_restart() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            await component.try_lock(wish())
            cursor = component.cell.durable - 1
        async with started(store) as component:
            follower = component.follow(cursor)
            assert isinstance((await anext(follower)).decision, Granted)

    run(talk)


def test_a_cursor_that_is_too_old_or_of_another_journal_is_an_error() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            with pytest.raises(LookupError):
                await anext(component.follow(10_000))
            component.cell.events.clear()
            with pytest.raises(LookupError):
                await anext(component.follow(0))

    run(talk)


def test_a_full_inbox_refuses_before_anything_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelock.lockservice.cell.REQUESTS_PENDING_MAX", 0)

    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            with pytest.raises(Overloaded):
                await component.try_lock(wish())

    run(talk)


def test_a_stopped_cell_answers_waiters_and_keeps_no_stream_lock() -> None:
    async def talk(store: ScriptedStore) -> None:
        async with started(store) as component:
            await component.try_lock(wish("kept"))
            handle = component.cell.handle()
            told: list[str] = []
            component.listen(handle, told.append)
            await component.stream(wish("streamed", Mode.STREAM), handle, immediate=True)
            waiter = asyncio.ensure_future(component.lock(wish("kept")))
            await asyncio.sleep(0.02)
        with pytest.raises(Unavailable):
            await waiter
        assert "shutting down" in told[0]
        async with started(store) as component:
            assert (await component.look("streamed")).granted is None
            assert (await component.look("kept")).granted is not None

    run(talk)


class FakeGate:
    """A backend that a test plays."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        self.foreign: set[str] = set()
        self.given_back: list[tuple[str, bool]] = []
        self.lost: LostListener | None = None
        self.error: TidelockError | None = None
        self.probes = 0

    def listen(self, lost: LostListener) -> None:
        self.lost = lost

    async def take(self, key: str, ttl_ms: int, *, immediate: bool) -> int | None:
        del immediate
        if self.error is not None:
            raise self.error
        if key in self.foreign:
            await asyncio.sleep(0.01)
            return None
        self.taken[key] = ttl_ms
        return len(self.taken) + 1_000

    def give_back(self, key: str, *, by_force: bool) -> None:
        self.given_back.append((key, by_force))

    async def probe(self) -> None:
        self.probes += 1
        if self.error is not None:
            raise self.error

    def features(self) -> Features:
        return Features()

    async def close(self) -> None:
        return


def test_a_backend_agrees_to_every_grant_and_gets_its_lock_back() -> None:
    async def talk(store: ScriptedStore) -> None:
        gate = FakeGate()
        async with started(store, gate) as component:
            held = await component.try_lock(wish(ttl_ms=8_000))
            assert held.token == 1_001
            assert gate.taken["r"] >= 8_000, "the backend's lease outlives the client's"
            await component.unlock("r", "p", held.lock_id)
            assert gate.given_back == [("r", False)]

    run(talk)


def test_a_lock_that_another_program_holds_in_the_backend_is_waited_for() -> None:
    async def talk(store: ScriptedStore) -> None:
        gate = FakeGate()
        gate.foreign.add("r")
        async with started(store, gate) as component:
            with pytest.raises(ResourceLocked):
                await component.try_lock(wish())
            waiter = asyncio.ensure_future(component.lock(wish()))
            await asyncio.sleep(0.05)
            assert not waiter.done()
            gate.foreign.clear()
            assert (await waiter).token

    run(talk)


def test_a_backend_that_fails_gives_unavailable_and_no_grant() -> None:
    async def talk(store: ScriptedStore) -> None:
        gate = FakeGate()
        gate.error = StoreUnreachable("away")
        async with started(store, gate) as component:
            with pytest.raises(Unavailable, match="away"):
                await component.try_lock(wish())
            assert not any(isinstance(e.decision, Granted) for e in component.cell.events)

    run(talk)


def test_health_asks_the_backend_and_the_log_tells_each_change_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def talk(store: ScriptedStore) -> None:
        gate = FakeGate()
        async with started(store, gate) as component:
            gate.error = StoreUnreachable("away")
            told = await asyncio.gather(*(component.cell.trouble() for _ in range(20)))
            assert all("away" in cause for cause in told)
            assert gate.probes == 1, "many who ask at once cost one question"
            for _ in range(3):
                with pytest.raises(Unavailable):
                    await component.try_lock(wish())
            gate.error = None
            await component.try_lock(wish())
            assert component.cell.outage == ""
        said = [record.getMessage() for record in caplog.records]
        assert len([text for text in said if "does not answer: away" in text]) == 1
        assert len([text for text in said if "answers again" in text]) == 1

    run(talk)


def test_a_wait_that_ends_while_the_backend_is_away_is_not_a_plain_no() -> None:
    async def talk(store: ScriptedStore) -> None:
        gate = FakeGate()
        gate.error = StoreUnreachable("away")
        async with started(store, gate) as component:
            with pytest.raises(Unavailable, match="away"):
                await component.lock(wish(), 50)
            # The backend is still being asked for the one that left.
            with pytest.raises(Unavailable, match="away"):
                await component.try_lock(wish())

    run(talk)


class SilentGate(FakeGate):
    """A backend that has stopped answering; who asks it hears so after a while."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.ended = asyncio.Event()

    async def take(self, key: str, ttl_ms: int, *, immediate: bool) -> int | None:
        self.asked.set()
        await self.ended.wait()
        return await super().take(key, ttl_ms, immediate=immediate)


@pytest.mark.parametrize("away", [True, False])
def test_who_will_not_wait_hears_of_an_outage_that_nobody_knows_of_yet(away: bool) -> None:
    async def talk(store: ScriptedStore) -> None:
        gate = SilentGate()
        gate.error = StoreUnreachable("away") if away else None
        async with started(store, gate) as component:
            waiter = asyncio.ensure_future(component.lock(wish()))
            await gate.asked.wait()
            other = asyncio.ensure_future(component.try_lock(wish()))
            for _ in range(2):
                await component.look("r")  # what was asked before this is heard before it
            gate.ended.set()
            if away:
                with pytest.raises(Unavailable, match="away"):
                    await other
                gate.error = None
            else:
                with pytest.raises(ResourceLocked, match="token"):
                    await other
            assert (await waiter).token, "whoever came first gets the lock"

    run(talk)


def test_a_loss_in_the_backend_is_recorded() -> None:
    async def talk(store: ScriptedStore) -> None:
        gate = FakeGate()
        async with started(store, gate) as component:
            await component.try_lock(wish())
            assert gate.lost is not None
            gate.lost("r", "stolen")
            await until_free(component)
            assert any(
                isinstance(e.decision, Ended) and e.decision.cause == "stolen"
                for e in component.cell.events
            )

    run(talk)
