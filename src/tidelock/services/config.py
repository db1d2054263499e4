"""Configuration of table services, by Hudi's keys with Hudi's defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

from tidelock.core.clock import Clock
from tidelock.core.config import ConfigKey, ConfigSection, boolean, comma_list
from tidelock.core.errors import ConfigInvalid
from tidelock.execution.filegroup.clustering import LayoutStrategy
from tidelock.execution.filegroup.parquet_splice import GROUP_BYTES_MIN
from tidelock.hudi.timeline.instant import format_time
from tidelock.services.archive import MAX_OPTION, MIN_OPTION, ArchiveBounds
from tidelock.services.clean import (
    COMMITS_RETAINED,
    FILE_VERSIONS_RETAINED,
    CleanPolicy,
    Retention,
)
from tidelock.services.clustering import (
    GROUP_BYTES_MAX,
    GROUPS_MAX,
    LAYOUT_PARAM,
    RECENT_PARTITIONS,
    SMALL_FILE_BYTES,
    SORT_PARAM,
    TARGET_FILE_BYTES,
    TARGET_PARAM,
    ClusteringRule,
    PartitionFilter,
    PartitionSelection,
)
from tidelock.services.compaction import (
    DAYS,
    DELTA_COMMITS,
    DELTA_SECONDS,
    IO_MB_MAX,
    CompactionPlanStrategy,
    CompactionRule,
    CompactionTrigger,
    TriggerRule,
)
from tidelock.services.ttl import PARTITIONS_PER_RUN_MAX, TtlRule, TtlStrategy

V = TypeVar("V")

_HOUR_MS: Final = 3_600_000

declare = ConfigSection.SERVICES.declare

SERVICES_ENABLED = declare(
    "hoodie.table.services.enabled",
    "run inline and async services as configured; false leaves all services to other processes",
    default=True,
)
COMPACT_INLINE = declare(
    "hoodie.compact.inline", "run a compaction after a write that makes one due", default=False
)
COMPACT_SCHEDULE_INLINE = declare(
    "hoodie.compact.schedule.inline",
    "schedule a compaction after a write that makes one due; another process executes it",
    default=False,
)
COMPACT_COMMITS = declare(
    "hoodie.compact.inline.max.delta.commits",
    "number of delta commits after which a compaction is due",
    default=DELTA_COMMITS,
)
COMPACT_SECONDS = declare(
    "hoodie.compact.inline.max.delta.seconds",
    "seconds after which a compaction is due",
    default=DELTA_SECONDS,
)
COMPACT_TRIGGER = declare(
    "hoodie.compact.inline.trigger.strategy",
    "condition that makes a compaction due",
    default=CompactionTrigger.NUM_COMMITS,
)
COMPACT_STRATEGY = declare(
    "hoodie.compaction.strategy",
    "strategy that selects and orders the file groups to compact; several class names, separated"
    " by commas, are applied in turn, with or without their package",
    default=CompactionPlanStrategy.LOG_FILE_SIZE.value,
    parse=str,
    choices=CompactionPlanStrategy,
)
COMPACT_IO_MB = declare(
    "hoodie.compaction.target.io",
    "maximum megabytes that one compaction plan reads and writes",
    default=IO_MB_MAX,
)
COMPACT_DAYS = declare(
    "hoodie.compaction.daybased.target.partitions",
    "number of latest partitions (days) that the day-based strategies compact",
    default=DAYS,
)
COMPACT_PATTERN = declare(
    "hoodie.compaction.partition.path.regex",
    "regular expression for the partitions that `PartitionRegexBasedCompactionStrategy` compacts",
    default="",
)
COMPACT_LOG_BYTES = declare(
    "hoodie.compaction.logfile.size.threshold",
    "minimum bytes of log files for `LogFileSizeBasedCompactionStrategy`",
    default=0,
)
COMPACT_LOG_FILES = declare(
    "hoodie.compaction.logfile.num.threshold",
    "minimum number of log files for `LogFileNumBasedCompactionStrategy`",
    default=0,
)
LOG_COMPACT_INLINE = declare(
    "hoodie.log.compaction.inline",
    "run a log compaction after a write that makes one due",
    default=False,
)
LOG_COMPACT_BLOCKS = declare(
    "hoodie.log.compaction.blocks.threshold",
    "number of log blocks from which a file group is due for log compaction",
    default=5,
)
CLEAN_AUTOMATIC = declare(
    "hoodie.clean.automatic",
    "clean after a write, every hoodie.clean.trigger.max.commits",
    default=True,
)
CLEAN_TRIGGER = declare(
    "hoodie.clean.trigger.max.commits",
    "clean and archive after one write in about this many ledger entries; Hudi's default, 1, costs"
    " every small write a listing of the table",
    default=20,
    aliases=("hoodie.clean.max.commits",),
)
CLEAN_POLICY = declare(
    "hoodie.clean.policy",
    "retention policy of the clean",
    default=CleanPolicy.COMMITS,
    aliases=("hoodie.cleaner.policy",),
)
CLEAN_COMMITS = declare(
    "hoodie.clean.commits.retained",
    "number of latest commits at which the table stays readable",
    default=COMMITS_RETAINED,
    aliases=("hoodie.cleaner.commits.retained",),
)
CLEAN_VERSIONS = declare(
    "hoodie.clean.fileversions.retained",
    "number of latest versions of a file group that are kept",
    default=FILE_VERSIONS_RETAINED,
    aliases=("hoodie.cleaner.fileversions.retained",),
)
CLEAN_HOURS = declare(
    "hoodie.clean.hours.retained",
    "hours for which the table stays readable",
    default=24,
    aliases=("hoodie.cleaner.hours.retained",),
)
ARCHIVE_AUTOMATIC = declare(
    "hoodie.archive.automatic",
    "archive after a write that exceeds hoodie.keep.max.commits",
    default=True,
)
ARCHIVE_MIN = declare(
    MIN_OPTION,
    "number of completed writes that stay on the active timeline when it is archived",
    default=20,
)
ARCHIVE_MAX = declare(
    MAX_OPTION,
    "number of completed writes on the active timeline above which it is archived",
    default=30,
)


def trigger_rule(settings: Mapping[str, object]) -> TriggerRule:
    """Return the trigger of compactions. Raises: `ConfigInvalid`."""
    return TriggerRule(
        COMPACT_TRIGGER.required(settings),
        COMPACT_COMMITS.required(settings),
        COMPACT_SECONDS.required(settings),
    )


def compaction_rule(settings: Mapping[str, object], clock: Clock) -> CompactionRule:
    """Return the rule of compaction plans. Raises: `ConfigInvalid`."""
    known = {strategy.value: strategy for strategy in CompactionPlanStrategy}
    given = COMPACT_STRATEGY.required(settings).split(",")
    strategies = [named_class(COMPACT_STRATEGY, each, known) for each in given]
    days = COMPACT_DAYS.required(settings)
    earliest = format_time(clock.now().wall_epoch_ms - days * 24 * _HOUR_MS)
    return CompactionRule(
        strategies[0],
        COMPACT_IO_MB.required(settings),
        COMPACT_LOG_BYTES.required(settings),
        COMPACT_LOG_FILES.required(settings),
        days,
        f"{earliest[:4]}-{earliest[4:6]}-{earliest[6:8]}",
        _pattern(COMPACT_PATTERN, settings),
        tuple(strategies[1:]),
    )


def clean_retention(settings: Mapping[str, object], clock: Clock) -> Retention:
    """Return the retention of the clean. Raises: `ConfigInvalid`."""
    hours = CLEAN_HOURS.positive(settings)
    return Retention(
        CLEAN_POLICY.required(settings),
        CLEAN_COMMITS.positive(settings),
        CLEAN_VERSIONS.positive(settings),
        format_time(clock.now().wall_epoch_ms - hours * _HOUR_MS),
    )


def archive_bounds(settings: Mapping[str, object]) -> ArchiveBounds:
    """Return the bounds of the active timeline. Raises: `ConfigInvalid`."""
    bounds = ArchiveBounds(ARCHIVE_MIN.required(settings), ARCHIVE_MAX.required(settings))
    return bounds.beyond_cleaning(CLEAN_COMMITS.required(settings))


CLUSTER_INLINE = declare(
    "hoodie.clustering.inline",
    "run a clustering after a write that makes one due",
    default=False,
    aliases=("hoodie.datasource.clustering.inline.enable",),
)
CLUSTER_SCHEDULE_INLINE = declare(
    "hoodie.clustering.schedule.inline",
    "schedule a clustering after a write that makes one due; another process executes it",
    default=False,
)
CLUSTER_COMMITS = declare(
    "hoodie.clustering.inline.max.commits",
    "number of commits after which a clustering is due",
    default=4,
)
CLUSTER_SMALL = declare(
    "hoodie.clustering.plan.strategy.small.file.limit",
    "base files smaller than this number of bytes are clustered",
    default=SMALL_FILE_BYTES,
)
CLUSTER_TARGET = declare(
    TARGET_PARAM,
    "target size in bytes of the files that clustering writes",
    default=TARGET_FILE_BYTES,
)
CLUSTER_GROUP = declare(
    "hoodie.clustering.plan.strategy.max.bytes.per.group",
    "maximum bytes of one clustering group",
    default=GROUP_BYTES_MAX,
)
CLUSTER_GROUPS = declare(
    "hoodie.clustering.plan.strategy.max.num.groups",
    "maximum number of clustering groups in one plan",
    default=GROUPS_MAX,
)
CLUSTER_SORT = declare(
    SORT_PARAM,
    "columns by which clustered rows are sorted, separated by commas",
    default="",
)
CLUSTER_LAYOUT = declare(
    LAYOUT_PARAM,
    "layout of rows that are sorted by several columns",
    default=LayoutStrategy.LINEAR.value,
    parse=str,
    choices=LayoutStrategy,
)
CLUSTER_STRATEGY = declare(
    "hoodie.clustering.plan.strategy.class",
    "plan strategy, by Hudi's class names: size based, recent days, selected partitions, single"
    " file sort",
    default="SparkSizeBasedClusteringPlanStrategy",
)
CLUSTER_FILTER = declare(
    "hoodie.clustering.plan.partition.filter.mode",
    "mode of selecting the partitions to cluster",
    default=PartitionSelection.NONE,
)
CLUSTER_RECENT = declare(
    "hoodie.clustering.plan.strategy.daybased.lookback.partitions",
    "number of latest partitions, by name, that RECENT_DAYS selects",
    default=RECENT_PARTITIONS,
)
CLUSTER_SKIPPED = declare(
    "hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions",
    "number of latest partitions that RECENT_DAYS skips",
    default=0,
)
CLUSTER_BEGIN = declare(
    "hoodie.clustering.plan.strategy.cluster.begin.partition",
    "first partition, by name, that SELECTED_PARTITIONS selects",
    default="",
)
CLUSTER_END = declare(
    "hoodie.clustering.plan.strategy.cluster.end.partition",
    "last partition, by name, that SELECTED_PARTITIONS selects",
    default="",
)
CLUSTER_SELECTED = declare(
    "hoodie.clustering.plan.strategy.partition.selected",
    "partitions to cluster, separated by commas; all if empty",
    default="",
)
CLUSTER_PATTERN = declare(
    "hoodie.clustering.plan.strategy.partition.regex.pattern",
    "regular expression that the partitions to cluster must match",
    default="",
)
CLUSTER_SINGLE = declare(
    "hoodie.clustering.plan.strategy.single.group.clustering.enabled",
    "also rewrite a group of one file; by default only if rows are sorted (Hudi's default is true)",
    parse=boolean,
)
CLUSTER_COPIED_MIN = declare(
    "tidelock.clustering.copied.row.group.min.bytes",
    "files whose row groups have at least this number of bytes on average are copied without"
    " decoding, unless rows are sorted; smaller row groups are joined",
    default=GROUP_BYTES_MIN,
)
CLUSTER_EXPIRES_MIN = declare(
    "hoodie.clustering.expiration.threshold.mins",
    "minutes after which a clean rolls back a removable plan (clustering, log compaction) that"
    " no process has started; a plan with a dead executor is rolled back at once",
    default=60,
    aliases=("table_service_rollback_delay",),
)
CLUSTER_REMOVABLE = declare(
    "tidelock.clustering.removable",
    "make clustering plans removable (RFC-79): started once, and rolled back if the executor dies;"
    " with false, plans stay pending and the next executor resumes them",
    default=True,
)
LOG_COMPACT_REMOVABLE = declare(
    "tidelock.log.compaction.removable",
    "make log compaction plans removable (RFC-79)",
    default=True,
)
EXPIRATIONS = declare(
    "hoodie.clustering.enable.expirations",
    "let a clean roll back removable plans with a dead executor or older than the threshold; with"
    " Hudi's default, false, a plan with a dead executor blocks its file groups forever",
    default=True,
)

COMPACT_ASYNC = declare(
    "hoodie.datasource.compaction.async.enable",
    "compact in a background thread when a write makes it due; Hudi's default, true, applies to"
    " its streaming writers",
    default=False,
)
CLUSTER_ASYNC = declare(
    "hoodie.clustering.async.enabled",
    "cluster in a background thread when writes make it due",
    default=False,
    aliases=("hoodie.datasource.clustering.async.enable",),
)
CLUSTER_ASYNC_COMMITS = declare(
    "hoodie.clustering.async.max.commits",
    "commits after which clustering in a background thread is due",
    default=4,
)
CLEAN_ASYNC = declare(
    "hoodie.clean.async.enabled",
    "clean in a background thread instead of after a write",
    default=False,
    aliases=("hoodie.clean.async",),
)
ARCHIVE_ASYNC = declare(
    "hoodie.archive.async", "archive in a background thread instead of after a write", default=False
)
TTL_INLINE = declare(
    "hoodie.partition.ttl.inline",
    "delete expired partitions when the table is cleaned after writes",
    default=False,
)
TTL_STRATEGY = declare(
    "hoodie.partition.ttl.management.strategy.type",
    "the start of a partition's age: its last write or its creation",
    default=TtlStrategy.LAST_WRITE,
)
TTL_STRATEGY_CLASS = declare(
    "hoodie.partition.ttl.strategy.class",
    "the same by Hudi's class name, `KeepByTimeStrategy` or `KeepByCreationTimeStrategy`;"
    " overrides the type",
    default="",
)
TTL_DAYS = declare(
    "hoodie.partition.ttl.strategy.days.retain",
    "days after which a partition expires; no partition expires if below 1",
    default=-1,
)
TTL_SELECTED = declare(
    "hoodie.partition.ttl.strategy.partition.selected",
    "partitions that may expire, separated by commas; all if empty",
    default="",
)
TTL_MOST = declare(
    "hoodie.partition.ttl.strategy.max.delete.partitions",
    "maximum number of partitions that one run deletes",
    default=PARTITIONS_PER_RUN_MAX,
)
LEASE_MS = declare(
    "tidelock.read.lease.ms",
    "lifetime of a reader lease: while it is valid, cleans by Tidelock keep the files that an open"
    " table reads. It is renewed while the table is open. 0 disables leases",
    default=0,
)
SPARK_DRIVER_BYTES = declare(
    "tidelock.spark.services.driver.max.bytes",
    "a table service whose input has at most this number of stored bytes runs in the Spark driver;"
    " default: 8 MB, or no limit with a local Spark master",
    parse=int,
)

_SINGLE_FILE: Final = "SparkSingleFileSortPlanStrategy"
_STRATEGIES: Final[Mapping[str, PartitionSelection | None]] = {
    "SparkSizeBasedClusteringPlanStrategy": None,
    "JavaSizeBasedClusteringPlanStrategy": None,
    "FlinkSizeBasedClusteringPlanStrategy": None,
    # Copies files without decoding them, as is done here wherever possible.
    "SparkStreamCopyClusteringPlanStrategy": None,
    "SparkRecentDaysClusteringPlanStrategy": PartitionSelection.RECENT_DAYS,
    "FlinkRecentDaysClusteringPlanStrategy": PartitionSelection.RECENT_DAYS,
    "JavaRecentDaysClusteringPlanStrategy": PartitionSelection.RECENT_DAYS,
    "SparkSelectedPartitionsClusteringPlanStrategy": PartitionSelection.SELECTED_PARTITIONS,
    _SINGLE_FILE: None,
}
"""Hudi's plan strategy classes, and the partition selection that some of them imply."""


