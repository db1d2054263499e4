"""Log compaction: the log files of a file group merged into one; writers come first.

Where a writer that began before it adds a log file to what is being merged, the log compaction
gives way, and its plan is undone. A plan is removable, unless it was configured to stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.base.errors import Unsupported
from tidelock.engine.service import Condense
from tidelock.kernel.condense import blocks_that_count
from tidelock.kernel.results import FileResult
from tidelock.operation.drafting import schema_id
from tidelock.operation.view import TableView
from tidelock.operation.writer import TableWriter
from tidelock.table.properties import MergeMode
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import (
    SCHEMA_KEY,
    CommitMetadata,
    CompactionPlan,
    OperationType,
)
from tidelock.tableservice.adopting import adopted
from tidelock.tableservice.compaction.execute import planned_slices, targets
from tidelock.tableservice.guard import Executed, claimed, stale_removed
from tidelock.tableservice.logcompaction.plan import plan_log_compaction
from tidelock.tableservice.scheduling import Draft, pending, scheduled
from tidelock.tableservice.waiting import foreign_groups
from tidelock.txn.draft import CommitDraft, Overtaken, stats_of
from tidelock.txn.transaction import Transaction


@dataclass(frozen=True, slots=True)
class LogCompaction:
    """Merges the log files of the table of one writer; its plans are removable, or stay."""

    writer: TableWriter
    removable: bool = True

    def plan(self, threshold: int) -> CompactionPlan | None:
        """Return what would be merged now; None for nothing.

        Raises: `Unsupported` for a table that merges by a class of its own.
        """
        return self._due(self.writer.view(), threshold)

    def _due(self, view: TableView, threshold: int) -> CompactionPlan | None:
        writer = self.writer
        if writer.properties.merge_mode is MergeMode.CUSTOM:
            raise Unsupported(
                f"{writer.store.uri} merges by a class of its own, which must see every row",
                hint="compact such a table instead",
            )
        busy = view.busy | foreign_groups(writer)
        return plan_log_compaction(
            view.of().values(),
            lambda piece: blocks_that_count(writer.store, piece.logs),
            threshold=threshold,
            busy=busy,
        )

    def schedule(self, threshold: int) -> str | None:
        """Put a plan on the timeline and return its instant; None if nothing is to be merged.

        Raises: `Conflict` if writers changed what was planned each time, `Unsupported`.
        """

        def make() -> Draft | None:
            view = self.writer.view()
            plan = self._due(view, threshold)
            if plan is None:
                return None
            return Draft(plan, view.fold, targets(plan), removable=self.removable)

        return scheduled(self.writer.transactions, Action.LOG_COMPACTION, make)

    def pending(self) -> tuple[str, ...]:
        """Return the plans that wait to be executed, oldest first."""
        return pending(self.writer, Action.LOG_COMPACTION)

    def execute(self, instant: str) -> Executed:
        """Carry out a plan. The table's rows stay what they are.

        Raises: `WriteConflict` when a writer was in the way, whereupon the plan is undone;
        `Conflict` when somebody else is at it or it is not pending; `DataCorrupt` for a plan that
        cannot be read or names files that are gone.
        """
        adopted(self.writer, instant, Action.LOG_COMPACTION)
        home = self.writer.transactions
        with (
            stale_removed(home, instant),
            claimed(home, instant, OperationType.LOG_COMPACT) as transaction,
        ):
            plan = self._plan(instant)
            slices = planned_slices(self.writer, plan)
            tasks = [Condense(slot, piece) for slot, piece in enumerate(slices)]
            results = self.writer.serve(tasks, self.writer.context(transaction))
            return self._commit(transaction, plan, results)

    def _plan(self, instant: str) -> CompactionPlan:
        writer = self.writer
        timeline = load_timeline(writer.store, writer.properties.timeline_folder)
        return timeline.compaction_plan(Instant(instant, Action.LOG_COMPACTION, State.INFLIGHT))

    def _commit(
        self, transaction: Transaction, plan: CompactionPlan, results: tuple[FileResult, ...]
    ) -> Executed:
        view = self.writer.view()
        avro = self.writer.schema(view).avro
        groups = targets(plan)
        draft = CommitDraft(
            metadata=CommitMetadata(
                partition_to_write_stats=stats_of(results),
                extra_metadata={SCHEMA_KEY: avro},
                operation_type=OperationType.LOG_COMPACT,
            ),
            operation=OperationType.LOG_COMPACT,
            touched=groups,
            appended=groups,
            schema_id=schema_id(avro),
            schema_base=view.fold.position,
        )
        outcome = transaction.commit(draft)
        if isinstance(outcome, Overtaken):
            # The ledger is to say who was in the way.
            transaction.rollback(overtaken=outcome)
        return Executed.of(outcome, transaction, results)
