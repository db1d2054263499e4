"""The witness of a world with rows, and the table after each entry by the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from tidelock.store.memory import MemoryStore
from tidelock.table.timeline.active import TIMELINE_FOLDER
from tidelock.table.timeline.instant import Action
from tidelock.testing.txnsim.rows.oracle import Table
from tidelock.testing.txnsim.rows.terms import Job, Terms
from tidelock.testing.txnsim.services.truth import Truth, Waiting
from tidelock.testing.txnsim.services.watching import WatchedStore
from tidelock.testing.txnsim.world import World
from tidelock.txn.entry import Commit, Entry, Undo
from tidelock.txn.footprint import Deed
from tidelock.txn.heartbeat import HEARTBEAT_FOLDER

_SERVICES = frozenset(
    {
        Deed.COMPACTION,
        Deed.LOG_COMPACTION,
        Deed.CLUSTERING,
        Deed.CLEAN,
        Deed.ROLLBACK,
        Deed.RESTORE,
    }
)
_OURS = ".hoodie/.tidelock"
_stores = count(1)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader was given: rows that completed after `since` up to `until`, or a snapshot.

    A snapshot (`until` is "") was read while the ledger grew from `position` to `end`.
    """

    who: str
    rows: list[dict[str, object]]
    position: int = 0
    end: int = 0
    since: str = ""
    until: str = ""


@dataclass(slots=True)
class RowTruth(Truth):
    """The history of a table with rows. `jobs` are the writes by name."""

    event_time: bool = False
    jobs: dict[str, Job] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    foreign: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Commits of somebody without a ledger: after how many entries, and when each completed."""

    def shown(self) -> int:
        """Return the position up to which every commit is on the timeline, and every undo is done.

        What is taken back may show until then.
        """
        hidden = [at for instant, at in self.position.items() if instant not in self.published]
        done = {entry.fact.instant for entry in self.ledger if isinstance(entry.fact, Commit)}
        undos = (entry for entry in self.ledger if isinstance(entry.fact, Undo))
        hidden += [entry.position for entry in undos if entry.time not in done]
        return min(hidden) - 1 if hidden else len(self.ledger)

    def job_of(self, instant: str) -> Job | None:
        """Return the job that an instant was an attempt at; None for services."""
        name = self.begun.get(instant)
        return None if name is None else self.jobs.get(name)

    def done(self) -> list[tuple[int, str, str]]:
        """Return position, completion time and instant of each write, in order."""
        ours = [(entry.position, entry.time, fact.instant) for entry, fact in self._committed()]
        return sorted([*ours, *((*when, instant) for instant, when in self.foreign.items())])

    def at(self, position: int | None = None, *, until: str = "~") -> Table:
        """Return the table after an entry, without what completed later."""
        last = len(self.ledger) if position is None else position
        undone = {
            instant
            for entry in self.ledger[:last]
            if isinstance(entry.fact, Undo) and entry.time <= until
            for instant in entry.fact.instants
        }
        table = Table(self.event_time)
        for place, completion, instant in self.done():
            job = self.job_of(instant)
            counts = place <= last and completion <= until
            if job is not None and counts and instant not in undone:
                table.apply(job, instant)
        return table

    def _committed(self) -> Iterator[tuple[Entry, Commit]]:
        for entry in self.ledger:
            if isinstance(entry.fact, Commit) and entry.fact.action is not Action.SAVEPOINT:
                yield entry, entry.fact

    def story(self) -> Iterator[str]:
        """Yield what the ledger says, a line for each entry that decides something."""
        for entry in self.ledger:
            fact = entry.fact
            instant = getattr(fact, "instant", "") or " ".join(getattr(fact, "instants", ()))
            what = f"{type(fact).__name__.lower()} {instant}"
            if isinstance(fact, Commit):
                what = f"{fact.footprint.deed.value} {instant} on {fact.base}"
                if fact.action is not Action.SAVEPOINT and (job := self.job_of(instant)):
                    what = f"{what}: {job}"
            yield f"{entry.position:>4} {entry.time} {entry.owner:<8} {what}"

    def writes(self) -> list[tuple[str, str]]:
        """Return completion time and instant of the writes that nobody has undone, in order."""
        writes = {fact.instant for _, fact in self.commits} | self.foreign.keys()
        gone = {i for e in self.ledger if isinstance(e.fact, Undo) for i in e.fact.instants}
        return [(time, each) for _, time, each in self.done() if each in writes - gone]


class RowStore(WatchedStore):
    """Objects in memory under the eyes of the witness; which rows they hold is looked at later."""

    def __init__(self, world: World, truth: RowTruth, terms: Terms) -> None:
        """Start empty."""
        super().__init__(world, truth, retained=terms.retained)
        self._clocks_agree = self._clocks_agree and not terms.ahead
        self._number = next(_stores)
        self.rows = truth

    @property
    def identity(self) -> str:
        """No other store of this process ever has the same."""
        return f"{self.uri}#{self._number}"

    def without_ledger(self) -> MemoryStore:
        """Return a store of its own with the table as somebody sees it who knows no ledger.

        What failed writes left on the timeline is gone: such a one rolls it back before it writes.
        """
        failed = tuple(f"{TIMELINE_FOLDER}/{instant}." for instant in self.rows.void)
        others = MemoryStore("txnsim", clock=self._clock)
        others._objects = {  # noqa: SLF001
            key: stored
            for key, stored in self._objects.items()
            if not key.startswith((_OURS, *failed))
        }
        others._writes = self._writes  # noqa: SLF001
        return others

    def take(self, others: MemoryStore) -> None:
        """Take over what somebody without a ledger has written to its own store."""
        objects = others._objects  # noqa: SLF001
        new = {key: stored for key, stored in objects.items() if not key.startswith(_OURS)}
        kept = {key: stored for key, stored in self._objects.items() if key.startswith(_OURS)}
        self._objects = {**kept, **new}
        self._writes = max(self._writes, others._writes)  # noqa: SLF001

    def visible(self) -> dict[str, bytes]:
        """Return what readers look at: everything but the ledger, heartbeats and markers."""
        return {
            key: stored.body
            for key, stored in self._objects.items()
            if not key.startswith((_OURS, HEARTBEAT_FOLDER, ".hoodie/.temp"))
        }

    def _commit_judged(self, entry: Entry, fact: Commit) -> Iterator[str]:
        yield from super()._commit_judged(entry, fact)
        if fact.footprint.deed not in _SERVICES and fact.instant not in self.truth.begun:
            yield f"T1: {fact.instant} was never begun"

    def _undo_judged(self, entry: Entry, instant: str, attempt: int | None) -> Iterator[str]:
        complete = isinstance(entry.fact, Undo) and entry.fact.complete
        for complaint in super()._undo_judged(entry, instant, attempt):
            if not (complete and complaint.startswith("T3")):
                yield complaint

    def _is_stale(self, plan: Waiting) -> bool:
        """What a plan reads is known to the code that ships alone."""
        del plan
        return True
