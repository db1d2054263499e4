"""ledger show, verify and conflicts, and writers, on a table in a folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ops.program import Ended, Program
from tests.unit.txn.bench import draft
from tidelock.store.contract import Create
from tidelock.store.local import LocalStore
from tidelock.store.readback import Patience
from tidelock.table.properties import new_properties
from tidelock.table.properties_file import create_properties
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import OperationType
from tidelock.txn.checkpoint import CHECKPOINT_KEY, Checkpoint, encode
from tidelock.txn.draft import Overtaken
from tidelock.txn.entry import entry_key
from tidelock.txn.fold import Fold
from tidelock.txn.grown import Grown
from tidelock.txn.transactions import Transactions
from tidelock.txn.writers import entries


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a table with a commit, an overtaken write, and one that is running."""
    store = LocalStore(tmp_path, fsync=False)
    create_properties(store, new_properties("t", record_keys=["id"]), patience=Patience())
    with Transactions(store, owner="one") as one, Transactions(store, owner="two") as two:
        first, second, third = (
            home.begin(Action.COMMIT, OperationType.UPSERT, markers=False)
            for home in (one, two, two)
        )
        first.commit(draft(touched=("a",)))
        result = second.commit(draft(touched=("a",)))
        assert isinstance(result, Overtaken)
        second.rollback(overtaken=result)
        assert third.instant
        last = one.begin(Action.COMMIT, OperationType.UPSERT, markers=False)
        last.commit(draft(touched=("b",)))
    return tmp_path


def said(ended: Ended) -> dict[str, list[dict[str, object]]]:
    """Return what a command told a program."""
    assert ended.code == 0, ended.err
    found: dict[str, list[dict[str, object]]] = json.loads(ended.out)
    return found


def test_the_ledger_is_shown_entry_by_entry(tidelock: Program, folder: Path) -> None:
    shown = said(tidelock("ledger", "show", str(folder), "--json"))["entries"]
    assert [entry["kind"] for entry in shown] == ["commit", "rollback", "commit"]
    text = tidelock("ledger", "show", str(folder)).out
    assert "upsert, 1 file group" in text
    later = said(tidelock("ledger", "show", str(folder), "--after", "1", "--json"))["entries"]
    assert [entry["position"] for entry in later] == [2, 3]
    last = said(tidelock("ledger", "show", str(folder), "--limit", "1", "--json"))["entries"]
    assert [entry["position"] for entry in last] == [3]


def test_a_sound_ledger_is_told_from_a_broken_one(tidelock: Program, folder: Path) -> None:
    assert said(tidelock("ledger", "verify", str(folder), "--json"))["sound"]
    LocalStore(folder).delete(entry_key(2))
    ended = tidelock("ledger", "verify", str(folder))
    assert ended.code == 1
    assert "it is missing, but 3 is there" in ended.out


def test_a_commit_that_readers_miss_is_a_problem(tidelock: Program, folder: Path) -> None:
    LocalStore(folder).delete(f".hoodie/timeline/{_completed(folder)}")
    ended = tidelock("ledger", "verify", str(folder), "--json")
    assert ended.code == 1
    (found,) = json.loads(ended.out)["findings"]
    assert "its commit is not on the timeline" in found["what"]


def test_other_bytes_than_were_decided_are_a_problem(tidelock: Program, folder: Path) -> None:
    (folder / ".hoodie/timeline" / _completed(folder)).write_bytes(b"other")
    ended = tidelock("ledger", "verify", str(folder))
    assert ended.code == 1
    assert "its bytes are not those of ledger entry 1" in ended.out


def test_a_checkpoint_that_the_entries_deny_is_a_problem(tidelock: Program, folder: Path) -> None:
    store = LocalStore(folder)
    fold = Fold()
    for entry in entries(store):
        fold = fold.after(entry)
    store.put(CHECKPOINT_KEY, encode(Checkpoint(fold, "n")), Create())
    assert said(tidelock("ledger", "verify", str(folder), "--json"))["sound"]
    store.delete(CHECKPOINT_KEY)
    wrong = replace(fold, void=Grown())
    store.put(CHECKPOINT_KEY, encode(Checkpoint(wrong, "n")), Create())
    ended = tidelock("ledger", "verify", str(folder))
    assert ended.code == 1
    assert "it is not what the entries up to 3 add up to" in ended.out


def test_who_was_overtaken_is_shown(tidelock: Program, folder: Path) -> None:
    (met,) = said(tidelock("ledger", "conflicts", str(folder), "--json"))["conflicts"]
    assert met["groups"] == ["day=1/a"]
    assert met["overtaken_by"]
    assert met["overtaken_by_owners"] == ["one"]
    assert met["committed_as"] is None
    assert "day=1/a" in tidelock("ledger", "conflicts", str(folder)).out


def test_an_overtaken_write_that_was_rebased_is_shown_with_its_commit(
    tidelock: Program, folder: Path
) -> None:
    with Transactions(LocalStore(folder), owner="two") as two:
        again = two.begin(Action.COMMIT, OperationType.UPSERT, markers=False, rebased=1)
        again.commit(draft(touched=("a",)))
    met = said(tidelock("ledger", "conflicts", str(folder), "--json"))["conflicts"][0]
    assert met["committed_as"] == again.instant
    assert f"committed as {again.instant}" in tidelock("ledger", "conflicts", str(folder)).out


def test_who_is_writing_is_shown(tidelock: Program, folder: Path) -> None:
    (writer,) = said(tidelock("writers", str(folder), "--json"))["writers"]
    assert (writer["owner"], writer["operation"], writer["alive"]) == ("two", "UPSERT", True)
    assert "1 of them alive" in tidelock("writers", str(folder)).out


def _completed(folder: Path) -> str:
    names = [path.name for path in (folder / ".hoodie/timeline").iterdir()]
    return min(name for name in names if "_" in name)
