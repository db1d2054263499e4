"""`tl.Table`: a Hudi table, read, written and kept in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from tidelock.engine.local_write import LocalWriter
from tidelock.engine.service import Watch
from tidelock.operation.frames import session_of
from tidelock.operation.job import Job
from tidelock.operation.report import WriteReport
from tidelock.operation.table import Table as WrittenTable
from tidelock.operation.writer import TableWriter, table_writer
from tidelock.table.snapshot import TableSnapshot
from tidelock.tableservice.archive.execute import Archived, Archiving
from tidelock.tableservice.beside import Beside, split
from tidelock.tableservice.config import archive_bounds
from tidelock.tableservice.engines import services_engine
from tidelock.tableservice.inline import Inline
from tidelock.tableservice.leases import LEASE_MS, TTL_MS, ReaderLease
from tidelock.tableservice.restore.execute import Restore
from tidelock.tableservice.rollback.execute import Rollback
from tidelock.tableservice.running import (
    Ran,
    Service,
    clean,
    clustering,
    compaction,
    log_compaction,
)
from tidelock.tableservice.savepoint.execute import Saved, Savepoints
from tidelock.tableservice.ttl.config import expiry
from tidelock.tableservice.ttl.execute import Expired, PartitionTtl
from tidelock.txn.rollbacks import CarriedOut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Table(WrittenTable):
    """A table: reads see it as it was when it was opened, refreshed, or last written from here.

    Guarantees: a write that returns a report happened, on top of every write before it; every
    read sees all of each write, or nothing. Services never change the rows, but for those that
    take back or expire. A table may be used by
    several threads; its writes take their turns.
    """

    _inline: Inline | None = None
    _beside: Beside | None = None
    _spark: SparkSession | None = None
    _lease: ReaderLease | None = None

    def on_spark(self, spark: SparkSession) -> Self:
        """Let services of this table run in the workers of a session, and return the table.

        Writing a frame of Spark's does this too. Raises: `Unsupported` for Spark Connect.
        """
        if spark is not self._spark:
            self.writer().services = services_engine(self._store, self._options, spark)
            self._spark = spark
        return self

    def lease(self, ttl_ms: int = TTL_MS) -> ReaderLease:
        """Return a block in which cleans of ours keep the files that reads of this table need.

        A courtesy to long queries, which must not be relied on: a clean that was planned before
        does not see it. It is renewed until the block is left.

            with orders.lease():
                for batch in orders.batches(): ...
        """
        return ReaderLease(
            self._store, self._snapshot, clock=self._clock, ids=self._ids, ttl_ms=ttl_ms
        )

    @property
    def _snapshot(self) -> TableSnapshot:
        fresh = self._seen is None or self._lease is None
        found = super()._snapshot
        ttl_ms = LEASE_MS.required(self._options) if fresh else 0
        if ttl_ms > 0:
            self._end_lease()
            self._lease = ReaderLease(
                self._store, found, clock=self._clock, ids=self._ids, ttl_ms=ttl_ms
            )
            self._lease.begin()
        return found

    def _end_lease(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.end()

    def close(self) -> None:
        """Let services beside the writes finish, and give back the store's connections."""
        if self._beside is not None:
            self._beside.stop()
        self._end_lease()
        super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it; after an error services beside the writes are not waited for."""
        if kind is not None and self._beside is not None:
            self._beside.stop(cancel=True)
        super().__exit__(kind, error, trace)

    def _run(self, job: Job) -> WriteReport:
        session = session_of(job.rows) or job.session
        if session is not None:
            self.on_spark(cast("SparkSession", session))
        report = super()._run(job)
        if self._inline is None:
            after, beside = split(self._options)
            self._inline = Inline(self.writer(), after)
            if beside is not None:
                self._beside = Beside(self.uri, partial(self._made_beside, beside))
        self._inline.after_write()
        if self._beside is not None:
            self._beside.nudge()
        return report

    def _made_beside(self, options: Mapping[str, object], watch: Watch) -> Inline:
        """Return what works beside the writes: with a writer of its own, as another process."""
        writer = table_writer(
            LocalWriter(self._store, self._engine.workers),
            self._store,
            self.properties,
            options,
            merger=self._merger,
            clock=self._clock,
            ids=self._ids,
        )
        writer.services = services_engine(self._store, self._options, self._spark, watch)
        return Inline(writer, options, owner=self.writer().transactions.ledger.owner)

    def compact(self) -> Ran:
        """Merge log files into base files, pending plans first, and say what was done.

        Which file groups are compacted is for `hoodie.compaction.strategy` and its settings. Plans
        that another process is executing are left to it. Raises: `ConfigInvalid`.
        """
        return self._serve(compaction)

    def log_compact(self) -> Ran:
        """Merge the log files of file groups that have many, without writing their base files.

        How many are many is for `hoodie.log.compaction.blocks.threshold`. Plans that another
        process is executing are left to it. Raises: `Unsupported` for a table that merges by a
        class of its own, `ConfigInvalid`.
        """
        return self._serve(log_compaction)

    def cluster(self) -> Ran:
        """Move rows to fewer, or better sorted, file groups, and say what was done.

        Which files are clustered, and by which columns rows are sorted, is for
        `hoodie.clustering.plan.strategy.*`. Where a writer came between, the clustering gave way:
        its plan is undone, and `left` of what is returned says who it was.
        Raises: `Unsupported` for a table with a bucket index, `ConfigInvalid`.
        """
        return self._serve(clustering)

    def clean(self) -> Ran:
        """Roll back what dead writers left, then delete files that nobody needs any more.

        How much of the past stays readable is for `hoodie.clean.policy` and its settings. Plans
        that another process is executing are left to it. Raises: `ConfigInvalid`.
        """
        return self._serve(clean)

    def archive(self) -> Archived:
        """Move the oldest instants from the active timeline to the history.

        How many stay is for `hoodie.keep.min.commits` and `hoodie.keep.max.commits`.
        Raises: `Conflict` if other processes archive this table all the time.
        """
        done = Archiving(self.writer()).run(archive_bounds(self._options))
        self.refresh()
        return done

    def rollback(self, instant: str | None = None) -> tuple[CarriedOut, ...]:
        """Roll back what dead writers left, or one instant, and finish what others left of that.

        A commit that has completed is taken back if it is the last one; what is later goes first.
        Raises: `NotFound`, `Conflict` saying what is in the way.
        """
        service = Rollback(self.writer())
        if instant is None:
            service.schedule_failed()
            done = service.execute_pending()
        else:
            done = (service.execute(service.schedule(instant)),)
        self.refresh()
        return done

    def savepoint(self, instant: str | None = None, *, by: str = "", comment: str = "") -> Saved:
        """Keep the state as of a commit, the last one if none is named, until it is given up.

        Raises: `NotFound`, `Conflict` if it is kept already or a clean has deleted files of it.
        """
        return Savepoints(self.writer()).create(instant, by=by, comment=comment)

    def delete_savepoint(self, instant: str) -> None:
        """Give up what a savepoint keeps. Raises: `NotFound`."""
        Savepoints(self.writer()).delete(instant)

    def savepoints(self) -> tuple[Saved, ...]:
        """Return the states that are kept, the oldest first."""
        return Savepoints(self.writer()).found()

    def restore(self, to: str, *, fence: bool = False) -> CarriedOut | None:
        """Bring the table back to what it was when the commit `to` had completed.

        Everything that completed later is taken back; None if there is nothing of that kind.
        `fence` shuts out writers that are alive, instead of refusing.
        Raises: `NotFound`, `Conflict` saying what is in the way.
        """
        service = Restore(self.writer(), fence=fence)
        planned = service.schedule(to)
        done = None if planned is None else service.execute(planned)
        self.refresh()
        return done

    def expire_partitions(self) -> Expired:
        """Delete partitions that are older than `hoodie.partition.ttl.*` says.

        Raises: `ConfigInvalid`, `InvalidInput` for a table without partitions, `WriteConflict` if
        writers came between each time.
        """
        when = expiry(self._options)
        done = Expired() if when is None else PartitionTtl(self.writer()).run(when)
        self.refresh()
        return done

    def _serve(self, service: Callable[[TableWriter, Mapping[str, object]], Service]) -> Ran:
        done = service(self.writer(), self._options).run()
        self.refresh()
        return done
