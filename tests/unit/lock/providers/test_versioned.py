"""A lock in one conditional record: acquiring, observing, and lost replies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.doubles import ManualClock
from tidelock.core.errors import Conflict, StoreUnreachable
from tidelock.core.limits import GRACE_MS
from tidelock.lock.providers.backend import (
    Attempt,
    BackendAcquired,
    BackendGrant,
    BackendUnclear,
    GrantLost,
    GrantReleased,
    HeldByOther,
    LeaseTerms,
    RenewedLease,
)
from tidelock.lock.providers.versioned import (
    OBSERVED_LOCKS_MAX,
    Observations,
    RecordEntry,
    ReplaceRefused,
    VersionedBackend,
)

TERMS = LeaseTerms(10_000, 1_000)
A, B = Attempt("a"), Attempt("b")
Reply = RecordEntry | ReplaceRefused | BackendUnclear


class Register:
    """A record in memory; a script may reply after or instead of writing."""

    uri = "register://one"

    def __init__(self) -> None:
        self.entry: RecordEntry | None = None
        self.writes = 0
        self.scripts: deque[Callable[[Callable[[], Reply]], Reply]] = deque()
        self.token_error: StoreUnreachable | None = None

    def read(self) -> RecordEntry | None:
        return self.entry

    def write(self, entry: RecordEntry, over: RecordEntry | None) -> Reply:
        def through() -> Reply:
            if (self.entry.version if self.entry else None) != (over.version if over else None):
                return ReplaceRefused()
            self.writes += 1
            self.entry = replace(entry, version=str(self.writes))
            return self.entry

        return self.scripts.popleft()(through) if self.scripts else through()

    def next_token(self, entry: RecordEntry) -> int:
        if self.token_error is not None:
            raise self.token_error
        return entry.token

    def close(self) -> None:
        pass


def lost(through: Callable[[], Reply]) -> Reply:
    """Write, and lose the reply."""
    through()
    return BackendUnclear("lost")


class Bench:
    def __init__(self) -> None:
        self.register = Register()
        self.clock = ManualClock()
        self.observations = Observations()

    def backend(self) -> VersionedBackend:
        return VersionedBackend(
            self.register, TERMS, clock=self.clock, observations=self.observations
        )

    def taken(self, attempt: Attempt) -> tuple[VersionedBackend, BackendGrant]:
        backend = self.backend()
        reply = backend.try_acquire(attempt)
        assert isinstance(reply, BackendAcquired)
        return backend, reply.grant


def test_l2_changing_record_is_never_stolen_and_an_unchanged_one_is() -> None:
    bench = Bench()
    holder, grant = bench.taken(A)
    contender = bench.backend()
    for _ in range(30):
        assert isinstance(contender.try_acquire(B), HeldByOther)
        bench.clock.advance(9_000)
        assert isinstance(holder.renew(grant), RenewedLease)
    assert isinstance(contender.try_acquire(B), HeldByOther)
    bench.clock.advance(10_000 + GRACE_MS - 1)
    held = contender.try_acquire(B)
    assert isinstance(held, HeldByOther)
    assert held.poll_after_ms == 1
    bench.clock.advance(1)
    assert isinstance(contender.try_acquire(B), BackendAcquired)
    assert holder.renew(grant) == GrantLost("its record names the holder b")


def test_contender_waits_for_the_duration_of_the_record_not_its_own() -> None:
    bench = Bench()
    bench.register.entry = RecordEntry("a Java writer", 60_000, version="x")
    contender = bench.backend()
    contender.try_acquire(B)
    bench.clock.advance(59_000)
    assert isinstance(contender.try_acquire(B), HeldByOther)
    bench.clock.advance(1_000 + GRACE_MS)
    assert isinstance(contender.try_acquire(B), BackendAcquired)


def test_observations_are_shared_by_the_clients_of_a_process() -> None:
    bench = Bench()
    bench.taken(A)
    bench.backend().try_acquire(B)
    bench.clock.advance(10_000 + GRACE_MS)
    assert isinstance(bench.backend().try_acquire(B), BackendAcquired)


def test_l1_tokens_increase_over_releases_and_steals() -> None:
    bench = Bench()
    first, grant = bench.taken(A)
    assert first.release(grant) == GrantReleased()
    second, again = bench.taken(B)
    assert again.token > grant.token
    assert isinstance(second.try_acquire(Attempt("c")), HeldByOther)


def test_l5_renewal_with_a_lost_reply_is_adopted() -> None:
    bench = Bench()
    holder, grant = bench.taken(A)
    bench.register.scripts.append(lost)
    assert holder.renew(grant) == BackendUnclear("lost")
    assert isinstance(holder.renew(grant), RenewedLease)
    assert isinstance(holder.release(grant), GrantReleased)


def test_l5_release_with_a_lost_reply_is_resolved_as_released() -> None:
    bench = Bench()
    holder, grant = bench.taken(A)
    bench.register.scripts.append(lost)
    assert holder.release(grant) == BackendUnclear("lost")
    assert holder.release(grant) == GrantLost("its record has no holder")


def test_unacknowledged_grant_is_cancelled_and_the_record_freed() -> None:
    bench = Bench()
    backend = bench.backend()
    bench.register.scripts.append(lost)
    assert backend.try_acquire(A) == BackendUnclear("lost")
    assert backend.cancel(A)
    assert not backend.cancel(A)
    assert isinstance(bench.backend().try_acquire(B), BackendAcquired)


def test_cancel_does_not_affect_another_holder() -> None:
    bench = Bench()
    holder, grant = bench.taken(A)
    assert not bench.backend().cancel(B)
    assert isinstance(holder.renew(grant), RenewedLease)


def test_grant_without_a_token_is_not_accepted() -> None:
    bench = Bench()
    bench.register.token_error = StoreUnreachable("no answer")
    backend = bench.backend()
    assert isinstance(backend.try_acquire(A), BackendUnclear)
    assert backend.cancel(A)


def test_lost_race_is_a_plain_refusal() -> None:
    bench = Bench()
    bench.register.scripts.append(lambda through: ReplaceRefused())
    assert isinstance(bench.backend().try_acquire(A), HeldByOther)


def test_deleted_record_is_lost() -> None:
    bench = Bench()
    holder, grant = bench.taken(A)
    bench.register.entry = None
    assert holder.renew(grant) == GrantLost("its record was deleted")


def test_forced_release_that_races_with_a_renewal_reports_it() -> None:
    bench = Bench()
    bench.taken(A)
    bench.register.scripts.append(lambda through: ReplaceRefused())
    with pytest.raises(Conflict):
        bench.backend().force_release()
    assert bench.backend().force_release()
    assert not bench.backend().force_release()


def test_observation_cache_is_bounded() -> None:
    observations, clock = Observations(), ManualClock()
    for number in range(OBSERVED_LOCKS_MAX + 1):
        observations.left_ms(f"lock {number}", "v", 1_000, clock)
    clock.advance(5_000)
    assert observations.left_ms("lock 0", "v", 1_000, clock) > 0  # evicted: starts again
    assert observations.left_ms(f"lock {OBSERVED_LOCKS_MAX}", "v", 1_000, clock) == 0
