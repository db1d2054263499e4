"""Whether the timeline has every commit of the ledger that it must have.

What is committed is put on the timeline, and stays there until it is archived or taken back. Where
a completed instant is lost, its rows are not seen, and nothing on the timeline tells: the ledger
does.
"""

from __future__ import annotations

from tidelock.base.errors import DataCorrupt
from tidelock.store.contract import ObjectStore
from tidelock.table.timeline.active import ActiveTimeline, load_timeline
from tidelock.table.timeline.archive import Archive
from tidelock.txn.fold import Fold
from tidelock.txn.ledger import Ledger
from tidelock.txn.reading import load


def check_published(
    store: ObjectStore, fold: Fold, timeline: ActiveTimeline, *, history: str
) -> ActiveTimeline:
    """Return the timeline, as it was loaded or anew, if it has all that `fold` says is complete.

    `fold` may be of before or after the timeline was loaded. Tables that others write without a
    ledger are not judged: they take commits back without a word.

    Raises: `DataCorrupt` naming a completed instant that is lost.
    """
    if fold.foreign or not _absent(fold, timeline):
        return timeline
    # Something completed, or was taken back or archived, between the two looks; or it is lost.
    view = Ledger(store, timeline_folder=timeline.folder).run(load())
    timeline = load_timeline(store, timeline.folder)
    lost = _absent(fold, timeline) & _absent(view.fold, timeline)
    lost -= {requested for requested, _ in Archive(store, history).holds(lost)} if lost else set()
    if lost:
        raise DataCorrupt(
            f"{store.uri}/{timeline.folder} has no completed instant {min(lost)}, which the ledger"
            " says is committed",
            hint="restore the file from a copy; `tidelock table validate` says what is missing",
        )
    return timeline


def _absent(fold: Fold, timeline: ActiveTimeline) -> set[str]:
    """Return what is complete by the ledger, and not by the timeline."""
    shown = {instant.requested for instant in timeline.files if instant.is_completed}
    return {
        instant
        for instant in fold.committed
        if instant not in shown and instant >= fold.archived and instant not in fold.void
    }
