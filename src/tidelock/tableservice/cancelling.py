"""Freeing a pending plan by hand: it is rolled back, unless it can and should be executed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelock.base.errors import Conflict, DataCorrupt, NotFound
from tidelock.operation.writer import TableWriter
from tidelock.table.timeline.active import ActiveTimeline, load_timeline
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import CleanerPlan
from tidelock.txn.fold import Evidence
from tidelock.txn.recovery import survey
from tidelock.txn.rollbacks import Intent, finish_undo, remove_plan, scheduled_undo
from tidelock.txn.undorecords import rollback_plan


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A plan that is gone, and what was wrong with it; "" if it could have been executed."""

    instant: str
    action: str
    fault: str = ""


def cancel(writer: TableWriter, instant: str, *, force: bool = False) -> Cancelled:
    """Roll back a pending plan, and remove what attempts at it left.

    Removable plans go. Plans that stay go only if they cannot be executed, or with `force`. What
    is being executed never does. Raises: `NotFound` if it is not pending, `Conflict`.
    """
    home = writer.transactions
    home.ledger.refresh()
    timeline = load_timeline(writer.store, writer.properties.timeline_folder)
    plan = home.ledger.fold.plans.get(instant)
    found = next((i for i in timeline.pending() if i.requested == instant), None)
    action = plan.action if plan is not None else found.action if found is not None else None
    if action is None:
        raise NotFound(
            f"{writer.store.uri} has no pending plan {instant}",
            hint="`tidelock services TABLE` shows them",
        )
    if action in (Action.ROLLBACK, Action.RESTORE):
        raise Conflict(
            f"the {action} {instant} is decided and cannot be cancelled",
            hint=f"finish it: `tidelock {action} TABLE execute`",
        )
    fault = next(_faults(timeline, Instant(instant, action, State.REQUESTED)), "")
    removable = action in _REMOVABLE if plan is None else plan.removable
    if not (removable or fault or force):
        raise Conflict(
            f"the {action} {instant} can be executed, so it stays",
            hint=f"execute it, or remove it all the same with --force; {_COSTS.get(action, '')}",
        )
    if plan is not None:
        problem = home.ledger.run(remove_plan(home, instant, delay_ms=0, forced=not removable))
        if problem is not None:
            raise Conflict(f"the {action} {instant} was not cancelled: {problem}", hint=_LATER)
    else:
        _remove_foreign(writer, instant, action)
    return Cancelled(instant, action.value, fault)


_REMOVABLE = (Action.CLUSTERING, Action.LOG_COMPACTION)
_LATER = "an executor that is alive has to end first, or its heartbeat to expire"
_COSTS = {
    Action.COMPACTION: "the log files stay until another compaction",
    Action.CLEAN: "the files that it lists stay until another clean",
}


def _remove_foreign(writer: TableWriter, instant: str, action: Action) -> None:
    """Roll back a plan that the ledger does not know: that of a writer that keeps none."""
    home = writer.transactions
    seen = home.ledger.run(survey(home.ledger.publisher.folder))
    begun = [i for i in seen.pending if i.requested == instant and i.state is State.INFLIGHT]
    # C101: who has begun it may be alive though its heart does not beat.
    alive = seen.is_alive(instant, otherwise_ms=home.life_ms) or any(
        seen.is_fresh(each, home.life_ms) for each in begun if instant not in seen.pulses
    )
    intent = Intent(
        Action.ROLLBACK,
        (instant,),
        rollback_plan(instant, action.value, (), base=writer.store.uri),
        home.ledger.fold.position,
        forced=True,
        reason="cancelled",
    )
    evidence = Evidence(alive=frozenset({instant}) if alive else frozenset())
    with home.changing() as check:
        plan = home.ledger.run(scheduled_undo(home, intent, seen=evidence), check)
    home.ledger.run(finish_undo(home, plan))


def _faults(timeline: ActiveTimeline, requested: Instant) -> Iterator[str]:
    """Yield what keeps a plan from being executed."""
    key = timeline.key(requested)
    head = timeline.store.head(key)
    if head is None:
        yield f"{key} is missing"
        return
    if not head.size_bytes:
        yield f"{key} is empty"
        return
    try:
        files = tuple(_files(timeline, requested))
    except DataCorrupt as error:
        yield error.message
        return
    for file in files:
        if timeline.store.head(file) is None:
            yield f"{file}, which it reads, is missing"


def _files(timeline: ActiveTimeline, requested: Instant) -> Iterator[str]:
    """Yield the files that a plan reads. What a clean lists may be gone; that is its purpose."""
    match requested.action:
        case Action.COMPACTION | Action.LOG_COMPACTION:
            for operation in timeline.compaction_plan(requested).operations or ():
                names = (operation.data_file_path, *(operation.delta_file_paths or ()))
                yield from _keys(operation.partition_path, names)
        case Action.CLUSTERING:
            plan = timeline.replace_request(requested).clustering_plan
            for cluster in (plan.input_groups if plan else None) or ():
                for piece in cluster.slices or ():
                    names = (piece.data_file_path, *(piece.delta_file_paths or ()))
                    yield from _keys(piece.partition_path, names)
        case Action.CLEAN:
            timeline.read(CleanerPlan, requested)
        case _:
            return


def _keys(partition: str | None, names: tuple[str | None, ...]) -> Iterator[str]:
    for name in names:
        if name:
            yield "/".join(filter(None, (partition, name.rpartition("/")[2])))
