"""Log compaction: merges the log files of a file group into one log file.

Writers preempt it: if a write that began earlier appends a log file to a file group of the plan,
the plan is rolled back. Plans are removable unless configured otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from tidelock.core.errors import Unsupported
from tidelock.execution.filegroup.log_files import count_merged_blocks
from tidelock.execution.service_tasks import CompactLogs
from tidelock.hudi.file_groups import FileSlice, GroupId
from tidelock.hudi.properties import MergeMode
from tidelock.hudi.timeline.instant import Action
from tidelock.hudi.timeline.metadata import (
    CommitMetadata,
    CompactionPlan,
    CompactionStrategy,
    OperationType,
)
from tidelock.operations.file_view import TableView
from tidelock.services.compaction import load_plan, operation_of, planned_slices, targets
from tidelock.services.pending import external_groups
from tidelock.services.plans import (
    ExecutedPlan,
    PlanDraft,
    PlannedService,
    claimed_rewrite,
    commit_plan,
    rewrite_draft,
    schedule_plan,
)
from tidelock.txn.commit import stats_of

EXECUTOR: Final = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"
"""The class with which Hudi executes the plan; its default would run a compaction."""


def plan_log_compaction(
    slices: Iterable[FileSlice],
    blocks: Callable[[FileSlice], int],
    *,
    threshold: int,
    busy: Collection[GroupId] = (),
) -> CompactionPlan | None:
    """Return the plan for the latest slices of a table; None if no group has enough blocks.

    `blocks` returns the number of log blocks that a reader of a slice merges. It is called only
    for slices with enough log files, because log files that a log compaction replaced still exist.
    File groups in `busy` belong to another pending plan.
    """
    chosen = [
        piece
        for piece in sorted(slices, key=lambda each: (each.partition, each.file_id))
        if len(piece.logs) >= max(2, threshold)
        and (piece.partition, piece.file_id) not in busy
        and blocks(piece) >= max(2, threshold)
    ]
    if not chosen:
        return None
    return CompactionPlan(
        operations=tuple(operation_of(piece) for piece in chosen),
        strategy=CompactionStrategy(EXECUTOR, {}),
    )


@dataclass(frozen=True, slots=True)
class LogCompaction(PlannedService):
    """Log compaction of one table. `removable` is the kind of the plans that it schedules."""

    action = Action.LOG_COMPACTION
    removable: bool = True

    def plan(self, threshold: int, view: TableView | None = None) -> CompactionPlan | None:
        """Return the plan that would be scheduled now; None if there is nothing to merge.

        Raises: `Unsupported` for a table with a custom record merger.
        """
        writer = self.writer
        view = view or writer.view()
        if writer.properties.merge_mode is MergeMode.CUSTOM:
            raise Unsupported(
                f"{writer.store.uri}: log compaction does not support a custom record merger,"
                " which must see every row",
                hint="run a compaction instead",
            )
        return plan_log_compaction(
            view.file_slices().values(),
            lambda piece: count_merged_blocks(writer.store, piece.logs),
            threshold=threshold,
            busy=view.busy | external_groups(writer),
        )

    def schedule(self, threshold: int) -> str | None:
        """Schedule a plan and return its instant; None if there is nothing to merge.

        Raises: `Conflict` if concurrent writes invalidated the plan each time, `Unsupported`.
        """

        def make() -> PlanDraft | None:
            view = self.writer.view()
            plan = self.plan(threshold, view)
            if plan is None:
                return None
            return PlanDraft(plan, view.state, targets(plan), removable=self.removable)

        return schedule_plan(self.writer.transactions, self.action, make)

    def execute(self, instant: str) -> ExecutedPlan:
        writer, operation = self.writer, OperationType.LOG_COMPACT
        with claimed_rewrite(writer, instant, self.action, operation) as transaction:
            plan = load_plan(writer, instant, self.action)
            slices = planned_slices(writer, plan)
            tasks = [CompactLogs(slot, piece) for slot, piece in enumerate(slices)]
            results = writer.run_service_tasks(tasks, writer.context(transaction))
            metadata = CommitMetadata(partition_to_write_stats=stats_of(results))
            groups = targets(plan)
            draft = rewrite_draft(writer, metadata, operation)
            draft = replace(draft, touched=groups, appended=groups)
            return commit_plan(transaction, draft, results, preemptible=True)
