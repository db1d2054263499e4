"""A table in memory, writers on it, and a way to stop one of them between two requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tests.unit.doubles import ManualClock
from tidelock.base.ids import SeededIds
from tidelock.store.contract import ObjectStore
from tidelock.store.memory import MemoryStore
from tidelock.store.readback import Patience
from tidelock.table.filegroup.view import GroupId
from tidelock.table.properties import TableType, new_properties
from tidelock.table.properties_file import create_properties
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.instant import Action, Instant
from tidelock.table.timeline.metadata import CommitMetadata, OperationType, WriteStat
from tidelock.txn.beating import Beating
from tidelock.txn.draft import CommitDraft, Committed
from tidelock.txn.effects import Effect, Steps, World
from tidelock.txn.transaction import Transaction
from tidelock.txn.transactions import Transactions

R = TypeVar("R")

PARTITION = "day=1"


class Silent(Beating):
    """Heartbeats that nobody refreshes: time stands still unless a test moves it."""

    def keep(self, instant: str, body: bytes, version: str) -> None:
        """Start no thread."""


class Stopped(BaseException):
    """The process ends here."""


@dataclass(frozen=True, slots=True)
class StoppingWorld(World):
    """Carries out a number of effects, and then the process is gone."""

    left: list[int] = field(default_factory=lambda: [10**9])
    done: list[Effect] = field(default_factory=list)

    def _answer(self, effect: Effect, check_held: object) -> object:
        if self.left[0] == 0:
            raise Stopped
        self.left[0] -= 1
        answer = World._answer(self, effect, None)
        self.done.append(effect)
        return answer


@dataclass
class Bench:
    """One table, and as many writers as a test wants."""

    settings: Mapping[str, object] = field(default_factory=dict)
    table_type: TableType = TableType.COPY_ON_WRITE

    def __post_init__(self) -> None:
        """Create the table."""
        self.clock = ManualClock()
        self.store = MemoryStore("table", clock=self.clock)
        self.patience = Patience(clock=self.clock, ids=SeededIds(0))
        properties = new_properties("t", record_keys=["id"], table_type=self.table_type)
        create_properties(self.store, properties, patience=self.patience)
        self._writers = 0

    def writer(
        self,
        store: ObjectStore | None = None,
        *,
        owner: str = "",
        settings: Mapping[str, object] | None = None,
        clock: ManualClock | None = None,
    ) -> Transactions:
        """Return another process's transactions; nobody refreshes its heartbeats."""
        self._writers += 1
        home = Transactions(
            store or self.store,
            self.settings if settings is None else settings,
            clock=clock or self.clock,
            ids=SeededIds(self._writers),
            owner=owner or f"writer-{self._writers}",
        )
        home.beating = Silent(home.store, home.settings.heartbeat_interval_ms)
        return home

    def begin(self, home: Transactions, *, markers: bool = False) -> Transaction:
        """Begin an upsert on the table as it is now."""
        base = home.ledger.refresh()
        return home.begin(Action.COMMIT, OperationType.UPSERT, base=base, markers=markers)

    def commit_one(self, home: Transactions, *groups: str) -> Committed:
        """Begin and commit an upsert that merges these file groups."""
        result = self.begin(home).commit(draft(touched=groups))
        assert isinstance(result, Committed), result
        return result

    def completed(self) -> tuple[Instant, ...]:
        """Return which writes the timeline says have completed."""
        return load_timeline(self.store).writes()

    def pending(self) -> tuple[Instant, ...]:
        """Return what the timeline says has begun and not ended."""
        return load_timeline(self.store).pending()

    def keys(self, prefix: str) -> list[str]:
        """Return the objects below a prefix."""
        return [meta.key for meta in self.store.list(prefix)]


def stopping(home: Transactions, after: int) -> StoppingWorld:
    """Let the process of `home` end after some more effects."""
    world = StoppingWorld(home.store, home.clock, home.ids, [after])
    home.ledger.world = world
    return world


def groups(*names: str) -> frozenset[GroupId]:
    """Return file groups of one partition; `p/g` names another one."""
    return frozenset(
        (name.rpartition("/")[0] or PARTITION, name.rpartition("/")[2]) for name in names
    )


def draft(
    operation: OperationType = OperationType.UPSERT,
    *,
    touched: tuple[str, ...] = (),
    created: tuple[str, ...] = (),
    replaced: tuple[str, ...] = (),
    inserts: Mapping[str, frozenset[str] | None] | None = None,
    files: tuple[str, ...] = (),
    blind: bool = False,
    extra: Mapping[str, str] | None = None,
) -> CommitDraft:
    """Return a commit that touched, created and replaced these file groups."""
    stats = tuple(
        WriteStat(file_id=name, path=path, num_inserts=1)
        for name, path in zip((*touched, *created), files or (*touched, *created), strict=True)
    )
    return CommitDraft(
        metadata=CommitMetadata(
            {PARTITION: stats}, operation_type=operation, extra_metadata=dict(extra or {})
        ),
        operation=operation,
        touched=groups(*touched),
        created=groups(*created),
        replaced=groups(*replaced),
        inserts=dict(inserts or {}),
        blind=blind,
    )


def finished(steps: Steps[R]) -> R:
    """Run steps that ask for nothing."""
    try:
        next(steps)
    except StopIteration as end:
        result: R = end.value
        return result
    raise AssertionError("the steps wanted something")
