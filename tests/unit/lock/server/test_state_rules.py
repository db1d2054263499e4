"""Random sequences of events: invariants that hold after each event."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.lock.server.state_driver import StateDriver
from tidelock.lock.server import messages as msg
from tidelock.lock.server.entries import (
    GrantEnded,
    JournalEntry,
    KeepAliveMode,
    LockGranted,
    follows,
)
from tidelock.lock.server.state import LockState

KEYS = st.sampled_from(["a", "b"])
PEOPLE = st.sampled_from(["p", "q"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"),
            KEYS,
            PEOPLE,
            st.booleans(),
            st.sampled_from(KeepAliveMode),
            st.integers(0, 3),
        ),
        st.tuples(st.just("unlock"), KEYS, PEOPLE),
        st.tuples(st.just("renew"), KEYS, PEOPLE, st.sampled_from([0, 2_000])),
        st.tuples(st.just("force"), KEYS),
        st.tuples(st.just("leave"), st.integers(1, 40)),
        st.tuples(st.just("pass"), st.integers(1, 4_000)),
        st.tuples(st.just("health"), st.booleans()),
        st.tuples(st.just("restart")),
    ),
    max_size=60,
)


def violations(entries: list[JournalEntry]) -> Iterator[str]:
    """Yield violations of the lock rules in a sequence of entries."""
    held: dict[str, LockGranted] = {}
    last_token: dict[str, int] = {}
    previous = entries[0] if entries else None
    for entry in entries[1:]:
        assert previous is not None
        if not follows(entry, previous.number, previous.hash):
            yield f"entry {entry.number} breaks the chain"
        previous = entry
    for entry in entries:
        match entry.decision:
            case LockGranted() as granted:
                if granted.key in held:
                    yield f"granted while held: {granted}"
                if granted.token <= last_token.get(granted.key, 0):
                    yield f"L1: {granted}"
                held[granted.key] = granted
                last_token[granted.key] = granted.token
            case GrantEnded() as ended:
                if held.pop(ended.key, None) is None:
                    yield f"ended what was not held: {ended}"
            case _:
                pass


def played(steps: list[tuple[object, ...]], driver: StateDriver) -> StateDriver:
    for step in steps:
        match step:
            case (
                "ask",
                str(key),
                str(who),
                bool(immediate),
                KeepAliveMode() as mode,
                int(request),
            ):
                driver.request(
                    key,
                    who,
                    immediate=immediate,
                    mode=mode,
                    ttl_ms=3_000,
                    linger_ms=1_000 if request == 1 else 0,
                    request_id=f"q{request}" if request else "",
                )
            case ("unlock" | "renew", str(key), str(who), *rest):
                seen = driver.inspect(key)
                if seen.granted is not None and rest:
                    driver.renew(seen.granted, who, int(str(rest[0])))
                elif seen.granted is not None:
                    driver.unlock(seen.granted, who)
            case ("force", str(key)):
                driver.send(msg.ForceUnlock(next(driver.handles), key, "operator"))
            case ("leave", int(handle)):
                driver.send(msg.CallerLeft(handle))
            case ("pass", int(duration_ms)):
                driver.pass_ms(duration_ms)
            case ("health", bool(healthy)):
                driver.send(msg.HealthChanged(healthy))
            case ("restart",):
                driver = driver.restarted()
    return driver


@given(steps=STEPS)
@settings(max_examples=300)
def test_no_event_sequence_grants_twice_or_lowers_a_token(steps: list[tuple[object, ...]]) -> None:
    driver = played(steps, StateDriver())
    assert list(violations(driver.entries)) == []


@given(steps=STEPS)
@settings(max_examples=100)
def test_next_instance_holds_exactly_what_the_first_did(steps: list[tuple[object, ...]]) -> None:
    driver = played(steps, StateDriver())
    before = {key: held.granted for key, held in driver.state.held.items()}
    after = {key: held.granted for key, held in driver.restarted().state.held.items()}
    assert after == before


@given(steps=STEPS)
@settings(max_examples=100)
def test_nothing_is_left_when_all_clients_have_gone(steps: list[tuple[object, ...]]) -> None:
    driver = played(steps, StateDriver())
    driver.send(msg.HealthChanged(healthy=False))
    for handle in range(1, 200):
        driver.send(msg.CallerLeft(handle))
    driver.pass_ms(10_000)
    driver.pass_ms(10_000)
    assert driver.state.waiting == 0
    assert driver.state.held == {}


def test_rules_detect_a_state_machine_that_forgets_its_grants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgetting(state: LockState, held: object) -> None:
        del state, held

    monkeypatch.setattr(LockState, "_hold", forgetting)
    driver = StateDriver()
    driver.request(), driver.request()
    assert any("granted while held" in says for says in violations(driver.entries))


def test_rules_detect_an_altered_entry() -> None:
    driver = StateDriver()
    for key in "abc":
        driver.granted(key)
    altered = [*driver.entries[:1], driver.entries[2]]
    assert any("chain" in says for says in violations(altered))
    assert all(later.number == sooner.number + 1 for sooner, later in pairwise(driver.entries))
