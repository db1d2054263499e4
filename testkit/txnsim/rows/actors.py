"""The simulated processes, each with a real table open over a faulty store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import pyarrow as pa

from testkit.txnsim.checked_store import WriteRecord
from testkit.txnsim.lease import Lease, LeaseLock
from testkit.txnsim.network import Client
from testkit.txnsim.rows.oracle import row_of
from testkit.txnsim.rows.parameters import Job, Op, Parameters, Work
from testkit.txnsim.rows.truth import ReadRecord, RowStore, RowTruth
from testkit.txnsim.world import Process, World
from testkit.txnsim.writer import BEAT_MS
from tidelock.core.errors import Conflict, InvalidInput, NotFound, OutcomeUnknown, TidelockError
from tidelock.core.system import SeededIds
from tidelock.execution import service_tasks
from tidelock.execution.local import read
from tidelock.execution.local import write as local_write
from tidelock.execution.local.read import LocalEngine
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.instant import Action
from tidelock.operations.read import snapshot_now
from tidelock.operations.report import WriteReport
from tidelock.operations.write import TableWriter
from tidelock.services import runner
from tidelock.services.archive import ArchiveService
from tidelock.services.config import archive_bounds
from tidelock.services.restore import Restore
from tidelock.services.rollback import RollbackService
from tidelock.services.runner import Service
from tidelock.table import Table
from tidelock.txn.transaction_manager import TableLock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelock.lock.provider import LockProvider
    from tidelock.operations.attempt import ReadSnapshot
    from tidelock.txn.transaction_manager import Work as CleanupWork

R = TypeVar("R")

ROUNDS_MAX = 40
_LOCK_WAIT_MS = 3_000
BEFORE_ALL = "00010101000000000"

SCHEMA = pa.schema(
    [
        ("p", pa.string()),
        ("k", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.int32()),
        ("n", pa.int32()),
    ]
)


class RowTable(Table):
    """The production table, with heartbeat and cleanup as threads of a simulated process."""

    def __init__(self, process: RowProcess, snapshot: TableSnapshot) -> None:
        """Wrap a snapshot; writes are recorded in the process's history."""
        self._process = process
        super().__init__(
            snapshot,
            engine=LocalEngine(1),
            options=process.parameters.options(),
            clock=process,
            ids=SeededIds(process.world.rng.getrandbits(48)),
        )

    def writer(self) -> TableWriter:
        """Return the writer, with the name of the process."""
        if self._writer is not None:
            return self._writer
        process, writer = self._process, super().writer()
        txns = writer.transactions
        txns.ledger.owner = process.name
        txns.cleanup = process.run_cleanup
        # The simulated process has its own thread for this.
        txns.heartbeat_thread._running = True  # noqa: SLF001
        if process.lease is not None:
            hand = LeaseLock(process.lease, process)
            process.start(hand.renew)
            provider = cast("LockProvider", hand)
            txns.lock = TableLock(provider, process, wait_ms=_LOCK_WAIT_MS, retries=0)
        true = txns.begin

        def begin(*values: Any, **options: Any) -> Any:
            transaction = true(*values, **options)
            process.begun(transaction.instant)
            return transaction

        txns.begin = begin  # type: ignore[method-assign]
        ensure_first_commit = writer.ensure_first_commit

        def found() -> None:
            process.founds = True
            try:
                ensure_first_commit()
            finally:
                process.founds = False

        writer.ensure_first_commit = found  # type: ignore[method-assign]
        process.start(lambda: process.beat(writer), delay_ms=process.world.random() * BEAT_MS)
        return writer


class RowProcess(Process):
    """A process that opens the table on first use and keeps it open."""

    def __init__(
        self,
        world: World,
        name: str,
        store: RowStore,
        parameters: Parameters,
        *,
        offset_ms: float = 0.0,
    ) -> None:
        """Open nothing yet."""
        super().__init__(world, name, offset_ms=offset_ms)
        self.client = Client(self, store, page=self.page(parameters), late_ms=parameters.late_ms)
        self.lease: Lease | None = None
        self.truth: RowTruth = store.rows
        self.parameters = parameters
        self.idle = False
        self.record: WriteRecord | None = None
        self.founds = False
        self._table: RowTable | None = None

    def page(self, parameters: Parameters) -> int:
        """Return the number of objects per listing request."""
        return parameters.page

    def table(self) -> RowTable:
        """Return the table, as of this process's last read."""
        if self._table is None:
            self._table = RowTable(self, snapshot_now(self.client))
        return self._table

    def begun(self, instant: str) -> None:
        """Record the instant of a write, or the table's first one."""
        if self.founds or self.record is None:
            self.truth.begun[instant] = f"{self.name} creates the first commit"
        else:
            self.truth.begin(self.record, instant)

    def run_cleanup(self, work: CleanupWork) -> None:
        """Run the rest of a commit in a separate thread of this process."""

        def quietly() -> None:
            try:
                work()
            except TidelockError as error:
                self.world.log(self.name, f"did not finish a cleanup: {error}")

        self.start(quietly, delay_ms=self.world.random() * self.world.plan.latency_ms)

    def beat(self, writer: TableWriter) -> None:
        """Refresh heartbeats until killed."""
        while True:
            self.sleep_ms(BEAT_MS)
            writer.transactions.heartbeat_thread.beat()

    def attempt(self, what: str, act: Callable[[], R]) -> R | None:
        """Run an action and record its error, if any."""
        try:
            done = act()
        except TidelockError as error:
            self.world.log(self.name, f"{what} failed: {type(error).__name__}: {error}")
            return None
        self.world.log(self.name, f"{what}: {done}")
        return done


