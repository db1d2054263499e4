"""Archive: the oldest instants move from the active timeline to the history, in this order.

  1. They are written to the history, which readers look at for what the timeline does not have.
  2. The ledger's boundary moves: nothing requested before it can begin or complete any more.
  3. Only if no pending instant is that old, what rolled-back writes left is swept, and the files
     of the instants leave the timeline, the oldest first, of each the completed one last.

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
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.tableservice.archive.plan import Bounds, to_archive
from tidelock.txn.appending import Appended, Declined, Doubtful, No
from tidelock.txn.entry import LEDGER_FOLDER, Boundary, Fact, entry_key, position_of
from tidelock.txn.fold import lawful
from tidelock.txn.publishing import write_checkpoint
from tidelock.txn.undoing import files_of
from tidelock.txn.view import View

ENTRIES_KEPT: Final = 512
"""Ledger entries that stay. Writers that began before the oldest of them have to start over."""

_TRIES: Final = 3


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
        fold = self.writer.transactions.ledger.refresh()
        snapshot = snapshot_now(self.writer.store)
        leaving = to_archive(snapshot.timeline.instants, bounds, needed=_needed(snapshot))
        if not leaving:
            return Archived(0, 0)
        archive = Archive(self.writer.store, self.writer.properties.history_folder)
        known = archive.holds([instant.requested for instant in leaving])
        fresh = [i for i in leaving if (i.requested, i.action) not in known]
        archive.append([_archived(snapshot.timeline, instant) for instant in fresh])
        kept_from = _first_kept(snapshot.timeline, leaving, fold.plans)
        self._move_boundary(kept_from)
        if self._has_pending_before(kept_from):
            return Archived(0, 0)
        self._sweep()
        self._delete(leaving)
        return Archived(len(leaving), self._delete_entries())

    def _move_boundary(self, archived: str) -> None:
        ledger = self.writer.transactions.ledger

        def propose(view: View) -> Fact | No[str]:
            position = max(view.fold.boundary, view.position - ENTRIES_KEPT, 0)
            fact = Boundary(position, archived)
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
        # What is deleted below must be in a checkpoint that everybody can read.
        view = ledger.adopt(ledger.run(write_checkpoint(ledger.view, every=1)))
        if view.archived < archived:
            raise Conflict("another process replaced the ledger's checkpoint", hint="try again")

    def _has_pending_before(self, archived: str) -> bool:
        """Tell whether a slow writer announced an instant that old after the plan was made."""
        timeline = load_timeline(self.writer.store, self.writer.properties.timeline_folder)
        return any(instant.requested < archived for instant in timeline.pending())

    def _sweep(self) -> None:
        """Delete what rolled-back writes left, or wrote late.

        Hudi's readers take files that are older than the timeline for committed ones, so such
        files must be gone before the timeline's beginning passes them.
        """
        ledger = self.writer.transactions.ledger
        if ledger.fold.void:
            for key in sorted(ledger.run(files_of(ledger.fold.void))):
                self.writer.store.delete(key)

    def _delete(self, leaving: tuple[Instant, ...]) -> None:
        writer = self.writer
        timeline = load_timeline(writer.store, writer.properties.timeline_folder)
        for instant in leaving:
            for state in timeline.states(instant):
                writer.store.delete(timeline.key(state))

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


def _plan_bytes(timeline: ActiveTimeline, instant: Instant) -> bytes:
    """Return the plan that is kept beside the outcome; plain commits have none."""
    for state in timeline.states(instant):
        planned = state.action in _PLANNED and state.state is State.REQUESTED
        found = timeline.store.get(timeline.key(state)) if planned else None
        if found is not None:
            return found.body
    return b""


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