def clustering_rule(settings: Mapping[str, object], clock: Clock) -> ClusteringRule:
    """Return the rule of clustering plans. Raises: `ConfigInvalid`."""
    given = CLUSTER_STRATEGY.required(settings)
    selection = named_class(CLUSTER_STRATEGY, given, _STRATEGIES)
    sorted_by = sort_columns(settings)
    file_by_file = given.endswith(_SINGLE_FILE)
    if file_by_file and not sorted_by:
        raise ConfigInvalid(
            f"{CLUSTER_STRATEGY.key}: {_SINGLE_FILE} needs sort columns, and there are none",
            hint=f"set {CLUSTER_SORT.key}",
        )
    single = CLUSTER_SINGLE.value(settings)
    return ClusteringRule(
        CLUSTER_SMALL.required(settings),
        CLUSTER_TARGET.required(settings),
        CLUSTER_GROUP.required(settings),
        CLUSTER_GROUPS.required(settings),
        single_files=bool(sorted_by) if single is None else single,
        file_by_file=file_by_file,
        partitions=_partitions(settings, selection, clock),
    )


def clustering_layout(settings: Mapping[str, object]) -> LayoutStrategy:
    """Return the layout of rows sorted by several columns. Raises: `ConfigInvalid`."""
    given = CLUSTER_LAYOUT.required(settings)
    # Hudi also accepts the names of its constants.
    name = given.lower().replace("_", "-").replace("zorder", "z-order")
    if name not in [layout.value for layout in LayoutStrategy]:
        raise CLUSTER_LAYOUT.unknown_value(given)
    return LayoutStrategy(name)


