"""The contract of lock providers, for every backend (L15).

Add a backend to `lockbackends.BACKENDS` to include it. These tests use real time, because backends
with servers use the clock of the server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.contract.lockbackends import BACKENDS, Backend
from tests.contract.lockservers import SERVED
from tidelock.core.errors import Conflict, HoldingLost, InvalidInput, OutcomeUnknown
from tidelock.lock.provider import LockProvider
from tidelock.lock.state import Standing

SLACK_MS = 30_000
"""Tolerance for a busy machine beyond what a backend promises."""
PATIENT_LEASE_MS = 60_000
"""A machine that does not run this process for a while must not let a lock expire."""
BRIEF_LEASE_MS = 2_000
"""For tests that wait for the end of a lease."""

EVERY = {**BACKENDS, **SERVED}
warmed: set[str] = set()


def warm_up(backend: Backend) -> None:
    """Warm up a server that has just started: its first replies take longer than these leases."""
    provider = backend.open()
    for _ in range(5):
        assert provider.try_lock(30_000)
        with suppress(HoldingLost, OutcomeUnknown):
            provider.unlock()
    provider.close()


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    """Mark tests that need a server, and keep those of one server in one worker: it starts once."""
    if name in SERVED:
        return [pytest.mark.servers, pytest.mark.xdist_group(f"lock-{name}")]
    return [pytest.mark.servers] if "s3" in name else []


NAMES = [pytest.param(name, marks=marks_of(name)) for name in sorted(EVERY)]


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Return a resource that no other test uses."""
    yield from prepared(request, PATIENT_LEASE_MS)


