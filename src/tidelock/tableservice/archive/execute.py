"""Archive: the oldest instants move from the active timeline to the history, in this order.

  1. They are written to the history, which readers look at for what the timeline does not have.
  2. What rolled-back writes and dead attempts left, or wrote late, is swept.
  3. The ledger's boundary moves: nothing requested before it can begin or complete any more.
  4. Only if no pending instant is that old, the files of the instants leave the timeline, the
     oldest first, of each the completed one last; then ledger entries and stored contents.

A crash after any step leaves instants in both places, which readers bear; the next run goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import Conflict, OutcomeUnknown
from tidelock.operation.reads import snapshot_now
from tidelock.operation.writer import TableWriter
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.active import ActiveTimeline, load_timeline
from tidelock.table.timeline.archive import Archive, ArchivedInstant
from tidelock.table.timeline.instant import Action, Instant, State, format_time
from tidelock.table.timeline.metadata import OperationType, RollbackMetadata
from tidelock.tableservice.archive.plan import Bounds, outdated_content, strays, to_archive
from tidelock.txn.appending import Appended, Declined, Doubtful, No
from tidelock.txn.entry import LEDGER_FOLDER, Boundary, Fact, entry_key, position_of
from tidelock.txn.fold import Fold, lawful
from tidelock.txn.heartbeat import HEARTBEAT_FOLDER
from tidelock.txn.publishing import CONTENT_FOLDER, write_checkpoint
from tidelock.txn.undoing import files_of
from tidelock.txn.view import View

ENTRIES_KEPT: Final = 512
"""Ledger entries that stay. Writers that began before the oldest of them have to start over."""

VOID_KEPT: Final = 16_384
"""Roll-backs that are remembered one by one after their instants were archived past.