def sort_columns(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the columns by which clustered rows are sorted."""
    return comma_list(CLUSTER_SORT.required(settings))


_TTL_STRATEGIES: Final = {
    "KeepByTimeStrategy": TtlStrategy.LAST_WRITE,
    "KeepByCreationTimeStrategy": TtlStrategy.CREATION,
}


def ttl_rule(settings: Mapping[str, object]) -> TtlRule | None:
    """Return the TTL of partitions; None if they never expire. Raises: `ConfigInvalid`."""
    given = TTL_STRATEGY_CLASS.required(settings)
    strategy = (
        named_class(TTL_STRATEGY_CLASS, given, _TTL_STRATEGIES)
        if given
        else TTL_STRATEGY.required(settings)
    )
    days, most = TTL_DAYS.required(settings), TTL_MOST.positive(settings)
    if days < 1:
        return None
    return TtlRule(days, strategy, frozenset(comma_list(TTL_SELECTED.required(settings))), most)


def plan_delay_ms(settings: Mapping[str, object]) -> int | None:
    """Return the age at which a plan that was not started is rolled back; None for never."""
    if not EXPIRATIONS.required(settings):
        return None
    return CLUSTER_EXPIRES_MIN.required(settings) * 60_000


def _partitions(
    settings: Mapping[str, object], implied: PartitionSelection | None, clock: Clock
) -> PartitionFilter:
    return PartitionFilter(
        implied or CLUSTER_FILTER.required(settings),
        CLUSTER_RECENT.required(settings),
        CLUSTER_SKIPPED.required(settings),
        CLUSTER_BEGIN.required(settings),
        CLUSTER_END.required(settings),
        hour=clock.now().wall_epoch_ms // _HOUR_MS % 24,
        selected=frozenset(comma_list(CLUSTER_SELECTED.required(settings))),
        pattern=_pattern(CLUSTER_PATTERN, settings),
    )


def named_class(key: ConfigKey[str], given: str, known: Mapping[str, V]) -> V:
    """Return the value of a Java class, named with or without its package."""
    name = given.strip().rpartition(".")[2]
    if name not in known:
        raise key.unknown_value(given, known)
    return known[name]


def _pattern(key: ConfigKey[str], settings: Mapping[str, object]) -> str:
    pattern = key.required(settings)
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigInvalid(
            f"{key.key}: expected a regular expression, got {pattern!r}: {error}",
            hint="correct it; a special character that stands for itself needs a backslash",
        ) from error
    return pattern
