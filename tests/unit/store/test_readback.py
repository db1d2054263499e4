"""Conditional writes with their outcome settled: landed, not landed, or honestly unknown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.doubles import ManualClock, ScriptedStore, answer, failing, landing
from tidelock.base.errors import PermissionDenied, StoreUnreachable
from tidelock.base.ids import SeededIds
from tidelock.base.outcome import Landed, NotLanded, Unknown
from tidelock.store.contract import Busy, Create, Match, Overwrite, PutReply, Refused, Unclear
from tidelock.store.memory import MemoryStore
from tidelock.store.readback import Patience, put_checked

OURS = b"ours, with a nonce"


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock)
        self.store = ScriptedStore(self.memory)
        self.patience = Patience(clock=self.clock, ids=SeededIds(1))

    def write(self, mode: Create | Match) -> object:
        return put_checked(self.store, "key", OURS, mode, patience=self.patience)

    def existing(self) -> Match:
        reply = self.memory.put("key", b"old", Overwrite())
        assert isinstance(reply, Landed)
        return Match(reply.version)

    def body(self) -> bytes | None:
        found = self.memory.get("key")
        return None if found is None else found.body


@pytest.fixture
def bench() -> Bench:
    return Bench()


def replaced_before(bench: Bench, reply: PutReply) -> Callable[..., PutReply]:
    def script(through: Callable[[], PutReply]) -> PutReply:
        bench.memory.put("key", b"theirs", Overwrite())
        return reply

    return script


@pytest.mark.parametrize("reply", [Unclear("reset"), Refused()])
@pytest.mark.parametrize("kind", ["create", "match"])
def test_a_write_whose_reply_was_lost_has_landed(bench: Bench, kind: str, reply: PutReply) -> None:
    mode = Create() if kind == "create" else bench.existing()
    bench.store.puts.append(landing(reply))
    outcome = bench.write(mode)
    found = bench.memory.get("key")
    assert found is not None
    assert outcome == Landed(found.version)
    assert bench.store.count("put") == 1


@pytest.mark.parametrize("kind", ["create", "match"])
def test_a_write_whose_request_was_lost_is_sent_again(bench: Bench, kind: str) -> None:
    mode = Create() if kind == "create" else bench.existing()
    bench.store.puts.append(answer(Unclear("timed out")))
    assert isinstance(bench.write(mode), Landed)
    assert bench.body() == OURS
    assert bench.store.count("put") == 2


def test_a_create_that_somebody_else_won_has_not_landed(bench: Bench) -> None:
    bench.existing()
    assert isinstance(bench.write(Create()), NotLanded)
    assert bench.body() == b"old"


def test_a_refused_match_has_not_landed(bench: Bench) -> None:
    mode = bench.existing()
    bench.memory.put("key", b"theirs", Overwrite())
    assert isinstance(bench.write(mode), NotLanded)
    assert bench.body() == b"theirs"


def test_an_unclear_create_of_an_object_that_others_made_has_not_landed(bench: Bench) -> None:
    bench.store.puts.append(replaced_before(bench, Unclear("reset")))
    assert isinstance(bench.write(Create()), NotLanded)


def test_an_unclear_match_of_an_object_that_others_replaced_is_unknown(bench: Bench) -> None:
    mode = bench.existing()
    bench.store.puts.append(replaced_before(bench, Unclear("reset")))
    outcome = bench.write(mode)
    assert isinstance(outcome, Unknown)
    assert "reset" in outcome.cause


def test_an_unclear_write_that_cannot_be_read_back_is_unknown(bench: Bench) -> None:
    bench.store.puts.append(landing(Unclear("reset")))
    bench.store.gets.append(StoreUnreachable("no route"))
    outcome = bench.write(Create())
    assert isinstance(outcome, Unknown)
    assert "reset" in outcome.cause
    assert "no route" in outcome.cause


def test_a_busy_store_is_given_the_time_it_asked_for(bench: Bench) -> None:
    bench.store.puts.append(answer(Busy(7_000)))
    assert isinstance(bench.write(Create()), Landed)
    assert bench.clock.slept_ms[0] >= 7_000


def test_a_store_that_stays_busy_has_taken_nothing(bench: Bench) -> None:
    bench.store.puts.extend([answer(Busy(cause="429"))] * 6)
    outcome = bench.write(Create())
    assert isinstance(outcome, NotLanded)
    assert "429" in outcome.reason
    assert bench.body() is None


def test_a_store_that_stays_unclear_leaves_the_outcome_unknown(bench: Bench) -> None:
    bench.store.puts.extend([answer(Unclear("503"))] * 6)
    assert bench.write(Create()) == Unknown("503")


def test_a_denied_write_raises_and_writes_nothing(bench: Bench) -> None:
    bench.store.puts.append(failing(PermissionDenied("no entry")))
    with pytest.raises(PermissionDenied):
        bench.write(Create())
    assert bench.body() is None
