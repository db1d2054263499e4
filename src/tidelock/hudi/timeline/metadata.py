"""The content of timeline files: one dataclass per Avro record, with fields in snake case.

The Avro schemas are derived from the dataclasses. Fields are in the order of the Avro record.

Maps and lists that Java requires to be non-null are not optional here, so they are never written as
null: a null `partitionToWriteStats` or `extraMetadata` makes a table unreadable for Java. All other
nullable Avro fields are optional and round-trip unchanged.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import fastavro

from tidelock.core.errors import DataCorrupt, InvalidInput
from tidelock.hudi.timeline.instant import Action, InstantState

NO_COMMIT: Final = "null"
"""The previous commit in the write stat of a new file group."""

SCHEMA_KEY: Final = "schema"
"""The key of the table schema in a commit's extra metadata: Avro JSON without meta columns."""


class OperationType(StrEnum):
    """The operations known to Java, which rejects metadata with any other."""

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


class AvroRecord:
    """A dataclass that `avro_schema` derives an Avro record from."""

    __slots__ = ()

    AVRO_NAME: ClassVar[str]

    def __init_subclass__(cls, *, avro_name: str = "") -> None:
        """Set the name of the Avro record."""
        if avro_name:
            cls.AVRO_NAME = avro_name


class TimelineRecord(AvroRecord):
    """The content of a timeline file."""

    __slots__ = ()


# Details of Avro fields that do not follow from the type of the dataclass's field.
_INT: Final = {"type": "int"}
_NULLABLE: Final = {"default": None}
_EMPTY_LIST: Final[Mapping[str, Any]] = {"default": []}
_EMPTY_TEXT: Final = {"default": ""}
_Version = Annotated[int | None, {"type": ["int", "null"], "default": 1}]


@dataclass(frozen=True, slots=True)
class RuntimeStats(AvroRecord, avro_name="HoodieRuntimeStats"):
    """The time it took to write a file, in milliseconds."""

    total_scan_time: int | None = None
    total_create_time: int | None = None
    total_upsert_time: int | None = None


@dataclass(frozen=True, slots=True)
class WriteStat(AvroRecord, avro_name="HoodieWriteStat"):
    """A file written by a write: its file group and statistics of its content."""

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
    log_version: Annotated[int | None, {"type": ["null", "int"]}] = None
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
class CommitMetadata(TimelineRecord, avro_name="HoodieCommitMetadata"):
    """The content of a commit, deltacommit or compaction.

    The partition of a non-partitioned table is "".
    """

    partition_to_write_stats: Annotated[Mapping[str, tuple[WriteStat, ...]], _NULLABLE] = field(
        default_factory=dict
    )
    compacted: bool | None = False
    extra_metadata: Annotated[Mapping[str, str], _NULLABLE] = field(default_factory=dict)
    version: _Version = None
    operation_type: str | None = None

    @property
    def schema_json(self) -> str:
        """The table's schema as of this commit; "" if it is not recorded."""
        return self.extra_metadata.get(SCHEMA_KEY, "")

    @property
    def paths(self) -> frozenset[str]:
        """The files written, including CDC files, relative to the base path."""
        return frozenset(
            path
            for stats in self.partition_to_write_stats.values()
            for stat in stats
            for path in (stat.path, *(stat.cdc_stats or ()))
            if path
        )

    @property
    def replaced_groups(self) -> tuple[tuple[str, str], ...]:
        """Partition and file id of the file groups that the write replaced."""
        return ()


@dataclass(frozen=True, slots=True)
class ReplaceCommitMetadata(CommitMetadata, avro_name="HoodieReplaceCommitMetadata"):
    """The content of an overwrite, partition delete or clustering, with the replaced groups."""

    partition_to_replace_file_ids: Annotated[Mapping[str, tuple[str, ...]], _NULLABLE] = field(
        default_factory=dict
    )

    @property
    def replaced_groups(self) -> tuple[tuple[str, str], ...]:
        """Partition and file id of the file groups that the write replaced."""
        replaced = self.partition_to_replace_file_ids.items()
        return tuple((partition, file_id) for partition, ids in replaced for file_id in ids)


