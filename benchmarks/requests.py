"""The requests of one acquire and release without contention, counted by a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.stores import BUCKET, BenchStore, s3_settings
from testkit.java import hudi, hudi_writer
from testkit.java.hudi import VERSION
from testkit.proxy import FaultProxy
from testkit.servers import S3Server, ServerUnavailable, seaweedfs
from tidelock.lock.client import Lock

_RESOURCE = "requests"


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one cycle, in order."""

    case: str
    sent: tuple[str, ...]


def measure() -> tuple[list[Requests], dict[str, str]]:
    """Count the requests of each case; also return why a case is missing."""
    with seaweedfs() as server, FaultProxy(server.endpoint) as proxy:
        server.create_bucket(BUCKET)
        settings = {**s3_settings(server), "tidelock.s3.endpoint": proxy.endpoint}
        location = BenchStore("S3", f"s3://{BUCKET}", settings)
        ours = list(_ours(location, proxy))
        try:
            return [*ours, _hudi(server, proxy)], {}
        except ServerUnavailable as error:
            return ours, {"Hudi (Java)": str(error)}


def _ours(location: BenchStore, proxy: FaultProxy) -> Iterator[Requests]:
    with _open(location) as first, _open(location) as second:
        _cycle(first)
        yield Requests("tidelock, a new client", _sent(proxy, lambda: _cycle(second)))
        yield Requests("tidelock, after its own release", _sent(proxy, lambda: _cycle(second)))
        yield Requests(
            "tidelock, after another client's release, the first time",
            _sent(proxy, lambda: _cycle(first)),
        )
        _cycle(second)
        yield Requests(
            "tidelock, after another client's release, from then on",
            _sent(proxy, lambda: _cycle(first)),
        )


def _hudi(server: S3Server, proxy: FaultProxy) -> Requests:
    java = hudi()
    base_path = f"s3://{BUCKET}/{_RESOURCE}"
    with hudi_writer(java, server, base_path, endpoint=proxy.endpoint) as writer:

        def cycle() -> None:
            assert writer.try_lock()
            writer.unlock()

        cycle()
        return Requests(f"Hudi {VERSION} (Java), with {java.client}", _sent(proxy, cycle))


@contextmanager
def _open(location: BenchStore) -> Iterator[Lock]:
    opened = location.lock(_RESOURCE)
    try:
        yield opened
    finally:
        opened.close()


def _cycle(lock: Lock) -> None:
    lock.acquire()
    lock.release()


def _sent(proxy: FaultProxy, work: Callable[[], None]) -> tuple[str, ...]:
    before = len(proxy.records())
    work()
    requests = [record.request for record in proxy.records()[before:]]
    return tuple(
        f"{one.method} {'audit switch' if 'audit' in one.path else 'lock'}" for one in requests
    )
