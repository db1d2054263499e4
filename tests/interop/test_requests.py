"""Requests for one uncontended acquire and release, for each side."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from testkit.proxy import FaultProxy
from tests.contract.stores import s3_settings
from tests.interop import contender
from tests.interop.table import Table
from tidelock.lock.client import Lock

AUDIT_SWITCH = "audit_enabled.json"


@pytest.fixture
def proxy(table: Table) -> Iterator[FaultProxy]:
    """Return a proxy that counts requests."""
    with FaultProxy(table.server.endpoint) as counting:
        yield counting


def sent(proxy: FaultProxy, work: Callable[[], object]) -> list[str]:
    """Return the requests that `work` sends, by method and object name."""
    before = len(proxy.records())
    work()
    requests = [record.request for record in proxy.records()[before:]]
    return [f"{request.method} {request.path.rpartition('/')[2]}" for request in requests]


def cycle(client: Lock) -> None:
    """Acquire and release."""
    client.acquire(10)
    client.release()


def test_hudi_sends_four_requests(table: Table, proxy: FaultProxy) -> None:
    writer = table.java(endpoint=proxy.endpoint)

    def hudi_cycle() -> None:
        assert writer.try_lock()
        writer.unlock()

    hudi_cycle()
    assert sent(proxy, hudi_cycle) == [
        "GET table_lock.json",
        "PUT table_lock.json",
        f"HEAD {AUDIT_SWITCH}",
        "PUT table_lock.json",
    ]


def test_we_send_two_requests_when_the_version_is_known(table: Table, proxy: FaultProxy) -> None:
    ours = contender.our_lock(table.uri, s3_settings(table.server, endpoint=proxy.endpoint))
    cycle(ours)
    assert sent(proxy, lambda: cycle(ours)) == ["PUT table_lock.json"] * 2
    ours.close()


def test_we_send_three_requests_when_the_version_is_unknown(
    table: Table, proxy: FaultProxy
) -> None:
    cycle(table.ours())
    ours = contender.our_lock(table.uri, s3_settings(table.server, endpoint=proxy.endpoint))
    requests = sent(proxy, lambda: cycle(ours))
    # Once a minute a client also reads the audit switch.
    requests.remove(f"GET {AUDIT_SWITCH}")
    assert requests == ["GET table_lock.json", "PUT table_lock.json", "PUT table_lock.json"]
    ours.close()
