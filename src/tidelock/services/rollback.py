"""Rollback: decided by a ledger entry, published on the timeline, executed by any process."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tidelock.core.errors import Conflict, InvalidInput, NotFound
from tidelock.hudi.file_groups import DataFile, data_file
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.instant import Action, Instant
from tidelock.hudi.timeline.metadata import CleanMetadata, OperationType
from tidelock.operations.read import snapshot_now
from tidelock.operations.write import TableWriter
from tidelock.services.clean import files_in
from tidelock.services.config import CLEAN_COMMITS
from tidelock.services.plans import claimed
from tidelock.txn.plans import (
    RollbackIntent,
    RollbackResult,
    completion_draft,
    files_by_instant,
    pending_rollbacks,
    remove_all,
    remove_plan,
    rollback_result,
    scheduled_rollback,
    schema_after_rollback,
)
from tidelock.txn.recovery import Recovery, scan_pending
from tidelock.txn.rollback import rollback_plan
from tidelock.txn.state import Evidence, LedgerState

logger = logging.getLogger(__name__)

_BUILDS: frozenset[Action] = frozenset(
    {Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.CLEAN}
)
"""Plans that are based on the state of the table, so that their input files must stay."""


@dataclass(frozen=True, slots=True)
class RollbackState:
    """The completed writes, savepointed commits and pending instants of a timeline."""

    writes: Sequence[Instant]
    savepoints: Collection[str]
    pending: Sequence[Instant]

    def before(self, instant: Instant) -> Instant | None:
        """Return the last write that completed before `instant`."""
        earlier = [each for each in self.writes if each.completion < instant.completion]
        return max(earlier, key=lambda each: each.completion, default=None)


def rollback_blocker(instant: Instant, state: RollbackState) -> str | None:
    """Return why a completed write cannot be rolled back; None if it can."""
    if instant.requested in state.savepoints:
        return f"{instant.requested} has a savepoint"
    later = [each.requested for each in state.writes if each.completion > instant.completion]
    if later:
        return f"{', '.join(sorted(later)[-3:])} completed after {instant.requested}"
    for plan in state.pending:
        if plan.action in _BUILDS and plan.requested > instant.completion:
            return f"the pending {plan.action} {plan.requested} was planned on top of it"
    return None


def snapshot_at(writer: TableWriter, state: LedgerState) -> TableSnapshot:
    """Return the current snapshot without commits that the ledger has aborted.

    Raises: `Conflict` while a rollback of completed commits is pending.
    """
    if (plan := state.blocking_plan) is not None:
        raise Conflict(
            f"{writer.store.uri}: the pending {plan.action} {plan.instant} is rolling back commits",
            hint=f"finish it first: `tidelock {plan.action} URI execute`",
        )
    snapshot, aborted = snapshot_now(writer.store), frozenset(state.aborted)
    return replace(snapshot, timeline=snapshot.timeline.without_completed(aborted), aborted=aborted)


def lost_files(snapshot: TableSnapshot, completion: str) -> tuple[str, ...]:
    """Return the files of the state at `completion` that a clean has deleted since.

    Computes the file slices with the deleted files added; a deleted file in them is lost.
    """
    # Two concurrent cleans may both record that they deleted a file.
    deleted = {file.key: file for file in _deleted_since(snapshot, completion)}.values()
    if not deleted:
        return ()
    present = {file.key for each in snapshot.slices_until(completion) for file in files_in(each)}
    shown = snapshot.slices_until(completion, deleted=deleted)
    needed = {file.key for each in shown for file in files_in(each)}
    return tuple(sorted(needed - present))


def _deleted_since(snapshot: TableSnapshot, completion: str) -> Iterator[DataFile]:
    for instant in snapshot.timeline.completed(Action.CLEAN):
        if instant.completion <= completion:
            continue
        cleaned = snapshot.timeline.read(CleanMetadata, instant)
        for partition, each in cleaned.partition_metadata.items():
            for path in each.success_delete_files:
                file = data_file(partition, path.rpartition("/")[2], 0)
                if file is not None:
                    yield file


@dataclass(frozen=True, slots=True)
class RollbackPlans:
    """The pending rollbacks or restores of one table."""

    writer: TableWriter
    action: ClassVar[Action]

    def pending(self) -> tuple[str, ...]:
        """Return the pending plans, oldest first."""
        txns = self.writer.transactions
        txns.ledger.refresh()
        return tuple(plan.instant for plan in pending_rollbacks(txns, self.action))

    def execute(self, instant: str) -> RollbackResult:
        """Claim a plan, delete its files, and complete it.

        Raises: `NotFound` if it is not pending, `Conflict` if another process executes it.
        """
        txns, uri = self.writer.transactions, self.writer.store.uri
        plan = txns.ledger.refresh().plans.get(instant)
        if plan is None or plan.action is not self.action:
            raise NotFound(
                f"{uri} has no pending {self.action} {instant}",
                hint="list pending plans with `tidelock services URI`",
            )
        with claimed(txns, instant, OperationType.UNKNOWN) as transaction:
            began_ms = txns.clock.now().monotonic_ms
            removed = txns.ledger.run(remove_all(txns, plan))
            schema_id = txns.ledger.run(schema_after_rollback(txns)) if plan.blocks_commits else ""
            took_ms = txns.clock.now().monotonic_ms - began_ms
            draft = completion_draft(plan, removed, took_ms=took_ms, base=uri, schema_id=schema_id)
            return rollback_result(plan, removed, transaction.commit(draft))


@dataclass(frozen=True, slots=True)
class RollbackService(RollbackPlans):
    """Rollback of instants of one table."""

    action = Action.ROLLBACK

    def failed(self) -> tuple[str, ...]:
        """Return the failed writes: those whose writer is dead."""
        txns = self.writer.transactions
        txns.ledger.refresh()
        seen = txns.ledger.run(scan_pending(txns.ledger.publisher.folder))
        recovery = Recovery(txns)
        return tuple(i.requested for i in seen.pending if recovery.is_dead(i, seen))

    def schedule_failed(self) -> tuple[str, ...]:
        """Schedule the rollback of every failed write; return all pending rollbacks.

        All are decided in one transaction: a writer that resumes meanwhile counts as alive for
        all of them or for none.
        """
        txns = self.writer.transactions
        recovery = Recovery(txns)
        txns.ledger.run(recovery.scan())
        with txns.table_change() as check:
            txns.ledger.run(recovery.decide(), check)
        return self.pending()

    def execute_pending(self) -> tuple[RollbackResult, ...]:
        """Execute every pending rollback, except those that other processes execute."""
        done: list[RollbackResult] = []
        for instant in self.pending():
            try:
                done.append(self.execute(instant))
            except (Conflict, NotFound) as error:
                logger.info("the rollback %s was skipped: %s", instant, error)
        return tuple(done)

    def schedule(self, instant: str) -> str:
        """Schedule the rollback of one instant, and return the instant of the rollback.

        A pending write must be dead; a completed one must be the last.
        Raises: `NotFound`, `Conflict` naming what prevents it.
        """
        txns = self.writer.transactions
        snapshot = snapshot_at(self.writer, txns.ledger.refresh())
        writes = [i for i in snapshot.timeline.instants if i.requested == instant]
        found = next((i for i in writes if i.action is not Action.SAVEPOINT), None)
        if found is None:
            raise NotFound(
                f"{self.writer.store.uri} has no instant {instant} on its active timeline",
                hint="list instants with `tidelock timeline show URI`; archived ones cannot be"
                " rolled back",
            )
        if instant in txns.ledger.state.plans:
            return self._schedule_plan(instant)
        if not found.action.writes_data:
            raise InvalidInput(
                f"{self.writer.store.uri}: {instant} is a {found.action}, which cannot be rolled"
                " back",
                hint="list the commits with `tidelock table history URI`",
            )
        seen = Evidence()
        if found.is_completed:
            self._check_completed(found, snapshot)
        else:
            observed = txns.ledger.run(scan_pending(txns.ledger.publisher.folder))
            if observed.is_alive(instant, default_lifetime_ms=txns.lifetime_ms):
                seen = Evidence(alive=frozenset({instant}))
        files = txns.ledger.run(files_by_instant([instant])).get(instant, ())
        intent = RollbackIntent(
            Action.ROLLBACK,
            (instant,),
            rollback_plan(instant, found.action.value, files, base=self.writer.store.uri),
            txns.ledger.state.position,
            complete=found.is_completed,
            reason="rolled back" if found.is_completed else "rolled back manually",
        )
        with txns.table_change() as check:
            return txns.ledger.run(scheduled_rollback(txns, intent, seen=seen), check).instant

    def _schedule_plan(self, instant: str) -> str:
        txns, uri = self.writer.transactions, self.writer.store.uri
        if txns.ledger.state.plans[instant].rolls_back:
            raise Conflict(
                f"{uri}: {instant} is a pending rollback and cannot be rolled back",
                hint="execute it with `tidelock rollback URI execute`",
            )
        with txns.table_change() as check:
            steps = remove_plan(txns, instant, delay_ms=0, finish=False)
            problem = txns.ledger.run(steps, check)
        if problem is not None:
            raise Conflict(
                f"{uri}: {instant} was not rolled back: {problem}",
                hint="try `tidelock services URI cancel INSTANT`",
            )
        plans = pending_rollbacks(txns, Action.ROLLBACK)
        return next(plan.instant for plan in plans if instant in plan.rolls_back)

    def _check_completed(self, found: Instant, snapshot: TableSnapshot) -> None:
        """Raise `Conflict` unless the write completed last and its base state is complete."""
        timeline, uri = snapshot.timeline, self.writer.store.uri
        state = RollbackState(
            timeline.writes(),
            {each.requested for each in timeline.completed(Action.SAVEPOINT)},
            timeline.pending(),
        )
        before = state.before(found)
        problem = rollback_blocker(found, state)
        if problem is not None:
            raise Conflict(
                f"{uri}: {found.requested} cannot be rolled back: {problem}",
                hint="roll back later commits first, or restore the table to an earlier instant",
            )
        if before is not None and (lost := lost_files(snapshot, before.completion)):
            raise Conflict(
                f"{uri}: {found.requested} cannot be rolled back: a clean has deleted {lost[0]},"
                " which is part of the earlier state",
                hint=f"retain more commits ({CLEAN_COMMITS.key}), or create savepoints",
            )