def commit_type(action: Action) -> type[CommitMetadata]:
    """Return the record type of completed writes of this action."""
    return ReplaceCommitMetadata if action is Action.REPLACE_COMMIT else CommitMetadata


@dataclass(frozen=True, slots=True)
class SliceInfo(AvroRecord, avro_name="HoodieSliceInfo"):
    """A file slice read by a clustering."""

    data_file_path: str | None = None
    delta_file_paths: tuple[str, ...] | None = ()
    file_id: str | None = field(kw_only=True)
    partition_path: str | None = None
    bootstrap_file_path: str | None = ""
    version: _Version = 1


@dataclass(frozen=True, slots=True)
class ClusteringGroup(AvroRecord, avro_name="HoodieClusteringGroup"):
    """File slices that are rewritten together."""

    slices: tuple[SliceInfo, ...] | None = ()
    metrics: Mapping[str, float] | None = None
    num_output_file_groups: Annotated[int | None, {"type": ["int", "null"], "default": 1}] = 1
    extra_metadata: Mapping[str, str] | None = None
    version: _Version = 1


@dataclass(frozen=True, slots=True)
class ClusteringStrategy(AvroRecord, avro_name="HoodieClusteringStrategy"):
    """The Java class that executes a plan, and its parameters."""

    strategy_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = None
    version: _Version = 1


@dataclass(frozen=True, slots=True)
class ClusteringPlan(AvroRecord, avro_name="HoodieClusteringPlan"):
    """The plan of a clustering."""

    input_groups: tuple[ClusteringGroup, ...] | None = ()
    strategy: ClusteringStrategy | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: _Version = 1
    preserve_hoodie_metadata: bool | None = True
    missing_schedule_partitions: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RequestedReplaceMetadata(TimelineRecord, avro_name="HoodieRequestedReplaceMetadata"):
    """The request of a replacecommit or clustering; empty for an overwrite."""

    operation_type: str | None = None
    clustering_plan: ClusteringPlan | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: _Version = None


@dataclass(frozen=True, slots=True)
class CompactionOperation(AvroRecord, avro_name="HoodieCompactionOperation"):
    """A file slice to compact. Since plan version 2, paths are file names only."""

    base_instant_time: str | None
    delta_file_paths: tuple[str, ...] | None = ()
    data_file_path: str | None = None
    file_id: str | None = field(kw_only=True)
    partition_path: str | None = None
    metrics: Mapping[str, float] | None = None
    bootstrap_file_path: str | None = None


@dataclass(frozen=True, slots=True)
class CompactionStrategy(AvroRecord, avro_name="HoodieCompactionStrategy"):
    """The Java class that executes a plan, and its parameters."""

    compactor_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = None
    version: _Version = 1


@dataclass(frozen=True, slots=True)
class CompactionPlan(TimelineRecord, avro_name="HoodieCompactionPlan"):
    """The plan of a compaction or log compaction."""

    operations: tuple[CompactionOperation, ...] | None = ()
    extra_metadata: Mapping[str, str] | None = None
    version: _Version = 2
    strategy: CompactionStrategy | None = None
    preserve_hoodie_metadata: Annotated[
        bool | None, {"type": ["boolean", "null"], "default": False}
    ] = True
    missing_schedule_partitions: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True)
class ActionInstant(AvroRecord, avro_name="HoodieActionInstant"):
    """An instant, as referenced by a clean plan."""

    timestamp: str
    action: str
    state: str


@dataclass(frozen=True, slots=True)
class CleanFile(AvroRecord, avro_name="HoodieCleanFileInfo"):
    """A file to delete, by its absolute path."""

    file_path: str | None = None
    is_bootstrap_base_file: bool | None = False


