"""The settings of clustering, under Hudi's keys with Hudi's defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidelock.base.clock import Clock
from tidelock.base.config import ConfigKey, boolean, declare
from tidelock.base.errors import ConfigInvalid
from tidelock.kernel.curve import Layout
from tidelock.kernel.splice import GROUP_BYTES_MIN
from tidelock.tableservice.clustering.partitions import Chosen, Mode
from tidelock.tableservice.clustering.plan import MB, Sizes

_GROUP: Final = "Table services"
_HOUR_MS: Final = 3_600_000

CLUSTER_INLINE = declare(
    ConfigKey(
        "hoodie.clustering.inline",
        boolean,
        default=False,
        doc="cluster after each write that makes it due",
        aliases=("hoodie.datasource.clustering.inline.enable",),
        group=_GROUP,
    )
)
CLUSTER_SCHEDULE_INLINE = declare(
    ConfigKey(
        "hoodie.clustering.schedule.inline",
        boolean,
        default=False,
        doc="plan a clustering after a write that makes one due; another process executes it",
        group=_GROUP,
    )
)
CLUSTER_COMMITS = declare(
    ConfigKey(
        "hoodie.clustering.inline.max.commits",
        int,
        default=4,
        doc="commits after which clustering is due",
        group=_GROUP,
    )
)
CLUSTER_SMALL = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.small.file.limit",
        int,
        default=300 * MB,
        doc="bytes below which a base file is clustered with others",
        group=_GROUP,
    )
)
CLUSTER_TARGET = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.target.file.max.bytes",
        int,
        default=1024 * MB,
        doc="bytes of the files that clustering writes",
        group=_GROUP,
    )
)
CLUSTER_GROUP = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.max.bytes.per.group",
        int,
        default=2048 * MB,
        doc="bytes that are clustered together",
        group=_GROUP,
    )
)
CLUSTER_GROUPS = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.max.num.groups",
        int,
        default=30,
        doc="groups of file groups in one clustering plan",
        group=_GROUP,
    )
)
CLUSTER_SORT = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.sort.columns",
        str,
        default="",
        doc="columns that clustered rows are sorted by, separated by commas",
        group=_GROUP,
    )
)
CLUSTER_LAYOUT = declare(
    ConfigKey(
        "hoodie.layout.optimize.strategy",
        str,
        default=Layout.LINEAR.value,
        doc=f"how rows are sorted by several columns: {', '.join(Layout)}",
        group=_GROUP,
    )
)
CLUSTER_STRATEGY = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.class",
        str,
        default="SparkSizeBasedClusteringPlanStrategy",
        doc="what is clustered, by the names of Hudi's classes: size based, recent days, selected"
        " partitions, single file sort",
        group=_GROUP,
    )
)
CLUSTER_FILTER = declare(
    ConfigKey(
        "hoodie.clustering.plan.partition.filter.mode",
        str,
        default=Mode.NONE.value,
        doc=f"which partitions are clustered: {', '.join(Mode)}",
        group=_GROUP,
    )
)
CLUSTER_RECENT = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.daybased.lookback.partitions",
        int,
        default=2,
        doc="how many of the last partitions, by name, RECENT_DAYS takes",
        group=_GROUP,
    )
)
CLUSTER_SKIPPED = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions",
        int,
        default=0,
        doc="how many of the last partitions RECENT_DAYS leaves out first",
        group=_GROUP,
    )
)
CLUSTER_BEGIN = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.cluster.begin.partition",
        str,
        default="",
        doc="the first partition, by name, that SELECTED_PARTITIONS takes",
        group=_GROUP,
    )
)
CLUSTER_END = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.cluster.end.partition",
        str,
        default="",
        doc="the last partition, by name, that SELECTED_PARTITIONS takes",
        group=_GROUP,
    )
)
CLUSTER_SELECTED = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.partition.selected",
        str,
        default="",
        doc="partitions to cluster, separated by commas; all without any",
        group=_GROUP,
    )
)
CLUSTER_PATTERN = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.partition.regex.pattern",
        str,
        default="",
        doc="a regular expression that the partitions to cluster match",
        group=_GROUP,
    )
)
CLUSTER_SINGLE = declare(
    ConfigKey(
        "hoodie.clustering.plan.strategy.single.group.clustering.enabled",
        boolean,
        default=None,
        doc="rewrite a file that has no other to be put together with; without this, only where"
        " rows are sorted (Hudi's default is true)",
        group=_GROUP,
    )
)
CLUSTER_COPIED_MIN = declare(
    ConfigKey(
        "tidelock.clustering.copied.row.group.min.bytes",
        int,
        default=GROUP_BYTES_MIN,
        doc="row groups of this size and more, on the average of a file, are copied without"
        " decoding them when rows are not sorted; smaller ones are joined",
        group=_GROUP,
    )
)
CLUSTER_EXPIRES_MIN = declare(
    ConfigKey(
        "hoodie.clustering.expiration.threshold.mins",
        int,
        default=60,
        doc="minutes after which a clean rolls back a removable plan (clustering, log compaction)"
        " that nobody has begun; one whose executor is dead is rolled back at once",
        aliases=("table_service_rollback_delay",),
        group=_GROUP,
    )
)
CLUSTER_REMOVABLE = declare(
    ConfigKey(
        "tidelock.clustering.removable",
        boolean,
        default=True,
        doc="whether clustering plans are removable as RFC-79 has it: begun once, and undone if"
        " their executor dies; false makes plans that stay, and that the next executor resumes",
        group=_GROUP,
    )
)
LOG_COMPACT_REMOVABLE = declare(
    ConfigKey(
        "tidelock.log.compaction.removable",
        boolean,
        default=True,
        doc="the same for plans of log compaction",
        group=_GROUP,
    )
)
EXPIRATIONS = declare(
    ConfigKey(
        "hoodie.clustering.enable.expirations",
        boolean,
        default=True,
        doc="let a clean roll back removable plans that are dead, or older than the threshold;"
        " Hudi's default is false, with which a dead plan holds its file groups for ever",
        group=_GROUP,
    )
)

_STRATEGIES: Final[Mapping[str, Mode | None]] = {
    "SparkSizeBasedClusteringPlanStrategy": None,
    "JavaSizeBasedClusteringPlanStrategy": None,
    "FlinkSizeBasedClusteringPlanStrategy": None,
    # Copies files without decoding them, as is done here wherever it can be.
    "SparkStreamCopyClusteringPlanStrategy": None,
    "SparkRecentDaysClusteringPlanStrategy": Mode.RECENT_DAYS,
    "FlinkRecentDaysClusteringPlanStrategy": Mode.RECENT_DAYS,
    "JavaRecentDaysClusteringPlanStrategy": Mode.RECENT_DAYS,
    "SparkSelectedPartitionsClusteringPlanStrategy": Mode.SELECTED_PARTITIONS,
    "SparkSingleFileSortPlanStrategy": None,
}
"""Hudi's planning classes, and the way to choose partitions that some of them stand for."""


