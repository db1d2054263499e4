"""Reads the changes of a table for the dashboard, read-only.

A refresh costs a few requests, whatever the age of the table: new ledger entries are read, the
timeline is derived from them and from the heartbeats, and older entries are loaded a few at a time,
newest first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidelock.core.clock import Clock
from tidelock.core.errors import TidelockError
from tidelock.core.formatting import fields_of
from tidelock.core.ids import IdSource
from tidelock.core.system import SystemIds
from tidelock.dashboard import sections
from tidelock.dashboard.sections import InstantRows, Section, SectionFeed
from tidelock.hudi.properties import TableProperties, TableType, load_properties
from tidelock.hudi.timeline.active import consistent_listing, instants_in_listing
from tidelock.hudi.timeline.instant import Action, Instant, InstantState, latest_states
from tidelock.inspect.ledger_facts import entry_facts
from tidelock.lock.admin import Inspection, inspect_lock
from tidelock.lock.config import LockSettings
from tidelock.lock.provider import Holder, LockProvider
from tidelock.lock.providers.config import of_table
from tidelock.lock.providers.registry import is_storage, open_provider, provider_name, short_name
from tidelock.services.pending import services_of
from tidelock.storage.contract import ObjectStore
from tidelock.txn import entries as e
from tidelock.txn.effects import EffectRunner
from tidelock.txn.heartbeats import (
    HEARTBEAT_FOLDER,
    JAVA_LIFETIME_MS,
    HeartbeatStatus,
    heartbeat_status,
)
from tidelock.txn.ledger_io import decode_at, forward, load
from tidelock.txn.queueing import LockWaiter, waiters
from tidelock.txn.recovery import WRITES, PendingScan
from tidelock.txn.state import View
from tidelock.txn.writers import ActiveWriter, conflicts_in, writer_of

ENTRIES_MAX: Final = 10_000
TAIL_SHOWN: Final = 200
CONFLICTS_SHOWN: Final = 200
_FIRST_ENTRIES: Final = 200


@dataclass(slots=True)
class LedgerTail:
    """The ledger entries that were read. Entries never change, so none is read twice."""

    store: ObjectStore
    clock: Clock
    tail: SectionFeed = field(default_factory=SectionFeed)
    conflicts: SectionFeed = field(default_factory=SectionFeed)
    conflict_count: int = 0
    _entries: dict[int, e.LedgerEntry] = field(default_factory=dict)
    _read: bool = False
    _unread: int = 0
    """Entries up to this position have not been read."""
    _unapplied: list[e.LedgerEntry] = field(default_factory=list)
    """Entries that were read and not applied to the rows yet, newest last."""
    _conflicts_changed: bool = True

    def append(self, view: View, known: int) -> list[e.LedgerEntry]:
        """Add the entries after position `known`; return those to apply to the rows now."""
        appended = [entry for entry in view.tail if entry.position > known]
        if not self._read:
            self._read = True
            self._unread = view.position - len(appended)
            self._unapplied = appended[:-_FIRST_ENTRIES]
            appended = appended[-_FIRST_ENTRIES:]
        for entry in appended:
            self._add(entry)
        if len(self._entries) > ENTRIES_MAX:
            for position in sorted(self._entries)[:-ENTRIES_MAX]:
                del self._entries[position]
        return appended

    def load_older(self, budget_ms: int, apply: Callable[[e.LedgerEntry], None]) -> bool:
        """Load older entries, newest first, within a time budget; return whether there were any."""
        end_ms = self.clock.now().monotonic_ms + budget_ms
        loaded = False
        while self.clock.now().monotonic_ms < end_ms:
            entry = self._unapplied.pop() if self._unapplied else self._read_older()
            if entry is None:
                break
            apply(entry)
            self._add(entry)
            loaded = True
        return loaded

    def publish(self, version: int) -> Mapping[str, int]:
        """Update the tail and the conflicts; return the number of known and unread entries."""
        for position in sorted(self._entries, reverse=True)[:TAIL_SHOWN]:
            key = (position, "")
            if key not in self.tail.items:
                self.tail.put(key, entry_facts(self._entries[position]), version)
        self.tail.trim(TAIL_SHOWN)
        if self._conflicts_changed:
            self._conflicts_changed = False
            found = conflicts_in([entry for _, entry in sorted(self._entries.items())])
            self.conflict_count = len(found)
            for each in found[-CONFLICTS_SHOWN:]:
                self.conflicts.put((each.position, each.instant), sections.conflict(each), version)
            self.conflicts.trim(CONFLICTS_SHOWN)
        return {"entries": len(self._entries), "unread": self._unread + len(self._unapplied)}

    def before(self, position: int, limit: int) -> list[dict[str, object]]:
        """Return up to `limit` entries below a position, newest first, if they are loaded."""
        known = sorted((p for p in self._entries if p < position), reverse=True)[:limit]
        return [entry_facts(self._entries[at]) for at in known]

    def about(self, requested: str) -> tuple[e.LedgerEntry, ...]:
        """Return the entries about an instant."""
        return tuple(
            entry
            for _, entry in sorted(self._entries.items())
            if getattr(entry.fact, "instant", "") == requested
            or (isinstance(entry.fact, e.Plan | e.PlanRollback) and entry.time == requested)
        )

    def _add(self, entry: e.LedgerEntry) -> None:
        self._entries[entry.position] = _without_content(entry)
        match entry.fact:
            case e.Rollback() | e.PlanRollback() | e.PriorityTicket():
                self._conflicts_changed = True
            case e.Commit(rebased=rebased):
                # A commit that is loaded late may be the other side of a known conflict.
                self._conflicts_changed |= rebased > 0 or self.conflict_count > 0
            case _:
                pass

    def _read_older(self) -> e.LedgerEntry | None:
        """Read the next older entry; None at the end, or if enough are loaded."""
        if self._unread <= 0:
            return None
        position = self._unread
        found = self.store.get(e.entry_key(position))
        if found is None or len(self._entries) >= ENTRIES_MAX:
            self._unread = 0  # deleted below the checkpoint
            return None
        self._unread = position - 1
        return decode_at(found.body, position)


def _without_content(entry: e.LedgerEntry) -> e.LedgerEntry:
    """Return an entry without its content, which may be large."""
    match entry.fact:
        case e.Commit() | e.Plan() | e.PlanRollback() as fact:
            return replace(entry, fact=replace(fact, content=e.InlineContent(b"")))
        case _:
            return entry


WAITERS_SHOWN: Final = 50
_STORAGE: Final = "storage"


@dataclass(slots=True)
class LockWatch:
    """Reads the lock of one table, without changing it."""

    store: ObjectStore
    clock: Clock
    settings: Mapping[str, object]
    _provider: LockProvider | None = field(default=None)

    def read(self) -> dict[str, object]:
        """Return the status of the lock. Raises: what the store raises."""
        name = provider_name(self.settings)
        if name is not None and not is_storage(name):
            return self._read_provider(short_name(name))
        lock = inspect_lock(self.store, LockSettings.read(self.settings).lease, self.clock)
        return _storage_status(lock, self._waiting() if lock.exists else [])

    def _read_provider(self, name: str) -> dict[str, object]:
        """Ask a lock provider; a failure is shown on the page."""
        try:
            if self._provider is None:
                table = load_properties(self.store)
                given = of_table(
                    self.settings, self.store.uri, name=table.name, database=table.database
                )
                self._provider = open_provider(given)
            holder = self._provider.holder()
        except TidelockError as error:
            return {**_provider_status(name, None, []), "problem": str(error)}
        queued = holder is None or holder.waiters is not None
        return _provider_status(name, holder, [] if queued else self._waiting())

    def _waiting(self) -> list[LockWaiter]:
        return waiters(self.store, self.clock.now().wall_epoch_ms)


def _storage_status(lock: Inspection, waiting: list[LockWaiter]) -> dict[str, object]:
    record = lock.record
    expires = None if record is None or record.expired else record.valid_until_epoch_ms
    return {
        "provider": _STORAGE,
        "exists": lock.exists,
        "condition": lock.condition.value,
        "meaning": lock.condition.meaning,
        "owner": "" if record is None else record.owner,
        "token": 0 if record is None else record.token,
        "java": record is not None and not record.is_ours,
        "written": lock.modified_epoch_ms if lock.exists else None,
        "valid_until": expires,
        "problem": "" if lock.problem is None else str(lock.problem),
        **_waiters(waiting),
    }


def _provider_status(
    provider: str, holder: Holder | None, waiting: list[LockWaiter]
) -> dict[str, object]:
    found: dict[str, object] = {
        "provider": provider,
        "exists": True,
        "condition": "free" if holder is None else "held",
        "meaning": "not held" if holder is None else "as reported by its backend",
        "owner": "" if holder is None else holder.owner,
        "token": 0 if holder is None else holder.token or 0,
        "java": False,
        "written": None if holder is None else holder.since_epoch_ms,
        "valid_until": None if holder is None else holder.expires_epoch_ms,
        "problem": "",
        **_waiters(waiting),
    }
    if holder is not None and holder.waiters is not None:
        found["waiters"] = holder.waiters
    return found


def _waiters(waiting: list[LockWaiter]) -> dict[str, object]:
    shown = [
        {**fields_of(each, "owner", "host", "pid"), "since": each.since_epoch_ms}
        for each in waiting[:WAITERS_SHOWN]
    ]
    return {"waiting": shown, "waiters": len(waiting)}


REFRESH_EVERY_MS: Final = 500
"""Pages share a refresh that is younger than this."""

WRITERS_MAX: Final = 200
_FIRST_LOAD_MS: Final = 50
_LOAD_MS: Final = 25
_LIST_EVERY_MS: Final = 5_000
_RELIST_EVERY_MS: Final = 60_000
_WRITE_ACTIONS: Final = (
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


@dataclass(slots=True)
class TableWatch:
    """The state of one table for the dashboard. Thread-safe."""

    store: ObjectStore
    clock: Clock
    ids: IdSource = field(default_factory=SystemIds)
    settings: Mapping[str, object] = field(default_factory=dict)
    rows: InstantRows = field(default_factory=InstantRows)
    sections: dict[str, Section] = field(default_factory=dict)
    problem: str = ""
    refreshed_ms: int | None = None
    _properties: TableProperties | None = None
    ledger: LedgerTail = field(init=False)
    _lock: LockWatch = field(init=False)
    _view: View | None = None
    _instants: dict[str, Instant] = field(default_factory=dict)
    _archived: str = ""
    _listed_ms: int = 0
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Watch the ledger and the lock of the table."""
        self.ledger = LedgerTail(self.store, self.clock)
        self._lock = LockWatch(self.store, self.clock, self.settings)

    @property
    def properties(self) -> TableProperties:
        """The table's properties. Raises: what reading them raises."""
        if self._properties is None:
            self._properties = load_properties(self.store)
        return self._properties

    def refresh(self) -> None:
        """Read the changes, unless the last refresh is recent. Errors are shown on the page."""
        with self._mutex:
            now_ms = self.clock.now().monotonic_ms
            if self.refreshed_ms is not None and now_ms - self.refreshed_ms < REFRESH_EVERY_MS:
                return
            self.rows.version += 1
            try:
                self._refresh()
                self.problem = ""
            except TidelockError as error:
                self.problem = str(error)
            self._put("problem", self.problem)
            self.refreshed_ms = self.clock.now().monotonic_ms

    def page(self, after: int) -> dict[str, object] | None:
        """Return the changes after version `after`; None if there are none."""
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
        """Return up to `limit` entries below a position, newest first, if they are loaded."""
        with self._mutex:
            return self.ledger.before(position, limit)

    def find_instant(self, requested: str) -> tuple[Instant | None, tuple[e.LedgerEntry, ...]]:
        """Return an instant of the timeline, and the ledger entries about it."""
        with self._mutex:
            return self._instants.get(requested), self.ledger.about(requested)

    def conflicts(self) -> list[Mapping[str, Any]]:
        """Return the recent conflicts, newest first."""
        with self._mutex:
            return self.ledger.conflicts.after(0)

    def _put(self, name: str, value: object) -> None:
        self.sections.setdefault(name, Section()).put(value, self.rows.version)

    def _refresh(self) -> None:
        properties, first = self.properties, self._view is None
        appended = self._read_ledger()
        for entry in appended:
            # Applied before the timeline is listed, because the listing lacks these instants.
            if isinstance(entry.fact, e.Rollback | e.PlanRollback):
                self.rows.apply(entry)
        heartbeats = self._read_heartbeats()
        assert self._view is not None
        state = self._view.state
        idle_ms = self.clock.now().monotonic_ms - self._listed_ms
        java = state.external or not state.position
        every_ms = _LIST_EVERY_MS if java else _RELIST_EVERY_MS
        if first or state.archived != self._archived or idle_ms > every_ms:
            self._list_timeline(properties.timeline_folder)
        else:
            self._advance(appended, heartbeats, properties)
        for entry in appended:
            self.rows.apply(entry)
        budget_ms = _FIRST_LOAD_MS if first else _LOAD_MS
        loaded = self.ledger.load_older(budget_ms, self.rows.apply)
        pending = tuple(sorted(i for i in self._instants.values() if not i.is_completed))
        scan = PendingScan(pending, heartbeats, self.clock.now().wall_epoch_ms)
        writers = [
            writer_of(
                self.store,
                instant,
                scan.heartbeats.get(instant.requested),
                scan.now_epoch_ms,
                JAVA_LIFETIME_MS,
            )
            for instant in scan.pending[-WRITERS_MAX:]
            # A plan that is not being executed has no writer.
            if instant.action in WRITES or instant.requested in heartbeats
        ]
        self._publish(properties, scan, writers)
        if appended or loaded or first:
            self._put("history", self.ledger.publish(self.rows.version))

    def _publish(
        self, properties: TableProperties, scan: PendingScan, writers: list[ActiveWriter]
    ) -> None:
        assert self._view is not None
        state = self._view.state
        plans = services_of(state.plans, scan, default_lifetime_ms=JAVA_LIFETIME_MS)
        self._name_writers(writers)
        self._put("table", sections.table(self.store.uri, properties, state))
        self._put("writers", [sections.writer(each, scan.heartbeats) for each in writers])
        self._put("services", [sections.service(each, scan.heartbeats, writers) for each in plans])
        self._put("turns", [sections.ticket(each) for each in state.tickets])
        self._put("lock", self._lock.read())

    def _name_writers(self, writers: list[ActiveWriter]) -> None:
        """Set owner and operation of running writes from their heartbeats."""
        for writer in writers:
            row = self.rows.rows.get(writer.instant)
            if row is not None and writer.owner:
                operation = writer.operation or row.operation
                self.rows.put(row._replace(owner=writer.owner, operation=operation))

    def _read_ledger(self) -> list[e.LedgerEntry]:
        """Read and return the entries that were appended."""
        runner = EffectRunner(self.store, self.clock, self.ids)
        before = self._view
        self._view = runner.perform(load() if before is None else forward(before))
        return self.ledger.append(self._view, 0 if before is None else before.position)

    def _advance(
        self,
        appended: list[e.LedgerEntry],
        heartbeats: Mapping[str, HeartbeatStatus],
        properties: TableProperties,
    ) -> None:
        """Update the timeline from the ledger and the heartbeats, without listing it.

        Only Java writers have neither, so the timeline is listed from time to time.
        """
        for entry in appended:
            match entry.fact:
                case e.Commit(instant, action) if action is not Action.SAVEPOINT:
                    self._put_instant(Instant(instant, action, InstantState.COMPLETED, entry.time))
                case e.ExternalCommit(instant, action, completion):
                    self._put_instant(Instant(instant, action, InstantState.COMPLETED, completion))
                case e.Plan(action):
                    self._put_instant(Instant(entry.time, action, InstantState.REQUESTED))
                case e.PlanRollback(action, instants):
                    self._put_instant(Instant(entry.time, action, InstantState.REQUESTED))
                    for instant in instants:
                        self._instants.pop(instant, None)
                case e.Rollback(instant, attempt=None):
                    self._instants.pop(instant, None)
                case _:
                    pass
        for requested in heartbeats:
            known = self._instants.get(requested)
            if known is None or known.state is InstantState.REQUESTED:
                self._find_inflight(requested, properties)

    def _put_instant(self, instant: Instant) -> None:
        self._instants[instant.requested] = instant
        self.rows.update(instant)

    def _find_inflight(self, requested: str, properties: TableProperties) -> None:
        """Find the instant of a heartbeat, trying the most likely action first."""
        default = (
            Action.COMMIT if properties.type is TableType.COPY_ON_WRITE else Action.DELTA_COMMIT
        )
        for action in dict.fromkeys((default, *_WRITE_ACTIONS)):
            instant = Instant(requested, action, InstantState.INFLIGHT)
            if self.store.head(f"{properties.timeline_folder}/{instant.file_name}") is not None:
                self._put_instant(instant)
                return

    def _list_timeline(self, folder: str) -> None:
        assert self._view is not None
        first, second = tuple(self.store.list(f"{folder}/")), self.store.list(f"{folder}/")
        listed = consistent_listing(first, second, folder)
        found = latest_states(instant for instant, _ in instants_in_listing(listed, folder))
        self._instants = {instant.requested: instant for instant in found}
        self.rows.replace_all(found)
        self._archived = self._view.state.archived
        self._listed_ms = self.clock.now().monotonic_ms

    def _read_heartbeats(self) -> dict[str, HeartbeatStatus]:
        heartbeats: dict[str, HeartbeatStatus] = {}
        for meta in self.store.list(f"{HEARTBEAT_FOLDER}/"):
            instant = meta.key.rpartition("/")[2]
            held = self.store.get(meta.key)
            if held is not None:
                heartbeats[instant] = heartbeat_status(instant, held)
        return heartbeats
