"""The Avro schemas of the timeline's files, as Hudi 1.1 writes them. Pure.

A type is spelled out where it first occurs in a schema, and named after that, as Avro asks.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]
Field = dict[str, Any]

NAMESPACE: Final = "org.apache.hudi.avro.model"
_NONE: Final = object()


def _record(name: str, *fields: Field) -> Schema:
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": list(fields)}


def _field(name: str, kind: object, default: object = _NONE) -> Field:
    given = {} if default is _NONE else {"default": default}
    return {"name": name, "type": kind, **given}


def _optional(name: str, kind: object) -> Field:
    return _field(name, ["null", kind], None)


def _version(default: int = 1) -> Field:
    return _field("version", ["int", "null"], default)


def _array(items: object) -> Schema:
    return {"type": "array", "items": items}


def _map(values: object) -> Schema:
    return {"type": "map", "values": values}


def _named(schema: Schema) -> str:
    """Return the reference to a type that the same schema has spelled out before."""
    return f"{NAMESPACE}.{schema['name']}"


_STRINGS: Final = _array("string")

RUNTIME_STATS: Final = _record(
    "HoodieRuntimeStats",
    _optional("totalScanTime", "long"),
    _optional("totalCreateTime", "long"),
    _optional("totalUpsertTime", "long"),
)

WRITE_STAT: Final = _record(
    "HoodieWriteStat",
    _optional("fileId", "string"),
    _optional("path", "string"),
    _optional("prevCommit", "string"),
    _optional("numWrites", "long"),
    _optional("numDeletes", "long"),
    _optional("numUpdateWrites", "long"),
    _optional("totalWriteBytes", "long"),
    _optional("totalWriteErrors", "long"),
    _optional("partitionPath", "string"),
    _optional("totalLogRecords", "long"),
    _optional("totalLogFiles", "long"),
    _optional("totalUpdatedRecordsCompacted", "long"),
    _optional("numInserts", "long"),
    _optional("totalLogBlocks", "long"),
    _optional("totalCorruptLogBlock", "long"),
    _optional("totalRollbackBlocks", "long"),
    _optional("fileSizeInBytes", "long"),
    _optional("logVersion", "int"),
    _optional("logOffset", "long"),
    _optional("baseFile", "string"),
    _optional("logFiles", _STRINGS),
    _optional("cdcStats", _map("long")),
    _optional("prevBaseFile", "string"),
    _optional("minEventTime", "long"),
    _optional("maxEventTime", "long"),
    _optional("runtimeStats", RUNTIME_STATS),
    _optional("totalLogFilesCompacted", "long"),
    _optional("totalLogReadTimeMs", "long"),
    _optional("totalLogSizeCompacted", "long"),
    _optional("tempPath", "string"),
    _optional("numUpdates", "long"),
)

_COMMIT_FIELDS: Final = (
    _optional("partitionToWriteStats", _map(_array(WRITE_STAT))),
    _optional("compacted", "boolean"),
    _optional("extraMetadata", _map("string")),
    _version(),
    _optional("operationType", "string"),
)

COMMIT: Final = _record("HoodieCommitMetadata", *_COMMIT_FIELDS)

REPLACE_COMMIT: Final = _record(
    "HoodieReplaceCommitMetadata",
    *_COMMIT_FIELDS,
    _optional("partitionToReplaceFileIds", _map(_STRINGS)),
)

_SLICE_INFO: Final = _record(
    "HoodieSliceInfo",
    _optional("dataFilePath", "string"),
    _optional("deltaFilePaths", _STRINGS),
    _field("fileId", ["null", "string"]),
    _optional("partitionPath", "string"),
    _optional("bootstrapFilePath", "string"),
    _version(),
)

_CLUSTERING_GROUP: Final = _record(
    "HoodieClusteringGroup",
    _optional("slices", _array(_SLICE_INFO)),
    _optional("metrics", _map("double")),
    _field("numOutputFileGroups", ["int", "null"], 1),
    _optional("extraMetadata", _map("string")),
    _version(),
)

_CLUSTERING_STRATEGY: Final = _record(
    "HoodieClusteringStrategy",
    _optional("strategyClassName", "string"),
    _optional("strategyParams", _map("string")),
    _version(),
)

_CLUSTERING_PLAN: Final = _record(
    "HoodieClusteringPlan",
    _optional("inputGroups", _array(_CLUSTERING_GROUP)),
    _optional("strategy", _CLUSTERING_STRATEGY),
    _optional("extraMetadata", _map("string")),
    _version(),
    _optional("preserveHoodieMetadata", "boolean"),
    _optional("missingSchedulePartitions", _STRINGS),
)

REQUESTED_REPLACE: Final = _record(
    "HoodieRequestedReplaceMetadata",
    _optional("operationType", "string"),
    _optional("clusteringPlan", _CLUSTERING_PLAN),
    _optional("extraMetadata", _map("string")),
    _version(),
)

_COMPACTION_OPERATION: Final = _record(
    "HoodieCompactionOperation",
    _field("baseInstantTime", ["null", "string"]),
    _optional("deltaFilePaths", _STRINGS),
    _optional("dataFilePath", "string"),
    _field("fileId", ["null", "string"]),
    _optional("partitionPath", "string"),
    _optional("metrics", _map("double")),
    _optional("bootstrapFilePath", "string"),
)

_COMPACTION_STRATEGY: Final = _record(
    "HoodieCompactionStrategy",
    _optional("compactorClassName", "string"),
    _optional("strategyParams", _map("string")),
    _version(),
)

COMPACTION_PLAN: Final = _record(
    "HoodieCompactionPlan",
    _optional("operations", _array(_COMPACTION_OPERATION)),
    _optional("extraMetadata", _map("string")),
    _version(),
    _optional("strategy", _COMPACTION_STRATEGY),
    _field("preserveHoodieMetadata", ["boolean", "null"], default=False),
    _optional("missingSchedulePartitions", _STRINGS),
)

_ACTION_INSTANT: Final = _record(
    "HoodieActionInstant",
    _field("timestamp", "string"),
    _field("action", "string"),
    _field("state", "string"),
)

_CLEAN_FILE: Final = _record(
    "HoodieCleanFileInfo",
    _optional("filePath", "string"),
    _optional("isBootstrapBaseFile", "boolean"),
)

CLEANER_PLAN: Final = _record(
    "HoodieCleanerPlan",
    _optional("earliestInstantToRetain", _ACTION_INSTANT),
    _field("lastCompletedCommitTimestamp", "string", ""),
    _field("policy", "string"),
    _optional("filesToBeDeletedPerPartition", _map(_STRINGS)),
    _version(),
    _optional("filePathsToBeDeletedPerPartition", _map(_array(_CLEAN_FILE))),
    _optional("partitionsToBeDeleted", _STRINGS),
    _optional("extraMetadata", _map("string")),
)

_CLEAN_PARTITION: Final = _record(
    "HoodieCleanPartitionMetadata",
    _field("partitionPath", "string"),
    _field("policy", "string"),
    _field("deletePathPatterns", _STRINGS),
    _field("successDeleteFiles", _STRINGS),
    _field("failedDeleteFiles", _STRINGS),
    _optional("isPartitionDeleted", "boolean"),
)

CLEAN: Final = _record(
    "HoodieCleanMetadata",
    _field("startCleanTime", "string"),
    _field("timeTakenInMillis", "long"),
    _field("totalFilesDeleted", "int"),
    _field("earliestCommitToRetain", "string"),
    _field("lastCompletedCommitTimestamp", "string", ""),
    _field("partitionMetadata", _map(_CLEAN_PARTITION)),
    _version(),
    _optional("bootstrapPartitionMetadata", _map(_named(_CLEAN_PARTITION))),
    _optional("extraMetadata", _map("string")),
)

_INSTANT_INFO: Final = _record(
    "HoodieInstantInfo", _field("commitTime", "string"), _field("action", "string")
)

_ROLLBACK_REQUEST: Final = _record(
    "HoodieRollbackRequest",
    _field("partitionPath", "string"),
    _optional("fileId", "string"),
    _optional("latestBaseInstant", "string"),
    _field("filesToBeDeleted", _STRINGS, []),
    _optional("logBlocksToBeDeleted", _map("long")),
)

ROLLBACK_PLAN: Final = _record(
    "HoodieRollbackPlan",
    _optional("instantToRollback", _INSTANT_INFO),
    _optional("RollbackRequests", _array(_ROLLBACK_REQUEST)),
    _version(),
)

_ROLLBACK_PARTITION: Final = _record(
    "HoodieRollbackPartitionMetadata",
    _field("partitionPath", "string"),
    _field("successDeleteFiles", _STRINGS),
    _field("failedDeleteFiles", _STRINGS),
    _optional("rollbackLogFiles", _map("long")),
    _optional("logFilesFromFailedCommit", _map("long")),
)

ROLLBACK: Final = _record(
    "HoodieRollbackMetadata",
    _field("startRollbackTime", "string"),
    _field("timeTakenInMillis", "long"),
    _field("totalFilesDeleted", "int"),
    _field("commitsRollback", _STRINGS),
    _field("partitionMetadata", _map(_ROLLBACK_PARTITION)),
    _version(),
    _field("instantsRollback", _array(_INSTANT_INFO), []),
)

RESTORE_PLAN: Final = _record(
    "HoodieRestorePlan",
    _field("instantsToRollback", _array(_INSTANT_INFO), []),
    _version(2),
    _optional("savepointToRestoreTimestamp", "string"),
)

RESTORE: Final = _record(
    "HoodieRestoreMetadata",
    _field("startRestoreTime", "string"),
    _field("timeTakenInMillis", "long"),
    _field("instantsToRollback", _STRINGS),
    _field("hoodieRestoreMetadata", _map(_array(["null", ROLLBACK]))),
    _version(),
    _field("restoreInstantInfo", _array(_named(_INSTANT_INFO)), []),
)

_SAVEPOINT_PARTITION: Final = _record(
    "HoodieSavepointPartitionMetadata",
    _field("partitionPath", "string"),
    _field("savepointDataFile", _STRINGS),
)

SAVEPOINT: Final = _record(
    "HoodieSavepointMetadata",
    _field("savepointedBy", "string"),
    _field("savepointedAt", "long"),
    _field("comments", "string"),
    _field("partitionMetadata", _map(_SAVEPOINT_PARTITION)),
    _version(),
)

_INDEX_PARTITION: Final = _record(
    "HoodieIndexPartitionInfo",
    _version(),
    _optional("metadataPartitionPath", "string"),
    _optional("indexUptoInstant", "string"),
    _optional("extraMetadata", _map("string")),
)

INDEX_PLAN: Final = _record(
    "HoodieIndexPlan",
    _version(),
    _optional("indexPartitionInfos", _array(_INDEX_PARTITION)),
)

INDEX_COMMIT: Final = _record(
    "HoodieIndexCommitMetadata",
    _version(),
    _optional("operationType", "string"),
    _optional("indexPartitionInfos", _array(_INDEX_PARTITION)),
)