@dataclass(frozen=True, slots=True)
class CleanerPlan(TimelineRecord, avro_name="HoodieCleanerPlan"):
    """The plan of a clean."""

    earliest_instant_to_retain: ActionInstant | None = None
    last_completed_commit_timestamp: Annotated[str, _EMPTY_TEXT] = ""
    policy: str = field(kw_only=True)
    files_to_be_deleted_per_partition: Mapping[str, tuple[str, ...]] | None = field(
        default_factory=dict
    )
    version: _Version = 2
    file_paths_to_be_deleted_per_partition: Mapping[str, tuple[CleanFile, ...]] | None = field(
        default_factory=dict
    )
    partitions_to_be_deleted: tuple[str, ...] | None = ()
    extra_metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CleanPartition(AvroRecord, avro_name="HoodieCleanPartitionMetadata"):
    """The files that a clean deleted in a partition, by name."""

    partition_path: str
    policy: str
    delete_path_patterns: tuple[str, ...] = ()
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    is_partition_deleted: bool | None = False


@dataclass(frozen=True, slots=True)
class CleanMetadata(TimelineRecord, avro_name="HoodieCleanMetadata"):
    """The result of a clean. The next Java clean examines only the commits it retained."""

    start_clean_time: str
    time_taken_in_millis: int
    total_files_deleted: Annotated[int, _INT]
    earliest_commit_to_retain: str
    last_completed_commit_timestamp: Annotated[str, _EMPTY_TEXT] = ""
    partition_metadata: Mapping[str, CleanPartition] = field(default_factory=dict)
    version: _Version = 2
    bootstrap_partition_metadata: Mapping[str, CleanPartition] | None = field(default_factory=dict)
    extra_metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class InstantInfo(AvroRecord, avro_name="HoodieInstantInfo"):
    """An instant, as referenced by rollbacks and restores."""

    commit_time: str
    action: str


@dataclass(frozen=True, slots=True)
class RollbackRequest(AvroRecord, avro_name="HoodieRollbackRequest"):
    """The files of one partition that a rollback deletes, by absolute path."""

    partition_path: str
    file_id: str | None = ""
    latest_base_instant: str | None = ""
    files_to_be_deleted: Annotated[tuple[str, ...], _EMPTY_LIST] = ()
    log_blocks_to_be_deleted: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackPlan(TimelineRecord, avro_name="HoodieRollbackPlan"):
    """The plan of a rollback."""

    instant_to_rollback: InstantInfo | None = None
    rollback_requests: tuple[RollbackRequest, ...] | None = field(
        default=(), metadata={"avro": "RollbackRequests"}
    )
    version: _Version = 1


@dataclass(frozen=True, slots=True)
class RollbackPartition(AvroRecord, avro_name="HoodieRollbackPartitionMetadata"):
    """The files that a rollback deleted in a partition."""

    partition_path: str
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    rollback_log_files: Mapping[str, int] | None = field(default_factory=dict)
    log_files_from_failed_commit: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackMetadata(TimelineRecord, avro_name="HoodieRollbackMetadata"):
    """The result of a rollback."""

    start_rollback_time: str
    time_taken_in_millis: int
    total_files_deleted: Annotated[int, _INT]
    commits_rollback: tuple[str, ...] = ()
    partition_metadata: Mapping[str, RollbackPartition] = field(default_factory=dict)
    version: _Version = 1
    instants_rollback: Annotated[tuple[InstantInfo, ...], _EMPTY_LIST] = ()


