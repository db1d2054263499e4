"""Leases of readers: a clean keeps what they ask for while they are alive, and no longer."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.doubles import ManualClock
from tests.unit.tableservice.pieces import at, group
from tidelock.base.errors import NotFound
from tidelock.store.contract import Create
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import OperationType
from tidelock.tableservice.clean.plan import Keep, Kept, Policy, files_to_delete
from tidelock.tableservice.leases import FOLDER, leased_since, leases
from tidelock.tableservice.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.clean.commits.retained": "1",
}


def rows(v: str) -> pa.Table:
    return pa.table([[1], [v]], schema=SCHEMA)


@pytest.fixture
def place(tmp_path: Path) -> str:
    with Table.create(str(tmp_path / "t"), SCHEMA, key="id", options=OPTIONS) as table:
        table.upsert(rows("first"))
    return str(tmp_path / "t")


def rewrite_and_clean(place: str) -> None:
    with Table.open(place, options=OPTIONS) as other:
        for number in range(3):
            other.upsert(rows(f"v{number}"))
        other.clean()


@pytest.mark.parametrize("policy", ["KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS"])
def test_a_query_with_a_lease_reads_on_after_a_clean(
    place: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIONS, "hoodie.clean.policy", policy)
    monkeypatch.setitem(OPTIONS, "hoodie.clean.fileversions.retained", "1")
    with Table.open(place) as reader:
        with reader.lease():
            rewrite_and_clean(place)
            assert reader.read().to_pylist() == [{"id": 1, "v": "first"}]
        rewrite_and_clean(place)
        with pytest.raises(NotFound):
            reader.read()


def test_an_open_table_has_a_lease_where_the_settings_ask_for_it(place: str) -> None:
    with Table.open(place, options={"tidelock.read.lease.ms": "60000"}) as reader:
        assert reader.read().num_rows == 1
        assert len(list(leases(reader._store))) == 1
        rewrite_and_clean(place)
        assert reader.read().to_pylist() == [{"id": 1, "v": "first"}]
        before = next(leases(reader._store)).since
        reader.refresh()
        assert reader.read().to_pylist() == [{"id": 1, "v": "v2"}]
        (held,) = leases(reader._store)
        assert held.since > before
    with Table.open(place) as again:
        assert list(leases(again._store)) == []
    assert not any("read-lease" in thread.name for thread in threading.enumerate())


def test_without_the_setting_there_is_none(place: str) -> None:
    with Table.open(place) as reader:
        reader.read()
        assert list(leases(reader._store)) == []


def test_a_lease_is_for_the_oldest_write_that_was_pending(place: str) -> None:
    """It may hide slices later that the reader still needs, though it was requested earlier."""
    with Table.open(place, options=OPTIONS) as writer:
        pending = writer.writer().transactions
        fold = pending.ledger.refresh()
        with pending.begin(Action.COMMIT, OperationType.UPSERT, base=fold) as begun:
            with Table.open(place, options=OPTIONS) as other:
                other.upsert(rows("later"))
            with Table.open(place) as reader, reader.lease() as lease:
                assert lease.since == begun.instant


def test_leases_that_ran_out_are_removed_and_strange_files_left(place: str) -> None:
    clock = ManualClock()
    with Table.open(place) as table:
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


def test_groups_that_were_replaced_before_the_lease_are_cleaned() -> None:
    versions = Keep(Policy.VERSIONS, versions=1)
    one = group("a", 1, 5, 9)
    found = files_to_delete([one], versions, Kept(leased_since=at(6)), None)
    assert [file.instant for file in found["p"]] == [at(1)]
    gone = Kept(replaced={("p", "a"): at(7)}, leased_since=at(6))
    assert [f.instant for f in files_to_delete([one], versions, gone, None)["p"]] == [at(1)]
    gone = Kept(replaced={("p", "a"): at(5)}, leased_since=at(6))
    assert len(files_to_delete([one], versions, gone, None)["p"]) == 3
