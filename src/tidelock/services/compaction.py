"""Compaction: merges the log files of file groups into new base files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tidelock.core.limits import MIB
from tidelock.execution.filegroup.context import FileResult
from tidelock.execution.service_tasks import CompactSlice
from tidelock.hudi.file_groups import FileSlice, GroupId
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import (
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    OperationType,
)
from tidelock.operations.file_view import TableView
from tidelock.operations.write import TableWriter
from tidelock.services.pending import external_groups, input_files, input_group
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
from tidelock.txn.transaction import Transaction

NEW_BASE_MB: Final = 120
"""The size that Hudi assumes for the first base file of a file group."""


class CompactionTrigger(StrEnum):
    """The conditions under which a compaction is due."""

    NUM_COMMITS = "NUM_COMMITS"
    NUM_COMMITS_AFTER_LAST_REQUEST = "NUM_COMMITS_AFTER_LAST_REQUEST"
    TIME_ELAPSED = "TIME_ELAPSED"
    NUM_AND_TIME = "NUM_AND_TIME"
    NUM_OR_TIME = "NUM_OR_TIME"


class CompactionPlanStrategy(StrEnum):
    """Hudi's strategy classes: they filter, order and limit the file groups of a plan."""

    LOG_FILE_SIZE = "LogFileSizeBasedCompactionStrategy"
    LOG_FILE_NUM = "LogFileNumBasedCompactionStrategy"
    BOUNDED_IO = "BoundedIOCompactionStrategy"
    UNBOUNDED = "UnBoundedCompactionStrategy"
    DAY_BASED = "DayBasedCompactionStrategy"
    RECENT_DAYS = "BoundedPartitionAwareCompactionStrategy"
    EARLIER_DAYS = "UnBoundedPartitionAwareCompactionStrategy"
    PARTITION_REGEX = "PartitionRegexBasedCompactionStrategy"


DELTA_COMMITS: Final = 5
DELTA_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class TriggerRule:
    """The trigger and its thresholds."""

    trigger: CompactionTrigger = CompactionTrigger.NUM_COMMITS
    delta_commits: int = DELTA_COMMITS
    delta_seconds: int = DELTA_SECONDS


@dataclass(frozen=True, slots=True)
class SinceCompaction:
    """Delta commits since the last completed and the last requested compaction, and its age.

    Before the first compaction the age is that of the first delta commit.
    """

    commits_since_completed: int
    commits_since_requested: int
    seconds: float


IO_MB_MAX: Final = 500 * 1024
DAYS: Final = 10


@dataclass(frozen=True, slots=True)
class CompactionRule:
    """A plan strategy with its options; the strategies in `then` filter its result further.

    `io_mb_max` limits the megabytes that one plan reads and writes. `days` is the number of latest
    partitions to compact; `earliest_day` separates recent from earlier partitions (partitions are
    days, as 2024-01-31 or 2024/01/31). `pattern` is a regular expression for partition paths.
    """

    strategy: CompactionPlanStrategy = CompactionPlanStrategy.LOG_FILE_SIZE
    io_mb_max: int = IO_MB_MAX
    log_bytes_min: int = 0
    log_files_min: int = 0
    days: int = DAYS
    earliest_day: str = ""
    pattern: str = ""
    then: tuple[CompactionPlanStrategy, ...] = ()


def is_due(rule: TriggerRule, since: SinceCompaction) -> bool:
    """Return whether a compaction is due."""
    enough = since.commits_since_completed >= rule.delta_commits
    late = since.seconds >= rule.delta_seconds
    match rule.trigger:
        case CompactionTrigger.NUM_COMMITS:
            return enough
        case CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST:
            return since.commits_since_requested >= rule.delta_commits
        case CompactionTrigger.TIME_ELAPSED:
            return late
        case CompactionTrigger.NUM_AND_TIME:
            return enough and late
        case CompactionTrigger.NUM_OR_TIME:
            return enough or late


