"""Pending service plans: list them with their executors, remove expired ones, cancel them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidelock.core.clock import Clock
from tidelock.core.errors import Conflict, DataCorrupt, NotFound
from tidelock.core.system import SystemClock, SystemIds
from tidelock.hudi.file_groups import BaseFile, GroupId, LogFile
from tidelock.hudi.partitions import list_files
from tidelock.hudi.timeline.active import TIMELINE_FOLDER, ActiveTimeline, load_timeline
from tidelock.hudi.timeline.instant import Action, Instant, InstantState, parse_time
from tidelock.hudi.timeline.metadata import CleanerPlan, CompactionOperation, SliceInfo
from tidelock.operations.write import TableWriter
from tidelock.storage.contract import ObjectStore
from tidelock.txn.effects import EffectRunner
from tidelock.txn.external_writers import IMPORTED_ACTIONS
from tidelock.txn.heartbeats import JAVA_LIFETIME_MS
from tidelock.txn.ledger_io import load
from tidelock.txn.plans import RollbackIntent, finish_rollback, remove_plan, scheduled_rollback
from tidelock.txn.recovery import PendingScan, scan_pending
from tidelock.txn.rollback import rollback_plan
from tidelock.txn.state import Evidence, PendingPlan
from tidelock.txn.transaction_manager import TransactionManager

logger = logging.getLogger(__name__)

_SERVICES: Final = frozenset(
    {
        Action.COMPACTION,
        Action.LOG_COMPACTION,
        Action.CLUSTERING,
        Action.CLEAN,
        Action.ROLLBACK,
        Action.RESTORE,
        Action.INDEXING,
    }
)


@dataclass(frozen=True, slots=True)
class PendingService:
    """A plan that is neither complete nor rolled back.

    `ours` means that the plan is in the ledger; other plans belong to external writers. An
    `imported` plan was scheduled by an external writer and imported into the ledger. `owner` is the
    process that claimed it last and has not released it; without a fresh heartbeat any process may
    take it over.
    """

    instant: str
    action: str
    state: str
    age_ms: int
    ours: bool
    removable: bool
    attempt: int
    owner: str
    alive: bool
    heartbeat_age_ms: int | None
    host: str
    pid: int
    groups: frozenset[GroupId]
    imported: bool = False

    @property
    def scheduled_by(self) -> str:
        """The kind of writer that scheduled the plan."""
        return "tidelock" if self.ours and not self.imported else "an external writer"

    @property
    def next_step(self) -> str:
        """The plan's status and what happens next, as a predicate such as "is being executed"."""
        if self.alive:
            return "is being executed"
        if not self.ours:
            importable = self.action in [action.value for action in IMPORTED_ACTIONS]
            return "can be taken over by any process" if importable else "waits for its own writer"
        if self.removable and self.state == InstantState.INFLIGHT.name.lower():
            return "has a dead executor: the next clean rolls it back"
        free = "can be executed by any process"
        return f"was abandoned by its executor and {free}" if self.owner else free


def pending_services(
    store: ObjectStore,
    *,
    clock: Clock | None = None,
    folder: str = TIMELINE_FOLDER,
    default_lifetime_ms: int = JAVA_LIFETIME_MS,
) -> tuple[PendingService, ...]:
    """Return every pending plan of a table, oldest first, without side effects.

    `default_lifetime_ms` is the heartbeat lifetime of Java writers.
    """
    runner = EffectRunner(store, clock or SystemClock(), SystemIds())
    plans = runner.perform(load()).state.plans
    return services_of(
        plans, runner.perform(scan_pending(folder)), default_lifetime_ms=default_lifetime_ms
    )


def services_of(
    plans: Mapping[str, PendingPlan],
    seen: PendingScan,
    *,
    default_lifetime_ms: int = JAVA_LIFETIME_MS,
) -> tuple[PendingService, ...]:
    """Return the pending plans of a ledger state and a scan, oldest first."""
    states = {instant.requested: instant.state for instant in seen.pending}
    actions = {instant: plan.action for instant, plan in plans.items()}
    for instant in seen.pending:
        if instant.action in _SERVICES:
            actions.setdefault(instant.requested, instant.action)
    found: list[PendingService] = []
    for requested, action in sorted(actions.items()):
        plan = plans.get(requested) or PendingPlan(
            requested, action, frozenset(), removable=False, position=0
        )
        state = states.get(requested, InstantState.REQUESTED)
        heartbeat = seen.heartbeats.get(requested)
        record = heartbeat.record if heartbeat is not None else None
        found.append(
            PendingService(
                instant=requested,
                action=action.value,
                state=state.name.lower(),
                age_ms=max(0, seen.now_epoch_ms - parse_time(requested)),
                ours=requested in plans,
                imported=plan.imported,
                removable=plan.removable,
                attempt=plan.attempt,
                owner=plan.owner or (record.owner if record else ""),
                alive=seen.is_alive(requested, default_lifetime_ms=default_lifetime_ms),
                heartbeat_age_ms=None if heartbeat is None else heartbeat.age_ms(seen.now_epoch_ms),
                host=record.host if record else "",
                pid=record.pid if record else 0,
                groups=plan.targets,
            )
        )
    return tuple(found)


