"""Lock backends with a server, each behind a proxy that can drop replies.

Every test has its own lock on the session's server.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testkit.proxy import TcpProxy
from testkit.servers import KubernetesServer, RunningServer
from testkit.servers.hive import TXN_TIMEOUT_S
from testkit.servers.lease_api import LeaseApi, lease_api
from tests.contract.lockbackends import POLLING, RENEW_MS, Backend, Make
from tests.contract.lockcomponents import service_backend
from tidelock.core.system import SystemClock, SystemIds
from tidelock.lock.provider import LockProvider
from tidelock.lock.providers.backend import Attempt, BackendAcquired, LeaseTerms
from tidelock.lock.providers.dynamodb import DynamoRegister, DynamoTable
from tidelock.lock.providers.etcd import EtcdBackend
from tidelock.lock.providers.hive import HiveBackend
from tidelock.lock.providers.json_api import JsonService
from tidelock.lock.providers.kubernetes import LeaseRegister
from tidelock.lock.providers.leased import LeasedProvider
from tidelock.lock.providers.redis import RedisBackend
from tidelock.lock.providers.versioned import RecordEntry, VersionedBackend
from tidelock.lock.providers.zookeeper import ZookeeperBackend

ETCD_TTL_MS_MIN = 2_000
"""etcd grants no shorter lease: it must outlive the election of a leader."""
ZOOKEEPER_SESSION_MS_MAX = 10_000
"""ZooKeeper grants no session longer than 20 ticks."""


def dynamo_settings(endpoint: str) -> dict[str, object]:
    """Return the settings for DynamoDB Local, which accepts any credentials."""
    return {
        "hoodie.write.lock.dynamodb.endpoint_url": endpoint,
        "hoodie.write.lock.dynamodb.region": "us-east-1",
        "hoodie.aws.access.key": "tidelock",
        "hoodie.aws.secret.key": "tidelock",
    }


def _proxied(request: pytest.FixtureRequest, server: RunningServer) -> TcpProxy:
    proxy = TcpProxy(server.host, server.port)
    request.addfinalizer(proxy.stop)
    return proxy


def redis_backend(request: pytest.FixtureRequest, lease_ms: int) -> Backend:
    """Return a Redis key."""
    import redis

    server: RunningServer = request.getfixturevalue("redis_server")
    proxy = _proxied(request, server)
    key = f"lock||{uuid.uuid4().hex}"
    outside = redis.Redis(host=server.host, port=server.port)
    request.addfinalizer(outside.close)

    def steal() -> None:
        outside.set(key, "another owner", px=60_000)

    def open_redis() -> LockProvider:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        terms = LeaseTerms(lease_ms, RENEW_MS)
        return LeasedProvider(RedisBackend(url, key, terms), polling=POLLING)

    return Backend(
        open=open_redis,
        free_after_ms=lease_ms,
        steal=steal,
        proxy=proxy,
        grant_marker=b"'INCR'",
    )


def etcd_backend(request: pytest.FixtureRequest, lease_ms: int) -> Backend:
    """Return an etcd lock name."""
    server: RunningServer = request.getfixturevalue("etcd_server")
    proxy = _proxied(request, server)
    name = f"contract/{uuid.uuid4().hex}"
    ttl_ms = max(lease_ms, ETCD_TTL_MS_MIN)
    outside = JsonService(server.endpoint, clock=SystemClock(), timeout_ms=60_000)
    request.addfinalizer(outside.close)
    start, end = (base64.b64encode(f"{name}{byte}".encode()).decode() for byte in "/0")

    def open_etcd() -> LockProvider:
        backend = EtcdBackend(f"http://127.0.0.1:{proxy.port}", name, LeaseTerms(ttl_ms, 150))
        return LeasedProvider(backend, polling=POLLING)

    def steal() -> None:
        body = {
            "success": [
                {"request_delete_range": {"key": start, "range_end": end}},
                {"request_put": {"key": base64.b64encode(f"{name}/robber".encode()).decode()}},
            ]
        }
        # Two steps: one transaction may not modify a key twice.
        for step in body["success"]:
            assert outside.query("POST", "/v3/kv/txn", {"success": [step]}).ok

    return Backend(
        open=open_etcd,
        free_after_ms=ttl_ms + 1_000,
        steal=steal,
        proxy=proxy,
        grant_marker=b"request_put",
    )


def zookeeper_backend(request: pytest.FixtureRequest, lease_ms: int) -> Backend:
    """Return a ZooKeeper path."""
    from kazoo.client import KazooClient

    server: RunningServer = request.getfixturevalue("zookeeper_server")
    proxy = _proxied(request, server)
    path = f"/contract/{uuid.uuid4().hex}"
    session_ms = min(lease_ms, ZOOKEEPER_SESSION_MS_MAX)

    def open_zookeeper() -> LockProvider:
        backend = ZookeeperBackend(
            f"127.0.0.1:{proxy.port}",
            path,
            session_ms=session_ms,
            connect_ms=session_ms,
            application="contract",
        )
        return LeasedProvider(backend, polling=POLLING)

    def steal() -> None:
        client = KazooClient(server.endpoint)
        client.start()
        for child in client.get_children(path):
            client.delete(f"{path}/{child}")
        client.create(f"{path}/_c_robber-lock-", sequence=True)
        client.stop()
        client.close()

    return Backend(
        open=open_zookeeper,
        # The server checks for expired sessions once per tick of half a second.
        free_after_ms=session_ms + 1_000,
        steal=steal,
        proxy=proxy,
        grant_marker=b"-lock-",
    )


def hive_backend(request: pytest.FixtureRequest, lease_ms: int) -> Backend:
    """Return a metastore table; it need not exist. Its lease is a setting of the server."""
    del lease_ms
    server: RunningServer = request.getfixturevalue("hive_server")
    proxy = _proxied(request, server)
    table = f"t{uuid.uuid4().hex}"

    def open_at(port: int) -> HiveBackend:
        terms = LeaseTerms(TXN_TIMEOUT_S * 1_000, 200)
        return HiveBackend([("127.0.0.1", port)], "contract", table, terms)

    def steal() -> None:
        other = open_at(server.port)
        assert other.force_release()
        assert isinstance(other.try_acquire(Attempt("another owner")), BackendAcquired)
        other.close()

    return Backend(
        open=lambda: LeasedProvider(open_at(proxy.port), polling=POLLING),
        # The metastore's reaper runs every second.
        free_after_ms=TXN_TIMEOUT_S * 1_000 + 1_500,
        steal=steal,
        proxy=proxy,
        grant_marker=b"\x00\x00\x00\x04lock",
        cycles=20,
    )


def dynamodb_backend(request: pytest.FixtureRequest, lease_ms: int) -> Backend:
    """Return a DynamoDB item."""
    server: RunningServer = request.getfixturevalue("dynamodb_server")
    proxy = _proxied(request, server)
    key = uuid.uuid4().hex

    def register(endpoint: str) -> DynamoRegister:
        table = DynamoTable(dynamo_settings(endpoint), LeaseTerms(5_000, 1_000))
        return DynamoRegister(table, key, SystemIds())

    def open_dynamodb() -> LockProvider:
        behind = register(f"http://127.0.0.1:{proxy.port}")
        terms = LeaseTerms(lease_ms, RENEW_MS)
        return LeasedProvider(VersionedBackend(behind, terms), polling=POLLING)

    def steal() -> None:
        outside = register(server.endpoint)
        _overwrite(outside, RecordEntry("another owner", 60_000))
        outside.close()

    return Backend(
        open=open_dynamodb,
        # A late client has to watch the item for a whole lease.
        free_after_ms=lease_ms + 500 + 200,
        steal=steal,
        proxy=proxy,
        grant_marker=b".PutItem",
        cycles=50,
    )


def _overwrite(register: Any, entry: RecordEntry) -> None:
    """Overwrite the lease unconditionally, and repeat until it holds."""
    for _ in range(20):
        if isinstance(register.write(entry, register.read()), RecordEntry):
            return
    raise AssertionError("the record could not be overwritten")


def _lease_backend(
    origin: str,
    lease_ms: int,
    *,
    proxy: TcpProxy | None = None,
    ca_file: str | None = None,
    token_file: Path | None = None,
) -> Backend:
    name = f"contract-{uuid.uuid4().hex}"

    def register(at: str) -> LeaseRegister:
        return LeaseRegister(
            at, "default", name, LeaseTerms(5_000, 500), ca_file=ca_file, token_file=token_file
        )

    def open_lease() -> LockProvider:
        at = origin
        if proxy is not None:
            at = f"{origin.partition('://')[0]}://127.0.0.1:{proxy.port}"
        terms = LeaseTerms(lease_ms, RENEW_MS)
        return LeasedProvider(VersionedBackend(register(at), terms), polling=POLLING)

    def steal() -> None:
        outside = register(origin)
        _overwrite(outside, RecordEntry("another owner", 60_000, token=1_000))
        outside.close()

    return Backend(
        open=open_lease,
        free_after_ms=lease_ms + 500 + 200,
        steal=steal,
        proxy=proxy,
        # TLS hides the requests from the proxy; it can only cut connections.
        grant_marker=b"acquireTime" if origin.startswith("http:") else b"",
        cycles=50,
    )


def kubernetes_backend(request: pytest.FixtureRequest, lease_ms: int) -> Backend:
    """Return a Lease of a real API server."""
    server: KubernetesServer = request.getfixturevalue("kubernetes_server")
    port = int(server.endpoint.rpartition(":")[2])
    proxy = TcpProxy("127.0.0.1", port)
    request.addfinalizer(proxy.stop)
    return _lease_backend(
        server.endpoint,
        lease_ms,
        proxy=proxy,
        ca_file=str(server.ca_file),
        token_file=server.token_file,
    )


def lease_api_backend(request: pytest.FixtureRequest, lease_ms: int) -> Backend:
    """Return a Lease of the fake API server."""
    context = lease_api()
    server: LeaseApi = context.__enter__()
    request.addfinalizer(lambda: context.__exit__(None, None, None))
    proxy = TcpProxy("127.0.0.1", server.server_address[1])
    request.addfinalizer(proxy.stop)
    return _lease_backend(server.endpoint, lease_ms, proxy=proxy)


SERVED: Mapping[str, Make] = {
    "redis": redis_backend,
    "etcd": etcd_backend,
    "zookeeper": zookeeper_backend,
    "hive": hive_backend,
    "dynamodb": dynamodb_backend,
    "kubernetes": kubernetes_backend,
    "kubernetes-stand-in": lease_api_backend,
    "lockservice": service_backend,
}
"""Each lock backend with a server, by its name in test ids."""
