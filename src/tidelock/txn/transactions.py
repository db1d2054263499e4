"""The transactions of one process on one table: begin, recover, take turns."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import Conflict, OutcomeUnknown
from tidelock.base.ids import IdSource, SystemIds
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.view import GroupId
from tidelock.table.properties import TableProperties
from tidelock.table.properties_file import load_properties
from tidelock.table.timeline.container import encode
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import (
    OperationType,
    RequestedReplaceMetadata,
    TimelineRecord,
)
from tidelock.txn import turns
from tidelock.txn.appending import Appended, Declined, Doubtful
from tidelock.txn.beating import Beating
from tidelock.txn.beginning import Announcement, begin
from tidelock.txn.committing import store_content
from tidelock.txn.config import FailedWrites, TxnSettings
from tidelock.txn.draft import deed_of
from tidelock.txn.effects import Delete, Steps
from tidelock.txn.entry import Plan
from tidelock.txn.fold import Fold, Pending
from tidelock.txn.heartbeat import Heartbeat, heartbeat_key
from tidelock.txn.ledger import Ledger
from tidelock.txn.locking import TableLock
from tidelock.txn.metadata_table import check_metadata_table
from tidelock.txn.planning import NotClaimed, claim, remove_plan, schedule
from tidelock.txn.recovery import Recovered, recover
from tidelock.txn.transaction import Transaction, wait_out

logger = logging.getLogger(__name__)


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
    ) -> None:
        """Read and check the settings; the table is read when something begins."""
        given = settings or {}
        self.settings = TxnSettings.read(given)
        self.store = store
        self.clock = clock or SystemClock()
        self.ids = ids or SystemIds()
        self.properties = properties or load_properties(store)
        self.ledger = Ledger(
            store,
            clock=self.clock,
            ids=self.ids,
            timeline_folder=self.properties.timeline_folder,
            owner=owner,
        )
        self.lock = TableLock.open(given, store, clock=self.clock)
        self.beating = Beating(store, self.settings.heartbeat_interval_ms)
        self._recovered = False
        self._last = ""

    @property
    def owner(self) -> str:
        """The name of this process in the ledger."""
        return self.ledger.owner

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
        announced by a marker. Raises: `LockHeld`, `Unsupported` for a table with a metadata table.
        """
        what = Announcement(
            action=action,
            requested=_request(action) if requested is None else requested,
            inflight=inflight,
            beat=self.heartbeat(str(operation), markers=markers),
            folder=self.ledger.publisher.folder,
        )
        with self.lock.held() as check:
            if self.looks_for_foreign:
                self.properties = load_properties(self.store)
            self.properties = check_metadata_table(self)
            steps = self.begin_steps(what, base=base, rebased=rebased)
            transaction = self.ledger.run(steps, check)
        transaction.keep_alive()
        return transaction

    def begin_steps(
        self, what: Announcement, *, base: Fold | None = None, rebased: int = 0
    ) -> Steps[Transaction]:
        """Return the steps of `begin`, but for the lock around it; no thread is started."""
        if self.looks_for_foreign:
            yield from self.ledger.refresh_steps(foreign=True)
        if self.settings.failed_writes is FailedWrites.EAGER and not self._recovered:
            self._recovered = True
            yield from self.recover_steps()
        view = yield from self.ledger.view_steps()
        if self.is_mixed:
            what = replace(what, skew_ms=self.settings.clock_skew_ms)
        begun = yield from begin(view, what, above=self._last)
        self.ledger.adopt(begun.view)
        self._last = max(self._last, begun.instant.requested)
        return Transaction(
            self,
            begun,
            begun.view.fold if base is None else base,
            deed=deed_of(what.beat.operation),
            markers=what.beat.markers,
            rebased=rebased,
        )

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
        with self.lock.held() as check:
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
        if self.looks_for_foreign:
            yield from self.ledger.refresh_steps(foreign=True)
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
                yield Delete(heartbeat_key(entry.time))
                return result.view.fold.plans[entry.time]

    def claim(
        self, instant: str, operation: OperationType | str, *, markers: bool = True
    ) -> Transaction | NotClaimed:
        """Take over the execution of a pending plan.

        Its `commit` is judged by what was committed since the plan; a plan that is not removable
        survives a `rollback`.
        """
        with self.lock.held() as check:
            beat = self.heartbeat(str(operation), markers=markers)
            claimed = self.ledger.run(self.claim_steps(instant, beat), check)
        if isinstance(claimed, Transaction):
            claimed.keep_alive()
        return claimed

    def claim_steps(self, instant: str, beat: Heartbeat) -> Steps[Transaction | NotClaimed]:
        """Return the steps of `claim`, but for the lock around it; no thread is started."""
        yield from self.ledger.refresh_steps()
        view, result = yield from claim(
            self.ledger.view,
            instant,
            beat,
            folder=self.ledger.publisher.folder,
            owner=self.owner,
            otherwise_ms=self.life_ms,
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
        )

    def recover(self) -> Recovered:
        """Publish what is decided, and roll back what dead writers left unless policy says NEVER.

        Only instants that no table service planned. Live writers are left alone.
        """
        return self.ledger.run(self.recover_steps())

    def recover_steps(self) -> Steps[Recovered]:
        """Return the steps of `recover`."""
        yield from self.ledger.refresh_steps()
        view, recovered = yield from recover(
            self.ledger.view,
            folder=self.ledger.publisher.folder,
            owner=self.owner,
            running=frozenset(self.beating.instants()),
            otherwise_ms=self.life_ms,
            undo=self.settings.failed_writes is not FailedWrites.NEVER,
        )
        self.ledger.adopt(view)
        yield from self.ledger.publish_steps()
        return recovered

    def remove_plan(self, instant: str, *, delay_ms: int) -> str | None:
        """Undo a removable plan that is dead, or too old; return why not, None once it is gone."""
        return self.ledger.run(self.remove_plan_steps(instant, delay_ms=delay_ms))

    def remove_plan_steps(self, instant: str, *, delay_ms: int) -> Steps[str | None]:
        """Return the steps of `remove_plan`."""
        yield from self.ledger.refresh_steps()
        view, problem = yield from remove_plan(
            self.ledger.view,
            instant,
            folder=self.ledger.publisher.folder,
            owner=self.owner,
            delay_ms=delay_ms,
            otherwise_ms=self.life_ms,
        )
        self.ledger.adopt(view)
        return problem

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
    def looks_for_foreign(self) -> bool:
        """Tell whether commits of writers that know no ledger are looked for again and again."""
        return bool(self.settings.mixed) or self.settings.has_lock

    def wait_out_skew(self) -> Steps[None]:
        """Return the wait that keeps Java's later times later than ours."""
        return wait_out(self.settings.clock_skew_ms if self.is_mixed else 0)

    @property
    def life_ms(self) -> int:
        """How long a writer that does not say otherwise counts as alive after a heartbeat."""
        return self.settings.heartbeat_interval_ms * self.settings.heartbeat_misses

    def close(self) -> None:
        """Stop the heartbeats and give the lock back; running writes count as dead in time."""
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
        return Heartbeat(
            owner=self.owner,
            attempt=0,
            nonce="",
            interval_ms=self.settings.heartbeat_interval_ms,
            misses=self.settings.heartbeat_misses,
            since_epoch_ms=0,
            operation=operation,
            host=socket.gethostname(),
            pid=os.getpid(),
            markers=markers,
        )


def _request(action: Action) -> bytes:
    if action in (Action.REPLACE_COMMIT, Action.CLUSTERING):
        return encode(RequestedReplaceMetadata())
    return b""
