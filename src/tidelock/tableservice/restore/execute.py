"""Restore: one entry of the ledger takes back everything after a moment; then the files go.

From the entry on no other write can complete, and whoever began before it has to start over, so a
writer that nobody could stop does no harm. A crash anywhere is made good by executing it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import Conflict, NotFound
from tidelock.operation.writer import TableWriter
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.instant import Action, Instant
from tidelock.table.timeline.metadata import SavepointMetadata
from tidelock.tableservice.restore.plan import TakenBack, kept_above, to_take_back
from tidelock.tableservice.undoing import carry_out, snapshot_at
from tidelock.tableservice.wholeness import lost_files
from tidelock.txn.recovery import survey
from tidelock.txn.rollbacks import CarriedOut, Intent, pending_undos, scheduled_undo
from tidelock.txn.undorecords import restore_plan

_PLANNINGS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Restore:
    """Restores the table of one writer.

    With `fence`, writers that are alive are shut out instead of waited for. Java writers cannot
    be: they know no ledger, and must be stopped.
    """

    writer: TableWriter
    fence: bool = False

    def plan(self, to: str) -> TakenBack:
        """Return what would be taken back. Raises: what `schedule` raises, but for live writers."""
        fold = self.writer.transactions.ledger.refresh()
        return self._planned(snapshot_at(self.writer, fold), to)

    def schedule(self, to: str) -> str | None:
        """Decide to restore the table as of the commit `to`; None if it is that already.

        Raises: `NotFound` if `to` is no commit on the active timeline, `Conflict` saying what is
        in the way: a later savepoint, files that were cleaned, writers that are alive, a clean.
        """
        home = self.writer.transactions
        for left in reversed(range(_PLANNINGS_MAX)):
            fold = home.ledger.refresh()
            taken = self._planned(snapshot_at(self.writer, fold), to)
            if not taken.completed:
                return None
            self._check_alive()
            intent = Intent(
                Action.RESTORE,
                tuple(each.requested for each in taken.instants),
                restore_plan(((i.requested, i.action.value) for i in taken.instants), to=to),
                fold.position,
                complete=True,
                reason=f"restored to {to}",
            )
            try:
                with home.changing() as check:
                    return home.ledger.run(scheduled_undo(home, intent), check).instant
            except Conflict:
                if not left or self._has_clean():
                    raise
        return None

    def pending(self) -> tuple[str, ...]:
        """Return the restores that are decided and not done."""
        home = self.writer.transactions
        home.ledger.refresh()
        return tuple(plan.instant for plan in pending_undos(home, Action.RESTORE))

    def execute(self, instant: str) -> CarriedOut:
        """Carry out a restore that is decided. Raises: `Conflict` if somebody else is at it."""
        return carry_out(self.writer, instant, Action.RESTORE)

    def _planned(self, snapshot: TableSnapshot, to: str) -> TakenBack:
        uri, timeline = self.writer.store.uri, snapshot.timeline
        target = next((i for i in timeline.writes() if i.requested == to), None)
        if target is None:
            raise NotFound(
                f"{uri} has no completed commit {to} on its active timeline",
                hint="`tidelock timeline show TABLE` shows them; a savepoint keeps one from being"
                " archived",
            )
        taken = to_take_back(timeline.instants, target)
        if kept := kept_above(timeline.completed(Action.SAVEPOINT), taken):
            raise Conflict(
                f"{uri} cannot be restored to {to}: {', '.join(kept)} is later and has a savepoint",
                hint="delete that savepoint first, if what it keeps may go",
            )
        if lost := self._lost(snapshot, target):
            raise Conflict(
                f"{uri} cannot be restored to {to}: a clean has deleted {lost[0]}"
                + (f" and {len(lost) - 1} more files" if lost[1:] else "")
                + " of that state",
                hint="restore to a later commit, or to one with a savepoint",
            )
        return taken

    def _lost(self, snapshot: TableSnapshot, target: Instant) -> tuple[str, ...]:
        saved = snapshot.timeline.find(target.requested, Action.SAVEPOINT)
        if saved is None or not saved.is_completed:
            return lost_files(snapshot, target.completion)
        kept = snapshot.timeline.read(SavepointMetadata, saved).partition_metadata
        keys = (
            "/".join(filter(None, (p, n))) for p, e in kept.items() for n in e.savepoint_data_file
        )
        return tuple(sorted(key for key in keys if self.writer.store.head(key) is None))

    def _check_alive(self) -> None:
        """Raise `Conflict` if a writer is alive that is not to be shut out."""
        home = self.writer.transactions
        seen = home.ledger.run(survey(home.ledger.publisher.folder))
        alive: list[str] = []
        for each in seen.pending:
            pulse = seen.pulses.get(each.requested)
            if pulse is None or not seen.is_alive(each.requested, otherwise_ms=home.life_ms):
                continue
            if self.fence and pulse.says is not None:
                continue
            who = f"{pulse.says.host}:{pulse.says.pid}" if pulse.says else "a Java writer"
            alive.append(f"{each.requested} ({who})")
        if alive:
            raise Conflict(
                f"{self.writer.store.uri} is not restored while it is written: {', '.join(alive)}",
                hint="stop these writers, or shut ours out with --fence; Java writers must be"
                " stopped",
            )

    def _has_clean(self) -> bool:
        plans = self.writer.transactions.ledger.fold.plans.values()
        return any(plan.action is Action.CLEAN for plan in plans)
