"""The store requests of one write, in order."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import tidelock as tl
from tests.unit.operations.model import create_table, rows
from tidelock.core.system import SystemClock
from tidelock.hudi.timeline.instant import format_time
from tidelock.operations import file_view
from tidelock.storage.memory import MemoryStore
from tidelock.txn import commit

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
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the requests on in-memory tables from now on: the verb and the object.

    Locks of other tests may still renew themselves elsewhere in memory.
    """
    recorded: list[str] = []

    def record(verb: str, true: Callable[..., object]) -> None:
        def call(store: MemoryStore, key: str, *values: object, **options: object) -> object:
            if store.uri.startswith("memory://tables/"):
                recorded.append(f"{verb} {about(key)}")
            return true(store, key, *values, **options)

        monkeypatch.setattr(MemoryStore, verb, call)

    for verb in ("get", "put", "head", "delete", "list"):
        record(verb, getattr(MemoryStore, verb))
    return recorded


def opened(table: tl.Table) -> tl.Table:
    """Return another process's handle on the table, which has written before."""
    other = tl.Table.open(table.uri)
    other.insert(rows(range(900, 910)))
    return other


def wait_until_later_than_the_ledger(table: tl.Table) -> None:
    """Wait until the clock has passed the last entry: a writer with that time would try again."""
    last = table.writer().transactions.ledger.refresh().time
    clock = SystemClock()
    while format_time(clock.now().wall_epoch_ms) <= last:
        clock.sleep_ms(1)


def test_append_to_a_small_file_reads_it_once(requests: list[str]) -> None:
    table = create_table()
    table.insert(rows(range(5)))
    requests.clear()
    table.insert(rows(range(5, 10)))
    assert requests == [*BEGIN, "put marker", "get data", "put data", *COMMIT, *TIDY]


def test_first_write_to_a_partition_creates_it_and_later_ones_send_no_request(
    requests: list[str],
) -> None:
    table = create_table(partition_by="region")
    table.bulk_insert([{"id": "a", "ts": 1, "region": "x", "v": 0.0}])
    made_known = ["head partition", "put partition"]
    assert [each for each in requests if each.endswith("partition")] == made_known
    requests.clear()
    table.bulk_insert([{"id": "b", "ts": 1, "region": "x", "v": 0.0}])
    assert requests == [*BEGIN, "put marker", "put data", *COMMIT, *TIDY]


def test_concurrent_append_reads_the_new_entries_and_no_file(requests: list[str]) -> None:
    table = create_table()
    table.insert(rows(range(5)))
    other = opened(table)
    table.insert(rows(range(5, 10)))
    other.insert(rows(range(910, 920)))
    wait_until_later_than_the_ledger(other)
    requests.clear()
    table.insert(rows(range(10, 15)))
    theirs = [*MAY_CHANGE, "put heartbeat", "get entry", *BEGIN[2:]]
    written = ["put marker", "put data"]
    published = ["put entry", "head checkpoint", "head completed", "put completed"]
    assert requests == [*theirs, *written, *LOOK, "get entry", *published, *TIDY]


def test_upsert_fetches_a_small_file_once_for_lookup_and_once_for_merging(
    requests: list[str],
) -> None:
    table = create_table()
    table.insert(rows(range(5)))
    requests.clear()
    table.upsert(rows(range(3), ts=2))
    looked = ["get entry", "head checkpoint", "get data"]
    assert requests == [*looked, *BEGIN, "put marker", "get data", "put data", *COMMIT, *TIDY]


def test_append_only_writer_does_not_retain_every_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_view, "_UNREAD_MAX", 3)
    table = create_table()
    for number in range(10):
        table.bulk_insert(rows([number]))
        assert len(table.writer().view(fresh=False).unread) <= 3
    assert table.read().num_rows == 10


def test_clean_causes_no_relisting_of_the_table(requests: list[str]) -> None:
    table = create_table(
        options={"hoodie.clean.commits.retained": 1, "hoodie.clean.automatic": "false"}
    )
    for number in range(4):
        table.upsert(rows(range(3), ts=number))
    other = opened(table)
    assert table.clean().executed
    requests.clear()
    other.insert(rows(range(920, 930)))
    assert [each for each in requests if each.startswith("list")] == ["list timeline"]
    assert table.read().num_rows == 23


def test_large_commit_is_read_before_its_bytes_can_be_deleted(
    monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    monkeypatch.setattr(commit, "INLINE_BYTES_MAX", 1)
    table = create_table()
    table.bulk_insert(rows(range(5)))
    table.bulk_insert(rows(range(5, 10)))
    known = table.writer().view(fresh=False)
    assert known.unread == []
    assert "get content" in requests
