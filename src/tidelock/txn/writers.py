"""Diagnostics of a table's writers: active writers, conflicts, and ledger verification."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelock.core.clock import Clock
from tidelock.core.errors import DataCorrupt
from tidelock.core.system import SystemClock, SystemIds
from tidelock.hudi.file_groups import GroupId
from tidelock.hudi.markers import read_markers
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.instant import Instant
from tidelock.storage.contract import ObjectStore
from tidelock.txn.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from tidelock.txn.effects import EffectRunner
from tidelock.txn.entries import (
    LEDGER_FOLDER,
    Commit,
    LedgerEntry,
    PlanRollback,
    PriorityTicket,
    Rollback,
    position_of,
)
from tidelock.txn.heartbeats import JAVA_LIFETIME_MS, HeartbeatStatus
from tidelock.txn.ledger_io import Publisher, decode_at
from tidelock.txn.recovery import scan_pending
from tidelock.txn.transaction import groups_of


@dataclass(frozen=True, slots=True)
class ActiveWriter:
    """A write in progress, or an abandoned one."""

    instant: str
    action: str
    state: str
    alive: bool
    age_ms: int | None
    owner: str = ""
    operation: str = ""
    host: str = ""
    pid: int = 0
    since_epoch_ms: int | None = None
    groups: frozenset[GroupId] = frozenset()


_PRIORITY: Final = "asked for priority"
_SERVICES: Final = ("clustering", "compaction", "log_compaction")
"""The reason in the rollback of a service begins with its operation."""


@dataclass(frozen=True, slots=True)
class ConflictRecord:
    """A conflict of a writer, or the rollback of a dead one."""

    position: int
    time: str
    instant: str
    owner: str
    reason: str
    conflicts_with: tuple[str, ...] = ()
    groups: frozenset[GroupId] = frozenset()
    conflicting_owners: tuple[str, ...] = ()
    """The owners of the conflicting commits, as far as their entries are kept."""
    ended: str = ""
    """The instant with which the write was committed after a retry, "" if it was not."""

    @property
    def resolution(self) -> str:
        """How the conflict ended, in words."""
        if self.ended:
            return "rebased and committed"
        if self.conflicts_with:
            return "aborted" if self.reason.startswith(_SERVICES) else "not committed yet"
        return "waiting with priority" if self.reason == _PRIORITY else "rolled back"


@dataclass(frozen=True, slots=True)
class LedgerFlaw:
    """A defect found in the ledger."""

    position: int
    problem: str


def writers(
    store: ObjectStore,
    *,
    clock: Clock | None = None,
    folder: str = TIMELINE_FOLDER,
    default_lifetime_ms: int = JAVA_LIFETIME_MS,
) -> tuple[ActiveWriter, ...]:
    """Return all pending writes, oldest first.

    `default_lifetime_ms` is how long a Java writer counts as alive after its last heartbeat.
    """
    seen = EffectRunner(store, clock or SystemClock(), SystemIds()).perform(scan_pending(folder))
    beats, now_epoch_ms = seen.heartbeats, seen.now_epoch_ms
    found = [
        writer_of(store, each, beats.get(each.requested), now_epoch_ms, default_lifetime_ms)
        for each in seen.pending
    ]
    return tuple(sorted(found, key=lambda writer: writer.instant))


def writer_of(
    store: ObjectStore,
    instant: Instant,
    heartbeat: HeartbeatStatus | None,
    now_epoch_ms: int,
    default_lifetime_ms: int,
) -> ActiveWriter:
    """Return a pending instant's writer, from its heartbeat and its markers."""
    says = heartbeat.record if heartbeat is not None else None
    return ActiveWriter(
        instant=instant.requested,
        action=instant.action.value,
        state=instant.state.name.lower(),
        alive=heartbeat is not None
        and heartbeat.is_alive(now_epoch_ms, default_lifetime_ms=default_lifetime_ms),
        age_ms=None if heartbeat is None else heartbeat.age_ms(now_epoch_ms),
        owner=says.owner if says else "",
        operation=says.operation if says else "",
        host=says.host if says else "",
        pid=says.pid if says else 0,
        since_epoch_ms=says.since_epoch_ms if says else None,
        groups=groups_of(read_markers(store, instant.requested)),
    )


def entries(store: ObjectStore, *, after: int = 0) -> Iterator[LedgerEntry]:
    """Yield the ledger's entries after a position, as far as they are still kept."""
    for meta in store.list(f"{LEDGER_FOLDER}/"):
        position = position_of(meta.key)
        if position is None or position <= after:
            continue
        found = store.get(meta.key)
        if found is not None:
            yield decode_at(found.body, position)


def conflicts(store: ObjectStore, *, after: int = 0) -> Iterator[ConflictRecord]:
    yield from conflicts_in(tuple(entries(store, after=after)))


