"""`tl.Table`: reads, writes and table services of one Hudi table."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar, cast

from tidelock.core.clock import Clock
from tidelock.core.errors import Conflict
from tidelock.core.ids import IdSource
from tidelock.core.system import SystemClock, SystemIds
from tidelock.execution.filegroup.merge import Merger
from tidelock.execution.local.read import LocalEngine
from tidelock.execution.local.write import LocalWriter
from tidelock.execution.service_tasks import ProgressListener
from tidelock.hudi.keys import KeyRule
from tidelock.hudi.properties import create_properties
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.operations.attempt import NothingToWrite, ReadSnapshot
from tidelock.operations.config import DELETE_PARTITIONS, OPERATION
from tidelock.operations.create import (
    Names,
    open_table_store,
    table_properties,
    user_schema,
    with_arguments,
)
from tidelock.operations.query import check_deletable, check_partitions_exist, snapshot_scan
from tidelock.operations.read import TableReader, snapshot_now
from tidelock.operations.report import WriteReport
from tidelock.operations.request import (
    WriteRequest,
    arrow_table,
    check_metadata,
    frame_keys,
    is_frame,
    key_table,
    operation_type,
    scan_frame,
    session_engine,
    session_of,
)
from tidelock.operations.write import TableWriter, table_writer
from tidelock.services.archive import ArchiveResult, ArchiveService
from tidelock.services.config import LEASE_MS, archive_bounds, ttl_rule
from tidelock.services.inline import AsyncServices, InlineServices, split_options
from tidelock.services.read_leases import TTL_MS, ReaderLease
from tidelock.services.restore import Restore
from tidelock.services.rollback import RollbackService
from tidelock.services.runner import (
    Service,
    ServiceRun,
    clean,
    clustering,
    compaction,
    log_compaction,
    services_engine,
)
from tidelock.services.savepoint import SavepointInfo, Savepoints
from tidelock.services.ttl import ExpiredPartitions, PartitionTtl
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.txn.app_transactions import AppTransaction
from tidelock.txn.plans import RollbackResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

P = ParamSpec("P")
R = TypeVar("R")


def _warn_deprecated(old: str, new: str) -> None:
    warnings.warn(
        f"{old} is deprecated and will be removed in the next minor release; use {new}",
        DeprecationWarning,
        stacklevel=3,
    )


def _accepts_mark(write: Callable[P, R]) -> Callable[P, R]:
    """Accept the deprecated keyword `mark` of a write as `app_transaction`."""

    @wraps(write)
    def accepting(*args: P.args, **kwargs: P.kwargs) -> R:
        if "mark" in kwargs:
            if "app_transaction" in kwargs:
                raise TypeError(f"{write.__name__}() got both 'mark' and 'app_transaction'")
            _warn_deprecated("the keyword 'mark'", "'app_transaction'")
            kwargs["app_transaction"] = kwargs.pop("mark")
        return write(*args, **kwargs)

    return accepting


class Table(TableReader):
    """A Hudi table. Reads see the state at `open`, the last `refresh` or the last own write.

    Guarantees: a write that returns a report is committed, on top of every earlier commit. A read
    sees all of a commit or none of it. Table services never change rows, except rollback, restore
    and partition TTL. A table may be used by several threads; its writes run one at a time.
    """

    def __init__(
        self,
        snapshot: TableSnapshot,
        *,
        engine: LocalEngine | None = None,
        merger: Merger | None = None,
        options: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        """Wrap a snapshot. Use `open` or `create` to start from a URI."""
        super().__init__(snapshot, engine=engine, merger=merger, clock=clock)
        self._options = dict(options or {})
        self._ids = ids or SystemIds()
        self._writing = threading.Lock()
        self._writer: TableWriter | None = None
        self._inline: InlineServices | None = None
        self._async: AsyncServices | None = None
        self._spark: SparkSession | None = None
        self._lease: ReaderLease | None = None

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        settings: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
        merger: Merger | None = None,
        workers: int | None = None,
    ) -> Self:
        """Open the table at the base path `uri`.

        `settings` configure the store, `options` configure reads, writes and services by their
        Hudi names. `merger` serves tables with a custom record merger. `workers` is the number of
        file slices to read in parallel.

            with tl.Table.open("s3://lake/orders") as orders:
                orders.read(columns=["id", "amount"])
                orders.upsert(rows)

        Raises: `NotFound` if there is no table, `Unsupported` for table versions before 8,
        `RecordFromFuture` for versions after 9, `DataCorrupt`, `ResourceInvalid`, `ConfigInvalid`,
        `MissingExtra`.
        """
        store, chosen = open_table_store(uri, settings, options)
        engine = None if workers is None else LocalEngine(workers)
        try:
            return cls(snapshot_now(store), engine=engine, merger=merger, options=chosen)
        except BaseException:
            store.close()
            raise

    @classmethod
    def create(
        cls,
        uri: str,
        schema: object,
        *,
        key: Names = None,
        ordering: Names = None,
        partition_by: Names = None,
        type: str | None = None,  # noqa: A002 - the word of Hudi's option
        version: int | None = None,
        name: str | None = None,
        exist_ok: bool = False,
        settings: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
        merger: Merger | None = None,
    ) -> Self:
        """Create a table and open it.

        `schema` is an Arrow schema, or pairs of name and type. `key` names the record key column
        or columns. `ordering` names the column whose larger value wins between rows of one key.
        `partition_by` names the partition columns. `type` is `COPY_ON_WRITE` (default) or
        `MERGE_ON_READ`; `version` is 9 or 8. Arguments that are not given are read from `options`
        by their Hudi names. With `exist_ok` an existing table is opened if it matches the
        arguments. A failed call leaves nothing behind.

            tl.Table.create("s3://lake/orders", schema, key="id", ordering="ts")

        Raises: `Conflict` if the table exists, `InvalidInput`, `ConfigInvalid`, `Unsupported`, and
        the errors of `open`.
        """
        given = with_arguments(
            {**(settings or {}), **(options or {})},
            key=key,
            ordering=ordering,
            partition_by=partition_by,
            table_type=type,
            version=version,
            name=name,
        )
        columns = user_schema(schema)
        store, chosen = open_table_store(uri, given, None)
        try:
            properties = table_properties(store.uri, columns, chosen)
            # Fails on options that the first write would refuse, before the table exists.
            table_writer(LocalWriter(store), store, properties, chosen, merger=merger).close()
            try:
                create_properties(
                    store, properties, policy=ReadbackPolicy(SystemClock(), SystemIds())
                )
            except Conflict:
                if not exist_ok:
                    raise
            table = cls(snapshot_now(store), merger=merger, options=chosen)
            table.writer().ensure_first_commit()
        except BaseException:
            store.close()
            raise
        table.refresh()
        return table

    def close(self) -> None:
        """Wait for async services, then release the lock and the store. May be called twice."""
        if self._async is not None:
            self._async.stop()
        self._end_lease()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the table. After an error, async services are cancelled."""
        if kind is not None and self._async is not None:
            self._async.stop(cancel=True)
        self.close()

    def __repr__(self) -> str:
        return f"Table({self.properties.name!r}, {self.uri!r})"

    # Reads, in addition to those of TableReader.

    def to_spark(
        self,
        spark: SparkSession,
        columns: Sequence[str] | None = None,
        partitions: Collection[str] | None = None,
        as_of: str | datetime | None = None,
        *,
        read_optimized: bool = False,
        meta_columns: bool = False,
    ) -> DataFrame:
        """Return the rows of `read` as a lazy Spark DataFrame.

        Spark reads file slices without log files natively, with its own pushdown. Slices with log
        files are merged in Python workers, which read only `columns`.

        Raises: the errors of `read`, `Unsupported` for a column type that Spark does not have.
        """
        scan = snapshot_scan(
            self._snapshot,
            columns=columns,
            partitions=partitions,
            as_of=as_of,
            read_optimized=read_optimized,
            meta_columns=meta_columns,
            merger=self._merger,
        )
        return scan_frame(spark, self._snapshot, scan, self._options)

    def lease(self, ttl_ms: int = TTL_MS) -> ReaderLease:
        """Return a context manager that asks cleans to keep the files this table reads.

        The lease is advisory and meant for long queries: a clean that was planned before it does
        not see it. It is renewed until the block ends.

            with orders.lease():
                for batch in orders.batches(): ...
        """
        return self._new_lease(self._snapshot, ttl_ms)

    def _new_lease(self, snapshot: TableSnapshot, ttl_ms: int) -> ReaderLease:
        return ReaderLease(self._store, snapshot, clock=self._clock, ids=self._ids, ttl_ms=ttl_ms)

    @property
    def _snapshot(self) -> TableSnapshot:
        renew = self._seen is None or self._lease is None
        snapshot = super()._snapshot
        ttl_ms = LEASE_MS.required(self._options) if renew else 0
        if ttl_ms > 0:
            self._end_lease()
            self._lease = self._new_lease(snapshot, ttl_ms)
            self._lease.begin()
        return snapshot

    def _end_lease(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.end()

    # Writes.

    @_accepts_mark
    def write(
        self,
        rows: object = None,
        operation: str | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        app_transaction: AppTransaction | None = None,
    ) -> WriteReport:
        """Run the write operation `operation`, by default `hoodie.datasource.write.operation`.

        `delete_partition` takes no rows; it reads
        `hoodie.datasource.write.partitions.to.delete`.

        Raises: `ConfigInvalid` for an unknown operation, and the errors of the operation.
        """
        named = (operation or OPERATION.required(self._options)).lower()
        if named == "delete_partition":
            partitions = DELETE_PARTITIONS.required(self._options)
            return self.delete_partition(
                partitions, metadata=metadata, app_transaction=app_transaction
            )
        if named == "delete":
            return self.delete(rows, metadata=metadata, app_transaction=app_transaction)
        kind = operation_type(named, OPERATION.key, others=("delete", "delete_partition"))
        return self._run(self._request(kind, rows, metadata, app_transaction))

    @_accepts_mark
    def upsert(
        self,
        rows: object,
        *,
        metadata: Mapping[str, str] | None = None,
        app_transaction: AppTransaction | None = None,
    ) -> WriteReport:
        """Insert rows, and update the rows whose key exists.

        `rows` is an Arrow table, batch or reader, a pandas, polars or Spark frame, or a list of
        dictionaries. New columns are added to the table, types are widened, and missing columns
        are null. The table's merge mode picks one of several rows with one key. A row with
        `_hoodie_is_deleted` = true deletes its key. `metadata` is stored in the commit.
        `app_transaction` identifies the batch of an application: a batch that was committed before
        is not written again, and the report has `repeated` set.

        Raises: `InvalidInput` naming the column or row, `WriteConflict`, `OutcomeUnknown`, and
        the errors of `read`.
        """
        return self._run(self._request(OperationType.UPSERT, rows, metadata, app_transaction))

    @_accepts_mark
    def insert(
        self,
        rows: object,
        *,
        metadata: Mapping[str, str] | None = None,
        app_transaction: AppTransaction | None = None,
    ) -> WriteReport:
        """Insert rows without looking up their keys, so a key may occur twice afterwards.

        With `hoodie.datasource.write.insert.drop.duplicates`, rows whose key exists are dropped.
        Raises: the errors of `upsert`.
        """
        return self._run(self._request(OperationType.INSERT, rows, metadata, app_transaction))

    @_accepts_mark
    def bulk_insert(
        self,
        rows: object,
        *,
        metadata: Mapping[str, str] | None = None,
        app_transaction: AppTransaction | None = None,
    ) -> WriteReport:
        """Insert many rows into new files, sorted by `hoodie.bulkinsert.sort.mode`.

        Raises: the errors of `upsert`.
        """
        return self._run(self._request(OperationType.BULK_INSERT, rows, metadata, app_transaction))

    @_accepts_mark
    def delete(
        self,
        keys: object,
        *,
        metadata: Mapping[str, str] | None = None,
        app_transaction: AppTransaction | None = None,
    ) -> WriteReport:
        """Delete rows by key. Keys that do not exist are ignored.

        `keys` is anything that `upsert` accepts, of which only the key and partition columns are
        used, or a list of values for a key of one column. Without partition columns, keys are
        deleted from every partition. Raises: the errors of `upsert`.
        """
        columns, rule = self.writer().columns, KeyRule.of(self.properties)
        table, anywhere = (
            frame_keys(keys, rule) if is_frame(keys) else key_table(keys, rule, columns())
        )
        request = WriteRequest(
            OperationType.DELETE,
            table,
            anywhere=anywhere,
            metadata=metadata or {},
            app_transaction=app_transaction,
        )
        return self._run(request)

    @_accepts_mark
    def insert_overwrite(
        self,
        rows: object,
        *,
        metadata: Mapping[str, str] | None = None,
        app_transaction: AppTransaction | None = None,
    ) -> WriteReport:
        """Replace the partitions that occur in `rows` with `rows`. Raises: those of `upsert`."""
        kind = OperationType.INSERT_OVERWRITE
        return self._run(self._request(kind, rows, metadata, app_transaction))

    @_accepts_mark
    def insert_overwrite_table(
        self,
        rows: object,
        *,
        metadata: Mapping[str, str] | None = None,
        app_transaction: AppTransaction | None = None,
    ) -> WriteReport:
        """Replace all rows of the table with `rows`. Raises: the errors of `upsert`."""
        kind = OperationType.INSERT_OVERWRITE_TABLE
        return self._run(self._request(kind, rows, metadata, app_transaction))

    @_accepts_mark
    def delete_partition(
        self,
        partitions: Collection[str],
        *,
        metadata: Mapping[str, str] | None = None,
        app_transaction: AppTransaction | None = None,
    ) -> WriteReport:
        """Delete all rows of partitions, given by their paths as `files` returns them.

        Raises: `InvalidInput` for a table without partitions and for unknown partitions, and the
        errors of `upsert`.
        """
        check_deletable(self._snapshot, partitions)
        # A repeated batch may name partitions that it deleted the first time.
        if not self._is_applied(app_transaction):
            check_partitions_exist(self._snapshot, partitions)
        request = WriteRequest(
            OperationType.DELETE_PARTITION,
            partitions=tuple(sorted(set(partitions))),
            metadata=metadata or {},
            app_transaction=app_transaction,
        )
        return self._run(request)

    @_accepts_mark
    def rewrite(
        self,
        compute: Callable[[ReadSnapshot], object],
        operation: str = "upsert",
        *,
        spark: SparkSession | None = None,
        tombstones: bool = False,
        partitions: Collection[str] = (),
        reads: bool = True,
        metadata: Mapping[str, str] | None = None,
        app_transaction: AppTransaction | None = None,
    ) -> WriteReport | None:
        """Write rows that are computed from the table, isolated from concurrent writes.

        `compute` is called with a snapshot and returns rows as `upsert` takes them, or None for
        nothing to write. It is called again after a conflict, so it should have no side effects.
        Spark frames need the session as `spark`. With `tombstones`, rows with
        `_tidelock_tombstone` = true delete their key. `partitions` are replaced by an
        `insert_overwrite` in addition to those that occur in the rows. With `reads=False` the rows
        do not depend on the table: they are computed once, and merged again after a conflict. With
        an `app_transaction` an empty result is committed too, to record that the batch is applied.

            orders.rewrite(lambda now: raised(now.read(["id", "price", "region"])))

        Raises: the errors of `upsert`, `ConfigInvalid` for an unknown operation.
        """
        kind = operation_type(operation, "operation", more=(OperationType.DELETE,))
        columns = self.writer().columns

        def rows(now: ReadSnapshot) -> object:
            found = compute(now)
            if found is None and app_transaction is not None:
                return columns().empty_table()
            return found if found is None or is_frame(found) else arrow_table(found, columns())

        request = WriteRequest(
            kind,
            partitions=tuple(sorted(partitions)),
            metadata=metadata or {},
            app_transaction=app_transaction,
            reads=reads,
            compute=rows,
            session=spark,
            tombstones=tombstones,
        )
        try:
            return self._run(request)
        except NothingToWrite:
            self.refresh()
            return None

    def app_transaction(self, application: str) -> AppTransaction | None:
        """Return the last transaction that an application has committed, None if there is none.

        Reads the current state of the table, not the state of the last `refresh`, so that a
        pipeline can resume from it.
        """
        applied = self.writer().transactions.ledger.refresh().app_transactions.get(application)
        return None if applied is None else applied.app_transaction

    def mark(self, application: str) -> AppTransaction | None:
        """Return `app_transaction(application)`. Deprecated: use `app_transaction`."""
        _warn_deprecated("Table.mark", "Table.app_transaction")
        return self.app_transaction(application)

    def _is_applied(self, transaction: AppTransaction | None) -> bool:
        applied = None if transaction is None else self.app_transaction(transaction.app_id)
        return bool(transaction and applied and transaction.version <= applied.version)

    def writer(self) -> TableWriter:
        """Return the writer of this table. Raises: `ConfigInvalid`, `Unsupported`."""
        if self._writer is None:
            self._writer = self._new_writer(self._options)
            self._writer.snapshot = self._seen
        return self._writer

    def _new_writer(self, options: Mapping[str, object]) -> TableWriter:
        return table_writer(
            LocalWriter(self._store, self._engine.workers),
            self._store,
            self.properties,
            options,
            merger=self._merger,
            clock=self._clock,
            ids=self._ids,
        )

    def _request(
        self,
        operation: OperationType,
        rows: object,
        metadata: Mapping[str, str] | None,
        app_transaction: AppTransaction | None,
    ) -> WriteRequest:
        data = rows if is_frame(rows) else arrow_table(rows, self.writer().columns())
        return WriteRequest(
            operation, data, metadata=metadata or {}, app_transaction=app_transaction
        )

    def _run(self, request: WriteRequest) -> WriteReport:
        """Run a write, then the table services that are due after it."""
        check_metadata(request.metadata)
        writer, engine = self.writer(), None
        session = session_of(request.rows) or request.session
        if session is not None:
            self.on_spark(cast("SparkSession", session))
            engine = session_engine(session, self.uri, self._options)
        with self._writing:
            report = writer.write(request, engine)
        self.refresh()
        self._run_due_services()
        return report

    # Table services.

    def on_spark(self, spark: SparkSession) -> Self:
        """Run this table's services on the executors of a Spark session. Returns the table.

        Writing a Spark frame does the same. Raises: `Unsupported` for Spark Connect.
        """
        if spark is not self._spark:
            self.writer().services = services_engine(self._store, self._options, spark)
            self._spark = spark
        return self

    def compact(self) -> ServiceRun:
        """Merge log files into base files, pending plans first.

        `hoodie.compaction.strategy` and its options choose the file groups. Plans that another
        process executes are skipped. Raises: `ConfigInvalid`.
        """
        return self._serve(compaction)

    def log_compact(self) -> ServiceRun:
        """Merge the log files of file groups with many, without rewriting their base files.

        `hoodie.log.compaction.blocks.threshold` is the number of blocks that makes a group due.
        Plans that another process executes are skipped. Raises: `Unsupported` for a table with a
        custom record merger, `ConfigInvalid`.
        """
        return self._serve(log_compaction)

    def cluster(self) -> ServiceRun:
        """Rewrite rows into fewer or better sorted file groups.

        `hoodie.clustering.plan.strategy.*` chooses the files and the sort columns. Clustering
        is preempted by concurrent writes: its plan is rolled back, and `skipped` of the result
        names the writer. Raises: `Unsupported` for a table with a bucket index, `ConfigInvalid`.
        """
        return self._serve(clustering)

    def clean(self) -> ServiceRun:
        """Roll back failed writes, then delete files that are no longer needed.

        `hoodie.clean.policy` and its options decide how much history stays readable. Plans that
        another process executes are skipped. Raises: `ConfigInvalid`.
        """
        return self._serve(clean)

    def archive(self) -> ArchiveResult:
        """Move the oldest instants from the active timeline to the archived timeline.

        `hoodie.keep.min.commits` and `hoodie.keep.max.commits` bound the active timeline.
        Raises: `Conflict` if other processes keep archiving this table.
        """
        archived = ArchiveService(self.writer()).run(archive_bounds(self._options))
        self.refresh()
        return archived

    def rollback(self, instant: str | None = None) -> tuple[RollbackResult, ...]:
        """Roll back one instant, or all failed writes; also finish pending rollbacks.

        A completed commit can be rolled back if it is the last one: roll back later commits first.
        Raises: `NotFound`, `Conflict` naming what prevents it.
        """
        service = RollbackService(self.writer())
        if instant is None:
            service.schedule_failed()
            results = service.execute_pending()
        else:
            results = (service.execute(service.schedule(instant)),)
        self.refresh()
        return results

    def savepoint(
        self, instant: str | None = None, *, by: str = "", comment: str = ""
    ) -> SavepointInfo:
        """Create a savepoint at a commit, by default the last one.

        Its files are kept until the savepoint is deleted. Raises: `NotFound`, `Conflict` if it
        exists or a clean has deleted files of it.
        """
        return Savepoints(self.writer()).create(instant, by=by, comment=comment)

    def delete_savepoint(self, instant: str) -> None:
        """Delete a savepoint. Raises: `NotFound`."""
        Savepoints(self.writer()).delete(instant)

    def savepoints(self) -> tuple[SavepointInfo, ...]:
        """Return the savepoints, oldest first."""
        return Savepoints(self.writer()).list()

    def restore(self, to: str, *, fence: bool = False) -> RollbackResult | None:
        """Restore the table to its state at the completion of commit `to`.

        Rolls back every later commit. Returns None if there is none. With `fence`, running writers
        are fenced instead of making the restore fail.
        Raises: `NotFound`, `Conflict` naming what prevents it.
        """
        service = Restore(self.writer(), fence=fence)
        planned = service.schedule(to)
        result = None if planned is None else service.execute(planned)
        self.refresh()
        return result

    def expire_partitions(self) -> ExpiredPartitions:
        """Delete partitions that are older than `hoodie.partition.ttl.*` allows.

        Raises: `ConfigInvalid`, `InvalidInput` for a table without partitions, `WriteConflict` if
        concurrent writes conflicted each time.
        """
        rule = ttl_rule(self._options)
        expired = ExpiredPartitions() if rule is None else PartitionTtl(self.writer()).run(rule)
        self.refresh()
        return expired

    def _serve(self, service: Callable[[TableWriter, Mapping[str, object]], Service]) -> ServiceRun:
        run = service(self.writer(), self._options).run()
        self.refresh()
        return run

    def _run_due_services(self) -> None:
        """Run inline services, and wake up the async ones. Their failures are only logged (H20)."""
        if self._inline is None:
            inline, background = split_options(self._options)
            self._inline = InlineServices(self.writer(), inline)
            if background is not None:
                self._async = AsyncServices(self.uri, partial(self._async_services, background))
        self._inline.after_write()
        if self._async is not None:
            self._async.notify()

    def _async_services(
        self, options: Mapping[str, object], watch: ProgressListener
    ) -> InlineServices:
        """Return the services of the background thread. They have a writer of their own."""
        writer = self._new_writer(options)
        writer.services = services_engine(self._store, self._options, self._spark, watch)
        return InlineServices(writer, options, owner=self.writer().transactions.ledger.owner)
