"""A table at work: commits, a conflict, plans, writers alive and dead, a lock, and bad names."""

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
from tidelock.base.errors import HoldingLost
from tidelock.engine.contract import WriteEngine
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import OperationType
from tidelock.tableservice.running import clustering, compaction
from tidelock.txn.transaction import Transaction
from tidelock.txn.transactions import Transactions

TABLE_NAME = "orders<script>window.hacked='table'</script>"
PARTITION = "<img src=x onerror=window.hacked='partition'>"
HOST = "<b onmouseover=window.hacked='host'>host</b>"
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("day", pa.string())])
OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    # On one machine writers line up; here one is to come between.
    "tidelock.write.turn.wait.ms": "20",
}


@dataclass
class Interrupted:
    """An engine that lets others write once after its own files are written."""

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


def made(folder: Path, **more: Any) -> tl.Table:
    """Make the table."""
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
    """Set the scene for as long as the block lasts."""
    with ExitStack() as stack:
        table = stack.enter_context(made(folder))
        other = stack.enter_context(tl.Table.open(str(folder), options=OPTIONS))
        for at in range(commits):
            (table, other)[at % 2].upsert(rows(1, 2, 3, ts=at, day=("d1", PARTITION)[at % 2]))
        overtake(folder, other)
        scheduled = compaction(table.writer(), {}).schedule()
        for key in (7, 8):
            other.bulk_insert(rows(key, ts=1, day="d2"))
        planned = clustering(table.writer(), {}).schedule()
        assert scheduled is not None
        assert planned is not None
        transactions = stack.enter_context(Transactions(table._store, OPTIONS, owner="writer-1"))
        running = transactions.begin(Action.DELTA_COMMIT, OperationType.UPSERT)
        dead = _dead_writer(table)
        stack.enter_context(suppress(HoldingLost))  # an operator may have released it
        assert stack.enter_context(tl.lock(str(folder))).token
        yield Scene(str(folder), table, running, dead, planned, scheduled)


def overtake(folder: Path, other: tl.Table) -> None:
    """Let one writer come between another's files and its commit."""
    with tl.Table.open(str(folder), options=OPTIONS) as slow:
        engine = slow.writer().engine
        meanwhile = Interrupted(engine, lambda: other.upsert(rows(1, ts=50, day="d1")))
        slow.writer().engine = meanwhile
        assert slow.upsert(rows(1, 9, ts=60, day="d1")).rebases == 1


def _dead_writer(table: tl.Table) -> str:
    """Leave a write whose writer has not been heard of for an hour."""
    transactions = Transactions(table._store, OPTIONS, owner="writer-2")
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