def conflicts_in(ledger_entries: Sequence[LedgerEntry]) -> tuple[ConflictRecord, ...]:
    """Return the conflicts in these entries, in their order, and how they ended."""
    commits = _Commits.of(ledger_entries)
    found: list[ConflictRecord] = []
    for entry in ledger_entries:
        at, owner = (entry.position, entry.time), entry.owner
        match entry.fact:
            case Rollback(instant, reason, conflicts_with=others, groups=groups):
                by = commits.owners_of(others)
                ended = commits.retried_as(instant, owner) if others else ""
                found.append(ConflictRecord(*at, instant, owner, reason, others, groups, by, ended))
            case PlanRollback(instants=instants, reason=reason):
                found += [ConflictRecord(*at, instant, owner, reason) for instant in instants]
            case PriorityTicket(instant, groups):
                ended = commits.retried_as(instant, owner)
                found.append(
                    ConflictRecord(*at, instant, owner, _PRIORITY, groups=groups, ended=ended)
                )
            case _:
                continue
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Commits:
    """Commits by instant, and those of each owner in ledger order.

    `latest` has the largest instant up to each commit, for a binary search.
    """

    owners: dict[str, str] = field(default_factory=dict)
    latest: dict[str, list[str]] = field(default_factory=dict)
    facts: dict[str, list[Commit]] = field(default_factory=dict)

    @classmethod
    def of(cls, ledger_entries: Iterable[LedgerEntry]) -> _Commits:
        found = cls()
        for entry in ledger_entries:
            if isinstance(fact := entry.fact, Commit):
                found.owners[fact.instant] = entry.owner
                so_far = found.latest.setdefault(entry.owner, [])
                so_far.append(max(fact.instant, so_far[-1]) if so_far else fact.instant)
                found.facts.setdefault(entry.owner, []).append(fact)
        return found

    def owners_of(self, instants: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.owners[each] for each in instants if each in self.owners))

    def retried_as(self, instant: str, owner: str) -> str:
        """Return the commit that a conflicted write became: its owner's next one, if that was
        rebased.

        A writer retries a conflicted write before it begins another.
        """
        at = bisect_right(self.latest.get(owner, []), instant)
        theirs = self.facts.get(owner, [])
        return theirs[at].instant if at < len(theirs) and theirs[at].rebased else ""


def verify(store: ObjectStore, *, folder: str = TIMELINE_FOLDER) -> tuple[LedgerFlaw, ...]:
    """Read the whole ledger and return its defects; nothing is changed.

    Checks the chain of entries, the order of times, and that published instants exist.
    """
    flaws: list[LedgerFlaw] = []
    found = store.get(CHECKPOINT_KEY)
    state = None if found is None else decode_checkpoint(found.body, where=CHECKPOINT_KEY).state
    boundary, archived = (0, "") if state is None else (state.boundary, state.archived)
    publisher = Publisher(folder)
    before: LedgerEntry | None = None
    published = max((entry.published for entry in entries(store)), default=0)
    for entry in entries(store, after=boundary):
        if before is not None:
            flaws += _link_flaws(before, entry)
        elif entry.position != boundary + 1:
            flaws.append(LedgerFlaw(boundary + 1, "the entry is missing"))
        fact = entry.fact
        if isinstance(fact, Commit) and entry.position <= published and fact.instant >= archived:
            key = publisher.key(entry, fact)
            if store.head(key) is None:
                flaws.append(LedgerFlaw(entry.position, f"{key} is missing from the timeline"))
        before = entry
    if state is not None and before is not None and before.position < state.position:
        flaws.append(LedgerFlaw(state.position, "the checkpoint is ahead of the ledger"))
    return tuple(flaws)


def _link_flaws(before: LedgerEntry, entry: LedgerEntry) -> list[LedgerFlaw]:
    flaws: list[LedgerFlaw] = []
    if entry.position != before.position + 1:
        flaws.append(LedgerFlaw(before.position + 1, "the entry is missing"))
    elif entry.before != before.nonce:
        flaws.append(LedgerFlaw(entry.position, "it does not follow its predecessor"))
    if entry.time <= before.time:
        problem = f"its time {entry.time} is not later than its predecessor's"
        flaws.append(LedgerFlaw(entry.position, problem))
    return flaws


def aborted_instants(store: ObjectStore) -> frozenset[str]:
    """Return the aborted writes in the last checkpoint.

    This is enough for readers: files of a write aborted later become visible only after the
    timeline is archived past it, and the archive writes a checkpoint before that.
    """
    found = store.get(CHECKPOINT_KEY)
    if found is None:
        return frozenset()
    try:
        return frozenset(decode_checkpoint(found.body, where=CHECKPOINT_KEY).state.aborted)
    except DataCorrupt as error:
        raise DataCorrupt(f"{store.uri}/{error.message}", hint=error.hint) from error
