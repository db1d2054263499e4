"""Processes race for one ledger on a local disk."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

from tests.unit.txn.bench import draft
from tidelock.core.system import SystemClock, SystemIds
from tidelock.hudi.properties import create_properties, new_properties
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.local import LocalStore
from tidelock.txn.conflicts import Committed, Conflicted
from tidelock.txn.transaction_manager import TransactionManager
from tidelock.txn.writers import entries, verify

SETTINGS = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
EACH = 15
PROCESSES = 3


def table(root: Path) -> LocalStore:
    """Create a table."""
    store = LocalStore(root, fsync=False)
    create_properties(
        store,
        new_properties("t", record_keys=["id"]),
        policy=ReadbackPolicy(SystemClock(), SystemIds()),
    )
    return store


def write(root: Path, group: str, times: int) -> None:
    """Commit a number of times to a file group, retrying after conflicts."""
    txns = TransactionManager(LocalStore(root, fsync=False), SETTINGS)
    done = 0
    while done < times:
        base = txns.ledger.refresh()
        transaction = txns.begin(Action.COMMIT, OperationType.UPSERT, base=base, markers=False)
        result = transaction.commit(draft(touched=(group,)))
        if isinstance(result, Committed):
            done += 1
        else:
            assert isinstance(result, Conflicted), result
            transaction.rollback(conflict=result, files=("none",))
    txns.close()


def test_processes_that_write_the_same_group_all_succeed(tmp_path: Path) -> None:
    store = table(tmp_path)
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=write, args=(tmp_path, "a", EACH)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(240)
        assert process.exitcode == 0
    completed = load_timeline(store).completed()
    assert len(completed) == EACH * PROCESSES
    assert verify(store) == ()
    bases = [entry.fact.base for entry in entries(store) if hasattr(entry.fact, "base")]
    assert bases == sorted(set(bases)), "each was made of the one before"
    assert load_timeline(store).pending() == ()


def test_killed_process_leaves_a_usable_table(tmp_path: Path) -> None:
    store = table(tmp_path)
    spawn = multiprocessing.get_context("spawn")
    victim = spawn.Process(target=write, args=(tmp_path, "a", 10**6))
    victim.start()
    deadline = time.monotonic() + 200
    while len(load_timeline(store).completed()) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(60)
    write(tmp_path, "a", 3)
    assert verify(store) == ()
    decided = sum(1 for entry in entries(store) if hasattr(entry.fact, "base"))
    assert len(load_timeline(store).completed()) == decided
