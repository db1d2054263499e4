"""Clean: what a plan lists is deleted, as often as it takes; deleting twice does no harm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidelock.operation.reads import snapshot_now
from tidelock.operation.writer import TableWriter
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import (
    ActionInstant,
    CleanerPlan,
    CleanFile,
    CleanMetadata,
    CleanPartition,
    OperationType,
    SavepointMetadata,
)
from tidelock.tableservice.clean.plan import (
    Keep,
    Kept,
    Policy,
    earliest_to_retain,
    files_to_delete,
)
from tidelock.tableservice.guard import Executed, claimed
from tidelock.tableservice.leases import leased_since
from tidelock.tableservice.scheduling import Draft, pending, scheduled
from tidelock.tableservice.waiting import planned_slices
from tidelock.txn.draft import CommitDraft
from tidelock.txn.footprint import Deed


@dataclass(frozen=True, slots=True)
class Clean:
    """Cleans the table of one writer."""

    writer: TableWriter

    def schedule(self, keep: Keep) -> str | None:
        """Put a plan on the timeline and return its instant; None if there is nothing to delete."""

        def make() -> Draft | None:
            fold = self.writer.transactions.ledger.refresh()
            plan = self.plan(keep)
            return None if plan is None else Draft(plan, fold)

        return scheduled(self.writer.transactions, Action.CLEAN, make)

    def plan(self, keep: Keep) -> CleanerPlan | None:
        """Return what a clean would delete now; None for nothing."""
        snapshot = snapshot_now(self.writer.store)
        completed = snapshot.timeline.writes()
        pending = [i.requested for i in snapshot.timeline.pending() if i.action.writes_data]
        earliest = earliest_to_retain(keep, completed, pending)
        if earliest is None and keep.policy is not Policy.VERSIONS:
            return None
        kept = replace(
            _kept(snapshot),
            leased_since=leased_since(self.writer.store, self.writer.transactions.clock),
        )
        found = files_to_delete(snapshot.groups(with_replaced=True), keep, kept, earliest)
        if not found:
            return None
        base = self.writer.store.uri
        return CleanerPlan(
            policy=keep.policy.value,
            earliest_instant_to_retain=None if earliest is None else _named(earliest),
            last_completed_commit_timestamp=completed[-1].requested,
            file_paths_to_be_deleted_per_partition={
                partition: tuple(CleanFile(f"{base}/{file.key}") for file in files)
                for partition, files in found.items()
            },
        )

    def pending(self) -> tuple[str, ...]:
        """Return the plans that wait to be executed, oldest first."""
        return pending(self.writer, Action.CLEAN)

    def execute(self, instant: str) -> Executed:
        """Delete what a plan lists. Raises: `Conflict` if somebody else is at it."""
        writer = self.writer
        with claimed(writer.transactions, instant, OperationType.UNKNOWN) as transaction:
            timeline = load_timeline(writer.store, writer.properties.timeline_folder)
            requested = Instant(instant, Action.CLEAN, State.REQUESTED)
            plan = timeline.read(CleanerPlan, requested)
            began_ms = writer.transactions.clock.now().monotonic_ms
            partitions = {
                partition: self._deleted(plan.policy, partition, files)
                for partition, files in (plan.file_paths_to_be_deleted_per_partition or {}).items()
            }
            metadata = CleanMetadata(
                start_clean_time=instant,
                time_taken_in_millis=writer.transactions.clock.now().monotonic_ms - began_ms,
                total_files_deleted=sum(len(p.success_delete_files) for p in partitions.values()),
                earliest_commit_to_retain=(
                    plan.earliest_instant_to_retain.timestamp
                    if plan.earliest_instant_to_retain
                    else ""
                ),
                last_completed_commit_timestamp=plan.last_completed_commit_timestamp,
                partition_metadata=partitions,
            )
            draft = CommitDraft(metadata, OperationType.UNKNOWN, deed=Deed.CLEAN)
            return Executed.of(transaction.commit(draft), transaction, ())

    def _deleted(self, policy: str, partition: str, files: Iterable[CleanFile]) -> CleanPartition:
        # A plan has absolute paths; the table may have been moved since, its files with it.
        names = sorted((file.file_path or "").rpartition("/")[2] for file in files)
        for name in names:
            self.writer.store.delete(f"{partition}/{name}" if partition else name)
        return CleanPartition(
            partition_path=partition,
            policy=policy,
            delete_path_patterns=tuple(names),
            success_delete_files=tuple(names),
        )


def _kept(snapshot: TableSnapshot) -> Kept:
    return Kept(
        files=frozenset(_savepointed(snapshot)),
        slices=frozenset(planned_slices(snapshot.timeline)),
        replaced=snapshot.replaced,
    )


def _savepointed(snapshot: TableSnapshot) -> Iterable[str]:
    for instant in snapshot.timeline.completed(Action.SAVEPOINT):
        saved = snapshot.timeline.read(SavepointMetadata, instant)
        for partition, each in saved.partition_metadata.items():
            for name in each.savepoint_data_file:
                yield f"{partition}/{name}" if partition else name


def _named(instant: Instant) -> ActionInstant:
    return ActionInstant(instant.requested, instant.action.value, instant.state.name)
