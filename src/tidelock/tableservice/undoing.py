"""Carrying out a rollback or a restore that is decided, with a heartbeat that is kept."""

from __future__ import annotations

from dataclasses import replace

from tidelock.base.errors import Conflict, NotFound
from tidelock.operation.reads import snapshot_now
from tidelock.operation.writer import TableWriter
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import OperationType
from tidelock.tableservice.guard import claimed
from tidelock.txn.fold import Fold
from tidelock.txn.rollbacks import (
    CarriedOut,
    carried_out,
    completion,
    remove_all,
    schema_left,
)


def snapshot_at(writer: TableWriter, fold: Fold) -> TableSnapshot:
    """Return the table as it is, without what the ledger has taken back.

    Raises: `Conflict` while that is not done.
    """
    if (plan := fold.halting) is not None:
        raise Conflict(
            f"the {plan.action} {plan.instant} of {writer.store.uri} is pending, and takes back"
            " commits",
            hint=f"finish it first: `tidelock {plan.action} TABLE execute`",
        )
    snapshot, void = snapshot_now(writer.store), frozenset(fold.void)
    return replace(snapshot, timeline=snapshot.timeline.without_completed(void), void=void)


def carry_out(writer: TableWriter, instant: str, action: Action) -> CarriedOut:
    """Claim a plan, remove what it undoes, and complete it.

    Raises: `NotFound` if it is not pending, `Conflict` if somebody else is at it.
    """
    home = writer.transactions
    plan = home.ledger.refresh().plans.get(instant)
    if plan is None or plan.action is not action:
        raise NotFound(
            f"{writer.store.uri} has no pending {action} {instant}",
            hint="`tidelock services TABLE` shows what is pending",
        )
    with claimed(home, instant, OperationType.UNKNOWN) as transaction:
        began_ms = home.clock.now().monotonic_ms
        undone = home.ledger.run(remove_all(home, plan))
        schema_id = home.ledger.run(schema_left(home)) if plan.halts else ""
        took_ms = home.clock.now().monotonic_ms - began_ms
        draft = completion(
            plan, undone, took_ms=took_ms, base=writer.store.uri, schema_id=schema_id
        )
        return carried_out(plan, undone, transaction.commit(draft))
