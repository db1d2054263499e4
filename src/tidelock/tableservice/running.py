"""Services by their settings: what each would do, schedules, and executes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from tidelock.base.errors import Conflict, WriteConflict
from tidelock.operation.writer import TableWriter
from tidelock.tableservice import config as c
from tidelock.tableservice.clean.execute import Clean
from tidelock.tableservice.clustering import config as cc
from tidelock.tableservice.clustering.execute import Clustering
from tidelock.tableservice.compaction.execute import Compaction
from tidelock.tableservice.guard import Executed
from tidelock.tableservice.logcompaction.execute import LogCompaction
from tidelock.tableservice.removing import remove_expired


class Planned(Protocol):
    """A service whose plans lie on the timeline."""

    def pending(self) -> tuple[str, ...]:
        """Return the plans that wait to be executed, oldest first."""
        ...

    def execute(self, instant: str) -> Executed:
        """Carry out a plan. Raises: `Conflict` when it cannot be carried out now."""
        ...


@dataclass(frozen=True, slots=True)
class Left:
    """A plan that was not carried out here: somebody else is at it, or came between."""

    instant: str
    why: str
    overtaken: bool = False


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What was undone before a service planned: a failed write, or a plan that nobody executes."""

    instant: str
    action: str
    files_deleted: int = 0


class Outcome(StrEnum):
    """What one run of a service came to."""

    EXECUTED = "executed"
    SCHEDULED = "scheduled"
    NOTHING_TO_DO = "nothing to do"
    LEFT_TO_OTHERS = "left to others"


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run of a service did."""

    scheduled: str | None = None
    executed: tuple[Executed, ...] = ()
    left: tuple[Left, ...] = ()
    rolled_back: tuple[RolledBack, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """What it came to: plans that were left count where no plan was carried out here."""
        if self.executed:
            return Outcome.EXECUTED
        if self.left:
            return Outcome.LEFT_TO_OTHERS
        return Outcome.SCHEDULED if self.scheduled else Outcome.NOTHING_TO_DO


@dataclass(frozen=True, slots=True)
class Service:
    """A service with its settings.

    `preview` says what a plan would cover, as names of file groups or files; nothing is changed.
    `prepare` undoes what the dead left, before anything is planned, and returns it.
    """

    plans: Planned
    schedule: Callable[[], str | None]
    preview: Callable[[], tuple[str, ...]]
    prepare: Callable[[], tuple[RolledBack, ...]] = field(default=lambda: ())

    def plan_anew(self) -> Ran:
        """Undo what the dead left, and schedule."""
        undone = self.prepare()
        return Ran(self.schedule(), rolled_back=undone)

    def execute_pending(self) -> Ran:
        """Execute every plan that waits; those that others execute are left to them."""
        return self._execute(self.plans.pending())

    def run(self) -> Ran:
        """Execute what waits, then plan anew and execute that."""
        undone = self.prepare()
        first = replace(self.execute_pending(), rolled_back=undone)
        scheduled = self.schedule()
        if scheduled is None:
            return first
        then = self._execute((scheduled,))
        return Ran(scheduled, first.executed + then.executed, first.left + then.left, undone)

    def _execute(self, instants: tuple[str, ...]) -> Ran:
        executed: list[Executed] = []
        left: list[Left] = []
        for instant in instants:
            try:
                executed.append(self.plans.execute(instant))
            except Conflict as error:
                overtaken = isinstance(error, WriteConflict)
                left.append(Left(instant, error.message, overtaken))
        return Ran(None, tuple(executed), tuple(left))


def compaction(writer: TableWriter, options: Mapping[str, object]) -> Service:
    """Return the compaction of a table. Raises: `ConfigInvalid`."""
    service, choice = Compaction(writer), c.compaction_choice(options, writer.transactions.clock)

    def preview() -> tuple[str, ...]:
        plan = service.plan(choice)
        found = () if plan is None else plan.operations or ()
        return tuple(_named(each.partition_path, each.file_id) for each in found)

    return Service(service, lambda: service.schedule(choice), preview)


def log_compaction(writer: TableWriter, options: Mapping[str, object]) -> Service:
    """Return the log compaction of a table. Raises: `ConfigInvalid`."""
    threshold = c.LOG_COMPACT_BLOCKS.required(options)
    service = LogCompaction(writer, removable=cc.LOG_COMPACT_REMOVABLE.required(options))

    def undo() -> tuple[RolledBack, ...]:
        return _expired(writer, options)

    def preview() -> tuple[str, ...]:
        plan = service.plan(threshold)
        found = () if plan is None else plan.operations or ()
        return tuple(_named(each.partition_path, each.file_id) for each in found)

    return Service(service, lambda: service.schedule(threshold), preview, undo)


def clean(writer: TableWriter, options: Mapping[str, object]) -> Service:
    """Return the clean of a table: before it plans it undoes what the dead left.

    Raises: `ConfigInvalid`.
    """
    service, keep = Clean(writer), c.clean_keep(options, writer.transactions.clock)

    def undo() -> tuple[RolledBack, ...]:
        report = writer.transactions.recover(delay_ms=cc.plan_delay_ms(options))
        return tuple(
            RolledBack(each.instant, each.action, len(each.files)) for each in report.undone
        )

    def preview() -> tuple[str, ...]:
        plan = service.plan(keep)
        found = {} if plan is None else plan.file_paths_to_be_deleted_per_partition or {}
        return tuple(
            _named(partition, (file.file_path or "").rpartition("/")[2])
            for partition, files in sorted(found.items())
            for file in files
        )

    return Service(service, lambda: service.schedule(keep), preview, undo)


def clustering(writer: TableWriter, options: Mapping[str, object]) -> Service:
    """Return the clustering of a table. Raises: `ConfigInvalid`."""
    copied_min = cc.CLUSTER_COPIED_MIN.required(options)
    removable = cc.CLUSTER_REMOVABLE.required(options)
    service = Clustering(writer, copied_min, cc.clustering_layout(options), removable=removable)
    sizes = cc.clustering_sizes(options, writer.transactions.clock)
    sort_by = cc.sort_columns(options)

    def undo() -> tuple[RolledBack, ...]:
        return _expired(writer, options)

    def preview() -> tuple[str, ...]:
        return tuple(
            _named(piece.partition, piece.file_id)
            for cluster in service.plan(sizes)
            for piece in cluster.slices
        )

    return Service(service, lambda: service.schedule(sizes, sort_by=sort_by), preview, undo)


def _expired(writer: TableWriter, options: Mapping[str, object]) -> tuple[RolledBack, ...]:
    plans = writer.transactions.ledger.refresh().plans
    gone = remove_expired(writer.transactions, delay_ms=cc.plan_delay_ms(options))
    return tuple(RolledBack(each, plans[each].action.value) for each in gone if each in plans)


def _named(partition: str | None, name: str | None) -> str:
    return "/".join(filter(None, (partition, name)))
