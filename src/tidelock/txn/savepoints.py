"""Savepoints as ledger entries, so that a clean cannot miss them (C89-C91)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelock.core.errors import Conflict, OutcomeUnknown
from tidelock.hudi.timeline.instant import Action, Instant, InstantState, parse_instant
from tidelock.hudi.timeline.metadata import SavepointMetadata
from tidelock.storage.contract import ObjectMeta
from tidelock.txn.commit import ConflictChecker, commit, store_content
from tidelock.txn.conflicts import PendingTxn
from tidelock.txn.effects import Delete, List, Steps
from tidelock.txn.entries import Commit, ReleaseSavepoint
from tidelock.txn.footprint import CommitKind, Footprint
from tidelock.txn.ledger_io import Appended, Declined, Undetermined, put_idempotent
from tidelock.txn.plans import checkpoint_through
from tidelock.txn.rollback import decide

if TYPE_CHECKING:
    from tidelock.txn.transaction_manager import TransactionManager


def save(
    txns: TransactionManager, instant: str, record: SavepointMetadata, *, base: int
) -> Steps[str]:
    """Create a savepoint with the metadata `record`, made at position `base`; return its time.

    Raises: `Conflict` if there is one already, or after a concurrent clean or restore,
    `OutcomeUnknown`.
    """
    ledger, folder = txns.ledger, txns.ledger.publisher.folder
    inflight = Instant(instant, Action.SAVEPOINT, InstantState.INFLIGHT)
    content = yield from store_content(instant, record)
    footprint = Footprint(CommitKind.SAVEPOINT)
    fact = Commit(instant, Action.SAVEPOINT, 0, footprint, content, base=base)
    checker = ConflictChecker(PendingTxn(instant, footprint, owner=txns.owner), base)
    yield from put_idempotent(f"{folder}/{inflight.file_name}", b"")
    view = yield from ledger.view_steps()
    result = yield from commit(view, checker, fact, owner=txns.owner)
    ledger.advance(result.view)
    match result:
        case Appended(entry=entry):
            yield from ledger.publish_steps(own=entry.position)
            return entry.time
        case Undetermined(outcome=outcome):
            raise OutcomeUnknown(
                f"the savepoint of {instant} may have been created: {outcome.cause}",
                hint="list the savepoints before creating it again",
            )
        case Declined(reason=conflict):
            if instant not in result.view.state.savepoints:
                yield Delete(f"{folder}/{inflight.file_name}")
            raise Conflict(
                f"the savepoint of {instant} was not created: {conflict.reason}", hint="try again"
            )


def release(txns: TransactionManager, instant: str) -> Steps[None]:
    """Release a savepoint and delete its files on the timeline.

    A Java savepoint has no entry; only its files are deleted.
    """
    ledger, folder = txns.ledger, txns.ledger.publisher.folder
    view = yield from ledger.view_steps()
    result = yield from decide(view, ReleaseSavepoint(instant), owner=txns.owner)
    ledger.advance(result.view)
    if isinstance(result, Undetermined):
        raise OutcomeUnknown(
            f"the savepoint of {instant} may have been released: {result.outcome.cause}",
            hint="list savepoints with `tidelock savepoint URI list`",
        )
    until = "~"
    if isinstance(result, Appended):
        until = result.entry.time
        # C86: a slow publisher must learn of the release before it could restore the file.
        yield from checkpoint_through(txns, result.entry.position)
    elif instant in result.view.state.savepoints:
        return
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/{instant}")
    for meta in listed:
        found = parse_instant(meta.key.removeprefix(f"{folder}/"))
        if found is None or (found.requested, found.action) != (instant, Action.SAVEPOINT):
            continue
        # A newer savepoint of the same commit is kept.
        if found.completion < until:
            yield Delete(meta.key)
