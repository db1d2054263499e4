"""The transactions of one process on one table: begin, recover, take turns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from tidelock.base.clock import Clock, Now, SystemClock
from tidelock.base.errors import Conflict, OutcomeUnknown
from tidelock.base.ids import IdSource, SystemIds
from tidelock.lock.alerting import Alerts
from tidelock.lockproviders.keys import of_table
from tidelock.store.contract import ObjectMeta, ObjectStore
from tidelock.store.readback import Patience
from tidelock.store.uri import is_far
from tidelock.table.filegroup.view import GroupId
from tidelock.table.properties import TableProperties
from tidelock.table.properties_file import load_properties
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Action, State, format_time
from tidelock.table.timeline.metadata import (
    OperationType,
    RequestedReplaceMetadata,
    TimelineRecord,
)
from tidelock.txn import turns
from tidelock.txn.appending import Appended, Declined, Doubtful, give_name_back
from tidelock.txn.aside import Aside, Work, at_once
from tidelock.txn.beating import Beating
from tidelock.txn.beginning import Announcement, begin
from tidelock.txn.committing import store_content
from tidelock.txn.config import FailedWrites, TimezonePolicy, TxnSettings
from tidelock.txn.draft import deed_of
from tidelock.txn.effects import List, ReadClock, Steps
from tidelock.txn.entry import Commit, Entry, Plan
from tidelock.txn.fold import Fold, Pending
from tidelock.txn.foreignplans import foreign_targets
from tidelock.txn.heartbeat import HEARTBEAT_FOLDER, Heartbeat
from tidelock.txn.ledger import Ledger
from tidelock.txn.lining import Line
from tidelock.txn.locking import Check, TableLock
from tidelock.txn.observing import Observing
from tidelock.txn.planning import NotClaimed, claim, schedule
from tidelock.txn.preconditions import Preconditions
from tidelock.txn.recovery import Recovered, Recovery
from tidelock.txn.rollbacks import remove_plan
from tidelock.txn.transaction import Transaction, wait_out
from tidelock.txn.waits import Waits

logger = logging.getLogger(__name__)

_JUST_NOW_MS: Final = 2_000
_NEIGHBOURS: Final = 32
"""Ledger entries that are looked at for others who write at the same time."""


class Transactions:
    """Begins writes on the table at the root of `store`. May be used by several threads."""

    def __init__(
        self,
        store: ObjectStore,
        settings: Mapping[str, object] | None = None,
        *,
        properties: TableProperties | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        owner: str = "",
        aside: Callable[[Work], None] | None = None,
    ) -> None:
        """Read and check the settings; the table is read when something begins.

        `aside` is who removes what committed writes leave. Without one, a thread does where the
        store is a server, so that nobody waits for it.
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
            admit=self.preconditions.check,
            tell=self._tell_foreign,
            checks_zones=self.settings.timezone_policy is TimezonePolicy.REFUSE,
        )
        waits = Waits(store, self.clock, self.ledger.owner, *self.ids.process())
        named = of_table(
            given, store.uri, name=self.properties.name, database=self.properties.database
        )
        self.lock = TableLock.open(named, store, clock=self.clock, waits=waits)
        self.observing = Observing(
            store.uri,
            self.ledger.owner,
            self.clock,
            Alerts.read(given),
            drift_ms=self.settings.clock_skew_ms,
        )
        self.beating = Beating(store, self.settings.heartbeat_interval_ms, self.observing)
        self.line = Line(store, self.clock)
        self.aside = aside or (Aside() if is_far(store) else at_once)
        self._recovered = False
        self._last = ""
        self._ahead_ms = 0
        self._heard: frozenset[str] = frozenset()
        self._held_since: int | None = None

    @property
    def owner(self) -> str:
        """The name of this process in the ledger."""
        return self.ledger.owner

    @property
    def properties(self) -> TableProperties:
        """The table's properties as they were read last."""
        return self.preconditions.properties

    def check_may_change(self) -> None:
        """Raise `Unsupported` for a table that is not to be changed; `changing` does that, too."""
        self.ledger.run(self.preconditions.check())

    @contextmanager
    def changing(self) -> Iterator[Check | None]:
        """Hold the table's lock for a change, of a table that may be changed (C110).

        Whoever changes anything of the table does it in this block, or after it: by what is begun,
        claimed or decided here. Yields what raises `HoldingLost` once the lock is lost.
        Raises: `LockHeld`, `Unsupported` for a table that is not to be changed, `Conflict`.
        """
        with self.lock.held() as check:
            self._held_since = self.clock.now().wall_epoch_ms
            try:
                self.check_may_change()
                if not self.preconditions.met:
                    self.preconditions.meet(self.store, Patience(clock=self.clock, ids=self.ids))
                yield check
            finally:
                self._held_since = None

    @property
    def is_mixed(self) -> bool:
        """Tell whether Java writers are to be expected."""
        if self.settings.mixed is not None:
            return self.settings.mixed
        return self.settings.has_lock and self.ledger.fold.foreign

    def begin(
        self,
        action: Action,
        operation: OperationType | str,
        *,
        base: Fold | None = None,
        requested: bytes | None = None,
        inflight: bytes = b"",
        markers: bool = True,
        rebased: int = 0,
    ) -> Transaction:
        """Begin a write on top of `base`: the ledger as it was when the table was read.

        Without `base` the ledger is read now. `markers` says that every data file will be
        announced by a marker. Raises: what `changing` raises.
        """
        what = Announcement(
            action=action,
            requested=_request(action) if requested is None else requested,
            inflight=inflight,
            beat=self.heartbeat(str(operation), markers=markers),
            folder=self.ledger.publisher.folder,
        )
        with self.observing.begin(str(operation)), self.changing() as check:
            steps = self.begin_steps(what, base=base, rebased=rebased)
            transaction = self.ledger.run(steps, check)
        transaction.keep_alive()
        self.observing.begun(transaction.instant, str(operation))
        return transaction

    def _tell_foreign(self, found: Sequence[Entry]) -> None:
        """Tell of commits without a ledger that were taken into the order just now."""
        now_epoch_ms = self.clock.now().wall_epoch_ms
        since = (self._held_since or now_epoch_ms) if self.settings.has_lock else None
        self.observing.foreign(found, held_since_epoch_ms=since)

    def begin_steps(
        self, what: Announcement, *, base: Fold | None = None, rebased: int = 0
    ) -> Steps[Transaction]:
        """Return the steps of `begin`, but for the lock around it; no thread is started."""
        yield from self.ledger.view_steps()
        if self.looks_early:
            yield from self.look_steps()
        if self.settings.failed_writes is FailedWrites.EAGER and not self._recovered:
            self._recovered = True
            yield from self.recover_steps()
        view = yield from self.ledger.view_steps()
        if (halting := view.fold.halting) is not None:
            raise Conflict(
                f"the {halting.action} {halting.instant} of {self.store.uri} is not done, and takes"
                " back commits",
                hint=f"wait for it, or finish it with `tidelock {halting.action} TABLE execute`",
            )
        if self.is_mixed:
            what = replace(what, skew_ms=self.settings.clock_skew_ms)
        else:
            what = replace(what, ahead_ms=self._ahead_ms)
        begun = yield from begin(view, what, above=self._last)
        self.ledger.adopt(begun.view)
        self._last = max(self._last, begun.instant.requested)
        self._ahead_ms = begun.ahead_ms
        return Transaction(
            self,
            begun,
            begun.view.fold if base is None else base,
            deed=deed_of(what.beat.operation),
            markers=what.beat.markers,
            rebased=rebased,
        )

    def look_steps(self, own: str = "") -> Steps[Fold]:
        """Return the steps that look for commits without an entry, and who is about to make one.

        Whoever takes no lock goes on only while no writer that keeps no ledger is at work (C111):
        what that commits next is judged by nobody, so it may hide what is committed here, or be
        hidden by it. `own` is a write of this process.
        Raises: `Conflict`.
        """
        fold = yield from self.ledger.look_steps()
        begun = self.ledger.begun.keys() - self._heard - {own}
        if self.takes_lock or not begun:
            return fold
        listed: tuple[ObjectMeta, ...] = yield List(f"{HEARTBEAT_FOLDER}/")
        now: Now = yield ReadClock()
        since_ms = now.wall_epoch_ms - self.life_ms
        beats = {meta.key.rpartition("/")[2]: meta for meta in listed}
        # Ours say who they are; Java's are empty.
        self._heard = frozenset(instant for instant, meta in beats.items() if meta.size_bytes)
        dead = {instant for instant, meta in beats.items() if meta.modified_epoch_ms < since_ms}
        suspects = [
            instant
            for instant in sorted(begun - self._heard - dead)
            if self.may_be_at_work(*self.ledger.begun[instant], now.wall_epoch_ms)
        ]
        if suspects:
            # The heartbeat of one of ours goes after its entry has come.
            fold = yield from self.ledger.refresh_steps(foreign=False)
        for instant in suspects:
            if not fold.is_settled(instant) and instant not in fold.plans:
                raise Conflict(
                    f"{instant} of {self.store.uri} was begun by a writer that keeps no ledger"
                    " (Java), and has not ended: without a lock that both take, either could hide"
                    " what the other commits",
                    hint="wait until it has ended, or give both sides the same"
                    " hoodie.write.lock.provider; if its writer is dead, take it back:"
                    f" `tidelock rollback TABLE run {instant}`",
                )
        return fold

    def may_be_at_work(self, state: State, written_epoch_ms: int, now_epoch_ms: int) -> bool:
        """Tell whether a write without a heartbeat may be one of a writer that keeps no ledger.

        Java's have none by default, so one may be at work however long ago it began. A mere request
        may be one of ours that arrived when its writer had given it up: where Java is not known to
        write it counts as such, elsewhere when it is old.
        """
        if self.takes_lock:
            return False
        fresh = now_epoch_ms - written_epoch_ms <= self.life_ms
        return state is not State.REQUESTED or (self.ledger.fold.foreign and fresh)

    def schedule(
        self,
        action: Action,
        plan: TimelineRecord,
        targets: frozenset[GroupId],
        *,
        base: Fold,
        removable: bool = False,
    ) -> Pending:
        """Put a table-service plan, made of the table at `base`, on the timeline.

        Raises: `Conflict` if what it covers has changed or is planned already, `OutcomeUnknown`.
        """
        with self.changing() as check:
            steps = self.schedule_steps(action, plan, targets, base=base, removable=removable)
            return self.ledger.run(steps, check)

    def schedule_steps(
        self,
        action: Action,
        plan: TimelineRecord,
        targets: frozenset[GroupId],
        *,
        base: Fold,
        removable: bool = False,
    ) -> Steps[Pending]:
        """Return the steps of `schedule`, but for the lock around it."""
        fold = yield from self.look_steps()
        if self.takes_foreign_plans:
            folder = self.ledger.publisher.folder
            if targets and targets & (yield from foreign_targets(fold, folder=folder)):
                raise Conflict(f"the {action} was not scheduled: others planned it", hint="retry")
        content = yield from store_content(f"plan-{base.position}", plan)
        fact = Plan(action, targets, content, removable)
        view = yield from self.ledger.view_steps()
        result = yield from schedule(view, fact, base=base.position, owner=self.owner)
        self.ledger.adopt(result.view)
        match result:
            case Declined(why=why):
                raise Conflict(f"the {action} was not scheduled: {why}", hint="plan again")
            case Doubtful(outcome=outcome):
                raise OutcomeUnknown(f"the {action} may be scheduled: {outcome.cause}")
            case Appended(entry=entry):
                yield from self.ledger.publish_steps(own=entry.position)
                yield from give_name_back(entry.time, entry.nonce)
                return result.view.fold.plans[entry.time]

    def claim(
        self, instant: str, operation: OperationType | str, *, markers: bool = True
    ) -> Transaction | NotClaimed:
        """Take over the execution of a pending plan.

        Its `commit` is judged by what was committed since the plan; a plan that is not removable
        survives a `rollback`.
        """
        with self.changing() as check:
            beat = self.heartbeat(str(operation), markers=markers)
            claimed = self.ledger.run(self.claim_steps(instant, beat), check)
        if isinstance(claimed, Transaction):
            claimed.keep_alive()
        return claimed

    def claim_steps(self, instant: str, beat: Heartbeat) -> Steps[Transaction | NotClaimed]:
        """Return the steps of `claim`, but for the lock around it; no thread is started."""
        # A Java executor may have completed the plan.
        yield from self.ledger.refresh_steps()
        view, result = yield from claim(
            self.ledger.view,
            instant,
            beat,
            folder=self.ledger.publisher.folder,
            owner=self.owner,
            otherwise_ms=self.life_ms,
            guard=self.settings.guard,
        )
        self.ledger.adopt(view)
        if isinstance(result, NotClaimed):
            return result
        return Transaction(
            self,
            result.begun,
            view.fold,
            deed=deed_of(beat.operation),
            markers=beat.markers,
            plan=result.plan,
            claimed=result.position,
        )

    def recover(self, *, delay_ms: int | None = None) -> Recovered:
        """Publish what is decided, and roll back what dead writers left unless policy says NEVER.

        Of plans only removable ones, with `delay_ms`, that are dead or older and not begun. Live
        writers are left alone. What is rolled back is decided under the table's lock, and removed
        after it.
        """
        writes = self.settings.failed_writes is not FailedWrites.NEVER
        recovery = Recovery(self, delay_ms, writes)
        self.ledger.refresh()
        if writes or delay_ms is not None:
            self.ledger.run(recovery.look())
            with self.changing() as check:
                self.ledger.run(recovery.decide(), check)
            self.ledger.run(recovery.carry_out())
        self.ledger.publish()
        report = recovery.report()
        self.observing.recovered([undone.instant for undone in report.undone])
        return report

    def recover_steps(self) -> Steps[Recovered]:
        """Return the steps of `recover`, but for the lock."""
        recovery = Recovery(self)
        yield from self.ledger.refresh_steps()
        if self.settings.failed_writes is not FailedWrites.NEVER:
            yield from recovery.decide()
            yield from recovery.carry_out()
        yield from self.ledger.publish_steps()
        return recovery.report()

    def remove_plan(self, instant: str, *, delay_ms: int, forced: bool = False) -> str | None:
        """Undo a removable plan that is dead, or too old; return why not, None once it is gone.

        `forced` is for a plan that stays, but that nobody can carry out any more.
        """
        return self.ledger.run(self.remove_plan_steps(instant, delay_ms=delay_ms, forced=forced))

    def remove_plan_steps(
        self, instant: str, *, delay_ms: int, forced: bool = False
    ) -> Steps[str | None]:
        """Return the steps of `remove_plan`."""
        return remove_plan(self, instant, delay_ms=delay_ms, forced=forced)

    def wait_turn(
        self, groups: frozenset[GroupId], partitions: frozenset[str] = frozenset()
    ) -> bool:
        """Let overtaken writers of these file groups go first; False if the wait was cut short.

        `partitions` are those that rows with new keys go to.
        """
        wanted = turns.Wanted(self.owner, groups, partitions)
        if not turns.before_me(self.ledger.fold, wanted):
            return True
        steps = turns.wait(
            self.ledger.view,
            wanted,
            timeout_ms=self.settings.turn_wait_ms,
            otherwise_ms=self.life_ms,
        )
        view, came = self.ledger.run(steps)
        self.ledger.adopt(view)
        return came

    @property
    def is_crowded(self) -> bool:
        """Tell whether somebody else has committed just now. A wrong clock costs some work."""
        since = format_time(self.clock.now().wall_epoch_ms - _JUST_NOW_MS)
        return any(
            entry.time > since and entry.owner != self.owner and isinstance(entry.fact, Commit)
            for entry in self.ledger.view.tail[-_NEIGHBOURS:]
        )

    def in_line(self) -> AbstractContextManager[None]:
        """Line up before the ledger with others on this machine, if there are any.

        Those who take the table's lock have stood in line for that.
        """
        if self.settings.has_lock or not self.is_crowded:
            return nullcontext()
        return self.line.held()

    @property
    def takes_lock(self) -> bool:
        """Tell whether a lock keeps others out that take it, too."""
        return self.lock.provider is not None

    @property
    def takes_foreign_plans(self) -> bool:
        """Tell whether plans of writers that know no ledger are executed here, too."""
        return bool(self.settings.mixed) or self.settings.has_lock

    @property
    def looks_early(self) -> bool:
        """Tell whether commits without an entry are looked for before a write is placed and begun.

        They are looked for before every commit in any case; to find them then costs the work.
        """
        return self.takes_foreign_plans or self.ledger.fold.foreign

    def wait_out_skew(self) -> Steps[None]:
        """Return the wait that keeps Java's later times later than ours."""
        return wait_out(self.settings.clock_skew_ms if self.is_mixed else 0)

    @property
    def life_ms(self) -> int:
        """How long a writer that does not say otherwise counts as alive after a heartbeat."""
        return self.settings.heartbeat_interval_ms * self.settings.heartbeat_misses

    def close(self) -> None:
        """Stop the heartbeats and give the lock back; running writes count as dead in time."""
        if isinstance(self.aside, Aside):
            self.aside.drain()
        self.beating.close()
        self.lock.close()

    def __enter__(self) -> Self:
        """Return the transactions themselves."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        del kind, error, trace
        self.close()

    def heartbeat(self, operation: str, *, markers: bool) -> Heartbeat:
        """Return what this process's heartbeats say, but for the instant's own fields."""
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
