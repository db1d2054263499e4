"""The simulated processes: each has a real table open, over a store that fails."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import pyarrow as pa

from tidelock.base.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    TidelockError,
)
from tidelock.base.ids import SeededIds
from tidelock.engine import local, local_write, service
from tidelock.engine.local import LocalEngine
from tidelock.operation.reads import snapshot_now
from tidelock.operation.report import WriteReport
from tidelock.operation.writer import TableWriter
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.instant import Action
from tidelock.tableservice import running
from tidelock.tableservice.archive.execute import Archiving
from tidelock.tableservice.config import archive_bounds
from tidelock.tableservice.restore.execute import Restore
from tidelock.tableservice.rollback.execute import Rollback
from tidelock.tableservice.running import Service
from tidelock.tableservice.table import Table
from tidelock.testing.txnsim.lease import Lease, LeaseLock
from tidelock.testing.txnsim.network import Client
from tidelock.testing.txnsim.rows.oracle import row_of
from tidelock.testing.txnsim.rows.terms import Job, Op, Terms, Work
from tidelock.testing.txnsim.rows.truth import RowStore, RowTruth, Seen
from tidelock.testing.txnsim.witness import Told
from tidelock.testing.txnsim.world import Process, World
from tidelock.testing.txnsim.writer import BEAT_MS
from tidelock.txn.locking import TableLock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelock.lock.provider import LockProvider
    from tidelock.operation.moment import Moment
    from tidelock.txn.aside import Work as AsideWork

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
    """The table that ships, with the heartbeat and the work aside as threads of a process."""

    def __init__(self, process: RowProcess, snapshot: TableSnapshot) -> None:
        """Wrap a snapshot; what is written is told to the process's history."""
        self._process = process
        super().__init__(
            snapshot,
            engine=LocalEngine(1),
            options=process.terms.options(),
            clock=process,
            ids=SeededIds(process.world.rng.getrandbits(48)),
        )

    def writer(self) -> TableWriter:
        """Return what carries out writes, under the name of the process."""
        if self._writer is not None:
            return self._writer
        process, writer = self._process, super().writer()
        home = writer.transactions
        home.ledger.owner = process.name
        home.aside = process.aside
        # The simulated process has its own thread for this.
        home.beating._running = True  # noqa: SLF001
        if process.lease is not None:
            hand = LeaseLock(process.lease, process)
            process.start(hand.renew)
            provider = cast("LockProvider", hand)
            home.lock = TableLock(provider, process, wait_ms=_LOCK_WAIT_MS, retries=0)
        true = home.begin

        def begin(*values: Any, **options: Any) -> Any:
            transaction = true(*values, **options)
            process.begun(transaction.instant)
            return transaction

        home.begin = begin  # type: ignore[method-assign]
        begin_table = writer.begin_table

        def found() -> None:
            process.founds = True
            try:
                begin_table()
            finally:
                process.founds = False

        writer.begin_table = found  # type: ignore[method-assign]
        process.start(lambda: process.beat(writer), delay_ms=process.world.random() * BEAT_MS)
        return writer


