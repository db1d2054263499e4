"""`ledger show`, `ledger verify`, `ledger conflicts` and `writers`, on a table in a folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.program import Ended, Program
from tests.unit.txn.bench import draft
from tidelock.core.system import SystemClock, SystemIds
from tidelock.hudi.properties import create_properties, new_properties
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import Create
from tidelock.storage.local import LocalStore
from tidelock.txn.checkpoint import CHECKPOINT_KEY, Checkpoint, encode
from tidelock.txn.conflicts import Conflicted
from tidelock.txn.entries import entry_key
from tidelock.txn.state import LedgerState, PersistentSet
from tidelock.txn.transaction_manager import TransactionManager
from tidelock.txn.writers import entries


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a table with a commit, a conflicted write, and a running write."""
    store = LocalStore(tmp_path, fsync=False)
    create_properties(
        store,
        new_properties("t", record_keys=["id"]),
        policy=ReadbackPolicy(SystemClock(), SystemIds()),
    )
    with (
        TransactionManager(store, owner="one") as one,
        TransactionManager(store, owner="two") as two,
    ):
        first, second, third = (
            txns.begin(Action.COMMIT, OperationType.UPSERT, markers=False)
            for txns in (one, two, two)
        )
        first.commit(draft(touched=("a",)))
        result = second.commit(draft(touched=("a",)))
        assert isinstance(result, Conflicted)
        second.rollback(conflict=result)
        assert third.instant
        last = one.begin(Action.COMMIT, OperationType.UPSERT, markers=False)
        last.commit(draft(touched=("b",)))
    return tmp_path


def facts(ended: Ended) -> dict[str, list[dict[str, object]]]:
    """Return the JSON output of a command."""
    assert ended.code == 0, ended.err
    found: dict[str, list[dict[str, object]]] = json.loads(ended.out)
    return found


def test_ledger_show_lists_entries(tidelock: Program, folder: Path) -> None:
    shown = facts(tidelock("ledger", "show", str(folder), "--json"))["entries"]
    assert [entry["kind"] for entry in shown] == ["commit", "rollback", "commit"]
    text = tidelock("ledger", "show", str(folder)).out
    assert "upsert, 1 file group" in text
    later = facts(tidelock("ledger", "show", str(folder), "--after", "1", "--json"))["entries"]
    assert [entry["position"] for entry in later] == [2, 3]
    last = facts(tidelock("ledger", "show", str(folder), "--limit", "1", "--json"))["entries"]
    assert [entry["position"] for entry in last] == [3]


def test_ledger_verify_detects_a_broken_ledger(tidelock: Program, folder: Path) -> None:
    assert facts(tidelock("ledger", "verify", str(folder), "--json"))["sound"]
    LocalStore(folder).delete(entry_key(2))
    ended = tidelock("ledger", "verify", str(folder))
    assert ended.code == 1
    assert "missing, although entry 3 exists" in ended.out


def test_commit_missing_from_the_timeline_is_a_problem(tidelock: Program, folder: Path) -> None:
    LocalStore(folder).delete(f".hoodie/timeline/{_completed(folder)}")
    ended = tidelock("ledger", "verify", str(folder), "--json")
    assert ended.code == 1
    (found,) = json.loads(ended.out)["findings"]
    assert "its commit is not on the timeline" in found["what"]


def test_published_bytes_that_differ_from_the_entry_are_a_problem(
    tidelock: Program, folder: Path
) -> None:
    (folder / ".hoodie/timeline" / _completed(folder)).write_bytes(b"other")
    ended = tidelock("ledger", "verify", str(folder))
    assert ended.code == 1
    assert "its bytes differ from ledger entry 1" in ended.out


def test_checkpoint_that_contradicts_the_entries_is_a_problem(
    tidelock: Program, folder: Path
) -> None:
    store = LocalStore(folder)
    state = LedgerState()
    for entry in entries(store):
        state = state.after(entry)
    store.put(CHECKPOINT_KEY, encode(Checkpoint(state, "n")), Create())
    assert facts(tidelock("ledger", "verify", str(folder), "--json"))["sound"]
    store.delete(CHECKPOINT_KEY)
    wrong = replace(state, aborted=PersistentSet())
    store.put(CHECKPOINT_KEY, encode(Checkpoint(wrong, "n")), Create())
    ended = tidelock("ledger", "verify", str(folder))
    assert ended.code == 1
    assert "it does not match the entries up to 3" in ended.out


def test_conflicts_are_listed(tidelock: Program, folder: Path) -> None:
    (conflict,) = facts(tidelock("ledger", "conflicts", str(folder), "--json"))["conflicts"]
    assert conflict["groups"] == ["day=1/a"]
    assert conflict["overtaken_by"]
    assert conflict["overtaken_by_owners"] == ["one"]
    assert conflict["committed_as"] is None
    assert "day=1/a" in tidelock("ledger", "conflicts", str(folder)).out


def test_rebased_conflict_is_shown_with_its_commit(tidelock: Program, folder: Path) -> None:
    with TransactionManager(LocalStore(folder), owner="two") as two:
        again = two.begin(Action.COMMIT, OperationType.UPSERT, markers=False, rebased=1)
        again.commit(draft(touched=("a",)))
    conflict = facts(tidelock("ledger", "conflicts", str(folder), "--json"))["conflicts"][0]
    assert conflict["committed_as"] == again.instant
    assert f"committed as {again.instant}" in tidelock("ledger", "conflicts", str(folder)).out


def test_active_writers_are_listed(tidelock: Program, folder: Path) -> None:
    (writer,) = facts(tidelock("writers", str(folder), "--json"))["writers"]
    assert (writer["owner"], writer["operation"], writer["alive"]) == ("two", "UPSERT", True)
    assert "1 with a live writer" in tidelock("writers", str(folder)).out


def _completed(folder: Path) -> str:
    names = [path.name for path in (folder / ".hoodie/timeline").iterdir()]
    return min(name for name in names if "_" in name)
