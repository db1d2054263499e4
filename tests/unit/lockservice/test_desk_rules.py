"""Random conversations with the desk: what must hold after every sentence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.lockservice.desks import Talk
from tidelock.lockservice import asking as a
from tidelock.lockservice.desk import Desk
from tidelock.lockservice.entries import Ended, Entry, Granted, Mode, follows

KEYS = st.sampled_from(["a", "b"])
PEOPLE = st.sampled_from(["p", "q"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"), KEYS, PEOPLE, st.booleans(), st.sampled_from(Mode), st.integers(0, 3)
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


def wrong(entries: list[Entry]) -> Iterator[str]:
    """Yield what contradicts a lock service in a sequence of its entries."""
    held: dict[str, Granted] = {}
    last_token: dict[str, int] = {}
    previous = entries[0] if entries else None
    for entry in entries[1:]:
        assert previous is not None
        if not follows(entry, previous.number, previous.hash):
            yield f"entry {entry.number} breaks the chain"
        previous = entry
    for entry in entries:
        match entry.decision:
            case Granted() as granted:
                if granted.key in held:
                    yield f"granted while held: {granted}"
                if granted.token <= last_token.get(granted.key, 0):
                    yield f"L1: {granted}"
                held[granted.key] = granted
                last_token[granted.key] = granted.token
            case Ended() as ended:
                if held.pop(ended.key, None) is None:
                    yield f"ended what was not held: {ended}"
            case _:
                pass


def played(steps: list[tuple[object, ...]], talk: Talk) -> Talk:
    for step in steps:
        match step:
            case ("ask", str(key), str(who), bool(immediate), Mode() as mode, int(request)):
                talk.ask(
                    key,
                    who,
                    immediate=immediate,
                    mode=mode,
                    ttl_ms=3_000,
                    linger_ms=1_000 if request == 1 else 0,
                    request_id=f"q{request}" if request else "",
                )
            case ("unlock" | "renew", str(key), str(who), *rest):
                seen = talk.look(key)
                if seen.granted is not None and rest:
                    talk.renew(seen.granted, who, int(str(rest[0])))
                elif seen.granted is not None:
                    talk.unlock(seen.granted, who)
            case ("force", str(key)):
                talk.say(a.Force(next(talk.handles), key, "operator"))
            case ("leave", int(handle)):
                talk.say(a.Leave(handle))
            case ("pass", int(duration_ms)):
                talk.pass_ms(duration_ms)
            case ("health", bool(healthy)):
                talk.say(a.Health(healthy))
            case ("restart",):
                talk = talk.restarted()
    return talk


@given(steps=STEPS)
@settings(max_examples=300)
def test_no_conversation_grants_twice_or_lowers_a_token(steps: list[tuple[object, ...]]) -> None:
    talk = played(steps, Talk())
    assert list(wrong(talk.entries)) == []


@given(steps=STEPS)
@settings(max_examples=100)
def test_another_instance_holds_exactly_what_the_first_did(steps: list[tuple[object, ...]]) -> None:
    talk = played(steps, Talk())
    before = {key: held.granted for key, held in talk.desk.held.items()}
    after = {key: held.granted for key, held in talk.restarted().desk.held.items()}
    assert after == before


@given(steps=STEPS)
@settings(max_examples=100)
def test_nobody_is_left_over_when_all_have_gone(steps: list[tuple[object, ...]]) -> None:
    talk = played(steps, Talk())
    talk.say(a.Health(healthy=False))
    for handle in range(1, 200):
        talk.say(a.Leave(handle))
    talk.pass_ms(10_000)
    talk.pass_ms(10_000)
    assert talk.desk.waiting == 0
    assert talk.desk.held == {}


def test_the_rules_find_a_desk_that_forgets_its_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(desk: Desk, held: object) -> None:
        del desk, held

    monkeypatch.setattr(Desk, "_hold", forgetful)
    talk = Talk()
    talk.ask(), talk.ask()
    assert any("granted while held" in says for says in wrong(talk.entries))


def test_the_rules_find_an_entry_that_was_altered() -> None:
    talk = Talk()
    for key in "abc":
        talk.granted(key)
    altered = [*talk.entries[:1], talk.entries[2]]
    assert any("chain" in says for says in wrong(altered))
    assert all(later.number == sooner.number + 1 for sooner, later in pairwise(talk.entries))
