"""The transactions of one process on one table: begin, schedule, claim, recover."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Final, Self

from tidelock.core.clock import Clock, Now
from tidelock.core.errors import Conflict, LockHeld, OutcomeUnknown, TidelockError
from tidelock.core.ids import IdSource
from tidelock.core.system import SystemClock, SystemIds
from tidelock.core.telemetry import PROCESS, span
from tidelock.core.threads import DaemonPool
from tidelock.hudi.file_groups import GroupId
from tidelock.hudi.properties import TableProperties, load_properties
from tidelock.hudi.timeline.instant import Action, InstantState, format_time
from tidelock.hudi.timeline.metadata import (
    OperationType,
    RequestedReplaceMetadata,
    TimelineRecord,
    encode,
)
from tidelock.lock.alerts import Alerts
from tidelock.lock.config import (
    BASE_PATH,
    CLIENT_NUM_RETRIES,
    CLIENT_WAIT_BETWEEN_RETRIES_MS,
    WAIT_TIME_MS,
)
from tidelock.lock.provider import LockProvider
from tidelock.lock.providers.config import of_table
from tidelock.lock.providers.registry import open_provider, provider_name
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import ObjectMeta, ObjectStore
from tidelock.storage.uri import is_remote
from tidelock.txn import queueing
from tidelock.txn.commit import BeginRequest, Preconditions, begin, store_content
from tidelock.txn.config import FailedWrites, TimezonePolicy, TxnSettings
from tidelock.txn.effects import List, Pause, ReadClock, Steps
from tidelock.txn.entries import Commit, LedgerEntry, Plan
from tidelock.txn.external_writers import external_plan_targets
from tidelock.txn.footprint import commit_kind_of
from tidelock.txn.heartbeats import HEARTBEAT_FOLDER, Heartbeat, HeartbeatThread
from tidelock.txn.ledger import Ledger
from tidelock.txn.ledger_io import Appended, Declined, Undetermined, release_time
from tidelock.txn.plans import NotClaimed, claim, remove_plan, schedule
from tidelock.txn.queueing import LocalQueue, LockWaits
from tidelock.txn.recovery import Recovered, Recovery
from tidelock.txn.state import LedgerState, PendingPlan
from tidelock.txn.telemetry import LOCK_SPAN, TransactionTelemetry
from tidelock.txn.transaction import Transaction

Check = Callable[[], object]


@dataclass(slots=True)
class TableLock:
    """The table's lock provider with Hudi's retry settings, or no lock."""

    provider: LockProvider | None
    clock: Clock
    wait_ms: int = 60_000
    retries: int = 50
    between_ms: int = 5_000
    waits: LockWaits | None = None

    @classmethod
    def open(
        cls,
        settings: Mapping[str, object],
        store: ObjectStore,
        *,
        clock: Clock,
        waits: LockWaits | None = None,
    ) -> TableLock:
        """Open the provider in the settings for the table at `store`.

        `waits` records waiting processes, unless the provider has a queue of its own.
        """
        provider: LockProvider | None = None
        if provider_name(settings) is not None:
            provider = open_provider({BASE_PATH.key: store.uri, **settings})
        return cls(
            provider,
            clock,
            wait_ms=WAIT_TIME_MS.required(settings),
            retries=CLIENT_NUM_RETRIES.required(settings),
            between_ms=CLIENT_WAIT_BETWEEN_RETRIES_MS.required(settings),
            waits=None if provider is None or provider.features().fair_queue else waits,
        )

    @property
    def name(self) -> str:
        """The class name of the provider, as written to heartbeats; "" without one."""
        return "" if self.provider is None else type(self.provider).__name__

    @contextmanager
    def held(self) -> Iterator[Check | None]:
        """Hold the lock; yield a check that raises `HoldingLost` once it is lost, None without one.

        Raises: `LockHeld` if it could not be acquired in time.
        """
        provider = self.provider
        if provider is None:
            yield None
            return
        began_ms = self.clock.now().monotonic_ms
        waiting = nullcontext() if self.waits is None else self.waits.waiting()
        with span(LOCK_SPAN, provider=self.name), waiting:
            self._acquire(provider)
        PROCESS.time("txn.lock.wait", self.clock.now().monotonic_ms - began_ms)
        try:
            yield provider.check
        finally:
            try:
                provider.unlock()
            except TidelockError as error:
                # Published changes are durable: an error now would make the caller write them
                # again.
                logger.warning("the table's lock was not released: %s", error)

    def _acquire(self, provider: LockProvider) -> None:
        for attempt in range(self.retries + 1):
            if provider.try_lock(self.wait_ms):
                return
            if attempt < self.retries:
                self.clock.sleep_ms(self.between_ms)
        raise LockHeld(
            f"the table's lock was not acquired in {self.retries + 1} attempts of"
            f" {self.wait_ms} ms",
            hint="show the holder with `tidelock lock status`, or wait longer",
        )

    def close(self) -> None:
        if self.waits is not None:
            self.waits.close()
        if self.provider is not None:
            self.provider.close()


Work = Callable[[], object]

_WAITING_MAX: Final = 32
"""Maximum number of queued tasks; further ones run in the calling thread."""

_END_WAIT_S: Final = 10.0
"""How long process exit, or closing a table, waits for background tasks to finish."""

_pool = DaemonPool("tidelock-cleanup", 4)
_pid = os.getpid()
_all: weakref.WeakSet[BackgroundCleanup] = weakref.WeakSet()


def run_inline(work: Work) -> None:
    """Run the work in the calling thread, for stores that are as fast as starting a thread."""
    work()


class BackgroundCleanup:
    """Runs tasks in threads shared by all tables of this process, in any order."""

    def __init__(self) -> None:
        self._pending = 0
        self._ended = threading.Condition()
        _all.add(self)

    def __call__(self, work: Work) -> None:
        with self._ended:
            # A forked child does not have the threads.
            accepted = self._pending < _WAITING_MAX and _pid == os.getpid()
            self._pending += accepted
        if accepted:
            _pool.submit(lambda: self._do(work))
        else:
            work()

    def drain(self, timeout_s: float = _END_WAIT_S) -> bool:
        """Wait until all tasks are done; return False on timeout."""
        with self._ended:
            return _pid != os.getpid() or self._ended.wait_for(lambda: not self._pending, timeout_s)

    def _do(self, work: Work) -> None:
        try:
            work()
        except Exception:
            # No caller receives the error.
            logger.exception("background cleanup failed")
        finally:
            with self._ended:
                self._pending -= 1
                self._ended.notify_all()


def _drain_all() -> None:
    for each in list(_all):
        if not each.drain():
            return


atexit.register(_drain_all)

logger = logging.getLogger(__name__)

_RECENT_MS: Final = 2_000
_RECENT_ENTRIES_MAX: Final = 32
"""Number of ledger entries that are searched for concurrent writers."""


class TransactionManager:
    """Begins writes on the table at the root of `store`. Safe for use by several threads."""

    def __init__(
        self,
        store: ObjectStore,
        settings: Mapping[str, object] | None = None,
        *,
        properties: TableProperties | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        owner: str = "",
        cleanup: Callable[[Work], None] | None = None,
    ) -> None:
        """Read and check the settings; the table is read when a write begins.

        `cleanup` runs the removal of markers and heartbeats after commits. The default is a
        background thread for remote stores, and the calling thread otherwise.
        """
        given = settings or {}
        self.settings = TxnSettings.read(given)
        self.store = store
        self.clock = clock or SystemClock()
        self.ids = ids or SystemIds()
        known = properties or load_properties(store)
        self.preconditions = Preconditions(store.uri, known, self.settings)
        self.ledger = Ledger(
            store,
            clock=self.clock,
            ids=self.ids,
            timeline_folder=known.timeline_folder,
            history_folder=known.history_folder,
            owner=owner,
            check_table=self.preconditions.check,
            on_external=self._report_external,
            checks_zones=self.settings.timezone_policy is TimezonePolicy.REFUSE,
        )
        waits = LockWaits(store, self.clock, self.ledger.owner, *self.ids.process())
        named = of_table(
            given, store.uri, name=self.properties.name, database=self.properties.database
        )
        self.lock = TableLock.open(named, store, clock=self.clock, waits=waits)
        self.telemetry = TransactionTelemetry(
            store.uri,
            self.ledger.owner,
            self.clock,
            Alerts.read(given),
            drift_ms=self.settings.clock_skew_ms,
        )
        self.heartbeat_thread = HeartbeatThread(
            store, self.settings.heartbeat_interval_ms, self.telemetry
        )
        self.queue = LocalQueue(store, self.clock)
        self.cleanup = cleanup or (BackgroundCleanup() if is_remote(store) else run_inline)
        self._recovered = False
        self._last = ""
        self._ahead_ms = 0
        self._known_alive: frozenset[str] = frozenset()
        self._held_since: int | None = None

    @property
    def owner(self) -> str:
        """The name of this process in the ledger."""
        return self.ledger.owner

    @property
    def properties(self) -> TableProperties:
        """The table's properties as last read."""
        return self.preconditions.properties

    def check_writable(self) -> None:
        """Raise `Unsupported` for a table that may not be changed. `table_change` includes this."""
        self.ledger.run(self.preconditions.check())

    @contextmanager
    def table_change(self) -> Iterator[Check | None]:
        """Hold the table's lock for a change, after checking that the table may be changed (C110).

        Every change to the table is made in this block, or follows from an instant, claim or
        decision that was created in it. Yields a check that raises `HoldingLost` once the lock is
        lost. Raises: `LockHeld`, `Unsupported` for a table that may not be changed, `Conflict`.
        """
        with self.lock.held() as check:
            self._held_since = self.clock.now().wall_epoch_ms
            try:
                self.check_writable()
                if not self.preconditions.satisfied:
                    self.preconditions.apply(
                        self.store, ReadbackPolicy(clock=self.clock, ids=self.ids)
                    )
                yield check
            finally:
                self._held_since = None

    @property
    def is_mixed(self) -> bool:
        """Whether Java writers are expected."""
        if self.settings.mixed is not None:
            return self.settings.mixed
        return self.settings.has_lock and self.ledger.state.external

    def begin(
        self,
        action: Action,
        operation: OperationType | str,
        *,
        base: LedgerState | None = None,
        requested: bytes | None = None,
        inflight: bytes = b"",
        markers: bool = True,
        rebased: int = 0,
    ) -> Transaction:
        """Begin a write on top of `base`, the ledger state when the table was read.

        Without `base` the ledger is read now. `markers` says that every data file will have a
        marker. Raises: as `table_change`.
        """
        request = BeginRequest(
            action=action,
            requested=_request(action) if requested is None else requested,
            inflight=inflight,
            heartbeat=self.heartbeat(str(operation), markers=markers),
            folder=self.ledger.publisher.folder,
        )
        with self.telemetry.begin(str(operation)), self.table_change() as check:
            steps = self.begin_steps(request, base=base, rebased=rebased)
            transaction = self.ledger.run(steps, check)
        transaction.keep_alive()
        self.telemetry.begun(transaction.instant, str(operation))
        return transaction

    def _report_external(self, found: Sequence[LedgerEntry]) -> None:
        now_epoch_ms = self.clock.now().wall_epoch_ms
        since = (self._held_since or now_epoch_ms) if self.settings.has_lock else None
        self.telemetry.external(found, held_since_epoch_ms=since)

    def begin_steps(
        self, request: BeginRequest, *, base: LedgerState | None = None, rebased: int = 0
    ) -> Steps[Transaction]:
        """Return the steps of `begin`, without the lock around it; no thread is started."""
        yield from self.ledger.view_steps()
        if self.checks_early:
            yield from self.import_steps()
        if self.settings.failed_writes is FailedWrites.EAGER and not self._recovered:
            self._recovered = True
            yield from self.recover_steps()
        view = yield from self.ledger.view_steps()
        if (blocking := view.state.blocking_plan) is not None:
            raise Conflict(
                f"the {blocking.action} {blocking.instant} of {self.store.uri} is not complete and"
                " rolls back commits",
                hint=f"wait for it, or finish it with `tidelock {blocking.action} URI execute`",
            )
        if self.is_mixed:
            request = replace(request, skew_ms=self.settings.clock_skew_ms)
        else:
            request = replace(request, ahead_ms=self._ahead_ms)
        begun = yield from begin(view, request, above=self._last)
        self.ledger.advance(begun.view)
        self._last = max(self._last, begun.instant.requested)
        self._ahead_ms = begun.ahead_ms
        return Transaction(
            self,
            begun,
            begun.view.state if base is None else base,
            commit_kind=commit_kind_of(request.heartbeat.operation),
            markers=request.heartbeat.markers,
            rebased=rebased,
        )

    def import_steps(self, own: str = "") -> Steps[LedgerState]:
        """Return the steps that import external commits and check for active external writers.

        Without a lock, a write continues only while no external writer is active (C111): its next
        commit is not checked for conflicts, so it may hide the commit made here or be hidden by it.
        `own` is a write of this process. Raises: `Conflict`.
        """
        state = yield from self.ledger.import_steps()
        pending = self.ledger.pending_writes.keys() - self._known_alive - {own}
        if self.uses_lock or not pending:
            return state
        listed: tuple[ObjectMeta, ...] = yield List(f"{HEARTBEAT_FOLDER}/")
        now: Now = yield ReadClock()
        since_ms = now.wall_epoch_ms - self.lifetime_ms
        beats = {meta.key.rpartition("/")[2]: meta for meta in listed}
        # Our heartbeats have a record; Java's are empty.
        self._known_alive = frozenset(instant for instant, meta in beats.items() if meta.size_bytes)
        dead = {instant for instant, meta in beats.items() if meta.modified_epoch_ms < since_ms}
        suspects = [
            instant
            for instant in sorted(pending - self._known_alive - dead)
            if self.may_be_active(*self.ledger.pending_writes[instant], now.wall_epoch_ms)
        ]
        if suspects:
            # One of our writers deletes its heartbeat after its entry was appended.
            state = yield from self.ledger.refresh_steps(external=False)
        for instant in suspects:
            if not state.is_resolved(instant) and instant not in state.plans:
                raise Conflict(
                    f"{instant} of {self.store.uri} was started by an external writer (Java)"
                    " and is still pending: without a shared lock, each writer could hide the"
                    " commits of the other",
                    hint="wait until it has ended, or configure the same"
                    " hoodie.write.lock.provider on both sides; if its writer is dead, run"
                    f" `tidelock rollback URI run {instant}`",
                )
        return state

    def may_be_active(self, state: InstantState, written_epoch_ms: int, now_epoch_ms: int) -> bool:
        """Return whether a write without a heartbeat may belong to an active external writer.

        Java has no heartbeats by default, so its writer may be active however long ago it began. A
        requested instant may also be ours, created after its writer gave up. It counts as ours if
        Java is not known to write the table, and otherwise once it is old.
        """
        if self.uses_lock:
            return False
        fresh = now_epoch_ms - written_epoch_ms <= self.lifetime_ms
        return state is not InstantState.REQUESTED or (self.ledger.state.external and fresh)

    def schedule(
        self,
        action: Action,
        plan: TimelineRecord,
        targets: frozenset[GroupId],
        *,
        base: LedgerState,
        removable: bool = False,
    ) -> PendingPlan:
        """Schedule a table-service plan that was made from the table at `base`.

        Raises: `Conflict` if its file groups have changed or are planned already, `OutcomeUnknown`.
        """
        with self.table_change() as check:
            steps = self.schedule_steps(action, plan, targets, base=base, removable=removable)
            return self.ledger.run(steps, check)

    def schedule_steps(
        self,
        action: Action,
        plan: TimelineRecord,
        targets: frozenset[GroupId],
        *,
        base: LedgerState,
        removable: bool = False,
    ) -> Steps[PendingPlan]:
        """Return the steps of `schedule`, without the lock around it."""
        state = yield from self.import_steps()
        if self.runs_external_plans:
            folder = self.ledger.publisher.folder
            if targets and targets & (yield from external_plan_targets(state, folder=folder)):
                raise Conflict(
                    f"the {action} was not scheduled: an external writer has planned it",
                    hint="retry",
                )
        content = yield from store_content(f"plan-{base.position}", plan)
        fact = Plan(action, targets, content, removable)
        view = yield from self.ledger.view_steps()
        result = yield from schedule(view, fact, base=base.position, owner=self.owner)
        self.ledger.advance(result.view)
        match result:
            case Declined(reason=reason):
                raise Conflict(f"the {action} was not scheduled: {reason}", hint="plan again")
            case Undetermined(outcome=outcome):
                raise OutcomeUnknown(
                    f"the {action} may be scheduled: {outcome.cause}",
                    hint="list pending plans with `tidelock services URI`",
                )
            case Appended(entry=entry):
                yield from self.ledger.publish_steps(own=entry.position)
                yield from release_time(entry.time, entry.nonce)
                return result.view.state.plans[entry.time]

    def claim(
        self, instant: str, operation: OperationType | str, *, markers: bool = True
    ) -> Transaction | NotClaimed:
        """Claim a pending plan for execution.

        Its `commit` is checked against the commits since the plan was made. A plan that is not
        removable survives a `rollback`.
        """
        with self.table_change() as check:
            heartbeat = self.heartbeat(str(operation), markers=markers)
            claimed = self.ledger.run(self.claim_steps(instant, heartbeat), check)
        if isinstance(claimed, Transaction):
            claimed.keep_alive()
        return claimed

    def claim_steps(self, instant: str, heartbeat: Heartbeat) -> Steps[Transaction | NotClaimed]:
        """Return the steps of `claim`, without the lock around it; no thread is started."""
        # A Java executor may have completed the plan.
        yield from self.ledger.refresh_steps()
        view, result = yield from claim(self.ledger.view, instant, heartbeat, self)
        self.ledger.advance(view)
        if isinstance(result, NotClaimed):
            return result
        return Transaction(
            self,
            result.begun,
            view.state,
            commit_kind=commit_kind_of(heartbeat.operation),
            markers=heartbeat.markers,
            plan=result.plan,
            claimed=result.position,
        )

    def recover(self, *, delay_ms: int | None = None) -> Recovered:
        """Publish decided commits, and roll back dead writes unless the policy is NEVER.

        With `delay_ms`, also removable plans that are dead, or older than that and not started.
        Live writers are left alone. Rollbacks are decided under the table's lock and executed after
        it.
        """
        writes = self.settings.failed_writes is not FailedWrites.NEVER
        recovery = Recovery(self, delay_ms, writes)
        self.ledger.refresh()
        if writes or delay_ms is not None:
            self.ledger.run(recovery.scan())
            with self.table_change() as check:
                self.ledger.run(recovery.decide(), check)
            self.ledger.run(recovery.execute())
        self.ledger.publish()
        report = recovery.report()
        self.telemetry.recovered([rolled_back.instant for rolled_back in report.rolled_back])
        return report

    def recover_steps(self) -> Steps[Recovered]:
        """Return the steps of `recover`, without the lock."""
        recovery = Recovery(self)
        yield from self.ledger.refresh_steps()
        if self.settings.failed_writes is not FailedWrites.NEVER:
            yield from recovery.decide()
            yield from recovery.execute()
        yield from self.ledger.publish_steps()
        return recovery.report()

    def remove_plan(self, instant: str, *, delay_ms: int, forced: bool = False) -> str | None:
        """Roll back a removable plan that is dead or too old; return why not, None on success.

        `forced` is for a permanent plan that cannot be executed any more.
        """
        return self.ledger.run(remove_plan(self, instant, delay_ms=delay_ms, forced=forced))

    def wait_for_priority(
        self, groups: frozenset[GroupId], partitions: frozenset[str] = frozenset()
    ) -> bool:
        """Wait for writers with priority on these file groups; return False on timeout.

        `partitions` are those that receive rows with new keys.
        """
        write_set = queueing.WriteSet(self.owner, groups, partitions)
        if not queueing.tickets_ahead(self.ledger.state, write_set):
            return True
        steps = queueing.wait(
            self.ledger.view,
            write_set,
            timeout_ms=self.settings.priority_wait_ms,
            default_lifetime_ms=self.lifetime_ms,
        )
        view, in_time = self.ledger.run(steps)
        self.ledger.advance(view)
        return in_time

    @property
    def is_contended(self) -> bool:
        """Whether another process has committed just now. A wrong clock only costs some work."""
        since = format_time(self.clock.now().wall_epoch_ms - _RECENT_MS)
        return any(
            entry.time > since and entry.owner != self.owner and isinstance(entry.fact, Commit)
            for entry in self.ledger.view.tail[-_RECENT_ENTRIES_MAX:]
        )

    def local_queue(self) -> AbstractContextManager[None]:
        """Queue in front of the ledger with other processes on this machine, if there are any.

        Writers that take the table's lock have already queued for it.
        """
        if self.settings.has_lock or not self.is_contended:
            return nullcontext()
        return self.queue.held()

    @property
    def uses_lock(self) -> bool:
        """Whether a lock keeps out other writers that take it."""
        return self.lock.provider is not None

    @property
    def runs_external_plans(self) -> bool:
        """Whether plans of external writers are executed here."""
        return bool(self.settings.mixed) or self.settings.has_lock

    @property
    def checks_early(self) -> bool:
        """Whether external commits are imported before a write is planned.

        They are imported before every commit in any case, but a conflict found then costs the work.
        """
        return self.runs_external_plans or self.ledger.state.external

    def wait_out_skew(self) -> Steps[None]:
        """C37: wait until a time that Java writers may compare with has passed on all clocks."""
        if self.is_mixed and self.settings.clock_skew_ms:
            yield Pause(2.0 * self.settings.clock_skew_ms)

    @property
    def lifetime_ms(self) -> int:
        """How long a writer without a heartbeat record counts as alive after a heartbeat."""
        return self.settings.heartbeat_interval_ms * self.settings.heartbeat_misses

    def close(self) -> None:
        """Stop the heartbeats and close the lock; running writes count as dead after a while."""
        if isinstance(self.cleanup, BackgroundCleanup):
            self.cleanup.drain()
        self.heartbeat_thread.close()
        self.lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def heartbeat(self, operation: str, *, markers: bool) -> Heartbeat:
        """Return this process's heartbeat record, without the fields of the instant."""
        host, pid = self.ids.process()
        return Heartbeat(
            owner=self.owner,
            attempt=0,
            nonce="",
            interval_ms=self.settings.heartbeat_interval_ms,
            misses=self.settings.heartbeat_misses,
            since_epoch_ms=0,
            operation=operation,
            host=host,
            pid=pid,
            markers=markers,
            lock=self.lock.name,
            mode=self.settings.mode.value,
        )


def _request(action: Action) -> bytes:
    if action in (Action.REPLACE_COMMIT, Action.CLUSTERING):
        return encode(RequestedReplaceMetadata())
    return b""
