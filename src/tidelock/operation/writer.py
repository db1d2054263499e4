"""Carrying out a write: prepare, place, write, commit; and again on top of others if need be."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

import pyarrow as pa

from tidelock.base.clock import Clock
from tidelock.base.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    Unavailable,
    Unsupported,
)
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.outcome import Unknown
from tidelock.engine.contract import Doomed, Tagged, TagRule, WriteEngine, WritePlan
from tidelock.engine.local_write import LocalWriter
from tidelock.engine.service import LocalServices, ServiceEngine, ServiceTask
from tidelock.kernel.context import WriteContext
from tidelock.kernel.lookup import IndexKind
from tidelock.kernel.merge import Merger, MergeRule
from tidelock.kernel.prepare import PrepareRule
from tidelock.kernel.results import FileResult
from tidelock.kernel.route import FILE_ID, TOMBSTONE
from tidelock.operation.attempts import (
    Doom,
    Kept,
    Ticket,
    conflict_error,
    planned_footprint,
    wanted,
)
from tidelock.operation.create import check_identity
from tidelock.operation.drafting import commit_draft, with_replaced
from tidelock.operation.inputs import evolved_schema, without_missing
from tidelock.operation.job import Job
from tidelock.operation.keycheck import keep_their_order, logs_of, shares_named, shares_no_key
from tidelock.operation.moment import Moment
from tidelock.operation.observing import writing
from tidelock.operation.placing import Placed, Placing
from tidelock.operation.reads import snapshot_now
from tidelock.operation.report import WriteReport, counted, repeated_report
from tidelock.operation.settings import WriteSettings
from tidelock.operation.view import TableView, load_view
from tidelock.store.contract import ObjectStore
from tidelock.store.courtesy import in_line
from tidelock.table.keys import KeyRule
from tidelock.table.properties import TableProperties
from tidelock.table.properties_file import KEY as PROPERTIES
from tidelock.table.schema.avro import arrow_schema, avro_schema, parse_schema, render_schema
from tidelock.table.schema.meta import PARTITION_PATH, RECORD_KEY, with_meta
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.metadata import OperationType
from tidelock.txn.config import Mode
from tidelock.txn.draft import CommitDraft, Committed, Overtaken
from tidelock.txn.fold import Fold, already_applied
from tidelock.txn.strategy import Strategy
from tidelock.txn.transaction import Transaction
from tidelock.txn.transactions import Transactions
from tidelock.txn.verdict import CheckKeys, KeyCheck, Rebase, Refuse, Repeated, ReplanReplaced


@dataclass(frozen=True, slots=True)
class SchemaNow:
    """The table's columns, and the Avro text that commits record for them."""

    schema: pa.Schema
    avro: str


