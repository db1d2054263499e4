"""Transaction settings: Hudi's keys with their defaults and checks, and our own keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidelock.core.config import ConfigSection, boolean, choice
from tidelock.core.errors import ConfigInvalid
from tidelock.hudi.properties import TableProperties, TableType
from tidelock.lock.providers.registry import provider_name
from tidelock.txn.conflicts import ConflictStrategy


class ConcurrencyMode(StrEnum):
    """How several writers share a table."""

    SINGLE_WRITER = "SINGLE_WRITER"
    OPTIMISTIC = "OPTIMISTIC_CONCURRENCY_CONTROL"
    NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"

    @property
    def is_multi_writer(self) -> bool:
        """Whether several writers are expected."""
        return self is not ConcurrencyMode.SINGLE_WRITER


class FailedWrites(StrEnum):
    """What rolls back failed writes, and when."""

    EAGER = "EAGER"  # the next writer, before it begins
    LAZY = "LAZY"  # clean, once the heartbeat has expired
    NEVER = "NEVER"  # no process


class MetadataPolicy(StrEnum):
    """What to do with a table that has a metadata table, from which Java readers list files."""

    REFUSE = "refuse"
    DISABLE = "disable"


class TimezonePolicy(StrEnum):
    """What to do with a table whose timeline is in local time."""

    REFUSE = "refuse"
    UTC = "utc"


def _strategy(text: str) -> ConflictStrategy:
    return choice(ConflictStrategy)(text.rpartition(".")[2])


CONCURRENCY_MODE = ConfigSection.TRANSACTIONS.declare(
    "hoodie.write.concurrency.mode",
    "`SINGLE_WRITER`, `OPTIMISTIC_CONCURRENCY_CONTROL` or `NON_BLOCKING_CONCURRENCY_CONTROL`;"
    " conflicts are checked in every mode",
    default=ConcurrencyMode.SINGLE_WRITER,
)
FAILED_WRITES = ConfigSection.TRANSACTIONS.declare(
    "hoodie.clean.failed.writes.policy",
    "when failed writes are rolled back: `EAGER` by the next writer, `LAZY` by clean, `NEVER`;"
    " `EAGER` for a single writer, otherwise `LAZY`",
    parse=choice(FailedWrites),
    choices=FailedWrites,
    aliases=("hoodie.cleaner.policy.failed.writes",),
)
HEARTBEAT_INTERVAL_MS = ConfigSection.TRANSACTIONS.declare(
    "hoodie.client.heartbeat.interval_in_ms",
    "interval between the heartbeats of a running write; at least 1000",
    default=60_000,
)
HEARTBEAT_MISSES = ConfigSection.TRANSACTIONS.declare(
    "hoodie.client.heartbeat.tolerable.misses",
    "number of missed heartbeats after which a write counts as dead",
    default=10,
)
CONFLICT_STRATEGY = ConfigSection.TRANSACTIONS.declare(
    "hoodie.write.lock.conflict.resolution.strategy",
    "one of Hudi's class names to abort overlapping writes as Hudi does; by default they are"
    " resolved",
    default=ConflictStrategy.SOLVE,
    parse=_strategy,
    choices=ConflictStrategy,
)
EARLY_DETECTION = ConfigSection.TRANSACTIONS.declare(
    "hoodie.write.concurrency.early.conflict.detection.enable",
    "detect conflicts while a write runs; only with optimistic concurrency control",
    default=False,
)
EARLY_PERIOD_MS = ConfigSection.TRANSACTIONS.declare(
    "hoodie.write.concurrency.async.conflict.detector.period_ms",
    "interval between conflict checks of a running write",
    default=30_000,
)
CLOCK_SKEW_MS = ConfigSection.TRANSACTIONS.declare(
    "hoodie.time.generator.max_expected_clock_skew_ms",
    "maximum clock difference that is waited out on tables with Java writers",
    default=200,
)
MIXED = ConfigSection.TRANSACTIONS.declare(
    "tidelock.write.mixed",
    "whether Java writers write the table concurrently, so that clock skew is waited out and"
    " their plans are executed; by default, if one has written it and a lock provider is"
    " set. Their commits are imported in any case",
    parse=boolean,
)
METADATA_POLICY = ConfigSection.TRANSACTIONS.declare(
    "tidelock.metadata.table.policy",
    "what to do with a table that has Hudi's metadata table:"
    " `refuse` to change it, or `disable` the metadata table",
    default=MetadataPolicy.REFUSE,
)
TIMEZONE_POLICY = ConfigSection.TRANSACTIONS.declare(
    "tidelock.timeline.timezone.policy",
    "what to do with a table whose timeline is in local time, the default of"
    " Java: `refuse` to change it, or convert it to `utc` once no instant is ahead of"
    " UTC",
    default=TimezonePolicy.REFUSE,
)
ROLLBACK_MARKERS = ConfigSection.TRANSACTIONS.declare(
    "hoodie.rollback.using.markers",
    "find the files of a dead write by its markers if its heartbeat says that every file has"
    " one; otherwise, and for completed commits, by listing the table",
    default=True,
)
SERVICE_GUARD = ConfigSection.TRANSACTIONS.declare(
    "tidelock.table.services.guard",
    "do not take over a plan while its executor's heartbeat is fresh; false takes it over at"
    " once, which wastes the other's work but never loses data",
    default=True,
)
PRIORITY_WAIT_MS = ConfigSection.TRANSACTIONS.declare(
    "tidelock.write.turn.wait.ms",
    "how long a writer waits for others that have priority on the same file groups",
    default=10_000,
)


@dataclass(frozen=True, slots=True)
class TxnSettings:
    """The transaction settings of this process."""

    mode: ConcurrencyMode
    failed_writes: FailedWrites
    heartbeat_interval_ms: int
    heartbeat_misses: int
    strategy: ConflictStrategy
    early_detection: bool
    early_period_ms: int
    clock_skew_ms: int
    mixed: bool | None
    metadata_policy: MetadataPolicy
    timezone_policy: TimezonePolicy
    priority_wait_ms: int
    rollback_by_markers: bool
    guard: bool
    has_lock: bool

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> TxnSettings:
        """Return the settings in a mapping. Raises: `ConfigInvalid`, as Hudi would."""
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
            priority_wait_ms=PRIORITY_WAIT_MS.required(settings),
            rollback_by_markers=ROLLBACK_MARKERS.required(settings),
            guard=SERVICE_GUARD.required(settings),
            has_lock=provider_name(settings) is not None,
        )
        read.check()
        return read

    def check(self) -> None:
        """Raise `ConfigInvalid` for settings that exclude each other."""
        if self.heartbeat_interval_ms < 1_000:
            raise ConfigInvalid(
                f"{HEARTBEAT_INTERVAL_MS.key}: expected at least 1000, got"
                f" {self.heartbeat_interval_ms}",
                hint="a store cannot serve more than one refresh per second for long",
            )
        if self.mode.is_multi_writer and self.failed_writes is FailedWrites.EAGER:
            raise ConfigInvalid(
                f"Cannot enable {self.mode} with {FAILED_WRITES.key} = EAGER",
                hint=f"to enable {self.mode}, set {FAILED_WRITES.key}=LAZY: with EAGER one writer"
                " would roll back the running writes of others",
            )
        if self.early_detection and self.mode is not ConcurrencyMode.OPTIMISTIC:
            raise ConfigInvalid(
                f"{EARLY_DETECTION.key} requires {ConcurrencyMode.OPTIMISTIC}, got {self.mode}",
                hint=f"set {CONCURRENCY_MODE.key}={ConcurrencyMode.OPTIMISTIC}, or disable it",
            )

    def check_table(self, properties: TableProperties, *, simple_buckets: bool) -> None:
        """Raise `ConfigInvalid` for a table that does not support the concurrency mode.

        `simple_buckets` says whether the table has a bucket index with a fixed number of buckets.
        """
        if self.mode is not ConcurrencyMode.NON_BLOCKING:
            return
        if properties.type is not TableType.MERGE_ON_READ or not simple_buckets:
            raise ConfigInvalid(
                f"{ConcurrencyMode.NON_BLOCKING} requires a MERGE_ON_READ table with a simple"
                " bucket index;"
                f" {properties.name} is {properties.type}"
                + ("" if simple_buckets else " without one"),
                hint=f"use {ConcurrencyMode.OPTIMISTIC}, or hoodie.index.type=BUCKET on a"
                " MERGE_ON_READ table",
            )
