"""Lock clients with a common interface: ours, and those of other systems."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import urllib3

from benchmarks.stores import BETWEEN_PROCESSES, BenchStore, Opened
from testkit import servers

_NAME = "bench"
_TTL_S = 60


class Client(Protocol):
    """One contender's handle on one lock."""

    def acquire(self) -> object:
        """Wait for the lock."""
        ...

    def release(self) -> object:
        """Release the lock."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class Peer(Protocol):
    """A running lock system. It can be sent to another process."""

    @property
    def name(self) -> str:
        """The name in the report."""
        ...

    def client(self) -> Client:
        """Connect another contender."""
        ...


@dataclass(frozen=True, slots=True)
class OursPeer:
    """This project's lock on one store."""

    name: str
    location: BenchStore

    def client(self) -> Client:
        """Return another lock object on the same resource."""
        return self.location.lock(_NAME)


@dataclass(frozen=True, slots=True)
class RedisPeer:
    """redis-py's Lock, which polls every `sleep_s`."""

    name: str
    host: str
    port: int
    sleep_s: float

    def client(self) -> Client:
        """Connect."""
        import redis  # imported only when used

        connection = redis.Redis(host=self.host, port=self.port)
        lock = connection.lock(_NAME, timeout=_TTL_S, sleep=self.sleep_s)
        return _Handle(lock.acquire, lock.release, connection.close)


@dataclass(frozen=True, slots=True)
class ZooKeeperPeer:
    """kazoo's Lock, a queue of ephemeral nodes."""

    name: str
    address: str

    def client(self) -> Client:
        """Connect and open a session."""
        from kazoo.client import KazooClient

        # It warns about a connection that it closes itself at the end.
        logging.getLogger("kazoo").setLevel(logging.ERROR)
        session = KazooClient(hosts=self.address)
        session.start()
        lock = session.Lock(f"/{_NAME}")

        def close() -> None:
            session.stop()
            session.close()

        return _Handle(lock.acquire, lock.release, close)


@dataclass(frozen=True, slots=True)
class EtcdPeer:
    """etcd's own lock service, a queue of leased keys, through its HTTP gateway."""

    name: str
    endpoint: str

    def client(self) -> Client:
        """Create a lease for the lock."""
        pool = urllib3.PoolManager(retries=False)

        def call(path: str, fields: Mapping[str, object]) -> dict[str, Any]:
            reply = pool.request("POST", self.endpoint + path, body=json.dumps(fields))
            assert reply.status == 200, reply.data
            answer: dict[str, Any] = json.loads(reply.data)
            return answer

        lease = call("/v3/lease/grant", {"TTL": _TTL_S})["ID"]
        lock_request = {"name": base64.b64encode(_NAME.encode()).decode(), "lease": lease}
        key = ""

        def acquire() -> None:
            nonlocal key
            key = call("/v3/lock/lock", lock_request)["key"]

        def release() -> None:
            call("/v3/lock/unlock", {"key": key})

        def close() -> None:
            call("/v3/lease/revoke", {"ID": lease})
            pool.clear()

        return _Handle(acquire, release, close)


@dataclass(frozen=True, slots=True)
class _Handle:
    acquire: Callable[[], object]
    release: Callable[[], object]
    close: Callable[[], None]


def _ours(name: str, opened: Opened) -> Callable[[], AbstractContextManager[Peer]]:
    @contextmanager
    def run() -> Iterator[Peer]:
        with opened() as location:
            location.prove(_NAME)
            yield OursPeer(f"tidelock, {name}", location)

    return run


def _redis(name: str, sleep_s: float) -> Callable[[], AbstractContextManager[Peer]]:
    @contextmanager
    def run() -> Iterator[Peer]:
        with servers.redis() as server:
            yield RedisPeer(name, server.host, server.port, sleep_s)

    return run


@contextmanager
def _etcd() -> Iterator[Peer]:
    with servers.etcd() as server:
        yield EtcdPeer("etcd lock (HTTP gateway)", server.endpoint)


@contextmanager
def _zookeeper() -> Iterator[Peer]:
    with servers.zookeeper() as server:
        yield ZooKeeperPeer("ZooKeeper (kazoo Lock)", server.endpoint)


OURS: Mapping[str, Callable[[], AbstractContextManager[Peer]]] = {
    f"tidelock, {name}": _ours(name, opened) for name, opened in BETWEEN_PROCESSES.items()
}
OTHERS: Mapping[str, Callable[[], AbstractContextManager[Peer]]] = {
    # With the default setting, and with one for short hand-overs.
    "Redis (redis-py Lock)": _redis("Redis (redis-py Lock)", 0.1),
    "Redis (redis-py Lock, sleep=0.005)": _redis("Redis (redis-py Lock, sleep=0.005)", 0.005),
    "etcd lock (HTTP gateway)": _etcd,
    "ZooKeeper (kazoo Lock)": _zookeeper,
}
