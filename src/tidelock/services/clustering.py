"""Clustering: rewrites rows into fewer or better sorted file groups.

Writers preempt it: if a write changes a file group of the plan, the plan is rolled back, and the
next one starts from the new state.

A removable plan is started only once. A plan that is not removable can be started again after the
files of the previous attempt are deleted. Both attempts write the same file groups, so that a
reader that lists files never sees a group twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid5

from pyarrow import types as pt

from tidelock.core.config import comma_list
from tidelock.core.errors import ConfigInvalid, Conflict, DataCorrupt, Unsupported
from tidelock.core.limits import MIB
from tidelock.execution.filegroup.clustering import COLUMNS_MAX, LayoutStrategy
from tidelock.execution.filegroup.context import FileResult, WriteContext
from tidelock.execution.filegroup.key_lookup import IndexKind
from tidelock.execution.filegroup.parquet_splice import GROUP_BYTES_MIN
from tidelock.execution.service_tasks import ClusterSlices
from tidelock.hudi.file_groups import BaseFile, FileSlice, GroupId, LogFile, file_id
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import (
    ClusteringGroup,
    ClusteringPlan,
    ClusteringStrategy,
    OperationType,
    ReplaceCommitMetadata,
    RequestedReplaceMetadata,
    SliceInfo,
)
from tidelock.operations.file_view import TableView
from tidelock.services.pending import external_groups, input_files, input_group
from tidelock.services.plans import (
    ExecutedPlan,
    PlanDraft,
    PlannedService,
    claimed_rewrite,
    commit_plan,
    conflict_of,
    rewrite_draft,
    schedule_plan,
)
from tidelock.txn.commit import stats_of
from tidelock.txn.conflicts import Conflicted, ConflictReport, Preempted
from tidelock.txn.footprint import CommitKind, Footprint
from tidelock.txn.transaction import Transaction

_HOURS: Final = 24
RECENT_PARTITIONS: Final = 2


class PartitionSelection(StrEnum):
    """Hudi's modes of selecting partitions."""

    NONE = "NONE"
    RECENT_DAYS = "RECENT_DAYS"
    SELECTED_PARTITIONS = "SELECTED_PARTITIONS"
    DAY_ROLLING = "DAY_ROLLING"


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Selects the partitions of a plan.

    The mode selects the last `recent` partitions by name after skipping `skipped`; those from
    `begin` to `end` (either may be empty); or every 24th partition, by the `hour` of the day. It
    applies to the partitions in `selected` that fully match `pattern`, where these are given.
    """

    mode: PartitionSelection = PartitionSelection.NONE
    recent: int = RECENT_PARTITIONS
    skipped: int = 0
    begin: str = ""
    end: str = ""
    hour: int = 0
    selected: frozenset[str] = frozenset()
    pattern: str = ""

    def of(self, partitions: Iterable[str]) -> frozenset[str]:
        """Return the selected partitions."""
        known = [each for each in sorted(set(partitions), reverse=True) if self._matches(each)]
        match self.mode:
            case PartitionSelection.NONE:
                return frozenset(known)
            case PartitionSelection.RECENT_DAYS:
                last = self.skipped + self.recent if self.recent > 0 else None
                return frozenset(known[self.skipped : last])
            case PartitionSelection.SELECTED_PARTITIONS:
                return frozenset(
                    each
                    for each in known
                    if (not self.begin or each >= self.begin) and (not self.end or each <= self.end)
                )
            case PartitionSelection.DAY_ROLLING:
                ordered = sorted(known)
                mine = range(self.hour % _HOURS, len(ordered), _HOURS)
                return frozenset(ordered[index] for index in mine)

    def _matches(self, partition: str) -> bool:
        if self.selected and partition not in self.selected:
            return False
        return not self.pattern or re.fullmatch(self.pattern, partition) is not None


SMALL_FILE_BYTES: Final = 300 * MIB
TARGET_FILE_BYTES: Final = 1024 * MIB
GROUP_BYTES_MAX: Final = 2048 * MIB
GROUPS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class ClusteringRule:
    """The options of the size-based plan strategy.

    Files below `small_bytes` are candidates. Groups of up to `group_bytes_max` are rewritten into
    files of about `target_bytes`; a plan has at most `groups_max` groups. A group of one file is
    skipped unless `single_files` is set (to sort it). With `file_by_file` each file is a group of
    its own, whose rows are only sorted.
    """

    small_bytes: int = SMALL_FILE_BYTES
    target_bytes: int = TARGET_FILE_BYTES
    group_bytes_max: int = GROUP_BYTES_MAX
    groups_max: int = GROUPS_MAX
    single_files: bool = False
    file_by_file: bool = False
    partitions: PartitionFilter = field(default_factory=PartitionFilter)


@dataclass(frozen=True, slots=True)
class Cluster:
    """File slices of one partition that are rewritten into `outputs` file groups."""

    partition: str
    slices: tuple[FileSlice, ...]
    outputs: int


def plan_clustering(
    slices: Iterable[FileSlice], rule: ClusteringRule, *, busy: Collection[GroupId] = ()
) -> tuple[Cluster, ...]:
    """Return the clusters of a plan for the latest slices; empty if there is nothing to cluster.

    File groups in `busy` belong to another pending plan. Large files come first within a
    partition, so that each cluster is filled before the next begins.
    """
    partitions: dict[str, list[FileSlice]] = {}
    for piece in slices:
        free = (piece.partition, piece.file_id) not in busy
        if free and piece.base is not None and piece.base.size_bytes < rule.small_bytes:
            partitions.setdefault(piece.partition, []).append(piece)
    clusters: list[Cluster] = []
    for partition in sorted(rule.partitions.of(partitions)):
        most = 0 if rule.file_by_file else rule.group_bytes_max
        clusters += [
            Cluster(partition, packed, max(1, -(-_total_bytes(packed) // rule.target_bytes)))
            for packed in _packed(partitions[partition], most)
            if len(packed) > 1 or rule.single_files or rule.file_by_file
        ]
    return tuple(clusters[: rule.groups_max])


def _packed(slices: Sequence[FileSlice], bytes_max: int) -> Iterator[tuple[FileSlice, ...]]:
    packed: list[FileSlice] = []
    room = bytes_max
    for piece in sorted(slices, key=lambda piece: (-piece.size_bytes, piece.file_id)):
        if packed and piece.size_bytes > room:
            yield tuple(packed)
            packed, room = [], bytes_max
        packed.append(piece)
        room -= piece.size_bytes
    if packed:
        yield tuple(packed)


def _total_bytes(slices: Sequence[FileSlice]) -> int:
    return sum(piece.size_bytes for piece in slices)


SORT_PARAM: Final = "hoodie.clustering.plan.strategy.sort.columns"
LAYOUT_PARAM: Final = "hoodie.layout.optimize.strategy"
TARGET_PARAM: Final = "hoodie.clustering.plan.strategy.target.file.max.bytes"
"""Parameters in plans; they have the names of the keys that they are made from."""
STRATEGY: Final = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
"""The class with which Hudi executes the plan."""


_MISSING_FILE: Final = (
    "schedule a new plan; `tidelock services URI cancel INSTANT` removes one that is not removable"
)
_GROUPS: Final = UUID("7d0f6f0a-51f4-5c35-9a2e-0d2f7b6c4e19")
"""Namespace of file group ids: every attempt at a plan derives the same ids."""


@dataclass(frozen=True, slots=True)
class Clustering(PlannedService):
    """Clustering of one table.

    Files whose row groups have `copied_bytes_min` on average are copied without decoding, unless
    rows are sorted. `layout` is the sort order for several columns, unless the plan has one.
    `removable` is the kind of the plans that are scheduled.
    """

    action = Action.CLUSTERING
    copied_bytes_min: int = GROUP_BYTES_MIN
    layout: LayoutStrategy = LayoutStrategy.LINEAR
    removable: bool = True

    def plan(self, rule: ClusteringRule, view: TableView | None = None) -> tuple[Cluster, ...]:
        """Return the clusters that would be scheduled now. Raises: `Unsupported`."""
        view = view or self.writer.view()
        if self.writer.settings.index is IndexKind.BUCKET:
            raise Unsupported(
                f"{self.writer.store.uri}: clustering does not support a bucket index, which maps"
                " each key to one file group",
                hint="run compactions only",
            )
        busy = view.busy | external_groups(self.writer)
        return plan_clustering(view.file_slices().values(), rule, busy=busy)

    def schedule(self, rule: ClusteringRule, *, sort_by: Sequence[str] = ()) -> str | None:
        """Schedule a plan and return its instant; None if there is nothing to cluster.

        Raises: `ConfigInvalid` for columns that rows cannot be sorted by, `Unsupported`,
        `Conflict` if concurrent writes invalidated the plan each time.
        """
        self._check_sort(sort_by)

        def make() -> PlanDraft | None:
            view = self.writer.view()
            clusters = self.plan(rule, view)
            if not clusters:
                return None
            groups = frozenset(_group(piece) for each in clusters for piece in each.slices)
            request = self._request(clusters, rule, sort_by)
            return PlanDraft(request, view.state, groups, removable=self.removable)

        return schedule_plan(self.writer.transactions, self.action, make)

    def execute(self, instant: str) -> ExecutedPlan:
        writer, operation = self.writer, OperationType.CLUSTER
        with claimed_rewrite(writer, instant, self.action, operation) as transaction:
            plan = self._load_plan(instant)
            clusters = self._clusters(plan)
            sources = frozenset(_group(piece) for cluster in clusters for piece in cluster)
            results = self._rewrite(plan, clusters, transaction, sources)
            replaced: dict[str, tuple[str, ...]] = {}
            for partition, each in sorted(sources):
                replaced[partition] = (*replaced.get(partition, ()), each)
            metadata = ReplaceCommitMetadata(
                partition_to_write_stats=stats_of(results), partition_to_replace_file_ids=replaced
            )
            created = frozenset((result.partition, result.file_id) for result in results)
            draft = rewrite_draft(writer, metadata, operation)
            draft = replace(draft, created=created, replaced=sources)
            return commit_plan(transaction, draft, results, preemptible=True)

    def _check_sort(self, columns: Sequence[str]) -> None:
        schema = self.writer.columns()
        for name in columns:
            known = name in schema.names
            if not known or pt.is_nested(schema.field(name).type):
                problem = "is nested and cannot be sorted" if known else "is not in the table"
                raise ConfigInvalid(
                    f"{SORT_PARAM}: the column {name!r} {problem}",
                    hint=f"use columns of {', '.join(schema.names)}",
                )
        if self.layout is not LayoutStrategy.LINEAR and len(columns) > COLUMNS_MAX:
            raise ConfigInvalid(
                f"{SORT_PARAM}: the layout {self.layout} takes at most {COLUMNS_MAX} columns,"
                f" got {len(columns)}",
                hint=f"use fewer columns, or set {LAYOUT_PARAM}={LayoutStrategy.LINEAR}",
            )

    def _request(
        self, clusters: Sequence[Cluster], rule: ClusteringRule, sort_by: Sequence[str]
    ) -> RequestedReplaceMetadata:
        params = {TARGET_PARAM: str(rule.target_bytes)}
        if sort_by:
            params[SORT_PARAM] = ",".join(sort_by)
            params[LAYOUT_PARAM] = self.layout.value
        plan = ClusteringPlan(
            input_groups=tuple(self._group_record(cluster) for cluster in clusters),
            strategy=ClusteringStrategy(STRATEGY, params),
            extra_metadata={},
            preserve_hoodie_metadata=True,
        )
        return RequestedReplaceMetadata(
            operation_type=OperationType.CLUSTER.value,
            clustering_plan=plan,
            extra_metadata={},
            version=1,
        )

    def _group_record(self, cluster: Cluster) -> ClusteringGroup:
        base = self.writer.store.uri
        logs = sum(len(piece.logs) for piece in cluster.slices)
        slices = tuple(
            SliceInfo(
                data_file_path=f"{base}/{piece.base.key}" if piece.base else None,
                delta_file_paths=tuple(f"{base}/{log.key}" for log in piece.logs),
                file_id=piece.file_id,
                partition_path=piece.partition,
            )
            for piece in cluster.slices
        )
        megabytes = float(_total_bytes(cluster.slices) // MIB)
        metrics = {"TOTAL_LOG_FILES": float(logs), "TOTAL_IO_MB": 2 * megabytes}
        metrics |= {"TOTAL_IO_READ_MB": megabytes, "TOTAL_IO_WRITE_MB": megabytes}
        return ClusteringGroup(slices, metrics, cluster.outputs, {})

    def _load_plan(self, instant: str) -> ClusteringPlan:
        writer = self.writer
        timeline = load_timeline(writer.store, writer.properties.timeline_folder)
        request = timeline.replace_request(
            Instant(instant, Action.CLUSTERING, InstantState.INFLIGHT)
        )
        if request.clustering_plan is None:
            raise DataCorrupt(
                f"{writer.store.uri}: the replace request {instant} has no clustering plan"
            )
        return request.clustering_plan

    def _clusters(self, plan: ClusteringPlan) -> list[tuple[FileSlice, ...]]:
        groups = [group.slices or () for group in plan.input_groups or ()]
        pieces = [piece for group in groups for piece in group]
        files = iter(input_files(self.writer, pieces, service="clustering", hint=_MISSING_FILE))
        return [
            tuple(self._slice(piece, *next(files)) for piece in group) for group in groups if group
        ]

    def _slice(
        self, planned: SliceInfo, base: BaseFile | None, logs: tuple[LogFile, ...]
    ) -> FileSlice:
        if base is None and not logs:
            raise DataCorrupt(
                f"{self.writer.store.uri}: the clustering plan names no file of file group"
                f" {planned.file_id}"
            )
        instant = logs[0].instant if base is None else base.instant
        return FileSlice(*input_group(planned), instant, base, logs)

    def _rewrite(
        self,
        plan: ClusteringPlan,
        clusters: Sequence[tuple[FileSlice, ...]],
        transaction: Transaction,
        sources: frozenset[GroupId],
    ) -> tuple[FileResult, ...]:
        context, sort_by, layout = _apply_plan(self.writer.context(transaction), plan, self.layout)
        tasks = [
            ClusterSlices(
                slot,
                pieces,
                file_id(str(uuid5(_GROUPS, f"{transaction.instant}/{slot}"))),
                sort_by,
                layout,
                self.copied_bytes_min,
            )
            for slot, pieces in enumerate(clusters)
        ]
        footprint = Footprint(CommitKind.CLUSTERING, replaced=sources)
        reports: list[ConflictReport] = []

        def is_cancelled() -> str | None:
            # A plan that cannot be committed any more need not be written to its end.
            report = transaction.is_cancelled(footprint)
            if report is not None:
                reports.append(report)
            return None if report is None else str(report)

        try:
            return self.writer.run_service_tasks(tasks, context, is_cancelled=is_cancelled)
        except Conflict:
            if not reports:
                raise
            position = self.writer.transactions.ledger.state.position
            verdict = Preempted(reports[0], reports[0].groups)
            conflict = Conflicted(verdict, position, str(reports[0]))
            transaction.rollback(conflict=conflict)
            raise conflict_of(conflict) from None


def _apply_plan(
    context: WriteContext, plan: ClusteringPlan, layout: LayoutStrategy
) -> tuple[WriteContext, tuple[str, ...], LayoutStrategy]:
    """Return context, sort columns and layout for a plan, which may be of another writer."""
    params: Mapping[str, str] = (plan.strategy.strategy_params if plan.strategy else None) or {}
    settings = context.settings
    if TARGET_PARAM in params:
        settings = replace(settings, file_bytes_max=int(params[TARGET_PARAM]))
    requested = params.get(LAYOUT_PARAM, layout.value)
    if requested not in [each.value for each in LayoutStrategy]:
        raise DataCorrupt(
            f"the clustering plan has the unknown layout {requested!r}; known layouts:"
            f" {', '.join(LayoutStrategy)}",
            hint="the plan is rolled back; schedule another one",
        )
    sort_by = comma_list(params.get(SORT_PARAM, ""))
    return replace(context, settings=settings), sort_by, LayoutStrategy(requested)


def _group(piece: FileSlice) -> GroupId:
    return piece.partition, piece.file_id
