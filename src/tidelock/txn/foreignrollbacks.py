"""Roll-backs that a writer without a ledger planned and did not finish (C88)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelock.base.errors import DataCorrupt
from tidelock.store.contract import StoredObject
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import OperationType, RollbackPlan
from tidelock.txn.committing import Judge, candidate_of, commit, store_content
from tidelock.txn.draft import CommitDraft
from tidelock.txn.effects import Delete, Get, Steps
from tidelock.txn.entry import Commit, Rollback
from tidelock.txn.fold import Evidence
from tidelock.txn.footprint import Deed, Footprint
from tidelock.txn.heartbeat import heartbeat_key
from tidelock.txn.undoing import decide, remove_undone
from tidelock.txn.undorecords import Undone, rollback_metadata

if TYPE_CHECKING:
    from tidelock.txn.transactions import Transactions


@dataclass(frozen=True, slots=True)
class ForeignRollback:
    """A roll-back on the timeline that has no entry; `target` is None if its plan is broken."""

    instant: Instant
    target: str | None


def foreign_rollbacks(
    home: Transactions, pending: Iterable[Instant]
) -> Steps[tuple[ForeignRollback, ...]]:
    """Return the pending roll-backs that the ledger does not know."""
    fold, folder = home.ledger.fold, home.ledger.publisher.folder
    found: list[ForeignRollback] = []
    for instant in pending:
        requested = instant.requested
        known = requested in fold.plans or fold.is_settled(requested)
        if instant.action is not Action.ROLLBACK or known:
            continue
        key = f"{folder}/{Instant(requested, Action.ROLLBACK, State.REQUESTED).file_name}"
        held: StoredObject | None = yield Get(key)
        target: str | None = None
        try:
            plan = decode(RollbackPlan, held.body, where=key) if held is not None else None
            said = None if plan is None else plan.instant_to_rollback
            target = None if said is None else said.commit_time
        except DataCorrupt:
            target = None
        found.append(ForeignRollback(instant, target))
    return tuple(found)


def finish_foreign(home: Transactions, rollback: ForeignRollback) -> Steps[Undone | None]:
    """Do what a roll-back of a dead writer was about to do; None if there is nothing to undo.

    One whose plan cannot be read is taken off the timeline: what it was for is found without it.
    What has completed is left to whoever planned to take it back.
    """
    ledger = home.ledger
    requested = rollback.instant.requested
    if rollback.target is None:
        for state in (State.INFLIGHT, State.REQUESTED):
            name = Instant(requested, Action.ROLLBACK, state).file_name
            yield Delete(f"{ledger.publisher.folder}/{name}")
        yield Delete(heartbeat_key(requested))
        return None
    view = yield from ledger.view_steps()
    fact = Rollback(rollback.target, "planned by a writer that is dead")
    result = yield from decide(view, fact, seen=Evidence(), owner=home.owner)
    ledger.adopt(result.view)
    if rollback.target not in ledger.fold.void:
        return None
    folder = ledger.publisher.folder
    undone = yield from remove_undone(rollback.target, folder=folder, marked=False)
    yield from _complete(home, requested, undone)
    return undone


def _complete(home: Transactions, requested: str, undone: Undone) -> Steps[None]:
    ledger = home.ledger
    record = rollback_metadata(requested, (undone,), took_ms=0, base=home.store.uri)
    content = yield from store_content(requested, record)
    base = ledger.fold.position
    footprint = Footprint(Deed.ROLLBACK)
    fact = Commit(requested, Action.ROLLBACK, 0, footprint, content, base=base)
    draft = CommitDraft(record, OperationType.UNKNOWN, deed=Deed.ROLLBACK)
    judge = Judge(candidate_of(requested, draft, base_schema="", owner=home.owner), base)
    # Declined, somebody else has completed it; in doubt, it is found again.
    result = yield from commit(ledger.view, judge, fact, owner=home.owner)
    ledger.adopt(result.view)
    yield from ledger.publish_steps()
    yield Delete(heartbeat_key(requested))
