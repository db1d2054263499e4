"""Table services configured by options: preview, schedule, execute."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from tidelock.core.errors import Conflict, WriteConflict
from tidelock.execution.service_tasks import LocalServices, ProgressListener, ServiceEngine
from tidelock.hudi.timeline.metadata import CompactionPlan
from tidelock.operations.write import TableWriter
from tidelock.services import config as c
from tidelock.services.clean import Clean
from tidelock.services.clustering import Clustering
from tidelock.services.compaction import Compaction
from tidelock.services.log_compaction import LogCompaction
from tidelock.services.pending import remove_expired
from tidelock.services.plans import ExecutedPlan, PlannedService
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import StoreAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Skipped:
    """A plan that was not executed: another process executes it, or a write conflicted."""

    instant: str
    why: str
    conflicted: bool = False


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A failed write or an expired plan that was rolled back before a service planned."""

    instant: str
    action: str
    files_deleted: int = 0


class ServiceOutcome(StrEnum):
    """The outcome of one run of a service."""

    EXECUTED = "executed"
    SCHEDULED = "scheduled"
    NOTHING_TO_DO = "nothing to do"
    LEFT_TO_OTHERS = "left to others"


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """The result of one run of a service."""

    scheduled: str | None = None
    executed: tuple[ExecutedPlan, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    rolled_back: tuple[RolledBack, ...] = ()

    @property
    def left(self) -> tuple[Skipped, ...]:
        """The old name of `skipped`; deprecated."""
        warnings.warn(
            "the attribute 'left' is deprecated and will be removed in the next minor release;"
            " use 'skipped'",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.skipped

    @property
    def outcome(self) -> ServiceOutcome:
        """The outcome: executed if any plan was, otherwise skipped, scheduled or nothing to do."""
        if self.executed:
            return ServiceOutcome.EXECUTED
        if self.skipped:
            return ServiceOutcome.LEFT_TO_OTHERS
        return ServiceOutcome.SCHEDULED if self.scheduled else ServiceOutcome.NOTHING_TO_DO


@dataclass(frozen=True, slots=True)
class Service:
    """A service with its options.

    `preview` returns the file groups or files that a plan would cover, without side effects.
    `prepare` rolls back failed writes and expired plans before planning, and returns them.
    """

    plans: PlannedService
    schedule: Callable[[], str | None]
    preview: Callable[[], tuple[str, ...]]
    prepare: Callable[[], tuple[RolledBack, ...]] = field(default=lambda: ())

    def schedule_new(self) -> ServiceRun:
        """Roll back failed writes and expired plans, then schedule a plan."""
        rolled_back = self.prepare()
        return ServiceRun(self.schedule(), rolled_back=rolled_back)

    def execute_pending(self) -> ServiceRun:
        """Execute all pending plans, except those that other processes execute."""
        return self._execute(self.plans.pending())

    def run(self) -> ServiceRun:
        """Execute all pending plans, then schedule and execute a new one."""
        rolled_back = self.prepare()
        first = replace(self.execute_pending(), rolled_back=rolled_back)
        scheduled = self.schedule()
        if scheduled is None:
            return first
        then = self._execute((scheduled,))
        return ServiceRun(
            scheduled, first.executed + then.executed, first.skipped + then.skipped, rolled_back
        )

    def _execute(self, instants: tuple[str, ...]) -> ServiceRun:
        executed: list[ExecutedPlan] = []
        skipped: list[Skipped] = []
        for instant in instants:
            try:
                executed.append(self.plans.execute(instant))
            except Conflict as error:
                # A run is reported together with its table.
                why = error.message.removeprefix(f"{self.plans.writer.store.uri}: ")
                skipped.append(Skipped(instant, why, isinstance(error, WriteConflict)))
        return ServiceRun(None, tuple(executed), tuple(skipped))


def compaction(writer: TableWriter, options: Mapping[str, object]) -> Service:
    """Return the compaction of a table. Raises: `ConfigInvalid`."""
    service, rule = Compaction(writer), c.compaction_rule(options, writer.transactions.clock)
    return Service(service, lambda: service.schedule(rule), lambda: _groups_of(service.plan(rule)))


def log_compaction(writer: TableWriter, options: Mapping[str, object]) -> Service:
    """Return the log compaction of a table. Raises: `ConfigInvalid`."""
    threshold = c.LOG_COMPACT_BLOCKS.required(options)
    service = LogCompaction(writer, removable=c.LOG_COMPACT_REMOVABLE.required(options))
    return Service(
        service,
        lambda: service.schedule(threshold),
        lambda: _groups_of(service.plan(threshold)),
        lambda: _remove_expired(writer, options),
    )


def _groups_of(plan: CompactionPlan | None) -> tuple[str, ...]:
    operations = () if plan is None else plan.operations or ()
    return tuple(_path(each.partition_path, each.file_id) for each in operations)


def clean(writer: TableWriter, options: Mapping[str, object]) -> Service:
    """Return the clean of a table; it rolls back failed writes first. Raises: `ConfigInvalid`."""
    service, retention = Clean(writer), c.clean_retention(options, writer.transactions.clock)

    def prepare() -> tuple[RolledBack, ...]:
        report = writer.transactions.recover(delay_ms=c.plan_delay_ms(options))
        return tuple(
            RolledBack(each.instant, each.action, len(each.files)) for each in report.rolled_back
        )

    def preview() -> tuple[str, ...]:
        plan = service.plan(retention)
        found = {} if plan is None else plan.file_paths_to_be_deleted_per_partition or {}
        return tuple(
            _path(partition, (file.file_path or "").rpartition("/")[2])
            for partition, files in sorted(found.items())
            for file in files
        )

    return Service(service, lambda: service.schedule(retention), preview, prepare)


def clustering(writer: TableWriter, options: Mapping[str, object]) -> Service:
    """Return the clustering of a table. Raises: `ConfigInvalid`."""
    copied_min = c.CLUSTER_COPIED_MIN.required(options)
    removable = c.CLUSTER_REMOVABLE.required(options)
    service = Clustering(writer, copied_min, c.clustering_layout(options), removable=removable)
    rule = c.clustering_rule(options, writer.transactions.clock)
    sort_by = c.sort_columns(options)

    def preview() -> tuple[str, ...]:
        return tuple(
            _path(piece.partition, piece.file_id)
            for cluster in service.plan(rule)
            for piece in cluster.slices
        )

    return Service(
        service,
        lambda: service.schedule(rule, sort_by=sort_by),
        preview,
        lambda: _remove_expired(writer, options),
    )


def _remove_expired(writer: TableWriter, options: Mapping[str, object]) -> tuple[RolledBack, ...]:
    plans = writer.transactions.ledger.refresh().plans
    removed = remove_expired(writer.transactions, delay_ms=c.plan_delay_ms(options))
    return tuple(RolledBack(each, plans[each].action.value) for each in removed if each in plans)


def _path(partition: str | None, name: str | None) -> str:
    return "/".join(filter(None, (partition, name)))


def services_engine(
    store: ObjectStore,
    options: Mapping[str, object],
    spark: SparkSession | None,
    watch: ProgressListener | None = None,
) -> ServiceEngine:
    """Return the engine for table services. Raises: `ConfigInvalid`, `Unsupported`."""
    listener = watch or ProgressListener()
    if spark is None:
        return LocalServices(store, listener=listener)
    from tidelock.execution.spark.services import SparkServices
    from tidelock.execution.spark.session import check_session

    address = StoreAddress(store.uri, dict(options))
    return SparkServices(
        check_session(spark), address, c.SPARK_DRIVER_BYTES.value(options), listener=listener
    )
