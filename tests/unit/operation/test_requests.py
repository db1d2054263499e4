"""What one write of a table asks of its store, in order."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import tidelock as tl
from tests.unit.operation.model import made, rows
from tidelock.operation import view
from tidelock.store.memory import MemoryStore
from tidelock.txn import committing

MAY_CHANGE = ["get properties"]
BEGIN = [
    *MAY_CHANGE,
    "put heartbeat",
    "get entry",
    "head checkpoint",
    "put requested",
    "put inflight",
]
LOOK = [*MAY_CHANGE, "list timeline"]
COMMIT = [*LOOK, "put entry", "head checkpoint", "put completed"]
TIDY = ["head checkpoint", "delete marker", "delete heartbeat"]

_ABOUT = {
    r"\.hoodie/\.heartbeat/": "heartbeat",
    r"\.hoodie/\.tidelock/ledger/": "entry",
    r"\.hoodie/\.tidelock/checkpoint": "checkpoint",
    r"\.hoodie/\.tidelock/content/": "content",
    r"\.hoodie/\.temp/": "marker",
    r"\.hoodie/hoodie\.properties$": "properties",
    r"\.hoodie/timeline/$": "timeline",
    r"\.hoodie/timeline/.*requested": "requested",
    r"\.hoodie/timeline/.*inflight": "inflight",
    r"\.hoodie/timeline/\d+_\d+": "completed",
    r".*\.hoodie_partition_metadata": "partition",
    r".*\.parquet": "data",
}


def about(key: str) -> str:
    return next((name for pattern, name in _ABOUT.items() if re.match(pattern, key)), key)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is asked of tables in memory from now on: the verb, and what it is about.

    Locks of other tests may still renew themselves, elsewhere in memory.
    """
    said: list[str] = []

    def hear(verb: str, true: Callable[..., object]) -> None:
        def call(store: MemoryStore, key: str, *values: object, **options: object) -> object:
            if store.uri.startswith("memory://tables/"):
                said.append(f"{verb} {about(key)}")
            return true(store, key, *values, **options)

        monkeypatch.setattr(MemoryStore, verb, call)

    for verb in ("get", "put", "head", "delete", "list"):
        hear(verb, getattr(MemoryStore, verb))
    return said


def opened(table: tl.Table) -> tl.Table:
    """Return another process's handle on the table, which has written before."""
    other = tl.Table.open(table.uri)
    other.insert(rows(range(900, 910)))
    return other


def test_an_append_to_a_small_file_reads_it_once(asked: list[str]) -> None:
    table = made()
    table.insert(rows(range(5)))
    asked.clear()
    table.insert(rows(range(5, 10)))
    assert asked == [*BEGIN, "put marker", "get data", "put data", *COMMIT, *TIDY]


def test_rows_for_a_new_partition_make_it_known_and_later_ones_do_not_ask(
    asked: list[str],
) -> None:
    table = made(partition_by="region")
    table.bulk_insert([{"id": "a", "ts": 1, "region": "x", "v": 0.0}])
    made_known = ["head partition", "put partition"]
    assert [each for each in asked if each.endswith("partition")] == made_known
    asked.clear()
    table.bulk_insert([{"id": "b", "ts": 1, "region": "x", "v": 0.0}])
    assert asked == [*BEGIN, "put marker", "put data", *COMMIT, *TIDY]


def test_an_append_beside_others_reads_their_entries_and_no_file(asked: list[str]) -> None:
    table = made()
    table.insert(rows(range(5)))
    other = opened(table)
    table.insert(rows(range(5, 10)))
    other.insert(rows(range(910, 920)))
    asked.clear()
    table.insert(rows(range(10, 15)))
    theirs = [*MAY_CHANGE, "put heartbeat", "get entry", *BEGIN[2:]]
    written = ["put marker", "put data"]
    published = ["put entry", "head checkpoint", "head completed", "put completed"]
    assert asked == [*theirs, *written, *LOOK, "get entry", *published, *TIDY]


def test_an_upsert_fetches_a_small_file_once_to_look_and_once_to_merge(asked: list[str]) -> None:
    table = made()
    table.insert(rows(range(5)))
    asked.clear()
    table.upsert(rows(range(3), ts=2))
    looked = ["get entry", "head checkpoint", "get data"]
    assert asked == [*looked, *BEGIN, "put marker", "get data", "put data", *COMMIT, *TIDY]


def test_a_writer_that_only_adds_rows_does_not_keep_every_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view, "_UNREAD_MAX", 3)
    table = made()
    for number in range(10):
        table.bulk_insert(rows([number]))
        assert len(table.writer().view(fresh=False).unread) <= 3
    assert table.read().num_rows == 10


def test_a_clean_makes_no_writer_list_the_table_again(asked: list[str]) -> None:
    table = made(options={"hoodie.clean.commits.retained": 1, "hoodie.clean.automatic": "false"})
    for number in range(4):
        table.upsert(rows(range(3), ts=number))
    other = opened(table)
    assert table.clean().executed
    asked.clear()
    other.insert(rows(range(920, 930)))
    assert [each for each in asked if each.startswith("list")] == ["list timeline"]
    assert table.read().num_rows == 23


def test_a_large_commit_is_read_before_its_bytes_can_be_gone(
    monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    monkeypatch.setattr(committing, "INLINE_BYTES_MAX", 1)
    table = made()
    table.bulk_insert(rows(range(5)))
    table.bulk_insert(rows(range(5, 10)))
    known = table.writer().view(fresh=False)
    assert known.unread == []
    assert "get content" in asked
