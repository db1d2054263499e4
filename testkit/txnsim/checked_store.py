"""A store that checks every write as it lands and reports violated guarantees at once.

The store keeps the true ledger (the first object that ever had each position) and checks it with
rules of its own, not with those under test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from testkit.txnsim.plan import Fault, Kind
from testkit.txnsim.world import World
from tidelock.core.clock import Now
from tidelock.core.outcome import Landed
from tidelock.hudi.file_groups import data_file
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.instant import parse_instant
from tidelock.storage.contract import ObjectMeta, PutMode, PutReply, Refused, StoredObject
from tidelock.storage.memory import MemoryStore
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.entries import (
    LEDGER_FOLDER,
    Boundary,
    Commit,
    LedgerEntry,
    PlanRollback,
    Rollback,
    decode,
    position_of,
)

PARTITION = "p"


@dataclass(slots=True)
class WriteRecord:
    """What one caller learned about one write: the instants it used, and how it ended."""

    write: str
    keys: tuple[str, ...]
    instants: list[str] = field(default_factory=list)
    acked: str = ""
    unknown: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    ended: bool = False
    kind: Kind = Kind.UPSERT


@dataclass(slots=True)
class History:
    """The history, as observed at the store."""

    ledger: list[LedgerEntry] = field(default_factory=list)
    position: dict[str, int] = field(default_factory=dict)
    """The ledger position of each committed instant."""
    aborted: set[str] = field(default_factory=set)
    published: set[str] = field(default_factory=set)
    begun: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    """The data file of each file group that an instant wrote."""
    boundary: int = 0
    records: list[WriteRecord] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def commits(self) -> list[tuple[LedgerEntry, Commit]]:
        """All commits of a write, in order."""
        return [
            (e, e.fact)
            for e in self.ledger
            if isinstance(e.fact, Commit) and e.fact.action.writes_data
        ]

    def begin(self, record: WriteRecord, instant: str) -> None:
        """Record the instant of a write. T1: no other write has ever had it."""
        if instant in self.begun:
            self.broken.append(f"T1: {record.write} and {self.begun[instant]} both got {instant}")
        if instant in self.position:
            self.broken.append(f"T1: {record.write} got {instant}, which is committed")
        self.begun[instant] = record.write
        record.instants.append(instant)

    def acknowledge(self, record: WriteRecord, instant: str) -> None:
        """Record that a caller received `Committed`. T5: then the write is committed."""
        record.acked = instant
        if instant not in self.position:
            self.broken.append(
                f"T5: {record.write} was acknowledged as {instant}, which is not committed"
            )

    def fail(self, record: WriteRecord, instant: str) -> None:
        """Record that `instant` was reported as failed. T5: then it never commits."""
        record.failed.add(instant)
        if instant in self.position:
            self.broken.append(f"T5: {record.write} failed as {instant}, which is committed")


class CheckedStore(MemoryStore):
    """Objects in memory, with a check of each write. Old versions are kept for stale reads."""

    def __init__(self, world: World, history: History) -> None:
        """Start empty."""
        super().__init__("txnsim", clock=StoreClock(world))
        self._world = world
        self._history = history
        self._past: dict[str, list[tuple[float, StoredObject | None]]] = {}
        self._keeps_past = Fault.STALE in world.plan.faults

    def peek(self, key: str) -> StoredObject | None:
        """Return the current object."""
        return self._objects.get(key)

    def all_keys(self) -> list[str]:
        """Return every key."""
        return sorted(self._objects)

    def then(self, key: str, when_ms: float) -> StoredObject | None:
        """Return the object as of `when_ms`."""
        was = None
        for at, stored in self._past.get(key, ()):
            if at > when_ms:
                break
            was = stored
        return was

    def page(self, prefix: str, start_after: str, size: int) -> list[ObjectMeta]:
        """Return the next objects of a listing, all of them if `size` is 0."""
        return [*islice(self.list(prefix, start_after=start_after), size or None)]

    def put_by(self, who: str, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write on behalf of `who`, and check the write."""
        before = self._objects.get(key)
        reply = super().put(key, body, mode)
        if isinstance(reply, Refused):
            self._world.fire(Fault.REFUSED)
        if not isinstance(reply, Landed):
            return reply
        self._remember(key)
        if self._world.trace is not None:
            self._world.log(who, f"   landed {key}")
        if key.startswith(LEDGER_FOLDER):
            self._entry_landed(who, key, body, before)
        elif key == CHECKPOINT_KEY:
            self._checkpoint_landed(who, body)
        elif key.startswith(TIMELINE_FOLDER):
            self._timeline_landed(who, key, before)
        elif key.startswith(f"{PARTITION}/") and before is not None and before.body != body:
            self._break(f"T6: {who} replaced the data file {key}")
        return reply

    def delete_by(self, who: str, key: str) -> None:
        """Delete on behalf of `who`."""
        if key not in self._objects:
            return
        super().delete(key)
        self._remember(key)
        if self._world.trace is not None:
            self._world.log(who, f"   deleted {key}")
        history = self._history
        if key.startswith(LEDGER_FOLDER):
            number = position_of(key) or 0
            if number > history.boundary:
                self._break(f"T10: {who} deleted entry {number}, boundary {history.boundary}")
            else:
                self._world.fire(Fault.ARCHIVE)
        elif key.startswith(TIMELINE_FOLDER):
            instant = parse_instant(key.rpartition("/")[2])
            if instant is not None and instant.requested in history.position:
                self._break(f"T10: {who} deleted {key}, which is committed")
        elif file := data_file(PARTITION, key.rpartition("/")[2], 0):
            named = history.files.get(file.instant, {}).values()
            if file.instant in history.position and key in named:
                self._break(f"T12: {who} deleted {key}, which is committed")

    def _break(self, complaint: str) -> None:
        self._world.log("checker", complaint)
        self._history.broken.append(complaint)

    def _remember(self, key: str) -> None:
        if self._keeps_past:
            self._past.setdefault(key, []).append((self._world.now, self._objects.get(key)))

    def _entry_landed(self, who: str, key: str, body: bytes, before: StoredObject | None) -> None:
        history = self._history
        entry = decode(body, where=key)
        if before is not None:
            self._break(f"T3: {who} replaced entry {entry.position}")
            return
        if entry.position <= history.boundary:
            self._world.fire(Fault.GHOST)
            return
        if entry.position != len(history.ledger) + 1:
            self._break(f"T3: {who} created entry {entry.position} after {len(history.ledger)}")
            return
        for complaint in check_entry(history, entry):
            self._break(f"{complaint} ({who}, entry {entry.position})")
        history.ledger.append(entry)
        match entry.fact:
            case Commit(instant=instant):
                history.position[instant] = entry.position
            case Rollback(instant=instant, attempt=None):
                history.aborted.add(instant)
            case PlanRollback(instants=instants):
                history.aborted.update(instants)
            case _:
                pass
        for record in history.records:
            if isinstance(entry.fact, Commit) and entry.fact.instant in record.failed:
                self._break(
                    f"T5: {record.write} failed as {entry.fact.instant}, which landed later"
                )

    def _checkpoint_landed(self, who: str, body: bytes) -> None:
        history = self._history
        state = checkpoints.decode_checkpoint(body, where=CHECKPOINT_KEY).state
        record = history.ledger[: state.position]
        committed = {e.fact.instant for e in record if isinstance(e.fact, Commit)}
        aborted = {
            e.fact.instant
            for e in record
            if isinstance(e.fact, Rollback) and e.fact.attempt is None
        }
        aborted |= {i for e in record if isinstance(e.fact, PlanRollback) for i in e.fact.instants}
        allowed = max([e.fact.position for e in record if isinstance(e.fact, Boundary)], default=0)
        if len(record) != state.position or (set(state.committed), set(state.aborted)) != (
            committed,
            aborted,
        ):
            self._break(f"T10: {who} wrote a checkpoint that differs from its entries")
        if record and (state.time, state.nonce) != (record[-1].time, record[-1].nonce):
            self._break(f"T10: {who} wrote a checkpoint of another ledger")
        if state.boundary != allowed or state.boundary < history.boundary:
            self._break(f"T3: {who} moved the boundary to {state.boundary}")
        if missing := sorted(committed - history.published):
            self._break(f"T10: {who} checkpointed {missing[0]} before it was published")
        history.boundary = max(history.boundary, state.boundary)

    def _timeline_landed(self, who: str, key: str, before: StoredObject | None) -> None:
        history = self._history
        instant = parse_instant(key.rpartition("/")[2])
        if instant is None:
            return
        if before is not None:
            self._break(f"T3: {who} replaced {key}")
        if not instant.is_completed:
            return
        position = history.position.get(instant.requested)
        if position is None:
            self._break(f"T5: {who} published {key}, which is not committed")
            return
        if history.ledger[position - 1].time != instant.completion:
            self._break(f"T2: {who} published {key} with another completion time")
        if instant.requested in history.published:
            self._break(f"T3: {who} completed {instant.requested} twice")
        history.published.add(instant.requested)
        for other, at in history.position.items():
            if at < position and other not in history.published:
                self._break(f"T7: {who} published entry {position} before {at}")