@dataclass
class TableWriter:
    """Writes to one table; keeps what it knows of it between writes.

    Guarantees: a write that returns a report happened, once, on top of every write before it in
    the order of the ledger. One that raises `OutcomeUnknown` may have happened; after every other
    error it has not, and nothing of it is ever visible.
    """

    store: ObjectStore
    properties: TableProperties
    settings: WriteSettings
    engine: WriteEngine
    transactions: Transactions
    merger: Merger | None = None
    ids: IdSource = field(default_factory=SystemIds)
    services: ServiceEngine | None = None
    """What runs table services; threads of this process without one."""
    snapshot: TableSnapshot | None = None
    """The table as a reader saw it; what is refused before the ledger is looked at, is by that."""
    _view: TableView | None = None
    _viewing: threading.Lock = field(default_factory=threading.Lock)
    _schema: SchemaNow | None = None

    def write(self, job: Job, engine: WriteEngine | None = None) -> WriteReport:
        """Carry out one write, with an engine for its kind of rows if they need one.

        Raises: `InvalidInput` for rows that do not fit, `WriteConflict` with the report of what
        came between, `OutcomeUnknown`, and what reading and writing files raise.
        """
        home = self.transactions
        with writing(home.clock, self.store.uri, job.name, owner=home.owner) as seen:
            report = self._write(job, engine)
            seen.report = report
        return report

    def _write(self, job: Job, engine: WriteEngine | None) -> WriteReport:
        kept = Kept(engine or self.engine)
        rounds = conflicts = 0
        try:
            if self._view is None:
                self._check_first(job, kept)
            self.begin_table()
            while True:
                done = self._done_before(job)
                if done is not None:
                    return done
                try:
                    with self._in_line(job, rounds):
                        outcome = self._attempt(job, kept, rounds)
                except (NotFound, Unavailable) as error:
                    # A clean may have removed what this write began from, after others' commits.
                    if isinstance(error, Unavailable) and job.compute is None:
                        raise
                    rounds += 1
                    if rounds > self.settings.rebase_rounds_max or not self._is_behind(kept):
                        raise
                    continue
                if isinstance(outcome, WriteReport):
                    return outcome
                if isinstance(outcome.verdict, Repeated):
                    return repeated_report(job.name, outcome.verdict.applied)
                if isinstance(outcome.verdict, Refuse):
                    conflicts += 1
                    if conflicts > self.settings.conflict_retries:
                        raise conflict_error(self.store.uri, outcome)
                rounds += 1
                if rounds > self.settings.rebase_rounds_max:
                    raise conflict_error(self.store.uri, outcome, rounds=rounds)
                self.transactions.observing.overtaken_often(rounds, outcome.reason)
        finally:
            kept.release()

    def _check_first(self, job: Job, kept: Kept) -> None:
        """Refuse a write that cannot be before the first look at the ledger adds anything to it.

        Who comes to a table that others wrote enters their commits there, so a write that was
        refused would otherwise leave a table of theirs with a ledger.
        """
        self.transactions.check_may_change()
        if job.rows is None or job.compute is not None:
            return
        for last in (False, True):
            try:
                now = self._evolved(job, self._seen_schema(), kept.engine)
                kept.prepared(job.rows, self._rule(job, now))
            except InvalidInput:
                if last:
                    raise
                self.snapshot = None  # others may have changed the schema since
            else:
                return

    def _seen_schema(self) -> SchemaNow:
        """Return the table's columns as a reader sees them, without a look at the ledger."""
        if self.snapshot is None:
            self.snapshot = snapshot_now(self.store)
        try:
            return self._parsed(self.snapshot.schema_json() or "")
        except Conflict:  # its instants have left the timeline since
            return self.schema(self.view())

    def _done_before(self, job: Job) -> WriteReport | None:
        """Return the report of a write whose mark says that it was applied; saves the work."""
        if job.mark is None:
            return None
        applied = already_applied(job.mark, self.transactions.ledger.refresh(foreign=False))
        return None if applied is None else repeated_report(job.name, applied)

    def _is_behind(self, kept: Kept) -> bool:
        """Tell whether others have committed since a write looked at the table."""
        return kept.position < self.transactions.ledger.refresh().position

    def begin_table(self) -> None:
        """Make sure that the table has a completed write, if only an empty one.

        Files that precede the first one would be taken for archived ones, even of a failed write.
        """
        if self._view is None and not self.view().has_writes:
            self._attempt(Job(OperationType.INSERT), Kept(self.engine), 0)

    def columns(self) -> pa.Schema:
        """Return the table's columns as far as is known here."""
        if self._view is None:
            return self._seen_schema().schema
        return self.schema(self.view(fresh=False)).schema

    def serve(
        self,
        tasks: Sequence[ServiceTask],
        context: WriteContext,
        *,
        doomed: Doomed | None = None,
    ) -> tuple[FileResult, ...]:
        """Run the tasks of a table service. Raises: `Conflict` once `doomed` says why to stop."""
        engine = self.services or LocalServices(self.store)
        return engine.serve(tasks, context, doomed=doomed)

    def context(self, transaction: Transaction) -> WriteContext:
        """Return what every file of a table service has in common."""
        return self._context(transaction, self.schema(self.view()))

    def close(self) -> None:
        """Stop the heartbeats, and give the lock back."""
        self.transactions.close()

    def view(self, *, fresh: bool = True) -> TableView:
        """Return the table as it is at the end of the ledger.

        Unless it must be `fresh`, the end that is known here will do.
        """
        ledger = self.transactions.ledger
        known = self._view
        if fresh or known is None:
            fold = ledger.refresh(foreign=known is None or self.transactions.looks_early)
        else:
            fold = ledger.fold
        with self._viewing:
            self._view = self._viewed(fold)
            return self._view

    def _viewed(self, fold: Fold) -> TableView:
        """Return the view at `fold`, or the one that is known if another thread came further."""
        known = self._view
        if known is not None and known.fold.position >= fold.position:
            return known
        ledger = self.transactions.ledger
        entries = None if known is None else ledger.since(known.fold.position)
        if known is not None and entries is not None:
            # Other threads may have read on since.
            followed = known.follow((e for e in entries if e.position <= fold.position), fold)
            if followed is not None:
                return followed
        if ledger.view.published < fold.position:
            ledger.publish()  # another thread has committed, and did not come to that yet
        sizing = self.settings.sizing
        least = sizing.threshold * sizing.small_bytes
        return load_view(self.store, self.properties, fold, least_bytes=least)

    def schema(self, view: TableView) -> SchemaNow:
        """Return the table's columns at a view."""
        return self._parsed(view.known_schema())

    def _parsed(self, avro: str) -> SchemaNow:
        if self._schema is None or self._schema.avro != avro:
            where = self.store.uri
            parsed = parse_schema(avro, where=where) if avro else None
            found = pa.schema([]) if parsed is None else arrow_schema(parsed, where=where)
            self._schema = SchemaNow(found, avro)
        return self._schema

    def _in_line(self, job: Job, rounds: int) -> AbstractContextManager[bool]:
        """Line up with the others on this machine, where one would undo another's work.

        Only while there are others: a lone writer, and rows that are only added, need no line.
        """
        crowded = self.transactions.line.is_here and (rounds or self.transactions.is_crowded)
        blind = self._is_blind(job) and not job.reads
        # Who writes log files without reading lines up only after it was overtaken.
        if blind or not crowded or (self._nonblocking and not rounds):
            return nullcontext(enter_result=False)
        transactions = self.transactions
        return in_line(
            self.store,
            PROPERTIES,
            wait_ms=transactions.settings.turn_wait_ms,
            clock=transactions.clock,
        )

    def _attempt(self, job: Job, kept: Kept, rounds: int) -> WriteReport | Overtaken:
        view, now, placed = self._placed(job, kept, rounds)
        action = job.action(self.properties.type)
        with ExitStack() as held:
            transaction = held.enter_context(
                self.transactions.begin(action, job.operation, base=view.fold, rebased=rounds)
            )
            # Whoever made the first files of a partition told Java of it.
            settled = view.peopled.intersection(task.partition for task in placed.plan.tasks)
            context = replace(self._context(transaction, now), settled=frozenset(settled))
            doom = Doom(transaction, planned_footprint(job, placed))
            try:
                results = self._written(placed, context, kept, doom)
            except Conflict:
                solves = self.transactions.settings.strategy is Strategy.SOLVE
                stopped = doom.overtaken(view.fold.position, solves=solves)
                if stopped is None:
                    raise
                transaction.rollback(overtaken=stopped)
                return stopped
            draft = self._draft(job, placed, results, now, kept.engine)
            outcome, draft = self._commit(transaction, draft, placed, results, kept)
            if isinstance(outcome, Overtaken):
                files = [result.stat.path for result in results if result.stat.path]
                queues = not self.transactions.line.is_here and isinstance(outcome.verdict, Rebase)
                if kept.ticket is None and queues:
                    # What was overtaken first keeps its place in the queue until this write is
                    # through. Nothing of it can be seen, and nothing of it will be.
                    transaction.ask_turn(*wanted(placed, blind=self._is_blind(job)))
                    kept.ticket = Ticket(transaction, outcome, files)
                    held.pop_all()
                else:
                    transaction.rollback(overtaken=outcome, files=files)
                return outcome
        return WriteReport(
            job.name,
            outcome.instant,
            outcome.completion,
            **counted(results),
            files_replaced=len(draft.replaced),
            rebases=rounds,
        )

    def _placed(self, job: Job, kept: Kept, rounds: int) -> tuple[TableView, SchemaNow, Placed]:
        """Return where the rows go, once it is this writer's turn to go there."""
        while True:
            # Rows that are only added read nothing. Whatever came since is judged by the commit.
            view = self.view(fresh=rounds > 0 or not self._is_blind(job))
            kept.position = view.fold.position
            job = kept.bound(job, view.fold.position, partial(self._moment, view))
            now = self._evolved(job, self.schema(view), kept.engine, rounds)
            prepared = None if job.rows is None else kept.prepared(job.rows, self._rule(job, now))
            crowded = rounds > 0 or self.transactions.is_crowded
            placing = self._placing(kept.engine, now)
            placed = placing.place(job, prepared, view, crowded=crowded)
            mine = wanted(placed, blind=self._is_blind(job))
            if self.transactions.line.is_here or not self.transactions.wait_turn(*mine):
                return view, now, placed
            if self.transactions.ledger.fold.position == view.fold.position:
                return view, now, placed

    def _commit(
        self,
        transaction: Transaction,
        draft: CommitDraft,
        placed: Placed,
        results: tuple[FileResult, ...],
        kept: Kept,
    ) -> tuple[Committed | Overtaken, CommitDraft]:
        """Commit, with what can be mended without writing files again mended."""
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
                        hint="open the table again and look for it before writing it again",
                    )
                case Overtaken(verdict=CheckKeys(checks=checks)):
                    unnamed = [p for p, keys in placed.tagged.missing.items() if keys is None]
                    new = [check for check in checks if not check.groups]
                    if not shares_no_key(self.store, draft, results, new, unnamed=unnamed):
                        return outcome, draft
                    if self._has_copies(checks, placed, kept):
                        return outcome, draft
                    if not self._keep_order(checks, results, transaction.instant):
                        return outcome, draft
                    cleared.update(check.position for check in checks)
                case Overtaken(verdict=ReplanReplaced(add=add, drop=drop)) if not self._bucketed:
                    draft = with_replaced(draft, (draft.replaced | add) - drop)
                case Overtaken():
                    return outcome, draft
                case _:
                    assert_never(outcome)

    def _has_copies(self, checks: Iterable[KeyCheck], placed: Placed, kept: Kept) -> bool:
        """Tell whether others inserted a key of this write into the file groups to be checked.

        A group that is gone by now was replaced since, and nothing is certain.
        """
        new = [each for each in checks if each.groups and not each.log_order]
        if not new or kept.rows is None:
            return bool(new)
        told = [(check, shares_named(kept.rows.rows, check)) for check in new]
        groups = frozenset().union(*(check.groups for check, shared in told if shared is None))
        if any(shared for _, shared in told) or not groups:
            return any(shared for _, shared in told)
        slices = self.view().of({partition for partition, _ in groups})
        found = tuple(slices[group] for group in sorted(groups) if group in slices)
        if len(found) < len(groups):
            return True
        rule = TagRule(IndexKind.SIMPLE, found, anywhere=placed.reliance.anywhere)
        profile = kept.engine.tag(kept.rows, rule).profile
        return any(partition.updates for partition in profile.values())

    def _keep_order(
        self, checks: Iterable[KeyCheck], results: Sequence[FileResult], instant: str
    ) -> bool:
        """Tell whether readers merge log files of others and of `instant` as the ledger has them.

        Files of others that are gone were compacted since, and nothing is certain.
        """
        for check in (each for each in checks if each.log_order):
            slices = self.view().of({partition for partition, _ in check.groups})
            for group in sorted(check.groups):
                piece = slices.get(group)
                theirs = [
                    log for log in (piece.logs if piece else ()) if log.instant == check.instant
                ]
                mine = [each for each in results if (each.partition, each.file_id) == group]
                if not theirs or not keep_their_order(
                    self.store,
                    logs_of(mine),
                    theirs,
                    self.columns(),
                    self._merge_rule(),
                    reversed_order=instant < check.instant,
                ):
                    return False
        return True

    def _moment(self, view: TableView) -> Moment:
        slices = tuple(view.of().values())
        rule = self._merge_rule()
        return Moment(self.store, slices, self.schema(view).schema, rule, self.properties)

    def _evolved(
        self, job: Job, known: SchemaNow, engine: WriteEngine, rounds: int = 0
    ) -> SchemaNow:
        if job.rows is None or job.deletes:
            return known
        incoming = engine.schema(job.rows)
        if job.tombstones:
            incoming = pa.schema([field for field in incoming if field.name != TOMBSTONE])
        rule, where = self.settings.evolution, self.store.uri
        found = evolved_schema(known.schema, incoming, rule, where=where)
        if not job.tombstones:
            found = without_missing(
                found,
                incoming,
                rule,
                ordered_by=self._merge_rule().ordered_by,
                # A column that others added while this write went on is no fault of its rows.
                null_for_missing=self.settings.null_for_missing or rounds > 0,
                where=where,
            )
        if known.avro and found.equals(known.schema):
            return known
        avro = avro_schema(found, table=self.properties.name)
        return SchemaNow(arrow_schema(avro, where=self.store.uri), render_schema(avro))

    def _rule(self, job: Job, now: SchemaNow) -> PrepareRule:
        match job.operation:
            case OperationType.UPSERT:
                dedupe = self.settings.combine_upsert
            case OperationType.DELETE:
                dedupe = self.settings.combine_delete
            case _:
                dedupe = self.settings.combine_insert
        marks = [pa.field(TOMBSTONE, pa.bool_())] if job.tombstones else []
        return PrepareRule(
            pa.schema([*now.schema, *marks]),
            KeyRule.of(self.properties),
            self._merge_rule(),
            dedupe=dedupe,
            only_keys=job.deletes,
            anywhere=job.anywhere,
            where=f"rows for {self.store.uri}",
        )

    def _is_blind(self, job: Job) -> bool:
        """Tell whether a write looks for no key, so that one may come to be there twice."""
        return job.inserts and not self.settings.drop_duplicates

    def _merge_rule(self) -> MergeRule:
        return MergeRule.of(self.properties, merger=self.merger)

    @property
    def _bucketed(self) -> bool:
        return self.settings.index is IndexKind.BUCKET

    @property
    def _nonblocking(self) -> bool:
        return self.transactions.settings.mode is Mode.NON_BLOCKING

    def _placing(self, engine: WriteEngine, now: SchemaNow) -> Placing:
        return Placing(
            engine,
            self.properties,
            self.settings,
            self.ids,
            with_meta(now.schema),
            self._merge_rule(),
            nonblocking=self._nonblocking,
        )

    def _context(self, transaction: Transaction, now: SchemaNow) -> WriteContext:
        return WriteContext(
            transaction.instant,
            transaction.attempt,
            with_meta(now.schema),
            now.avro,
            self._merge_rule(),
            self.settings.files,
        )

    def _written(
        self, placed: Placed, context: WriteContext, kept: Kept, doom: Doom
    ) -> tuple[FileResult, ...]:
        if not placed.plan.tasks:
            return ()
        if kept.rows is not None:
            early = self.transactions.settings.early_detection
            doomed = doom if early else None
            return kept.engine.write(placed.tagged, placed.plan, context, doomed=doomed)
        return self._without_rows(placed.plan, context)

    def _without_rows(self, plan: WritePlan, context: WriteContext) -> tuple[FileResult, ...]:
        # What needs no rows needs no engine but this process.
        lead = [pa.field(name, pa.string()) for name in (RECORD_KEY, PARTITION_PATH, FILE_ID)]
        nothing = pa.schema([*lead, *context.user_schema]).empty_table()
        return LocalWriter(self.store).write(Tagged(nothing, {}), plan, context)

    def _draft(
        self,
        job: Job,
        placed: Placed,
        results: tuple[FileResult, ...],
        now: SchemaNow,
        engine: WriteEngine,
    ) -> CommitDraft:
        return commit_draft(
            job,
            placed,
            results,
            avro=now.avro,
            blind=self._is_blind(job),
            bucketed=self._bucketed,
            nonblocking=self._nonblocking and not job.overwrites,
            tried_once=not engine.tries_twice,
        )


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
    """Return the writer of a table, with the options read and checked.

    Raises: `ConfigInvalid`, `Unsupported`.
    """
    if not properties.populates_meta_fields:
        raise Unsupported(
            f"{store.uri} has no meta columns (hoodie.populate.meta.fields=false)",
            hint="such tables are read here, not written",
        )
    check_identity(properties, options)
    settings = WriteSettings.read(options, properties)
    transactions = Transactions(store, options, properties=properties, clock=clock, ids=ids)
    buckets = settings.index is IndexKind.BUCKET
    transactions.settings.check_table(properties, simple_buckets=buckets)
    return TableWriter(
        store, properties, settings, engine, transactions, merger, ids or SystemIds()
    )