def plan_compaction(
    slices: Iterable[FileSlice], rule: CompactionRule, *, busy: Collection[GroupId] = ()
) -> CompactionPlan | None:
    """Return the plan for the latest slices of a table; None if there is nothing to compact.

    File groups in `busy` belong to another pending plan. The strategy orders the plan; ties are
    ordered by partition and file id, so that the same slices always give the same plan.
    """
    every = list(slices)
    ready = [
        piece for piece in every if piece.logs and (piece.partition, piece.file_id) not in busy
    ]
    ready.sort(key=lambda piece: (piece.partition, piece.file_id))
    days = sorted({_day(piece) for piece in every}, reverse=True)
    for strategy in (rule.strategy, *rule.then):
        passing = [piece for piece in ready if _passes(piece, strategy, rule, days)]
        ready = _within(_ordered(passing, strategy), strategy, rule)
    if not ready:
        return None
    return CompactionPlan(operations=tuple(operation_of(piece) for piece in ready))


def _passes(
    piece: FileSlice, strategy: CompactionPlanStrategy, rule: CompactionRule, days: Sequence[str]
) -> bool:
    day = _day(piece)
    match strategy:
        case CompactionPlanStrategy.LOG_FILE_SIZE:
            return log_bytes(piece) >= rule.log_bytes_min
        case CompactionPlanStrategy.LOG_FILE_NUM:
            return len(piece.logs) >= rule.log_files_min
        case CompactionPlanStrategy.DAY_BASED:
            return day in days[: rule.days]
        case CompactionPlanStrategy.RECENT_DAYS:
            return day >= rule.earliest_day
        case CompactionPlanStrategy.EARLIER_DAYS:
            return day < rule.earliest_day
        case CompactionPlanStrategy.PARTITION_REGEX:
            return re.search(rule.pattern, piece.partition) is not None
        case CompactionPlanStrategy.BOUNDED_IO | CompactionPlanStrategy.UNBOUNDED:
            return True


def _ordered(slices: list[FileSlice], strategy: CompactionPlanStrategy) -> list[FileSlice]:
    keys: dict[CompactionPlanStrategy, Callable[[FileSlice], int | str]] = {
        CompactionPlanStrategy.LOG_FILE_SIZE: log_bytes,
        CompactionPlanStrategy.LOG_FILE_NUM: lambda piece: len(piece.logs),
        CompactionPlanStrategy.DAY_BASED: _day,
        CompactionPlanStrategy.RECENT_DAYS: _day,
        CompactionPlanStrategy.EARLIER_DAYS: _day,
    }
    key = keys.get(strategy)
    return slices if key is None else sorted(slices, key=key, reverse=True)


_BOUNDED: Final = (
    CompactionPlanStrategy.LOG_FILE_SIZE,
    CompactionPlanStrategy.LOG_FILE_NUM,
    CompactionPlanStrategy.BOUNDED_IO,
)


def _within(
    slices: list[FileSlice], strategy: CompactionPlanStrategy, rule: CompactionRule
) -> list[FileSlice]:
    """Return the first slices up to the limit, including the one that exceeds it."""
    if strategy not in _BOUNDED:
        return slices
    left: float = rule.io_mb_max
    for number, piece in enumerate(slices, start=1):
        left -= sum(_io_mb(piece))
        if left <= 0:
            return slices[:number]
    return slices


def _day(piece: FileSlice) -> str:
    """Return a partition path as a day in one notation, for comparisons."""
    return "-".join(part.rpartition("=")[2] for part in piece.partition.split("/"))


