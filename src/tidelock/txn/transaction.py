"""A transaction: one write from its begin to its commit or rollback."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Self

from tidelock.core.errors import (
    Conflict,
    Fenced,
    InvalidInput,
    OutcomeUnknown,
    TidelockError,
    Unsupported,
)
from tidelock.core.outcome import Unknown
from tidelock.hudi.file_groups import GroupId, data_file
from tidelock.hudi.markers import TEMP_FOLDER, Marker, parse_marker
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.instant import Action, Instant, parse_instant
from tidelock.storage.contract import ObjectMeta
from tidelock.txn import heartbeats
from tidelock.txn.commit import (
    BegunInstant,
    CommitDraft,
    ConflictChecker,
    commit,
    remove_unreferenced_files,
    store_content,
)
from tidelock.txn.conflicts import (
    CommitResult,
    Committed,
    Conflicted,
    ConflictingTxn,
    ConflictReport,
    PendingTxn,
)
from tidelock.txn.effects import CheckHeld, Delete, List, Steps
from tidelock.txn.entries import Commit, LedgerEntry, PriorityTicket, Rollback
from tidelock.txn.footprint import CommitKind, Footprint
from tidelock.txn.heartbeats import heartbeat_key, live_heartbeat
from tidelock.txn.ledger_io import Appended, Declined, Undetermined
from tidelock.txn.plans import release_plan, remove_attempts
from tidelock.txn.rollback import (
    RolledBackInstant,
    attempt_of,
    decide,
    remove_files,
    remove_pending_files,
)
from tidelock.txn.state import (
    Evidence,
    LedgerState,
    PendingPlan,
    View,
    fencing_epoch,
    fencing_problem,
)

if TYPE_CHECKING:
    from tidelock.txn.transaction_manager import TransactionManager


_ADVICE: Final = "stop and start again; the write can no longer be committed"


@dataclass(frozen=True, slots=True)
class ConcurrentWriter:
    """Another running writer, and the file groups that it has written markers for."""

    instant: str
    owner: str
    groups: frozenset[GroupId]


def group_of(marker: Marker) -> GroupId | None:
    """Return the file group of the data file that a marker announces, base or log."""
    file = data_file(marker.partition, marker.name, 0)
    return None if file is None else (file.partition, file.file_id)


def groups_of(markers: Iterable[Marker]) -> frozenset[GroupId]:
    """Return the file groups that markers announce."""
    return frozenset(group for marker in markers if (group := group_of(marker)) is not None)


def ledger_conflict(view: View, candidate: PendingTxn, *, base: int) -> ConflictReport | None:
    """Return the conflict of a write with the commits since `base`, None if there is none. Pure."""
    if candidate.instant in view.state.aborted:
        cause = "it was rolled back by another process"
        return ConflictReport(candidate.as_conflicting, (), cause=cause, advice=_ADVICE)
    conflict = ConflictChecker(candidate, base).check(view)
    return None if conflict is None else conflict.verdict.report


def marker_conflict(
    candidate: PendingTxn, groups: frozenset[GroupId], others: Iterable[ConcurrentWriter]
) -> ConflictReport | None:
    """Return the conflict with older live writers that have markers in the same groups. Pure."""
    older = [
        other for other in others if other.instant < candidate.instant and other.groups & groups
    ]
    shared = frozenset().union(*(other.groups & groups for other in older))
    if not shared:
        return None
    return ConflictReport(
        candidate.as_conflicting,
        tuple(ConflictingTxn(other.instant, CommitKind.UPSERT, other.owner) for other in older),
        groups=shared,
        cause="an older writer is writing these file groups",
        advice=_ADVICE,
    )


def concurrent_writers(
    own: str, *, leave_out: frozenset[str], default_lifetime_ms: int
) -> Steps[tuple[ConcurrentWriter, ...]]:
    """Read the markers of all other live writers; `leave_out` are pending plans."""
    listed: tuple[ObjectMeta, ...] = yield List(f"{TEMP_FOLDER}/")
    by_instant: dict[str, list[Marker]] = {}
    for meta in listed:
        instant, _, path = meta.key.removeprefix(f"{TEMP_FOLDER}/").partition("/")
        marker = parse_marker(path)
        if marker is not None and instant != own and instant not in leave_out:
            by_instant.setdefault(instant, []).append(marker)
    found: list[ConcurrentWriter] = []
    for instant, markers in by_instant.items():
        heartbeat = yield from live_heartbeat(instant, default_lifetime_ms=default_lifetime_ms)
        if heartbeat is not None:
            owner = heartbeat.record.owner if heartbeat.record is not None else ""
            found.append(ConcurrentWriter(instant, owner, groups_of(markers)))
    return tuple(found)


logger = logging.getLogger(__name__)


class TransactionPhase(Enum):
    """The phase of a transaction."""

    RUNNING = "running"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"


class Transaction:
    """A write that has begun.

    Guarantees: `Committed` is durable and visible to everyone who reads the ledger afterwards.
    `Conflicted` means that nothing of the write is or will be visible. As a context manager, it
    rolls back a write that was not committed, unless the outcome is unknown. Does not guarantee:
    that a `Committed` write is on the timeline already, if the store failed in between; the next
    writer publishes it.
    """

    def __init__(
        self,
        txns: TransactionManager,
        begun: BegunInstant,
        base: LedgerState,
        *,
        commit_kind: CommitKind,
        markers: bool,
        rebased: int = 0,
        plan: PendingPlan | None = None,
        claimed: int = 0,
    ) -> None:
        """Wrap an instant that `txns` has begun on top of `base`, or claimed as `plan`.

        `claimed` is the ledger position of the claim.
        """
        self._txns = txns
        self._begun = begun
        self._base = base
        self._markers = markers
        self._rebased = rebased
        self._plan = plan
        self._claimed = claimed
        self._marked: tuple[str, ...] = ()
        self._published: tuple[View, tuple[LedgerEntry, ...]] | None = None
        self.commit_kind = commit_kind
        self.phase = TransactionPhase.RUNNING

    def keep_alive(self) -> None:
        """Refresh the heartbeat in the background from now on."""
        begun = self._begun
        self._txns.heartbeat_thread.keep(
            self.instant, heartbeats.encode(begun.heartbeat), begun.version
        )

    @property
    def instant(self) -> str:
        """The request time."""
        return self._begun.instant.requested

    @property
    def inflight(self) -> Instant:
        """The pending instant on the timeline."""
        return self._begun.instant

    @property
    def attempt(self) -> int:
        """The attempt number, part of the names of its data files."""
        return self._begun.attempt

    @property
    def base(self) -> int:
        """The ledger position at which the table was read, or the work was planned."""
        return self._base.position if self._plan is None else self._plan.position

    def commit(self, draft: CommitDraft, *, cleared: Collection[int] = ()) -> CommitResult:
        """Commit the write, or return the conflict that prevents it.

        `cleared` are ledger positions whose new keys were compared with this write's, as required
        by an earlier `CheckKeys`. Can be called again after `Conflicted` with a corrected draft,
        and after `Unknown` to resolve the outcome. Raises: `HoldingLost` if the table's lock was
        lost, `Unavailable`, `Unsupported` if the table may not be changed any more; the write is
        then not committed.
        """
        if self.phase not in (TransactionPhase.RUNNING, TransactionPhase.UNKNOWN):
            raise InvalidInput(f"{self.instant} is already {self.phase.value}")
        before = self._txns.ledger.view.state
        try:
            return self._commit(draft, cleared, before)
        except Fenced:
            known = self._txns.ledger.view.state
            if known.epoch == before.epoch:
                raise
            # The lock's token counter was reset in between, so a new grant is needed to order the
            # tokens.
            return self._commit(draft, cleared, known)

    def _commit(
        self, draft: CommitDraft, cleared: Collection[int], before: LedgerState
    ) -> CommitResult:
        """Commit under the table's lock; `before` is the ledger state before it was acquired."""
        txns, undetermined = self._txns, self.phase is TransactionPhase.UNKNOWN
        result: CommitResult
        try:
            with (
                txns.telemetry.commit(self.instant, rebased=self._rebased) as tried,
                txns.table_change() as check,
                txns.local_queue(),
            ):
                steps = self.commit_steps(draft, cleared=cleared, before=before)
                result = txns.ledger.run(steps, check)
                tried.result = result
        except (Unsupported, Conflict) as error:
            # An earlier call may have committed the write, so it cannot be reported as refused.
            if not undetermined:
                raise
            result = Unknown(str(error))
        if isinstance(result, Conflicted) and self._is_over(txns.ledger.view):
            txns.telemetry.fenced(self.instant, result.reason)
        if isinstance(result, Committed):
            txns.heartbeat_thread.drop(self.instant)
            txns.cleanup(lambda: txns.ledger.run(self.cleanup_steps()))
        elif isinstance(result, Unknown):
            # If the caller does not retry, the write must not look alive forever.
            txns.heartbeat_thread.drop(self.instant)
            self._remove_late()
        return result

    def commit_steps(
        self,
        draft: CommitDraft,
        *,
        cleared: Collection[int] = (),
        before: LedgerState | None = None,
    ) -> Steps[CommitResult]:
        """Return the steps of `commit`, without the lock around it and the `cleanup_steps` after
        it.

        `before` is a state read before the lock was acquired. Without it, the commit does not carry
        the lock's token, because its counter would be unknown.
        """
        if draft.markers is not None:
            self._marked = tuple(sorted(marker.key(self.instant) for marker in draft.markers))
        elif self._markers:
            attempt = self.attempt if self._plan is not None else None
            self._marked = yield from remove_unreferenced_files(
                self._begun.instant, draft.metadata, attempt=attempt
            )
        # As late as possible: commits completed after this check are missed, unless a lock shared
        # by all writers prevents them.
        known = self._txns.ledger.known_position
        state = yield from self._txns.import_steps(self.instant)
        # New entries were just read, so there is no need to read again before the append.
        contended = self._txns.is_contended and state.position == known
        result = yield from self._decide(draft, cleared, before, contended=contended)
        if isinstance(result, Committed):
            self.phase = TransactionPhase.COMMITTED
            result = yield from self._publish(result)
            yield from self._txns.wait_out_skew()
        return result

    def rollback(
        self, reason: str = "", *, conflict: Conflicted | None = None, files: Iterable[str] = ()
    ) -> RolledBackInstant:
        """Abort the write and delete its files.

        `conflict` is the reason, if there was one. `files` are data files that the write is known
        to have created; without them and without markers the table is listed. Raises: `Conflict` if
        it is complete, `OutcomeUnknown`.
        """
        stays = self._plan is not None and not self._plan.removable
        attempt = self.attempt if stays else None
        fact = Rollback(self.instant, reason or "abandoned", attempt)
        if conflict is not None:
            report = conflict.verdict.report
            others = tuple(other.instant for other in report.others)
            fact = Rollback(self.instant, reason or conflict.reason, attempt, others, report.groups)
        txns = self._txns
        txns.heartbeat_thread.drop(self.instant)
        try:
            rolled_back = txns.ledger.run(self.rollback_steps(fact, tuple(files)))
        except Conflict:
            self._remove_late()
            raise
        txns.telemetry.rolled_back(self.instant, fact.reason)
        return rolled_back

    def rollback_steps(
        self, fact: Rollback, known: tuple[str, ...] = ()
    ) -> Steps[RolledBackInstant]:
        ledger = self._txns.ledger
        seen = Evidence(own=frozenset({self.instant}))
        view = yield from ledger.view_steps()
        result = yield from decide(view, fact, seen=seen, owner=ledger.owner)
        ledger.advance(result.view)
        match result:
            case Undetermined(outcome=Unknown(cause)):
                raise OutcomeUnknown(
                    f"{self._txns.store.uri}: it is not known whether {self.instant} is rolled"
                    f" back: {cause}",
                    hint="do not delete its files; the next clean resolves it",
                )
            case Declined(reason=reason) if not self._is_over(result.view):
                raise Conflict(
                    f"{self._txns.store.uri}: {self.instant} cannot be rolled back: {reason}"
                )
            case _:
                pass
        self.phase = TransactionPhase.ROLLED_BACK
        return (yield from self._remove(known, over=isinstance(result, Declined)))

    def is_aborted(self) -> bool:
        """Return whether other processes have aborted this write."""
        self._txns.ledger.refresh(external=False)
        return self._is_over(self._txns.ledger.view)

    def request_priority(
        self, groups: frozenset[GroupId], partitions: frozenset[str] = frozenset()
    ) -> None:
        """Append a priority ticket for this write, after it has conflicted."""
        ledger = self._txns.ledger
        ticket = PriorityTicket(self.instant, groups, partitions)
        # Advisory, so failures are ignored.
        ledger.advance(ledger.run(decide(ledger.view, ticket, owner=self._txns.owner)).view)

    def is_cancelled(self, footprint: Footprint | None = None) -> ConflictReport | None:
        """Return the conflict that prevents this write from committing, None if none is known.

        `footprint` is what it is going to write. Checks the heartbeat, the ledger's last entries,
        and with early conflict detection the markers of older writers.
        """
        txns = self._txns
        doing = footprint or Footprint(self.commit_kind)
        mine = PendingTxn(self.instant, doing, owner=txns.owner, claimed=self._claimed)
        if lost := txns.heartbeat_thread.lost(self.instant):
            return ConflictReport(mine.as_conflicting, (), cause=lost, advice="start over")
        return txns.ledger.run(self._cancellation_steps(mine))

    def _cancellation_steps(self, mine: PendingTxn) -> Steps[ConflictReport | None]:
        txns = self._txns
        state = yield from txns.ledger.refresh_steps(external=False)
        found = ledger_conflict(txns.ledger.view, mine, base=self.base)
        groups = mine.footprint.touched
        if found is not None or not (groups and txns.settings.early_detection):
            return found
        others = yield from concurrent_writers(
            self.instant, leave_out=frozenset(state.plans), default_lifetime_ms=txns.lifetime_ms
        )
        return marker_conflict(mine, groups, others)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Roll back the write if it is still running."""
        if self.phase is not TransactionPhase.RUNNING:
            return
        try:
            self.rollback("abandoned" if error is None else f"failed: {type(error).__name__}")
        except TidelockError as problem:
            logger.warning("%s was not rolled back: %s", self.instant, problem)

    def _is_over(self, view: View) -> bool:
        """Return whether this attempt can never commit."""
        plan = view.state.plans.get(self.instant)
        if plan is not None:
            return (plan.attempt, plan.owner) != (self.attempt, self._txns.owner)
        if self.instant in view.state.aborted:
            return True
        # A later attempt at the plan was committed; its number tells it from an own commit.
        facts = (entry.fact for entry in view.tail if isinstance(entry.fact, Commit))
        return self._plan is not None and any(
            fact.instant == self.instant and fact.attempt > self.attempt for fact in facts
        )

    def _remove(self, known: tuple[str, ...], *, over: bool) -> Steps[RolledBackInstant]:
        folder = self._txns.ledger.publisher.folder
        if self._plan is not None and not self._plan.removable:
            held = self._begun.heartbeat
            yield from release_plan(self._plan, self.attempt, held, folder=folder, over=over)
            return RolledBackInstant(self.instant, known)
        # The process that aborted it may have removed markers of files that were written later.
        marked = (self._markers or bool(known)) and not over
        rolled_back = yield from remove_files(self.instant, marked=marked, known=known)
        yield from remove_pending_files(self.instant, self._begun.instant.action, folder=folder)
        return rolled_back

    def _remove_late(self) -> None:
        """Delete files that this attempt wrote after another attempt completed the plan (C98).

        The entry may be deleted, and the archive may have cleaned up before the files were written.
        The completed instant lists its files, which shows the attempt they belong to.
        """
        txns, state = self._txns, self._txns.ledger.view.state
        if self._plan is None or self.instant in state.plans or self.instant in state.aborted:
            return
        try:
            timeline = load_timeline(txns.store, txns.properties.timeline_folder)
            done = TableSnapshot(txns.store, txns.properties, timeline).commit_of(self.instant)
            if done is not None and self.attempt not in map(attempt_of, done.paths):
                txns.ledger.run(remove_attempts(self.instant, (self.attempt,)))
        except TidelockError as error:
            logger.warning("files of %s may remain: %s", self.instant, error)

    def _decide(
        self,
        draft: CommitDraft,
        cleared: Collection[int],
        before: LedgerState | None = None,
        *,
        contended: bool = False,
    ) -> Steps[CommitResult]:
        txns = self._txns
        held: int | None = yield CheckHeld()
        token = 0 if before is None else held or 0
        content = yield from store_content(self.instant, draft.metadata)
        candidate = PendingTxn(
            self.instant,
            draft.footprint(),
            schema_id=draft.schema_id,
            base_schema=self._base.schema_id,
            owner=txns.owner,
            dependencies=draft.dependencies,
            schema_base=draft.schema_base,
            claimed=self._claimed,
        )
        fact = Commit(
            instant=self.instant,
            action=self._begun.instant.action.completed,
            attempt=self.attempt,
            footprint=candidate.footprint,
            content=content,
            schema_id=draft.schema_id,
            base=self.base,
            rebased=self._rebased,
            token=token,
            epoch=0 if before is None or not token else fencing_epoch(token, before),
            app_transaction=draft.app_transaction,
        )
        checker = ConflictChecker(candidate, self.base, cleared, txns.settings.strategy)
        view = yield from txns.ledger.view_steps()
        result = yield from commit(view, checker, fact, owner=txns.owner, contended=contended)
        txns.ledger.advance(result.view)
        match result:
            case Appended(entry=entry):
                return Committed(self.instant, entry.time, entry.position, published=False)
            case Undetermined(outcome=outcome):
                self.phase = TransactionPhase.UNKNOWN
                return outcome
            case Declined(view, conflict):
                # An earlier call may have appended the commit without receiving the answer.
                for entry in view.tail:
                    if self._is_mine(entry):
                        return Committed(self.instant, entry.time, entry.position, published=False)
                state = view.state
                committed = self.instant in state.committed and self.instant not in state.aborted
                facts = (entry.fact for entry in view.tail if isinstance(entry.fact, Commit))
                others = any(fact.instant == self.instant for fact in facts)
                if self._plan is None and committed and not others:
                    # It was committed, and its entry was deleted before this process could read it.
                    return (yield from self._commit_without_entry())
                if self.instant < view.state.archived and self.instant not in view.state.aborted:
                    self.phase = TransactionPhase.UNKNOWN
                    return Unknown(f"{self.instant} is archived; its outcome is not known")
                self.phase = TransactionPhase.RUNNING
                if fencing_problem(fact, view.state):
                    # T9: the current holder of the lock has committed with a later token.
                    raise Fenced(
                        f"{self.instant} was not committed: {conflict.reason}",
                        hint="acquire the lock again, then commit",
                    )
                return conflict

    def _commit_without_entry(self) -> Steps[Committed | Unknown]:
        """Return the commit whose entry is deleted. It is on the timeline (C21)."""
        folder = self._txns.ledger.publisher.folder
        listed: tuple[ObjectMeta, ...] = ()
        try:
            listed = yield List(f"{folder}/{self.instant}_")
        except TidelockError as error:
            # T5: raising a store error would claim that nothing was committed.
            logger.warning("%s is committed; its completion was not read: %s", self.instant, error)
        for meta in listed:
            found = parse_instant(meta.key.removeprefix(f"{folder}/"))
            if found is not None and found.is_completed and found.action is not Action.SAVEPOINT:
                return Committed(self.instant, found.completion, 0, published=False)
        self.phase = TransactionPhase.UNKNOWN
        return Unknown(f"{self.instant} is committed, but its completed instant was not found")

    def _is_mine(self, entry: LedgerEntry) -> bool:
        fact = entry.fact
        return (
            isinstance(fact, Commit)
            and (fact.instant, fact.attempt) == (self.instant, self.attempt)
            and entry.owner == self._txns.owner
        )

    def _publish(self, done: Committed) -> Steps[Committed]:
        try:
            self._published = yield from self._txns.ledger.put_steps(own=done.position)
        except TidelockError as error:
            # The write is committed: an error would make the caller write it again.
            logger.warning("%s is committed but not on the timeline yet: %s", self.instant, error)
            return done
        return replace(done, published=True)

    def cleanup_steps(self) -> Steps[None]:
        """Remove stale published files, and the markers and heartbeat of a committed write.

        The commit is durable, so failures are only logged. Recovery removes what is left.
        """
        try:
            if self._published is not None:
                yield from self._txns.ledger.finish_publish_steps(*self._published)
        except TidelockError as error:
            logger.warning("the boundary was not read after publishing %s: %s", self.instant, error)
        try:
            for key in (*self._marked, heartbeat_key(self.instant)):
                yield Delete(key)
        except TidelockError as error:
            logger.warning("markers or heartbeat of %s were not deleted: %s", self.instant, error)