@dataclass(frozen=True, slots=True)
class RestorePlan(TimelineRecord, avro_name="HoodieRestorePlan"):
    """The plan of a restore: the instants to roll back, newest first."""

    instants_to_rollback: Annotated[tuple[InstantInfo, ...], _EMPTY_LIST] = ()
    version: Annotated[int | None, {"type": ["int", "null"], "default": 2}] = 2
    savepoint_to_restore_timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreMetadata(TimelineRecord, avro_name="HoodieRestoreMetadata"):
    """The result of a restore: the instants that were rolled back."""

    start_restore_time: str
    time_taken_in_millis: int
    instants_to_rollback: tuple[str, ...] = ()
    hoodie_restore_metadata: Mapping[str, tuple[RollbackMetadata | None, ...]] = field(
        default_factory=dict
    )
    version: _Version = 1
    restore_instant_info: Annotated[tuple[InstantInfo, ...], _EMPTY_LIST] = ()


@dataclass(frozen=True, slots=True)
class SavepointPartition(AvroRecord, avro_name="HoodieSavepointPartitionMetadata"):
    """The files of a partition that a savepoint retains, by name."""

    partition_path: str
    savepoint_data_file: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavepointMetadata(TimelineRecord, avro_name="HoodieSavepointMetadata"):
    """A savepoint: who created it, when and why, and the files it retains."""

    savepointed_by: str
    savepointed_at: int
    comments: str
    partition_metadata: Mapping[str, SavepointPartition] = field(default_factory=dict)
    version: _Version = 1


@dataclass(frozen=True, slots=True)
class IndexPartition(AvroRecord, avro_name="HoodieIndexPartitionInfo"):
    """A metadata table partition that an indexing action builds, and its last instant."""

    version: _Version = 1
    metadata_partition_path: str | None = None
    index_upto_instant: str | None = None
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexPlan(TimelineRecord, avro_name="HoodieIndexPlan"):
    """The plan of an indexing action."""

    version: _Version = 1
    index_partition_infos: tuple[IndexPartition, ...] | None = ()


@dataclass(frozen=True, slots=True)
class IndexCommitMetadata(TimelineRecord, avro_name="HoodieIndexCommitMetadata"):
    """The result of an indexing action."""

    version: _Version = 1
    operation_type: str | None = None
    index_partition_infos: tuple[IndexPartition, ...] | None = ()


CONTENT: Final[Mapping[tuple[Action, InstantState], type[TimelineRecord]]] = {
    (Action.COMMIT, InstantState.INFLIGHT): CommitMetadata,
    (Action.COMMIT, InstantState.COMPLETED): CommitMetadata,
    (Action.DELTA_COMMIT, InstantState.INFLIGHT): CommitMetadata,
    (Action.DELTA_COMMIT, InstantState.COMPLETED): CommitMetadata,
    (Action.REPLACE_COMMIT, InstantState.REQUESTED): RequestedReplaceMetadata,
    (Action.REPLACE_COMMIT, InstantState.INFLIGHT): CommitMetadata,
    (Action.REPLACE_COMMIT, InstantState.COMPLETED): ReplaceCommitMetadata,
    (Action.CLUSTERING, InstantState.REQUESTED): RequestedReplaceMetadata,
    (Action.COMPACTION, InstantState.REQUESTED): CompactionPlan,
    (Action.LOG_COMPACTION, InstantState.REQUESTED): CompactionPlan,
    (Action.CLEAN, InstantState.REQUESTED): CleanerPlan,
    (Action.CLEAN, InstantState.INFLIGHT): CleanerPlan,
    (Action.CLEAN, InstantState.COMPLETED): CleanMetadata,
    (Action.ROLLBACK, InstantState.REQUESTED): RollbackPlan,
    (Action.ROLLBACK, InstantState.COMPLETED): RollbackMetadata,
    (Action.RESTORE, InstantState.REQUESTED): RestorePlan,
    (Action.RESTORE, InstantState.COMPLETED): RestoreMetadata,
    (Action.SAVEPOINT, InstantState.COMPLETED): SavepointMetadata,
    (Action.INDEXING, InstantState.REQUESTED): IndexPlan,
    (Action.INDEXING, InstantState.COMPLETED): IndexCommitMetadata,
}
"""The record type of each timeline file. Requested and inflight files may be empty."""


