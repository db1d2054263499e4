"""Putting a service's plan on the timeline: made again while writers change what was planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import Conflict
from tidelock.operation.writer import TableWriter
from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import TimelineRecord
from tidelock.tableservice.adopting import foreign_plans
from tidelock.tableservice.observing import told_scheduled
from tidelock.txn.fold import Fold
from tidelock.txn.transactions import Transactions

_PLANNINGS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan, the file groups it covers, and the ledger as it was when the table was read."""

    plan: TimelineRecord
    base: Fold
    targets: frozenset[GroupId] = frozenset()
    removable: bool = False


def scheduled(
    transactions: Transactions, action: Action, make: Callable[[], Draft | None]
) -> str | None:
    """Schedule what `make` plans of the table as it is; None if it plans nothing.

    Raises: `Conflict` if writers changed what was planned each time, `Unsupported` for a table that
    is not to be changed, whether there is something to plan or not.
    """
    transactions.check_may_change()
    for left in reversed(range(_PLANNINGS_MAX)):
        draft = make()
        if draft is None:
            return None
        try:
            pending = transactions.schedule(
                action, draft.plan, draft.targets, base=draft.base, removable=draft.removable
            )
        except Conflict:
            if not left:
                raise
            continue
        told_scheduled(transactions, action.value, pending.instant)
        return pending.instant
    return None


def pending(writer: TableWriter, action: Action) -> tuple[str, ...]:
    """Return the plans of an action that wait to be executed, oldest first.

    Where Java writers are announced, theirs too.
    """
    plans = writer.transactions.ledger.refresh().plans.values()
    ours = (plan.instant for plan in plans if plan.action is action)
    return tuple(sorted((*ours, *foreign_plans(writer, action))))
