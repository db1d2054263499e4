"""The settings of table services, under Hudi's keys with Hudi's defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidelock.base.clock import Clock
from tidelock.base.config import ConfigKey, boolean, declare
from tidelock.base.errors import ConfigInvalid
from tidelock.table.timeline.instant import format_time
from tidelock.tableservice.archive.plan import Bounds
from tidelock.tableservice.clean.plan import Keep, Policy
from tidelock.tableservice.compaction.plan import Choice, Due, Strategy, Trigger

_GROUP: Final = "Table services"
_HOUR_MS: Final = 3_600_000

SERVICES_ENABLED = declare(
    ConfigKey(
        "hoodie.table.services.enabled",
        boolean,
        default=True,
        doc="run services after writes and beside them, by the settings of each; false runs none"
        " there, and leaves them to other processes",
        group=_GROUP,
    )
)
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
        doc=f"which file groups are compacted, and which first: {', '.join(Strategy)}, with or"
        " without their package; several, separated by commas, choose one after the other",
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
COMPACT_DAYS = declare(
    ConfigKey(
        "hoodie.compaction.daybased.target.partitions",
        int,
        default=10,
        doc="how many of the last partitions, which are days, the strategies by day compact",
        group=_GROUP,
    )
)
COMPACT_PATTERN = declare(
    ConfigKey(
        "hoodie.compaction.partition.path.regex",
        str,
        default="",
        doc="a regular expression that is found in the partitions that are compacted, for the"
        " strategy by it",
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
LOG_COMPACT_INLINE = declare(
    ConfigKey(
        "hoodie.log.compaction.inline",
        boolean,
        default=False,
        doc="merge log files with each other after each write that makes it due",
        group=_GROUP,
    )
)
LOG_COMPACT_BLOCKS = declare(
    ConfigKey(
        "hoodie.log.compaction.blocks.threshold",
        int,
        default=5,
        doc="log blocks of a file group from which on they are merged with each other",
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


def compaction_due(settings: Mapping[str, object]) -> Due:
    """Return when a compaction is due. Raises: `ConfigInvalid`."""
    trigger = COMPACT_TRIGGER.required(settings).upper()
    if trigger not in Trigger.__members__:
        raise ConfigInvalid(f"{COMPACT_TRIGGER.key} = {trigger} is not one of {', '.join(Trigger)}")
    return Due(
        Trigger[trigger], COMPACT_COMMITS.required(settings), COMPACT_SECONDS.required(settings)
    )


def compaction_choice(settings: Mapping[str, object], clock: Clock) -> Choice:
    """Return which file groups a compaction takes. Raises: `ConfigInvalid`."""
    known = {strategy.value: strategy for strategy in Strategy}
    chosen: list[Strategy] = []
    for given in COMPACT_STRATEGY.required(settings).split(","):
        name = given.strip().rpartition(".")[2]
        if name not in known:
            raise ConfigInvalid(
                f"{COMPACT_STRATEGY.key} = {given} is not known", hint=f"use {', '.join(Strategy)}"
            )
        chosen.append(known[name])
    pattern = COMPACT_PATTERN.required(settings)
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigInvalid(f"{COMPACT_PATTERN.key} = {pattern}: {error}") from error
    days = COMPACT_DAYS.required(settings)
    earliest = format_time(clock.now().wall_epoch_ms - days * 24 * _HOUR_MS)
    return Choice(
        chosen[0],
        COMPACT_IO_MB.required(settings),
        COMPACT_LOG_BYTES.required(settings),
        COMPACT_LOG_FILES.required(settings),
        days,
        f"{earliest[:4]}-{earliest[4:6]}-{earliest[6:8]}",
        pattern,
        tuple(chosen[1:]),
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
