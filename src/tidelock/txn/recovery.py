"""Finds and rolls back the writes of dead writers (C54-C59).

In two phases, as in RFC-79: first all rollbacks are decided, under the table's lock if there is
one; then they are executed, together with those that others decided and did not finish.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidelock.core.clock import Now
from tidelock.core.errors import Conflict, DataCorrupt
from tidelock.hudi.markers import TEMP_FOLDER, marker_folder
from tidelock.hudi.timeline.active import instants_in_listing
from tidelock.hudi.timeline.instant import (
    Action,
    Instant,
    InstantState,
    latest_states,
    parse_instant,
)
from tidelock.hudi.timeline.metadata import RollbackPlan, decode
from tidelock.storage.contract import ObjectMeta, StoredObject
from tidelock.txn.commit import ConflictChecker, commit, store_content
from tidelock.txn.conflicts import PendingTxn
from tidelock.txn.effects import Delete, Get, List, ReadClock, Steps
from tidelock.txn.entries import Commit, Rollback
from tidelock.txn.footprint import CommitKind, Footprint
from tidelock.txn.heartbeats import (
    HEARTBEAT_FOLDER,
    HeartbeatStatus,
    heartbeat_key,
    heartbeat_status,
    live_heartbeat,
)
from tidelock.txn.ledger_io import Undetermined
from tidelock.txn.plans import (
    RollbackIntent,
    RollbackResult,
    files_by_instant,
    finish_rollback,
    pending_rollbacks,
    remove_plan,
    schedule_rollback,
)
from tidelock.txn.rollback import (
    RolledBackInstant,
    attempt_of,
    commit_metadata,
    decide,
    marked_files,
    remove_pending_files,
    remove_rolled_back,
    rollback_metadata,
    rollback_plan,
)
from tidelock.txn.state import LedgerState

if TYPE_CHECKING:
    from tidelock.txn.transaction_manager import TransactionManager


_NOTHING: Final[frozenset[str]] = frozenset()


def remove_late_files(txns: TransactionManager, *, alive: Container[str]) -> Steps[tuple[str, ...]]:
    """Delete data files with a marker that their resolved instant does not contain.

    Instants in `alive` are skipped, and so are archived ones, whose files the archive removes. On a
    table with external writers, a file is deleted only if its attempt was not committed (C94).
    Returns the deleted files.
    """
    state = txns.ledger.state
    listed: tuple[ObjectMeta, ...] = yield List(f"{TEMP_FOLDER}/")
    instants = {meta.key.removeprefix(f"{TEMP_FOLDER}/").partition("/")[0] for meta in listed}
    deleted: list[str] = []
    for instant in sorted(instants):
        if not state.is_resolved(instant) or instant in alive:
            continue
        named = _NOTHING if instant in state.aborted else (yield from _named(txns, instant))
        if named is None:
            continue
        counted = {attempt_of(path) for path in named} if state.external else set()
        marked = yield from marked_files(instant)
        late = [key for key in sorted(marked - named) if attempt_of(key) not in counted]
        deleted += late
        for key in late:
            yield Delete(key)
        folder = marker_folder(instant)
        for meta in listed:
            if meta.key.startswith(folder):
                yield Delete(meta.key)
    return tuple(deleted)


def _named(txns: TransactionManager, instant: str) -> Steps[frozenset[str] | None]:
    """Return the files of a completed write, None if it is not on the timeline."""
    folder = txns.ledger.publisher.folder
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/{instant}_")
    for found, meta in instants_in_listing(listed, folder):
        if not found.action.writes_data:
            continue
        held: StoredObject | None = yield Get(meta.key)
        if held is None:
            return None
        return commit_metadata(found.action, held.body, where=meta.key).paths
    return None


@dataclass(frozen=True, slots=True)
class ExternalRollback:
    """A rollback on the timeline without an entry; `target` is None if its plan is corrupt."""

    instant: Instant
    target: str | None


def external_rollbacks(
    txns: TransactionManager, pending: Iterable[Instant]
) -> Steps[tuple[ExternalRollback, ...]]:
    """Return the pending rollbacks that are not in the ledger."""
    state, folder = txns.ledger.state, txns.ledger.publisher.folder
    found: list[ExternalRollback] = []
    for instant in pending:
        requested = instant.requested
        known = requested in state.plans or state.is_resolved(requested)
        if instant.action is not Action.ROLLBACK or known:
            continue
        key = f"{folder}/{Instant(requested, Action.ROLLBACK, InstantState.REQUESTED).file_name}"
        held: StoredObject | None = yield Get(key)
        target: str | None = None
        if held is not None:
            with suppress(DataCorrupt):
                info = decode(RollbackPlan, held.body, where=key).instant_to_rollback
                target = None if info is None else info.commit_time
        found.append(ExternalRollback(instant, target))
    return tuple(found)


def finish_external_rollback(
    txns: TransactionManager, rollback: ExternalRollback
) -> Steps[RolledBackInstant | None]:
    """Finish the rollback of a dead external writer; None if there is nothing to roll back.

    A rollback with an unreadable plan is removed from the timeline: recovery finds its target
    without it. A completed target is not changed.
    """
    ledger = txns.ledger
    requested = rollback.instant.requested
    folder = ledger.publisher.folder
    if rollback.target is None:
        yield from remove_pending_files(requested, Action.ROLLBACK, folder=folder)
        return None
    view = yield from ledger.view_steps()
    fact = Rollback(rollback.target, "planned by a dead writer")
    result = yield from decide(view, fact, owner=txns.owner)
    ledger.advance(result.view)
    if rollback.target not in ledger.state.aborted:
        return None
    rolled_back = yield from remove_rolled_back(rollback.target, folder=folder, marked=False)
    yield from _complete(txns, requested, rolled_back)
    return rolled_back


def _complete(
    txns: TransactionManager, requested: str, rolled_back: RolledBackInstant
) -> Steps[None]:
    ledger = txns.ledger
    record = rollback_metadata(requested, (rolled_back,), took_ms=0, base=txns.store.uri)
    content = yield from store_content(requested, record)
    base = ledger.state.position
    footprint = Footprint(CommitKind.ROLLBACK)
    fact = Commit(requested, Action.ROLLBACK, 0, footprint, content, base=base)
    checker = ConflictChecker(PendingTxn(requested, footprint, owner=txns.owner), base)
    # If declined, another process has completed it; if undetermined, it is found again.
    result = yield from commit(ledger.view, checker, fact, owner=txns.owner)
    ledger.advance(result.view)
    yield from ledger.publish_steps()
    yield Delete(heartbeat_key(requested))


WRITES: Final = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


@dataclass(frozen=True, slots=True)
class PendingScan:
    """Pending instants and their heartbeats.

    `written_epoch_ms` has the time at which the file of each instant was written.
    """

    pending: tuple[Instant, ...]
    heartbeats: dict[str, HeartbeatStatus]
    now_epoch_ms: int
    completed: tuple[Instant, ...] = ()
    written_epoch_ms: dict[Instant, int] = field(default_factory=dict)

    def is_alive(self, instant: str, *, default_lifetime_ms: int) -> bool:
        heartbeat = self.heartbeats.get(instant)
        return heartbeat is not None and heartbeat.is_alive(
            self.now_epoch_ms, default_lifetime_ms=default_lifetime_ms
        )

    def is_fresh(self, instant: Instant, within_ms: int) -> bool:
        """Return whether the file of an instant was written within `within_ms`."""
        return self.now_epoch_ms - self.written_epoch_ms.get(instant, 0) <= within_ms

    def is_marked(self, instant: str) -> bool:
        """Return whether all data files of an instant have a marker."""
        heartbeat = self.heartbeats.get(instant)
        return heartbeat is not None and heartbeat.record is not None and heartbeat.record.markers


@dataclass(frozen=True, slots=True)
class Recovered:
    """The rolled back instants, and the live writers that were skipped."""

    rolled_back: tuple[RolledBackInstant, ...] = ()
    alive: tuple[str, ...] = ()
    undetermined: tuple[str, ...] = ()


def scan_pending(folder: str) -> Steps[PendingScan]:
    """List the timeline and the heartbeats."""
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/")
    written: dict[Instant, int] = {}
    for meta in listed:
        found = parse_instant(meta.key.removeprefix(f"{folder}/"))
        if found is not None:
            written[found] = meta.modified_epoch_ms
    instants = latest_states(written)
    beats: tuple[ObjectMeta, ...] = yield List(f"{HEARTBEAT_FOLDER}/")
    heartbeats: dict[str, HeartbeatStatus] = {}
    for meta in beats:
        instant = meta.key.rpartition("/")[2]
        held: StoredObject | None = yield Get(meta.key)
        if held is not None:
            heartbeats[instant] = heartbeat_status(instant, held)
    now: Now = yield ReadClock()
    pending = tuple(instant for instant in instants if not instant.is_completed)
    completed = tuple(instant for instant in instants if instant.is_completed)
    return PendingScan(pending, heartbeats, now.wall_epoch_ms, completed, written)


@dataclass(slots=True)
class Recovery:
    """One recovery run.

    Guarantees: never touches an instant that is committed, alive, or of this process (C57). Can be
    repeated, and interrupted anywhere.
    """

    txns: TransactionManager
    delay_ms: int | None = None
    writes: bool = True
    dead: list[tuple[Instant, set[str]]] = field(default_factory=list)
    rolled_back: list[RolledBackInstant] = field(default_factory=list)
    alive: list[str] = field(default_factory=list)
    undetermined: list[str] = field(default_factory=list)
    seen: PendingScan | None = None
    external: tuple[ExternalRollback, ...] = ()

    def scan(self) -> Steps[None]:
        """Find dead writes and their files. This may take long, so it needs no lock."""
        txns = self.txns
        yield from txns.ledger.refresh_steps()
        seen = self.seen = yield from scan_pending(txns.ledger.publisher.folder)
        if not self.writes:
            return
        self.external = yield from external_rollbacks(txns, seen.pending)
        # An instant has one rollback plan, whoever made it.
        planned = {each.target for each in self.external}
        dead = [instant for instant in reversed(seen.pending) if self.is_dead(instant, seen)]
        dead = [instant for instant in dead if instant.requested not in planned]
        by_markers = txns.settings.rollback_by_markers
        listed = [i.requested for i in dead if not (by_markers and seen.is_marked(i.requested))]
        known = yield from files_by_instant(listed)
        for instant in dead:
            marked = yield from marked_files(instant.requested)
            self.dead.append((instant, marked.union(known.get(instant.requested, ()))))

    def decide(self) -> Steps[None]:
        """Decide the rollback of all dead writes, newest first; no file is removed yet."""
        txns = self.txns
        if self.seen is None:
            yield from self.scan()
        yield from txns.ledger.refresh_steps()
        for instant, files in self.dead:
            if not txns.ledger.state.is_resolved(instant.requested):
                yield from self._decide(instant, files)
        if self.delay_ms is None:
            return
        # Removable plans that are dead or were not started in time.
        plans = txns.ledger.state.plans.values()
        for requested in sorted(plan.instant for plan in plans if plan.removable):
            yield from remove_plan(txns, requested, delay_ms=self.delay_ms, finish=False)

    def is_dead(self, instant: Instant, seen: PendingScan) -> bool:
        """Return whether a pending instant is an abandoned write; record those that are alive."""
        txns, state = self.txns, self.txns.ledger.state
        requested = instant.requested
        if instant.action not in WRITES or state.is_resolved(requested) or requested in state.plans:
            return False
        written = seen.written_epoch_ms.get(instant, 0)
        silent = requested not in seen.heartbeats
        alive = (
            (silent and txns.may_be_active(instant.state, written, seen.now_epoch_ms))
            or requested in txns.heartbeat_thread.instants()
            or seen.is_alive(requested, default_lifetime_ms=txns.lifetime_ms)
        )
        if alive:
            self.alive.append(requested)
        return not alive

    def _decide(self, instant: Instant, files: Iterable[str]) -> Steps[None]:
        txns = self.txns
        if (yield from live_heartbeat(instant.requested, default_lifetime_ms=txns.lifetime_ms)):
            return  # alive again
        record = rollback_plan(instant.requested, instant.action.value, files, base=txns.store.uri)
        base, reason = txns.ledger.state.position, "its writer is dead"
        intent = RollbackIntent(Action.ROLLBACK, (instant.requested,), record, base, reason=reason)
        found = yield from schedule_rollback(txns, intent)
        if isinstance(found, Undetermined):
            self.undetermined.append(instant.requested)

    def execute(self) -> Steps[None]:
        """Execute all decided rollbacks that no other process executes (C56)."""
        txns = self.txns
        for plan in pending_rollbacks(txns, Action.ROLLBACK):
            with suppress(Conflict):  # taken over by another process
                done = yield from finish_rollback(txns, plan)
                if isinstance(done, RollbackResult):
                    self.rolled_back += done.rolled_back
        seen = self.seen
        if seen is None:
            return
        for external in self.external:
            requested = external.instant.requested
            alive = seen.is_alive(requested, default_lifetime_ms=txns.lifetime_ms)
            if alive or seen.is_fresh(external.instant, txns.lifetime_ms):
                continue
            rolled_back = yield from finish_external_rollback(txns, external)
            self.rolled_back += [] if rolled_back is None else [rolled_back]
        state = txns.ledger.state
        for instant in seen.pending:
            if self._is_left(instant, state):
                # Its writer rolled it back and died before it deleted all its files.
                folder, marked = txns.ledger.publisher.folder, seen.is_marked(instant.requested)
                self.rolled_back.append(
                    (yield from remove_rolled_back(instant.requested, folder=folder, marked=marked))
                )
        yield from self._remove_stale_instants(seen)
        if self.delay_ms is not None:
            alive_writers = {
                i for i in seen.heartbeats if seen.is_alive(i, default_lifetime_ms=txns.lifetime_ms)
            }
            alive_writers.update(txns.heartbeat_thread.instants())
            yield from remove_late_files(txns, alive=alive_writers)
        yield from self._remove_stale_heartbeats(seen)

    def _is_left(self, instant: Instant, state: LedgerState) -> bool:
        requested = instant.requested
        planned = any(requested in plan.rolls_back for plan in state.plans.values())
        gone = any(each.instant == requested for each in self.rolled_back)
        return requested in state.aborted and not planned and not gone

    def _remove_stale_instants(self, seen: PendingScan) -> Steps[None]:
        """Delete instants that a slow publisher put on the timeline after their rollback (C86).

        Also deletes the inflight files of savepoints that were never completed.
        """
        txns = self.txns
        folder, state = txns.ledger.publisher.folder, txns.ledger.state
        # With external writers, a completed commit that was rolled back needs a human decision; and
        # a restore removes its instants in its own order.
        ours = not state.external and state.blocking_plan is None
        for instant in seen.completed if ours else ():
            if instant.action.writes_data and instant.requested in state.aborted:
                yield Delete(f"{folder}/{instant.file_name}")
        for instant in seen.pending:
            if instant.action is Action.SAVEPOINT and not seen.is_fresh(instant, txns.lifetime_ms):
                yield Delete(f"{folder}/{instant.file_name}")

    def _remove_stale_heartbeats(self, seen: PendingScan) -> Steps[None]:
        """Delete heartbeats without a pending instant.

        A heartbeat later than the ledger reserves its time (C44): its owner may be about to create
        the instant, and only appear dead because of a wrong clock. Times that the ledger has passed
        are not used again.
        """
        txns, state = self.txns, self.txns.ledger.state
        waiting = {instant.requested for instant in seen.pending} | set(state.plans)
        waiting |= set(txns.heartbeat_thread.instants())
        for instant in seen.heartbeats:
            if instant in waiting or instant > state.time:
                continue
            if not seen.is_alive(instant, default_lifetime_ms=txns.lifetime_ms):
                yield Delete(heartbeat_key(instant))

    def report(self) -> Recovered:
        return Recovered(tuple(self.rolled_back), tuple(self.alive), tuple(self.undetermined))
