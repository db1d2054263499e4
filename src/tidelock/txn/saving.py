"""Savepoints: entries of the ledger like commits, so that a clean cannot pass them by (C89-C91)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelock.base.errors import Conflict, OutcomeUnknown
from tidelock.store.contract import ObjectMeta
from tidelock.table.timeline.instant import Action, Instant, State, parse_instant
from tidelock.table.timeline.metadata import OperationType, SavepointMetadata
from tidelock.txn.appending import Appended, Declined, Doubtful, No, append
from tidelock.txn.committing import Judge, candidate_of, commit, store_content
from tidelock.txn.draft import CommitDraft
from tidelock.txn.effects import Delete, List, Steps
from tidelock.txn.entry import Commit, Fact, Release
from tidelock.txn.fold import lawful
from tidelock.txn.footprint import Deed, Footprint
from tidelock.txn.publishing import put_settled
from tidelock.txn.rollbacks import seal

if TYPE_CHECKING:
    from tidelock.txn.transactions import Transactions
    from tidelock.txn.view import View


def save(home: Transactions, instant: str, record: SavepointMetadata, *, base: int) -> Steps[str]:
    """Keep a commit, of which `record` was made at position `base`; return when that was decided.

    Raises: `Conflict` if it is kept already, or a clean or restore came between, `OutcomeUnknown`.
    """
    ledger, folder = home.ledger, home.ledger.publisher.folder
    inflight = Instant(instant, Action.SAVEPOINT, State.INFLIGHT)
    content = yield from store_content(instant, record)
    draft = CommitDraft(record, OperationType.UNKNOWN, deed=Deed.SAVEPOINT)
    footprint = Footprint(Deed.SAVEPOINT)
    fact = Commit(instant, Action.SAVEPOINT, 0, footprint, content, base=base)
    judge = Judge(candidate_of(instant, draft, base_schema="", owner=home.owner), base)
    yield from put_settled(f"{folder}/{inflight.file_name}", b"")
    view = yield from ledger.view_steps()
    result = yield from commit(view, judge, fact, owner=home.owner)
    ledger.adopt(result.view)
    match result:
        case Appended(entry=entry):
            yield from ledger.publish_steps(own=entry.position)
            return entry.time
        case Doubtful(outcome=outcome):
            raise OutcomeUnknown(
                f"the savepoint of {instant} may have been made: {outcome.cause}",
                hint="list the savepoints before making it again",
            )
        case Declined(why=why):
            if instant not in result.view.fold.savepoints:
                yield Delete(f"{folder}/{inflight.file_name}")
            raise Conflict(f"no savepoint of {instant} was made: {why.reason}", hint="try again")


def release(home: Transactions, instant: str) -> Steps[None]:
    """Give a savepoint up, and take its files off the timeline.

    One that a Java writer made has no entry; its files are all there is of it.
    """
    ledger, folder = home.ledger, home.ledger.publisher.folder
    fact = Release(instant)

    def propose(now: View) -> Fact | No[str]:
        problem = lawful(fact, now.fold)
        return fact if problem is None else No(problem)

    view = yield from ledger.view_steps()
    result = yield from append(view, propose, owner=home.owner)
    ledger.adopt(result.view)
    if isinstance(result, Doubtful):
        raise OutcomeUnknown(f"the savepoint of {instant} may be given up: {result.outcome.cause}")
    until = "~"
    if isinstance(result, Appended):
        until = result.entry.time
        # C86: a slow publisher must learn of this before it could put the file back.
        yield from seal(home, result.entry.position)
    elif instant in result.view.fold.savepoints:
        return
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/{instant}")
    for meta in listed:
        found = parse_instant(meta.key.removeprefix(f"{folder}/"))
        if found is None or (found.requested, found.action) != (instant, Action.SAVEPOINT):
            continue
        # A savepoint of the same commit that was made since is another one.
        if found.completion < until:
            yield Delete(meta.key)
