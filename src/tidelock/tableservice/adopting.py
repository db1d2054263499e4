"""Plans that a writer without a ledger scheduled, taken over into the ledger (C99).

Such a plan says which files it starts from. It is compared with the table as it was when the plan
was made, and as it is; then one entry makes it a plan like any other: claimed, judged, undone.
"""

from __future__ import annotations

from typing import Final

from tidelock.base.errors import Conflict, OutcomeUnknown
from tidelock.operation.writer import TableWriter
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.filegroup.view import GroupId
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.active import ActiveTimeline, load_timeline
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.txn.appending import Declined, Doubtful
from tidelock.txn.entry import Adopt
from tidelock.txn.foreignplans import ADOPTED, PlannedSlice, planned_slices
from tidelock.txn.heartbeat import heartbeat_key, pulse_of
from tidelock.txn.planning import adopt

_LOOKS_MAX: Final = 5


def foreign_plans(writer: TableWriter, action: Action) -> tuple[str, ...]:
    """Return the pending plans on the timeline that the ledger does not know, oldest first.

    None where no Java writers are announced: nobody looks for what they do then.
    """
    home = writer.transactions
    if not home.takes_foreign_plans or action not in ADOPTED:
        return ()
    timeline = load_timeline(writer.store, writer.properties.timeline_folder)
    return tuple(i.requested for i in timeline.pending(action) if _is_unknown(writer, i.requested))


def adopted(writer: TableWriter, instant: str, action: Action) -> None:
    """Take a plan over if it lies on the timeline and the ledger does not know it.

    Two processes that do this agree: the entry is there once. Raises: `Conflict` if somebody is at
    the plan, or if it starts from what is not the table any more; `DataCorrupt`, `OutcomeUnknown`.
    """
    home = writer.transactions
    if instant in home.ledger.fold.plans:
        return
    home.ledger.refresh()
    for left in reversed(range(_LOOKS_MAX)):
        timeline = load_timeline(writer.store, writer.properties.timeline_folder)
        found = next((i for i in timeline.pending(action) if i.requested == instant), None)
        if found is None or not _is_unknown(writer, instant):
            return  # who claims it is told what became of it
        if not home.takes_foreign_plans:
            raise Conflict(
                f"the {action} {instant} was scheduled by a writer that keeps no ledger",
                hint="to execute it here, set tidelock.write.mixed=true and the lock provider of"
                " that writer; or `tidelock services TABLE cancel` it",
            )
        problem = _take(writer, timeline, found)
        if problem is None:
            return
        if not left:
            raise Conflict(f"the {action} {instant} was not taken over: {problem}", hint=_CANCEL)


_CANCEL = "`tidelock services TABLE cancel INSTANT --force` removes such a plan"


def _is_unknown(writer: TableWriter, instant: str) -> bool:
    fold = writer.transactions.ledger.fold
    return not (instant in fold.plans or fold.is_settled(instant))


def _take(writer: TableWriter, timeline: ActiveTimeline, found: Instant) -> str | None:
    """Append the entry; return what came between, which is looked at again."""
    home, instant, action = writer.transactions, found.requested, found.action
    _check_alone(writer, found)
    key = timeline.key(Instant(instant, action, State.REQUESTED))
    held = writer.store.get(key)
    if held is None:
        raise Conflict(f"{writer.store.uri}/{key} is gone", hint=_CANCEL)
    slices = planned_slices(action, held.body, where=f"{writer.store.uri}/{key}")
    view = writer.view()
    now, then = view.of(), _when_planned(writer, instant)
    for piece in slices:
        fault = _fault(piece, action, instant, now.get(piece.group), then.get(piece.group))
        if fault is not None:
            raise Conflict(
                f"the {action} {instant} cannot be executed: {fault}, in {'/'.join(piece.group)}",
                hint=_CANCEL,
            )
    targets = frozenset(piece.group for piece in slices)
    fact = Adopt(instant, action, targets, removable=action is not Action.COMPACTION)
    with home.changing() as check:
        # Under the lock nobody completes it, or takes it back, unseen.
        home.ledger.refresh()
        steps = adopt(home.ledger.view, fact, base=view.fold.position, owner=home.owner)
        result = home.ledger.run(steps, check)
    home.ledger.adopt(result.view)
    if isinstance(result, Doubtful):
        raise OutcomeUnknown(
            f"the {action} {instant} may be taken over: {result.outcome.cause}", hint="try again"
        )
    return result.why if isinstance(result, Declined) else None


def _check_alone(writer: TableWriter, found: Instant) -> None:
    """Raise `Conflict` if the plan's own writer is at it, by Hudi's heartbeat."""
    home = writer.transactions
    held = home.store.get(heartbeat_key(found.requested))
    if held is None or not home.settings.guard:
        return
    pulse, now = pulse_of(found.requested, held), home.clock.now()
    if pulse.is_alive(now.wall_epoch_ms, otherwise_ms=home.life_ms):
        raise Conflict(
            f"the plan {found.requested} was not claimed: it is executed by another writer",
            hint="try again when that has ended, or its heartbeat is old",
        )


def _when_planned(writer: TableWriter, instant: str) -> dict[GroupId, FileSlice]:
    """Return the slices of the table as it was at the time of the plan."""
    void = frozenset(writer.transactions.ledger.fold.void)
    timeline = load_timeline(writer.store, writer.properties.timeline_folder)
    kept = timeline.without_completed(void)
    found = TableSnapshot(writer.store, writer.properties, kept, void).slices_until(instant)
    return {(piece.partition, piece.file_id): piece for piece in found}


def _fault(
    piece: PlannedSlice, action: Action, instant: str, now: FileSlice | None, then: FileSlice | None
) -> str | None:
    """Return why a file group is not to be rewritten as planned; None if it is.

    A compaction takes all log files that had completed when it was requested: those are hidden by
    its base file. The others replace, or come after, everything that is there.
    """
    if now is None:
        return "the file group is gone"
    if (now.base.name if now.base else "") != piece.base:
        return "its base file is another one by now"
    match action:
        case Action.COMPACTION:
            needed = {log.name for log in then.logs} if then is not None else set()
        case Action.LOG_COMPACTION:
            needed = {log.name for log in now.logs if log.instant < instant}
        case _:
            needed = {log.name for log in now.logs}
    return None if needed == piece.logs else "its log files are not those of the plan"