R = TypeVar("R", bound=TimelineRecord)

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_ONE_RECORD: Final = b"\x02"


def encode(metadata: TimelineRecord) -> bytes:
    """Encode the content of a timeline file.

    Raises: `InvalidInput` for a value that Avro cannot hold, or an operation unknown to Java.
    """
    if isinstance(metadata, CommitMetadata):
        _check_operation(metadata.operation_type)
    schema = _parsed_schema(cast("Any", type(metadata)))
    plain = io.BytesIO()
    try:
        record = _converter(cast("Any", type(metadata)), to_avro=True)(metadata)
        fastavro.schemaless_writer(plain, schema, record)
    except (ValueError, TypeError, OverflowError, KeyError, AttributeError) as error:
        raise InvalidInput(f"{type(metadata).__name__} cannot be encoded: {error}") from error
    block = plain.getvalue()
    sync = hashlib.sha256(block).digest()[:_SYNC_BYTES]
    head, size = _file_header(cast("Any", type(metadata))), io.BytesIO()
    fastavro.schemaless_writer(size, "long", len(block))
    return b"".join((head, sync, _ONE_RECORD, size.getvalue(), block, sync))


@cache
def _file_header(kind: Any) -> bytes:
    """Return the header that all files of a record type share, up to the sync marker."""
    file = io.BytesIO()
    fastavro.writer(file, _parsed_schema(kind), [], sync_marker=bytes(_SYNC_BYTES))
    return file.getvalue()[:-_SYNC_BYTES]


def _check_operation(operation: str | None) -> None:
    if operation is not None and operation not in OperationType.__members__:
        raise InvalidInput(
            f"unknown operation type {operation!r}",
            hint=f"use one of {', '.join(OperationType.__members__)}",
        )


def decode(kind: type[R], body: bytes, *, where: str) -> R:
    """Decode the content of a timeline file.

    Avro schema resolution applies to files of older and newer Hudi versions: missing fields take
    their defaults, unknown fields are ignored. Commits of old tables are JSON.
    Raises: `DataCorrupt` naming `where`.
    """
    if not body:
        _fail(where, "the file is empty")
    if body.startswith(b"{") and issubclass(kind, CommitMetadata):
        try:
            record = json.loads(body)
        except ValueError as error:
            _fail(where, f"invalid JSON: {error}", error)
    elif body.startswith(_MAGIC):
        record = _avro_record(kind, body, where)
    else:
        _fail(where, f"expected the Avro magic, found {body[:4]!r}")
    try:
        return cast("R", _converter(cast("Any", kind), to_avro=False)(record))
    except (TypeError, AttributeError, ValueError) as error:
        _fail(where, f"expected {kind.__name__}: {error}", error)


def _avro_record(kind: Any, body: bytes, where: str) -> Mapping[str, Any]:
    try:
        records = list(fastavro.reader(io.BytesIO(body), reader_schema=_parsed_schema(kind)))
    # fastavro raises many exception types on corrupt bytes; callers get one.
    except Exception as error:  # noqa: BLE001
        _fail(where, f"expected Avro {kind.AVRO_NAME}: {str(error) or type(error).__name__}")
    if len(records) != 1 or not isinstance(records[0], dict):
        _fail(where, f"expected one record, found {len(records)}")
    return records[0]


def _fail(where: str, problem: str, cause: Exception | None = None) -> NoReturn:
    raise DataCorrupt(
        f"{where} cannot be read: {problem}",
        hint="restore the file from a copy, or restore the table to an earlier instant",
    ) from cause


@cache
def _parsed_schema(kind: Any) -> Any:
    return fastavro.parse_schema(avro_schema(kind))


NAMESPACE: Final = "org.apache.hudi.avro.model"
_PRIMITIVES: Final = {str: "string", int: "long", float: "double", bool: "boolean"}


def avro_schema(kind: type[TimelineRecord]) -> dict[str, Any]:
    """Return the Avro schema of a timeline file, as written by Hudi 1.1."""
    schema: dict[str, Any] = _avro_type(kind, set())
    return schema


