"""Instants as the page shows them: from the timeline, and from what the ledger adds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from tidelock.base.errors import DataCorrupt
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import CommitMetadata, ReplaceCommitMetadata
from tidelock.txn.content import Inline
from tidelock.txn.entry import Claim, Commit, Entry, Foreign, Plan, Rollback, Undo

INSTANTS_MAX: Final = 10_000
"""Instants that a page shows; older ones are on the timeline all the same."""

GONE_MAX: Final = 2_000
"""Removed instants that are remembered for pages that have not heard of it yet."""

UNDONE: Final = "undone"


@dataclass(frozen=True, slots=True)
class InstantRow:
    """One action on the table: when, by whom, how far, and how much it wrote."""

    requested: str
    action: str
    state: str
    completion: str = ""
    owner: str = ""
    operation: str = ""
    rebased: int = 0
    position: int = 0
    foreign: bool = False
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None

    def cells(self) -> list[object]:
        """Return the row as the page takes it: in this order, without names."""
        return [
            self.requested,
            self.action,
            self.state,
            self.completion,
            self.owner,
            self.operation,
            self.rebased,
            self.position,
            self.foreign,
            self.rows,
            self.bytes,
            self.files,
        ]


@dataclass(slots=True)
class InstantRows:
    """All rows, each with the version at which it last changed."""

    version: int = 1
    rows: dict[str, InstantRow] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    gone: list[tuple[int, str]] = field(default_factory=list)
    forgotten: int = 0
    """Pages that know less than this version have to start over."""

    def put(self, row: InstantRow) -> None:
        """Enter a row, or change it."""
        if self.rows.get(row.requested) != row:
            self.rows[row.requested] = row
            self.changed[row.requested] = self.version

    def remove(self, requested: str) -> None:
        """Take a row away."""
        if self.rows.pop(requested, None) is not None:
            del self.changed[requested]
            self.gone.append((self.version, requested))
            if len(self.gone) > GONE_MAX:
                self.forgotten = self.gone[-GONE_MAX][0]
                del self.gone[:-GONE_MAX]

    def take(self, instant: Instant) -> None:
        """Take over what the timeline says of an instant."""
        known, state = self.rows.get(instant.requested), _STATES[instant.state]
        action, completion = instant.action.value, instant.completion
        if known is None:
            self.put(InstantRow(instant.requested, action, state, completion))
            return
        # A savepoint bears the request time of the commit that it keeps.
        if instant.action is Action.SAVEPOINT:
            return
        action = known.action if known.action in _PLANNED else action
        if (known.action, known.state, known.completion) != (action, state, completion):
            self.put(replace(known, action=action, state=state, completion=completion))

    def listed(self, instants: Iterable[Instant], *, since: str = "") -> None:
        """Take over the timeline from `since` on: what is not in `instants` is gone."""
        seen: set[str] = set()
        for instant in instants:
            seen.add(instant.requested)
            self.take(instant)
        for key in [k for k, row in self.rows.items() if k > since and k not in seen]:
            if self.rows[key].state != UNDONE:
                self.remove(key)
        for key in sorted(self.rows)[:-INSTANTS_MAX]:
            self.remove(key)

    def told(self, entry: Entry) -> None:
        """Take over what an entry of the ledger adds."""
        fact = entry.fact
        match fact:
            case Commit():
                self._committed(entry, fact)
            case Foreign(instant):
                if (row := self.rows.get(instant)) is not None:
                    self.put(replace(row, foreign=True, position=entry.position))
            case Plan(action):
                if (row := self.rows.get(entry.time)) is not None:
                    self.put(replace(row, action=action.value, owner=row.owner or entry.owner))
            case Claim(instant):
                row = self.rows.get(instant)
                if row is not None and not row.completion:
                    self.put(replace(row, owner=entry.owner))
            case Rollback(instant, reason, attempt=None, overtaken_by=others):
                self._undone(entry, instant, "overtaken" if others else reason)
            case Undo(instants=instants, reason=reason):
                for instant in instants:
                    self._undone(entry, instant, reason)
            case _:
                pass

    def _undone(self, entry: Entry, instant: str, reason: str) -> None:
        known = self.rows.get(instant) or InstantRow(instant, "", UNDONE)
        self.put(
            replace(
                known,
                state=UNDONE,
                completion=entry.time,
                owner=known.owner or entry.owner,
                operation=known.operation or reason[:80],
                position=entry.position,
            )
        )

    def _committed(self, entry: Entry, fact: Commit) -> None:
        row = self.rows.get(fact.instant)
        if row is None or fact.action is Action.SAVEPOINT:
            return
        rows, size, files = _numbers(fact)
        self.put(
            replace(
                row,
                owner=entry.owner,
                operation=fact.footprint.deed.value,
                rebased=fact.rebased,
                position=entry.position,
                rows=rows,
                bytes=size,
                files=files,
            )
        )

    def after(self, version: int) -> tuple[bool, list[list[object]], list[str]]:
        """Return whether a page must start over, the rows that changed, and those that are gone."""
        if version < self.forgotten or version > self.version or version == 0:
            return True, [row.cells() for _, row in sorted(self.rows.items())], []
        keys = sorted(key for key, at in self.changed.items() if at > version)
        gone = [key for at, key in self.gone if at > version and key not in self.rows]
        return False, [self.rows[key].cells() for key in keys], gone


_STATES: Final = {state: state.name.lower() for state in State}
_PLANNED: Final = frozenset(
    {Action.COMPACTION.value, Action.LOG_COMPACTION.value, Action.CLUSTERING.value}
)


def _numbers(fact: Commit) -> tuple[int | None, int | None, int | None]:
    """Return rows, bytes and files of a commit; None where the entry does not have them at hand."""
    if not isinstance(fact.content, Inline) or not fact.action.writes_data:
        return None, None, None
    replaces = fact.action is Action.REPLACE_COMMIT
    try:
        found = decode(
            ReplaceCommitMetadata if replaces else CommitMetadata,
            fact.content.data,
            where=fact.instant,
        )
    except DataCorrupt:
        return None, None, None
    stats = [stat for each in found.partition_to_write_stats.values() for stat in each]
    return (
        sum(stat.num_writes or 0 for stat in stats),
        sum(stat.total_write_bytes or 0 for stat in stats),
        len(stats),
    )
