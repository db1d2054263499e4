"""A table in memory, writers on it, and a way to stop one of them between two requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tests.unit.doubles import ManualClock
from tidelock.core.system import SeededIds
from tidelock.hudi.file_groups import GroupId
from tidelock.hudi.properties import TableType, create_properties, new_properties
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.instant import Action, Instant
from tidelock.hudi.timeline.metadata import CommitMetadata, OperationType, WriteStat
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import ObjectStore
from tidelock.storage.memory import MemoryStore
from tidelock.txn.commit import CommitDraft
from tidelock.txn.conflicts import Committed
from tidelock.txn.effects import Effect, EffectRunner, Steps
from tidelock.txn.heartbeats import HeartbeatThread
from tidelock.txn.transaction import Transaction
from tidelock.txn.transaction_manager import TransactionManager

R = TypeVar("R")

PARTITION = "day=1"


class Silent(HeartbeatThread):
    """Heartbeats that are never refreshed: time stands still unless a test advances it."""

    def keep(self, instant: str, body: bytes, version: str) -> None:
        """Start no thread."""


class Stopped(BaseException):
    """Raised when the simulated process has ended."""


@dataclass(frozen=True, slots=True)
class StoppingRunner(EffectRunner):
    """Executes a number of effects, and then the process ends."""

    left: list[int] = field(default_factory=lambda: [10**9])
    done: list[Effect] = field(default_factory=list)

    def _answer(self, effect: Effect, check_held: object) -> object:
        if self.left[0] == 0:
            raise Stopped
        self.left[0] -= 1
        answer = EffectRunner._answer(self, effect, None)
        self.done.append(effect)
        return answer


@dataclass
class Bench:
    """One table, and any number of writers."""

    settings: Mapping[str, object] = field(default_factory=dict)
    table_type: TableType = TableType.COPY_ON_WRITE

    def __post_init__(self) -> None:
        """Create the table."""
        self.clock = ManualClock()
        self.store = MemoryStore("table", clock=self.clock)
        self.policy = ReadbackPolicy(clock=self.clock, ids=SeededIds(0))
        properties = new_properties("t", record_keys=["id"], table_type=self.table_type)
        create_properties(self.store, properties, policy=self.policy)
        self._writers = 0

    def writer(
        self,
        store: ObjectStore | None = None,
        *,
        owner: str = "",
        settings: Mapping[str, object] | None = None,
        clock: ManualClock | None = None,
    ) -> TransactionManager:
        """Return another process's transactions; its heartbeats are never refreshed."""
        self._writers += 1
        txns = TransactionManager(
            store or self.store,
            self.settings if settings is None else settings,
            clock=clock or self.clock,
            ids=SeededIds(self._writers),
            owner=owner or f"writer-{self._writers}",
        )
        txns.heartbeat_thread = Silent(txns.store, txns.settings.heartbeat_interval_ms)
        return txns

    def begin(self, txns: TransactionManager, *, markers: bool = False) -> Transaction:
        """Begin an upsert on the current table."""
        base = txns.ledger.refresh()
        return txns.begin(Action.COMMIT, OperationType.UPSERT, base=base, markers=markers)

    def commit_one(self, txns: TransactionManager, *groups: str) -> Committed:
        """Begin and commit an upsert that merges these file groups."""
        result = self.begin(txns).commit(draft(touched=groups))
        assert isinstance(result, Committed), result
        return result

    def completed(self) -> tuple[Instant, ...]:
        """Return the writes that are completed on the timeline."""
        return load_timeline(self.store).writes()

    def pending(self) -> tuple[Instant, ...]:
        """Return the pending instants of the timeline."""
        return load_timeline(self.store).pending()

    def keys(self, prefix: str) -> list[str]:
        """Return the objects below a prefix."""
        return [meta.key for meta in self.store.list(prefix)]


def stopping(txns: TransactionManager, after: int) -> StoppingRunner:
    """Let the process of these transactions end after some more effects."""
    runner = StoppingRunner(txns.store, txns.clock, txns.ids, [after])
    txns.ledger.runner = runner
    return runner


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
    """Run steps that have no effects."""
    try:
        next(steps)
    except StopIteration as end:
        result: R = end.value
        return result
    raise AssertionError("the steps have an effect")
