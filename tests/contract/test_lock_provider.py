"""What every lock provider promises, on every backend (L15).

A backend joins by a line in `lockbackends.BACKENDS`. Time is real here: backends with servers of
their own keep it themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.contract.lockbackends import BACKENDS, Backend
from tests.contract.lockservers import SERVED
from tidelock.base.errors import Conflict, HoldingLost, InvalidInput, OutcomeUnknown
from tidelock.lock.provider import LockProvider
from tidelock.lock.state import Standing

SLACK_MS = 30_000
"""Room for a busy machine beyond what a backend promises."""


EVERY = {**BACKENDS, **SERVED}
warmed: set[str] = set()


def warm_up(backend: Backend) -> None:
    """Let a server that has just started get going: its first answers outlast these leases."""
    provider = backend.open()
    for _ in range(5):
        assert provider.try_lock(30_000)
        with suppress(HoldingLost, OutcomeUnknown):
            provider.unlock()
    provider.close()


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    """Say which tests need a server, and keep those of one server in one worker: it starts once."""
    if name in SERVED:
        return [pytest.mark.servers, pytest.mark.xdist_group(f"lock-{name}")]
    return [pytest.mark.servers] if "s3" in name else []


@pytest.fixture(params=[pytest.param(name, marks=marks_of(name)) for name in sorted(EVERY)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Return a resource that no other test uses."""
    made = EVERY[request.param](request)
    if request.param in SERVED and request.param not in warmed:
        warm_up(made)
        warmed.add(request.param)
    yield made
    for provider in made.opened:
        provider.close()


def state_of(provider: LockProvider) -> Standing:
    """Ask anew each time: what was true a statement ago says nothing."""
    return provider.state


def eventually(holds: Callable[[], bool], *, within_ms: int = 60_000) -> bool:
    until = time.monotonic() + within_ms / 1000
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


def token_of(provider: LockProvider) -> int:
    """Return the token, which only grows; without tokens there is nothing to compare."""
    return provider.check() if provider.features().fencing_token else 0


def test_a_free_lock_is_acquired_and_released(backend: Backend) -> None:
    provider = backend.provider()
    assert state_of(provider) is Standing.FREE
    assert provider.try_lock(0)
    assert state_of(provider) is Standing.HELD
    provider.check()
    provider.unlock()
    assert state_of(provider) is Standing.FREE
    with pytest.raises(HoldingLost):
        provider.check()


def test_a_held_lock_is_refused_to_others_and_granted_after_its_release(backend: Backend) -> None:
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


def test_a_waiter_gets_the_lock_when_it_is_released(backend: Backend) -> None:
    holder, waiter = backend.provider(), backend.provider()
    assert holder.try_lock(0)
    got: list[bool] = []

    def wait() -> None:
        got.append(waiter.try_lock(20_000))
        waiter.unlock()

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    assert not got
    holder.unlock()
    thread.join(30)
    assert got == [True]


def test_acquiring_again_keeps_the_holding(backend: Backend) -> None:
    provider = backend.provider()
    assert provider.try_lock(0)
    token = token_of(provider)
    assert provider.try_lock(0)
    assert token_of(provider) == token  # L12
    provider.unlock()
    assert backend.provider().try_lock(SLACK_MS)


def test_a_holding_is_renewed_beyond_its_lease(backend: Backend) -> None:
    holder, other = backend.provider(), backend.provider()
    assert holder.try_lock(0)
    until = time.monotonic() + backend.free_after_ms / 1000 + 0.5
    while time.monotonic() < until:
        assert state_of(holder) in (Standing.HELD, Standing.UNSURE)
        assert not other.try_lock(0)
        time.sleep(0.1)
    holder.unlock()


def test_a_lock_that_was_taken_away_is_lost_and_its_owner_told(backend: Backend) -> None:
    holder = backend.provider()
    assert holder.try_lock(0)
    told: list[str] = []
    holder.on_lost(told.append)
    backend.rob()
    assert eventually(lambda: state_of(holder) is Standing.LOST)
    assert eventually(lambda: len(told) == 1)
    with pytest.raises(HoldingLost):
        holder.check()
    with pytest.raises((HoldingLost, OutcomeUnknown)):
        holder.unlock()
    assert not backend.provider().try_lock(0)  # the robber's holding is left alone (P26)
    assert len(told) == 1


