"""A busy table: commits, a conflict, plans, live and dead writers, a lock, and hostile names."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidelock as tl
from tidelock.core.errors import HoldingLost
from tidelock.execution.engine import WriteEngine
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.services.runner import clustering, compaction
from tidelock.txn.transaction import Transaction
from tidelock.txn.transaction_manager import TransactionManager

TABLE_NAME = "orders<script>window.hacked='table'</script>"
PARTITION = "<img src=x onerror=window.hacked='partition'>"
HOST = "<b onmouseover=window.hacked='host'>host</b>"
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("day", pa.string())])
OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    # Writers on one machine queue up; here one has to commit in between.
    "tidelock.write.turn.wait.ms": "20",
}


@dataclass
class Interrupted:
    """An engine that lets others write once after it has written its own files."""

    inner: WriteEngine
    meanwhile: Callable[[], object]
    done: bool = field(default=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def write(self, *args: Any, **more: Any) -> Any:
        results = self.inner.write(*args, **more)
        if not self.done:
            self.done = True
            self.meanwhile()
        return results


@dataclass(frozen=True)
class Scene:
    """The table, and the instants that tests look for."""

    uri: str
    table: tl.Table
    running: Transaction
    dead: str
    clustering: str
    compaction: str
    conflicts: int = 1


def rows(*ids: int, ts: int, day: str) -> list[dict[str, object]]:
    """Return rows of the table."""
    return [{"id": each, "ts": ts, "day": day} for each in ids]


def create_table(folder: Path, **more: Any) -> tl.Table:
    """Create the table."""
    return tl.Table.create(
        str(folder),
        SCHEMA,
        key="id",
        ordering="ts",
        partition_by="day",
        type="MERGE_ON_READ",
        name=more.pop("name", TABLE_NAME),
        options={**OPTIONS, **more},
    )


@contextmanager
def scene(folder: Path, *, commits: int = 4) -> Iterator[Scene]:
    """Set up the scene for the duration of the block."""
    with ExitStack() as stack:
        table = stack.enter_context(create_table(folder))
        other = stack.enter_context(tl.Table.open(str(folder), options=OPTIONS))
        for at in range(commits):
            (table, other)[at % 2].upsert(rows(1, 2, 3, ts=at, day=("d1", PARTITION)[at % 2]))
        commit_in_between(folder, other)
        scheduled = compaction(table.writer(), {}).schedule()
        for key in (7, 8):
            other.bulk_insert(rows(key, ts=1, day="d2"))
        planned = clustering(table.writer(), {}).schedule()
        assert scheduled is not None
        assert planned is not None
        transactions = stack.enter_context(
            TransactionManager(table._store, OPTIONS, owner="writer-1")
        )
        running = transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
        dead = _dead_writer(table)
        stack.enter_context(suppress(HoldingLost))  # an operator may have released it
        assert stack.enter_context(tl.lock(str(folder))).token
        yield Scene(str(folder), table, running, dead, planned, scheduled)


def commit_in_between(folder: Path, other: tl.Table) -> None:
    """Let one writer commit between another's data files and its commit."""
    with tl.Table.open(str(folder), options=OPTIONS) as slow:
        engine = slow.writer().engine
        meanwhile = Interrupted(engine, lambda: other.upsert(rows(1, ts=50, day="d1")))
        slow.writer().engine = meanwhile
        assert slow.upsert(rows(1, 9, ts=60, day="d1")).rebases == 1


def _dead_writer(table: tl.Table) -> str:
    """Leave a pending write whose heartbeat is an hour old."""
    transactions = TransactionManager(table._store, OPTIONS, owner="writer-2")
    heartbeat = transactions.heartbeat
    transactions.heartbeat = (  # type: ignore[method-assign]
        lambda operation, *, markers: replace(heartbeat(operation, markers=markers), host=HOST)
    )
    left = transactions.begin(Action.DELTA_COMMIT, OperationType.INSERT)
    transactions.close()
    path = Path(table._store.local_path(f".hoodie/.heartbeat/{left.instant}") or "")
    long_ago = time.time() - 3_600
    os.utime(path, (long_ago, long_ago))
    return left.instant
