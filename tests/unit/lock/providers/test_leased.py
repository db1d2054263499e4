"""A provider over a backend: waiting, renewing, losing and releasing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.unit.lock.providers.scripted_backend import HELD, TERMS, Bench
from tidelock.core.errors import (
    HoldingLost,
    InvalidInput,
    OutcomeUnknown,
    PermissionDenied,
    StoreUnreachable,
    Unavailable,
    Unsupported,
)
from tidelock.lock.events import LockLost, RenewalUnknown, Renewed
from tidelock.lock.providers.backend import BackendUnclear, GrantLost, HeldByOther
from tidelock.lock.providers.leased import LeasedProvider
from tidelock.lock.state import Standing

NO_ANSWER = BackendUnclear("no answer")
NOT_SENT = StoreUnreachable("no connection")


def state_of(provider: LeasedProvider) -> Standing:
    """Return the current state; it may change between two statements."""
    return provider.state


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not holds() and time.monotonic() < until:
        time.sleep(0.005)
    return holds()


def test_zero_wait_tries_once() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", HELD, HELD)
    assert not bench.provider.try_lock(0)
    assert bench.backend.verbs() == ["try_acquire"]
    assert bench.clock.slept_ms == []


def test_wait_ends_on_time_and_backs_off() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", *[HELD] * 200)
    began_ms = bench.clock.now().monotonic_ms
    assert not bench.provider.try_lock(2_000)
    assert bench.clock.now().monotonic_ms - began_ms == 2_000
    assert 20 < len(bench.backend.calls) < 60
    assert bench.clock.slept_ms[0] < 20
    assert max(bench.clock.slept_ms) <= 100
    assert len(set(bench.backend.attempts("try_acquire"))) == 1  # one request, repeated


def test_contended_lock_is_polled_closely() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", *[HeldByOther(f"owner {number}") for number in range(20)])
    assert bench.provider.try_lock(60_000)
    assert max(bench.clock.slept_ms) <= 10


def test_pause_ends_at_a_known_expiry() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", *[HELD] * 10, HeldByOther("somebody", poll_after_ms=20))
    assert bench.provider.try_lock(60_000)
    assert bench.clock.slept_ms[-1] <= 20


def test_change_notification_ends_the_pause() -> None:
    bench = Bench()
    changed = threading.Event()
    changed.set()
    bench.backend.script("try_acquire", HeldByOther("somebody", queued=True, changed=changed))
    assert bench.provider.try_lock(60_000)
    assert bench.clock.slept_ms == []


def test_queue_position_is_given_up_when_the_wait_ends() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", HeldByOther("somebody", queued=True))
    assert not bench.provider.try_lock(0)
    assert bench.backend.verbs() == ["try_acquire", "cancel"]
    assert bench.backend.attempts("cancel") == bench.backend.attempts("try_acquire")


def test_l5_grant_with_a_lost_reply_is_undone_before_the_next_attempt() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", NO_ANSWER)
    assert bench.provider.try_lock(1_000)
    assert bench.backend.verbs() == ["try_acquire", "cancel", "try_acquire"]
    first, second = bench.backend.attempts("try_acquire")
    assert bench.backend.attempts("cancel") == [first]
    assert first != second
    assert bench.provider.metrics.counter("lock.ghost") == 1


def test_grant_that_could_not_be_undone_is_undone_by_the_next_acquire() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", NO_ANSWER)
    bench.backend.script("cancel", NOT_SENT)
    assert not bench.provider.try_lock(0)
    assert bench.provider.is_bound
    assert bench.provider.try_lock(0)
    assert bench.backend.verbs() == ["try_acquire", "cancel", "cancel", "try_acquire"]


def test_grant_that_arrived_too_late_is_undone() -> None:
    bench = Bench()

    def slow() -> object:
        bench.clock.advance(TERMS.validity_ms or 0)
        return NO_ANSWER

    bench.backend.script("try_acquire", slow)
    assert not bench.provider.try_lock(0)
    assert bench.backend.verbs() == ["try_acquire", "cancel"]


def test_interrupt_during_acquire_leaves_nothing_behind() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        bench.provider.try_lock(1_000)
    assert bench.backend.verbs() == ["try_acquire", "cancel"]


def test_failures_are_retried_as_configured() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", *[NOT_SENT] * 9)
    assert not bench.provider.try_lock(600_000)
    assert len(bench.backend.calls) == 1 + 3
    assert [ms > 49 for ms in bench.clock.slept_ms] == [True] * 3
    assert bench.clock.slept_ms[2] > bench.clock.slept_ms[0]


def test_successful_reply_resets_the_failure_count() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", NOT_SENT, NOT_SENT, HELD, NOT_SENT, NOT_SENT)
    assert bench.provider.try_lock(600_000)


def test_refused_credentials_are_not_reported_as_a_held_lock() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", PermissionDenied("not you"))
    with pytest.raises(PermissionDenied):
        bench.provider.try_lock(1_000)


def test_l3_deadline_counts_from_the_request() -> None:
    bench = Bench()
    provider = bench.held()
    sent_ms = bench.clock.now().monotonic_ms
    deadline_ms = TERMS.deadline_monotonic_ms(sent_ms)
    assert provider.deadline_monotonic_ms() == deadline_ms
    bench.clock.advance((deadline_ms or 0) - sent_ms - 1)
    assert state_of(provider) is Standing.HELD
    bench.clock.advance(1)
    assert state_of(provider) is Standing.LOST
    with pytest.raises(HoldingLost):
        provider.check()


def test_l14_wall_clock_step_changes_nothing() -> None:
    bench = Bench()
    provider = bench.held()
    bench.clock.wall_offset_ms = -3_600_000
    bench.clock.advance(9_600)
    assert state_of(provider) is Standing.LOST


def test_renewal_moves_the_deadline_and_an_unclear_one_does_not() -> None:
    bench = Bench()
    provider = bench.held()
    first = provider.deadline_monotonic_ms()
    bench.clock.advance(1_000)
    bench.backend.script("renew", NO_ANSWER)
    assert isinstance(provider.renew(), RenewalUnknown)
    assert state_of(provider) is Standing.UNSURE
    assert provider.deadline_monotonic_ms() == first
    assert isinstance(provider.renew(), Renewed)
    assert state_of(provider) is Standing.HELD
    assert provider.deadline_monotonic_ms() == (first or 0) + 1_000


def test_l7_lost_lock_notifies_its_owner_once() -> None:
    bench = Bench()
    provider = bench.held()
    causes: list[str] = []
    provider.on_lost(causes.append)
    bench.backend.script("renew", GrantLost("stolen"))
    assert isinstance(provider.renew(), LockLost)
    assert eventually(lambda: causes == ["stolen"])
    assert provider.renew() is None
    assert "abandon" in bench.backend.verbs()
    with pytest.raises(HoldingLost, match="stolen"):
        provider.unlock()
    assert state_of(provider) is Standing.FREE
    provider.unlock()
    assert "release" not in bench.backend.verbs()
    assert causes == ["stolen"]


def test_p29_passed_deadline_is_noticed_without_a_reply() -> None:
    bench = Bench()
    provider = bench.held()
    bench.clock.advance(9_600)
    provider.check_deadline()
    assert state_of(provider) is Standing.LOST
    assert bench.backend.verbs() == ["try_acquire", "abandon"]


def test_l11_nothing_is_renewed_at_or_after_the_deadline() -> None:
    bench = Bench()
    provider = bench.held()
    bench.clock.advance(9_500)
    assert isinstance(provider.renew(), LockLost)
    assert "renew" not in bench.backend.verbs()


def test_l11_renewal_that_lands_after_the_deadline_is_released() -> None:
    bench = Bench()
    provider = bench.held()

    def slow() -> object:
        bench.clock.advance(9_600)
        return None

    original = bench.backend.renew

    def renew(grant: object) -> object:
        slow()
        return original(grant)  # type: ignore[arg-type]

    bench.backend.renew = renew  # type: ignore[method-assign, assignment]
    assert isinstance(provider.renew(), LockLost)
    assert bench.backend.verbs() == ["try_acquire", "renew", "cancel", "abandon"]


def test_l10_nothing_is_renewed_for_an_ended_thread() -> None:
    bench = Bench()
    owner = threading.Thread(target=bench.provider.try_lock, args=(0,))
    owner.start()
    owner.join()
    result = bench.provider.renew()
    assert isinstance(result, LockLost)
    assert "thread" in result.cause
    assert "renew" not in bench.backend.verbs()
    assert "abandon" in bench.backend.verbs()


def test_bug_in_a_renewal_ends_the_holding() -> None:
    bench = Bench()
    provider = bench.held()
    bench.backend.script("renew", ZeroDivisionError())
    assert isinstance(provider.renew(), LockLost)
    assert state_of(provider) is Standing.LOST


def test_holding_without_a_heartbeat_is_released() -> None:
    bench = Bench()
    bench.renewals.refuses = True
    with pytest.raises(Unavailable, match="heartbeat"):
        bench.provider.try_lock(0)
    assert bench.backend.verbs() == ["try_acquire", "cancel"]
    assert bench.provider.state is Standing.FREE


def test_unclear_release_is_repeated_and_absence_then_proves_it() -> None:
    bench = Bench()
    provider = bench.held()
    bench.backend.script("release", NO_ANSWER, GrantLost("not there"))
    provider.unlock()
    assert provider.metrics.counter("lock.release.success") == 1


def test_l6_absence_after_the_deadline_proves_nothing() -> None:
    bench = Bench()
    provider = bench.held()

    def late() -> object:
        bench.clock.advance(9_600)
        return NO_ANSWER

    bench.backend.script("release", late, GrantLost("not there"))
    with pytest.raises(OutcomeUnknown):
        provider.unlock()
    assert provider.is_bound  # the next acquire resolves it


def test_unanswered_release_is_unknown_and_resolved_later() -> None:
    bench = Bench()
    provider = bench.held()
    bench.backend.script("release", *[NO_ANSWER] * 6)
    with pytest.raises(OutcomeUnknown):
        provider.unlock()
    first = bench.backend.attempts("try_acquire")[0]
    assert provider.try_lock(0)
    assert bench.backend.attempts("cancel") == [first]


def test_release_that_finds_the_lock_gone_is_a_loss() -> None:
    bench = Bench()
    provider = bench.held()
    bench.backend.script("release", GrantLost("stolen"))
    with pytest.raises(HoldingLost, match="stolen"):
        provider.unlock()
    assert state_of(provider) is Standing.FREE


def test_close_releases_once_and_closes_the_backend() -> None:
    bench = Bench()
    provider = bench.held()
    provider.close()
    provider.close()
    assert bench.backend.verbs() == ["try_acquire", "release"]
    assert bench.backend.closed == 1
    assert bench.renewals.kept == []
    with pytest.raises(InvalidInput, match="closed"):
        provider.try_lock(0)


def test_close_ends_a_wait() -> None:
    bench = Bench()
    bench.backend.script("try_acquire", *[HELD] * 1_000)
    bench.clock.when_sleeping = bench.provider._closing.set
    assert not bench.provider.try_lock(10_000_000)
    assert len(bench.backend.calls) == 1


def test_unsupported_forced_release_is_reported() -> None:
    with pytest.raises(Unsupported):
        Bench().provider.force_release()
