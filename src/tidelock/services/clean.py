"""Clean: deletes file slices that the retention policy no longer keeps.

Executing a plan again deletes the same files, so an interrupted clean can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from tidelock.hudi.file_groups import DataFile, FileGroup, FileSlice, GroupId
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.active import ActiveTimeline, load_timeline
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import (
    ActionInstant,
    CleanerPlan,
    CleanFile,
    CleanMetadata,
    CleanPartition,
    OperationType,
    SavepointMetadata,
)
from tidelock.operations.read import snapshot_now
from tidelock.services.pending import planned_slices
from tidelock.services.plans import (
    ExecutedPlan,
    PlanDraft,
    PlannedService,
    claimed,
    commit_plan,
    schedule_plan,
)
from tidelock.services.read_leases import leased_since
from tidelock.txn.commit import CommitDraft
from tidelock.txn.footprint import CommitKind


class CleanPolicy(StrEnum):
    """Hudi's retention policies."""

    COMMITS = "KEEP_LATEST_COMMITS"
    VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
    HOURS = "KEEP_LATEST_BY_HOURS"


COMMITS_RETAINED: Final = 10
FILE_VERSIONS_RETAINED: Final = 3


@dataclass(frozen=True, slots=True)
class Retention:
    """A retention policy with its number of commits or file versions, or its start time."""

    policy: CleanPolicy = CleanPolicy.COMMITS
    commits: int = COMMITS_RETAINED
    versions: int = FILE_VERSIONS_RETAINED
    since: str = ""


@dataclass(frozen=True, slots=True)
class RetainedFiles:
    """Files that must be kept at any age.

    `files` are the keys of files in savepoints. `slices` are those that pending plans read, as file
    group and instant. `replaced` are file groups that a completed replacecommit replaced, with its
    request time. `leased_since` is the earliest instant that a reader holds a lease for.
    """

    files: frozenset[str] = frozenset()
    slices: frozenset[tuple[GroupId, str]] = frozenset()
    replaced: Mapping[GroupId, str] = field(default_factory=dict)
    leased_since: str | None = None


def earliest_to_retain(
    retention: Retention, completed: Sequence[Instant], pending: Iterable[str]
) -> Instant | None:
    """Return the oldest commit at which the table must stay readable; None to keep all.

    `completed` are the table's completed writes by request time. A pending write may still read its
    snapshot, so nothing that was current at its start is cleaned.
    """
    at = _first_kept(retention, completed)
    oldest_pending = min(pending, default="~")
    while at > 0 and completed[at].requested > oldest_pending:
        at -= 1
    return completed[at] if at else None


def _first_kept(retention: Retention, completed: Sequence[Instant]) -> int:
    """Return the index of the oldest commit that the policy retains; 0 if it retains all."""
    match retention.policy:
        case CleanPolicy.VERSIONS:
            return 0
        case CleanPolicy.COMMITS:
            return max(0, len(completed) - retention.commits)
        case CleanPolicy.HOURS:
            older = sum(1 for instant in completed if instant.requested < retention.since)
            # If all are older, the last one is still the current state.
            return min(older, max(0, len(completed) - 1))


def files_to_delete(
    groups: Iterable[FileGroup],
    retention: Retention,
    retained: RetainedFiles,
    earliest: Instant | None,
) -> dict[str, tuple[DataFile, ...]]:
    """Return the files to delete by partition, ordered by name."""
    found: dict[str, list[DataFile]] = {}
    for group in groups:
        for piece in _obsolete(group, retention, retained, earliest):
            for file in files_in(piece):
                if file.key not in retained.files:
                    found.setdefault(group.partition, []).append(file)
    return {
        partition: tuple(sorted(files, key=lambda file: file.name))
        for partition, files in sorted(found.items())
    }


def _obsolete(
    group: FileGroup, retention: Retention, retained: RetainedFiles, earliest: Instant | None
) -> Sequence[FileSlice]:
    replaced_at = retained.replaced.get(group.group_id)
    if retention.policy is CleanPolicy.VERSIONS:
        versions = _versions(group.slices)
        old: Sequence[FileSlice] = ()
        if replaced_at is not None:
            old = group.slices
        elif len(versions) > retention.versions:
            old = group.slices[: versions[-retention.versions]]
    elif earliest is None:
        return ()
    elif replaced_at is not None and replaced_at < earliest.requested:
        old = group.slices
    else:
        old = _before(group.slices, earliest.requested)
    if retained.leased_since is not None and (
        replaced_at is None or replaced_at >= retained.leased_since
    ):
        unread = _before(group.slices, retained.leased_since)
        old = [piece for piece in old if piece in unread]
    return [piece for piece in old if (group.group_id, piece.instant) not in retained.slices]