class RowWriter(RowProcess):
    """Executes its jobs in order, each until it gets an answer."""

    def work(self, todo: list[WriteRecord]) -> None:
        """Execute the remaining jobs."""
        for record in todo:
            if not record.ended:
                self.record = record
                self._work(record)
                record.ended = True
        self.idle = True

    def _work(self, record: WriteRecord) -> None:
        job, healthy = self.truth.jobs[record.write], 0
        while healthy < ROUNDS_MAX:
            try:
                report = self.write(job)
            except OutcomeUnknown as error:
                self.world.log(self.name, f"{record.write} is unknown: {error}")
                record.unknown |= set(record.instants) - record.failed
                return
            except TidelockError as error:
                self.world.log(self.name, f"{record.write}: {type(error).__name__}: {error}")
                for instant in record.instants:
                    self.truth.fail(record, instant)
                if isinstance(error, InvalidInput) and job.op is Op.DELETE_PARTITION:
                    record.unknown.add("")  # the partition does not exist
                    return
                healthy += self.world.healed
                self.sleep_ms((1_000 if self.world.healed else 100) * self.world.random())
                if isinstance(error, Conflict):
                    self.attempt("finish of pending rollbacks", self._finish)
                continue
            for instant in record.instants:
                if report is None or instant != report.instant:
                    self.truth.fail(record, instant)
            if report is not None:
                self.world.log(self.name, f"{record.write} is {report}")
                self.truth.acknowledge(record, report.instant)
            else:
                record.unknown.add("")  # there was nothing to write
            return
        self.truth.broken.append(
            f"liveness: {record.write} did not end in {ROUNDS_MAX} rounds without faults"
        )

    def _finish(self) -> object:
        """Finish a rollback or restore that blocks all writes, as its error message says."""
        writer = self.table().writer()
        blocking_plan = writer.transactions.ledger.refresh().blocking_plan
        if blocking_plan is None:
            return None
        kind = Restore if blocking_plan.action is Action.RESTORE else RollbackService
        return kind(writer).execute(blocking_plan.instant)

    def write(self, job: Job) -> WriteReport | None:
        """Write with the production table; None if there was nothing to write."""
        table = self.table()
        match job.op:
            case Op.UPSERT | Op.ADD_COLUMN | Op.WIDEN | Op.TOMBSTONE:
                return table.upsert(input_rows(job))
            case Op.INSERT | Op.INSERT_COLUMN:
                return table.insert(input_rows(job))
            case Op.BULK_INSERT:
                return table.bulk_insert(input_rows(job))
            case Op.DELETE:
                return table.delete(input_rows(job).select(["p", "k"]))
            case Op.DELETE_ANYWHERE:
                return table.delete([row.key for row in job.rows])
            case Op.OVERWRITE:
                return table.insert_overwrite(input_rows(job))
            case Op.OVERWRITE_TABLE:
                return table.insert_overwrite_table(input_rows(job))
            case Op.DELETE_PARTITION:
                return table.delete_partition(sorted({row.partition for row in job.rows}))
            case Op.REWRITE:
                return table.rewrite(lambda now: counted_up(job, now))


def input_rows(job: Job) -> pa.Table:
    """Return the rows of a job as a user provides them."""
    schema = SCHEMA
    if job.op is Op.WIDEN:
        schema = schema.set(schema.get_field_index("v"), pa.field("v", pa.int64()))
    if job.column:
        schema = schema.append(pa.field(job.column, pa.string()))
    rows = [row_of(job, each) for each in job.rows]
    if job.op is Op.TOMBSTONE:
        schema = schema.append(pa.field("_hoodie_is_deleted", pa.bool_()))
        rows = [{**row, "_hoodie_is_deleted": True} for row in rows]
    return pa.Table.from_pylist(rows, schema)


def counted_up(job: Job, now: ReadSnapshot) -> pa.Table | None:
    """Return those rows of a job that the table has, with `n` increased by one."""
    values = {(each.partition, each.key): each.value for each in job.rows}
    held = now.read()
    rows = [
        {**row, "v": values[row["p"], row["k"]], "n": row["n"] + 1}
        for row in held.to_pylist()
        if (row["p"], row["k"]) in values
    ]
    return pa.Table.from_pylist(rows, held.schema) if rows else None