def clustering_sizes(settings: Mapping[str, object], clock: Clock) -> Sizes:
    """Return what clustering takes together. Raises: `ConfigInvalid`."""
    strategy = _strategy(settings)
    sorted_by = sort_columns(settings)
    apart = strategy == "SparkSingleFileSortPlanStrategy"
    if apart and not sorted_by:
        raise ConfigInvalid(
            f"{CLUSTER_STRATEGY.key} = {strategy} only sorts, and there are no columns to sort by",
            hint=f"set {CLUSTER_SORT.key}",
        )
    single = CLUSTER_SINGLE.value(settings)
    return Sizes(
        CLUSTER_SMALL.required(settings),
        CLUSTER_TARGET.required(settings),
        CLUSTER_GROUP.required(settings),
        CLUSTER_GROUPS.required(settings),
        alone=bool(sorted_by) if single is None else single,
        apart=apart,
        partitions=_partitions(settings, _STRATEGIES[strategy], clock),
    )


def clustering_layout(settings: Mapping[str, object]) -> Layout:
    """Return how rows are sorted by several columns. Raises: `ConfigInvalid`."""
    given = CLUSTER_LAYOUT.required(settings)
    # Hudi takes the names of its constants too.
    name = given.lower().replace("_", "-").replace("zorder", "z-order")
    if name not in [layout.value for layout in Layout]:
        raise ConfigInvalid(f"{CLUSTER_LAYOUT.key} = {given} is not one of {', '.join(Layout)}")
    return Layout(name)


def sort_columns(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the columns that clustered rows are sorted by."""
    return _listed(CLUSTER_SORT.required(settings))


def plan_delay_ms(settings: Mapping[str, object]) -> int | None:
    """Return how old a removable plan must be that is undone though nobody has begun it.

    None if plans are left alone however old and dead they are.
    """
    if not EXPIRATIONS.required(settings):
        return None
    return CLUSTER_EXPIRES_MIN.required(settings) * 60_000


def _strategy(settings: Mapping[str, object]) -> str:
    given = CLUSTER_STRATEGY.required(settings)
    name = given.rpartition(".")[2]
    if name not in _STRATEGIES:
        raise ConfigInvalid(
            f"{CLUSTER_STRATEGY.key} = {given} is not known", hint=f"use {', '.join(_STRATEGIES)}"
        )
    return name


def _partitions(settings: Mapping[str, object], implied: Mode | None, clock: Clock) -> Chosen:
    given = CLUSTER_FILTER.required(settings).upper()
    if given not in Mode.__members__:
        raise ConfigInvalid(f"{CLUSTER_FILTER.key} = {given} is not one of {', '.join(Mode)}")
    pattern = CLUSTER_PATTERN.required(settings)
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigInvalid(f"{CLUSTER_PATTERN.key} = {pattern}: {error}") from error
    return Chosen(
        implied or Mode[given],
        CLUSTER_RECENT.required(settings),
        CLUSTER_SKIPPED.required(settings),
        CLUSTER_BEGIN.required(settings),
        CLUSTER_END.required(settings),
        hour=clock.now().wall_epoch_ms // _HOUR_MS % 24,
        selected=frozenset(_listed(CLUSTER_SELECTED.required(settings))),
        pattern=pattern,
    )


def _listed(text: str) -> tuple[str, ...]:
    parts = (part.strip() for part in text.split(","))
    return tuple(part for part in parts if part)
