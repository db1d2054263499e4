"""How many requests one acquire and release without contention costs, counted by a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.places import BUCKET, Place, s3_settings
from tidelock.lock.driver import Lock
from tidelock.testing.java import hudi, hudi_writer
from tidelock.testing.java.hudi import VERSION
from tidelock.testing.proxy import FaultProxy
from tidelock.testing.servers import S3Server, ServerUnavailable, seaweedfs

_RESOURCE = "requests"


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one cycle, in their order."""

    case: str
    sent: tuple[str, ...]


def measure() -> tuple[list[Requests], dict[str, str]]:
    """Count for each case; return the counts, and why a case is missing."""
    with seaweedfs() as server, FaultProxy(server.endpoint) as proxy:
        server.create_bucket(BUCKET)
        settings = {**s3_settings(server), "tidelock.s3.endpoint": proxy.endpoint}
        place = Place("S3", f"s3://{BUCKET}", settings)
        ours = list(_ours(place, proxy))
        try:
            return [*ours, _hudi(server, proxy)], {}
        except ServerUnavailable as error:
            return ours, {"Hudi (Java)": str(error)}


def _ours(place: Place, proxy: FaultProxy) -> Iterator[Requests]:
    with _open(place) as first, _open(place) as second:
        _cycle(first)
        yield Requests("tidelock, a new client", _sent(proxy, lambda: _cycle(second)))
        yield Requests("tidelock, after its own release", _sent(proxy, lambda: _cycle(second)))
        yield Requests(
            "tidelock, after somebody else's release, the first time",
            _sent(proxy, lambda: _cycle(first)),
        )
        _cycle(second)
        yield Requests(
            "tidelock, after somebody else's release, from then on",
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
def _open(place: Place) -> Iterator[Lock]:
    opened = place.lock(_RESOURCE)
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
