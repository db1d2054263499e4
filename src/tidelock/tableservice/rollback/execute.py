"""Rollback: decided in the ledger, shown on the timeline, carried out by whoever comes."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tidelock.base.errors import Conflict, InvalidInput, NotFound
from tidelock.operation.writer import TableWriter
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.instant import Action, Instant
from tidelock.tableservice.rollback.plan import Standing, in_the_way
from tidelock.tableservice.undoing import carry_out, snapshot_at
from tidelock.tableservice.wholeness import lost_files
from tidelock.txn.fold import Evidence
from tidelock.txn.recovery import Recovery, survey
from tidelock.txn.rollbacks import (
    CarriedOut,
    Intent,
    files_by_instant,
    pending_undos,
    remove_plan,
    scheduled_undo,
)
from tidelock.txn.undorecords import rollback_plan

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rollback:
    """Rolls back instants of the table of one writer."""

    writer: TableWriter

    def failed(self) -> tuple[str, ...]:
        """Return the writes that are rolled back when none is named: those of dead writers."""
        home = self.writer.transactions
        home.ledger.refresh()
        seen = home.ledger.run(survey(home.ledger.publisher.folder))
        recovery = Recovery(home)
        return tuple(i.requested for i in seen.pending if recovery.is_dead(i, seen))

    def schedule_failed(self) -> tuple[str, ...]:
        """Decide the rollback of every write whose writer is dead; return the plans, all pending.

        All of it in one transaction: whoever wakes up meanwhile is alive for all or for none.
        """
        home = self.writer.transactions
        recovery = Recovery(home)
        home.ledger.run(recovery.look())
        with home.changing() as check:
            home.ledger.run(recovery.decide(), check)
        return self.pending()

    def execute_pending(self) -> tuple[CarriedOut, ...]:
        """Carry out every rollback that is decided; those that others are at are left to them."""
        done: list[CarriedOut] = []
        for instant in self.pending():
            try:
                done.append(self.execute(instant))
            except (Conflict, NotFound) as error:
                logger.info("the rollback %s was left: %s", instant, error)
        return tuple(done)

    def pending(self) -> tuple[str, ...]:
        """Return the rollbacks that are decided and not done, oldest first."""
        home = self.writer.transactions
        home.ledger.refresh()
        return tuple(plan.instant for plan in pending_undos(home, Action.ROLLBACK))

    def schedule(self, instant: str) -> str:
        """Decide the rollback of one instant, and return the plan's.

        A write that has not completed must be dead; one that has must be the last.
        Raises: `NotFound`, `Conflict` saying what is in the way.
        """
        home = self.writer.transactions
        snapshot = snapshot_at(self.writer, home.ledger.refresh())
        writes = [i for i in snapshot.timeline.instants if i.requested == instant]
        found = next((i for i in writes if i.action is not Action.SAVEPOINT), None)
        if found is None:
            raise NotFound(
                f"{self.writer.store.uri} has no instant {instant} on its timeline",
                hint="`tidelock timeline show TABLE` shows them; what is archived stays",
            )
        if instant in home.ledger.fold.plans:
            return self._schedule_plan(instant)
        intent, seen = self._take_back(found, snapshot) if found.is_completed else self._drop(found)
        with home.changing() as check:
            return home.ledger.run(scheduled_undo(home, intent, seen=seen), check).instant

    def execute(self, instant: str) -> CarriedOut:
        """Carry out a rollback that is decided. Raises: `Conflict` if somebody else is at it."""
        return carry_out(self.writer, instant, Action.ROLLBACK)

    def _schedule_plan(self, instant: str) -> str:
        home = self.writer.transactions
        if home.ledger.fold.plans[instant].undoes:
            raise Conflict(
                f"{instant} is a rollback itself, and decided", hint="execute it: it cannot fail"
            )
        with home.changing() as check:
            steps = remove_plan(home, instant, delay_ms=0, finish=False)
            problem = home.ledger.run(steps, check)
        if problem is not None:
            raise Conflict(
                f"{instant} was not rolled back: {problem}",
                hint="`tidelock services TABLE cancel` says what can be done with a plan",
            )
        plans = pending_undos(home, Action.ROLLBACK)
        return next(plan.instant for plan in plans if instant in plan.undoes)

    def _drop(self, found: Instant) -> tuple[Intent, Evidence]:
        """Return the plan for a write that has not completed."""
        home = self.writer.transactions
        seen = home.ledger.run(survey(home.ledger.publisher.folder))
        requested = found.requested
        if not found.action.writes_data:
            raise InvalidInput(f"{requested} is a {found.action}, which is not rolled back")
        alive = seen.is_alive(requested, otherwise_ms=home.life_ms)
        files = home.ledger.run(files_by_instant([requested])).get(requested, ())
        intent = Intent(
            Action.ROLLBACK,
            (requested,),
            rollback_plan(requested, found.action.value, files, base=self.writer.store.uri),
            home.ledger.fold.position,
            reason="rolled back by hand",
        )
        return intent, Evidence(alive=frozenset({requested}) if alive else frozenset())

    def _take_back(self, found: Instant, snapshot: TableSnapshot) -> tuple[Intent, Evidence]:
        """Return the plan for the write that completed last."""
        home, timeline, uri = self.writer.transactions, snapshot.timeline, self.writer.store.uri
        if not found.action.writes_data:
            raise InvalidInput(f"{found.requested} is a {found.action}, which is not rolled back")
        standing = Standing(
            timeline.writes(),
            {kept.requested for kept in timeline.completed(Action.SAVEPOINT)},
            timeline.pending(),
        )
        before = standing.before(found)
        problem = in_the_way(found, standing)
        if problem is not None:
            raise Conflict(
                f"{found.requested} of {uri} cannot be taken back: {problem}",
                hint="take back what is later first, or restore the table to an earlier instant",
            )
        if before is not None and (lost := lost_files(snapshot, before.completion)):
            raise Conflict(
                f"{found.requested} of {uri} cannot be taken back: a clean has deleted {lost[0]},"
                " which the table needs then",
                hint="keep more commits (hoodie.clean.commits.retained), or make savepoints",
            )
        files = home.ledger.run(files_by_instant([found.requested])).get(found.requested, ())
        record = rollback_plan(found.requested, found.action.value, files, base=uri)
        intent = Intent(
            Action.ROLLBACK,
            (found.requested,),
            record,
            home.ledger.fold.position,
            complete=True,
            reason="taken back",
        )
        return intent, Evidence()
