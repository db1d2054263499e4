"""Schedule, claim, execute and import the plans of table services (RFC-79).

A claim is a ledger entry, so a wrongly expired heartbeat costs work but never data. A plan that an
external writer scheduled is imported (C99): its files are compared with the table at the time of
the plan and the current table; then one ledger entry makes it a plan like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from tidelock.core.errors import Conflict, DataCorrupt, NotFound, OutcomeUnknown, WriteConflict
from tidelock.core.outcome import Unknown
from tidelock.execution.filegroup.context import FileResult
from tidelock.hudi.file_groups import FileSlice, GroupId
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.active import ActiveTimeline, load_timeline
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import (
    SCHEMA_KEY,
    CommitMetadata,
    OperationType,
    TimelineRecord,
)
from tidelock.operations.write import TableWriter
from tidelock.services.telemetry import observe_execution, report_refused, report_scheduled
from tidelock.txn.commit import CommitDraft
from tidelock.txn.conflicts import Committed, Conflicted, ConflictReport
from tidelock.txn.entries import ImportPlan
from tidelock.txn.external_writers import IMPORTED_ACTIONS, PlannedSlice, planned_slices
from tidelock.txn.footprint import schema_id_of
from tidelock.txn.heartbeats import heartbeat_key, heartbeat_status
from tidelock.txn.ledger_io import Declined, Undetermined
from tidelock.txn.plans import ClaimRefusal, NotClaimed, import_plan
from tidelock.txn.state import LedgerState
from tidelock.txn.transaction import Transaction
from tidelock.txn.transaction_manager import TransactionManager

_ATTEMPTS_MAX: Final = 5
_CANCEL: Final = "`tidelock services URI cancel INSTANT --force` removes such a plan"
_CLAIM_HINTS: Final = {
    ClaimRefusal.DEAD: "it can only be rolled back; run a clean",
    ClaimRefusal.GONE: "list pending plans with `tidelock services URI`",
    ClaimRefusal.UNSURE: "try again",
}


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """A plan to schedule, its file groups, and the ledger state it is based on."""

    plan: TimelineRecord
    base: LedgerState
    targets: frozenset[GroupId] = frozenset()
    removable: bool = False


@dataclass(frozen=True, slots=True)
class ExecutedPlan:
    """The result of an executed plan."""

    instant: str
    completion: str
    files_written: int
    bytes_written: int


def schedule_plan(
    transactions: TransactionManager, action: Action, make: Callable[[], PlanDraft | None]
) -> str | None:
    """Schedule the plan that `make` returns for the current table; None if it returns None.

    Raises: `Conflict` if concurrent writes invalidated the plan each time, `Unsupported` for a
    table that cannot be changed, even if there is nothing to plan.
    """
    transactions.check_writable()
    for left in reversed(range(_ATTEMPTS_MAX)):
        try:
            # Another process may complete or roll back a pending plan while `make` reads it.
            draft = make()
            if draft is None:
                return None
            pending = transactions.schedule(
                action, draft.plan, draft.targets, base=draft.base, removable=draft.removable
            )
        except Conflict:
            if not left:
                raise
            continue
        report_scheduled(transactions, action.value, pending.instant)
        return pending.instant
    return None


@dataclass(frozen=True, slots=True)
class PlannedService(ABC):
    """A table service that schedules and executes plans of one action."""

    writer: TableWriter
    action: ClassVar[Action]

    def pending(self) -> tuple[str, ...]:
        """Return the pending plans, oldest first.

        Includes the plans of Java writers if mixed writing is enabled.
        """
        plans = self.writer.transactions.ledger.refresh().plans.values()
        ours = (plan.instant for plan in plans if plan.action is self.action)
        return tuple(sorted((*ours, *external_plans(self.writer, self.action))))

    @abstractmethod
    def execute(self, instant: str) -> ExecutedPlan:
        """Execute a plan. The table's rows do not change.

        Raises: `Conflict` if another process executes the plan or it is not pending. A service that
        rewrites file groups also raises `WriteConflict` if a concurrent commit changed one of them,
        in which case the plan is rolled back, and `DataCorrupt` if the plan is unreadable or names
        files that do not exist.
        """


@contextmanager
def claimed(
    transactions: TransactionManager, instant: str, operation: OperationType
) -> Iterator[Transaction]:
    """Claim a plan for the duration of the block; the claim is released if nothing is committed.

    Raises: `Conflict` with the reason why the plan cannot be executed now.
    """
    claim = transactions.claim(instant, operation)
    if isinstance(claim, NotClaimed):
        report_refused(transactions, operation.value.lower(), instant, claim.message)
        retry = f"try again in {claim.alive_ms / 1000:.0f} s at the earliest"
        raise Conflict(
            f"{transactions.store.uri}: the plan {instant} was not claimed: {claim.message}",
            hint=_CLAIM_HINTS.get(claim.refusal, retry),
        )
    with observe_execution(transactions, operation.value.lower(), instant), claim as transaction:
        try:
            yield transaction
        except (DataCorrupt, NotFound) as error:
            # After another process took the plan over, its input files may have been deleted.
            if transaction.is_aborted():
                raise Conflict(
                    f"{transactions.store.uri}: the plan {instant} was taken over after its"
                    f" heartbeat expired: {error}",
                    hint="it was rolled back, or another process completes it; list pending plans"
                    " with `tidelock services URI`",
                ) from error
            raise


@contextmanager
def claimed_rewrite(
    writer: TableWriter, instant: str, action: Action, operation: OperationType
) -> Iterator[Transaction]:
    """Import a plan if it is external, and claim it. A plan that became invalid is removed."""
    import_external_plan(writer, instant, action)
    transactions = writer.transactions
    try:
        with claimed(transactions, instant, operation) as transaction:
            yield transaction
    except WriteConflict as error:
        if isinstance(error.report, ConflictReport) and error.report.groups:
            # Its input files will never be current again, so nobody can execute the plan.
            transactions.remove_plan(instant, delay_ms=0, forced=True)
        raise


def rewrite_draft(
    writer: TableWriter, metadata: CommitMetadata, operation: OperationType
) -> CommitDraft:
    """Return the commit of a service that rewrites rows with the current schema."""
    view = writer.view()
    avro = writer.schema(view).avro
    return CommitDraft(
        metadata=replace(metadata, extra_metadata={SCHEMA_KEY: avro}, operation_type=operation),
        operation=operation,
        schema_id=schema_id_of(avro),
        schema_base=view.state.position,
    )


def commit_plan(
    transaction: Transaction,
    draft: CommitDraft,
    results: Sequence[FileResult] = (),
    *,
    preemptible: bool = False,
) -> ExecutedPlan:
    """Commit an executed plan. After a conflict, one that is `preemptible` is rolled back.

    Raises: `WriteConflict`, `OutcomeUnknown`.
    """
    outcome = transaction.commit(draft)
    match outcome:
        case Committed(instant, completion):
            size = sum(result.stat.total_write_bytes or 0 for result in results)
            return ExecutedPlan(instant, completion, len(results), size)
        case Unknown(cause):
            raise OutcomeUnknown(
                f"{transaction.instant} may or may not have been committed: {cause}",
                hint="check the timeline before executing it again",
            )
        case Conflicted():
            if preemptible:
                transaction.rollback(conflict=outcome)
            raise conflict_of(outcome)


def conflict_of(outcome: Conflicted) -> WriteConflict:
    """Return the error for a plan that lost against a concurrent commit."""
    report = outcome.verdict.report
    return WriteConflict(str(report), hint=report.advice, report=report)


def external_plans(writer: TableWriter, action: Action) -> tuple[str, ...]:
    """Return the pending plans on the timeline that are not in the ledger, oldest first.

    Empty unless mixed writing is enabled.
    """
    txns = writer.transactions
    if not txns.runs_external_plans or action not in IMPORTED_ACTIONS:
        return ()
    timeline = load_timeline(writer.store, writer.properties.timeline_folder)
    return tuple(i.requested for i in timeline.pending(action) if _is_unknown(writer, i.requested))


def import_external_plan(writer: TableWriter, instant: str, action: Action) -> None:
    """Import a plan that is on the timeline and not in the ledger.

    Concurrent imports agree: the entry is appended once. Raises: `Conflict` if another writer
    executes the plan, or if its input files are not current any more; `DataCorrupt`,
    `OutcomeUnknown`.
    """
    txns = writer.transactions
    if instant in txns.ledger.state.plans:
        return
    txns.ledger.refresh()
    for left in reversed(range(_ATTEMPTS_MAX)):
        timeline = load_timeline(writer.store, writer.properties.timeline_folder)
        found = next((i for i in timeline.pending(action) if i.requested == instant), None)
        if found is None or not _is_unknown(writer, instant):
            return  # the claim reports what happened to the plan
        if not txns.runs_external_plans:
            raise Conflict(
                f"{writer.store.uri}: the {action} {instant} was scheduled by an external writer",
                hint="to execute it here, set tidelock.write.mixed=true and the lock provider of"
                " that writer; or cancel it with `tidelock services URI cancel INSTANT`",
            )
        problem = _append_import(writer, timeline, found)
        if problem is None:
            return
        if not left:
            raise Conflict(
                f"{writer.store.uri}: the {action} {instant} was not imported: {problem}",
                hint=_CANCEL,
            )


def _is_unknown(writer: TableWriter, instant: str) -> bool:
    state = writer.transactions.ledger.state
    return not (instant in state.plans or state.is_resolved(instant))


def _append_import(writer: TableWriter, timeline: ActiveTimeline, found: Instant) -> str | None:
    """Append the ledger entry of an import; return why it was declined, None if it was not."""
    txns, instant, action = writer.transactions, found.requested, found.action
    _check_not_executing(writer, instant)
    key = timeline.key(Instant(instant, action, InstantState.REQUESTED))
    held = writer.store.get(key)
    if held is None:
        raise Conflict(f"{writer.store.uri}/{key} does not exist any more", hint=_CANCEL)
    slices = planned_slices(action, held.body, where=f"{writer.store.uri}/{key}")
    view = writer.view()
    current, planned = view.file_slices(), _slices_at(writer, instant)
    for piece in slices:
        group = piece.group
        problem = _mismatch(piece, action, instant, current.get(group), planned.get(group))
        if problem is not None:
            raise Conflict(
                f"{writer.store.uri}: the {action} {instant} cannot be executed: {problem}"
                f" (file group {'/'.join(group)})",
                hint=_CANCEL,
            )
    targets = frozenset(piece.group for piece in slices)
    fact = ImportPlan(instant, action, targets, removable=action is not Action.COMPACTION)
    with txns.table_change() as check:
        # Under the lock nobody can complete or roll back the plan unnoticed.
        txns.ledger.refresh()
        steps = import_plan(txns.ledger.view, fact, base=view.state.position, owner=txns.owner)
        result = txns.ledger.run(steps, check)
    txns.ledger.advance(result.view)
    if isinstance(result, Undetermined):
        raise OutcomeUnknown(
            f"{writer.store.uri}: the {action} {instant} may or may not have been imported:"
            f" {result.outcome.cause}",
            hint="try again",
        )
    return result.reason if isinstance(result, Declined) else None


def _check_not_executing(writer: TableWriter, instant: str) -> None:
    """Raise `Conflict` if the plan's own writer executes it, by Hudi's heartbeat."""
    txns = writer.transactions
    held = txns.store.get(heartbeat_key(instant))
    if held is None or not txns.settings.guard:
        return
    heartbeat, now = heartbeat_status(instant, held), txns.clock.now()
    if heartbeat.is_alive(now.wall_epoch_ms, default_lifetime_ms=txns.lifetime_ms):
        raise Conflict(
            f"{txns.store.uri}: the plan {instant} was not claimed: another writer is executing it",
            hint="try again when that writer has ended or its heartbeat has expired",
        )


def _slices_at(writer: TableWriter, instant: str) -> dict[GroupId, FileSlice]:
    """Return the file slices at the time of a plan."""
    aborted = frozenset(writer.transactions.ledger.state.aborted)
    timeline = load_timeline(writer.store, writer.properties.timeline_folder)
    timeline = timeline.without_completed(aborted)
    found = TableSnapshot(writer.store, writer.properties, timeline, aborted).slices_until(instant)
    return {(piece.partition, piece.file_id): piece for piece in found}


def _mismatch(
    piece: PlannedSlice,
    action: Action,
    instant: str,
    current: FileSlice | None,
    planned: FileSlice | None,
) -> str | None:
    """Return why a file group cannot be rewritten as planned; None if it can.

    A compaction must read all log files that were complete when it was requested, because its base
    file hides them. The other services must read all log files that exist.
    """
    if current is None:
        return "the file group does not exist any more"
    if (current.base.name if current.base else "") != piece.base:
        return "its base file has changed"
    match action:
        case Action.COMPACTION:
            needed = {log.name for log in planned.logs} if planned is not None else set()
        case Action.LOG_COMPACTION:
            needed = {log.name for log in current.logs if log.instant < instant}
        case _:
            needed = {log.name for log in current.logs}
    return None if needed == piece.logs else "its log files differ from those of the plan"