def _before(slices: Sequence[FileSlice], earliest: str) -> Sequence[FileSlice]:
    """Return the slices older than the one that a reader at `earliest` sees."""
    started = [number for number in _versions(slices) if slices[number].instant <= earliest]
    return slices[: started[-1]] if started else ()


def _versions(slices: Sequence[FileSlice]) -> list[int]:
    """Return the indexes of the slices that can be read without the slices before them.

    After a compaction is planned, a slice with only log files begins. It is read together with the
    slice before it, which need not be the planned one: a concurrent write may have added a base
    file since.
    """
    return [number for number, piece in enumerate(slices) if piece.base or not number]


def files_in(piece: FileSlice) -> tuple[DataFile, ...]:
    """Return the base file and the log files of a slice."""
    return (*((piece.base,) if piece.base else ()), *piece.logs)


@dataclass(frozen=True, slots=True)
class Clean(PlannedService):
    """Clean of one table."""

    action = Action.CLEAN

    def schedule(self, retention: Retention) -> str | None:
        """Schedule a plan and return its instant; None if there is nothing to delete."""

        def make() -> PlanDraft | None:
            state = self.writer.transactions.ledger.refresh()
            plan = self.plan(retention)
            return None if plan is None else PlanDraft(plan, state)

        return schedule_plan(self.writer.transactions, self.action, make)

    def plan(self, retention: Retention) -> CleanerPlan | None:
        """Return the plan that would be scheduled now; None if there is nothing to delete."""
        snapshot = snapshot_now(self.writer.store)
        completed = snapshot.timeline.writes()
        pending = [i.requested for i in snapshot.timeline.pending() if i.action.writes_data]
        earliest = earliest_to_retain(retention, completed, pending)
        if earliest is None and retention.policy is not CleanPolicy.VERSIONS:
            return None
        leased = leased_since(self.writer.store, self.writer.transactions.clock)
        retained = replace(_retained(snapshot), leased_since=leased)
        found = files_to_delete(snapshot.groups(with_replaced=True), retention, retained, earliest)
        if not found:
            return None
        base = self.writer.store.uri
        return CleanerPlan(
            policy=retention.policy.value,
            earliest_instant_to_retain=(
                ActionInstant(earliest.requested, earliest.action.value, earliest.state.name)
                if earliest
                else None
            ),
            last_completed_commit_timestamp=completed[-1].requested,
            file_paths_to_be_deleted_per_partition={
                partition: tuple(CleanFile(f"{base}/{file.key}") for file in files)
                for partition, files in found.items()
            },
        )

    def execute(self, instant: str) -> ExecutedPlan:
        writer = self.writer
        with claimed(writer.transactions, instant, OperationType.UNKNOWN) as transaction:
            timeline = load_timeline(writer.store, writer.properties.timeline_folder)
            plan = timeline.read(CleanerPlan, Instant(instant, self.action, InstantState.REQUESTED))
            began_ms = writer.transactions.clock.now().monotonic_ms
            partitions = {
                partition: self._delete(plan.policy, partition, files)
                for partition, files in (plan.file_paths_to_be_deleted_per_partition or {}).items()
            }
            earliest = plan.earliest_instant_to_retain
            metadata = CleanMetadata(
                start_clean_time=instant,
                time_taken_in_millis=writer.transactions.clock.now().monotonic_ms - began_ms,
                total_files_deleted=sum(len(p.success_delete_files) for p in partitions.values()),
                earliest_commit_to_retain=earliest.timestamp if earliest else "",
                last_completed_commit_timestamp=plan.last_completed_commit_timestamp,
                partition_metadata=partitions,
            )
            draft = CommitDraft(metadata, OperationType.UNKNOWN, commit_kind=CommitKind.CLEAN)
            return commit_plan(transaction, draft)

    def _delete(self, policy: str, partition: str, files: Iterable[CleanFile]) -> CleanPartition:
        # A plan has absolute paths, and the table may have been moved since.
        names = sorted((file.file_path or "").rpartition("/")[2] for file in files)
        for name in names:
            self.writer.store.delete(f"{partition}/{name}" if partition else name)
        return CleanPartition(
            partition_path=partition,
            policy=policy,
            delete_path_patterns=tuple(names),
            success_delete_files=tuple(names),
        )


def _retained(snapshot: TableSnapshot) -> RetainedFiles:
    return RetainedFiles(
        files=frozenset(
            key
            for instant in snapshot.timeline.completed(Action.SAVEPOINT)
            for key in savepointed_files(snapshot.timeline, instant)
        ),
        slices=frozenset(planned_slices(snapshot.timeline)),
        replaced=snapshot.replaced,
    )


def savepointed_files(timeline: ActiveTimeline, savepoint: Instant) -> Iterator[str]:
    """Yield the keys of the files in a savepoint."""
    for partition, each in timeline.read(SavepointMetadata, savepoint).partition_metadata.items():
        for name in each.savepoint_data_file:
            yield f"{partition}/{name}" if partition else name
