"""A table's ledger as the page shows it: the newest entries at once, older ones bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tidelock.base.clock import Clock
from tidelock.ops.cli.ledger import entry_facts
from tidelock.ops.ui import sections
from tidelock.ops.ui.parts import Feed
from tidelock.store.contract import ObjectStore
from tidelock.txn.content import Inline
from tidelock.txn.entry import Commit, Entry, Plan, Rollback, Turn, Undo, entry_key
from tidelock.txn.reading import decoded
from tidelock.txn.view import View
from tidelock.txn.writers import meetings

ENTRIES_MAX: Final = 10_000
TAIL_SHOWN: Final = 200
CONFLICTS_SHOWN: Final = 200
_FIRST_ENTRIES: Final = 200


@dataclass(slots=True)
class LedgerTail:
    """The entries that were read. They never change, so none is read twice."""

    store: ObjectStore
    clock: Clock
    tail: Feed = field(default_factory=Feed)
    conflicts: Feed = field(default_factory=Feed)
    conflict_count: int = 0
    _kept: dict[int, Entry] = field(default_factory=dict)
    _read: bool = False
    _unread: int = 0
    """Entries up to this one have not been read."""
    _waiting: list[Entry] = field(default_factory=list)
    """Entries that were read and not told to the rows, the newest last."""
    _met: bool = True
    """Conflicts may be others than were told."""

    def grow(self, view: View, known: int) -> list[Entry]:
        """Take what was appended after position `known`; return what the rows are to be told."""
        grown = [entry for entry in view.tail if entry.position > known]
        if not self._read:
            self._read = True
            self._unread = view.position - len(grown)
            self._waiting, grown = grown[:-_FIRST_ENTRIES], grown[-_FIRST_ENTRIES:]
        for entry in grown:
            self._keep(entry)
        if len(self._kept) > ENTRIES_MAX:
            for position in sorted(self._kept)[:-ENTRIES_MAX]:
                del self._kept[position]
        return grown

    def fill(self, budget_ms: int, told: Callable[[Entry], None]) -> bool:
        """Go back in time, the newest first, for as long as the budget lasts."""
        end_ms = self.clock.now().monotonic_ms + budget_ms
        filled = False
        while self.clock.now().monotonic_ms < end_ms:
            entry = self._waiting.pop() if self._waiting else self._older()
            if entry is None:
                break
            told(entry)
            self._keep(entry)
            filled = True
        return filled

    def tell(self, version: int) -> Mapping[str, int]:
        """Bring tail and conflicts up to date; return how much is known."""
        for position in sorted(self._kept, reverse=True)[:TAIL_SHOWN]:
            key = (position, "")
            if key not in self.tail.items:
                self.tail.put(key, entry_facts(self._kept[position]), version)
        self.tail.trim(TAIL_SHOWN)
        if self._met:
            self._met = False
            met = meetings([entry for _, entry in sorted(self._kept.items())])
            self.conflict_count = len(met)
            for each in met[-CONFLICTS_SHOWN:]:
                self.conflicts.put((each.position, each.instant), sections.met(each), version)
            self.conflicts.trim(CONFLICTS_SHOWN)
        return {"entries": len(self._kept), "unread": self._unread + len(self._waiting)}

    def before(self, position: int, limit: int) -> list[dict[str, object]]:
        """Return the `limit` entries below a position, newest first, as far as they are kept."""
        known = sorted((p for p in self._kept if p < position), reverse=True)[:limit]
        return [entry_facts(self._kept[at]) for at in known]

    def about(self, requested: str) -> tuple[Entry, ...]:
        """Return the entries that speak of an instant."""
        return tuple(
            entry
            for _, entry in sorted(self._kept.items())
            if getattr(entry.fact, "instant", "") == requested
            or (isinstance(entry.fact, Plan | Undo) and entry.time == requested)
        )

    def _keep(self, entry: Entry) -> None:
        self._kept[entry.position] = _light(entry)
        match entry.fact:
            case Rollback() | Undo() | Turn():
                self._met = True
            case Commit(rebased=rebased):
                # One that comes late may tell who it was that overtook somebody.
                self._met |= rebased > 0 or self.conflict_count > 0
            case _:
                pass

    def _older(self) -> Entry | None:
        """Read one more entry; None when there is none, or enough of them."""
        if self._unread <= 0:
            return None
        position = self._unread
        found = self.store.get(entry_key(position))
        if found is None or len(self._kept) >= ENTRIES_MAX:
            self._unread = 0  # deleted behind the boundary, with everything below it
            return None
        self._unread = position - 1
        return decoded(found.body, position)


def _light(entry: Entry) -> Entry:
    """Return an entry without the bytes of its instant, which are many and seldom wanted."""
    match entry.fact:
        case Commit() | Plan() | Undo() as fact:
            return replace(entry, fact=replace(fact, content=Inline(b"")))
        case _:
            return entry
