"""The history and the store of a simulation with rows, and the expected table after each entry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from testkit.txnsim.rows.oracle import Table
from testkit.txnsim.rows.parameters import Job, Parameters
from testkit.txnsim.services.checked_store import CheckedServiceStore
from testkit.txnsim.services.truth import ExpectedPlan, Truth
from testkit.txnsim.world import World
from tidelock.hudi.timeline.active import TIMELINE_FOLDER
from tidelock.hudi.timeline.instant import Action
from tidelock.storage.memory import MemoryStore
from tidelock.txn.entries import Commit, LedgerEntry, PlanRollback
from tidelock.txn.footprint import CommitKind
from tidelock.txn.heartbeats import HEARTBEAT_FOLDER

_SERVICES = frozenset(
    {
        CommitKind.COMPACTION,
        CommitKind.LOG_COMPACTION,
        CommitKind.CLUSTERING,
        CommitKind.CLEAN,
        CommitKind.ROLLBACK,
        CommitKind.RESTORE,
    }
)
_OURS = ".hoodie/.tidelock"


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A read: the changes that completed after `since` up to `until`, or a snapshot.

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
    seen: list[ReadRecord] = field(default_factory=list)
    external: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Commits of an external writer: after how many entries, and when each completed."""

    def shown(self) -> int:
        """Return the position up to which all commits are published and all rollbacks complete.

        Rolled back rows may be visible until then.
        """
        hidden = [at for instant, at in self.position.items() if instant not in self.published]
        done = {entry.fact.instant for entry in self.ledger if isinstance(entry.fact, Commit)}
        undos = (entry for entry in self.ledger if isinstance(entry.fact, PlanRollback))
        hidden += [entry.position for entry in undos if entry.time not in done]
        return min(hidden) - 1 if hidden else len(self.ledger)

    def job_of(self, instant: str) -> Job | None:
        """Return the job that an instant was an attempt of; None for services."""
        name = self.begun.get(instant)
        return None if name is None else self.jobs.get(name)

    def done(self) -> list[tuple[int, str, str]]:
        """Return position, completion time and instant of each write, in order."""
        ours = [(entry.position, entry.time, fact.instant) for entry, fact in self._committed()]
        return sorted([*ours, *((*when, instant) for instant, when in self.external.items())])

    def at(self, position: int | None = None, *, until: str = "~") -> Table:
        """Return the table after an entry, without later completions."""
        last = len(self.ledger) if position is None else position
        undone = {
            instant
            for entry in self.ledger[:last]
            if isinstance(entry.fact, PlanRollback) and entry.time <= until
            for instant in entry.fact.instants
        }
        table = Table(self.event_time)
        for place, completion, instant in self.done():
            job = self.job_of(instant)
            counts = place <= last and completion <= until
            if job is not None and counts and instant not in undone:
                table.apply(job, instant)
        return table

    def _committed(self) -> Iterator[tuple[LedgerEntry, Commit]]:
        for entry in self.ledger:
            if isinstance(entry.fact, Commit) and entry.fact.action is not Action.SAVEPOINT:
                yield entry, entry.fact

    def ledger_lines(self) -> Iterator[str]:
        """Yield one line per ledger entry that decides something."""
        for entry in self.ledger:
            fact = entry.fact
            instant = getattr(fact, "instant", "") or " ".join(getattr(fact, "instants", ()))
            what = f"{type(fact).__name__.lower()} {instant}"
            if isinstance(fact, Commit):
                what = f"{fact.footprint.commit_kind.value} {instant} on {fact.base}"
                if fact.action is not Action.SAVEPOINT and (job := self.job_of(instant)):
                    what = f"{what}: {job}"
            yield f"{entry.position:>4} {entry.time} {entry.owner:<8} {what}"

    def writes(self) -> list[tuple[str, str]]:
        """Return completion time and instant of the writes that were not rolled back, in order."""
        writes = {fact.instant for _, fact in self.commits} | self.external.keys()
        gone = {i for e in self.ledger if isinstance(e.fact, PlanRollback) for i in e.fact.instants}
        return [(time, each) for _, time, each in self.done() if each in writes - gone]


class RowStore(CheckedServiceStore):
    """A checked store for real tables; their rows are checked at the end of the schedule."""

    def __init__(self, world: World, truth: RowTruth, parameters: Parameters) -> None:
        """Start empty."""
        super().__init__(world, truth, retained=parameters.retained)
        self._clocks_agree = self._clocks_agree and not parameters.ahead
        self.rows = truth

    def without_ledger(self) -> MemoryStore:
        """Return a separate store with the table as an external writer sees it.

        Failed writes are removed from the timeline: an external writer rolls them back before it
        writes.
        """
        failed = tuple(f"{TIMELINE_FOLDER}/{instant}." for instant in self.rows.aborted)
        others = MemoryStore("txnsim", clock=self._clock)
        others._objects = {  # noqa: SLF001
            key: stored
            for key, stored in self._objects.items()
            if not key.startswith((_OURS, *failed))
        }
        others._writes = self._writes  # noqa: SLF001
        return others

    def take(self, others: MemoryStore) -> None:
        """Copy what an external writer has written to its own store."""
        objects = others._objects  # noqa: SLF001
        new = {key: stored for key, stored in objects.items() if not key.startswith(_OURS)}
        kept = {key: stored for key, stored in self._objects.items() if key.startswith(_OURS)}
        self._objects = {**kept, **new}
        self._writes = max(self._writes, others._writes)  # noqa: SLF001

    def visible(self) -> dict[str, bytes]:
        """Return the objects that readers use: not the ledger, heartbeats and markers."""
        return {
            key: stored.body
            for key, stored in self._objects.items()
            if not key.startswith((_OURS, HEARTBEAT_FOLDER, ".hoodie/.temp"))
        }

    def _check_commit(self, entry: LedgerEntry, fact: Commit) -> Iterator[str]:
        yield from super()._check_commit(entry, fact)
        if fact.footprint.commit_kind not in _SERVICES and fact.instant not in self.truth.begun:
            yield f"T1: {fact.instant} was never begun"

    def _check_rollback(
        self, entry: LedgerEntry, instant: str, attempt: int | None
    ) -> Iterator[str]:
        complete = isinstance(entry.fact, PlanRollback) and entry.fact.complete
        for complaint in super()._check_rollback(entry, instant, attempt):
            if not (complete and complaint.startswith("T3")):
                yield complaint

    def _is_stale(self, plan: ExpectedPlan) -> bool:
        """Do nothing: only production code knows what a plan reads."""
        del plan
        return True