class RowProcess(Process):
    """A process that opens the table when it first needs it, and keeps it open."""

    def __init__(
        self, world: World, name: str, store: RowStore, terms: Terms, *, offset_ms: float = 0.0
    ) -> None:
        """Open nothing yet."""
        super().__init__(world, name, offset_ms=offset_ms)
        self.client = Client(self, store, page=self.page(terms), late_ms=terms.late_ms)
        self.lease: Lease | None = None
        self.truth: RowTruth = store.rows
        self.terms = terms
        self.idle = False
        self.told: Told | None = None
        self.founds = False
        self._table: RowTable | None = None

    def page(self, terms: Terms) -> int:
        """Return how many objects a listing returns at once."""
        return terms.page

    def table(self) -> RowTable:
        """Return the table, as it was when this process last looked."""
        if self._table is None:
            self._table = RowTable(self, snapshot_now(self.client))
        return self._table

    def begun(self, instant: str) -> None:
        """Note the instant that a write was given, or the table's own first one."""
        if self.founds or self.told is None:
            self.truth.begun[instant] = f"{self.name} begins the table"
        else:
            self.truth.begin(self.told, instant)

    def aside(self, work: AsideWork) -> None:
        """Let the rest of a commit be done beside what this process does next."""

        def quietly() -> None:
            try:
                work()
            except TidelockError as error:
                self.world.say(self.name, f"left something: {error}")

        self.start(quietly, delay_ms=self.world.random() * self.world.plan.latency_ms)

    def beat(self, writer: TableWriter) -> None:
        """Refresh heartbeats for ever."""
        while True:
            self.sleep_ms(BEAT_MS)
            writer.transactions.beating.beat()

    def attempt(self, what: str, act: Callable[[], R]) -> R | None:
        """Do something; an error is the caller's to hear, and no more."""
        try:
            done = act()
        except TidelockError as error:
            self.world.say(self.name, f"{what} failed: {type(error).__name__}: {error}")
            return None
        self.world.say(self.name, f"{what}: {done}")
        return done


class RowWriter(RowProcess):
    """Does its jobs one after the other, each until it is answered."""

    def work(self, todo: list[Told]) -> None:
        """Do what is left to do."""
        for told in todo:
            if not told.ended:
                self.told = told
                self._work(told)
                told.ended = True
        self.idle = True

    def _work(self, told: Told) -> None:
        job, healthy = self.truth.jobs[told.write], 0
        while healthy < ROUNDS_MAX:
            try:
                report = self.write(job)
            except OutcomeUnknown as error:
                self.world.say(self.name, f"{told.write} is unknown: {error}")
                told.doubted |= set(told.instants) - told.failed
                return
            except TidelockError as error:
                self.world.say(self.name, f"{told.write}: {type(error).__name__}: {error}")
                for instant in told.instants:
                    self.truth.fail(told, instant)
                if isinstance(error, InvalidInput) and job.op is Op.DELETE_PARTITION:
                    told.doubted.add("")  # there is no such partition
                    return
                healthy += self.world.healed
                self.sleep_ms((1_000 if self.world.healed else 100) * self.world.random())
                if isinstance(error, Conflict):
                    self.attempt("what others left", self._finish)
                continue
            for instant in told.instants:
                if report is None or instant != report.instant:
                    self.truth.fail(told, instant)
            if report is not None:
                self.world.say(self.name, f"{told.write} is {report}")
                self.truth.acknowledge(told, report.instant)
            else:
                told.doubted.add("")  # there was nothing to write
            return
        self.truth.broken.append(f"liveness: {told.write} ends in no {ROUNDS_MAX} healthy rounds")

    def _finish(self) -> object:
        """Finish a roll-back or a restore that keeps everybody from writing, as its error says."""
        writer = self.table().writer()
        halting = writer.transactions.ledger.refresh().halting
        if halting is None:
            return None
        kind = Restore if halting.action is Action.RESTORE else Rollback
        return kind(writer).execute(halting.instant)

    def write(self, job: Job) -> WriteReport | None:
        """Write by the table that ships; None if there was nothing to write."""
        table = self.table()
        match job.op:
            case Op.UPSERT | Op.ADD_COLUMN | Op.WIDEN | Op.TOMBSTONE:
                return table.upsert(given(job))
            case Op.INSERT | Op.INSERT_COLUMN:
                return table.insert(given(job))
            case Op.BULK_INSERT:
                return table.bulk_insert(given(job))
            case Op.DELETE:
                return table.delete(given(job).select(["p", "k"]))
            case Op.DELETE_ANYWHERE:
                return table.delete([row.key for row in job.rows])
            case Op.OVERWRITE:
                return table.insert_overwrite(given(job))
            case Op.OVERWRITE_TABLE:
                return table.insert_overwrite_table(given(job))
            case Op.DELETE_PARTITION:
                return table.delete_partition(sorted({row.partition for row in job.rows}))
            case Op.REWRITE:
                return table.rewrite(lambda now: counted_up(job, now))


