"""Settings of transactions: Hudi's keys, defaults and refusals, and ours beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from tidelock.base.config import ConfigKey, boolean, declare
from tidelock.base.errors import ConfigInvalid
from tidelock.lockproviders.registry import provider_name
from tidelock.table.properties import TableProperties, TableType
from tidelock.txn.strategy import Strategy

_G = "Transactions"

E = TypeVar("E", bound=StrEnum)


class Mode(StrEnum):
    """How writers share a table."""

    SINGLE_WRITER = "SINGLE_WRITER"
    OPTIMISTIC = "OPTIMISTIC_CONCURRENCY_CONTROL"
    NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"

    @property
    def is_multi_writer(self) -> bool:
        """Tell whether several writers are expected."""
        return self is not Mode.SINGLE_WRITER


class FailedWrites(StrEnum):
    """Who removes what a dead writer left, and when."""

    EAGER = "EAGER"  # the next writer, before it begins
    LAZY = "LAZY"  # clean, once the heartbeat has expired
    NEVER = "NEVER"  # nobody


class MetadataPolicy(StrEnum):
    """What to do with a table whose files Java readers list from the metadata table."""

    REFUSE = "refuse"
    DISABLE = "disable"


class TimezonePolicy(StrEnum):
    """What to do with a table whose timeline is in local time."""

    REFUSE = "refuse"
    UTC = "utc"


def _choice(kind: type[E], text: str) -> E:
    for each in kind:
        if each.value.upper() == text.upper():
            return each
    raise ValueError(text)


def _mode(text: str) -> Mode:
    return _choice(Mode, text)


def _policy(text: str) -> FailedWrites:
    return _choice(FailedWrites, text)


def _metadata_policy(text: str) -> MetadataPolicy:
    return _choice(MetadataPolicy, text)


def _timezone_policy(text: str) -> TimezonePolicy:
    return _choice(TimezonePolicy, text)


def _strategy(text: str) -> Strategy:
    return _choice(Strategy, text.rpartition(".")[2])


CONCURRENCY_MODE = declare(
    ConfigKey(
        "hoodie.write.concurrency.mode",
        _mode,
        Mode.SINGLE_WRITER,
        "`SINGLE_WRITER`, `OPTIMISTIC_CONCURRENCY_CONTROL` or `NON_BLOCKING_CONCURRENCY_CONTROL`;"
        " commits are judged in every mode",
        group=_G,
    )
)
FAILED_WRITES = declare(
    ConfigKey(
        "hoodie.clean.failed.writes.policy",
        _policy,
        None,
        "who removes what a dead writer left: `EAGER` the next writer, `LAZY` clean, `NEVER`"
        " nobody; `EAGER` for a single writer, otherwise `LAZY`",
        aliases=("hoodie.cleaner.policy.failed.writes",),
        group=_G,
    )
)
HEARTBEAT_INTERVAL_MS = declare(
    ConfigKey(
        "hoodie.client.heartbeat.interval_in_ms",
        int,
        60_000,
        "how often a running write says that it is alive; at least 1000",
        group=_G,
    )
)
HEARTBEAT_MISSES = declare(
    ConfigKey(
        "hoodie.client.heartbeat.tolerable.misses",
        int,
        10,
        "how many heartbeats may be missed before a write counts as dead",
        group=_G,
    )
)
CONFLICT_STRATEGY = declare(
    ConfigKey(
        "hoodie.write.lock.conflict.resolution.strategy",
        _strategy,
        Strategy.SOLVE,
        "one of Hudi's class names to refuse overlapping writes as Hudi does; without it they are"
        " solved",
        group=_G,
    )
)
EARLY_DETECTION = declare(
    ConfigKey(
        "hoodie.write.concurrency.early.conflict.detection.enable",
        boolean,
        False,  # noqa: FBT003 - the default of a switch
        "look for conflicts while a write runs; with optimistic concurrency control only",
        group=_G,
    )
)
EARLY_PERIOD_MS = declare(
    ConfigKey(
        "hoodie.write.concurrency.async.conflict.detector.period_ms",
        int,
        30_000,
        "how often a running write is looked at",
        group=_G,
    )
)
CLOCK_SKEW_MS = declare(
    ConfigKey(
        "hoodie.time.generator.max_expected_clock_skew_ms",
        int,
        200,
        "how long a time is waited out on tables that Java writers write, too",
        group=_G,
    )
)
MIXED = declare(
    ConfigKey(
        "tidelock.write.mixed",
        boolean,
        None,
        "whether Java writers write the table at the same time, so that times are waited out and"
        " their plans executed; without it, if one is known to have done so and a lock provider is"
        " set. Their commits are looked for in any case",
        group=_G,
    )
)
METADATA_POLICY = declare(
    ConfigKey(
        "tidelock.metadata.table.policy",
        _metadata_policy,
        MetadataPolicy.REFUSE,
        "what a write or a table service does with a table that has Hudi's metadata table:"
        " `refuse`, or `disable` it",
        group=_G,
    )
)
TIMEZONE_POLICY = declare(
    ConfigKey(
        "tidelock.timeline.timezone.policy",
        _timezone_policy,
        TimezonePolicy.REFUSE,
        "what a write or a table service does with a table whose timeline is in local time, as"
        " Java makes them by default: `refuse`, or set it to `utc` once no time on it is ahead of"
        " UTC",
        group=_G,
    )
)
ROLLBACK_MARKERS = declare(
    ConfigKey(
        "hoodie.rollback.using.markers",
        boolean,
        True,  # noqa: FBT003 - the default of a switch
        "find the files of a dead write by its markers where its writer said that every file has"
        " one; otherwise, and for what was complete, by listing the table",
        group=_G,
    )
)
SERVICE_GUARD = declare(
    ConfigKey(
        "tidelock.table.services.guard",
        boolean,
        True,  # noqa: FBT003 - the default of a switch
        "leave a plan alone while its executor's heartbeat is fresh; false takes it over at once,"
        " which costs the other's work, never data",
        group=_G,
    )
)
TURN_WAIT_MS = declare(
    ConfigKey(
        "tidelock.write.turn.wait.ms",
        int,
        10_000,
        "how long a writer lets others go first that were overtaken on the same file groups",
        group=_G,
    )
)


@dataclass(frozen=True, slots=True)
class TxnSettings:
    """How this process's transactions behave."""

    mode: Mode = Mode.SINGLE_WRITER
    failed_writes: FailedWrites = FailedWrites.EAGER
    heartbeat_interval_ms: int = 60_000
    heartbeat_misses: int = 10
    strategy: Strategy = Strategy.SOLVE
    early_detection: bool = False
    early_period_ms: int = 30_000
    clock_skew_ms: int = 200
    mixed: bool | None = None
    metadata_policy: MetadataPolicy = MetadataPolicy.REFUSE
    timezone_policy: TimezonePolicy = TimezonePolicy.REFUSE
    turn_wait_ms: int = 10_000
    rollback_by_markers: bool = True
    guard: bool = True
    has_lock: bool = False

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> TxnSettings:
        """Return the settings in a mapping. Raises: `ConfigInvalid`, where Hudi refuses, too."""
        mode = CONCURRENCY_MODE.required(settings)
        default = FailedWrites.LAZY if mode.is_multi_writer else FailedWrites.EAGER
        read = cls(
            mode=mode,
            failed_writes=FAILED_WRITES.value(settings) or default,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS.required(settings),
            heartbeat_misses=HEARTBEAT_MISSES.required(settings),
            strategy=CONFLICT_STRATEGY.required(settings),
            early_detection=EARLY_DETECTION.required(settings),
            early_period_ms=EARLY_PERIOD_MS.required(settings),
            clock_skew_ms=CLOCK_SKEW_MS.required(settings),
            mixed=MIXED.value(settings),
            metadata_policy=METADATA_POLICY.required(settings),
            timezone_policy=TIMEZONE_POLICY.required(settings),
            turn_wait_ms=TURN_WAIT_MS.required(settings),
            rollback_by_markers=ROLLBACK_MARKERS.required(settings),
            guard=SERVICE_GUARD.required(settings),
            has_lock=provider_name(settings) is not None,
        )
        read.check()
        return read

    def check(self) -> None:
        """Raise `ConfigInvalid` for what does not go together."""
        if self.heartbeat_interval_ms < 1_000:
            raise ConfigInvalid(
                f"{HEARTBEAT_INTERVAL_MS.key} = {self.heartbeat_interval_ms} is less than 1000",
                hint="a store cannot be asked more often than once a second for long",
            )
        if self.mode.is_multi_writer and self.failed_writes is FailedWrites.EAGER:
            raise ConfigInvalid(
                f"Cannot enable {self.mode} with {FAILED_WRITES.key} = EAGER",
                hint=f"to enable {self.mode}, set {FAILED_WRITES.key}=LAZY: with EAGER one writer"
                " would undo what the others are writing",
            )
        if self.early_detection and self.mode is not Mode.OPTIMISTIC:
            raise ConfigInvalid(
                f"{EARLY_DETECTION.key} goes only with {Mode.OPTIMISTIC}, not with {self.mode}",
                hint=f"set {CONCURRENCY_MODE.key}={Mode.OPTIMISTIC}, or switch it off",
            )

    def check_table(self, properties: TableProperties, *, simple_buckets: bool) -> None:
        """Raise `ConfigInvalid` for a table that the mode does not go with.

        `simple_buckets` tells whether rows find their file group by a bucket index with a fixed
        number of buckets.
        """
        if self.mode is not Mode.NON_BLOCKING:
            return
        if properties.type is not TableType.MERGE_ON_READ or not simple_buckets:
            raise ConfigInvalid(
                f"{Mode.NON_BLOCKING} needs a MERGE_ON_READ table with a simple bucket index;"
                f" {properties.name} is {properties.type}"
                + ("" if simple_buckets else " without one"),
                hint=f"use {Mode.OPTIMISTIC}, or hoodie.index.type=BUCKET on a MERGE_ON_READ table",
            )
