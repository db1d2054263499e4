"""The write path: prepare rows, assign file groups, write files, commit; retry on conflicts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

import pyarrow as pa

from tidelock.core.clock import Clock
from tidelock.core.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    Unavailable,
    Unsupported,
)
from tidelock.core.ids import IdSource
from tidelock.core.outcome import Unknown
from tidelock.core.system import SystemIds
from tidelock.execution.engine import IsCancelled, PrepareRule, TaggedRows, TagRule, WriteEngine
from tidelock.execution.filegroup.context import FileResult, WriteContext
from tidelock.execution.filegroup.key_lookup import IndexKind
from tidelock.execution.filegroup.merge import Merger, MergeRule
from tidelock.execution.local.write import LocalWriter
from tidelock.execution.service_tasks import LocalServices, ServiceEngine, ServiceTask
from tidelock.execution.write_plan import FILE_ID, TOMBSTONE, WritePlan
from tidelock.hudi.keys import KeyRule
from tidelock.hudi.properties import KEY as PROPERTIES
from tidelock.hudi.properties import TableProperties
from tidelock.hudi.schema import (
    PARTITION_PATH,
    RECORD_KEY,
    arrow_schema,
    avro_schema,
    parse_schema,
    render_schema,
    with_meta,
)
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.metadata import OperationType
from tidelock.operations.attempt import (
    CancellationCheck,
    PreparedBatch,
    ReadSnapshot,
    RetryTicket,
    commit_draft,
    conflict_error,
    file_paths,
    has_named_key,
    keys_are_disjoint,
    log_files_of,
    merge_order_holds,
    planned_footprint,
    with_replaced,
    write_set,
)
from tidelock.operations.config import WriteSettings
from tidelock.operations.create import check_identity
from tidelock.operations.file_view import TableView, load_view
from tidelock.operations.partitioner import Assignment, Partitioner
from tidelock.operations.read import snapshot_now
from tidelock.operations.report import WriteReport, committed_report, observe_write, repeated_report
from tidelock.operations.request import WriteRequest, evolved_schema, without_missing
from tidelock.storage.contract import ObjectStore
from tidelock.storage.local import file_queue
from tidelock.txn.commit import CommitDraft
from tidelock.txn.config import ConcurrencyMode
from tidelock.txn.conflicts import (
    Abort,
    CheckKeys,
    Committed,
    Conflicted,
    ConflictStrategy,
    KeyCheck,
    Rebase,
    Repeated,
    ReplanReplaced,
)
from tidelock.txn.state import LedgerState, already_applied
from tidelock.txn.transaction import Transaction
from tidelock.txn.transaction_manager import TransactionManager


@dataclass(frozen=True, slots=True)
class CurrentSchema:
    """The table's Arrow schema, and the Avro schema text that commits record."""

    schema: pa.Schema
    avro: str


