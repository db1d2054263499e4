"""Clients of the lock service: asyncio over gRPC, and the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import tidelock as tl
from testkit.lockserver import ServiceProcess
from tests.integration.lock_service import Http, eventually
from tidelock.core.errors import AcquireTimeout, HoldingLost, InvalidInput
from tidelock.lock.server.async_client import AsyncLockClient, AsyncServiceLock
from tidelock.lock.server.errors import Unauthenticated
from tidelock.lock.state import Standing

pytestmark = pytest.mark.xdist_group("lock-service-client")

CLI = "from tidelock.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("clients")
    args = ["--allow-force"]
    with ServiceProcess(str(folder / "store"), args, log=folder / "log") as running:
        yield running


@pytest.fixture
def http(service: ServiceProcess) -> Iterator[Http]:
    client = Http(service.url)
    yield client
    client.close()


def state_of(lock: AsyncServiceLock) -> Standing:
    return lock.state


def run(service: ServiceProcess, scenario: Callable[[AsyncLockClient], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120), tl.AsyncLockClient(service.grpc_address) as client:
            await scenario(client)

    asyncio.run(bounded())


def test_lock_is_held_inside_async_with_and_released_after_it(
    service: ServiceProcess, http: Http
) -> None:
    async def scenario(client: AsyncLockClient) -> None:
        async with client.lock("plain", owner="me") as held:
            assert held.token > 0
            assert state_of(held) is Standing.HELD
            assert http.status("plain")["owner"] == "me"
        assert state_of(held) is Standing.FREE
        assert not http.status("plain")["locked"]
        with pytest.raises(HoldingLost):
            held.check()

    run(service, scenario)


def test_lock_is_renewed_beyond_its_ttl(service: ServiceProcess, http: Http) -> None:
    async def scenario(client: AsyncLockClient) -> None:
        async with client.lock("renewed", ttl_ms=8_000) as held:
            token = held.token
            await asyncio.sleep(8.5)  # longer than the ttl
            assert held.check() == token
            assert http.status("renewed")["token"] == token

    run(service, scenario)


def test_wait_times_out_and_leaves_nothing(service: ServiceProcess, http: Http) -> None:
    async def scenario(client: AsyncLockClient) -> None:
        async with client.lock("waited"):
            with pytest.raises(AcquireTimeout):
                await client.lock("waited").acquire(0.2)
            with pytest.raises(AcquireTimeout):
                await client.lock("waited").acquire(0)
        assert http.status("waited")["waiters"] == 0
        assert not http.status("waited")["locked"]

    run(service, scenario)


def test_cancelled_wait_is_withdrawn(service: ServiceProcess, http: Http) -> None:
    async def scenario(client: AsyncLockClient) -> None:
        async with client.lock("cancelled"):
            task = asyncio.ensure_future(client.lock("cancelled").acquire())
            while http.status("cancelled")["waiters"] == 0:  # noqa: ASYNC110 - another process's
                await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert http.status("cancelled")["waiters"] == 0

    run(service, scenario)


def test_long_wait_is_granted_with_a_full_lease(service: ServiceProcess) -> None:
    async def scenario(client: AsyncLockClient) -> None:
        first, second = client.lock("long", ttl_ms=12_000), client.lock("long", ttl_ms=12_000)
        await first.acquire()
        task = asyncio.ensure_future(second.acquire(60))
        await asyncio.sleep(4.5)  # a considerable part of the lease
        await first.release()
        assert await task > 0
        assert state_of(second) is Standing.HELD
        await second.release()

    run(service, scenario)


def test_lost_lock_is_reported(service: ServiceProcess, http: Http) -> None:
    async def scenario(client: AsyncLockClient) -> None:
        causes: list[str] = []
        lock = client.lock("lost", ttl_ms=1_000)
        await lock.acquire()
        lock.on_lost(causes.append)
        http("DELETE", "/v1.0-alpha2/lock/lost")
        await asyncio.wait_for(lock.lost.wait(), 60)
        assert state_of(lock) is Standing.LOST
        assert causes
        with pytest.raises(HoldingLost):
            await lock.release()

    run(service, scenario)


def test_invalid_request_fails_immediately(service: ServiceProcess) -> None:
    async def scenario(client: AsyncLockClient) -> None:
        with pytest.raises(InvalidInput):
            await client.lock("a||b").acquire()
        with pytest.raises(InvalidInput):
            await client.lock("short", ttl_ms=1).acquire()

    run(service, scenario)


def test_clients_survive_a_restart_of_the_service(tmp_path: Path) -> None:
    with ServiceProcess(str(tmp_path / "store"), log=tmp_path / "log") as service:

        async def scenario(client: AsyncLockClient) -> None:
            async with client.lock("survivor", ttl_ms=60_000) as held:
                token = held.token
                await asyncio.to_thread(service.kill)
                await asyncio.to_thread(service.start)
                await held._renew()
                assert held.check() == token

        run(service, scenario)


def test_token_is_sent(tmp_path: Path) -> None:
    with ServiceProcess(str(tmp_path / "store"), env={"DAPR_API_TOKEN": "t" * 40}) as service:

        async def scenario() -> None:
            async with AsyncLockClient(service.grpc_address) as client:
                with pytest.raises(Unauthenticated):
                    await client.lock("r").acquire()
            async with (
                AsyncLockClient(service.grpc_address, token="t" * 40) as client,
                client.lock("r") as held,
            ):
                assert held.token > 0

        asyncio.run(scenario())
        lock = tl.ServiceLockProvider.at(service.url, "r2", token="t" * 40)
        assert lock.try_lock(0)
        lock.unlock()
        lock.close()
        refused = tl.ServiceLockProvider.at(service.url, "r2")
        with pytest.raises(Unauthenticated):
            refused.try_lock(0)
        refused.close()


def cli(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CLI, *args], capture_output=True, text=True, timeout=120, check=False
    )


def test_lock_run_acquires_a_lock_of_the_service(service: ServiceProcess, http: Http) -> None:
    held = http.lock("nightly").json
    done = cli("lock", "run", "nightly", "--service", service.url, "--no-wait", "--", "true")
    assert done.returncode == 4
    shown = cli("lock", "status", "nightly", "--service", service.url, "--json")
    assert json.loads(shown.stdout)["state"] == "held"
    freed = cli("lock", "force-release", "nightly", "--service", service.url, "--yes", "--json")
    assert freed.returncode == 0, freed.stderr
    command = [sys.executable, "-c", "import os; print(os.environ['TIDELOCK_TOKEN'])"]
    done = cli("lock", "run", "nightly", "--service", service.url, "--", *command)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > held["token"]
    eventually(lambda: not http.status("nightly")["locked"])
