"""Priority tickets: conflicted writers go first, for a bounded time; they are advisory."""

from __future__ import annotations

from tests.unit.txn.bench import Bench, draft, groups
from tidelock.txn.conflicts import Committed
from tidelock.txn.queueing import WriteSet, tickets_ahead

OCC = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "tidelock.write.turn.wait.ms": "1000",
}
DEAD_MS = 60_000 * 10 + 1


def test_writers_do_not_wait_without_a_ticket() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    txns.ledger.refresh()
    assert txns.wait_for_priority(groups("a"))
    assert bench.clock.slept_ms == []


def test_writer_of_the_same_group_waits_for_the_ticket_holder() -> None:
    bench = Bench(OCC)
    asking, other = bench.writer(owner="asking"), bench.writer(owner="other")
    transaction = bench.begin(asking)
    transaction.request_priority(groups("a"))
    other.ledger.refresh()
    assert other.wait_for_priority(groups("b")), "another file group is free"
    assert asking.wait_for_priority(groups("a")), "one's own turn is no hindrance"
    bench.clock.when_sleeping = lambda: None
    done: list[object] = []

    def commit_while_the_other_waits() -> None:
        bench.clock.when_sleeping = lambda: None
        done.append(transaction.commit(draft(touched=("a",))))

    bench.clock.when_sleeping = commit_while_the_other_waits
    assert other.wait_for_priority(groups("a"))
    assert isinstance(done[0], Committed)


def test_waiting_is_bounded() -> None:
    bench = Bench(OCC)
    bench.begin(bench.writer()).request_priority(groups("a"))
    other = bench.writer()
    other.ledger.refresh()
    assert not other.wait_for_priority(groups("a"))
    assert sum(bench.clock.slept_ms) < 1_001


def test_ticket_of_a_dead_writer_is_ignored() -> None:
    bench = Bench(OCC)
    bench.begin(bench.writer()).request_priority(groups("a"))
    bench.clock.advance(DEAD_MS)
    other = bench.writer()
    other.ledger.refresh()
    assert other.wait_for_priority(groups("a"))


def test_tickets_are_served_in_request_order() -> None:
    bench = Bench(OCC)
    first, second = bench.writer(owner="first"), bench.writer(owner="second")
    bench.begin(first).request_priority(groups("a"))
    bench.begin(second).request_priority(groups("a"))
    state = bench.writer().ledger.refresh()
    assert tickets_ahead(state, WriteSet("first", groups("a"))) == ()
    assert [ticket.owner for ticket in tickets_ahead(state, WriteSet("second", groups("a")))] == [
        "first"
    ]
    waiting = tickets_ahead(state, WriteSet("third", groups("a")))
    assert [ticket.owner for ticket in waiting] == ["first", "second"]


def test_inserts_into_a_partition_use_tickets_too() -> None:
    bench = Bench(OCC)
    bench.begin(bench.writer()).request_priority(groups(), frozenset({"p"}))
    other = bench.writer()
    other.ledger.refresh()
    assert not other.wait_for_priority(groups(), frozenset({"p"}))
    assert other.wait_for_priority(groups(), frozenset({"q"}))
