"""Clustering: rows move to fewer, or better sorted, file groups; writers come first.

A writer that changes what is being clustered is never held up. The clustering gives way, its plan
is undone, and the next one starts from what the writer left.

A plan is removable: begun once. One that was configured to stay may be begun again, when what the
attempt before it wrote is gone. Both write the same file groups, so that a reader that lists files
sees no group twice, should one be left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID, uuid5

from pyarrow import types as pt

from tidelock.base.errors import ConfigInvalid, Conflict, DataCorrupt, Unsupported
from tidelock.engine.service import Regroup
from tidelock.kernel.context import WriteContext
from tidelock.kernel.curve import COLUMNS_MAX, Layout
from tidelock.kernel.lookup import IndexKind
from tidelock.kernel.results import FileResult
from tidelock.kernel.splice import GROUP_BYTES_MIN
from tidelock.operation.drafting import schema_id
from tidelock.operation.view import TableView
from tidelock.operation.writer import TableWriter
from tidelock.table.filegroup.listing import list_files
from tidelock.table.filegroup.slice import BaseFile, FileSlice, LogFile
from tidelock.table.filegroup.view import DataFile, GroupId
from tidelock.table.naming import file_id
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import (
    SCHEMA_KEY,
    ClusteringGroup,
    ClusteringPlan,
    ClusteringStrategy,
    OperationType,
    ReplaceCommitMetadata,
    RequestedReplaceMetadata,
    SliceInfo,
)
from tidelock.tableservice.adopting import adopted
from tidelock.tableservice.clustering.plan import MB, Cluster, Sizes, plan_clustering
from tidelock.tableservice.guard import Executed, claimed, stale_removed
from tidelock.tableservice.scheduling import Draft, pending, scheduled
from tidelock.tableservice.waiting import foreign_groups
from tidelock.txn.draft import CommitDraft, Overtaken, stats_of
from tidelock.txn.footprint import Deed, Footprint
from tidelock.txn.transaction import Transaction
from tidelock.txn.verdict import Report, Yield

SORT_PARAM: Final = "hoodie.clustering.plan.strategy.sort.columns"
LAYOUT_PARAM: Final = "hoodie.layout.optimize.strategy"
TARGET_PARAM: Final = "hoodie.clustering.plan.strategy.target.file.max.bytes"
STRATEGY: Final = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
"""What Hudi's own executors are to carry the plan out with."""


_GROUPS: Final = UUID("7d0f6f0a-51f4-5c35-9a2e-0d2f7b6c4e19")
"""Names of file groups follow from the plan below this, whoever executes it, and how often."""


