"""Whether the timeline has every commit of the ledger that it must have.

What is committed is put on the timeline, and stays there until it is archived or taken back. Where
a completed instant is lost, its rows are not seen, and nothing on the timeline tells: the ledger
does.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelock.base.errors import DataCorrupt
from tidelock.store.contract import ObjectStore
from tidelock.table.timeline.active import ActiveTimeline, load_timeline
from tidelock.table.timeline.archive import Archive
from tidelock.table.timeline.instant import State
from tidelock.txn.entry import Commit
from tidelock.txn.fold import Fold
from tidelock.txn.heartbeat import HEARTBEAT_FOLDER
from tidelock.txn.ledger import Ledger
from tidelock.txn.reading import load
from tidelock.txn.view import View


def check_published(
    store: ObjectStore,
    fold: Fold,
    timeline: ActiveTimeline,
    *,
    history: str,
    unfinished: Collection[str] = (),
) -> ActiveTimeline:
    """Return the timeline, as it was loaded or anew, if it has all that the ledger says it must.

    `fold` is one that was published to its end, of before or after the timeline was loaded. What
    was committed since is in entries, which are read only if one of the `unfinished` writes has no
    heartbeat: a write that is at work has one, and one that is complete has none. Tables that
    others write without a ledger are not judged: they take commits back without a word.

    Raises: `DataCorrupt` naming a completed instant that is lost.
    """
    if fold.foreign:
        return timeline
    silent = _silent(store, unfinished)
    if silent:
        # Most of them have completed since.
        timeline = load_timeline(store, timeline.folder)
        silent &= unfinished_writes(timeline)
    if not silent and not _absent(fold, timeline):
        return timeline
    # Something completed, or was taken back or archived, between the two looks; or it is lost.
    ledger = Ledger(store, timeline_folder=timeline.folder)
    known = ledger.run(load())
    timeline = load_timeline(store, timeline.folder)
    if known.fold.foreign:
        return timeline
    lost = _due(fold, known, timeline) & _absent(known.fold, timeline)
    if lost:
        lost &= _absent(ledger.run(load()).fold, timeline)
        lost -= {requested for requested, _ in Archive(store, history).holds(lost)}
    if lost:
        raise DataCorrupt(
            f"{store.uri}/{timeline.folder} has no completed instant {min(lost)}, which the ledger"
            " says is committed",
            hint="restore the file from a copy; `tidelock table validate` says what is missing",
        )
    return timeline


def unfinished_writes(timeline: ActiveTimeline, last: ActiveTimeline | None = None) -> set[str]:
    """Return the writes in flight that began before the last completion on the timeline.

    With `last`, the timeline at an earlier look, only those that were on it: most writes end
    between two looks, and to ask for their heartbeats costs a request.
    """
    until = timeline.latest_completion
    found = {
        instant.requested
        for instant in timeline.pending()
        if instant.state is State.INFLIGHT
        and instant.action.writes_data
        and instant.requested < until
    }
    return found if last is None else found & {instant.requested for instant in last.instants}


def _silent(store: ObjectStore, unfinished: Collection[str]) -> set[str]:
    """Return which of these instants have no heartbeat."""
    prefix = f"{HEARTBEAT_FOLDER}/"
    listed = store.list(prefix) if unfinished else ()
    return set(unfinished) - {meta.key.removeprefix(prefix) for meta in listed}


def _due(fold: Fold, known: View, timeline: ActiveTimeline) -> set[str]:
    """Return what must be on a timeline that was loaded after `known`, or has been.

    C29: commits are put there in the order of the ledger, so what completed before the last one
    that is there. Those after it may not have been put there yet.
    """
    until = timeline.latest_completion
    entries = [entry for entry in known.tail if entry.time <= until]
    return {
        *fold.committed,
        *(entry.fact.instant for entry in entries if isinstance(entry.fact, Commit)),
    }


def _absent(fold: Fold, timeline: ActiveTimeline) -> set[str]:
    """Return what is complete by the ledger, and not by the timeline."""
    shown = {instant.requested for instant in timeline.files if instant.is_completed}
    return {
        instant
        for instant in fold.committed
        if instant not in shown and instant >= fold.archived and instant not in fold.void
    }
