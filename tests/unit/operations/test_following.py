"""A stream of changes: every write once, in completion order."""

from __future__ import annotations

from itertools import islice

import pytest

import tidelock as tl
from tests.unit.doubles import ManualClock
from tests.unit.operations.model import TYPES, create_table, ordered, row, rows
from tidelock.operations.read import snapshot_now


def followed(table: tl.Table, clock: ManualClock) -> tl.Table:
    return tl.Table(snapshot_now(table._store), clock=clock)


@pytest.mark.parametrize("kind", TYPES)
def test_each_write_is_returned_with_its_rows(kind: str) -> None:
    table = create_table(kind)
    first = table.upsert(rows(range(3)))
    second = table.upsert([row(1, 2), row(5)])
    third = table.delete(["k000"])
    changes = list(followed(table, ManualClock()).follow(idle_ms=0))
    assert [completion for completion, _ in changes] == [first.completion, second.completion]
    assert ordered(changes[0][1].to_pylist()) == rows(range(3))
    assert ordered(changes[1][1].to_pylist()) == [row(1, 2), row(5)]
    assert third.completion not in dict(changes)


def test_stream_resumes_and_waits_for_more() -> None:
    table = create_table()
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


def test_stream_ends_after_the_idle_timeout() -> None:
    table = create_table()
    clock = ManualClock()
    began_ms = clock.now().monotonic_ms
    assert list(followed(table, clock).follow(poll_ms=300, idle_ms=1_000)) == []
    assert 1_000 <= clock.now().monotonic_ms - began_ms < 1_400
