"""Compaction: planned from the table as it is, executed by whoever claims the plan."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tidelock.base.errors import DataCorrupt
from tidelock.engine.service import Rewrite
from tidelock.kernel.results import FileResult
from tidelock.operation.drafting import schema_id
from tidelock.operation.view import TableView
from tidelock.operation.writer import TableWriter
from tidelock.table.filegroup.listing import list_files
from tidelock.table.filegroup.slice import BaseFile, FileSlice, LogFile
from tidelock.table.filegroup.view import DataFile, GroupId
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import (
    SCHEMA_KEY,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    OperationType,
)
from tidelock.tableservice.adopting import adopted
from tidelock.tableservice.compaction.plan import Choice, plan_compaction
from tidelock.tableservice.guard import Executed, claimed, stale_removed
from tidelock.tableservice.scheduling import Draft, pending, scheduled
from tidelock.tableservice.waiting import foreign_groups
from tidelock.txn.draft import CommitDraft, stats_of
from tidelock.txn.transaction import Transaction

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compaction:
    """Compacts the table of one writer."""

    writer: TableWriter

    def plan(self, choice: Choice) -> CompactionPlan | None:
        """Return what would be compacted now; None for nothing."""
        return self._due(self.writer.view(), choice)

    def _due(self, view: TableView, choice: Choice) -> CompactionPlan | None:
        busy = view.busy | foreign_groups(self.writer)
        return plan_compaction(view.of().values(), choice, busy=busy)

    def schedule(self, choice: Choice) -> str | None:
        """Put a plan on the timeline and return its instant; None if nothing is to be compacted.

        Raises: `Conflict` if writers changed what was planned each time.
        """

        def make() -> Draft | None:
            view = self.writer.view()
            plan = self._due(view, choice)
            return None if plan is None else Draft(plan, view.fold, targets(plan))

        return scheduled(self.writer.transactions, Action.COMPACTION, make)

    def pending(self) -> tuple[str, ...]:
        """Return the plans that wait to be executed, oldest first."""
        return pending(self.writer, Action.COMPACTION)

    def execute(self, instant: str) -> Executed:
        """Carry out a plan. The table's rows stay what they are.

        Raises: `WriteConflict` when a writer replaced a file group of the plan, which is undone
        then; `Conflict` when somebody else is at it or it is not pending; `DataCorrupt` for a plan
        that cannot be read or names files that are gone.
        """
        transactions = self.writer.transactions
        adopted(self.writer, instant, Action.COMPACTION)
        with (
            stale_removed(transactions, instant),
            claimed(transactions, instant, OperationType.COMPACT) as transaction,
        ):
            plan = self._plan(instant)
            results = self._rewritten(plan, transaction)
            return self._commit(transaction, plan, results)

    def _plan(self, instant: str) -> CompactionPlan:
        writer = self.writer
        timeline = load_timeline(writer.store, writer.properties.timeline_folder)
        return timeline.compaction_plan(Instant(instant, Action.COMPACTION, State.INFLIGHT))

    def _rewritten(self, plan: CompactionPlan, transaction: Transaction) -> tuple[FileResult, ...]:
        tasks = [
            Rewrite(slot, piece) for slot, piece in enumerate(planned_slices(self.writer, plan))
        ]
        return self.writer.serve(tasks, self.writer.context(transaction))

    def _commit(
        self, transaction: Transaction, plan: CompactionPlan, results: tuple[FileResult, ...]
    ) -> Executed:
        view = self.writer.view()
        avro = self.writer.schema(view).avro
        draft = CommitDraft(
            metadata=CommitMetadata(
                partition_to_write_stats=stats_of(results),
                compacted=True,
                extra_metadata={SCHEMA_KEY: avro},
                operation_type=OperationType.COMPACT,
            ),
            operation=OperationType.COMPACT,
            touched=targets(plan),
            schema_id=schema_id(avro),
            schema_base=view.fold.position,
        )
        return Executed.of(transaction.commit(draft), transaction, results)


def targets(plan: CompactionPlan) -> frozenset[GroupId]:
    """Return the file groups of a plan."""
    return frozenset(
        (operation.partition_path or "", operation.file_id or "")
        for operation in plan.operations or ()
    )


def planned_slices(writer: TableWriter, plan: CompactionPlan) -> list[FileSlice]:
    """Return the slices that a plan reads. Raises: `DataCorrupt` if a file is gone."""
    operations = plan.operations or ()
    listed = list_files(
        writer.store,
        partitioned=writer.properties.is_partitioned,
        partitions={operation.partition_path or "" for operation in operations},
    )
    files = {file.key: file for file in listed}
    return [planned_slice(operation, files, writer.store.uri) for operation in operations]


def planned_slice(
    operation: CompactionOperation, files: Mapping[str, DataFile], uri: str
) -> FileSlice:
    """Return the slice that an operation compacts. Raises: `DataCorrupt` if a file is gone."""
    partition = operation.partition_path or ""

    def found(name: str) -> DataFile:
        # Plans of older writers name files with their folders.
        key = "/".join(filter(None, (partition, name.rpartition("/")[2])))
        if key not in files:
            raise DataCorrupt(
                f"{uri}/{key} is in the compaction plan and is gone",
                hint="cancel the plan, or restore the file from a copy",
            )
        return files[key]

    base = found(operation.data_file_path) if operation.data_file_path else None
    logs = [found(name) for name in operation.delta_file_paths or ()]
    return FileSlice(
        partition,
        operation.file_id or "",
        operation.base_instant_time or "",
        base if isinstance(base, BaseFile) else None,
        tuple(sorted((log for log in logs if isinstance(log, LogFile)), key=lambda log: log.order)),
    )
