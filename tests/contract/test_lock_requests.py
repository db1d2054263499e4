"""Requests per uncontended lock cycle, counted at the store."""

from __future__ import annotations

import pytest

from tests.contract.stores import StoreLocation
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease

LEASE = Lease(validity_ms=20_000, renew_ms=2_000)


def cycle(lock: Lock) -> None:
    lock.acquire(20)
    lock.release()


@pytest.fixture
def verbs() -> list[str]:
    return []


def test_cycle_on_a_known_version_is_two_conditional_puts(
    location: StoreLocation, verbs: list[str]
) -> None:
    lock = Lock(location.open(observe=verbs.append), LEASE, probe=False)
    cycle(lock)
    for _ in range(5):
        verbs.clear()
        cycle(lock)
        assert verbs == ["put", "put"]
    lock.close()


def test_cycle_after_another_owner_is_three_requests(
    location: StoreLocation, verbs: list[str]
) -> None:
    lock = Lock(location.open(observe=verbs.append), LEASE, probe=False)
    other = Lock(location.open(), LEASE, probe=False)
    cycle(lock)
    cycle(other)
    verbs.clear()
    cycle(lock)
    # P17: at first the cached version is refused; then it reads, acquires and releases.
    assert verbs == ["put", "get", "put", "put"]
    for _ in range(3):
        cycle(other)
        verbs.clear()
        cycle(lock)
        # P12: after contention it reads first.
        assert verbs == ["get", "put", "put"]
    verbs.clear()
    cycle(lock)
    cycle(lock)
    # Once it finds its own release again, it writes without reading.
    assert verbs == ["get", "put", "put", "put", "put"]
    lock.close()
    other.close()


def test_first_cycle_of_a_client_is_three_requests(
    location: StoreLocation, verbs: list[str]
) -> None:
    # The first client of a process also reads the audit switch, once for all clients.
    earlier = Lock(location.open(), LEASE, probe=False)
    cycle(earlier)
    lock = Lock(location.open(observe=verbs.append), LEASE, probe=False)
    verbs.clear()
    cycle(lock)
    assert verbs == ["get", "put", "put"]
    lock.close()
    earlier.close()