def test_releasing_what_another_holds_changes_nothing(backend: Backend) -> None:
    holder, other, third = backend.provider(), backend.provider(), backend.provider()
    assert holder.try_lock(0)
    other.unlock()
    other.close()
    assert state_of(holder) is Standing.HELD
    assert not third.try_lock(0)


def test_the_death_of_the_owning_thread_frees_the_lock_in_time(backend: Backend) -> None:
    holder, other = backend.provider(), backend.provider()
    owner = threading.Thread(target=holder.try_lock, args=(0,))
    owner.start()
    owner.join()
    assert other.try_lock(backend.free_after_ms + SLACK_MS)
    assert state_of(holder) is not Standing.HELD


def test_a_forced_release_ends_the_holding_and_frees_the_lock(backend: Backend) -> None:
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
    """Force the release again if a renewal came in between, as an operator would."""
    for _ in range(20):
        with suppress(Conflict):
            return operator.force_release()
    return operator.force_release()


def test_who_holds_the_lock_can_be_asked(backend: Backend) -> None:
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


def test_a_grant_whose_reply_was_lost_is_neither_a_lie_nor_a_leak(backend: Backend) -> None:
    first = backend.provider()
    assert first.try_lock(0)
    first.unlock()
    provider = backend.provider()
    if not backend.can_drop_reply:
        pytest.skip("replies of this backend cannot be dropped")
    backend.drop()
    # L5: the attempt may end either way, and what it says is so.
    got = provider.try_lock(0)
    assert (state_of(provider) is Standing.HELD) == got
    if got:
        provider.unlock()
    assert backend.provider().try_lock(SLACK_MS)
    if backend.gate is not None:
        assert backend.gate.lost == 1


def test_a_holding_outlives_a_broken_connection(backend: Backend) -> None:
    if backend.gate is None:
        pytest.skip("this backend has no connection")
    holder, other = backend.provider(), backend.provider()
    assert holder.try_lock(0)
    backend.gate.cut()
    until = time.monotonic() + backend.free_after_ms / 1000 + 0.3
    while time.monotonic() < until:
        assert state_of(holder) in (Standing.HELD, Standing.UNSURE)
        time.sleep(0.05)
    assert not other.try_lock(0)
    assert eventually(lambda: state_of(holder) is Standing.HELD)
    holder.unlock()
    assert other.try_lock(SLACK_MS)


def test_a_server_out_of_reach_ends_the_holding_and_grants_nothing(backend: Backend) -> None:
    if backend.gate is None:
        pytest.skip("this backend has no connection")
    holder, other = backend.provider(), backend.provider()
    told: list[str] = []
    assert holder.try_lock(0)
    holder.on_lost(told.append)
    backend.gate.shut()
    # L3: lost by its own clock, before the server would give the lock to anybody else.
    assert eventually(lambda: state_of(holder) is Standing.LOST, within_ms=backend.free_after_ms)
    assert eventually(lambda: len(told) == 1)
    assert not other.try_lock(100)
    backend.gate.open()
    assert other.try_lock(backend.free_after_ms + SLACK_MS)
    assert state_of(other) is Standing.HELD


def test_close_releases_and_ends_the_provider(backend: Backend) -> None:
    provider, other = backend.provider(), backend.provider()
    assert provider.try_lock(0)
    provider.close()
    provider.close()
    assert other.try_lock(SLACK_MS)
    with pytest.raises(InvalidInput, match="closed"):
        provider.try_lock(0)


def test_a_hundred_cycles_leave_a_free_lock_and_growing_tokens(backend: Backend) -> None:
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
                time.sleep(0.001)
                inside.remove(number)
                provider.unlock()

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert overlaps == []
    assert not any(thread.is_alive() for thread in threads)
