"""What attempts that are over wrote after their instant was decided, found by its marker (C98).

Whoever slept may wake, announce a file and write it, and die before it hears that it is over. Its
marker stays, and tells a clean what to look for, without a listing of the table.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from tidelock.store.contract import ObjectMeta, StoredObject
from tidelock.table.markers import TEMP_FOLDER, marker_folder
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action, parse_instant
from tidelock.table.timeline.metadata import CommitMetadata, ReplaceCommitMetadata
from tidelock.txn.effects import Delete, Get, List, Steps
from tidelock.txn.undoing import attempt_of, marked_files

if TYPE_CHECKING:
    from tidelock.txn.transactions import Transactions

_NOTHING: Final[frozenset[str]] = frozenset()


def sweep_marked(home: Transactions, *, alive: Container[str]) -> Steps[tuple[str, ...]]:
    """Delete data files that have a marker, of instants that are decided and do not name them.

    What is `alive` is left alone; so are instants that are archived, whose files the archive
    sweeps. Where others write the table, too, a file goes only if it is of another attempt than
    those that were committed (C94). Returns the files.
    """
    fold = home.ledger.fold
    listed: tuple[ObjectMeta, ...] = yield List(f"{TEMP_FOLDER}/")
    begun = {meta.key.removeprefix(f"{TEMP_FOLDER}/").partition("/")[0] for meta in listed}
    gone: list[str] = []
    for instant in sorted(begun):
        if not fold.is_settled(instant) or instant in alive:
            continue
        named = _NOTHING if instant in fold.void else (yield from _named(home, instant))
        if named is None:
            continue
        counted = {attempt_of(path) for path in named} if fold.foreign else set()
        marked = yield from marked_files(instant)
        late = [key for key in sorted(marked - named) if attempt_of(key) not in counted]
        gone += late
        for key in late:
            yield Delete(key)
        folder = marker_folder(instant)
        for meta in listed:
            if meta.key.startswith(folder):
                yield Delete(meta.key)
    return tuple(gone)


def _named(home: Transactions, instant: str) -> Steps[frozenset[str] | None]:
    """Return the files that a completed write names; None if the timeline does not have it."""
    folder = home.ledger.publisher.folder
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/{instant}_")
    for meta in listed:
        found = parse_instant(meta.key.removeprefix(f"{folder}/"))
        if found is None or not found.action.writes_data:
            continue
        replaces = found.action is Action.REPLACE_COMMIT
        held: StoredObject | None = yield Get(meta.key)
        kind = ReplaceCommitMetadata if replaces else CommitMetadata
        return None if held is None else decode(kind, held.body, where=meta.key).paths
    return None