def _avro_type(hint: Any, defined: set[str]) -> Any:
    """Return the Avro type of a type hint.

    A record is defined at its first use, and referenced by name afterwards, as Avro requires.
    """
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return ["null", _avro_type(inner[0], defined)]
    if origin is tuple:
        return {"type": "array", "items": _avro_type(inner[0], defined)}
    if origin is Mapping:
        return {"type": "map", "values": _avro_type(inner[1], defined)}
    if hint.AVRO_NAME in defined:
        return f"{NAMESPACE}.{hint.AVRO_NAME}"
    defined.add(hint.AVRO_NAME)
    hints = get_type_hints(hint, include_extras=True)
    fields = [_avro_field(each, hints[each.name], defined) for each in dataclasses.fields(hint)]
    return {"type": "record", "name": hint.AVRO_NAME, "namespace": NAMESPACE, "fields": fields}


def _avro_field(field: dataclasses.Field[Any], hint: Any, defined: set[str]) -> dict[str, Any]:
    hint, details = get_args(hint) if get_origin(hint) is Annotated else (hint, {})
    found = {"name": _avro_name(field), "type": _avro_type(hint, defined), **details}
    if details == _NULLABLE:
        found["type"] = ["null", found["type"]]
    required = field.default is field.default_factory is dataclasses.MISSING
    if types.NoneType in get_args(hint) and not required:
        found.setdefault("default", None)
    return found


def _avro_name(field: dataclasses.Field[Any]) -> str:
    given: str | None = field.metadata.get("avro")
    return given or re.sub(r"_([a-z])", lambda found: found[1].upper(), field.name)


# A commit has dozens of values for each of its files, so a record is converted by one generated
# expression, without a call for each value.


@cache
def _converter(kind: Any, *, to_avro: bool) -> Callable[[Any], Any]:
    """Return the function that converts records of type `kind` to dicts with Avro names, or back.

    Back also means from JSON, in which fields may be absent.
    """
    expression = _conversion(kind, "each", to_avro=to_avro)
    return cast("Callable[[Any], Any]", eval(f"lambda each: {expression}"))  # noqa: S307


def _conversion(hint: Any, value: str, *, to_avro: bool) -> str:
    """Return an expression that converts the expression `value`, of type `hint`."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        converted = _conversion(inner[0], value, to_avro=to_avro)
        return value if converted == value else f"None if {value} is None else {converted}"
    if origin is tuple:
        items = f"[{_conversion(inner[0], 'each', to_avro=to_avro)} for each in {value} or ()]"
        return items if to_avro else f"tuple({items})"
    if origin is Mapping:
        item = _conversion(inner[1], "each", to_avro=to_avro)
        return f"{{key: {item} for key, each in ({value} or {{}}).items()}}"
    if dataclasses.is_dataclass(hint):
        return _avro_fields(hint, value) if to_avro else _dataclass_fields(hint, value)
    return value


def _avro_fields(kind: Any, record: str) -> str:
    hints = get_type_hints(kind)
    fields = (
        f"{_avro_name(f)!r}: {_conversion(hints[f.name], f'{record}.{f.name}', to_avro=True)}"
        for f in dataclasses.fields(kind)
    )
    return f"{{{', '.join(fields)}}}"


def _dataclass_fields(kind: Any, record: str) -> str:
    fields, hints = [], get_type_hints(kind)
    for f in dataclasses.fields(kind):
        value = f"{record}[{_avro_name(f)!r}]"
        if (default := {} if f.default_factory is dict else f.default) is not dataclasses.MISSING:
            # A field that is absent in JSON takes the default of the dataclass.
            value = f"{record}.get({_avro_name(f)!r}, {default!r})"
        fields.append(f"{f.name}={_conversion(hints[f.name], value, to_avro=False)}")
    return f"{kind.__name__}({', '.join(fields)})"
