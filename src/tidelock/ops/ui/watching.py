"""Following a table: what is new since the last look, read without changing anything.

A look costs a few requests whatever the table's age: the ledger is read on from where it was, the
timeline follows from that and from the heartbeats, and the past is filled in a little with every
look, the newest first.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidelock.base.clock import Clock
from tidelock.base.errors import TidelockError
from tidelock.base.ids import IdSource, SystemIds
from tidelock.ops.ui import sections
from tidelock.ops.ui.ledgers import LedgerTail
from tidelock.ops.ui.locks import LockWatch
from tidelock.ops.ui.parts import Section
from tidelock.ops.ui.rows import InstantRows
from tidelock.store.contract import ObjectStore
from tidelock.table.properties import TableProperties, TableType
from tidelock.table.properties_file import load_properties
from tidelock.table.timeline.active import at_one_moment, instants_in
from tidelock.table.timeline.instant import Action, Instant, State, furthest
from tidelock.tableservice.overview import services_of
from tidelock.txn.effects import World
from tidelock.txn.entry import (
    Commit,
    Entry,
    Foreign,
    Plan,
    Rollback,
    Undo,
)
from tidelock.txn.heartbeat import HEARTBEAT_FOLDER, Pulse, pulse_of
from tidelock.txn.reading import forward, load
from tidelock.txn.recovery import WRITES, Survey
from tidelock.txn.view import View
from tidelock.txn.writers import Writer, writer_of

LOOK_EVERY_MS: Final = 500
"""Several pages share one look; a look younger than this is good enough."""

WRITERS_MAX: Final = 200
_FIRST_FILL_MS: Final = 50
_FILL_MS: Final = 25
_LIST_EVERY_MS: Final = 5_000
_RELIST_MS: Final = 60_000
_BEGUN: Final = (
    Action.COMMIT,
    Action.DELTA_COMMIT,
    Action.REPLACE_COMMIT,
    Action.COMPACTION,
    Action.CLUSTERING,
    Action.LOG_COMPACTION,
    Action.CLEAN,
    Action.ROLLBACK,
    Action.RESTORE,
)
_JAVA_LIFE_MS: Final = 600_000


@dataclass(slots=True)
class TableWatch:
    """What is known of one table. May be used by several threads."""

    store: ObjectStore
    clock: Clock
    ids: IdSource = field(default_factory=SystemIds)
    settings: Mapping[str, object] = field(default_factory=dict)
    rows: InstantRows = field(default_factory=InstantRows)
    sections: dict[str, Section] = field(default_factory=dict)
    problem: str = ""
    looked_ms: int | None = None
    _properties: TableProperties | None = None
    _lock: LockWatch | None = None
    _view: View | None = None
    _ledger: LedgerTail | None = None
    _instants: dict[str, Instant] = field(default_factory=dict)
    _archived: str = ""
    _listed_ms: int = 0
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def properties(self) -> TableProperties:
        """The table's properties. Raises: what reading them raises."""
        if self._properties is None:
            self._properties = load_properties(self.store)
        return self._properties

    def look(self) -> None:
        """Read what is new, unless somebody just has. A store that fails is told on the page."""
        with self._mutex:
            now = self.clock.now()
            if self.looked_ms is not None and now.monotonic_ms - self.looked_ms < LOOK_EVERY_MS:
                return
            self.rows.version += 1
            try:
                self._look()
                self.problem = ""
            except TidelockError as error:
                self.problem = str(error)
            self._put("problem", self.problem)
            self.looked_ms = self.clock.now().monotonic_ms

    def page(self, after: int) -> dict[str, object] | None:
        """Return what a page that knows version `after` does not know; None if that is nothing."""
        with self._mutex:
            full, changed, gone = self.rows.after(after)
            known = 0 if full else after
            fresh = {
                name: section.value
                for name, section in self.sections.items()
                if full or section.version > after
            }
            if (entries := self.ledger.tail.after(known)) or full:
                fresh["entries"] = entries
            if (conflicts := self.ledger.conflicts.after(known)) or full:
                count = self.ledger.conflict_count
                fresh["conflicts"] = {"count": count, "shown": conflicts}
            if not (full or changed or gone or fresh):
                return None
            return {
                "version": self.rows.version,
                "now": self.clock.now().wall_epoch_ms,
                "full": full,
                "instants": changed,
                "gone": gone,
                **fresh,
            }

    def entries_before(self, position: int, limit: int) -> list[dict[str, object]]:
        """Return the `limit` entries below a position, newest first, as far as they are kept."""
        with self._mutex:
            return self.ledger.before(position, limit)

    def story(self, requested: str) -> tuple[Instant | None, tuple[Entry, ...]]:
        """Return an instant of the timeline, and the entries that speak of it."""
        with self._mutex:
            return self._instants.get(requested), self.ledger.about(requested)

    def conflicts(self) -> list[Mapping[str, Any]]:
        """Return who was overtaken lately, the last first."""
        with self._mutex:
            return self.ledger.conflicts.after(0)

    @property
    def ledger(self) -> LedgerTail:
        """What was read of the ledger."""
        if self._ledger is None:
            self._ledger = LedgerTail(self.store, self.clock)
        return self._ledger

    @property
    def position(self) -> int:
        """The last entry of the ledger that was read."""
        return 0 if self._view is None else self._view.position

    def _put(self, name: str, value: object) -> None:
        self.sections.setdefault(name, Section()).put(value, self.rows.version)

    def _look(self) -> None:
        properties, first = self.properties, self._view is None
        grown = self._read_ledger()
        for entry in grown:
            # Before the timeline is listed, where nothing of such a write is left.
            if isinstance(entry.fact, Rollback | Undo):
                self.rows.told(entry)
        pulses = self._pulses()
        assert self._view is not None
        fold = self._view.fold
        idle_ms = self.clock.now().monotonic_ms - self._listed_ms
        java = fold.foreign or not fold.position
        every_ms = _LIST_EVERY_MS if java else _RELIST_MS
        if first or fold.archived != self._archived or idle_ms > every_ms:
            self._list_timeline(properties.timeline_folder)
        else:
            self._follow(grown, pulses, properties)
        for entry in grown:
            self.rows.told(entry)
        filled = self.ledger.fill(_FIRST_FILL_MS if first else _FILL_MS, self.rows.told)
        pending = tuple(sorted(i for i in self._instants.values() if not i.is_completed))
        seen = Survey(pending, pulses, self.clock.now().wall_epoch_ms)
        writers = [
            writer_of(
                self.store,
                instant,
                seen.pulses.get(instant.requested),
                seen.now_epoch_ms,
                _JAVA_LIFE_MS,
            )
            for instant in seen.pending[-WRITERS_MAX:]
            # A plan that nobody is at has no writer.
            if instant.action in WRITES or instant.requested in pulses
        ]
        self._tell(properties, seen, writers)
        if grown or filled or first:
            self._put("history", self.ledger.tell(self.rows.version))

    def _tell(self, properties: TableProperties, seen: Survey, writers: list[Writer]) -> None:
        assert self._view is not None
        fold = self._view.fold
        plans = services_of(fold.plans, seen, otherwise_ms=_JAVA_LIFE_MS)
        self._name_writers(writers)
        self._put("table", sections.table(self.store.uri, properties, fold))
        self._put("writers", [sections.writer(each, seen.pulses) for each in writers])
        self._put("services", [sections.service(each, seen.pulses, writers) for each in plans])
        self._put("turns", [sections.turn(each) for each in fold.turns])
        if self._lock is None:
            self._lock = LockWatch(self.store, self.clock, self.settings)
        self._put("lock", self._lock.look())

    def _name_writers(self, writers: list[Writer]) -> None:
        """Rows of running writes know from their heartbeats who writes what."""
        for writer in writers:
            row = self.rows.rows.get(writer.instant)
            if row is not None and writer.owner:
                told = replace(row, owner=writer.owner, operation=writer.operation or row.operation)
                self.rows.put(told)

    def _read_ledger(self) -> list[Entry]:
        """Read what was appended, and return it."""
        world = World(self.store, self.clock, self.ids)
        before = self._view
        self._view = world.perform(load() if before is None else forward(before))
        return self.ledger.grow(self._view, 0 if before is None else before.position)

    def _follow(
        self, grown: list[Entry], pulses: Mapping[str, Pulse], properties: TableProperties
    ) -> None:
        """Move the timeline on without listing it: it is what the ledger and heartbeats say.

        Only Java's writers do without both, so now and then it is listed all the same.
        """
        for entry in grown:
            match entry.fact:
                case Commit(instant, action) if action is not Action.SAVEPOINT:
                    self._put_instant(Instant(instant, action, State.COMPLETED, entry.time))
                case Foreign(instant, action, completion):
                    self._put_instant(Instant(instant, action, State.COMPLETED, completion))
                case Plan(action):
                    self._put_instant(Instant(entry.time, action, State.REQUESTED))
                case Undo(action, instants):
                    self._put_instant(Instant(entry.time, action, State.REQUESTED))
                    for instant in instants:
                        self._instants.pop(instant, None)
                case Rollback(instant, attempt=None):
                    self._instants.pop(instant, None)
                case _:
                    pass
        for requested in pulses:
            known = self._instants.get(requested)
            if known is None or known.state is State.REQUESTED:
                self._look_for(requested, properties)

    def _put_instant(self, instant: Instant) -> None:
        self._instants[instant.requested] = instant
        self.rows.take(instant)

    def _look_for(self, requested: str, properties: TableProperties) -> None:
        """Find the instant of a heartbeat, the likeliest action first."""
        usual = Action.COMMIT if properties.type is TableType.COPY_ON_WRITE else Action.DELTA_COMMIT
        for action in dict.fromkeys((usual, *_BEGUN)):
            instant = Instant(requested, action, State.INFLIGHT)
            if self.store.head(f"{properties.timeline_folder}/{instant.file_name}") is not None:
                self._put_instant(instant)
                return

    def _list_timeline(self, folder: str) -> None:
        assert self._view is not None
        first, second = tuple(self.store.list(f"{folder}/")), self.store.list(f"{folder}/")
        listed = at_one_moment(first, second, folder)
        found = furthest(instant for instant, _ in instants_in(listed, folder))
        self._instants = {instant.requested: instant for instant in found}
        self.rows.listed(found)
        self._archived = self._view.fold.archived
        self._listed_ms = self.clock.now().monotonic_ms

    def _pulses(self) -> dict[str, Pulse]:
        pulses: dict[str, Pulse] = {}
        for meta in self.store.list(f"{HEARTBEAT_FOLDER}/"):
            instant = meta.key.rpartition("/")[2]
            held = self.store.get(meta.key)
            if held is not None:
                pulses[instant] = pulse_of(instant, held)
        return pulses
