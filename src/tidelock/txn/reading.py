"""Reading the ledger: from the checkpoint on, or from where one was (C24-C27)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidelock.base.errors import DataCorrupt
from tidelock.store.contract import ObjectMeta, StoredObject
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.effects import Get, Head, List, Steps
from tidelock.txn.entry import LEDGER_FOLDER, Entry, decode, entry_key, position_of
from tidelock.txn.view import View

_LOADS_MAX: Final = 8


def load() -> Steps[View]:
    """Read the ledger from the newest checkpoint on.

    Entries may be deleted behind a boundary while they are being read; then it starts over.
    Raises: `DataCorrupt` if an entry is missing for good.
    """
    missing = 0
    for _ in range(_LOADS_MAX):
        found: StoredObject | None = yield Get(CHECKPOINT_KEY)
        view = View() if found is None else _from_checkpoint(found)
        listed: tuple[ObjectMeta, ...] = yield List(
            f"{LEDGER_FOLDER}/", start_after=entry_key(view.position)
        )
        positions = [place for meta in listed if (place := position_of(meta.key)) is not None]
        for position in positions:
            entry = yield from _next_entry(view)
            if entry is None:
                missing = position
                break
            view = view.after(entry)
        else:
            return view
    raise DataCorrupt(
        f"the ledger is broken below {entry_key(missing)}",
        hint="restore its entries from a copy: what was decided there is written nowhere else",
    )


def forward(view: View) -> Steps[View]:
    """Read what was appended since."""
    before = view.position
    view = yield from catch_up(view)
    # C27: no next entry is the end of the ledger, or a hole that a boundary left; and what was
    # found there may have been written behind the boundary.
    view = yield from look_at_checkpoint(view)
    behind = 0 < view.position <= view.boundary
    return (yield from load()) if behind or view.boundary > before else view


def catch_up(view: View) -> Steps[View]:
    """Read entry after entry, up to one that is not there or does not belong."""
    while entry := (yield from _next_entry(view)):
        view = view.after(entry)
    return view


def history(view: View, base: int) -> Steps[tuple[Entry, ...] | None]:
    """Return the entries after `base`, from the store where memory does not reach back that far.

    None if some of them were deleted behind the boundary.
    """
    known = view.since(base)
    if known is not None:
        return known
    older: list[Entry] = []
    for position in range(base + 1, view.position - len(view.tail) + 1):
        found: StoredObject | None = yield Get(entry_key(position))
        if found is None or position <= view.boundary:
            return None
        older.append(decoded(found.body, position))
    return (*older, *view.tail)


def look_at_checkpoint(view: View) -> Steps[View]:
    """Return the view with the boundary as it is now."""
    head: ObjectMeta | None = yield Head(CHECKPOINT_KEY)
    if head is None or head.version == view.checkpoint:
        return view
    found: StoredObject | None = yield Get(CHECKPOINT_KEY)
    if found is None:
        return view
    seen = _from_checkpoint(found)
    return replace(
        view,
        checkpoint=seen.checkpoint,
        checkpointed=seen.checkpointed,
        boundary=max(view.boundary, seen.boundary),
        archived=max(view.archived, seen.archived),
        published=max(view.published, min(seen.published, view.position)),
        sealed=seen.fold,
    )


def decoded(body: bytes, position: int) -> Entry:
    """Return the entry in `body`, which must be the one at `position`."""
    entry = decode(body, where=entry_key(position))
    if entry.position != position:
        raise DataCorrupt(f"{entry_key(position)} holds entry {entry.position}")
    return entry


def _next_entry(view: View) -> Steps[Entry | None]:
    position = view.position + 1
    found: StoredObject | None = yield Get(entry_key(position))
    if found is None:
        return None
    entry = decoded(found.body, position)
    # C6: an entry that does not name the one before was written on another history.
    return entry if view.fold.precedes(entry) else None


def _from_checkpoint(found: StoredObject) -> View:
    fold = checkpoints.decode(found.body, where=CHECKPOINT_KEY).fold
    return View(
        fold=fold,
        published=fold.position,
        checkpoint=found.version,
        checkpointed=fold.position,
        boundary=fold.boundary,
        archived=fold.archived,
        sealed=fold,
    )