@dataclass(frozen=True, slots=True)
class Clustering:
    """Clusters the table of one writer.

    Files whose row groups have `copied_bytes_min` on the average are copied without decoding them,
    where rows need not be sorted. `layout` is how rows are sorted by several columns, unless the
    plan says it. New plans are `removable`, or stay until they are carried out.
    """

    writer: TableWriter
    copied_bytes_min: int = GROUP_BYTES_MIN
    layout: Layout = Layout.LINEAR
    removable: bool = True

    def plan(self, sizes: Sizes) -> tuple[Cluster, ...]:
        """Return what would be clustered now. Raises: `Unsupported` for a table with buckets."""
        return self._worth_it(self.writer.view(), sizes)

    def _worth_it(self, view: TableView, sizes: Sizes) -> tuple[Cluster, ...]:
        if self.writer.settings.index is IndexKind.BUCKET:
            raise Unsupported(
                f"{self.writer.store.uri} has a bucket index: each key has its own file group",
                hint="such a table is not clustered",
            )
        busy = view.busy | foreign_groups(self.writer)
        return plan_clustering(view.of().values(), sizes, busy=busy)

    def schedule(self, sizes: Sizes, *, sort_by: Sequence[str] = ()) -> str | None:
        """Put a plan on the timeline and return its instant; None if nothing is worth it.

        Raises: `ConfigInvalid` for columns that rows cannot be sorted by, `Unsupported`,
        `Conflict` if writers changed what was planned each time.
        """
        self._check_sort(sort_by)

        def make() -> Draft | None:
            view = self.writer.view()
            clusters = self._worth_it(view, sizes)
            if not clusters:
                return None
            groups = frozenset(_group(piece) for each in clusters for piece in each.slices)
            request = self._request(clusters, sizes, sort_by)
            return Draft(request, view.fold, groups, removable=self.removable)

        return scheduled(self.writer.transactions, Action.CLUSTERING, make)

    def pending(self) -> tuple[str, ...]:
        """Return the plans that wait to be executed, oldest first."""
        return pending(self.writer, Action.CLUSTERING)

    def execute(self, instant: str) -> Executed:
        """Carry out a plan. The table's rows stay what they are.

        Raises: `WriteConflict` when a writer changed a file group of the plan, which is undone
        then; `Conflict` when somebody else is at it or it is not pending; `DataCorrupt` for a plan
        that cannot be read or names files that are gone.
        """
        adopted(self.writer, instant, Action.CLUSTERING)
        home = self.writer.transactions
        with (
            stale_removed(home, instant),
            claimed(home, instant, OperationType.CLUSTER) as transaction,
        ):
            plan = self._plan(instant)
            clusters = self._clusters(plan)
            sources = frozenset(_group(piece) for cluster in clusters for piece in cluster)
            results = self._written(plan, clusters, transaction, sources)
            return self._commit(transaction, sources, results)

    def _check_sort(self, columns: Sequence[str]) -> None:
        schema = self.writer.columns()
        for name in columns:
            known = name in schema.names
            if not known or pt.is_nested(schema.field(name).type):
                what = "cannot be sorted by" if known else "is no column of the table"
                raise ConfigInvalid(f"{SORT_PARAM} = {','.join(columns)}: {name} {what}")
        if self.layout is not Layout.LINEAR and len(columns) > COLUMNS_MAX:
            raise ConfigInvalid(
                f"{SORT_PARAM} has {len(columns)} columns, and {self.layout} takes {COLUMNS_MAX}",
                hint=f"name fewer, or set {LAYOUT_PARAM}={Layout.LINEAR}",
            )

    def _request(
        self, clusters: Sequence[Cluster], sizes: Sizes, sort_by: Sequence[str]
    ) -> RequestedReplaceMetadata:
        params = {TARGET_PARAM: str(sizes.target_bytes)}
        if sort_by:
            params[SORT_PARAM] = ",".join(sort_by)
            params[LAYOUT_PARAM] = self.layout.value
        plan = ClusteringPlan(
            input_groups=tuple(self._planned(cluster) for cluster in clusters),
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

    def _planned(self, cluster: Cluster) -> ClusteringGroup:
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
        megabytes = float(cluster.size_bytes // MB)
        metrics = {"TOTAL_LOG_FILES": float(logs), "TOTAL_IO_MB": 2 * megabytes}
        metrics |= {"TOTAL_IO_READ_MB": megabytes, "TOTAL_IO_WRITE_MB": megabytes}
        return ClusteringGroup(slices, metrics, cluster.outputs, {})

    def _plan(self, instant: str) -> ClusteringPlan:
        writer = self.writer
        timeline = load_timeline(writer.store, writer.properties.timeline_folder)
        request = timeline.replace_request(Instant(instant, Action.CLUSTERING, State.INFLIGHT))
        if request.clustering_plan is None:
            raise DataCorrupt(f"{writer.store.uri}: the request {instant} has no clustering plan")
        return request.clustering_plan

    def _clusters(self, plan: ClusteringPlan) -> list[tuple[FileSlice, ...]]:
        groups = [group.slices or () for group in plan.input_groups or ()]
        partitions = {piece.partition_path or "" for group in groups for piece in group}
        listed = list_files(
            self.writer.store,
            partitioned=self.writer.properties.is_partitioned,
            partitions=partitions,
        )
        files = {file.key: file for file in listed}
        uri = self.writer.store.uri
        return [tuple(_slice(piece, files, uri) for piece in group) for group in groups if group]

    def _written(
        self,
        plan: ClusteringPlan,
        clusters: Sequence[tuple[FileSlice, ...]],
        transaction: Transaction,
        sources: frozenset[GroupId],
    ) -> tuple[FileResult, ...]:
        context, order = _set_up(self.writer.context(transaction), plan, self.layout)
        tasks = [
            Regroup(
                slot,
                pieces,
                file_id(str(uuid5(_GROUPS, f"{transaction.instant}/{slot}"))),
                order.by,
                order.layout,
                self.copied_bytes_min,
            )
            for slot, pieces in enumerate(clusters)
        ]
        going_to = Footprint(Deed.CLUSTERING, replaced=sources)
        reports: list[Report] = []

        def doomed() -> str | None:
            # What is overtaken already need not be written to its end.
            report = transaction.doomed(going_to)
            if report is not None:
                reports.append(report)
            return None if report is None else str(report)

        try:
            return self.writer.serve(tasks, context, doomed=doomed)
        except Conflict:
            if not reports:
                raise
            position = self.writer.transactions.ledger.fold.position
            verdict = Yield(reports[0], reports[0].groups)
            overtaken = Overtaken(verdict, position, str(reports[0]))
            transaction.rollback(overtaken=overtaken)
            Executed.of(overtaken, transaction, ())
            raise

    def _commit(
        self,
        transaction: Transaction,
        sources: frozenset[GroupId],
        results: tuple[FileResult, ...],
    ) -> Executed:
        view = self.writer.view()
        avro = self.writer.schema(view).avro
        replaced: dict[str, tuple[str, ...]] = {}
        for partition, each in sorted(sources):
            replaced[partition] = (*replaced.get(partition, ()), each)
        draft = CommitDraft(
            metadata=ReplaceCommitMetadata(
                partition_to_write_stats=stats_of(results),
                extra_metadata={SCHEMA_KEY: avro},
                operation_type=OperationType.CLUSTER,
                partition_to_replace_file_ids=replaced,
            ),
            operation=OperationType.CLUSTER,
            created=frozenset((result.partition, result.file_id) for result in results),
            replaced=sources,
            schema_id=schema_id(avro),
            schema_base=view.fold.position,
        )
        outcome = transaction.commit(draft)
        if isinstance(outcome, Overtaken):
            # The ledger is to say who was in the way.
            transaction.rollback(overtaken=outcome)
        return Executed.of(outcome, transaction, results)


@dataclass(frozen=True, slots=True)
class _Order:
    by: tuple[str, ...]
    layout: Layout


def _set_up(
    context: WriteContext, plan: ClusteringPlan, layout: Layout
) -> tuple[WriteContext, _Order]:
    """Return the context and the order that the plan asks for, whoever made it."""
    params: Mapping[str, str] = (plan.strategy.strategy_params if plan.strategy else None) or {}
    settings = context.settings
    if TARGET_PARAM in params:
        settings = replace(settings, file_bytes_max=int(params[TARGET_PARAM]))
    names = (name.strip() for name in params.get(SORT_PARAM, "").split(","))
    asked = params.get(LAYOUT_PARAM, layout.value)
    if asked not in [each.value for each in Layout]:
        raise DataCorrupt(
            f"the clustering plan asks for the layout {asked!r}, which is not known",
            hint=f"known are {', '.join(Layout)}; the plan is undone, schedule another one",
        )
    order = _Order(tuple(name for name in names if name), Layout(asked))
    return replace(context, settings=settings), order


def _slice(planned: SliceInfo, files: Mapping[str, DataFile], uri: str) -> FileSlice:
    partition = planned.partition_path or ""

    def found(paths: Iterable[str]) -> list[DataFile]:
        # A plan has absolute paths; the table may have been moved since, its files with it.
        keys = ["/".join(filter(None, (partition, path.rpartition("/")[2]))) for path in paths]
        for key in keys:
            if key not in files:
                raise DataCorrupt(
                    f"{uri}/{key} is in the clustering plan and is gone",
                    hint="schedule a new one; a plan that stays is removed with"
                    " `tidelock services TABLE cancel INSTANT`",
                )
        return [files[key] for key in keys]

    bases = [f for f in found(filter(None, [planned.data_file_path])) if isinstance(f, BaseFile)]
    logs = [f for f in found(planned.delta_file_paths or ()) if isinstance(f, LogFile)]
    logs.sort(key=lambda log: log.order)
    base = bases[0] if bases else None
    if base is None and not logs:
        raise DataCorrupt(f"{uri}: the clustering plan names no file of {planned.file_id}")
    instant = logs[0].instant if base is None else base.instant
    return FileSlice(partition, planned.file_id or "", instant, base, tuple(logs))


def _group(piece: FileSlice) -> GroupId:
    return piece.partition, piece.file_id
