"""Writing to a table with broken files: an error that names the file, and nothing made worse."""

from __future__ import annotations

import pytest

import tidelock as tl
from tests.unit.operation.model import held, made, row, rows
from tidelock.base.errors import DataCorrupt, NotFound
from tidelock.store.contract import Overwrite


def replaced(table: tl.Table, key: str, body: bytes) -> bytes:
    """Put other bytes at a key; return those that were there."""
    found = table._store.get(key)
    assert found is not None
    table._store.put(key, body, Overwrite())
    return found.body


def completed(table: tl.Table) -> list[str]:
    return [i.file_name for i in tl.Table.open(table.uri).timeline if i.is_completed]


@pytest.mark.parametrize("keep", [0, 4, 100])
def test_a_truncated_base_file_is_named_and_the_table_stays_as_it_was(keep: int) -> None:
    table = made()
    table.upsert(rows(range(5)))
    before = completed(table)
    (piece,) = table.files()
    assert piece.base is not None
    whole = replaced(table, piece.base.key, b"PAR1" * (keep // 4))
    with pytest.raises(DataCorrupt, match=piece.base.name):
        table.upsert([row(1, 2)])
    assert completed(table) == before
    replaced(table, piece.base.key, whole)
    table.upsert([row(1, 2)])
    assert held(table)[1] == row(1, 2)


def test_a_base_file_that_is_gone_is_named() -> None:
    table = made()
    table.upsert(rows(range(5)))
    (piece,) = table.files()
    assert piece.base is not None
    table._store.delete(piece.base.key)
    with pytest.raises((NotFound, DataCorrupt), match=piece.base.name):
        table.upsert([row(1, 2)])


def test_a_torn_log_block_is_skipped_by_reads_and_by_merges() -> None:
    table = made("MERGE_ON_READ", index="BUCKET")
    table.upsert([row(1)])
    table.upsert([row(1, 2)])
    table.upsert([row(1, 3)])
    logs = [log for piece in table.files() for log in piece.logs]
    last = logs[-1]
    found = table._store.get(last.key)
    assert found is not None
    replaced(table, last.key, found.body[:-9])
    table.refresh()
    assert held(table) == [row(1, 2)]
    table.upsert([row(1, 4)])
    assert held(table) == [row(1, 4)]


def test_a_completed_instant_of_zero_bytes_stops_writers_that_must_list_the_table() -> None:
    table = made()
    table.upsert([row(1)])
    last = table.timeline[-1]
    key = f".hoodie/timeline/{last.file_name}"
    whole = replaced(table, key, b"")
    with pytest.raises(DataCorrupt, match="completed instant of zero bytes"):
        tl.Table.open(table.uri)
    replaced(table, key, whole)
    again = tl.Table.open(table.uri)
    again.upsert([row(2)])
    assert held(again) == [row(1), row(2)]
