"""Reader leases: a clean keeps the files of a lease until it expires."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.doubles import ManualClock
from tests.unit.services.file_slices import at, group
from tidelock.core.errors import NotFound
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.services.clean import CleanPolicy, RetainedFiles, Retention, files_to_delete
from tidelock.services.read_leases import FOLDER, leased_since, leases
from tidelock.storage.contract import Create
from tidelock.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.clean.commits.retained": "1",
}


def rows(v: str) -> pa.Table:
    return pa.table([[1], [v]], schema=SCHEMA)


@pytest.fixture
def table_uri(tmp_path: Path) -> str:
    with Table.create(str(tmp_path / "t"), SCHEMA, key="id", options=OPTIONS) as table:
        table.upsert(rows("first"))
    return str(tmp_path / "t")


def rewrite_and_clean(table_uri: str) -> None:
    with Table.open(table_uri, options=OPTIONS) as other:
        for number in range(3):
            other.upsert(rows(f"v{number}"))
        other.clean()


@pytest.mark.parametrize("policy", ["KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS"])
def test_query_with_a_lease_continues_after_a_clean(
    table_uri: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIONS, "hoodie.clean.policy", policy)
    monkeypatch.setitem(OPTIONS, "hoodie.clean.fileversions.retained", "1")
    with Table.open(table_uri) as reader:
        with reader.lease():
            rewrite_and_clean(table_uri)
            assert reader.read().to_pylist() == [{"id": 1, "v": "first"}]
        rewrite_and_clean(table_uri)
        with pytest.raises(NotFound):
            reader.read()


def test_open_table_has_a_lease_if_configured(table_uri: str) -> None:
    threads = set(threading.enumerate())
    with Table.open(table_uri, options={"tidelock.read.lease.ms": "600000"}) as reader:
        assert reader.read().num_rows == 1
        assert len(list(leases(reader._store))) == 1
        rewrite_and_clean(table_uri)
        assert reader.read().to_pylist() == [{"id": 1, "v": "first"}]
        before = next(leases(reader._store)).since
        reader.refresh()
        assert reader.read().to_pylist() == [{"id": 1, "v": "v2"}]
        (held,) = leases(reader._store)
        assert held.since > before
    with Table.open(table_uri) as again:
        assert list(leases(again._store)) == []
    started = set(threading.enumerate()) - threads
    assert not any("read-lease" in thread.name for thread in started)


def test_there_is_no_lease_by_default(table_uri: str) -> None:
    with Table.open(table_uri) as reader:
        reader.read()
        assert list(leases(reader._store)) == []


def test_lease_covers_the_oldest_pending_write(table_uri: str) -> None:
    """It may later hide slices that the reader still needs, although it was requested earlier."""
    with Table.open(table_uri, options=OPTIONS) as writer:
        pending = writer.writer().transactions
        state = pending.ledger.refresh()
        with pending.begin(Action.COMMIT, OperationType.UPSERT, base=state) as begun:
            with Table.open(table_uri, options=OPTIONS) as other:
                other.upsert(rows("later"))
            with Table.open(table_uri) as reader, reader.lease() as lease:
                assert lease.since == begun.instant


def test_expired_leases_are_deleted_and_unknown_files_kept(table_uri: str) -> None:
    clock = ManualClock()
    with Table.open(table_uri) as table:
        store = table._store
        now = clock.now().wall_epoch_ms
        for name, since, until in (("a", "5", now + 10), ("b", "3", now + 20), ("c", "1", now - 1)):
            body = f'{{"since": "{since}", "until_epoch_ms": {until}}}'.encode()
            store.put(f"{FOLDER}/{name}.json", body, Create())
        store.put(f"{FOLDER}/strange", b"[", Create())
        assert leased_since(store, clock) == "3"
        clock.advance(15)
        assert leased_since(store, clock) == "3"
        clock.advance(10)
        assert leased_since(store, clock) is None
        assert [meta.key for meta in store.list(f"{FOLDER}/")] == [f"{FOLDER}/strange"]


def test_groups_replaced_before_the_lease_are_cleaned() -> None:
    versions = Retention(CleanPolicy.VERSIONS, versions=1)
    one = group("a", 1, 5, 9)
    found = files_to_delete([one], versions, RetainedFiles(leased_since=at(6)), None)
    assert [file.instant for file in found["p"]] == [at(1)]
    gone = RetainedFiles(replaced={("p", "a"): at(7)}, leased_since=at(6))
    assert [f.instant for f in files_to_delete([one], versions, gone, None)["p"]] == [at(1)]
    gone = RetainedFiles(replaced={("p", "a"): at(5)}, leased_since=at(6))
    assert len(files_to_delete([one], versions, gone, None)["p"]) == 3
