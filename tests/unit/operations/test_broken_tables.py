"""Writes to a table with corrupt files raise an error that names the file, and do no further
damage."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from tests.unit.operations.model import TYPES, create_table, row, rows, stored_rows
from tidelock.core.errors import (
    DataCorrupt,
    NotFound,
    OutcomeUnknown,
    StoreUnreachable,
    TidelockError,
)
from tidelock.hudi.file_groups import BaseFile, FileSlice, LogFile
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.storage.contract import Overwrite


def replaced(table: tl.Table, key: str, body: bytes) -> bytes:
    """Replace the bytes of an object; return the previous ones."""
    found = table._store.get(key)
    assert found is not None
    table._store.put(key, body, Overwrite())
    return found.body


def completed(table: tl.Table) -> list[str]:
    return [i.file_name for i in tl.Table.open(table.uri).timeline if i.is_completed]


@pytest.mark.parametrize("keep", [0, 4, 100])
def test_truncated_base_file_is_named_and_the_table_is_unchanged(keep: int) -> None:
    table = create_table()
    table.upsert(rows(range(5)))
    before = completed(table)
    (piece,) = table.files()
    assert piece.base is not None
    original = replaced(table, piece.base.key, b"PAR1" * (keep // 4))
    with pytest.raises(DataCorrupt, match=piece.base.name):
        table.upsert([row(1, 2)])
    assert completed(table) == before
    replaced(table, piece.base.key, original)
    table.upsert([row(1, 2)])
    assert stored_rows(table)[1] == row(1, 2)


def test_missing_base_file_is_named() -> None:
    table = create_table()
    table.upsert(rows(range(5)))
    (piece,) = table.files()
    assert piece.base is not None
    table._store.delete(piece.base.key)
    with pytest.raises((NotFound, DataCorrupt), match=piece.base.name):
        table.upsert([row(1, 2)])


def test_empty_completed_instant_stops_writers_that_must_list_the_table() -> None:
    table = create_table()
    table.upsert([row(1)])
    last = table.timeline[-1]
    key = f".hoodie/timeline/{last.file_name}"
    original = replaced(table, key, b"")
    with pytest.raises(DataCorrupt, match="completed instant is empty"):
        tl.Table.open(table.uri)
    replaced(table, key, original)
    again = tl.Table.open(table.uri)
    again.upsert([row(2)])
    assert stored_rows(again) == [row(1), row(2)]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("index", ["SIMPLE", "BUCKET"])
def test_missing_committed_file_is_named_by_reads_and_writes(kind: str, index: str) -> None:
    table = create_table(kind, index=index)
    table.upsert([row(1), row(2)])
    table.upsert([row(1, 2)])
    table.upsert([row(1, 3)])
    before = completed(table)
    last = [i.requested for i in table.timeline if i.is_completed][-1]
    (piece,) = [p for p in table.files() if any(file.instant == last for file in files_in(p))]
    for file in files_in(piece):
        body = table._store.get(file.key)
        assert body is not None
        table._store.delete(file.key)
        for opened in (table, tl.Table.open(table.uri)):
            with pytest.raises(DataCorrupt, match=f"{re.escape(file.name)} is missing"):
                opened.read()
        with pytest.raises((DataCorrupt, NotFound), match=re.escape(file.name)):
            tl.Table.open(table.uri).upsert([row(1, 4)])
        assert completed(table) == before
        table._store.put(file.key, body.body, Overwrite())
    assert stored_rows(tl.Table.open(table.uri))[0] == row(1, 3)


def files_in(piece: FileSlice) -> list[BaseFile | LogFile]:
    return [*([piece.base] if piece.base else []), *piece.logs]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("cut", [1, 9, 100])
def test_truncated_committed_file_is_named_by_reads_and_writes(kind: str, cut: int) -> None:
    table = create_table(kind, index="BUCKET")
    table.upsert([row(1)])
    table.upsert([row(1, 2)])
    table.upsert([row(1, 3)])
    (piece,) = table.files()
    for file in files_in(piece):
        found = table._store.get(file.key)
        assert found is not None
        replaced(table, file.key, found.body[:-cut])
        with pytest.raises(DataCorrupt, match=re.escape(file.name)):
            tl.Table.open(table.uri).read()
        with pytest.raises(DataCorrupt, match=re.escape(file.name)):
            tl.Table.open(table.uri).upsert([row(1, 4)])
        replaced(table, file.key, found.body)


def test_committed_log_file_with_other_bytes_of_the_same_size_is_named() -> None:
    table = create_table("MERGE_ON_READ", index="BUCKET")
    table.upsert([row(1)])
    table.upsert([row(1, 2)])
    (piece,) = table.files()
    last = piece.logs[-1]
    found = table._store.get(last.key)
    assert found is not None
    replaced(table, last.key, found.body[:-8] + b"\x00" * 8)
    with pytest.raises(DataCorrupt, match=re.escape(last.name)):
        tl.Table.open(table.uri).read()


def test_truncated_log_file_in_no_commit_is_ignored() -> None:
    table = create_table("MERGE_ON_READ", index="BUCKET")
    table.upsert([row(1)])
    table.upsert([row(1, 2)])
    (piece,) = table.files()
    last = piece.logs[-1]
    found = table._store.get(last.key)
    assert found is not None
    # A retried task leaves a file with another write token.
    other = last.name.replace(last.write_token, "7-7-7")
    table._store.put(other, found.body[:-9], Overwrite())
    assert stored_rows(tl.Table.open(table.uri)) == [row(1, 2)]


@pytest.mark.parametrize("kind", TYPES)
def test_lost_completed_instant_is_named(kind: str) -> None:
    table = create_table(kind)
    for number in range(40):
        table.upsert([row(number)])
    done = [i for i in table.timeline if i.is_completed]
    lost = done[5]
    table._store.delete(f".hoodie/timeline/{lost.file_name}")
    with pytest.raises(DataCorrupt, match=f"the completed instant {lost.requested} is missing"):
        tl.Table.open(table.uri)
    table.refresh()
    with pytest.raises(DataCorrupt, match=lost.requested):
        table.read()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("writes", [5, 40])
def test_completed_instant_lost_since_the_last_checkpoint_is_named(writes: int, kind: str) -> None:
    table = create_table(kind)
    for number in range(writes):
        table.upsert([row(number)])
    open_before = tl.Table.open(table.uri)
    lost = [i for i in table.timeline if i.is_completed][-3]
    table._store.delete(f".hoodie/timeline/{lost.file_name}")
    with pytest.raises(DataCorrupt, match=f"the completed instant {lost.requested} is missing"):
        tl.Table.open(table.uri)
    open_before.refresh()
    with pytest.raises(DataCorrupt, match=lost.requested):
        open_before.read()
    with pytest.raises(DataCorrupt, match=lost.requested):
        next(table.follow(idle_ms=1))


def test_lost_executed_plan_is_named() -> None:
    table = create_table("MERGE_ON_READ", index="BUCKET")
    table.upsert([row(1)])
    table.upsert([row(1, 2)])
    table.compact()
    (lost,) = [i for i in table.timeline if i.is_completed and i.action is Action.COMMIT]
    table.upsert([row(1, 3)])
    table._store.delete(f".hoodie/timeline/{lost.file_name}")
    with pytest.raises(DataCorrupt, match=f"the completed instant {lost.requested} is missing"):
        tl.Table.open(table.uri)


def test_unpublished_last_commit_is_published_by_a_write() -> None:
    table = create_table()
    for number in range(4):
        table.upsert([row(number)])
    last = table.timeline[-1]
    table._store.delete(f".hoodie/timeline/{last.file_name}")
    other = tl.Table.open(table.uri)
    assert stored_rows(other) == [row(number) for number in range(3)], (
        "what readers see is a prefix"
    )
    other.upsert([row(4)])
    assert stored_rows(other) == [row(number) for number in range(5)]


def test_concurrent_pending_write_is_not_reported_lost() -> None:
    table = create_table()
    table.upsert([row(0)])
    writer = tl.Table.open(table.uri).writer()
    with writer.transactions.begin(Action.COMMIT, OperationType.UPSERT) as begun:
        table.upsert([row(1)])
        assert begun.instant < table.timeline[-1].requested
        table.refresh()
        for reader in (table, tl.Table.open(table.uri)):
            assert stored_rows(reader) == [row(0), row(1)]


@pytest.mark.parametrize(
    ("folder", "error"),
    [(".hoodie/.tidelock/ledger", OutcomeUnknown), ("a", StoreUnreachable)],
)
def test_write_whose_files_may_not_be_durable_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, error: type[TidelockError]
) -> None:
    schema = pa.schema([("id", pa.string()), ("p", pa.string())])
    table = tl.Table.create(str(tmp_path / "t"), schema, key="id", partition_by="p")
    table.upsert([{"id": "1", "p": "a"}])
    real = os.fsync

    def sync(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink() == tmp_path / "t" / folder:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        with pytest.raises(error, match=re.escape(f"t/{folder}/")):
            table.upsert([{"id": "2", "p": "a"}])
    if error is StoreUnreachable:
        assert tl.Table.open(table.uri).read().num_rows == 1
