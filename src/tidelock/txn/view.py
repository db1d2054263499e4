"""What one process knows of a ledger: the fold, the last entries, what is published. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from tidelock.txn.entry import Commit, Entry, Foreign, Undo
from tidelock.txn.fold import Fold
from tidelock.txn.footprint import Deed, Footprint
from tidelock.txn.rules import Past

TAIL_MAX: Final = 1_024
"""Entries kept for judging. A write that is overtaken by more starts over."""

_TRIMMED: Final = 128
"""Older ones are dropped so many at a time."""


@dataclass(frozen=True, slots=True)
class View:
    """The ledger as far as it was read.

    `tail` has the last entries up to the fold's position. Everything up to `published` is on the
    timeline. `checkpoint` is the version of the checkpoint last seen ("" for none),
    `checkpointed` the position it holds, `boundary` and `archived` what it names; `sealed` is the
    fold in it.
    """

    fold: Fold = field(default_factory=Fold)
    tail: tuple[Entry, ...] = ()
    published: int = 0
    checkpoint: str = ""
    checkpointed: int = 0
    boundary: int = 0
    archived: str = ""
    sealed: Fold | None = None
    planned: str = ""
    """The latest plan of somebody without a ledger that was found on the timeline (C102)."""

    @property
    def position(self) -> int:
        """The last entry that was read."""
        return self.fold.position

    def after(self, entry: Entry) -> View:
        """Return the view with one more entry."""
        published = max(self.published, entry.published)
        tail = (*self.tail, entry)
        if len(tail) > TAIL_MAX + _TRIMMED:
            tail = (
                tuple(e for e in tail if e.position > published)
                if (entry.position - published > TAIL_MAX)
                else tail[-TAIL_MAX:]
            )
        return replace(self, fold=self.fold.after(entry), tail=tail, published=published)

    def since(self, base: int) -> tuple[Entry, ...] | None:
        """Return the entries after `base`; None if they are not all known any more."""
        if base >= self.position:
            return ()
        missing = self.position - len(self.tail)
        return None if base < missing else self.tail[base - missing :]

    def unpublished(self) -> tuple[Entry, ...]:
        """Return the entries that may not be on the timeline yet."""
        found = self.since(self.published)
        assert found is not None, "what is not published is kept"
        return found

    def joined(self, other: View) -> View:
        """Return the later of two views of one ledger, with what either knows beside it."""
        newer, older = (self, other) if self.position >= other.position else (other, self)
        if older.planned > newer.planned:
            newer = replace(newer, planned=older.planned)
        if older.published > newer.published:
            newer = replace(newer, published=min(older.published, newer.position))
        if older.checkpointed > newer.checkpointed:
            newer = replace(
                newer,
                checkpoint=older.checkpoint,
                checkpointed=older.checkpointed,
                boundary=max(older.boundary, newer.boundary),
                archived=max(older.archived, newer.archived),
                sealed=older.sealed,
            )
        return newer


def past_of(entry: Entry) -> Past | None:
    """Return the commit that an entry states; None if it states none."""
    match entry.fact:
        case Commit() | Foreign() as fact:
            return Past(
                entry.position,
                fact.instant,
                entry.time,
                fact.footprint,
                fact.schema_id,
                entry.owner,
            )
        case Undo(complete=True):
            # Whoever has read what is taken back here must read the table again.
            return Past(
                entry.position, entry.time, entry.time, Footprint(Deed.RESTORE), owner=entry.owner
            )
        case _:
            return None
