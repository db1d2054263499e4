"""The settings of table services, under Hudi's keys with Hudi's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelock.base.clock import Clock
from tidelock.base.config import ConfigKey, boolean, declare
from tidelock.base.errors import ConfigInvalid
from tidelock.table.timeline.instant import format_time
from tidelock.tableservice.archive.plan import Bounds
from tidelock.tableservice.clean.plan import Keep, Policy
from tidelock.tableservice.clustering.plan import MB, Sizes
from tidelock.tableservice.compaction.plan import Choice, Due, Strategy, Trigger

_GROUP: Final = "Table services"
_HOUR_MS: Final = 3_600_000

COMPACT_INLINE = declare(
    ConfigKey(
        "hoodie.compact.inline",
        boolean,
        default=False,
        doc="compact after each write that makes a compaction due",
        group=_GROUP,
    )
)
COMPACT_SCHEDULE_INLINE = declare(
    ConfigKey(
        "hoodie.compact.schedule.inline",
        boolean,
        default=False,
        doc="plan a compaction after a write that makes one due; another process executes it",
        group=_GROUP,
    )
)
COMPACT_COMMITS = declare(
    ConfigKey(
        "hoodie.compact.inline.max.delta.commits",
        int,
        default=5,
        doc="delta commits after which a compaction is due",
        group=_GROUP,
    )
)
COMPACT_SECONDS = declare(
    ConfigKey(
        "hoodie.compact.inline.max.delta.seconds",
        int,
        default=3600,
        doc="seconds after which a compaction is due",
        group=_GROUP,
    )
)
COMPACT_TRIGGER = declare(
    ConfigKey(
        "hoodie.compact.inline.trigger.strategy",
        str,
        default=Trigger.NUM_COMMITS.value,
        doc=f"what makes a compaction due: {', '.join(Trigger)}",
        group=_GROUP,
    )
)
COMPACT_STRATEGY = declare(
    ConfigKey(
        "hoodie.compaction.strategy",
        str,
        default=Strategy.LOG_FILE_SIZE.value,
        doc=f"which file groups are compacted first: {', '.join(Strategy)}, or Hudi's class names",
        group=_GROUP,
    )
)
COMPACT_IO_MB = declare(
    ConfigKey(
        "hoodie.compaction.target.io",
        int,
        default=500 * 1024,
        doc="megabytes that one compaction plan reads and writes at most",
        group=_GROUP,
    )
)
COMPACT_LOG_BYTES = declare(
    ConfigKey(
        "hoodie.compaction.logfile.size.threshold",
        int,
        default=0,
        doc="bytes of log files below which a file group waits, for the strategy by log size",
        group=_GROUP,
    )
)
COMPACT_LOG_FILES = declare(
    ConfigKey(
        "hoodie.compaction.logfile.num.threshold",
        int,
        default=0,
        doc="log files below which a file group waits, for the strategy by their number",
        group=_GROUP,
    )
)
CLEAN_AUTOMATIC = declare(
    ConfigKey(
        "hoodie.clean.automatic",
        boolean,
        default=True,
        doc="clean after each write that leaves something to clean",
        group=_GROUP,
    )
)
CLEAN_TRIGGER = declare(
    ConfigKey(
        "hoodie.clean.trigger.max.commits",
        int,
        default=20,
        doc="the table is cleaned and archived by one write in about so many ledger entries;"
        " Hudi's default is 1, which costs every small write a listing of the table",
        aliases=("hoodie.clean.max.commits",),
        group=_GROUP,
    )
)
CLEAN_POLICY = declare(
    ConfigKey(
        "hoodie.clean.policy",
        str,
        default=Policy.COMMITS.value,
        doc=f"how much of the past stays readable: {', '.join(Policy)}",
        aliases=("hoodie.cleaner.policy",),
        group=_GROUP,
    )
)
CLEAN_COMMITS = declare(
    ConfigKey(
        "hoodie.clean.commits.retained",
        int,
        default=10,
        doc="commits whose state of the table stays readable",
        aliases=("hoodie.cleaner.commits.retained",),
        group=_GROUP,
    )
)
CLEAN_VERSIONS = declare(
    ConfigKey(
        "hoodie.clean.fileversions.retained",
        int,
        default=3,
        doc="versions of a file group that stay",
        aliases=("hoodie.cleaner.fileversions.retained",),
        group=_GROUP,
    )
)
CLEAN_HOURS = declare(
    ConfigKey(
        "hoodie.clean.hours.retained",
        int,
        default=24,
        doc="hours whose states of the table stay readable",
        aliases=("hoodie.cleaner.hours.retained",),
        group=_GROUP,
    )
)
ARCHIVE_AUTOMATIC = declare(
    ConfigKey(
        "hoodie.archive.automatic",
        boolean,
        default=True,
        doc="archive after each write that fills the active timeline",
        group=_GROUP,
    )
)
ARCHIVE_MIN = declare(
    ConfigKey(
        "hoodie.keep.min.commits",
        int,
        default=20,
        doc="completed writes that stay on the active timeline when it is archived",
        group=_GROUP,
    )
)
ARCHIVE_MAX = declare(
    ConfigKey(
        "hoodie.keep.max.commits",
        int,
        default=30,
        doc="completed writes on the active timeline beyond which it is archived",
        group=_GROUP,
    )
)
CLUSTER_INLINE = declare(
    ConfigKey(
        "hoodie.clustering.inline",
        boolean,
        default=False,
        doc="cluster after each write that makes it due",
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
CLUSTER_EXPIRES_MIN = declare(
    ConfigKey(
        "hoodie.clustering.expiration.threshold.mins",
        int,
        default=60,
        doc="minutes after which a clean undoes a clustering plan that nobody has begun; one whose"
        " executor is dead is undone at once",
        group=_GROUP,
    )
)


def compaction_due(settings: Mapping[str, object]) -> Due:
    """Return when a compaction is due. Raises: `ConfigInvalid`."""
    trigger = COMPACT_TRIGGER.required(settings).upper()
    if trigger not in Trigger.__members__:
        raise ConfigInvalid(f"{COMPACT_TRIGGER.key} = {trigger} is not one of {', '.join(Trigger)}")
    return Due(
        Trigger[trigger], COMPACT_COMMITS.required(settings), COMPACT_SECONDS.required(settings)
    )


def compaction_choice(settings: Mapping[str, object]) -> Choice:
    """Return which file groups a compaction takes. Raises: `ConfigInvalid`."""
    given = COMPACT_STRATEGY.required(settings)
    name = given.rpartition(".")[2]
    strategies = {strategy.value: strategy for strategy in Strategy}
    if name not in strategies:
        raise ConfigInvalid(
            f"{COMPACT_STRATEGY.key} = {given} is not known", hint=f"use {', '.join(Strategy)}"
        )
    return Choice(
        strategies[name],
        COMPACT_IO_MB.required(settings),
        COMPACT_LOG_BYTES.required(settings),
        COMPACT_LOG_FILES.required(settings),
    )


def clean_keep(settings: Mapping[str, object], clock: Clock) -> Keep:
    """Return how much of the past stays. Raises: `ConfigInvalid`."""
    policy = CLEAN_POLICY.required(settings).upper()
    policies = {each.value: each for each in Policy}
    if policy not in policies:
        raise ConfigInvalid(f"{CLEAN_POLICY.key} = {policy} is not one of {', '.join(Policy)}")
    hours = CLEAN_HOURS.required(settings)
    keep = Keep(
        policies[policy],
        CLEAN_COMMITS.required(settings),
        CLEAN_VERSIONS.required(settings),
        format_time(clock.now().wall_epoch_ms - hours * _HOUR_MS),
    )
    for key, value in (
        (CLEAN_COMMITS.key, keep.commits),
        (CLEAN_VERSIONS.key, keep.versions),
        (CLEAN_HOURS.key, hours),
    ):
        if value < 1:
            raise ConfigInvalid(f"{key} = {value} would keep nothing", hint="use 1 or more")
    return keep


def archive_bounds(settings: Mapping[str, object]) -> Bounds:
    """Return how many writes stay on the active timeline. Raises: `ConfigInvalid`."""
    bounds = Bounds(ARCHIVE_MIN.required(settings), ARCHIVE_MAX.required(settings))
    return bounds.beyond_cleaning(CLEAN_COMMITS.required(settings))


def clustering_sizes(settings: Mapping[str, object]) -> Sizes:
    """Return what clustering takes together."""
    return Sizes(
        CLUSTER_SMALL.required(settings),
        CLUSTER_TARGET.required(settings),
        CLUSTER_GROUP.required(settings),
        CLUSTER_GROUPS.required(settings),
        alone=bool(sort_columns(settings)),
    )


def sort_columns(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the columns that clustered rows are sorted by."""
    parts = (part.strip() for part in CLUSTER_SORT.required(settings).split(","))
    return tuple(part for part in parts if part)


def plan_delay_ms(settings: Mapping[str, object]) -> int:
    """Return how old a removable plan must be that is undone though nobody has begun it."""
    return CLUSTER_EXPIRES_MIN.required(settings) * 60_000