_COMPACTIONS: Final = frozenset({Action.COMPACTION, Action.LOG_COMPACTION})
PlanInput = CompactionOperation | SliceInfo
"""A file slice that a plan reads."""


def plan_inputs(timeline: ActiveTimeline, instant: Instant) -> Iterator[PlanInput]:
    """Yield the slices that a plan reads. A clean reads none."""
    if instant.action in _COMPACTIONS:
        yield from timeline.compaction_plan(instant).operations or ()
    elif instant.action is Action.CLUSTERING:
        plan = timeline.replace_request(instant).clustering_plan
        for cluster in (plan.input_groups if plan else None) or ():
            yield from cluster.slices or ()


def input_group(piece: PlanInput) -> GroupId:
    """Return the file group of a plan's slice."""
    return piece.partition_path or "", piece.file_id or ""


def input_keys(piece: PlanInput) -> list[str]:
    """Return the keys of a slice's files: plans may have absolute paths of a table since moved."""
    paths = (piece.data_file_path, *(piece.delta_file_paths or ()))
    return [_input_key(piece, path) for path in paths if path]


def _input_key(piece: PlanInput, path: str) -> str:
    return "/".join(filter(None, (piece.partition_path, path.rpartition("/")[2])))


def input_files(
    writer: TableWriter, pieces: Collection[PlanInput], *, service: str, hint: str
) -> list[tuple[BaseFile | None, tuple[LogFile, ...]]]:
    """Return the files of each slice. Raises: `DataCorrupt` if one does not exist."""
    listed = list_files(
        writer.store,
        partitioned=writer.properties.is_partitioned,
        partitions={piece.partition_path or "" for piece in pieces},
    )
    files = {file.key: file for file in listed}
    found: list[tuple[BaseFile | None, tuple[LogFile, ...]]] = []
    for piece in pieces:
        bases = [_input_key(piece, path) for path in (piece.data_file_path,) if path]
        deltas = [_input_key(piece, path) for path in piece.delta_file_paths or ()]
        for key in (*bases, *deltas):
            if key not in files:
                raise DataCorrupt(
                    f"{writer.store.uri}/{key}: the {service} plan reads this file, and it does not"
                    " exist",
                    hint=hint,
                )
        base = next((f for key in bases if isinstance(f := files[key], BaseFile)), None)
        logs = [f for key in deltas if isinstance(f := files[key], LogFile)]
        found.append((base, tuple(sorted(logs, key=lambda log: log.order))))
    return found


def planned_slices(
    timeline: ActiveTimeline, *, without: Container[str] = ()
) -> Iterator[tuple[GroupId, str]]:
    """Yield the slices that pending plans read, as file group and instant.

    `without` are rolled-back instants whose timeline files still exist.
    """
    for instant in timeline.pending():
        if instant.requested in without:
            continue
        for piece in plan_inputs(timeline, instant):
            if isinstance(piece, CompactionOperation):
                yield input_group(piece), piece.base_instant_time or ""
            else:
                name = (piece.data_file_path or "").rpartition("/")[2]
                yield input_group(piece), name.rpartition("_")[2].partition(".")[0]


def external_groups(writer: TableWriter) -> frozenset[GroupId]:
    """Return the file groups of all pending plans on the timeline, also of Java writers."""
    timeline = load_timeline(writer.store, writer.properties.timeline_folder)
    aborted = writer.transactions.ledger.state.aborted
    return frozenset(group for group, _ in planned_slices(timeline, without=aborted))


def remove_expired(transactions: TransactionManager, *, delay_ms: int | None) -> tuple[str, ...]:
    """Roll back removable plans with a dead executor, and those not started within `delay_ms`.

    A removable plan that was started cannot be executed again, so it is rolled back as soon as its
    executor is dead. Returns the instants of the removed plans.
    """
    if delay_ms is None:
        return ()
    plans = transactions.ledger.refresh().plans
    removed: list[str] = []
    for instant in sorted(instant for instant, plan in plans.items() if plan.removable):
        problem = transactions.remove_plan(instant, delay_ms=delay_ms)
        if problem is None:
            removed.append(instant)
        else:
            logger.debug("the plan %s is kept: %s", instant, problem)
    return tuple(removed)


