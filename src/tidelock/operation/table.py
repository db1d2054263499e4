"""`tl.Table`: a Hudi table, read and written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from tidelock.base.clock import Clock
from tidelock.base.config import check_values
from tidelock.base.errors import ConfigInvalid, Conflict, InvalidInput
from tidelock.base.ids import IdSource, SystemIds
from tidelock.engine.local import LocalEngine
from tidelock.engine.local_write import LocalWriter
from tidelock.kernel.merge import Merger
from tidelock.operation.create import Names, table_properties, user_schema, with_arguments
from tidelock.operation.frames import (
    frame_keys,
    is_frame,
    scan_frame,
    session_engine,
    session_of,
)
from tidelock.operation.inputs import arrow_table, check_metadata, key_table
from tidelock.operation.job import Job
from tidelock.operation.moment import Moment, NothingToWrite
from tidelock.operation.options import DELETE_PARTITIONS, OPERATION, check_options
from tidelock.operation.query import check_known, check_partitions, snapshot_scan
from tidelock.operation.reads import TableReads, snapshot_now
from tidelock.operation.report import WriteReport
from tidelock.operation.writer import TableWriter, table_writer
from tidelock.store.contract import ObjectStore
from tidelock.store.readback import Patience
from tidelock.store.uri import open_store
from tidelock.table.keys import KeyRule
from tidelock.table.properties_file import create_properties
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.metadata import OperationType
from tidelock.txn.mark import Mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BY_ROWS: Final = {
    "upsert": OperationType.UPSERT,
    "insert": OperationType.INSERT,
    "bulk_insert": OperationType.BULK_INSERT,
    "insert_overwrite": OperationType.INSERT_OVERWRITE,
    "insert_overwrite_table": OperationType.INSERT_OVERWRITE_TABLE,
}


class Table(TableReads):
    """A table: reads see it as it was when it was opened, refreshed, or last written from here.

    Guarantees: a write that returns a report happened, on top of every write before it; every
    read sees all of each write, or nothing. A table may be used by several threads; its writes
    take their turns.
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
        """Wrap a snapshot; `open` and `create` make one from a URI."""
        super().__init__(snapshot, engine=engine, merger=merger, clock=clock)
        self._options = dict(options or {})
        self._ids = ids or SystemIds()
        self._writing = threading.Lock()
        self._writer: TableWriter | None = None

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
        """Open the table whose base path is `uri`.

        `settings` are those of the store, `options` those of writes, by Hudi's names. `merger` is
        for tables that merge by a class of their own. `workers` is how many file slices are read
        at once.

            with tl.Table.open("s3://lake/orders") as orders:
                orders.read(columns=["id", "amount"])
                orders.upsert(rows)

        Raises: `NotFound` if there is no table, `Unsupported` for a table version before 8,
        `RecordFromFuture` for one after 9, `DataCorrupt`, `ResourceInvalid`, `ConfigInvalid`,
        `MissingExtra`.
        """
        store, chosen = _opened(uri, settings, options)
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
        """Make a table and open it.

        `schema` is an Arrow schema, or pairs of name and type. `key` is the column of the record
        key, or several; `ordering` the column whose larger value wins between rows of one key;
        `partition_by` the columns that make folders. `type` is `COPY_ON_WRITE`, which is the
        default, or `MERGE_ON_READ`; `version` 9 or 8. What is not given is taken from `options`,
        which have Hudi's names. With `exist_ok` a table that is there already is opened, unless it
        is another than what is asked for. What is refused leaves nothing behind.

            tl.Table.create("s3://lake/orders", schema, key="id", ordering="ts")

        Raises: `Conflict` if there is a table already, `InvalidInput`, `ConfigInvalid`,
        `Unsupported`, and what `open` raises.
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
        store, chosen = _opened(uri, given, None)
        try:
            properties = table_properties(store.uri, columns, chosen)
            # Everything that a first write would refuse is refused before there is a table.
            table_writer(LocalWriter(store), store, properties, chosen, merger=merger).close()
            try:
                create_properties(store, properties, patience=Patience())
            except Conflict:
                if not exist_ok:
                    raise
            table = cls(snapshot_now(store), merger=merger, options=chosen)
            table.writer().begin_table()
        except BaseException:
            store.close()
            raise
        table.refresh()
        return table

    def close(self) -> None:
        """Give back the store's connections; closing twice is no error."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._store.close()

    def __enter__(self) -> Self:
        """Return the table."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Name the table and its place."""
        return f"Table({self.properties.name!r}, {self.uri!r})"

    def write(
        self,
        rows: object = None,
        operation: str | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        mark: Mark | None = None,
    ) -> WriteReport:
        """Do what `hoodie.datasource.write.operation` says with rows, or what is named here.

        A `delete_partition` takes no rows but `hoodie.datasource.write.partitions.to.delete`.
        Raises: `ConfigInvalid` for an operation that there is not, and what the operation raises.
        """
        named = (operation or OPERATION.required(self._options)).lower()
        if named == "delete_partition":
            chosen = DELETE_PARTITIONS.required(self._options)
            return self.delete_partition(chosen, metadata=metadata, mark=mark)
        if named == "delete":
            return self.delete(rows, metadata=metadata, mark=mark)
        if named not in _BY_ROWS:
            known = ", ".join([*_BY_ROWS, "delete", "delete_partition"])
            raise ConfigInvalid(f"{OPERATION.key} = {named} is not known", hint=f"use {known}")
        return self._write(_BY_ROWS[named], rows, metadata, mark)

    def upsert(
        self,
        rows: object,
        *,
        metadata: Mapping[str, str] | None = None,
        mark: Mark | None = None,
    ) -> WriteReport:
        """Insert rows, and update those whose key the table has.

        `rows` are an Arrow table, batch or reader, a pandas, polars or Spark frame, or a list of
        dictionaries. Columns that the table does not have are added, types widen, and missing
        columns are null. Of several rows with one key the merge rule keeps one. Rows with true in
        `_hoodie_is_deleted` delete. `metadata` goes into the commit. `mark` is the batch of a
        pipeline: one that the table has taken before is not taken again, and the report says so.

        Raises: `InvalidInput` naming the column or row, `WriteConflict`, `OutcomeUnknown`, and
        what reading files raises.
        """
        return self._write(OperationType.UPSERT, rows, metadata, mark)

    def insert(
        self,
        rows: object,
        *,
        metadata: Mapping[str, str] | None = None,
        mark: Mark | None = None,
    ) -> WriteReport:
        """Insert rows without looking for their keys: a key may then be there twice.

        With `hoodie.datasource.write.insert.drop.duplicates` rows are left out whose key the table
        has. Raises: what `upsert` raises.
        """
        return self._write(OperationType.INSERT, rows, metadata, mark)

    def bulk_insert(
        self,
        rows: object,
        *,
        metadata: Mapping[str, str] | None = None,
        mark: Mark | None = None,
    ) -> WriteReport:
        """Insert many rows into files of their own.

        `hoodie.bulkinsert.sort.mode` says whether they are sorted. Raises: what `upsert` raises.
        """
        return self._write(OperationType.BULK_INSERT, rows, metadata, mark)

    def delete(
        self,
        keys: object,
        *,
        metadata: Mapping[str, str] | None = None,
        mark: Mark | None = None,
    ) -> WriteReport:
        """Delete rows by key. Keys that the table does not have are no error.

        `keys` are rows as `upsert` takes them, of which only the key's and the partition's columns
        count, or a list of values of a key of one column. Without the partition's columns keys are
        deleted from every partition. Raises: what `upsert` raises.
        """
        rule = KeyRule.of(self.properties)
        table: object
        if is_frame(keys):
            table, anywhere = frame_keys(keys, rule)
        else:
            table, anywhere = key_table(keys, rule, self.writer().columns())
        job = Job(
            OperationType.DELETE, table, anywhere=anywhere, metadata=metadata or {}, mark=mark
        )
        return self._run(job)

    def insert_overwrite(
        self,
        rows: object,
        *,
        metadata: Mapping[str, str] | None = None,
        mark: Mark | None = None,
    ) -> WriteReport:
        """Replace the partitions that `rows` lie in by `rows`.

        Raises: what `upsert` raises.
        """
        return self._write(OperationType.INSERT_OVERWRITE, rows, metadata, mark)

    def insert_overwrite_table(
        self,
        rows: object,
        *,
        metadata: Mapping[str, str] | None = None,
        mark: Mark | None = None,
    ) -> WriteReport:
        """Replace all rows of the table by `rows`. Raises: what `upsert` raises."""
        return self._write(OperationType.INSERT_OVERWRITE_TABLE, rows, metadata, mark)

    def delete_partition(
        self,
        partitions: Collection[str],
        *,
        metadata: Mapping[str, str] | None = None,
        mark: Mark | None = None,
    ) -> WriteReport:
        """Delete all rows of some partitions, given by their paths, as `files` shows them.

        Raises: `InvalidInput` for a table without partitions, and for partitions that it does not
        have; and what `upsert` raises.
        """
        if not self.properties.is_partitioned:
            raise InvalidInput(
                f"{self.uri} is not partitioned", hint="use insert_overwrite_table with no rows"
            )
        check_partitions(self._snapshot, partitions)
        chosen = tuple(sorted(set(partitions)))
        applied = None if mark is None else self.mark(mark.application)
        if applied is None or mark is None or applied.version < mark.version:
            check_known(self._snapshot, chosen)
        job = Job(
            OperationType.DELETE_PARTITION, partitions=chosen, metadata=metadata or {}, mark=mark
        )
        return self._run(job)

    def mark(self, application: str) -> Mark | None:
        """Return the last mark that a pipeline has committed; None if it has none.

        Of the table as it is now, whatever `refresh` has seen: a pipeline goes on from there.
        """
        applied = self.writer().transactions.ledger.refresh().marks.get(application)
        return None if applied is None else applied.mark

    def rewrite(
        self,
        compute: Callable[[Moment], object],
        operation: str = "upsert",
        *,
        spark: SparkSession | None = None,
        tombstones: bool = False,
        partitions: Collection[str] = (),
        reads: bool = True,
        metadata: Mapping[str, str] | None = None,
        mark: Mark | None = None,
    ) -> WriteReport | None:
        """Write rows that are computed from the table, as if nobody else wrote meanwhile.

        `compute` is called with the table as it is, and returns rows as `upsert` takes them, or
        None for nothing to do. It is called again when another write came between, so it should
        do nothing else. Spark's frames need the session as `spark`. With `tombstones` rows with
        true in the column `_tidelock_tombstone` delete their key. `partitions` are replaced by an
        `insert_overwrite` beside those that rows lie in. Without `reads` the rows do not depend on
        the table after all: they are computed once, and merged again if others came between. With a
        `mark` nothing to do is a commit, too: it says that the batch was applied.

            orders.rewrite(lambda now: raised(now.read(["id", "price", "region"])))

        Raises: what `upsert` raises, `ConfigInvalid` for an operation that there is not.
        """
        columns = self.writer().columns

        def rows(now: Moment) -> object:
            found = compute(now)
            if found is None and mark is not None:
                return columns().empty_table()
            return found if found is None or is_frame(found) else arrow_table(found, columns())

        kinds = {**_BY_ROWS, "delete": OperationType.DELETE}
        if operation not in kinds:
            known = ", ".join(kinds)
            raise ConfigInvalid(f"the operation {operation!r} is not known", hint=f"use {known}")
        job = Job(
            kinds[operation],
            partitions=tuple(sorted(partitions)),
            metadata=metadata or {},
            mark=mark,
            reads=reads,
            compute=rows,
            session=spark,
            tombstones=tombstones,
        )
        try:
            return self._run(job)
        except NothingToWrite:
            self.refresh()
            return None

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
        """Return the rows that `read` returns as a Spark frame, of which nothing is read yet.

        Base files without log files are read by Spark itself, with all that it can leave out;
        others in its Python workers, where `columns` says what is read.

        Raises: what `read` raises, `Unsupported` for a column that Spark has no type for.
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

    def writer(self) -> TableWriter:
        """Return what carries out this table's writes. Raises: `ConfigInvalid`, `Unsupported`."""
        if self._writer is None:
            self._writer = table_writer(
                LocalWriter(self._store, self._engine.workers),
                self._store,
                self.properties,
                self._options,
                merger=self._merger,
                clock=self._clock,
                ids=self._ids,
            )
            self._writer.snapshot = self._seen
        return self._writer

    def _write(
        self,
        operation: OperationType,
        rows: object,
        metadata: Mapping[str, str] | None,
        mark: Mark | None,
    ) -> WriteReport:
        if not is_frame(rows):
            rows = arrow_table(rows, self.writer().columns())
        return self._run(Job(operation, rows, metadata=metadata or {}, mark=mark))

    def _run(self, job: Job) -> WriteReport:
        check_metadata(job.metadata)
        writer, engine = self.writer(), None
        session = session_of(job.rows) or job.session
        if session is not None:
            engine = session_engine(session, self.uri, self._options)
        with self._writing:
            report = writer.write(job, engine)
        self.refresh()
        return report


def _opened(
    uri: str, settings: Mapping[str, object] | None, options: Mapping[str, object] | None
) -> tuple[ObjectStore, dict[str, object]]:
    chosen = {**(settings or {}), **(options or {})}
    check_options(chosen)
    check_values(chosen)
    return open_store(uri, chosen), chosen
