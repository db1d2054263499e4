"""Restore: rolls back every commit after an instant by one ledger entry, then deletes the files.

After the entry no earlier write can complete; its writer has to start over. Writers that cannot be
stopped therefore do no damage. After a crash, executing the restore again completes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidelock.core.errors import Conflict, NotFound
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.instant import Action, Instant
from tidelock.services.clean import savepointed_files
from tidelock.services.rollback import RollbackPlans, lost_files, snapshot_at
from tidelock.txn.plans import RollbackIntent, scheduled_rollback
from tidelock.txn.recovery import scan_pending
from tidelock.txn.rollback import restore_plan

_SERVICES: frozenset[Action] = frozenset(
    {Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING}
)


@dataclass(frozen=True, slots=True)
class RestoreSet:
    """The instants that a restore rolls back: pending ones, then completed ones, newest first."""

    pending: tuple[Instant, ...]
    completed: tuple[Instant, ...]

    @property
    def instants(self) -> tuple[Instant, ...]:
        """All instants in the order of their rollback."""
        return (*self.pending, *self.completed)


def instants_to_roll_back(instants: Sequence[Instant], target: Instant) -> RestoreSet:
    """Return the instants that a restore to `target` rolls back.

    Completion decides: a write that was requested before the target and completed after it was not
    part of that state. A plan from before the target reads only files that stay, so it stays
    pending; a later plan is rolled back, removable or not.
    """
    completed = [
        each
        for each in instants
        if each.is_completed and each.action.writes_data and each.completion > target.completion
    ]
    pending = [each for each in instants if not each.is_completed and _is_rolled_back(each, target)]
    return RestoreSet(
        tuple(sorted(pending, key=lambda each: each.requested, reverse=True)),
        tuple(sorted(completed, key=lambda each: each.completion, reverse=True)),
    )


def _is_rolled_back(each: Instant, target: Instant) -> bool:
    if each.action in _SERVICES:
        return each.requested > target.completion
    return each.action.writes_data


def savepoints_among(savepoints: Iterable[Instant], restored: RestoreSet) -> tuple[str, ...]:
    """Return the savepointed commits among those that would be rolled back."""
    gone = {each.requested for each in restored.completed}
    return tuple(sorted(each.requested for each in savepoints if each.requested in gone))


_SCHEDULE_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Restore(RollbackPlans):
    """Restore of one table.

    With `fence`, active writers are fenced instead of making the restore fail. Java writers do not
    use the ledger, so they cannot be fenced and must be stopped.
    """

    action = Action.RESTORE
    fence: bool = False

    def plan(self, to: str) -> RestoreSet:
        """Return the instants to roll back. Raises: as `schedule`, except for active writers."""
        state = self.writer.transactions.ledger.refresh()
        return self._plan_at(snapshot_at(self.writer, state), to)

    def schedule(self, to: str) -> str | None:
        """Schedule a restore to the commit `to`; None if there is nothing to roll back.

        Raises: `NotFound` if `to` is not a commit on the active timeline, `Conflict` naming what
        prevents it: a later savepoint, cleaned files, active writers or a pending clean.
        """
        txns = self.writer.transactions
        for left in reversed(range(_SCHEDULE_ATTEMPTS)):
            state = txns.ledger.refresh()
            restored = self._plan_at(snapshot_at(self.writer, state), to)
            if not restored.completed:
                return None
            self._check_alive()
            intent = RollbackIntent(
                Action.RESTORE,
                tuple(each.requested for each in restored.instants),
                restore_plan(((i.requested, i.action.value) for i in restored.instants), to=to),
                state.position,
                complete=True,
                reason=f"restored to {to}",
            )
            try:
                with txns.table_change() as check:
                    return txns.ledger.run(scheduled_rollback(txns, intent), check).instant
            except Conflict:
                plans = txns.ledger.state.plans.values()
                if not left or any(plan.action is Action.CLEAN for plan in plans):
                    raise
        return None

    def _plan_at(self, snapshot: TableSnapshot, to: str) -> RestoreSet:
        uri, timeline = self.writer.store.uri, snapshot.timeline
        target = next((i for i in timeline.writes() if i.requested == to), None)
        if target is None:
            raise NotFound(
                f"{uri} has no completed commit {to} on its active timeline",
                hint="list commits with `tidelock timeline show URI`",
            )
        restored = instants_to_roll_back(timeline.instants, target)
        if saved := savepoints_among(timeline.completed(Action.SAVEPOINT), restored):
            raise Conflict(
                f"{uri} cannot be restored to {to}: the later commit {', '.join(saved)} has a"
                " savepoint",
                hint="delete that savepoint first",
            )
        if lost := self._lost(snapshot, target):
            raise Conflict(
                f"{uri} cannot be restored to {to}: a clean has deleted {lost[0]}"
                + (f" and {len(lost) - 1} more files" if lost[1:] else "")
                + " of that state",
                hint="restore to a later commit, or to one with a savepoint",
            )
        return restored

    def _lost(self, snapshot: TableSnapshot, target: Instant) -> tuple[str, ...]:
        saved = snapshot.timeline.find(target.requested, Action.SAVEPOINT)
        if saved is None or not saved.is_completed:
            return lost_files(snapshot, target.completion)
        keys = savepointed_files(snapshot.timeline, saved)
        return tuple(sorted(key for key in keys if self.writer.store.head(key) is None))

    def _check_alive(self) -> None:
        """Raise `Conflict` if a writer is alive that is not to be fenced."""
        txns = self.writer.transactions
        seen = txns.ledger.run(scan_pending(txns.ledger.publisher.folder))
        alive: list[str] = []
        for each in seen.pending:
            if not seen.is_alive(each.requested, default_lifetime_ms=txns.lifetime_ms):
                continue
            record = seen.heartbeats[each.requested].record
            if self.fence and record is not None:
                continue
            writer = f"{record.host}:{record.pid}" if record else "a Java writer"
            alive.append(f"{each.requested} ({writer})")
        if alive:
            raise Conflict(
                f"{self.writer.store.uri} cannot be restored while writers are active:"
                f" {', '.join(alive)}",
                hint="stop these writers, or fence ours with --fence; Java writers must be stopped",
            )