For older ones readers ask the history whether an instant is complete, which costs them a look.
"""

_TRIES: Final = 3
_CHECKPOINT_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Archived:
    """How much an archiving moved."""

    instants: int
    entries: int


@dataclass(frozen=True, slots=True)
class Archiving:
    """Archives the timeline of one writer's table."""

    writer: TableWriter

    def run(self, bounds: Bounds) -> Archived:
        """Archive what is due. Raises: `Conflict` if others archive this table all the time."""
        for left in reversed(range(_TRIES)):
            try:
                return self._run(bounds)
            except Conflict:
                if not left:
                    raise
        return Archived(0, 0)

    def plan(self, bounds: Bounds) -> tuple[Instant, ...]:
        """Return what would be archived now."""
        self.writer.transactions.ledger.refresh()
        snapshot = snapshot_now(self.writer.store)
        return to_archive(snapshot.timeline.instants, bounds, needed=_needed(snapshot))

    def _run(self, bounds: Bounds) -> Archived:
        with self.writer.transactions.changing():
            fold = self.writer.transactions.ledger.refresh()
        if (halting := fold.halting) is not None:
            # What it takes back is void and still on the timeline, so its files must stay (C87).
            raise Conflict(
                f"the {halting.action} {halting.instant} is taking back commits and is not done",
                hint="try again when it is",
            )
        snapshot = snapshot_now(self.writer.store)
        # The timeline may be newer than the fold: nothing leaves past a plan of either.
        waiting = self._reserved(fold) | set(fold.plans)
        needed = _needed(snapshot) | waiting | self._watched(snapshot.timeline)
        leaving = to_archive(snapshot.timeline.instants, bounds, needed=needed)
        if not leaving:
            if any(instant < fold.archived for instant in fold.void):
                self._sweep(snapshot.timeline, leaving, fold)
            return Archived(0, 0)
        archive = Archive(self.writer.store, self.writer.properties.history_folder)
        known = archive.holds([instant.requested for instant in leaving])
        fresh = [i for i in leaving if (i.requested, i.action) not in known]
        archive.append([_archived(snapshot.timeline, instant) for instant in fresh])
        kept_from = _first_kept(snapshot.timeline, leaving, waiting)
        self._sweep(snapshot.timeline, leaving, fold)
        self._move_boundary(kept_from, self._forgotten(fold, archive))
        timeline = load_timeline(self.writer.store, self.writer.properties.timeline_folder)
        if self._has_pending_before(kept_from, timeline):
            return Archived(0, 0)
        self._delete(timeline, leaving)
        entries = self._delete_entries()
        self._delete_contents()
        return Archived(len(leaving), entries)

    def _reserved(self, fold: Fold) -> set[str]:
        """Return the request times that somebody has taken and may not have announced yet.

        Looked at after the timeline: whoever takes one later takes one that is later than every
        commit found there (C44).
        """
        listed = self.writer.store.list(f"{HEARTBEAT_FOLDER}/")
        times = {meta.key.rpartition("/")[2] for meta in listed}
        return {time for time in times if not fold.is_settled(time)}

    def _watched(self, timeline: ActiveTimeline) -> set[str]:
        """Return the writes before instants that were taken for dead just now.

        Who slept may be about to put a file there. While a write before it is on the timeline, no
        reader takes such a file for committed; so the archive waits for a heartbeat's life.
        """
        home = self.writer.transactions
        since = format_time(home.clock.now().wall_epoch_ms - home.life_ms)
        writes = [instant.requested for instant in timeline.writes()]
        found: set[str] = set()
        for done in timeline.completed(Action.ROLLBACK):
            if done.completion < since:
                continue
            for instant in timeline.read(RollbackMetadata, done).commits_rollback:
                found.update([each for each in writes if each < instant][-1:])
        return found

    def _forgotten(self, fold: Fold, archive: Archive) -> str:
        """Return before which request time roll-backs are not remembered one by one (C95)."""
        past = sorted(instant for instant in fold.void if instant < fold.archived)
        leaving = past[:-VOID_KEPT] if VOID_KEPT else past
        # One that was complete, and in the history, before it was taken back would look complete.
        told = archive.completions(leaving) if leaving else {}
        return min([*told, *past[len(leaving) :], fold.archived]) if leaving else ""

    def _move_boundary(self, archived: str, forgets: str) -> None:
        ledger = self.writer.transactions.ledger

        def propose(view: View) -> Fact | No[str]:
            position = max(view.fold.boundary, view.position - ENTRIES_KEPT, 0)
            fact = Boundary(position, archived, forgets)
            problem = lawful(fact, view.fold)
            return fact if problem is None else No(problem)

        match ledger.append(propose):
            case Appended():
                pass
            case Declined(why=why):
                raise Conflict(f"the ledger's boundary was not moved: {why}", hint="try again")
            case Doubtful(outcome=outcome):
                raise OutcomeUnknown(f"the ledger's boundary may have moved: {outcome.cause}")
        ledger.publish()
        # What is deleted below must be in a checkpoint that everybody can read. Writers replace it,
        # too, some of whom had not read the boundary.
        for _ in range(_CHECKPOINT_TRIES):
            view = ledger.adopt(ledger.run(write_checkpoint(ledger.view, every=1)))
            if view.archived >= archived:
                return
            ledger.refresh()
        raise Conflict("other processes replaced the ledger's checkpoint", hint="try again")

    def _has_pending_before(self, archived: str, timeline: ActiveTimeline) -> bool:
        """Tell whether a slow writer announced an instant that old after the plan was made."""
        return any(instant.requested < archived for instant in timeline.pending())

    def _sweep(self, timeline: ActiveTimeline, leaving: tuple[Instant, ...], fold: Fold) -> None:
        """Delete what rolled-back writes and dead attempts left, or wrote late.

        Hudi's readers take files that are older than the timeline for committed ones, so such
        files must be gone before the timeline's beginning passes them.
        """
        ledger = self.writer.transactions.ledger
        # Only plans have several attempts; a write that is begun again has another instant.
        done = {i.requested: timeline.commit(i) for i in leaving if _may_be_planned(timeline, i)}
        named = {i: each.paths for i, each in done.items() if each.operation_type in _SERVICES}
        if not fold.void and not named:
            return
        found = ledger.run(files_of({*fold.void, *named}))
        for key in strays(found, named, alone=not fold.foreign):
            self.writer.store.delete(key)

    def _delete(self, timeline: ActiveTimeline, leaving: tuple[Instant, ...]) -> None:
        for instant in leaving:
            for state in timeline.states(instant):
                self.writer.store.delete(timeline.key(state))

    def _delete_entries(self) -> int:
        """Delete the ledger entries up to the boundary."""
        store, boundary = self.writer.store, self.writer.transactions.ledger.view.boundary
        count = 0
        for meta in store.list(f"{LEDGER_FOLDER}/"):
            position = position_of(meta.key)
            if position is None or position > boundary:
                break
            store.delete(entry_key(position))
            count += 1
        return count

    def _delete_contents(self) -> None:
        """Delete the bytes of instants that nobody has to publish any more (C96)."""
        view = self.writer.transactions.ledger.view
        for meta in self.writer.store.list(f"{CONTENT_FOLDER}/"):
            name = meta.key.rpartition("/")[2]
            if outdated_content(name, archived=view.archived, boundary=view.boundary):
                self.writer.store.delete(meta.key)


