"""Conditional writes with a resolved outcome: landed, not landed, or unknown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.doubles import ManualClock, ScriptedStore, answer, failing, landing
from tidelock.core.errors import PermissionDenied, StoreUnreachable
from tidelock.core.outcome import Landed, NotLanded, Unknown
from tidelock.core.system import SeededIds
from tidelock.storage.conditional import ReadbackPolicy, put_and_verify
from tidelock.storage.contract import Busy, Create, Match, Overwrite, PutReply, Refused, Unclear
from tidelock.storage.memory import MemoryStore

OURS = b"ours, with a nonce"


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock)
        self.store = ScriptedStore(self.memory)
        self.policy = ReadbackPolicy(clock=self.clock, ids=SeededIds(1))

    def write(self, mode: Create | Match) -> object:
        return put_and_verify(self.store, "key", OURS, mode, policy=self.policy)

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
def test_write_with_a_lost_reply_has_landed(bench: Bench, kind: str, reply: PutReply) -> None:
    mode = Create() if kind == "create" else bench.existing()
    bench.store.puts.append(landing(reply))
    outcome = bench.write(mode)
    found = bench.memory.get("key")
    assert found is not None
    assert outcome == Landed(found.version)
    assert bench.store.count("put") == 1


@pytest.mark.parametrize("kind", ["create", "match"])
def test_write_with_a_lost_request_is_resent(bench: Bench, kind: str) -> None:
    mode = Create() if kind == "create" else bench.existing()
    bench.store.puts.append(answer(Unclear("timed out")))
    assert isinstance(bench.write(mode), Landed)
    assert bench.body() == OURS
    assert bench.store.count("put") == 2


def test_create_won_by_another_has_not_landed(bench: Bench) -> None:
    bench.existing()
    assert isinstance(bench.write(Create()), NotLanded)
    assert bench.body() == b"old"


def test_refused_match_has_not_landed(bench: Bench) -> None:
    mode = bench.existing()
    bench.memory.put("key", b"theirs", Overwrite())
    assert isinstance(bench.write(mode), NotLanded)
    assert bench.body() == b"theirs"


def test_unclear_create_of_an_object_made_by_others_has_not_landed(bench: Bench) -> None:
    bench.store.puts.append(replaced_before(bench, Unclear("reset")))
    assert isinstance(bench.write(Create()), NotLanded)


def test_unclear_match_of_an_object_replaced_by_others_is_unknown(bench: Bench) -> None:
    mode = bench.existing()
    bench.store.puts.append(replaced_before(bench, Unclear("reset")))
    outcome = bench.write(mode)
    assert isinstance(outcome, Unknown)
    assert "reset" in outcome.cause


def test_unclear_write_that_cannot_be_read_back_is_unknown(bench: Bench) -> None:
    bench.store.puts.append(landing(Unclear("reset")))
    bench.store.gets.append(StoreUnreachable("no route"))
    outcome = bench.write(Create())
    assert isinstance(outcome, Unknown)
    assert "reset" in outcome.cause
    assert "no route" in outcome.cause


def test_retry_after_of_a_busy_store_is_honoured(bench: Bench) -> None:
    bench.store.puts.append(answer(Busy(7_000)))
    assert isinstance(bench.write(Create()), Landed)
    assert bench.clock.slept_ms[0] >= 7_000


def test_persistently_busy_store_has_written_nothing(bench: Bench) -> None:
    bench.store.puts.extend([answer(Busy(cause="429"))] * 6)
    outcome = bench.write(Create())
    assert isinstance(outcome, NotLanded)
    assert "429" in outcome.reason
    assert bench.body() is None


def test_persistently_unclear_store_leaves_the_outcome_unknown(bench: Bench) -> None:
    bench.store.puts.extend([answer(Unclear("503"))] * 6)
    assert bench.write(Create()) == Unknown("503")


def test_denied_write_raises_and_writes_nothing(bench: Bench) -> None:
    bench.store.puts.append(failing(PermissionDenied("no entry")))
    with pytest.raises(PermissionDenied):
        bench.write(Create())
    assert bench.body() is None
