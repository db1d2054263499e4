"""A stream of changes: every write once, in the order in which they completed."""

from __future__ import annotations

from itertools import islice

import pytest

import tidelock as tl
from tests.unit.doubles import ManualClock
from tests.unit.operation.model import TYPES, made, ordered, row, rows
from tidelock.operation.reads import snapshot_now


def followed(table: tl.Table, clock: ManualClock) -> tl.Table:
    return tl.Table(snapshot_now(table._store), clock=clock)


@pytest.mark.parametrize("kind", TYPES)
def test_each_write_comes_with_its_rows(kind: str) -> None:
    table = made(kind)
    first = table.upsert(rows(range(3)))
    second = table.upsert([row(1, 2), row(5)])
    third = table.delete(["k000"])
    told = list(followed(table, ManualClock()).follow(idle_ms=0))
    assert [completion for completion, _ in told] == [first.completion, second.completion]
    assert ordered(told[0][1].to_pylist()) == rows(range(3))
    assert ordered(told[1][1].to_pylist()) == [row(1, 2), row(5)]
    assert third.completion not in dict(told)


def test_it_goes_on_where_it_was_left_and_waits_for_more() -> None:
    table = made()
    first = table.upsert([row(1)])
    clock = ManualClock()
    stream = followed(table, clock).follow(since=first.completion, poll_ms=100)
    second = table.upsert([row(2)])
    assert next(stream) == (second.completion, table.read(filter=("id", "=", "k002")))
    third = table.upsert([row(3)])
    fourth = table.upsert([row(4)])
    assert [completion for completion, _ in islice(stream, 2)] == [
        third.completion,
        fourth.completion,
    ]
    stream.close()


def test_it_ends_when_nothing_came_for_the_given_time() -> None:
    table = made()
    clock = ManualClock()
    began_ms = clock.now().monotonic_ms
    assert list(followed(table, clock).follow(poll_ms=300, idle_ms=1_000)) == []
    assert 1_000 <= clock.now().monotonic_ms - began_ms < 1_400