class RowService(RowProcess):
    """Runs table services, with planning and execution separate."""

    def serve(self, turns: list[Work]) -> None:
        """Execute the remaining services."""
        while turns:
            self.sleep_ms(400.0 * self.world.random())
            work = turns.pop(0)
            self.attempt(work.value, lambda work=work: self.once(work))  # type: ignore[misc]
        self.idle = True

    def once(self, work: Work) -> object:
        """Execute one service step."""
        table, options = self.table(), self.parameters.options()
        writer = table.writer()
        plain: dict[Work, Callable[[], object]] = {
            Work.ARCHIVE: lambda: ArchiveService(writer).run(archive_bounds(options)),
            Work.SAVEPOINT: table.savepoint,
            Work.ROLLBACK: self._roll_back,
            Work.RESTORE: self._restore,
        }
        if work in plain:
            return plain[work]()
        service = self._service(work, writer)
        match work:
            case Work.COMPACT_PLAN | Work.CLUSTER_PLAN:
                return service.schedule()
            case Work.COMPACT | Work.CLUSTER:
                return service.execute_pending()
            case _:
                return service.run()

    def _service(self, work: Work, writer: TableWriter) -> Service:
        options = self.parameters.options()
        match work:
            case Work.COMPACT_PLAN | Work.COMPACT:
                return runner.compaction(writer, options)
            case Work.LOG_COMPACT:
                return runner.log_compaction(writer, options)
            case Work.CLUSTER_PLAN | Work.CLUSTER:
                return runner.clustering(writer, options)
            case _:
                return runner.clean(writer, options)

    def _roll_back(self) -> object:
        table = self.table()
        table.refresh()
        done = [i for i in table.timeline if i.is_completed and i.action.writes_data]
        return table.rollback(max(done, key=lambda i: i.completion).requested) if done else None

    def _restore(self) -> object:
        saved = self.table().savepoints()
        return self.table().restore(saved[-1].instant, fence=True) if saved else None


class RowReader(RowProcess):
    """Reads snapshots, and follows changes as documented."""

    def page(self, parameters: Parameters) -> int:
        """Return the page size of listings; readers list object by object, or at once."""
        return min(parameters.page, 1)

    def serve(self, turns: list[int]) -> None:
        """Read as often as planned, or until faults end, so that no process waits for it."""
        since = BEFORE_ALL
        look = self._follow if self.parameters.follows else self._changes
        while turns and not self.world.healed:
            turns.pop()
            self.sleep_ms(250.0 * self.world.random())
            self.attempt("read", self._snapshot)
            since = self.attempt("changes", partial(look, since)) or since
        self.idle = True

    def _snapshot(self) -> int:
        shown = self.truth.shown()
        table = self.table()
        table.refresh()
        rows = table.read().to_pylist()
        self.truth.seen.append(ReadRecord(self.name, rows, shown, len(self.truth.ledger)))
        return len(rows)

    def _follow(self, since: str) -> str:
        """Read completed changes, commit by commit, until there are no more."""
        first = None if since == BEFORE_ALL else since
        try:
            for completion, rows in self.table().follow(first, idle_ms=0):
                input_rows = ReadRecord(self.name, rows.to_pylist(), since=since, until=completion)
                self.truth.seen.append(input_rows)
                since = completion
        except NotFound:
            return self.table().latest_completion or since  # a clean deleted the files
        except TidelockError as error:
            self.world.log(self.name, f"follows no further: {error}")
        return since

    def _changes(self, since: str) -> str:
        table = self.table()
        table.refresh()
        until = table.latest_completion
        if until is None or until <= since:
            return since
        try:
            rows = table.changes(since, until).to_pylist()
        except NotFound:
            return until  # a clean deleted the files
        self.truth.seen.append(ReadRecord(self.name, rows, since=since, until=until))
        return until


class InlinePool:
    """A pool that runs its work in the calling thread."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Return at once: all work is done."""

    def submit(self, run: Callable[..., R], *values: Any) -> Future[R]:
        """Run the work."""
        done: Future[R] = Future()
        try:
            done.set_result(run(*values))
        except Exception as error:
            done.set_exception(error)
        return done


@contextmanager
def inline_pools() -> Iterator[None]:
    """Run the production engines without threads, whose order could not be replayed."""
    modules: tuple[Any, ...] = (read, local_write, service_tasks)
    kept = [module.worker_pool for module in modules]

    def made(_name: str, _workers: int) -> AbstractContextManager[InlinePool]:
        return InlinePool()

    for module in modules:
        module.worker_pool = made
    try:
        yield
    finally:
        for module, pool in zip(modules, kept, strict=True):
            module.worker_pool = pool