def _needed(snapshot: TableSnapshot) -> frozenset[str]:
    """Return the writes whose replaced file groups still have files: they must stay hidden."""
    if not snapshot.replaced:
        return frozenset()
    present = {group.group_id for group in snapshot.groups(with_replaced=True)}
    return frozenset(by for group, by in snapshot.replaced.items() if group in present)


def _first_kept(
    timeline: ActiveTimeline, leaving: tuple[Instant, ...], plans: Iterable[str]
) -> str:
    """Return the request time of the oldest instant that stays: everything before is decided.

    What is not complete stays, whatever it is: a clean that somebody executes is no write, and
    still must be able to end.
    """
    gone = {instant.identity for instant in leaving}
    staying = (
        instant.requested
        for instant in timeline.instants
        if instant.identity not in gone and (instant.action.writes_data or not instant.is_completed)
    )
    return min([*staying, *plans], default="")


def _archived(timeline: ActiveTimeline, instant: Instant) -> ArchivedInstant:
    found = timeline.store.get(timeline.key(instant))
    if found is None:
        raise Conflict(f"{timeline.key(instant)} is gone", hint="somebody else archives it")
    return ArchivedInstant(
        instant.requested,
        instant.completion,
        instant.action,
        found.body,
        _plan_bytes(timeline, instant),
    )


def _may_be_planned(timeline: ActiveTimeline, instant: Instant) -> bool:
    """Tell whether a completed instant may be a service's: the request of a write is its own."""
    asked = (each for each in timeline.states(instant) if each.state is State.REQUESTED)
    return instant.action.writes_data and not any(each.action in _PLAIN for each in asked)


def _plan_bytes(timeline: ActiveTimeline, instant: Instant) -> bytes:
    """Return the plan that is kept beside the outcome; plain commits have none."""
    for state in timeline.states(instant):
        planned = state.action in _PLANNED and state.state is State.REQUESTED
        found = timeline.store.get(timeline.key(state)) if planned else None
        if found is not None:
            return found.body
    return b""


_SERVICES: Final = frozenset(
    {OperationType.COMPACT, OperationType.LOG_COMPACT, OperationType.CLUSTER}
)
_PLAIN: Final = frozenset({Action.COMMIT, Action.DELTA_COMMIT})
_PLANNED: Final = frozenset(
    {
        Action.CLEAN,
        Action.COMPACTION,
        Action.LOG_COMPACTION,
        Action.CLUSTERING,
        Action.REPLACE_COMMIT,
        Action.ROLLBACK,
    }
)
