"""Parts of a write attempt: commit drafts, snapshots to compute from, retries, key checks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.core.errors import TidelockError, WriteConflict
from tidelock.execution.engine import PreparedRows, PrepareRule, WriteEngine
from tidelock.execution.filegroup.context import FileKind, FileResult
from tidelock.execution.filegroup.filtering import RowFilter
from tidelock.execution.filegroup.key_lookup import read_slice_keys
from tidelock.execution.filegroup.log_layers import read_layers
from tidelock.execution.filegroup.merge import MergeRule
from tidelock.execution.local.read import LocalEngine, Scan
from tidelock.execution.write_plan import TaskKind
from tidelock.hudi.file_groups import BaseFile, FileSlice, GroupId, LogFile, data_file
from tidelock.hudi.markers import Marker
from tidelock.hudi.properties import MergeMode, TableProperties
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY, with_meta, without_meta
from tidelock.hudi.timeline.metadata import SCHEMA_KEY, CommitMetadata, ReplaceCommitMetadata
from tidelock.operations.partitioner import Assignment
from tidelock.operations.query import prune_partitions, select_columns
from tidelock.operations.read import snapshot_now
from tidelock.operations.request import WriteRequest, scan_frame
from tidelock.storage.contract import ObjectStore
from tidelock.txn.commit import CommitDraft, stats_of
from tidelock.txn.conflicts import Abort, Conflicted, ConflictReport, KeyCheck, Rebase
from tidelock.txn.footprint import Footprint, commit_kind_of, schema_id_of
from tidelock.txn.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def commit_draft(
    request: WriteRequest,
    assignment: Assignment,
    results: Collection[FileResult],
    *,
    avro: str,
    blind: bool,
    bucketed: bool,
    nonblocking: bool,
    tried_once: bool = False,
) -> CommitDraft:
    """Return the commit of a write. `tried_once` means that `results` names all of its files."""
    existing, _ = write_set(assignment, blind=blind)
    written = frozenset(_groups(results))
    based = frozenset(_groups(r for r in results if r.kind is not FileKind.APPENDED))
    return CommitDraft(
        metadata=_metadata(request, assignment.replaced, results, avro),
        operation=request.operation,
        touched=written & existing,
        appended=written - based,
        created=written - existing,
        replaced=assignment.replaced,
        intents=assignment.intents,
        inserts=_new_keys(results, assignment.tagged.missing),
        blind=blind,
        schema_id=schema_id_of(avro),
        dependencies=assignment.dependencies,
        reads=request.reads,
        bucketed=bucketed,
        nonblocking=nonblocking,
        app_transaction=request.app_transaction,
        markers=_markers(results) if tried_once else None,
    )


def with_replaced(draft: CommitDraft, replaced: frozenset[GroupId]) -> CommitDraft:
    """Return the draft of an overwrite that replaces other file groups; its files do not change."""
    metadata = draft.metadata
    if isinstance(metadata, ReplaceCommitMetadata):
        metadata = replace(metadata, partition_to_replace_file_ids=_by_partition(replaced))
    return replace(draft, metadata=metadata, replaced=replaced)


def _metadata(
    request: WriteRequest, replaced: frozenset[GroupId], results: Iterable[FileResult], avro: str
) -> CommitMetadata:
    batch = {} if request.app_transaction is None else request.app_transaction.metadata
    stats, extra = stats_of(results), {**request.metadata, **batch, SCHEMA_KEY: avro}
    if not request.overwrites:
        return CommitMetadata(
            partition_to_write_stats=stats, extra_metadata=extra, operation_type=request.operation
        )
    return ReplaceCommitMetadata(
        partition_to_write_stats=stats,
        extra_metadata=extra,
        operation_type=request.operation,
        partition_to_replace_file_ids=_by_partition(replaced),
    )


def _by_partition(groups: Iterable[GroupId]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for partition, file_id in sorted(groups):
        found.setdefault(partition, []).append(file_id)
    return {partition: tuple(file_ids) for partition, file_ids in found.items()}


def _markers(results: Iterable[FileResult]) -> frozenset[Marker]:
    named = [(each, _file_name(each)) for each in results]
    return frozenset(Marker(each.partition, name, each.marker_type) for each, name in named if name)


def _file_name(result: FileResult) -> str:
    return (result.stat.path or "").rpartition("/")[2]


def _groups(results: Iterable[FileResult]) -> set[GroupId]:
    return {(result.partition, result.file_id) for result in results}


def _new_keys(
    results: Iterable[FileResult], missing: Mapping[str, frozenset[str] | None]
) -> dict[str, frozenset[str] | None]:
    """Return the inserted keys by partition; None where there are too many to list."""
    found: dict[str, frozenset[str] | None] = dict(missing)
    for result in results:
        if result.written_keys is not None and not result.written_keys:
            continue
        before = found.get(result.partition, frozenset())
        if before is None or result.written_keys is None:
            found[result.partition] = None
        else:
            found[result.partition] = before | frozenset(result.written_keys)
    return found


_LOOKUP_BATCH_ROWS: Final = 1_000_000


class NothingToWrite(Exception):
    """A rewrite computed no rows, so there is nothing to commit."""


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """The rows of a table at the ledger position of a write attempt.

    Guarantees: a commit computed from these rows fails if the rows have changed since.
    """

    store: ObjectStore
    slices: tuple[FileSlice, ...]
    stored_schema: pa.Schema
    rule: MergeRule
    properties: TableProperties

    @property
    def schema(self) -> pa.Schema:
        """The table's columns without meta columns. All are nullable: rows may predate a column."""
        fields = without_meta(self.stored_schema)
        return pa.schema([field.with_nullable(nullable=True) for field in fields])

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows. Raises: `InvalidInput`, `NotFound`, `DataCorrupt`."""
        scan = self._scan(columns, meta_columns=False)
        schema = pa.schema([scan.schema.field(name) for name in scan.columns or ()])
        parts = [rows.cast(schema) for rows in LocalEngine().read(scan)]
        return pa.concat_tables([schema.empty_table(), *parts])

    def lookup(
        self, columns: Sequence[str], values: Mapping[str, pa.Array], *, bytes_max: int
    ) -> pa.Table | None:
        """Return the rows whose columns named in `values` have one of the given values.

        Returns None if they take more than `bytes_max`. Raises: the errors of `read`.
        """
        scan = self._scan(columns, meta_columns=False)
        condition = pc.scalar(value=True)
        for name, accepted in values.items():
            condition &= pc.field(name).isin(accepted)
        row_filter = RowFilter(condition, scan.schema, tuple(values))
        slices = prune_partitions(self.slices, row_filter, self.properties)
        # Every batch is compared with all values, so batches are large.
        scan = replace(scan, slices=slices, row_filter=row_filter, batch_rows=_LOOKUP_BATCH_ROWS)
        schema = pa.schema([scan.schema.field(name) for name in columns])
        parts, size = [schema.empty_table()], 0
        for rows in LocalEngine().batches(scan):
            size += rows.nbytes
            if size > bytes_max:
                return None
            parts.append(rows.cast(schema))
        return pa.concat_tables(parts)

    def frame(
        self,
        spark: SparkSession,
        options: Mapping[str, object],
        columns: Sequence[str] | None = None,
        *,
        meta_columns: bool = False,
    ) -> DataFrame:
        """Return the rows as a lazy Spark DataFrame. Raises: `InvalidInput`."""
        scan = self._scan(columns, meta_columns=meta_columns)
        return scan_frame(spark, snapshot_now(self.store), scan, options)

    def _scan(self, columns: Sequence[str] | None, *, meta_columns: bool) -> Scan:
        schema = with_meta(self.schema)
        chosen = select_columns(schema, columns, meta_columns=meta_columns, where=self.store.uri)
        return Scan(self.store, self.slices, schema, self.rule, chosen)


logger = logging.getLogger(__name__)


def write_set(assignment: Assignment, *, blind: bool) -> tuple[frozenset[GroupId], frozenset[str]]:
    """Return the file groups that a write changes, and the partitions it adds new keys to."""
    tasks = assignment.plan.tasks
    existing = frozenset(task.group_id for task in tasks if task.file_slice is not None)
    fresh = frozenset(task.partition for task in tasks if task.file_slice is None)
    return existing, frozenset() if blind else fresh


def planned_footprint(request: WriteRequest, assignment: Assignment) -> Footprint:
    """Return the footprint of a write before it has written any file."""
    existing = [task for task in assignment.plan.tasks if task.file_slice is not None]
    appended = (task.group_id for task in existing if task.kind is TaskKind.APPEND)
    return Footprint(
        commit_kind_of(request.operation),
        touched=frozenset(task.group_id for task in existing),
        appended=frozenset(appended),
        replaced=assignment.replaced,
        intents=assignment.intents,
    )


@dataclass(slots=True)
class CancellationCheck:
    """Returns the reason why a running write can no longer be committed."""

    transaction: Transaction
    footprint: Footprint
    report: ConflictReport | None = None

    def __call__(self) -> str | None:
        """Return the conflict as text, None if there is none."""
        if self.report is None:
            self.report = self.transaction.is_cancelled(self.footprint)
        return None if self.report is None else str(self.report)

    def conflict(self, position: int, *, solves: bool) -> Conflicted | None:
        """Return the outcome that the commit would have had; None if no conflict was found."""
        if self.report is None:
            return None
        verdict = Rebase(self.report, self.report.groups) if solves else Abort(self.report)
        return Conflicted(verdict, position, str(self.report))


@dataclass(slots=True)
class PreparedBatch:
    """The prepared rows of a write, shared by its attempts.

    `position` is the ledger position of the last attempt's snapshot.
    """

    engine: WriteEngine
    rule: PrepareRule | None = None
    rows: PreparedRows | None = None
    ticket: RetryTicket | None = None
    computed: tuple[int, object] | None = None
    position: int = -1

    def with_rows(
        self, request: WriteRequest, position: int, snapshot: Callable[[], ReadSnapshot]
    ) -> WriteRequest:
        """Return the request with its computed rows; computes them again after other commits.

        Raises: `NothingToWrite` if the computation returns None.
        """
        if request.compute is None:
            return request
        if self.computed is None or (request.reads and self.computed[0] != position):
            self._release_rows()
            rows = request.compute(snapshot())
            if rows is None:
                raise NothingToWrite
            self.computed = (position, rows)
        return replace(request, rows=self.computed[1])

    def prepare(self, rows: object, rule: PrepareRule) -> PreparedRows:
        """Return the prepared rows; prepares them again only if the schema has changed."""
        if self.rows is None or self.rule is None or not self.rule.schema.equals(rule.schema):
            self._release_rows()
            self.rows, self.rule = self.engine.prepare(rows, rule), rule
        return self.rows

    def _release_rows(self) -> None:
        if self.rows is not None:
            self.engine.release(self.rows)
            self.rows = None

    def close(self) -> None:
        """Release the rows and the ticket in the queue."""
        self._release_rows()
        if self.ticket is not None:
            self.ticket.roll_back()
            self.ticket = None


@dataclass(frozen=True, slots=True)
class RetryTicket:
    """A conflicted attempt that holds a ticket in the queue until its write ends."""

    transaction: Transaction
    conflict: Conflicted
    files: Sequence[str]

    def roll_back(self) -> None:
        """Roll back the attempt. A failure is logged: the write itself has ended."""
        try:
            self.transaction.rollback(conflict=self.conflict, files=self.files)
        except TidelockError as error:
            logger.warning("%s was not rolled back: %s", self.transaction.instant, error)


def conflict_error(uri: str, outcome: Conflicted, *, rounds: int = 0) -> WriteConflict:
    """Return the error for a write that cannot be committed, with the conflict report."""
    report = outcome.verdict.report
    text = str(report)
    if rounds:
        text = f"{report.mine} conflicted {rounds} times; last conflict: {report.against}"
    return WriteConflict(f"{uri}: {text}", hint=report.advice, report=report)


def keys_are_disjoint(
    store: ObjectStore,
    draft: CommitDraft,
    results: Sequence[FileResult],
    checks: Iterable[KeyCheck],
    *,
    unnamed: Collection[str] = (),
) -> bool:
    """Return whether the keys that a draft inserts differ from the keys of other commits.

    `unnamed` are partitions with keys that the draft looked up and that are in none of its files.
    Returns False if a file has been cleaned or rolled back since, because its keys are unknown.
    """
    mine: dict[str, pa.Array | None] = dict.fromkeys(unnamed)
    for check in checks:
        if check.partition not in mine:
            mine[check.partition] = _inserted_keys(store, draft, results, check.partition)
        keys = mine[check.partition]
        if keys is None or not _is_disjoint(store, keys, check):
            return False
    return True


def has_named_key(rows: object, check: KeyCheck) -> bool | None:
    """Return whether rows have a key that another commit lists; None if that is unknown.

    Rows without a partition may belong to any partition.
    """
    if check.keys is None or not isinstance(rows, pa.Table):
        return None
    paths = rows.column(PARTITION_PATH)
    here = pc.or_(paths.is_null(), pc.fill_null(pc.equal(paths, check.partition), fill_value=True))
    named = pa.array(sorted(check.keys), pa.string())
    return bool(pc.any(pc.is_in(rows.column(RECORD_KEY).filter(here), value_set=named)).as_py())


def merge_order_holds(
    store: ObjectStore,
    ours: Sequence[LogFile],
    theirs: Sequence[LogFile],
    schema: pa.Schema,
    rule: MergeRule,
    *,
    reversed_order: bool,
) -> bool:
    """Return whether readers get the rows of a serial order, with our log files after theirs.

    Our log files were written without reading theirs. With `reversed_order` readers apply theirs
    last: the result is the same if no key is in both, or if the ordering value decides for each.
    Otherwise ours must have no row for a key that theirs delete in natural order: it would be
    compared with the deleted base row.
    """
    if rule.mode is MergeMode.CUSTOM:
        return False
    fields = [pa.field(RECORD_KEY, pa.string()), *(schema.field(name) for name in rule.ordered_by)]
    mine, other = (_log_versions(store, logs, pa.schema(fields), rule) for logs in (ours, theirs))
    both = mine.join(other, "key", join_type="inner", right_suffix=" of other")
    if not both.num_rows:
        return True
    if not rule.ordered_by:
        return not reversed_order
    if not reversed_order:
        rows = pc.invert(both.column(" natural"))
        return not pc.any(pc.and_(both.column(" natural of other"), rows)).as_py()
    same = pa.repeat(pa.scalar(value=True), both.num_rows)
    for name in rule.ordered_by:
        left, right = both.column(name), both.column(f"{name} of other")
        missing = pc.or_(left.is_null(), right.is_null())
        same = pc.and_(same, pc.or_(missing, pc.fill_null(pc.equal(left, right), fill_value=False)))
    natural = pc.or_(both.column(" natural"), both.column(" natural of other"))
    return not pc.any(pc.or_(same, natural)).as_py()


def file_paths(results: Iterable[FileResult]) -> list[str]:
    """Return the paths of the written files."""
    return [result.stat.path for result in results if result.stat.path]


def log_files_of(results: Iterable[FileResult]) -> list[LogFile]:
    """Return the written log files."""
    files = (
        data_file(each.partition, _file_name(each), each.stat.file_size_in_bytes or 0)
        for each in results
    )
    return [file for file in files if isinstance(file, LogFile)]


def _log_versions(
    store: ObjectStore, logs: Sequence[LogFile], schema: pa.Schema, rule: MergeRule
) -> pa.Table:
    """Return the keys in log files, with their ordering values and natural-order flags."""
    names = ["key", " natural", *rule.ordered_by]
    parts = [
        pa.table([layer.keys, layer.natural, *layer.ordering], names)
        for layer in read_layers(store, logs, schema, rule)
    ]
    nothing = pa.table([pa.array([], pa.string()), pa.array([], pa.bool_())], names[:2])
    return pa.concat_tables([nothing, *parts], promote_options="permissive")


def _is_disjoint(store: ObjectStore, keys: pa.Array, check: KeyCheck) -> bool:
    if check.keys is not None:
        named = pa.array(sorted(check.keys), pa.string())
        return not pc.any(pc.is_in(keys, value_set=named)).as_py()
    if not check.files:
        return False
    for path in check.files:
        found = _file_keys(store, path)
        if found is None or any(pc.any(pc.is_in(each, value_set=keys)).as_py() for each in found):
            return False
    return True


def _inserted_keys(
    store: ObjectStore, draft: CommitDraft, results: Sequence[FileResult], partition: str
) -> pa.Array | None:
    """Return the keys that a draft inserts into a partition; may include others of its files."""
    named = draft.inserts.get(partition, frozenset())
    if named is not None:
        return pa.array(sorted(named), pa.string())
    parts: list[pa.Array] = []
    for result in results:
        if result.partition != partition or not result.stat.num_inserts:
            continue
        if result.written_keys is not None:
            parts.append(pa.array(result.written_keys, pa.string()))
            continue
        found = _file_keys(store, result.stat.path or "")
        if found is None:
            return None
        parts += found
    return pa.concat_arrays(parts) if parts else None


def _file_keys(store: ObjectStore, path: str) -> Iterator[pa.Array] | None:
    partition, _, name = path.rpartition("/")
    meta = store.head(path)
    file = None if meta is None else data_file(partition, name, meta.size_bytes)
    if file is None:
        return None
    base, logs = (file, ()) if isinstance(file, BaseFile) else (None, (file,))
    return read_slice_keys(store, FileSlice(partition, file.file_id, file.instant, base, logs))