@dataclass
class TableWriter:
    """Runs the writes to one table, and caches its file view between them.

    Guarantees: a write that returns a report is committed exactly once, on top of every earlier
    commit in ledger order. A write that raises `OutcomeUnknown` may be committed. After any other
    error the write is not committed, and nothing of it becomes visible.
    """

    store: ObjectStore
    properties: TableProperties
    settings: WriteSettings
    engine: WriteEngine
    transactions: TransactionManager
    merger: Merger | None = None
    ids: IdSource = field(default_factory=SystemIds)
    services: ServiceEngine | None = None
    """The engine for table services; None for threads of this process."""
    snapshot: TableSnapshot | None = None
    """The last snapshot that a reader loaded, for checks that come before the ledger is read."""
    _view: TableView | None = None
    _view_lock: threading.Lock = field(default_factory=threading.Lock)
    _schema: CurrentSchema | None = None

    def write(self, request: WriteRequest, engine: WriteEngine | None = None) -> WriteReport:
        """Run one write, with another engine than the default if its rows need one.

        Raises: `InvalidInput` for rows that do not fit the table, `WriteConflict` with the conflict
        report, `OutcomeUnknown`, and the errors of reading and writing files.
        """
        txns, settings = self.transactions, self.settings
        batch = PreparedBatch(engine or self.engine)
        rebases = conflicts = 0
        with (
            observe_write(
                txns.clock, self.store.uri, request.name, owner=txns.owner
            ) as observation,
            closing(batch),
        ):
            if self._view is None:
                self._check_before_ledger(request, batch)
            self.ensure_first_commit()
            while True:
                observation.report = self._repeated_report(request)
                if observation.report is not None:
                    return observation.report
                try:
                    with self._local_queue(request, rebases):
                        outcome = self._attempt(request, batch, rebases)
                except (NotFound, Unavailable) as error:
                    # A clean may have deleted files of the snapshot after concurrent commits.
                    if isinstance(error, Unavailable) and request.compute is None:
                        raise
                    rebases += 1
                    if rebases > settings.rebase_rounds_max:
                        raise
                    if batch.position >= txns.ledger.refresh().position:
                        raise
                    continue
                if not isinstance(outcome, Conflicted):
                    observation.report = outcome
                    return outcome
                conflicts += isinstance(outcome.verdict, Abort)
                if conflicts > settings.conflict_retries:
                    raise conflict_error(self.store.uri, outcome)
                rebases += 1
                if rebases > settings.rebase_rounds_max:
                    raise conflict_error(self.store.uri, outcome, rounds=rebases)
                txns.telemetry.conflicted_again(rebases, outcome)

    def _check_before_ledger(self, request: WriteRequest, batch: PreparedBatch) -> None:
        """Check the rows of a write before the ledger is read for the first time.

        Reading the ledger imports the commits of external writers. A write that is refused must
        not leave a ledger behind in a table that has none.
        """
        self.transactions.check_writable()
        if request.rows is None or request.compute is not None:
            return
        for last in (False, True):
            try:
                now = self._evolve_schema(request, self._snapshot_schema(), batch.engine)
                batch.prepare(request.rows, self._prepare_rule(request, now))
            except InvalidInput:
                if last:
                    raise
                self.snapshot = None  # another writer may have changed the schema
            else:
                return

    def _snapshot_schema(self) -> CurrentSchema:
        """Return the table's schema as readers see it, without reading the ledger."""
        if self.snapshot is None:
            self.snapshot = snapshot_now(self.store)
        try:
            return self._parse_schema(self.snapshot.schema_json() or "")
        except Conflict:  # its instants were archived
            return self.schema(self.view())

    def _repeated_report(self, request: WriteRequest) -> WriteReport | None:
        """Return the report of a batch that was applied before, without writing it again."""
        if request.app_transaction is None:
            return None
        state = self.transactions.ledger.refresh(external=False)
        applied = already_applied(request.app_transaction, state)
        return None if applied is None else repeated_report(request.name, applied)

    def ensure_first_commit(self) -> None:
        """Make an empty commit if the table has no completed write.

        Readers treat files older than the first completed write as committed and archived, even
        files of a failed write.
        """
        if self._view is None and not self.view().has_writes:
            self._attempt(WriteRequest(OperationType.INSERT), PreparedBatch(self.engine), 0)

    def columns(self) -> pa.Schema:
        """Return the table's columns as last seen by this writer."""
        if self._view is None:
            return self._snapshot_schema().schema
        return self.schema(self.view(fresh=False)).schema

    def run_service_tasks(
        self,
        tasks: Sequence[ServiceTask],
        context: WriteContext,
        *,
        is_cancelled: IsCancelled | None = None,
    ) -> tuple[FileResult, ...]:
        """Run the tasks of a table service. Raises: `Conflict` when `is_cancelled` has a reason."""
        engine = self.services or LocalServices(self.store)
        return engine.run(tasks, context, is_cancelled=is_cancelled)

    def context(self, transaction: Transaction) -> WriteContext:
        """Return the write context for the files of a table service."""
        return self._context(transaction, self.schema(self.view()))

    def close(self) -> None:
        """Stop the heartbeats and release the lock."""
        self.transactions.close()

    def view(self, *, fresh: bool = True) -> TableView:
        """Return the table's file view at the end of the ledger.

        With `fresh=False`, the end that this process knows is enough.
        """
        ledger = self.transactions.ledger
        known = self._view
        if fresh or known is None:
            state = ledger.refresh(external=known is None or self.transactions.checks_early)
        else:
            state = ledger.state
        with self._view_lock:
            self._view = self._view_at(state)
            return self._view

    def _view_at(self, state: LedgerState) -> TableView:
        """Return the view at a ledger state, or a newer one that another thread loaded."""
        known = self._view
        if known is not None and known.state.position >= state.position:
            return known
        ledger = self.transactions.ledger
        entries = None if known is None else ledger.since(known.state.position)
        if known is not None and entries is not None:
            # Another thread may have refreshed the ledger beyond this state.
            followed = known.follow((e for e in entries if e.position <= state.position), state)
            if followed is not None:
                return followed
        if ledger.view.published < state.position:
            ledger.publish()  # another thread has committed and not published yet
        sizing = self.settings.sizing
        least = sizing.threshold * sizing.small_bytes
        return load_view(self.store, self.properties, state, least_bytes=least)

    def schema(self, view: TableView) -> CurrentSchema:
        """Return the table's schema at a view."""
        return self._parse_schema(view.known_schema())

    def _parse_schema(self, avro: str) -> CurrentSchema:
        if self._schema is None or self._schema.avro != avro:
            where = self.store.uri
            parsed = parse_schema(avro, where=where) if avro else None
            found = pa.schema([]) if parsed is None else arrow_schema(parsed, where=where)
            self._schema = CurrentSchema(found, avro)
        return self._schema

    def _local_queue(self, request: WriteRequest, rebases: int) -> AbstractContextManager[bool]:
        """Return a queue of this machine's writers, to avoid conflicts between them.

        A single writer and writes that only add rows do not queue.
        """
        txns = self.transactions
        contended = txns.queue.is_local and (rebases or txns.is_contended)
        blind = self._is_blind(request) and not request.reads
        # A writer that appends log files without reading queues only after a conflict.
        if blind or not contended or (self._nonblocking and not rebases):
            return nullcontext(enter_result=False)
        wait_ms = txns.settings.priority_wait_ms
        path = self.store.local_path(PROPERTIES)
        return file_queue(path, wait_ms=wait_ms, clock=txns.clock)

    def _attempt(
        self, request: WriteRequest, batch: PreparedBatch, rebases: int
    ) -> WriteReport | Conflicted:
        """Write the files on top of the current state and try to commit them."""
        view, now, assignment = self._assign(request, batch, rebases)
        txns, action = self.transactions, request.action(self.properties.type)
        with ExitStack() as held:
            transaction = held.enter_context(
                txns.begin(action, request.operation, base=view.state, rebased=rebases)
            )
            engine, tagged, plan = batch.engine, assignment.tagged, assignment.plan
            # These partitions have the metadata file that Java needs: their first writer made it.
            known = view.used_partitions.intersection(task.partition for task in plan.tasks)
            context = replace(self._context(transaction, now), known_partitions=known)
            cancellation = CancellationCheck(transaction, planned_footprint(request, assignment))
            results: tuple[FileResult, ...] = ()
            try:
                if plan.tasks and batch.rows is not None:
                    is_cancelled = cancellation if txns.settings.early_detection else None
                    results = engine.write(tagged, plan, context, is_cancelled=is_cancelled)
                elif plan.tasks:
                    results = self._write_without_rows(plan, context)
            except Conflict:
                solves = txns.settings.strategy is ConflictStrategy.SOLVE
                conflict = cancellation.conflict(view.state.position, solves=solves)
                if conflict is None:
                    raise
                transaction.rollback(conflict=conflict)
                return conflict
            draft = commit_draft(
                request,
                assignment,
                results,
                avro=now.avro,
                blind=self._is_blind(request),
                bucketed=self._bucketed,
                nonblocking=self._nonblocking and not request.overwrites,
                tried_once=not engine.retries_tasks,
            )
            outcome, draft = self._commit(transaction, draft, assignment, results, batch)
            if isinstance(outcome, Conflicted):
                if isinstance(outcome.verdict, Repeated):
                    transaction.rollback(conflict=outcome, files=file_paths(results))
                    return repeated_report(request.name, outcome.verdict.applied)
                queues = not txns.queue.is_local and isinstance(outcome.verdict, Rebase)
                if batch.ticket is None and queues:
                    # The first attempt that conflicted keeps its ticket in the queue until the
                    # write ends. Its files are not visible and never will be.
                    claimed = write_set(assignment, blind=self._is_blind(request))
                    transaction.request_priority(*claimed)
                    batch.ticket = RetryTicket(transaction, outcome, file_paths(results))
                    held.pop_all()
                else:
                    transaction.rollback(conflict=outcome, files=file_paths(results))
                return outcome
        replaced = len(draft.replaced)
        return committed_report(
            request.name, outcome, results, files_replaced=replaced, rebases=rebases
        )

    def _assign(
        self, request: WriteRequest, batch: PreparedBatch, rebases: int
    ) -> tuple[TableView, CurrentSchema, Assignment]:
        """Assign the rows to file groups, after waiting for writers with an earlier ticket."""
        txns = self.transactions
        while True:
            # Inserts without key lookup read nothing; the commit checks for conflicts anyway.
            view = self.view(fresh=rebases > 0 or not self._is_blind(request))
            position = batch.position = view.state.position
            request = batch.with_rows(request, position, partial(self._read_snapshot, view))
            now = self._evolve_schema(request, self.schema(view), batch.engine, rebases)
            prepared = None
            if request.rows is not None:
                prepared = batch.prepare(request.rows, self._prepare_rule(request, now))
            partitioner = Partitioner(
                batch.engine,
                self.properties,
                self.settings,
                self.ids,
                with_meta(now.schema),
                self._merge_rule(),
                nonblocking=self._nonblocking,
            )
            contended = rebases > 0 or txns.is_contended
            assignment = partitioner.assign(request, prepared, view, contended=contended)
            claimed = write_set(assignment, blind=self._is_blind(request))
            waited = not txns.queue.is_local and txns.wait_for_priority(*claimed)
            if not waited or txns.ledger.state.position == position:
                return view, now, assignment

    def _commit(
        self,
        transaction: Transaction,
        draft: CommitDraft,
        assignment: Assignment,
        results: tuple[FileResult, ...],
        batch: PreparedBatch,
    ) -> tuple[Committed | Conflicted, CommitDraft]:
        """Commit, and resolve conflicts that need no files to be written again."""
        cleared: set[int] = set()
        while True:
            outcome = transaction.commit(draft, cleared=frozenset(cleared))
            match outcome:
                case Committed():
                    return outcome, draft
                case Unknown(cause):
                    raise OutcomeUnknown(
                        f"{self.store.uri}: {draft.operation} {transaction.instant} may or may not"
                        f" have been committed: {cause}",
                        hint="reopen the table and check its history before writing the rows again",
                    )
                case Conflicted(verdict=CheckKeys(checks=checks)):
                    unnamed = [p for p, keys in assignment.tagged.missing.items() if keys is None]
                    new = [check for check in checks if not check.groups]
                    if not keys_are_disjoint(self.store, draft, results, new, unnamed=unnamed):
                        return outcome, draft
                    if self._keys_were_inserted(checks, assignment, batch):
                        return outcome, draft
                    if not self._log_order_holds(checks, results, transaction.instant):
                        return outcome, draft
                    cleared.update(check.position for check in checks)
                case Conflicted(verdict=ReplanReplaced(add=add, drop=drop)) if not self._bucketed:
                    draft = with_replaced(draft, (draft.replaced | add) - drop)
                case Conflicted():
                    return outcome, draft
                case _:
                    assert_never(outcome)

    def _keys_were_inserted(
        self, checks: Iterable[KeyCheck], assignment: Assignment, batch: PreparedBatch
    ) -> bool:
        """Return whether another commit inserted a key of this write into the checked file groups.

        Returns True if a file group has been replaced since, because its keys are unknown.
        """
        new = [each for each in checks if each.groups and not each.log_order]
        if not new or batch.rows is None:
            return bool(new)
        named = [(check, has_named_key(batch.rows.rows, check)) for check in new]
        groups = frozenset().union(*(check.groups for check, shared in named if shared is None))
        if any(shared for _, shared in named) or not groups:
            return any(shared for _, shared in named)
        slices = self.view().file_slices({partition for partition, _ in groups})
        found = tuple(slices[group] for group in sorted(groups) if group in slices)
        if len(found) < len(groups):
            return True
        rule = TagRule(IndexKind.SIMPLE, found, anywhere=assignment.dependencies.anywhere)
        profile = batch.engine.tag(batch.rows, rule).profile
        return any(partition.updates for partition in profile.values())

    def _log_order_holds(
        self, checks: Iterable[KeyCheck], results: Sequence[FileResult], instant: str
    ) -> bool:
        """Return whether readers merge the log files of `instant` and others in ledger order.

        Returns False if log files of others have been compacted since.
        """
        for check in (each for each in checks if each.log_order):
            slices = self.view().file_slices({partition for partition, _ in check.groups})
            for group in sorted(check.groups):
                logs = slices[group].logs if group in slices else ()
                theirs = [log for log in logs if log.instant == check.instant]
                mine = [each for each in results if (each.partition, each.file_id) == group]
                if not theirs or not merge_order_holds(
                    self.store,
                    log_files_of(mine),
                    theirs,
                    self.columns(),
                    self._merge_rule(),
                    reversed_order=instant < check.instant,
                ):
                    return False
        return True

    def _read_snapshot(self, view: TableView) -> ReadSnapshot:
        slices = tuple(view.file_slices().values())
        rule = self._merge_rule()
        return ReadSnapshot(self.store, slices, self.schema(view).schema, rule, self.properties)

    def _evolve_schema(
        self, request: WriteRequest, known: CurrentSchema, engine: WriteEngine, rebases: int = 0
    ) -> CurrentSchema:
        if request.rows is None or request.deletes:
            return known
        incoming = engine.schema(request.rows)
        if request.tombstones:
            incoming = pa.schema([field for field in incoming if field.name != TOMBSTONE])
        rule, where = self.settings.evolution, self.store.uri
        found = evolved_schema(known.schema, incoming, rule, where=where)
        if not request.tombstones:
            found = without_missing(
                found,
                incoming,
                rule,
                ordered_by=self._merge_rule().ordered_by,
                # The rows may lack a column that a concurrent commit added.
                null_for_missing=self.settings.null_for_missing or rebases > 0,
                where=where,
            )
        if known.avro and found.equals(known.schema):
            return known
        avro = avro_schema(found, table=self.properties.name)
        return CurrentSchema(arrow_schema(avro, where=self.store.uri), render_schema(avro))

    def _prepare_rule(self, request: WriteRequest, now: CurrentSchema) -> PrepareRule:
        dedupe = {
            OperationType.UPSERT: self.settings.combine_upsert,
            OperationType.DELETE: self.settings.combine_delete,
        }.get(request.operation, self.settings.combine_insert)
        tombstone = [pa.field(TOMBSTONE, pa.bool_())] if request.tombstones else []
        return PrepareRule(
            pa.schema([*now.schema, *tombstone]),
            KeyRule.of(self.properties),
            self._merge_rule(),
            dedupe=dedupe,
            only_keys=request.deletes,
            anywhere=request.anywhere,
            where=f"rows for {self.store.uri}",
        )

    def _is_blind(self, request: WriteRequest) -> bool:
        """Return whether a write looks up no keys, so that a key may occur twice afterwards."""
        return request.inserts and not self.settings.drop_duplicates

    def _merge_rule(self) -> MergeRule:
        return MergeRule.of(self.properties, merger=self.merger)

    @property
    def _bucketed(self) -> bool:
        return self.settings.index is IndexKind.BUCKET

    @property
    def _nonblocking(self) -> bool:
        return self.transactions.settings.mode is ConcurrencyMode.NON_BLOCKING

    def _context(self, transaction: Transaction, now: CurrentSchema) -> WriteContext:
        return WriteContext(
            transaction.instant,
            transaction.attempt,
            with_meta(now.schema),
            now.avro,
            self._merge_rule(),
            self.settings.files,
        )

    def _write_without_rows(self, plan: WritePlan, context: WriteContext) -> tuple[FileResult, ...]:
        # Without rows no distributed engine is needed.
        lead = [pa.field(name, pa.string()) for name in (RECORD_KEY, PARTITION_PATH, FILE_ID)]
        nothing = pa.schema([*lead, *context.user_schema]).empty_table()
        return LocalWriter(self.store).write(TaggedRows(nothing, {}), plan, context)


def table_writer(
    engine: WriteEngine,
    store: ObjectStore,
    properties: TableProperties,
    options: Mapping[str, object],
    *,
    merger: Merger | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> TableWriter:
    """Return the writer of a table with checked options. Raises: `ConfigInvalid`, `Unsupported`."""
    if not properties.populates_meta_fields:
        raise Unsupported(
            f"{store.uri}: cannot write to a table without meta columns"
            " (hoodie.populate.meta.fields=false)",
            hint="open it for reading only",
        )
    check_identity(properties, options)
    settings = WriteSettings.read(options, properties)
    transactions = TransactionManager(store, options, properties=properties, clock=clock, ids=ids)
    buckets = settings.index is IndexKind.BUCKET
    transactions.settings.check_table(properties, simple_buckets=buckets)
    return TableWriter(
        store, properties, settings, engine, transactions, merger, ids or SystemIds()
    )
