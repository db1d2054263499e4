"""What the timeline's files say: one dataclass per Avro record, with its fields in snake case.

A map or list that Java cannot bear to be null is not optional here, so it is never written as null:
a null `partitionToWriteStats` or `extraMetadata` makes a table unreadable for Java. Everything
else that Avro calls nullable is optional, and comes back as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final

from tidelock.table.timeline import schemas
from tidelock.table.timeline.instant import Action, State
from tidelock.table.timeline.schemas import Schema

NO_COMMIT: Final = "null"
"""What a write stat names as the previous commit of a file group that had none."""

SCHEMA_KEY: Final = "schema"
"""Where a commit's extra metadata has the table's schema as Avro JSON, without meta columns."""


class OperationType(StrEnum):
    """The operations that Java knows; it refuses a table whose metadata names another."""

    INSERT = "INSERT"
    INSERT_PREPPED = "INSERT_PREPPED"
    UPSERT = "UPSERT"
    UPSERT_PREPPED = "UPSERT_PREPPED"
    BULK_INSERT = "BULK_INSERT"
    BULK_INSERT_PREPPED = "BULK_INSERT_PREPPED"
    DELETE = "DELETE"
    DELETE_PREPPED = "DELETE_PREPPED"
    BOOTSTRAP = "BOOTSTRAP"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    BUCKET_RESCALE = "BUCKET_RESCALE"
    CLUSTER = "CLUSTER"
    DELETE_PARTITION = "DELETE_PARTITION"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    COMPACT = "COMPACT"
    INDEX = "INDEX"
    ALTER_SCHEMA = "ALTER_SCHEMA"
    LOG_COMPACT = "LOG_COMPACT"
    UNKNOWN = "UNKNOWN"


class TimelineRecord:
    """What a whole file of the timeline holds."""

    __slots__ = ()

    SCHEMA: ClassVar[Schema]


@dataclass(frozen=True, slots=True)
class RuntimeStats:
    """How long the writing of a file took, in milliseconds."""

    total_scan_time: int | None = None
    total_create_time: int | None = None
    total_upsert_time: int | None = None


@dataclass(frozen=True, slots=True)
class WriteStat:
    """One file that a write made: which file group it belongs to, and what is in it."""

    file_id: str | None = None
    path: str | None = None
    prev_commit: str | None = None
    num_writes: int | None = 0
    num_deletes: int | None = 0
    num_update_writes: int | None = 0
    total_write_bytes: int | None = 0
    total_write_errors: int | None = 0
    partition_path: str | None = None
    total_log_records: int | None = 0
    total_log_files: int | None = None
    total_updated_records_compacted: int | None = 0
    num_inserts: int | None = 0
    total_log_blocks: int | None = 0
    total_corrupt_log_block: int | None = 0
    total_rollback_blocks: int | None = 0
    file_size_in_bytes: int | None = 0
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    cdc_stats: Mapping[str, int] | None = None
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime_stats: RuntimeStats | None = None
    total_log_files_compacted: int | None = 0
    total_log_read_time_ms: int | None = 0
    total_log_size_compacted: int | None = 0
    temp_path: str | None = None
    num_updates: int | None = 0


@dataclass(frozen=True, slots=True)
class CommitMetadata(TimelineRecord):
    """What a commit, deltacommit or compaction wrote. The partition of a flat table is ""."""

    SCHEMA: ClassVar[Schema] = schemas.COMMIT

    partition_to_write_stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    compacted: bool | None = False
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    version: int | None = None
    operation_type: str | None = None

    @property
    def schema_json(self) -> str:
        """The table's schema as of this commit; "" if it does not say."""
        return self.extra_metadata.get(SCHEMA_KEY, "")

    @property
    def paths(self) -> frozenset[str]:
        """The files that it wrote, change feeds included, relative to the base path."""
        return frozenset(
            path
            for stats in self.partition_to_write_stats.values()
            for stat in stats
            for path in (stat.path, *(stat.cdc_stats or ()))
            if path
        )


