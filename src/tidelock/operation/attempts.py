"""What the attempts at one write have in common: its rows, its place in the queue, its errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidelock.base.errors import TidelockError, WriteConflict
from tidelock.engine.contract import Prepared, WriteEngine
from tidelock.engine.plan import TaskKind
from tidelock.kernel.prepare import PrepareRule
from tidelock.operation.job import Job
from tidelock.operation.moment import Moment, NothingToWrite
from tidelock.operation.placing import Placed
from tidelock.table.filegroup.view import GroupId
from tidelock.txn.draft import Overtaken, deed_of
from tidelock.txn.footprint import Footprint
from tidelock.txn.transaction import Transaction
from tidelock.txn.verdict import Rebase, Refuse, Report

logger = logging.getLogger(__name__)


def wanted(placed: Placed, *, blind: bool) -> tuple[frozenset[GroupId], frozenset[str]]:
    """Return the file groups, and partitions for new keys, that a write would have to itself."""
    tasks = placed.plan.tasks
    existing = frozenset(task.group_id for task in tasks if task.piece is not None)
    fresh = frozenset(task.partition for task in tasks if task.piece is None)
    return existing, frozenset() if blind else fresh


def planned_footprint(job: Job, placed: Placed) -> Footprint:
    """Return what a write is going to touch, before it has written anything."""
    existing = [task for task in placed.plan.tasks if task.piece is not None]
    appended = (task.group_id for task in existing if task.kind is TaskKind.APPEND)
    return Footprint(
        deed_of(job.operation),
        touched=frozenset(task.group_id for task in existing),
        appended=frozenset(appended),
        replaced=placed.replaced,
        intents=placed.intents,
    )


@dataclass(slots=True)
class Doom:
    """Tells an engine at work when its write cannot be committed any more; keeps the report."""

    transaction: Transaction
    footprint: Footprint
    report: Report | None = None

    def __call__(self) -> str | None:
        """Say why the write is in vain; None while it is not."""
        if self.report is None:
            self.report = self.transaction.doomed(self.footprint)
        return None if self.report is None else str(self.report)

    def overtaken(self, position: int, *, solves: bool) -> Overtaken | None:
        """Return the verdict that the commit would have got; None if nothing was found."""
        if self.report is None:
            return None
        verdict = Rebase(self.report, self.report.groups) if solves else Refuse(self.report)
        return Overtaken(verdict, position, str(self.report))


@dataclass(slots=True)
class Kept:
    """The prepared rows of a write, for all its attempts.

    `position` is the place in the ledger that the last attempt has read.
    """

    engine: WriteEngine
    rule: PrepareRule | None = None
    rows: Prepared | None = None
    ticket: Ticket | None = None
    computed: tuple[int, object] | None = None
    position: int = -1

    def bound(self, job: Job, position: int, moment: Callable[[], Moment]) -> Job:
        """Return the job with rows, computed anew if others have written since they were.

        Raises: `NothingToWrite` if none come out.
        """
        if job.compute is None:
            return job
        if self.computed is None or (job.reads and self.computed[0] != position):
            self.forget()
            rows = job.compute(moment())
            if rows is None:
                raise NothingToWrite
            self.computed = (position, rows)
        return replace(job, rows=self.computed[1])

    def prepared(self, rows: object, rule: PrepareRule) -> Prepared:
        """Return the rows prepared by a rule; again only if the schema has changed."""
        if self.rows is None or self.rule is None or not self.rule.schema.equals(rule.schema):
            self.forget()
            self.rows, self.rule = self.engine.prepare(rows, rule), rule
        return self.rows

    def forget(self) -> None:
        """Let the engine forget the rows."""
        if self.rows is not None:
            self.engine.release(self.rows)
            self.rows = None

    def release(self) -> None:
        """Give up the rows, and the place in the queue."""
        self.forget()
        if self.ticket is not None:
            self.ticket.give_up()
            self.ticket = None


@dataclass(frozen=True, slots=True)
class Ticket:
    """An attempt that was overtaken: its turn, and what is to be removed of it."""

    transaction: Transaction
    overtaken: Overtaken
    files: Sequence[str]

    def give_up(self) -> None:
        """Undo the attempt. A failure is no failure of the write, which is through by now."""
        try:
            self.transaction.rollback(overtaken=self.overtaken, files=self.files)
        except TidelockError as error:
            logger.warning("%s was not rolled back: %s", self.transaction.instant, error)


def conflict_error(uri: str, outcome: Overtaken, *, rounds: int = 0) -> WriteConflict:
    """Return the error for a write that cannot be committed, with the report in it."""
    again = f" {rounds} times" if rounds else ""
    verdict = outcome.verdict
    report = verdict.report
    return WriteConflict(f"{uri}: {report}{again}", hint=report.advice, report=report)
