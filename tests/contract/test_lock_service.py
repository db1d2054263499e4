"""Dapr's lock contract on every type of store: with the unmodified SDK, and with plain HTTP (V2).

The cases are those of Dapr's conformance suite for lock stores and of its Python SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from testkit.lockserver import ServiceProcess
from tests.contract.lockcomponents import COMPONENTS, STORE, serving
from tests.integration.lock_service import Http, eventually

# The SDK warns on each call that the API is alpha.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

EMBEDDED = ("tidelock-local", "storage-local", "statestore-local", "filesystem", "inprocess")


def marked(kind: str) -> ParameterSet:
    """Keep the tests of one server in one worker, together with its provider's: it starts once."""
    if kind in EMBEDDED:
        return pytest.param(kind, marks=[pytest.mark.xdist_group("lock-service-contract")])
    marks = [pytest.mark.servers, pytest.mark.xdist_group(f"lock-{kind}")]
    return pytest.param(kind, marks=marks)


@pytest.fixture(scope="module", params=[marked(kind) for kind in COMPONENTS])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("service")
    with serving(request.param, request, folder) as running:
        yield running


@pytest.fixture
def sdk(service: ServiceProcess, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return Dapr's SDK, configured with the address of the service."""
    import dapr.clients
    from dapr.conf import settings

    monkeypatch.setattr(settings, "DAPR_HTTP_PORT", service.http_port)
    monkeypatch.setattr(settings, "DAPR_GRPC_PORT", service.grpc_port)
    return dapr.clients


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"resource-{abs(hash(request.node.nodeid))}"


def test_conformance(sdk: Any, name: str) -> None:
    """Cases 2 to 8 of Dapr's suite, in order; case 1 is the start, which has already passed."""
    from dapr.clients.grpc._response import UnlockResponseStatus as Status

    first, second = f"{name}-1", f"{name}-2"
    with sdk.DaprClient() as client:
        assert client.try_lock(STORE, first, "conftest", 15).success
        assert client.try_lock(STORE, second, "conftest", 1).success
        assert not client.try_lock(STORE, first, "conftest", 15).success
        status = client.unlock(STORE, f"{name}-none", "conftest").status
        assert status == Status.lock_does_not_exist
        assert client.unlock(STORE, first, "wrong").status == Status.lock_belongs_to_others
        assert client.unlock(STORE, first, "conftest").status == Status.success
        eventually(
            lambda: client.try_lock(STORE, second, "conftest", 1).success,
            within_s=60,
            every_s=0.1,
        )


def test_sync_sdk(sdk: Any, name: str) -> None:
    with sdk.DaprClient() as client:
        with client.try_lock(STORE, name, "one", 10) as lock:
            assert lock
            assert lock.success
            other = client.try_lock(STORE, name, "two", 10)
            assert not other
        again = client.try_lock(STORE, name, "two", 10)
        assert again.success, "leaving the context released the lock"
        assert client.unlock(STORE, name, "two").status.name == "success"
        assert client.unlock(STORE, name, "two").status.name == "lock_does_not_exist"


def test_async_sdk(sdk: Any, name: str) -> None:
    from dapr.aio.clients import DaprClient

    async def scenario() -> None:
        async with DaprClient() as client:
            async with await client.try_lock(STORE, name, "one", 10) as lock:
                assert lock.success
                assert not (await client.try_lock(STORE, name, "two", 10)).success
            assert (await client.try_lock(STORE, name, "two", 10)).success
            found = await client.unlock(STORE, name, "one")
            assert found.status.name == "lock_belongs_to_others"
            assert (await client.unlock(STORE, name, "two")).status.name == "success"

    asyncio.run(scenario())


def test_http_replies_match_daprd(service: ServiceProcess, name: str) -> None:
    http = Http(service.url)
    options = {"resourceId": name, "lockOwner": "me", "expiryInSeconds": 10, "unknown": 1}
    lock, unlock = f"/v1.0-alpha1/lock/{STORE}", f"/v1.0-alpha1/unlock/{STORE}"
    answer = http("POST", lock, options)
    assert (answer.status, answer.json) == (200, {"success": True})
    assert "deprecated" in answer.headers["warning"]
    assert http("POST", lock, options).json == {"success": False}
    assert http("POST", unlock, {**options, "lockOwner": "you"}).json == {"status": 2}
    assert http("POST", unlock, options).json == {"status": 0}
    assert http("POST", unlock, options).json == {"status": 1}
    http.close()


def test_both_apis_lock_the_same_resource(service: ServiceProcess, name: str) -> None:
    http = Http(service.url)
    held = http.lock(name, immediate=True).json
    options = {"resourceId": name, "lockOwner": "me", "expiryInSeconds": 10}
    assert http("POST", f"/v1.0-alpha1/lock/{STORE}", options).json == {"success": False}
    assert http.lock(name, immediate=True).status == 409
    assert http.unlock(name, held["lockID"]).status == 204
    assert http.unlock(name, held["lockID"]).status == 404
    http.close()


def test_tokens_of_a_resource_increase(service: ServiceProcess, name: str) -> None:
    http = Http(service.url)
    tokens = []
    for _ in range(4):
        held = http.lock(name, wait="10s").json
        tokens.append(held["token"])
        http.unlock(name, held["lockID"])
    assert tokens == sorted(set(tokens))
    http.close()


def test_forced_release_frees_the_resource(service: ServiceProcess, name: str) -> None:
    http = Http(service.url)
    held = http.lock(name).json
    assert http("DELETE", f"/v1.0-alpha2/lock/{name}", {"force": True}).status == 204
    assert http.lock(name, wait="10s").status == 200
    assert http.unlock(name, held["lockID"]).status == 404
    http.close()
