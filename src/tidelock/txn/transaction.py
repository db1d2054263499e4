"""One write from its beginning to its end: begin, then commit or roll back, exactly one of them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tidelock.base.errors import (
    Conflict,
    Fenced,
    InvalidInput,
    OutcomeUnknown,
    TidelockError,
    Unsupported,
)
from tidelock.base.outcome import Unknown
from tidelock.store.contract import ObjectMeta
from tidelock.table.filegroup.view import GroupId
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.instant import Action, Instant, parse_instant
from tidelock.txn import heartbeat as heartbeats
from tidelock.txn import turns
from tidelock.txn.appending import Appended, Declined, Doubtful
from tidelock.txn.beginning import Begun
from tidelock.txn.committing import Judge, candidate_of, commit, remove_strays, store_content
from tidelock.txn.draft import CommitDraft, CommitResult, Committed, Overtaken
from tidelock.txn.early import committed_against, met_by_markers, rivals
from tidelock.txn.effects import CheckHeld, Delete, List, Pause, Steps
from tidelock.txn.entry import Commit, Entry, Rollback, Turn
from tidelock.txn.fold import Evidence, Fold, Pending, fencing_epoch, fencing_problem
from tidelock.txn.footprint import Deed, Footprint
from tidelock.txn.heartbeat import heartbeat_key
from tidelock.txn.ledger import Shown
from tidelock.txn.planning import release_plan, remove_attempts
from tidelock.txn.rules import Candidate
from tidelock.txn.undoing import attempt_of, decide, remove_announcement, remove_files
from tidelock.txn.undorecords import Undone
from tidelock.txn.verdict import Party, Report
from tidelock.txn.view import View

if TYPE_CHECKING:
    from tidelock.txn.transactions import Transactions

logger = logging.getLogger(__name__)


class Phase(Enum):
    """How far a transaction has come."""

    RUNNING = "running"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"


class Transaction:
    """A write that has begun.

    Guarantees: `Committed` is durable and seen by everyone who reads the ledger from then on;
    `Overtaken` means that nothing of it is visible or will be. As a context manager it rolls back
    what was not committed, unless nobody can tell whether it was.
    Does not guarantee: that a `Committed` write is on the timeline already, if the store failed in
    between; the next writer puts it there.
    """

    def __init__(
        self,
        home: Transactions,
        begun: Begun,
        base: Fold,
        *,
        deed: Deed,
        markers: bool,
        rebased: int = 0,
        plan: Pending | None = None,
        claimed: int = 0,
    ) -> None:
        """Belong to `home`, which has begun it on top of `base`, or claimed it as `plan`.

        `claimed` is the position of the claim.
        """
        self._home = home
        self._begun = begun
        self._base = base
        self._markers = markers
        self._rebased = rebased
        self._plan = plan
        self._claimed = claimed
        self._marked: tuple[str, ...] = ()
        self._shown: Shown | None = None
        self.deed = deed
        self.phase = Phase.RUNNING

    def keep_alive(self) -> None:
        """Refresh the heartbeat from now on, in the background."""
        begun = self._begun
        self._home.beating.keep(self.instant, heartbeats.encode(begun.heartbeat), begun.version)

    @property
    def instant(self) -> str:
        """The request time."""
        return self._begun.instant.requested

    @property
    def inflight(self) -> Instant:
        """The instant as the timeline has it while the write runs."""
        return self._begun.instant

    @property
    def attempt(self) -> int:
        """The number that goes into the names of its data files."""
        return self._begun.attempt

    @property
    def base(self) -> int:
        """The ledger's position when the table was read, or when the work was planned."""
        return self._base.position if self._plan is None else self._plan.position

    def commit(self, draft: CommitDraft, *, cleared: Collection[int] = ()) -> CommitResult:
        """Make the write happen, or say what came between.

        `cleared` are ledger positions whose new keys were compared with this write's, as an
        earlier `CheckKeys` asked. May be called again after `Overtaken` with a draft that was
        mended, and after `Unknown` to find out.
        Raises: `HoldingLost` if the table's lock was lost, `Unavailable`, `Unsupported` if the
        table is not to be changed any more; nothing happened then.
        """
        if self.phase not in (Phase.RUNNING, Phase.UNKNOWN):
            raise InvalidInput(f"{self.instant} is {self.phase.value} already")
        before = self._home.ledger.view.fold
        try:
            return self._commit(draft, cleared, before)
        except Fenced:
            known = self._home.ledger.view.fold
            if known.epoch == before.epoch:
                raise
            # The lock's counter is another one since: whose turn it is, only a new grant tells.
            return self._commit(draft, cleared, known)

    def _commit(self, draft: CommitDraft, cleared: Collection[int], before: Fold) -> CommitResult:
        """Commit under the table's lock; `before` is the ledger as it is known without it."""
        home, doubtful = self._home, self.phase is Phase.UNKNOWN
        result: CommitResult
        try:
            with (
                home.observing.commit(self.instant, rebased=self._rebased) as tried,
                home.changing() as check,
                home.in_line(),
            ):
                steps = self.commit_steps(draft, cleared=cleared, before=before)
                result = home.ledger.run(steps, check)
                tried.result = result
        except (Unsupported, Conflict) as error:
            # An earlier call may have committed it: to refuse it now would deny that.
            if not doubtful:
                raise
            result = Unknown(str(error))
        if isinstance(result, Overtaken) and self._is_over(home.ledger.view):
            home.observing.fenced(self.instant, result.reason)
        if isinstance(result, Committed):
            home.beating.drop(self.instant)
            home.aside(lambda: home.ledger.run(self.tidy_steps()))
        elif isinstance(result, Unknown):
            # Should nobody ever ask again, the write must not look alive for ever.
            home.beating.drop(self.instant)
            self._remove_late()
        return result

    def commit_steps(
        self, draft: CommitDraft, *, cleared: Collection[int] = (), before: Fold | None = None
    ) -> Steps[CommitResult]:
        """Return the steps of `commit`, but for the lock around it and `tidy_steps` after it.

        `before` is a fold that was read before the lock was taken. Without one the commit does not
        carry the lock's token: nobody could tell which counter it comes from.
        """
        if draft.markers is not None:
            self._marked = tuple(sorted(marker.key(self.instant) for marker in draft.markers))
        elif self._markers:
            attempt = self.attempt if self._plan is not None else None
            self._marked = yield from remove_strays(
                self._begun.instant, draft.metadata, attempt=attempt
            )
        # As late as can be: what is completed after this look is not judged, unless a lock that
        # everybody takes keeps it out.
        known = self._home.ledger.known_position
        fold = yield from self._home.look_steps(self.instant)
        # Whoever has just read what others appended need not read on before the entry is made.
        crowded = self._home.is_crowded and fold.position == known
        result = yield from self._decide(draft, cleared, before, crowded=crowded)
        if isinstance(result, Committed):
            self.phase = Phase.COMMITTED
            result = yield from self._publish(result)
            yield from self._home.wait_out_skew()
        return result

    def rollback(
        self,
        reason: str = "",
        *,
        overtaken: Overtaken | None = None,
        files: Iterable[str] = (),
    ) -> Undone:
        """Undo the write: never to be committed, its files removed.

        `files` are data files it is known to have written. Without markers the table is listed,
        unless they are given. Raises: `Conflict` if it is complete, `OutcomeUnknown`.
        """
        known = tuple(files)
        report = overtaken.verdict.report if overtaken is not None else None
        fact = Rollback(
            self.instant,
            reason or (overtaken.reason if overtaken is not None else "given up"),
            overtaken_by=tuple(other.instant for other in report.others) if report else (),
            groups=report.groups if report else frozenset(),
            attempt=self.attempt if self._plan is not None and not self._plan.removable else None,
        )
        home = self._home
        home.beating.drop(self.instant)
        try:
            undone = home.ledger.run(self.rollback_steps(fact, known))
        except Conflict:
            self._remove_late()
            raise
        home.observing.rolled_back(self.instant, fact.reason)
        return undone

    def rollback_steps(self, fact: Rollback, known: tuple[str, ...] = ()) -> Steps[Undone]:
        """Return the steps of `rollback`."""
        ledger = self._home.ledger
        seen = Evidence(own=frozenset({self.instant}))
        view = yield from ledger.view_steps()
        result = yield from decide(view, fact, seen=seen, owner=ledger.owner)
        ledger.adopt(result.view)
        match result:
            case Doubtful(outcome=Unknown(cause)):
                raise OutcomeUnknown(
                    f"nobody can tell whether {self.instant} is rolled back: {cause}",
                    hint="leave its files alone; the next clean finds out",
                )
            case Declined(why=why) if not self._is_over(result.view):
                raise Conflict(f"{self.instant} cannot be rolled back: {why}")
            case _:
                pass
        self.phase = Phase.ROLLED_BACK
        return (yield from self._remove(known, over=isinstance(result, Declined)))

    def is_given_up(self) -> bool:
        """Tell whether others ended this write: it can never be committed any more."""
        self._home.ledger.refresh(foreign=False)
        return self._is_over(self._home.ledger.view)

    def ask_turn(
        self, groups: frozenset[GroupId], partitions: frozenset[str] = frozenset()
    ) -> None:
        """Ask others to let this write go first, after it has been overtaken."""
        ledger = self._home.ledger
        asked = Turn(self.instant, groups, partitions)
        ledger.adopt(ledger.run(turns.ask(ledger.view, asked, owner=self._home.owner)))

    def doomed(self, footprint: Footprint | None = None) -> Report | None:
        """Return why this write cannot be committed any more, as far as is known; None if it can.

        `footprint` is what it is going to write. Looks at the heartbeat, at the ledger's tail, and
        with early detection switched on at the markers of older writers.
        """
        home = self._home
        doing = footprint or Footprint(self.deed)
        mine = Candidate(self.instant, doing, owner=home.owner, claimed=self._claimed)
        lost = home.beating.lost(self.instant)
        if lost:
            party = Party(self.instant, mine.footprint.deed, home.owner)
            return Report(party, (), cause=lost, advice="start over")
        return home.ledger.run(self.doomed_steps(mine))

    def doomed_steps(self, mine: Candidate) -> Steps[Report | None]:
        """Return the steps of `doomed`, but for the look at the heartbeat."""
        home = self._home
        fold = yield from home.ledger.refresh_steps(foreign=False)
        found = committed_against(home.ledger.view, mine, base=self.base)
        groups = mine.footprint.touched
        if found is not None or not (groups and home.settings.early_detection):
            return found
        others = yield from rivals(
            self.instant, leave_out=frozenset(fold.plans), otherwise_ms=home.life_ms
        )
        return met_by_markers(mine, groups, others)

    def __enter__(self) -> Self:
        """Return the transaction itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Roll back what is still running."""
        del kind, trace
        if self.phase is not Phase.RUNNING:
            return
        try:
            self.rollback("given up" if error is None else f"failed: {type(error).__name__}")
        except TidelockError as problem:
            logger.warning("%s was not rolled back: %s", self.instant, problem)

    def _is_over(self, view: View) -> bool:
        """Tell whether this attempt can never be committed, whoever decided that."""
        plan = view.fold.plans.get(self.instant)
        if plan is not None:
            return (plan.attempt, plan.owner) != (self.attempt, self._home.owner)
        if self.instant in view.fold.void:
            return True
        # A later attempt at the plan was committed. An own commit is never mistaken for one.
        facts = (entry.fact for entry in view.tail if isinstance(entry.fact, Commit))
        return self._plan is not None and any(
            fact.instant == self.instant and fact.attempt > self.attempt for fact in facts
        )

    def _remove(self, known: tuple[str, ...], *, over: bool) -> Steps[Undone]:
        folder = self._home.ledger.publisher.folder
        if self._plan is not None and not self._plan.removable:
            held = self._begun.heartbeat
            yield from release_plan(self._plan, self.attempt, held, folder=folder, over=over)
            return Undone(self.instant, known)
        # Whoever decided it instead may have removed markers whose files were written later.
        marked = (self._markers or bool(known)) and not over
        undone = yield from remove_files(self.instant, marked=marked, known=known)
        yield from remove_announcement(self.instant, self._begun.instant.action, folder=folder)
        return undone

    def _remove_late(self) -> None:
        """Remove what this attempt wrote after another one completed the plan (C98).

        The ledger may have folded that away, and the archive may have swept before the files came.
        What completed names its files, so it tells whose they are, however old it is.
        """
        home, fold = self._home, self._home.ledger.view.fold
        if self._plan is None or self.instant in fold.plans or self.instant in fold.void:
            return
        try:
            timeline = load_timeline(home.store, home.properties.timeline_folder)
            done = TableSnapshot(home.store, home.properties, timeline).commit_of(self.instant)
            if done is not None and self.attempt not in map(attempt_of, done.paths):
                home.ledger.run(remove_attempts(self.instant, (self.attempt,)))
        except TidelockError as error:
            logger.warning("files of %s may be left: %s", self.instant, error)

    def _decide(
        self,
        draft: CommitDraft,
        cleared: Collection[int],
        before: Fold | None = None,
        *,
        crowded: bool = False,
    ) -> Steps[CommitResult]:
        home = self._home
        held: int | None = yield CheckHeld()
        token = 0 if before is None else held or 0
        content = yield from store_content(self.instant, draft.metadata)
        candidate = candidate_of(
            self.instant,
            draft,
            base_schema=self._base.schema_id,
            owner=home.owner,
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
            mark=draft.mark,
        )
        judge = Judge(candidate, self.base, cleared, home.settings.strategy)
        view = yield from home.ledger.view_steps()
        result = yield from commit(view, judge, fact, owner=home.owner, crowded=crowded)
        home.ledger.adopt(result.view)
        match result:
            case Appended(entry=entry):
                return self._committed(entry)
            case Doubtful(outcome=outcome):
                self.phase = Phase.UNKNOWN
                return outcome
            case Declined(view, overtaken):
                # An earlier call may have appended it without being told.
                for entry in view.tail:
                    if self._is_mine(entry):
                        return self._committed(entry)
                fold = view.fold
                landed = self.instant in fold.committed and self.instant not in fold.void
                facts = (entry.fact for entry in view.tail if isinstance(entry.fact, Commit))
                others = any(fact.instant == self.instant for fact in facts)
                if self._plan is None and landed and not others:
                    # It landed, and was folded away before this process could hear of it.
                    return (yield from self._folded())
                if self.instant < view.fold.archived and self.instant not in view.fold.void:
                    self.phase = Phase.UNKNOWN
                    return Unknown(f"{self.instant} is archived; what became of it is not known")
                self.phase = Phase.RUNNING
                if fencing_problem(fact, view.fold):
                    # T9: whoever holds the lock now has committed under a later token.
                    raise Fenced(
                        f"{self.instant} was not committed: {overtaken.reason}",
                        hint="commit again, with the lock taken anew",
                    )
                return overtaken

    def _folded(self) -> Steps[Committed | Unknown]:
        """Return the commit whose entry is gone. What is folded is on the timeline (C21)."""
        folder = self._home.ledger.publisher.folder
        listed: tuple[ObjectMeta, ...] = ()
        try:
            listed = yield List(f"{folder}/{self.instant}_")
        except TidelockError as error:
            # T5: an error of the store would say that nothing happened.
            logger.warning("%s is committed; its completion was not read: %s", self.instant, error)
        for meta in listed:
            found = parse_instant(meta.key.removeprefix(f"{folder}/"))
            if found is not None and found.is_completed and found.action is not Action.SAVEPOINT:
                return Committed(self.instant, found.completion, 0, published=False)
        self.phase = Phase.UNKNOWN
        return Unknown(f"{self.instant} is committed, and its completion is not to be found")

    def _is_mine(self, entry: Entry) -> bool:
        fact = entry.fact
        return (
            isinstance(fact, Commit)
            and (fact.instant, fact.attempt) == (self.instant, self.attempt)
            and entry.owner == self._home.owner
        )

    def _committed(self, entry: Entry) -> Committed:
        return Committed(self.instant, entry.time, entry.position, published=False)

    def _publish(self, done: Committed) -> Steps[Committed]:
        try:
            self._shown = yield from self._home.ledger.put_steps(own=done.position)
        except TidelockError as error:
            # The commit stands: an error now would make the caller write it a second time.
            logger.warning("%s is committed but not on the timeline yet: %s", self.instant, error)
            return done
        return Committed(done.instant, done.completion, done.position)

    def tidy_steps(self) -> Steps[None]:
        """Look back at what was published, and remove markers and heartbeat of a committed write.

        The commit stands, so a failure here is not one of the commit. What is left is removed by
        recovery.
        """
        try:
            if self._shown is not None:
                yield from self._home.ledger.settle_steps(self._shown)
        except TidelockError as error:
            logger.warning("after publishing %s the boundary was not read: %s", self.instant, error)
        try:
            for key in (*self._marked, heartbeat_key(self.instant)):
                yield Delete(key)
        except TidelockError as error:
            logger.warning("markers or heartbeat of %s were left: %s", self.instant, error)


def wait_out(skew_ms: int) -> Steps[None]:
    """C37: let a time that a Java writer may compare with pass everywhere."""
    if skew_ms:
        yield Pause(2.0 * skew_ms)
