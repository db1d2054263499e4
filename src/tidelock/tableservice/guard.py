"""The guard of RFC-79: a plan is claimed, worked on by one, and committed or given back.

The claim is an entry of the ledger, so a heartbeat that was judged wrongly costs work, never data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tidelock.base.errors import Conflict, DataCorrupt, NotFound, OutcomeUnknown, WriteConflict
from tidelock.base.outcome import Unknown
from tidelock.kernel.results import FileResult
from tidelock.table.timeline.metadata import OperationType
from tidelock.tableservice.observing import executing, told_refused
from tidelock.txn.draft import CommitResult, Committed, Overtaken
from tidelock.txn.planning import NotClaimed, Why
from tidelock.txn.transaction import Transaction
from tidelock.txn.transactions import Transactions
from tidelock.txn.verdict import Report


@dataclass(frozen=True, slots=True)
class Executed:
    """A plan that was carried out, and what came of it."""

    instant: str
    completion: str
    files_written: int
    bytes_written: int

    @classmethod
    def of(
        cls, outcome: CommitResult, transaction: Transaction, results: Sequence[FileResult]
    ) -> Executed:
        """Return what was committed. Raises: `WriteConflict`, `OutcomeUnknown`."""
        match outcome:
            case Committed(instant, completion):
                size = sum(result.stat.total_write_bytes or 0 for result in results)
                return cls(instant, completion, len(results), size)
            case Unknown(cause):
                raise OutcomeUnknown(
                    f"{transaction.instant} may or may not have been committed: {cause}",
                    hint="look at the timeline before executing it again",
                )
            case Overtaken(verdict=verdict):
                report = verdict.report
                raise WriteConflict(str(report), hint=report.advice, report=report)


@contextmanager
def claimed(
    transactions: Transactions, instant: str, operation: OperationType
) -> Iterator[Transaction]:
    """Claim a plan for the time of the block; what is not committed in it is given back.

    Raises: `Conflict` saying why the plan cannot be executed now, and whether trying later helps.
    """
    taken = transactions.claim(instant, operation)
    if isinstance(taken, NotClaimed):
        told_refused(transactions, operation.value.lower(), instant, taken.text)
        raise _refusal(instant, taken)
    with executing(transactions, operation.value.lower(), instant), taken as transaction:
        try:
            yield transaction
        except (DataCorrupt, NotFound) as error:
            # Who was succeeded may find that others have removed what it works on.
            if transaction.is_given_up():
                raise Conflict(f"{instant} was taken for dead, and is over: {error}") from error
            raise


@contextmanager
def stale_removed(transactions: Transactions, instant: str) -> Iterator[None]:
    """Remove a plan that stays, if a writer changed for good what it starts from."""
    try:
        yield
    except WriteConflict as error:
        if isinstance(error.report, Report) and error.report.groups:
            # What it starts from will never be the newest again: nobody can carry it out.
            transactions.remove_plan(instant, delay_ms=0, forced=True)
        raise


def _refusal(instant: str, taken: NotClaimed) -> Conflict:
    hint = _HINTS.get(taken.why, f"try again in {taken.alive_ms / 1000:.0f} s at the earliest")
    return Conflict(f"the plan {instant} was not claimed: {taken.text}", hint=hint)


_HINTS = {
    Why.DEAD: "it can only be rolled back; a clean does that",
    Why.GONE: "it is complete, or was rolled back",
    Why.UNSURE: "try again",
}
