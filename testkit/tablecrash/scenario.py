"""The table of the crash tests, its writes, and the checks after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from testkit.tablecrash.stops import OffClock
from tidelock.core.clock import Clock
from tidelock.core.errors import TidelockError
from tidelock.inspect.validate import validate
from tidelock.operations.read import snapshot_now
from tidelock.services.restore import Restore
from tidelock.services.rollback import RollbackService
from tidelock.services.savepoint import Savepoints
from tidelock.storage.contract import ObjectStore
from tidelock.storage.local import LocalStore
from tidelock.table import Table

HOUR_MS = 3_600_000
HEARTBEAT_MS = 1_000
OPTIONS: Mapping[str, object] = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.client.heartbeat.interval_in_ms": str(HEARTBEAT_MS),
    "hoodie.client.heartbeat.tolerable.misses": "1",
}
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("by", pa.string())])

Rows = dict[str, str]
"""The last writer of each key. The first letter of a key is its partition."""

FIRST: Rows = {"a1": "first", "a2": "first", "a3": "first", "b1": "first", "b2": "first"}


def make_table(root: Path, kind: str) -> None:
    """Create a table with two file groups."""
    table = Table.create(
        str(root), SCHEMA, key="id", partition_by="day", type=kind, options=dict(OPTIONS)
    )
    with table:
        table.upsert(rows_of(FIRST))


def rows_of(rows: Rows) -> pa.Table:
    """Return rows as a writer provides them."""
    found = [{"id": key, "day": key[0], "by": by} for key, by in rows.items()]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def open_on(store: ObjectStore, clock: Clock | None = None) -> Table:
    """Open the table at `store`, as a user does."""
    return Table(snapshot_now(store), options=dict(OPTIONS), clock=clock)


def read(table: Table) -> Rows:
    """Return what a reader sees. Raises: `AssertionError` for a duplicate key."""
    table.refresh()
    found = table.read().select(["id", "by"]).to_pylist()
    rows = {row["id"]: row["by"] for row in found}
    assert len(rows) == len(found), f"duplicate key: {found}"
    return rows


def savepoint(store: ObjectStore) -> None:
    """Create a savepoint of the last commit."""
    with open_on(store) as table:
        Savepoints(table.writer()).create(comment="kept")


def release(store: ObjectStore) -> None:
    """Release the savepoint."""
    with open_on(store) as table:
        savepoints = Savepoints(table.writer())
        for saved in savepoints.list():
            savepoints.delete(saved.instant)


def roll_back_last(store: ObjectStore) -> None:
    """Roll back the last commit, which has completed."""
    with open_on(store) as table:
        service = RollbackService(table.writer())
        last = max(
            (i for i in table.timeline if i.is_completed and i.action.writes_data),
            key=lambda instant: instant.completion,
        )
        service.execute(service.schedule(last.requested))


def restore(store: ObjectStore) -> None:
    """Restore the table to its savepoint."""
    with open_on(store) as table:
        service = Restore(table.writer())
        (saved,) = Savepoints(table.writer()).list()
        planned = service.schedule(saved.instant)
        assert planned is not None, "there is nothing to restore"
        service.execute(planned)


def _finish_restores(table: Table) -> None:
    service = Restore(table.writer())
    for planned in service.pending():
        service.execute(planned)


def _broken_savepoints(table: Table) -> list[str]:
    """Return the savepoints that name missing files."""
    service = Restore(table.writer())
    problems: list[str] = []
    for saved in Savepoints(table.writer()).list():
        try:
            service.plan(saved.instant)
        except TidelockError as error:
            problems.append(f"the savepoint {saved.instant} cannot be read: {error}")
    return problems


def inspect(root: Path, before: Rows, after: Rows, *, acked: bool) -> list[str]:
    """Return the problems of a table on which a write of `after` on top of `before` crashed."""
    problems: list[str] = []
    store = LocalStore(root)
    # An hour later all heartbeats have expired.
    with open_on(store, OffClock(HOUR_MS)) as table:
        seen = read(table)
        if seen not in (before, after):
            problems.append(f"a partial write is visible: {seen}")
        if acked and seen != after:
            problems.append(f"an acknowledged write is lost: {seen}")
        table.writer().transactions.recover()
        _finish_restores(table)
        problems += _broken_savepoints(table)
        recovered = read(table)
        if recovered not in (before, after) or (seen == after and recovered != after):
            problems.append(f"the rows are {recovered} after recovery, {seen} before it")
        table.upsert(rows_of({"a2": "newcomer", "c1": "newcomer"}))
        last = read(table)
        if last != {**recovered, "a2": "newcomer", "c1": "newcomer"}:
            problems.append(f"the rows are {last} after a further write on {recovered}")
        pending = table.writer().transactions.recover()
        if pending.rolled_back:
            problems.append(f"the first recovery left {pending.rolled_back[0].instant} pending")
        found = validate(store)
        problems += [f"{each.check}: {each.object} {each.what}" for each in found.problems]
    return problems
