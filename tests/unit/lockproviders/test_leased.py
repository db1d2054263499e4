"""What a provider makes of its backend's answers: waiting, keeping, losing, giving back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.unit.lockproviders.scripted import HELD, TERMS, Bench
from tidelock.base.errors import (
    HoldingLost,
    InvalidInput,
    OutcomeUnknown,
    PermissionDenied,
    StoreUnreachable,
    Unavailable,
    Unsupported,
)
from tidelock.lock.events import Doubtful, Lost, Renewed
from tidelock.lock.state import Standing
from tidelock.lockproviders.backend import Gone, Held, Unclear
from tidelock.lockproviders.leased import LeasedProvider

NO_ANSWER = Unclear("no answer")
NOT_SENT = StoreUnreachable("no connection")


def state_of(provider: LeasedProvider) -> Standing:
    """Ask anew each time: what was true a statement ago says nothing."""
    return provider.state


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not holds() and time.monotonic() < until:
        time.sleep(0.005)
    return holds()


def test_a_wait_of_no_time_looks_once() -> None:
    bench = Bench()
    bench.backend.script("take", HELD, HELD)
    assert not bench.provider.try_lock(0)
    assert bench.backend.verbs() == ["take"]
    assert bench.clock.slept_ms == []


def test_a_wait_ends_with_its_time_and_slows_down_meanwhile() -> None:
    bench = Bench()
    bench.backend.script("take", *[HELD] * 200)
    began_ms = bench.clock.now().monotonic_ms
    assert not bench.provider.try_lock(2_000)
    assert bench.clock.now().monotonic_ms - began_ms == 2_000
    assert 20 < len(bench.backend.calls) < 60
    assert bench.clock.slept_ms[0] < 20
    assert max(bench.clock.slept_ms) <= 100
    assert len(set(bench.backend.attempts("take"))) == 1  # one wish, asked again


def test_a_lock_that_changes_hands_is_watched_closely() -> None:
    bench = Bench()
    bench.backend.script("take", *[Held(f"owner {number}") for number in range(20)])
    assert bench.provider.try_lock(60_000)
    assert max(bench.clock.slept_ms) <= 10


def test_a_known_end_is_not_slept_through() -> None:
    bench = Bench()
    bench.backend.script("take", *[HELD] * 10, Held("somebody", look_after_ms=20))
    assert bench.provider.try_lock(60_000)
    assert bench.clock.slept_ms[-1] <= 20


def test_the_news_of_a_change_ends_the_pause() -> None:
    bench = Bench()
    changed = threading.Event()
    changed.set()
    bench.backend.script("take", Held("somebody", queued=True, changed=changed))
    assert bench.provider.try_lock(60_000)
    assert bench.clock.slept_ms == []


def test_a_place_in_line_is_given_up_when_the_wait_ends() -> None:
    bench = Bench()
    bench.backend.script("take", Held("somebody", queued=True))
    assert not bench.provider.try_lock(0)
    assert bench.backend.verbs() == ["take", "leave"]
    assert bench.backend.attempts("leave") == bench.backend.attempts("take")


def test_l5_a_grant_whose_answer_was_lost_is_undone_before_the_next_try() -> None:
    bench = Bench()
    bench.backend.script("take", NO_ANSWER)
    assert bench.provider.try_lock(1_000)
    assert bench.backend.verbs() == ["take", "leave", "take"]
    first, second = bench.backend.attempts("take")
    assert bench.backend.attempts("leave") == [first]
    assert first != second
    assert bench.provider.metrics.counter("lock.ghost") == 1


def test_what_could_not_be_undone_is_undone_by_the_next_acquire() -> None:
    bench = Bench()
    bench.backend.script("take", NO_ANSWER)
    bench.backend.script("leave", NOT_SENT)
    assert not bench.provider.try_lock(0)
    assert bench.provider.is_bound
    assert bench.provider.try_lock(0)
    assert bench.backend.verbs() == ["take", "leave", "leave", "take"]


def test_a_grant_that_came_too_late_to_be_used_is_undone() -> None:
    bench = Bench()

    def slow() -> object:
        bench.clock.advance(TERMS.validity_ms or 0)
        return NO_ANSWER

    bench.backend.script("take", slow)
    assert not bench.provider.try_lock(0)
    assert bench.backend.verbs() == ["take", "leave"]


def test_an_interrupt_while_asking_leaves_nothing_behind() -> None:
    bench = Bench()
    bench.backend.script("take", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        bench.provider.try_lock(1_000)
    assert bench.backend.verbs() == ["take", "leave"]


def test_failures_are_retried_as_often_as_the_settings_say() -> None:
    bench = Bench()
    bench.backend.script("take", *[NOT_SENT] * 9)
    assert not bench.provider.try_lock(600_000)
    assert len(bench.backend.calls) == 1 + 3
    assert [ms > 49 for ms in bench.clock.slept_ms] == [True] * 3
    assert bench.clock.slept_ms[2] > bench.clock.slept_ms[0]


def test_an_answer_in_between_begins_the_count_of_failures_anew() -> None:
    bench = Bench()
    bench.backend.script("take", NOT_SENT, NOT_SENT, HELD, NOT_SENT, NOT_SENT)
    assert bench.provider.try_lock(600_000)


def test_a_refusal_of_these_credentials_is_no_refusal_of_the_lock() -> None:
    bench = Bench()
    bench.backend.script("take", PermissionDenied("not you"))
    with pytest.raises(PermissionDenied):
        bench.provider.try_lock(1_000)


def test_l3_the_deadline_counts_from_the_sending() -> None:
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


def test_l14_a_step_of_the_wall_clock_changes_nothing() -> None:
    bench = Bench()
    provider = bench.held()
    bench.clock.wall_offset_ms = -3_600_000
    bench.clock.advance(9_600)
    assert state_of(provider) is Standing.LOST


def test_a_renewal_moves_the_deadline_and_an_unclear_one_does_not() -> None:
    bench = Bench()
    provider = bench.held()
    first = provider.deadline_monotonic_ms()
    bench.clock.advance(1_000)
    bench.backend.script("renew", NO_ANSWER)
    assert isinstance(provider.renew(), Doubtful)
    assert state_of(provider) is Standing.UNSURE
    assert provider.deadline_monotonic_ms() == first
    assert isinstance(provider.renew(), Renewed)
    assert state_of(provider) is Standing.HELD
    assert provider.deadline_monotonic_ms() == (first or 0) + 1_000


def test_l7_a_lock_that_is_gone_is_lost_and_its_owner_told_once() -> None:
    bench = Bench()
    provider = bench.held()
    told: list[str] = []
    provider.on_lost(told.append)
    bench.backend.script("renew", Gone("stolen"))
    assert isinstance(provider.renew(), Lost)
    assert eventually(lambda: told == ["stolen"])
    assert provider.renew() is None
    assert "forsake" in bench.backend.verbs()
    with pytest.raises(HoldingLost, match="stolen"):
        provider.unlock()
    assert state_of(provider) is Standing.FREE
    provider.unlock()
    assert "release" not in bench.backend.verbs()
    assert told == ["stolen"]


def test_p29_a_passed_deadline_is_noticed_without_an_answer() -> None:
    bench = Bench()
    provider = bench.held()
    bench.clock.advance(9_600)
    provider.notice()
    assert state_of(provider) is Standing.LOST
    assert bench.backend.verbs() == ["take", "forsake"]


def test_l11_nothing_is_renewed_at_or_after_the_deadline() -> None:
    bench = Bench()
    provider = bench.held()
    bench.clock.advance(9_500)
    assert isinstance(provider.renew(), Lost)
    assert "renew" not in bench.backend.verbs()


def test_l11_a_renewal_that_lands_after_the_deadline_is_given_back() -> None:
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
    assert isinstance(provider.renew(), Lost)
    assert bench.backend.verbs() == ["take", "renew", "leave", "forsake"]


def test_l10_nothing_is_renewed_for_a_thread_that_has_ended() -> None:
    bench = Bench()
    owner = threading.Thread(target=bench.provider.try_lock, args=(0,))
    owner.start()
    owner.join()
    result = bench.provider.renew()
    assert isinstance(result, Lost)
    assert "thread" in result.cause
    assert "renew" not in bench.backend.verbs()
    assert "forsake" in bench.backend.verbs()


def test_a_bug_in_a_renewal_ends_the_holding() -> None:
    bench = Bench()
    provider = bench.held()
    bench.backend.script("renew", ZeroDivisionError())
    assert isinstance(provider.renew(), Lost)
    assert state_of(provider) is Standing.LOST


def test_a_holding_without_a_heartbeat_is_given_back() -> None:
    bench = Bench()
    bench.renewals.refuses = True
    with pytest.raises(Unavailable, match="heartbeat"):
        bench.provider.try_lock(0)
    assert bench.backend.verbs() == ["take", "leave"]
    assert bench.provider.state is Standing.FREE


def test_an_unclear_release_is_repeated_and_absence_then_proves_it() -> None:
    bench = Bench()
    provider = bench.held()
    bench.backend.script("release", NO_ANSWER, Gone("not there"))
    provider.unlock()
    assert provider.metrics.counter("lock.release.success") == 1


def test_l6_after_the_deadline_absence_proves_nothing() -> None:
    bench = Bench()
    provider = bench.held()

    def late() -> object:
        bench.clock.advance(9_600)
        return NO_ANSWER

    bench.backend.script("release", late, Gone("not there"))
    with pytest.raises(OutcomeUnknown):
        provider.unlock()
    assert provider.is_bound  # the next acquire looks for it


def test_a_release_that_nobody_answers_is_unknown_and_looked_for_later() -> None:
    bench = Bench()
    provider = bench.held()
    bench.backend.script("release", *[NO_ANSWER] * 6)
    with pytest.raises(OutcomeUnknown):
        provider.unlock()
    first = bench.backend.attempts("take")[0]
    assert provider.try_lock(0)
    assert bench.backend.attempts("leave") == [first]


def test_a_release_that_finds_the_lock_gone_is_a_loss() -> None:
    bench = Bench()
    provider = bench.held()
    bench.backend.script("release", Gone("stolen"))
    with pytest.raises(HoldingLost, match="stolen"):
        provider.unlock()
    assert state_of(provider) is Standing.FREE


def test_close_releases_once_and_closes_the_backend() -> None:
    bench = Bench()
    provider = bench.held()
    provider.close()
    provider.close()
    assert bench.backend.verbs() == ["take", "release"]
    assert bench.backend.closed == 1
    assert bench.renewals.kept == []
    with pytest.raises(InvalidInput, match="closed"):
        provider.try_lock(0)


def test_closing_ends_a_wait() -> None:
    bench = Bench()
    bench.backend.script("take", *[HELD] * 1_000)
    bench.clock.when_sleeping = bench.provider._closing.set
    assert not bench.provider.try_lock(10_000_000)
    assert len(bench.backend.calls) == 1


def test_what_cannot_be_forced_says_so() -> None:
    with pytest.raises(Unsupported):
        Bench().provider.force_release()