@dataclass(frozen=True, slots=True)
class CancelledPlan:
    """A cancelled plan, and why it could not be executed; "" if it could."""

    instant: str
    action: str
    fault: str = ""


def cancel(writer: TableWriter, instant: str, *, force: bool = False) -> CancelledPlan:
    """Roll back a pending plan, and delete the files of its attempts.

    A plan that is not removable is cancelled only if it cannot be executed, or with `force`. A plan
    that is being executed is never cancelled. Raises: `NotFound` if it is not pending, `Conflict`.
    """
    txns = writer.transactions
    txns.ledger.refresh()
    timeline = load_timeline(writer.store, writer.properties.timeline_folder)
    plan = txns.ledger.state.plans.get(instant)
    found = next((i for i in timeline.pending() if i.requested == instant), None)
    action = plan.action if plan is not None else found.action if found is not None else None
    if action is None:
        raise NotFound(
            f"{writer.store.uri} has no pending plan {instant}",
            hint="list pending plans with `tidelock services URI`",
        )
    if action in (Action.ROLLBACK, Action.RESTORE):
        raise Conflict(
            f"{writer.store.uri}: the pending {action} {instant} cannot be cancelled",
            hint=f"complete it with `tidelock {action} URI execute`",
        )
    fault = next(_faults(timeline, Instant(instant, action, InstantState.REQUESTED)), "")
    removable = action in _REMOVABLE if plan is None else plan.removable
    if not (removable or fault or force):
        raise Conflict(
            f"{writer.store.uri}: the {action} {instant} was not cancelled, because it can be"
            " executed",
            hint="; ".join(filter(None, (_FORCE, _COSTS.get(action)))),
        )
    if plan is not None:
        problem = txns.ledger.run(remove_plan(txns, instant, delay_ms=0, forced=not removable))
        if problem is not None:
            raise Conflict(
                f"{writer.store.uri}: the {action} {instant} was not cancelled: {problem}",
                hint=_LATER,
            )
    else:
        _remove_external(writer, instant, action)
    return CancelledPlan(instant, action.value, fault)


_REMOVABLE = (Action.CLUSTERING, Action.LOG_COMPACTION)
_LATER = "wait until its executor has ended or its heartbeat has expired"
_FORCE = "execute it, or cancel it with --force"
_COSTS = {
    Action.COMPACTION: "the log files stay until the next compaction",
    Action.CLEAN: "its files stay until the next clean",
}


def _remove_external(writer: TableWriter, instant: str, action: Action) -> None:
    """Roll back a plan that is not in the ledger."""
    txns = writer.transactions
    seen = txns.ledger.run(scan_pending(txns.ledger.publisher.folder))
    inflight = [
        i for i in seen.pending if i.requested == instant and i.state is InstantState.INFLIGHT
    ]
    # C101: a writer that has started it may be alive without a heartbeat.
    alive = seen.is_alive(instant, default_lifetime_ms=txns.lifetime_ms) or any(
        seen.is_fresh(each, txns.lifetime_ms) for each in inflight if instant not in seen.heartbeats
    )
    intent = RollbackIntent(
        Action.ROLLBACK,
        (instant,),
        rollback_plan(instant, action.value, (), base=writer.store.uri),
        txns.ledger.state.position,
        forced=True,
        reason="cancelled",
    )
    evidence = Evidence(alive=frozenset({instant}) if alive else frozenset())
    with txns.table_change() as check:
        plan = txns.ledger.run(scheduled_rollback(txns, intent, seen=evidence), check)
    txns.ledger.run(finish_rollback(txns, plan))


def _faults(timeline: ActiveTimeline, requested: Instant) -> Iterator[str]:
    """Yield the reasons why a plan cannot be executed."""
    key = timeline.key(requested)
    head = timeline.store.head(key)
    if head is None:
        yield f"{key} is missing"
        return
    if not head.size_bytes:
        yield f"{key} is empty"
        return
    try:
        if requested.action is Action.CLEAN:
            timeline.read(CleanerPlan, requested)
        inputs = tuple(plan_inputs(timeline, requested))
    except DataCorrupt as error:
        yield error.message
        return
    for key in (key for piece in inputs for key in input_keys(piece)):
        if timeline.store.head(key) is None:
            yield f"its input file {key} is missing"