@pytest.fixture(params=NAMES)
def expiring(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Return a resource that no other test uses, whose leases end soon."""
    yield from prepared(request, BRIEF_LEASE_MS)


def prepared(request: pytest.FixtureRequest, lease_ms: int) -> Iterator[Backend]:
    made = EVERY[request.param](request, lease_ms)
    if request.param in SERVED and request.param not in warmed:
        warm_up(made)
        warmed.add(request.param)
    yield made
    for provider in made.opened:
        provider.close()


def state_of(provider: LockProvider) -> Standing:
    """Read the current state; an earlier one may be stale."""
    return provider.state


def eventually(holds: Callable[[], bool], *, within_ms: int = 60_000) -> bool:
    until = time.monotonic() + within_ms / 1000
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


def token_of(provider: LockProvider) -> int:
    """Return the token; a constant for backends without tokens."""
    return provider.check() if provider.features().fencing_token else 0


def test_free_lock_is_acquired_and_released(backend: Backend) -> None:
    provider = backend.provider()
    assert state_of(provider) is Standing.FREE
    assert provider.try_lock(0)
    assert state_of(provider) is Standing.HELD
    provider.check()
    provider.unlock()
    assert state_of(provider) is Standing.FREE
    with pytest.raises(HoldingLost):
        provider.check()


def test_held_lock_is_refused_to_others_and_granted_after_release(backend: Backend) -> None:
    holder, other = backend.provider(), backend.provider()
    assert holder.try_lock(0)
    assert not other.try_lock(0)
    assert not other.try_lock(50)
    assert state_of(other) is Standing.FREE
    assert state_of(holder) is Standing.HELD
    first = token_of(holder)
    holder.unlock()
    assert other.try_lock(SLACK_MS)
    if other.features().fencing_token:
        assert token_of(other) > first  # L1


def test_waiter_acquires_the_lock_after_release(backend: Backend) -> None:
    holder, waiter = backend.provider(), backend.provider()
    assert holder.try_lock(0)
    got: list[bool] = []

    def wait() -> None:
        got.append(waiter.try_lock(60_000))
        waiter.unlock()

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)  # time for a grant that must not come
    assert not got
    holder.unlock()
    thread.join(60)
    assert got == [True]


def test_reacquire_keeps_the_holding(backend: Backend) -> None:
    provider = backend.provider()
    assert provider.try_lock(0)
    token = token_of(provider)
    assert provider.try_lock(0)
    assert token_of(provider) == token  # L12
    provider.unlock()
    assert backend.provider().try_lock(SLACK_MS)


def test_holding_is_renewed_beyond_its_lease(expiring: Backend) -> None:
    holder, other = expiring.provider(), expiring.provider()
    assert holder.try_lock(0)
    until = time.monotonic() + expiring.free_after_ms / 1000 + 0.5
    while time.monotonic() < until:
        assert state_of(holder) in (Standing.HELD, Standing.UNSURE)
        assert not other.try_lock(0)
        time.sleep(0.1)
    holder.unlock()


def test_stolen_lock_is_lost_and_its_owner_notified(backend: Backend) -> None:
    holder = backend.provider()
    assert holder.try_lock(0)
    notices: list[str] = []
    holder.on_lost(notices.append)
    backend.steal()
    assert eventually(lambda: state_of(holder) is Standing.LOST)
    assert eventually(lambda: len(notices) == 1)
    with pytest.raises(HoldingLost):
        holder.check()
    with pytest.raises((HoldingLost, OutcomeUnknown)):
        holder.unlock()
    assert not backend.provider().try_lock(0)  # the new holding is left alone (P26)
    assert len(notices) == 1


def test_release_by_non_owner_changes_nothing(backend: Backend) -> None:
    holder, other, third = backend.provider(), backend.provider(), backend.provider()
    assert holder.try_lock(0)
    other.unlock()
    other.close()
    assert state_of(holder) is Standing.HELD
    assert not third.try_lock(0)


def test_death_of_the_owning_thread_frees_the_lock_in_time(expiring: Backend) -> None:
    holder, other = expiring.provider(), expiring.provider()
    owner = threading.Thread(target=holder.try_lock, args=(0,))
    owner.start()
    owner.join()
    assert other.try_lock(expiring.free_after_ms + SLACK_MS)
    assert state_of(holder) is not Standing.HELD


def test_forced_release_ends_the_holding_and_frees_the_lock(backend: Backend) -> None:
    holder, other = backend.provider(), backend.provider()
    if not holder.features().force_release:
        pytest.skip("this backend has no forced release")
    assert not other.force_release()  # nobody holds it
    assert holder.try_lock(0)
    first = token_of(holder)
    assert force_until_it_holds(other)
    assert eventually(lambda: state_of(holder) is Standing.LOST)
    assert other.try_lock(SLACK_MS)
    if other.features().fencing_token:
        assert token_of(other) > first


def force_until_it_holds(operator: LockProvider) -> bool:
    """Repeat the forced release if a renewal came in between, as an operator would."""
    for _ in range(20):
        with suppress(Conflict):
            return operator.force_release()
    return operator.force_release()


def test_holder_can_be_read(backend: Backend) -> None:
    holder, other = backend.provider(), backend.provider()
    assert other.holder() is None
    assert holder.try_lock(0)
    found = other.holder()
    assert found is not None
    assert found.owner
    if found.token is not None and holder.features().fencing_token:
        assert found.token in (0, token_of(holder))
    holder.unlock()
    assert other.holder() is None


def test_grant_with_a_lost_reply_is_reported_correctly_and_does_not_leak(expiring: Backend) -> None:
    first = expiring.provider()
    assert first.try_lock(0)
    first.unlock()
    provider = expiring.provider()
    if not expiring.can_drop_reply:
        pytest.skip("replies of this backend cannot be dropped")
    expiring.drop()
    # L5: the attempt may end either way, but its result must be true.
    got = provider.try_lock(0)
    assert (state_of(provider) is Standing.HELD) == got
    if got:
        provider.unlock()
    assert expiring.provider().try_lock(SLACK_MS)
    if expiring.proxy is not None:
        assert expiring.proxy.lost == 1


def test_holding_survives_a_broken_connection(expiring: Backend) -> None:
    if expiring.proxy is None:
        pytest.skip("this backend has no connection")
    holder, other = expiring.provider(), expiring.provider()
    assert holder.try_lock(0)
    expiring.proxy.cut()
    until = time.monotonic() + expiring.free_after_ms / 1000 + 0.3
    while time.monotonic() < until:
        assert state_of(holder) in (Standing.HELD, Standing.UNSURE)
        time.sleep(0.05)
    assert not other.try_lock(0)
    assert eventually(lambda: state_of(holder) is Standing.HELD)
    holder.unlock()
    assert other.try_lock(SLACK_MS)


def test_unreachable_server_ends_the_holding_and_grants_nothing(expiring: Backend) -> None:
    if expiring.proxy is None:
        pytest.skip("this backend has no connection")
    holder, other = expiring.provider(), expiring.provider()
    notices: list[str] = []
    assert holder.try_lock(0)
    holder.on_lost(notices.append)
    expiring.proxy.shut()
    # L3: lost by its own clock, before the server would grant the lock to anyone else.
    assert eventually(lambda: state_of(holder) is Standing.LOST, within_ms=expiring.free_after_ms)
    assert eventually(lambda: len(notices) == 1)
    assert not other.try_lock(100)
    expiring.proxy.open()
    assert other.try_lock(expiring.free_after_ms + SLACK_MS)
    assert state_of(other) is Standing.HELD


def test_close_releases_the_lock_and_ends_the_provider(backend: Backend) -> None:
    provider, other = backend.provider(), backend.provider()
    assert provider.try_lock(0)
    provider.close()
    provider.close()
    assert other.try_lock(SLACK_MS)
    with pytest.raises(InvalidInput, match="closed"):
        provider.try_lock(0)


def test_hundred_cycles_leave_a_free_lock_and_increasing_tokens(backend: Backend) -> None:
    provider = backend.provider()
    tokens = []
    for _ in range(backend.cycles):
        assert provider.try_lock(SLACK_MS)
        tokens.append(token_of(provider))
        provider.unlock()
    if provider.features().fencing_token:
        assert tokens == sorted(set(tokens))
    assert backend.provider().try_lock(SLACK_MS)


def test_contending_providers_never_overlap(backend: Backend) -> None:
    inside: list[int] = []
    overlaps: list[tuple[int, ...]] = []
    ends = time.monotonic() + 2

    def contend(number: int) -> None:
        provider = backend.provider()
        while time.monotonic() < ends:
            if provider.try_lock(500):
                inside.append(number)
                if len(inside) != 1:
                    overlaps.append(tuple(inside))
                time.sleep(0.001)  # the critical section
                inside.remove(number)
                provider.unlock()

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert overlaps == []
    assert not any(thread.is_alive() for thread in threads)