def check_entry(history: History, entry: LedgerEntry) -> list[str]:
    """Return the guarantees violated by an entry that has just been created."""
    broken: list[str] = []
    if history.ledger and entry.time <= history.ledger[-1].time:
        broken.append(f"T2: time {entry.time} after {history.ledger[-1].time}")
    fact = entry.fact
    if isinstance(fact, Commit | Rollback) and fact.instant in history.position:
        broken.append(f"T3: {fact.instant} was committed before")
    if isinstance(fact, PlanRollback):
        broken += [
            f"T3: {instant} was committed or rolled back before"
            for instant in fact.instants
            if instant in history.position or instant in history.aborted
        ]
    if isinstance(fact, Commit):
        if fact.instant in history.aborted:
            broken.append(f"T3: {fact.instant} was rolled back before")
        past = ((each.epoch, each.token) for _, each in history.commits if each.token)
        if fact.token and (fact.epoch, fact.token) < max(past, default=(0, 0)):
            broken.append(f"T9: {fact.instant} was committed under the old token {fact.token}")
        if entry.time <= fact.instant:
            broken.append(f"T2: {fact.instant} completed at {entry.time}")
        broken += _overlap(history, fact)
    return broken


def _overlap(history: History, fact: Commit) -> list[str]:
    broken: list[str] = []
    mine = fact.footprint
    for other, past in history.commits:
        theirs = past.footprint
        # Log files written without reading their group are applied on top of its current content.
        unread = mine.appended if mine.nonblocking else frozenset()
        groups = ((mine.touched | mine.created) & (theirs.touched | theirs.created)) - unread
        gone = mine.touched & theirs.replaced
        # Rows that an overwrite inserts replace any row with the same key.
        keys = set() if mine.intents else _keys(fact) & _keys(past)
        if other.position > fact.base:
            if groups or gone:
                broken.append(f"T14: {fact.instant} does not contain {past.instant}")
            if keys:
                broken.append(f"T4: {fact.instant} and {past.instant} both inserted {sorted(keys)}")
        if groups and past.instant >= fact.instant:
            broken.append(f"T4: {fact.instant} sorts below {past.instant}, which it contains")
    return broken


def _keys(fact: Commit) -> set[str]:
    return {key for new in fact.footprint.inserts.values() for key in new.keys or ()}


class StoreClock:
    """The store's own clock, which is the true time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> Now:
        return Now(int(self._world.now), self._world.wall())

    def sleep_ms(self, duration_ms: float) -> None:
        raise AssertionError(f"the store does not sleep ({duration_ms} ms)")