@dataclass(frozen=True, slots=True)
class ReplaceCommitMetadata(CommitMetadata):
    """What an overwrite, a deletion of partitions or a clustering wrote, and what it replaced."""

    SCHEMA: ClassVar[Schema] = schemas.REPLACE_COMMIT

    partition_to_replace_file_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """A file slice that a clustering reads."""

    data_file_path: str | None = None
    delta_file_paths: tuple[str, ...] | None = ()
    file_id: str | None = None
    partition_path: str | None = None
    bootstrap_file_path: str | None = ""
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """File slices that are written anew together."""

    slices: tuple[SliceInfo, ...] | None = ()
    metrics: Mapping[str, float] | None = None
    num_output_file_groups: int | None = 1
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class ClusteringStrategy:
    """The Java class that executes a plan, and its parameters."""

    strategy_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """What a clustering will do."""

    input_groups: tuple[ClusteringGroup, ...] | None = ()
    strategy: ClusteringStrategy | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1
    preserve_hoodie_metadata: bool | None = True
    missing_schedule_partitions: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RequestedReplaceMetadata(TimelineRecord):
    """The request of a replacecommit or clustering; all empty for an overwrite."""

    SCHEMA: ClassVar[Schema] = schemas.REQUESTED_REPLACE

    operation_type: str | None = None
    clustering_plan: ClusteringPlan | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file slice to compact. Paths are file names only, since version 2 of the plan."""

    base_instant_time: str | None
    file_id: str | None
    delta_file_paths: tuple[str, ...] | None = ()
    data_file_path: str | None = None
    partition_path: str | None = None
    metrics: Mapping[str, float] | None = None
    bootstrap_file_path: str | None = None


@dataclass(frozen=True, slots=True)
class CompactionStrategy:
    """The Java class that executes a plan, and its parameters."""

    compactor_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class CompactionPlan(TimelineRecord):
    """What a compaction or log compaction will do."""

    SCHEMA: ClassVar[Schema] = schemas.COMPACTION_PLAN

    operations: tuple[CompactionOperation, ...] | None = ()
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 2
    strategy: CompactionStrategy | None = None
    preserve_hoodie_metadata: bool | None = True
    missing_schedule_partitions: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True)
class ActionInstant:
    """An instant, as a clean plan names it."""

    timestamp: str
    action: str
    state: str


@dataclass(frozen=True, slots=True)
class CleanFile:
    """A file to delete, by its absolute path."""

    file_path: str | None = None
    is_bootstrap_base_file: bool | None = False


@dataclass(frozen=True, slots=True)
class CleanerPlan(TimelineRecord):
    """What a clean will delete."""

    SCHEMA: ClassVar[Schema] = schemas.CLEANER_PLAN

    policy: str
    earliest_instant_to_retain: ActionInstant | None = None
    last_completed_commit_timestamp: str = ""
    files_to_be_deleted_per_partition: Mapping[str, tuple[str, ...]] | None = field(
        default_factory=dict
    )
    version: int | None = 2
    file_paths_to_be_deleted_per_partition: Mapping[str, tuple[CleanFile, ...]] | None = field(
        default_factory=dict
    )
    partitions_to_be_deleted: tuple[str, ...] | None = ()
    extra_metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CleanPartition:
    """What a clean deleted in a partition, by file name."""

    partition_path: str
    policy: str
    delete_path_patterns: tuple[str, ...] = ()
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    is_partition_deleted: bool | None = False


@dataclass(frozen=True, slots=True)
class CleanMetadata(TimelineRecord):
    """What a clean deleted. The next Java clean looks only at commits it says are kept."""

    SCHEMA: ClassVar[Schema] = schemas.CLEAN

    start_clean_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    earliest_commit_to_retain: str
    last_completed_commit_timestamp: str = ""
    partition_metadata: Mapping[str, CleanPartition] = field(default_factory=dict)
    version: int | None = 2
    bootstrap_partition_metadata: Mapping[str, CleanPartition] | None = field(default_factory=dict)
    extra_metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class InstantInfo:
    """An instant, as rollbacks and restores name it."""

    commit_time: str
    action: str


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """Files of one partition that a rollback deletes, by absolute path."""

    partition_path: str
    file_id: str | None = ""
    latest_base_instant: str | None = ""
    files_to_be_deleted: tuple[str, ...] = ()
    log_blocks_to_be_deleted: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackPlan(TimelineRecord):
    """What a rollback will undo."""

    SCHEMA: ClassVar[Schema] = schemas.ROLLBACK_PLAN

    instant_to_rollback: InstantInfo | None = None
    rollback_requests: tuple[RollbackRequest, ...] | None = field(
        default=(), metadata={"avro": "RollbackRequests"}
    )
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class RollbackPartition:
    """What a rollback deleted in a partition."""

    partition_path: str
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    rollback_log_files: Mapping[str, int] | None = field(default_factory=dict)
    log_files_from_failed_commit: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackMetadata(TimelineRecord):
    """What a rollback undid."""

    SCHEMA: ClassVar[Schema] = schemas.ROLLBACK

    start_rollback_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    commits_rollback: tuple[str, ...] = ()
    partition_metadata: Mapping[str, RollbackPartition] = field(default_factory=dict)
    version: int | None = 1
    instants_rollback: tuple[InstantInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class RestorePlan(TimelineRecord):
    """Which instants a restore will roll back, newest first."""

    SCHEMA: ClassVar[Schema] = schemas.RESTORE_PLAN

    instants_to_rollback: tuple[InstantInfo, ...] = ()
    version: int | None = 2
    savepoint_to_restore_timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreMetadata(TimelineRecord):
    """Which instants a restore rolled back."""

    SCHEMA: ClassVar[Schema] = schemas.RESTORE

    start_restore_time: str
    time_taken_in_millis: int
    instants_to_rollback: tuple[str, ...] = ()
    hoodie_restore_metadata: Mapping[str, tuple[RollbackMetadata | None, ...]] = field(
        default_factory=dict
    )
    version: int | None = 1
    restore_instant_info: tuple[InstantInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class SavepointPartition:
    """The files of a partition that a savepoint keeps, by name."""

    partition_path: str
    savepoint_data_file: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavepointMetadata(TimelineRecord):
    """Who keeps a commit from being cleaned, since when and why."""

    SCHEMA: ClassVar[Schema] = schemas.SAVEPOINT

    savepointed_by: str
    savepointed_at: int
    comments: str
    partition_metadata: Mapping[str, SavepointPartition] = field(default_factory=dict)
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class IndexPartition:
    """A partition of the metadata table that an indexing builds, and up to where."""

    version: int | None = 1
    metadata_partition_path: str | None = None
    index_upto_instant: str | None = None
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexPlan(TimelineRecord):
    """What an indexing will build."""

    SCHEMA: ClassVar[Schema] = schemas.INDEX_PLAN

    version: int | None = 1
    index_partition_infos: tuple[IndexPartition, ...] | None = ()


@dataclass(frozen=True, slots=True)
class IndexCommitMetadata(TimelineRecord):
    """What an indexing built."""

    SCHEMA: ClassVar[Schema] = schemas.INDEX_COMMIT

    version: int | None = 1
    operation_type: str | None = None
    index_partition_infos: tuple[IndexPartition, ...] | None = ()


CONTENT: Final[Mapping[tuple[Action, State], type[TimelineRecord]]] = {
    (Action.COMMIT, State.INFLIGHT): CommitMetadata,
    (Action.COMMIT, State.COMPLETED): CommitMetadata,
    (Action.DELTA_COMMIT, State.INFLIGHT): CommitMetadata,
    (Action.DELTA_COMMIT, State.COMPLETED): CommitMetadata,
    (Action.REPLACE_COMMIT, State.REQUESTED): RequestedReplaceMetadata,
    (Action.REPLACE_COMMIT, State.INFLIGHT): CommitMetadata,
    (Action.REPLACE_COMMIT, State.COMPLETED): ReplaceCommitMetadata,
    (Action.CLUSTERING, State.REQUESTED): RequestedReplaceMetadata,
    (Action.COMPACTION, State.REQUESTED): CompactionPlan,
    (Action.LOG_COMPACTION, State.REQUESTED): CompactionPlan,
    (Action.CLEAN, State.REQUESTED): CleanerPlan,
    (Action.CLEAN, State.INFLIGHT): CleanerPlan,
    (Action.CLEAN, State.COMPLETED): CleanMetadata,
    (Action.ROLLBACK, State.REQUESTED): RollbackPlan,
    (Action.ROLLBACK, State.COMPLETED): RollbackMetadata,
    (Action.RESTORE, State.REQUESTED): RestorePlan,
    (Action.RESTORE, State.COMPLETED): RestoreMetadata,
    (Action.SAVEPOINT, State.COMPLETED): SavepointMetadata,
    (Action.INDEXING, State.REQUESTED): IndexPlan,
    (Action.INDEXING, State.COMPLETED): IndexCommitMetadata,
}
"""What a file of the timeline holds, if anything. Only a completed file is never empty."""
