"""Who is writing a table, and who got in whose way: for people who look."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import DataCorrupt
from tidelock.base.ids import SystemIds
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.view import GroupId
from tidelock.table.markers import read_markers
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.instant import Instant
from tidelock.txn.checkpoint import CHECKPOINT_KEY
from tidelock.txn.checkpoint import decode as decode_checkpoint
from tidelock.txn.early import groups_of
from tidelock.txn.effects import World
from tidelock.txn.entry import LEDGER_FOLDER, Commit, Entry, Rollback, Turn, Undo, position_of
from tidelock.txn.heartbeat import Pulse
from tidelock.txn.publishing import Publisher
from tidelock.txn.reading import decoded
from tidelock.txn.recovery import survey


@dataclass(frozen=True, slots=True)
class Writer:
    """One write that is under way, or was left so."""

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


@dataclass(frozen=True, slots=True)
class Met:
    """One time that a writer was overtaken, or a dead one was rolled back."""

    position: int
    time: str
    instant: str
    owner: str
    reason: str
    overtaken_by: tuple[str, ...] = ()
    groups: frozenset[GroupId] = frozenset()
    rivals: tuple[str, ...] = ()
    """The owners of what overtook it, as far as their entries are kept."""
    ended: str = ""
    """The instant as which an overtaken write was committed after all; "" if it was not."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something in the ledger that should not be."""

    position: int
    problem: str


def writers(
    store: ObjectStore,
    *,
    clock: Clock | None = None,
    folder: str = TIMELINE_FOLDER,
    otherwise_ms: int = 600_000,
) -> tuple[Writer, ...]:
    """Return every write that has begun and not ended, oldest first.

    `otherwise_ms` is how long a Java writer counts as alive after its last heartbeat.
    """
    world = World(store, clock or SystemClock(), SystemIds())
    seen = world.perform(survey(folder))
    found = [
        writer_of(
            store, instant, seen.pulses.get(instant.requested), seen.now_epoch_ms, otherwise_ms
        )
        for instant in seen.pending
    ]
    return tuple(sorted(found, key=lambda writer: writer.instant))


def writer_of(
    store: ObjectStore, instant: Instant, pulse: Pulse | None, now_epoch_ms: int, otherwise_ms: int
) -> Writer:
    """Return what a pending instant, its heartbeat and its markers tell of its writer."""
    says = pulse.says if pulse is not None else None
    return Writer(
        instant=instant.requested,
        action=instant.action.value,
        state=instant.state.name.lower(),
        alive=pulse is not None and pulse.is_alive(now_epoch_ms, otherwise_ms=otherwise_ms),
        age_ms=None if pulse is None else pulse.age_ms(now_epoch_ms),
        owner=says.owner if says else "",
        operation=says.operation if says else "",
        host=says.host if says else "",
        pid=says.pid if says else 0,
        since_epoch_ms=says.since_epoch_ms if says else None,
        groups=groups_of(read_markers(store, instant.requested)),
    )


def entries(store: ObjectStore, *, after: int = 0) -> Iterator[Entry]:
    """Yield the ledger's entries after a position, as far as they are still kept."""
    for meta in store.list(f"{LEDGER_FOLDER}/"):
        position = position_of(meta.key)
        if position is None or position <= after:
            continue
        found = store.get(meta.key)
        if found is not None:
            yield decoded(found.body, position)


def conflicts(store: ObjectStore, *, after: int = 0) -> Iterator[Met]:
    """Yield who was overtaken by whom and how it ended, as the ledger tells."""
    yield from meetings(tuple(entries(store, after=after)))


