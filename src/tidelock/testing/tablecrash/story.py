"""The table that writers die on, what they write, and what must be there afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from tidelock.base.clock import Clock
from tidelock.base.errors import TidelockError
from tidelock.operation.reads import snapshot_now
from tidelock.operation.table import Table
from tidelock.ops.validate.validating import validate
from tidelock.store.contract import ObjectStore
from tidelock.store.local import LocalStore
from tidelock.tableservice.restore.execute import Restore
from tidelock.tableservice.rollback.execute import Rollback
from tidelock.tableservice.savepoint.execute import Savepoints
from tidelock.testing.tablecrash.stops import OffClock

HOUR_MS = 3_600_000
HEARTBEAT_MS = 1_000
OPTIONS: Mapping[str, object] = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.client.heartbeat.interval_in_ms": str(HEARTBEAT_MS),
    "hoodie.client.heartbeat.tolerable.misses": "1",
}
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("by", pa.string())])

Rows = dict[str, str]
"""Who wrote each key last. The first letter of a key is its partition."""

FIRST: Rows = {"a1": "first", "a2": "first", "a3": "first", "b1": "first", "b2": "first"}


def make_table(root: Path, kind: str) -> None:
    """Create a table with two file groups."""
    table = Table.create(
        str(root), SCHEMA, key="id", partition_by="day", type=kind, options=dict(OPTIONS)
    )
    with table:
        table.upsert(rows_of(FIRST))


def rows_of(rows: Rows) -> pa.Table:
    """Return rows as a writer gives them."""
    found = [{"id": key, "day": key[0], "by": by} for key, by in rows.items()]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def open_on(store: ObjectStore, clock: Clock | None = None) -> Table:
    """Open the table at `store`, as a user does."""
    return Table(snapshot_now(store), options=dict(OPTIONS), clock=clock)


def read(table: Table) -> Rows:
    """Return what a reader sees. Raises: `AssertionError` for a key that is there twice."""
    table.refresh()
    found = table.read().select(["id", "by"]).to_pylist()
    rows = {row["id"]: row["by"] for row in found}
    assert len(rows) == len(found), f"a key is there twice: {found}"
    return rows


def keep(store: ObjectStore) -> None:
    """Make a savepoint of the last commit."""
    with open_on(store) as table:
        Savepoints(table.writer()).create(comment="kept")


def release(store: ObjectStore) -> None:
    """Give the savepoint up."""
    with open_on(store) as table:
        savepoints = Savepoints(table.writer())
        for saved in savepoints.found():
            savepoints.delete(saved.instant)


def take_back(store: ObjectStore) -> None:
    """Roll back the last commit, which has completed."""
    with open_on(store) as table:
        service = Rollback(table.writer())
        last = max(
            (i for i in table.timeline if i.is_completed and i.action.writes_data),
            key=lambda instant: instant.completion,
        )
        service.execute(service.schedule(last.requested))


def restore(store: ObjectStore) -> None:
    """Restore the table to its savepoint."""
    with open_on(store) as table:
        service = Restore(table.writer())
        (saved,) = Savepoints(table.writer()).found()
        planned = service.schedule(saved.instant)
        assert planned is not None, "there is nothing to take back"
        service.execute(planned)


def _finish_restores(table: Table) -> None:
    service = Restore(table.writer())
    for planned in service.pending():
        service.execute(planned)


def _broken_savepoints(table: Table) -> list[str]:
    """Return the savepoints that name files which are not there."""
    service = Restore(table.writer())
    problems: list[str] = []
    for saved in Savepoints(table.writer()).found():
        try:
            service.plan(saved.instant)
        except TidelockError as error:
            problems.append(f"the savepoint {saved.instant} is of no use: {error}")
    return problems


def inspect(root: Path, before: Rows, after: Rows, *, acked: bool) -> list[str]:
    """Return what is wrong with a table on which a write of `after` on top of `before` died."""
    problems: list[str] = []
    store = LocalStore(root)
    # An hour later every heartbeat has stopped.
    with open_on(store, OffClock(HOUR_MS)) as table:
        seen = read(table)
        if seen not in (before, after):
            problems.append(f"half a write is seen: {seen}")
        if acked and seen != after:
            problems.append(f"a write that was acknowledged is lost: {seen}")
        table.writer().transactions.recover()
        _finish_restores(table)
        problems += _broken_savepoints(table)
        mended = read(table)
        if mended not in (before, after) or (seen == after and mended != after):
            problems.append(f"after recovery {mended} is seen, before it {seen}")
        table.upsert(rows_of({"a2": "newcomer", "c1": "newcomer"}))
        last = read(table)
        if last != {**mended, "a2": "newcomer", "c1": "newcomer"}:
            problems.append(f"after a further write {last} is seen, on top of {mended}")
        pending = table.writer().transactions.recover()
        if pending.undone:
            problems.append(f"{pending.undone[0].instant} was left by the first recovery")
        found = validate(store)
        problems += [f"{each.check}: {each.object} {each.what}" for each in found.problems]
    return problems
