"""What a lock costs: requests per uncontended cycle, counted at the store."""

from __future__ import annotations

import pytest

from tests.contract.stores import Place
from tidelock.lock.driver import Lock
from tidelock.lock.lease import Lease

LEASE = Lease(validity_ms=20_000, renew_ms=2_000)


def cycle(lock: Lock) -> None:
    lock.acquire(20)
    lock.release()


@pytest.fixture
def verbs() -> list[str]:
    return []


def test_a_cycle_on_a_known_version_is_two_conditional_puts(place: Place, verbs: list[str]) -> None:
    lock = Lock(place.open(observe=verbs.append), LEASE, probe=False)
    cycle(lock)
    for _ in range(5):
        verbs.clear()
        cycle(lock)
        assert verbs == ["put", "put"]
    lock.close()


def test_a_cycle_after_another_owner_s_is_three_requests(place: Place, verbs: list[str]) -> None:
    lock = Lock(place.open(observe=verbs.append), LEASE, probe=False)
    other = Lock(place.open(), LEASE, probe=False)
    cycle(lock)
    cycle(other)
    verbs.clear()
    cycle(lock)
    # P17: the first time, the version it knew is refused; then it reads, takes and releases.
    assert verbs == ["put", "get", "put", "put"]
    for _ in range(3):
        cycle(other)
        verbs.clear()
        cycle(lock)
        # P12: having met another, it looks first.
        assert verbs == ["get", "put", "put"]
    verbs.clear()
    cycle(lock)
    cycle(lock)
    # And once it finds its own release again, it writes at once.
    assert verbs == ["get", "put", "put", "put", "put"]
    lock.close()
    other.close()


def test_the_first_cycle_of_a_client_is_three_requests(place: Place, verbs: list[str]) -> None:
    # The first client of a process looks at the audit switch as well, for all of them.
    earlier = Lock(place.open(), LEASE, probe=False)
    cycle(earlier)
    lock = Lock(place.open(observe=verbs.append), LEASE, probe=False)
    verbs.clear()
    cycle(lock)
    assert verbs == ["get", "put", "put"]
    lock.close()
    earlier.close()
