"""Turns: overtaken writers go first, for a while, and nothing depends on it."""

from __future__ import annotations

from tests.unit.txn.bench import Bench, draft, groups
from tidelock.txn.draft import Committed
from tidelock.txn.turns import Wanted, before_me

OCC = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "tidelock.write.turn.wait.ms": "1000",
}
DEAD_MS = 60_000 * 10 + 1


def test_nobody_waits_where_nobody_asked() -> None:
    bench = Bench(OCC)
    home = bench.writer()
    home.ledger.refresh()
    assert home.wait_turn(groups("a"))
    assert bench.clock.slept_ms == []


def test_a_writer_of_the_same_group_waits_for_the_one_who_asked() -> None:
    bench = Bench(OCC)
    asking, other = bench.writer(owner="asking"), bench.writer(owner="other")
    transaction = bench.begin(asking)
    transaction.ask_turn(groups("a"))
    other.ledger.refresh()
    assert other.wait_turn(groups("b")), "another file group is free"
    assert asking.wait_turn(groups("a")), "one's own turn is no hindrance"
    bench.clock.when_sleeping = lambda: None
    done: list[object] = []

    def commit_while_the_other_waits() -> None:
        bench.clock.when_sleeping = lambda: None
        done.append(transaction.commit(draft(touched=("a",))))

    bench.clock.when_sleeping = commit_while_the_other_waits
    assert other.wait_turn(groups("a"))
    assert isinstance(done[0], Committed)


def test_waiting_is_bounded() -> None:
    bench = Bench(OCC)
    bench.begin(bench.writer()).ask_turn(groups("a"))
    other = bench.writer()
    other.ledger.refresh()
    assert not other.wait_turn(groups("a"))
    assert sum(bench.clock.slept_ms) < 1_001


def test_a_dead_writer_has_no_turn() -> None:
    bench = Bench(OCC)
    bench.begin(bench.writer()).ask_turn(groups("a"))
    bench.clock.advance(DEAD_MS)
    other = bench.writer()
    other.ledger.refresh()
    assert other.wait_turn(groups("a"))


def test_turns_come_in_the_order_they_were_asked_for() -> None:
    bench = Bench(OCC)
    first, second = bench.writer(owner="first"), bench.writer(owner="second")
    bench.begin(first).ask_turn(groups("a"))
    bench.begin(second).ask_turn(groups("a"))
    fold = bench.writer().ledger.refresh()
    assert before_me(fold, Wanted("first", groups("a"))) == ()
    assert [turn.owner for turn in before_me(fold, Wanted("second", groups("a")))] == ["first"]
    waiting = before_me(fold, Wanted("third", groups("a")))
    assert [turn.owner for turn in waiting] == ["first", "second"]


def test_inserts_into_a_partition_take_turns_too() -> None:
    bench = Bench(OCC)
    bench.begin(bench.writer()).ask_turn(groups(), frozenset({"p"}))
    other = bench.writer()
    other.ledger.refresh()
    assert not other.wait_turn(groups(), frozenset({"p"}))
    assert other.wait_turn(groups(), frozenset({"q"}))