def given(job: Job) -> pa.Table:
    """Return the rows of a job as a user has them."""
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


def counted_up(job: Job, now: Moment) -> pa.Table | None:
    """Return the rows of a job that the table has, with one more in `n`."""
    values = {(each.partition, each.key): each.value for each in job.rows}
    held = now.read()
    rows = [
        {**row, "v": values[row["p"], row["k"]], "n": row["n"] + 1}
        for row in held.to_pylist()
        if (row["p"], row["k"]) in values
    ]
    return pa.Table.from_pylist(rows, held.schema) if rows else None


class RowServant(RowProcess):
    """Runs table services, planning and executing apart."""

    def serve(self, turns: list[Work]) -> None:
        """Do what is left to do."""
        while turns:
            self.sleep_ms(400.0 * self.world.random())
            work = turns.pop(0)
            self.attempt(work.value, lambda work=work: self.once(work))  # type: ignore[misc]
        self.idle = True

    def once(self, work: Work) -> object:
        """Do one thing."""
        table, options = self.table(), self.terms.options()
        writer = table.writer()
        plain: dict[Work, Callable[[], object]] = {
            Work.ARCHIVE: lambda: Archiving(writer).run(archive_bounds(options)),
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
        options = self.terms.options()
        match work:
            case Work.COMPACT_PLAN | Work.COMPACT:
                return running.compaction(writer, options)
            case Work.LOG_COMPACT:
                return running.log_compaction(writer, options)
            case Work.CLUSTER_PLAN | Work.CLUSTER:
                return running.clustering(writer, options)
            case _:
                return running.clean(writer, options)

    def _roll_back(self) -> object:
        table = self.table()
        table.refresh()
        done = [i for i in table.timeline if i.is_completed and i.action.writes_data]
        return table.rollback(max(done, key=lambda i: i.completion).requested) if done else None

    def _restore(self) -> object:
        saved = self.table().savepoints()
        return self.table().restore(saved[-1].instant, fence=True) if saved else None


class RowReader(RowProcess):
    """Reads snapshots, and follows the changes as the documentation says."""

    def page(self, terms: Terms) -> int:
        """Readers are slow: their listings come object by object, or at once."""
        return min(terms.page, 1)

    def serve(self, turns: list[int]) -> None:
        """Read until its turns are over, or the world is healed: others are not to wait for it."""
        since = BEFORE_ALL
        look = self._follow if self.terms.follows else self._changes
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
        self.truth.seen.append(Seen(self.name, rows, shown, len(self.truth.ledger)))
        return len(rows)

    def _follow(self, since: str) -> str:
        """Take what has completed, commit by commit, until nothing comes."""
        first = None if since == BEFORE_ALL else since
        try:
            for completion, rows in self.table().follow(first, idle_ms=0):
                given = Seen(self.name, rows.to_pylist(), since=since, until=completion)
                self.truth.seen.append(given)
                since = completion
        except NotFound:
            return self.table().latest_completion or since  # a clean was faster
        except TidelockError as error:
            self.world.say(self.name, f"follows no further: {error}")
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
            return until  # a clean was faster
        self.truth.seen.append(Seen(self.name, rows, since=since, until=until))
        return until


class InlinePool:
    """A pool whose work is done by whoever brings it, before it goes on."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Everything is done."""

    def submit(self, run: Callable[..., R], *values: Any) -> Future[R]:
        """Do the work."""
        done: Future[R] = Future()
        try:
            done.set_result(run(*values))
        except Exception as error:
            done.set_exception(error)
        return done


@contextmanager
def inline_pools() -> Iterator[None]:
    """Let the engines that ship work without threads, whose order nobody could repeat."""
    modules: tuple[Any, ...] = (local, local_write, service)
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
