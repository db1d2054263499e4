"""A lock in one conditional record: taking, watching, and one's own unheard writes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.doubles import ManualClock
from tidelock.base.errors import Conflict, StoreUnreachable
from tidelock.base.limits import GRACE_MS
from tidelock.lock.provider import Features
from tidelock.lockproviders.backend import (
    Attempt,
    Freed,
    Gone,
    Grant,
    Held,
    Kept,
    Taken,
    Terms,
    Unclear,
)
from tidelock.lockproviders.observation import WATCHED_MAX, Observations
from tidelock.lockproviders.versioned import Entry, Refused, VersionedBackend

TERMS = Terms(10_000, 1_000)
A, B = Attempt("a"), Attempt("b")
Reply = Entry | Refused | Unclear


class Register:
    """A record in memory; a script may answer for it, after or instead of writing."""

    uri = "register://one"

    def __init__(self) -> None:
        self.entry: Entry | None = None
        self.writes = 0
        self.scripts: deque[Callable[[Callable[[], Reply]], Reply]] = deque()
        self.token_error: StoreUnreachable | None = None

    def read(self) -> Entry | None:
        return self.entry

    def write(self, entry: Entry, over: Entry | None) -> Reply:
        def through() -> Reply:
            if (self.entry.version if self.entry else None) != (over.version if over else None):
                return Refused()
            self.writes += 1
            self.entry = replace(entry, version=str(self.writes))
            return self.entry

        return self.scripts.popleft()(through) if self.scripts else through()

    def draw_token(self, entry: Entry) -> int:
        if self.token_error is not None:
            raise self.token_error
        return entry.token

    def close(self) -> None:
        pass


def lost(through: Callable[[], Reply]) -> Reply:
    """Write, and lose the answer."""
    through()
    return Unclear("lost")


class Bench:
    def __init__(self) -> None:
        self.register = Register()
        self.clock = ManualClock()
        self.observations = Observations()

    def backend(self) -> VersionedBackend:
        return VersionedBackend(
            self.register,
            TERMS,
            Features(),
            clock=self.clock,
            observations=self.observations,
        )

    def taken(self, attempt: Attempt) -> tuple[VersionedBackend, Grant]:
        backend = self.backend()
        reply = backend.take(attempt)
        assert isinstance(reply, Taken)
        return backend, reply.grant


def test_l2_a_record_that_moves_is_never_taken_and_one_that_stands_still_is() -> None:
    bench = Bench()
    holder, grant = bench.taken(A)
    taker = bench.backend()
    for _ in range(30):
        assert isinstance(taker.take(B), Held)
        bench.clock.advance(9_000)
        assert isinstance(holder.renew(grant), Kept)
    assert isinstance(taker.take(B), Held)
    bench.clock.advance(10_000 + GRACE_MS - 1)
    held = taker.take(B)
    assert isinstance(held, Held)
    assert held.look_after_ms == 1
    bench.clock.advance(1)
    assert isinstance(taker.take(B), Taken)
    assert holder.renew(grant) == Gone("its record names b")


def test_a_taker_waits_the_duration_of_the_record_not_its_own() -> None:
    bench = Bench()
    bench.register.entry = Entry("a Java writer", 60_000, version="x")
    taker = bench.backend()
    taker.take(B)
    bench.clock.advance(59_000)
    assert isinstance(taker.take(B), Held)
    bench.clock.advance(1_000 + GRACE_MS)
    assert isinstance(taker.take(B), Taken)


def test_what_one_client_of_a_process_saw_the_next_one_knows() -> None:
    bench = Bench()
    bench.taken(A)
    bench.backend().take(B)
    bench.clock.advance(10_000 + GRACE_MS)
    assert isinstance(bench.backend().take(B), Taken)


def test_l1_tokens_grow_over_releases_and_steals() -> None:
    bench = Bench()
    first, grant = bench.taken(A)
    assert first.release(grant) == Freed()
    second, again = bench.taken(B)
    assert again.token > grant.token
    assert isinstance(second.take(Attempt("c")), Held)


def test_l5_a_renewal_whose_answer_was_lost_is_adopted() -> None:
    bench = Bench()
    holder, grant = bench.taken(A)
    bench.register.scripts.append(lost)
    assert holder.renew(grant) == Unclear("lost")
    assert isinstance(holder.renew(grant), Kept)
    assert isinstance(holder.release(grant), Freed)


def test_l5_a_release_whose_answer_was_lost_is_seen_to_be_gone() -> None:
    bench = Bench()
    holder, grant = bench.taken(A)
    bench.register.scripts.append(lost)
    assert holder.release(grant) == Unclear("lost")
    assert holder.release(grant) == Gone("its record names nobody")


def test_an_unheard_grant_is_left_and_the_record_freed() -> None:
    bench = Bench()
    backend = bench.backend()
    bench.register.scripts.append(lost)
    assert backend.take(A) == Unclear("lost")
    assert backend.leave(A)
    assert not backend.leave(A)
    assert isinstance(bench.backend().take(B), Taken)


def test_leaving_changes_nothing_of_another_s_holding() -> None:
    bench = Bench()
    holder, grant = bench.taken(A)
    assert not bench.backend().leave(B)
    assert isinstance(holder.renew(grant), Kept)


def test_a_grant_without_a_token_is_not_believed() -> None:
    bench = Bench()
    bench.register.token_error = StoreUnreachable("no answer")
    backend = bench.backend()
    assert isinstance(backend.take(A), Unclear)
    assert backend.leave(A)


def test_a_lost_race_is_a_plain_no() -> None:
    bench = Bench()
    bench.register.scripts.append(lambda through: Refused())
    assert isinstance(bench.backend().take(A), Held)


def test_a_record_that_was_deleted_is_lost() -> None:
    bench = Bench()
    holder, grant = bench.taken(A)
    bench.register.entry = None
    assert holder.renew(grant) == Gone("its record was deleted")


def test_a_forced_release_that_meets_a_renewal_says_so() -> None:
    bench = Bench()
    bench.taken(A)
    bench.register.scripts.append(lambda through: Refused())
    with pytest.raises(Conflict):
        bench.backend().break_lock()
    assert bench.backend().break_lock()
    assert not bench.backend().break_lock()


def test_the_memory_of_what_was_seen_is_bounded() -> None:
    observations, clock = Observations(), ManualClock()
    for number in range(WATCHED_MAX + 1):
        observations.left_ms(f"lock {number}", "v", 1_000, clock)
    clock.advance(5_000)
    assert observations.left_ms("lock 0", "v", 1_000, clock) > 0  # forgotten: begins anew
    assert observations.left_ms(f"lock {WATCHED_MAX}", "v", 1_000, clock) == 0
