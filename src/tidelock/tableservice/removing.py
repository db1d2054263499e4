"""Plans that may be undone, and nobody executes any more."""

from __future__ import annotations

import logging

from tidelock.txn.transactions import Transactions

logger = logging.getLogger(__name__)


def remove_expired(transactions: Transactions, *, delay_ms: int | None) -> tuple[str, ...]:
    """Undo removable plans whose executor is dead, or which nobody began within `delay_ms`.

    A plan that was begun can never be executed again, so a dead executor's is undone at once.
    Returns the instants of those that are gone.
    """
    if delay_ms is None:
        return ()
    plans = transactions.ledger.refresh().plans
    gone: list[str] = []
    for instant in sorted(instant for instant, plan in plans.items() if plan.removable):
        problem = transactions.remove_plan(instant, delay_ms=delay_ms)
        if problem is None:
            gone.append(instant)
        else:
            logger.debug("the plan %s stays: %s", instant, problem)
    return tuple(gone)