def meetings(kept: Sequence[Entry]) -> tuple[Met, ...]:
    """Return who was overtaken by whom in these entries, in their order, and how it ended."""
    commits = _Commits.of(kept)
    found: list[Met] = []
    for entry in kept:
        at = (entry.position, entry.time)
        match entry.fact:
            case Rollback(instant, reason, overtaken_by=others, groups=groups):
                rivals = commits.owners_of(others)
                ended = commits.became(instant, entry.owner) if others else ""
                found.append(Met(*at, instant, entry.owner, reason, others, groups, rivals, ended))
            case Undo(instants=instants, reason=reason):
                found += [Met(*at, instant, entry.owner, reason) for instant in instants]
            case Turn(instant, groups):
                ended = commits.became(instant, entry.owner)
                asked = "asked for a turn"
                found.append(Met(*at, instant, entry.owner, asked, groups=groups, ended=ended))
            case _:
                continue
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Commits:
    """Commits by instant, and those of each owner in the order of the ledger.

    `latest` has the largest instant so far beside each, so that a look need not go through all.
    """

    owners: dict[str, str] = field(default_factory=dict)
    latest: dict[str, list[str]] = field(default_factory=dict)
    facts: dict[str, list[Commit]] = field(default_factory=dict)

    @classmethod
    def of(cls, kept: Iterable[Entry]) -> _Commits:
        found = cls()
        for entry in kept:
            if isinstance(fact := entry.fact, Commit):
                found.owners[fact.instant] = entry.owner
                so_far = found.latest.setdefault(entry.owner, [])
                so_far.append(max(fact.instant, so_far[-1]) if so_far else fact.instant)
                found.facts.setdefault(entry.owner, []).append(fact)
        return found

    def owners_of(self, instants: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.owners[each] for each in instants if each in self.owners))

    def became(self, instant: str, owner: str) -> str:
        """Return the commit that an overtaken write became: its owner's next one, if that rebased.

        A writer goes on with what was overtaken before it begins anything else.
        """
        at = bisect_right(self.latest.get(owner, []), instant)
        theirs = self.facts.get(owner, [])
        return theirs[at].instant if at < len(theirs) and theirs[at].rebased else ""


def verify(store: ObjectStore, *, folder: str = TIMELINE_FOLDER) -> tuple[Flaw, ...]:
    """Read the whole ledger and return what is wrong with it; nothing is changed.

    Looks at the chain of entries, the order of times, and whether what is published is there.
    """
    flaws: list[Flaw] = []
    found = store.get(CHECKPOINT_KEY)
    fold = None if found is None else decode_checkpoint(found.body, where=CHECKPOINT_KEY).fold
    boundary, archived = (0, "") if fold is None else (fold.boundary, fold.archived)
    publisher = Publisher(folder)
    before: Entry | None = None
    published = max((entry.published for entry in entries(store)), default=0)
    for entry in entries(store, after=boundary):
        if before is not None:
            flaws += _link_flaws(before, entry)
        elif entry.position != boundary + 1:
            flaws.append(Flaw(boundary + 1, "the entry is missing"))
        fact = entry.fact
        if isinstance(fact, Commit) and entry.position <= published and fact.instant >= archived:
            key = publisher.key(entry, fact)
            if store.head(key) is None:
                flaws.append(Flaw(entry.position, f"{key} should be on the timeline and is not"))
        before = entry
    if fold is not None and before is not None and before.position < fold.position:
        flaws.append(Flaw(fold.position, "the checkpoint is ahead of the ledger"))
    return tuple(flaws)


def _link_flaws(before: Entry, entry: Entry) -> list[Flaw]:
    flaws: list[Flaw] = []
    if entry.position != before.position + 1:
        flaws.append(Flaw(before.position + 1, "the entry is missing"))
    elif entry.before != before.nonce:
        flaws.append(Flaw(entry.position, "it does not follow the entry before it"))
    if entry.time <= before.time:
        flaws.append(Flaw(entry.position, f"its time {entry.time} is not later"))
    return flaws


def void_instants(store: ObjectStore) -> frozenset[str]:
    """Return the writes that were rolled back for ever, as the last checkpoint has them.

    A reader needs no more: a file of a write that was rolled back later can look like a row only
    once the timeline begins after it, and the archive checkpoints before that.
    """
    found = store.get(CHECKPOINT_KEY)
    if found is None:
        return frozenset()
    try:
        return frozenset(decode_checkpoint(found.body, where=CHECKPOINT_KEY).fold.void)
    except DataCorrupt as error:
        raise DataCorrupt(f"{store.uri}/{error.message}", hint=error.hint) from error