def operation_of(piece: FileSlice) -> CompactionOperation:
    """Return the plan entry for one slice."""
    read_mb, write_mb = _io_mb(piece)
    return CompactionOperation(
        base_instant_time=piece.instant,
        file_id=piece.file_id,
        delta_file_paths=tuple(log.name for log in piece.logs),
        data_file_path=piece.base.name if piece.base else None,
        partition_path=piece.partition,
        metrics={
            "TOTAL_LOG_FILES": float(len(piece.logs)),
            "TOTAL_IO_READ_MB": read_mb,
            "TOTAL_IO_WRITE_MB": write_mb,
            "TOTAL_IO_MB": read_mb + write_mb,
            "TOTAL_LOG_FILES_SIZE": float(log_bytes(piece)),
        },
    )


def log_bytes(piece: FileSlice) -> int:
    """Return the total size of a slice's log files."""
    return sum(log.size_bytes for log in piece.logs)


def _io_mb(piece: FileSlice) -> tuple[float, float]:
    """Return the whole megabytes that compacting a slice reads and writes, as Hudi counts."""
    base_bytes = piece.base.size_bytes if piece.base else 0
    read = (base_bytes + log_bytes(piece)) // MIB
    write = base_bytes // MIB if piece.base else NEW_BASE_MB
    return float(read), float(write)


@dataclass(frozen=True, slots=True)
class Compaction(PlannedService):
    """Compaction of one table."""

    action = Action.COMPACTION

    def plan(self, rule: CompactionRule, view: TableView | None = None) -> CompactionPlan | None:
        """Return the plan that would be scheduled now; None if there is nothing to compact."""
        view = view or self.writer.view()
        busy = view.busy | external_groups(self.writer)
        return plan_compaction(view.file_slices().values(), rule, busy=busy)

    def schedule(self, rule: CompactionRule) -> str | None:
        """Schedule a plan and return its instant; None if there is nothing to compact.

        Raises: `Conflict` if concurrent writes invalidated the plan each time.
        """

        def make() -> PlanDraft | None:
            view = self.writer.view()
            plan = self.plan(rule, view)
            return None if plan is None else PlanDraft(plan, view.state, targets(plan))

        return schedule_plan(self.writer.transactions, self.action, make)

    def execute(self, instant: str) -> ExecutedPlan:
        operation = OperationType.COMPACT
        with claimed_rewrite(self.writer, instant, self.action, operation) as transaction:
            plan = load_plan(self.writer, instant, self.action)
            return self._commit(transaction, plan, self._rewrite(plan, transaction))

    def _rewrite(self, plan: CompactionPlan, transaction: Transaction) -> tuple[FileResult, ...]:
        slices = planned_slices(self.writer, plan)
        tasks = [CompactSlice(slot, piece) for slot, piece in enumerate(slices)]
        return self.writer.run_service_tasks(tasks, self.writer.context(transaction))

    def _commit(
        self, transaction: Transaction, plan: CompactionPlan, results: tuple[FileResult, ...]
    ) -> ExecutedPlan:
        metadata = CommitMetadata(partition_to_write_stats=stats_of(results), compacted=True)
        draft = rewrite_draft(self.writer, metadata, OperationType.COMPACT)
        return commit_plan(transaction, replace(draft, touched=targets(plan)), results)


def load_plan(writer: TableWriter, instant: str, action: Action) -> CompactionPlan:
    """Return a claimed plan of a compaction or log compaction. Raises: `DataCorrupt`."""
    timeline = load_timeline(writer.store, writer.properties.timeline_folder)
    return timeline.compaction_plan(Instant(instant, action, InstantState.INFLIGHT))


def targets(plan: CompactionPlan) -> frozenset[GroupId]:
    """Return the file groups of a plan."""
    return frozenset(map(input_group, plan.operations or ()))


def planned_slices(writer: TableWriter, plan: CompactionPlan) -> list[FileSlice]:
    """Return the slices that a plan reads. Raises: `DataCorrupt` if a file does not exist."""
    operations = plan.operations or ()
    hint = "cancel the plan, or restore the file from a backup"
    files = input_files(writer, operations, service="compaction", hint=hint)
    return [
        FileSlice(*input_group(each), each.base_instant_time or "", *found)
        for each, found in zip(operations, files, strict=True)
    ]
