"""The configuration of a streamer: its keys, and the request from command line and properties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from tidelock.core.config import ConfigKey, ConfigSection, comma_list
from tidelock.core.errors import ConfigInvalid
from tidelock.core.formatting import alternatives
from tidelock.lock.config import TABLE_NAME
from tidelock.operations import config as o
from tidelock.services.config import COMPACT_ASYNC, COMPACT_INLINE

T = TypeVar("T")

HUDI: Final = "hoodie.streamer."
HUDI_OLD: Final = "hoodie.deltastreamer."
OURS: Final = "tidelock.streamer."
_KEYS_OLD: Final = f"{HUDI_OLD}keygen."
CSV_OPTIONS: Final = (f"{HUDI}csv.", f"{HUDI_OLD}csv.")
JDBC_OPTIONS: Final = (f"{HUDI}jdbc.extra.options.", f"{HUDI_OLD}jdbc.extra.options.")


class MalformedPolicy(StrEnum):
    """The handling of malformed records."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


class OffsetReset(StrEnum):
    """The start offset in a topic without a checkpoint."""

    EARLIEST = "earliest"
    LATEST = "latest"


class MissingCheckpoint(StrEnum):
    """The start in another table without a checkpoint."""

    READ_LATEST = "read_latest"
    READ_UPTO_LATEST_COMMIT = "read_upto_latest_commit"


def declare(
    key: str,
    doc: str,
    *,
    default: T | None = None,
    parse: Callable[[str], T] | None = None,
    aliases: tuple[str, ...] = (),
    secret: bool = False,
    choices: Iterable[str] = (),
) -> ConfigKey[T]:
    """Declare a key of the streamer; the alias of Hudi's keys is that of DeltaStreamer."""
    if key.startswith(HUDI):
        aliases = (*aliases, key.replace(HUDI, HUDI_OLD))
    return ConfigSection.STREAMER.declare(
        key, doc, default=default, parse=parse, aliases=aliases, secret=secret, choices=choices
    )


WRITER_ID = declare(
    "tidelock.streamer.writer.id",
    "id of the checkpoint: streamers with one id share it, others are independent; default: the"
    " name of the source",
    parse=str,
)
ON_MALFORMED = declare(
    "tidelock.streamer.malformed",
    "malformed records and rows without a key: fail stops the streamer, quarantine stores them",
    default=MalformedPolicy.FAIL.value,
    parse=str.lower,
    choices=MalformedPolicy,
)
QUARANTINE_PATH = declare(
    "tidelock.streamer.quarantine.path",
    "folder for quarantined records; default: .hoodie/.tidelock/quarantine of the table",
    parse=str,
    aliases=("hoodie.errortable.base.path",),
)
MALFORMED_MAX = declare(
    "tidelock.streamer.malformed.max",
    "maximum number of quarantined records per batch; more stop the streamer",
    default=100_000,
)
BATCH_TARGET_S = declare(
    "tidelock.streamer.batch.target.s",
    "target duration of a batch in seconds; the batch size adapts to it; 0: disabled",
    default=60.0,
)
IDLE_POLL_MS = declare(
    "tidelock.streamer.idle.poll.ms",
    "interval between polls of an idle source in continuous mode",
    default=1_000,
)
LOOKBACK_MS = declare(
    "tidelock.streamer.source.dfs.lookback.ms",
    "how much older than the newest file read a new file may be, by modification time",
    default=0,
)
KAFKA_PARTITIONS = declare(
    "tidelock.streamer.source.kafka.partitions",
    "partitions of the topic to read; default: all",
    parse=comma_list,
)

CHECKPOINT_PROVIDER_PATH = declare(
    "hoodie.streamer.checkpoint.provider.path",
    "input of --initial-checkpoint-provider: a table, or the folder of Kafka Connect",
    parse=str,
)
DFS_ROOT = declare("hoodie.streamer.source.dfs.root", "folder of the files to read", parse=str)
KAFKA_TOPIC = declare("hoodie.streamer.source.kafka.topic", "topic to read", parse=str)
KAFKA_EVENTS_MAX = declare(
    "hoodie.streamer.kafka.source.maxEvents",
    "maximum number of records per batch",
    default=5_000_000,
)
KAFKA_RESET = declare(
    "hoodie.streamer.source.kafka.auto.reset.offsets",
    "start offset in a topic without a checkpoint: latest or earliest",
    default=OffsetReset.LATEST.value,
    parse=str.lower,
    choices=OffsetReset,
)
KAFKA_FAIL_ON_LOSS = declare(
    "hoodie.streamer.source.kafka.enable.failOnDataLoss",
    "stop if records were deleted before they were read, instead of skipping them",
    default=True,
)
KAFKA_OFFSETS = declare(
    "hoodie.streamer.source.kafka.append.offsets",
    "add the columns _hoodie_kafka_source_offset, _partition, _timestamp and _key",
    default=False,
)
KAFKA_TASKS_MIN = declare(
    "hoodie.streamer.source.kafka.minPartitions",
    "minimum number of tasks; 0: one per partition",
    default=0,
)
SOURCE_SCHEMA = declare(
    "hoodie.streamer.schemaprovider.source.schema.file", "Avro schema of the records", parse=str
)
TARGET_SCHEMA = declare(
    "hoodie.streamer.schemaprovider.target.schema.file",
    "Avro schema of a table to create; default: that of the rows",
    parse=str,
)
REGISTRY_URL = declare(
    "hoodie.streamer.schemaprovider.registry.url",
    "URL of the schema in a registry, such as http://host:8081/subjects/orders-value/versions/latest",
    parse=str,
)
REGISTRY_TARGET_URL = declare(
    "hoodie.streamer.schemaprovider.registry.targetUrl",
    "URL of the schema of a table to create",
    parse=str,
)
TRANSFORMER_SQL = declare(
    "hoodie.streamer.transformer.sql", "SQL query; <SRC> stands for the input rows", parse=str
)
TRANSFORMER_SQL_FILE = declare(
    "hoodie.streamer.transformer.sql.file",
    "file of SQL statements; the last one is the query",
    parse=str,
)
INCR_PATH = declare(
    "hoodie.streamer.source.hoodieincr.path", "table whose changes are read", parse=str
)
INCR_INSTANTS = declare(
    "hoodie.streamer.source.hoodieincr.num_instants",
    "maximum number of commits per batch",
    default=5,
)
INCR_MISSING = declare(
    "hoodie.streamer.source.hoodieincr.missing.checkpoint.strategy",
    "start in a table without a checkpoint: read_latest or read_upto_latest_commit",
    parse=str.lower,
    choices=MissingCheckpoint,
)
INCR_LATEST = declare(
    "hoodie.streamer.source.hoodieincr.read_latest_on_missing_ckpt",
    "start with the latest commit of a table without a checkpoint",
    default=False,
)
JDBC_URL = declare("hoodie.streamer.jdbc.url", "JDBC URL of the database", parse=str)
JDBC_USER = declare("hoodie.streamer.jdbc.user", "database user", parse=str)
JDBC_PASSWORD = declare(
    "hoodie.streamer.jdbc.password", "password of the user", parse=str, secret=True
)
JDBC_PASSWORD_FILE = declare(
    "hoodie.streamer.jdbc.password.file", "file with the password", parse=str
)
JDBC_DRIVER = declare(
    "hoodie.streamer.jdbc.driver.class", "Java class of the JDBC driver", parse=str
)
JDBC_TABLE = declare("hoodie.streamer.jdbc.table.name", "database table to read", parse=str)
JDBC_INCREMENTAL = declare(
    "hoodie.streamer.jdbc.incr.pull",
    "read only rows with larger values than the last batch",
    default=False,
)
JDBC_COLUMN = declare(
    "hoodie.streamer.jdbc.table.incr.column.name", "column with increasing values", parse=str
)

KAFKA_SERVERS: Final = "bootstrap.servers"
KAFKA_AUTO_RESET: Final = "auto.offset.reset"
"""Settings of Kafka's own clients have no prefix in Hudi's properties."""


def is_streamer_key(name: str) -> bool:
    """Return whether a key is a setting of the streamer, not of the table."""
    if name.startswith(_KEYS_OLD):
        return False
    return name.startswith((HUDI, HUDI_OLD, OURS)) or name == QUARANTINE_PATH.aliases[0]


def by_prefix(settings: Mapping[str, object], prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return the settings with any of the prefixes, without it; the first prefix wins."""
    found: dict[str, str] = {}
    for prefix in reversed(prefixes):
        for name, value in settings.items():
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = str(value)
    return found


_OPERATIONS: Final = (
    "UPSERT",
    "INSERT",
    "BULK_INSERT",
    "INSERT_OVERWRITE",
    "INSERT_OVERWRITE_TABLE",
)
_PROVIDERS: Final = (
    "InitialCheckpointFromAnotherHoodieTimelineProvider",
    "KafkaConnectHdfsProvider",
)
_INSERTS: Final = ("INSERT", "BULK_INSERT")
_TYPES: Final = ("COPY_ON_WRITE", "MERGE_ON_READ")
_TABLES: Final = ("hoodie.", "tidelock.", "fs.")
SOURCES: Final = {
    "JsonKafkaSource": (KAFKA_TOPIC,),
    "AvroKafkaSource": (KAFKA_TOPIC,),
    "JsonDFSSource": (DFS_ROOT,),
    "CsvDFSSource": (DFS_ROOT,),
    "ParquetDFSSource": (DFS_ROOT,),
    "AvroDFSSource": (DFS_ROOT,),
    "ORCDFSSource": (DFS_ROOT,),
    "HoodieIncrSource": (INCR_PATH,),
    "JdbcSource": (JDBC_URL, JDBC_TABLE),
}
"""Source classes by the last part of Hudi's class names, and their required settings."""


@dataclass(frozen=True, slots=True)
class StreamerRequest:
    """The options of a streamer; `properties` are the settings of the file and of the command."""

    target_base_path: str
    source_class: str
    target_table: str | None = None
    source_ordering_field: str | None = None
    op: str = "UPSERT"
    table_type: str | None = None
    schemaprovider_class: str | None = None
    transformer_class: str | None = None
    checkpoint: str | None = None
    ignore_checkpoint: str | None = None
    initial_checkpoint_provider: str | None = None
    filter_dupes: bool = False
    source_limit: int | None = None
    continuous: bool = False
    min_sync_interval_s: float = 0.0
    rounds_without_data_max: int | None = None
    retries_max: int = 3
    retry_interval_s: float = 30.0
    disable_compaction: bool = False
    properties: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate the request before Spark starts. Raises: `ConfigInvalid`."""
        for key in SOURCES[self.source]:
            key.required(self.properties)
        for flag, value, known in (
            ("--op", self.op, _OPERATIONS),
            ("--table-type", self.table_type, _TYPES),
        ):
            if value is not None and value.upper() not in known:
                raise ConfigInvalid(
                    f"{flag}: expected one of {', '.join(known)}, got {value!r}",
                    hint=f"use {flag} {alternatives(known)}",
                )
        if self.source_limit is not None and self.source_limit < 1:
            raise ConfigInvalid(
                f"--source-limit: expected 1 or more, got {self.source_limit}",
                hint="use 1 or more, or omit it for the limit of the source",
            )
        if self.filter_dupes and self.op.upper() not in _INSERTS:
            raise ConfigInvalid(
                f"--filter-dupes: not allowed with --op {self.op}",
                hint=f"use --op {' or '.join(_INSERTS)}",
            )
        self._check_provider()
        # Unknown settings of the streamer are rejected here; the table validates its own.
        prefixes = (*CSV_OPTIONS, *JDBC_OPTIONS)
        ours = {name: value for name, value in self.properties.items() if is_streamer_key(name)}
        o.check_options({k: v for k, v in ours.items() if not k.startswith(prefixes)})

    def _check_provider(self) -> None:
        named = self.initial_checkpoint_provider
        if named is None or ":" in named:
            return
        if named.rpartition(".")[2].lower() not in {each.lower() for each in _PROVIDERS}:
            raise ConfigInvalid(
                f"unknown checkpoint provider class {named!r}",
                hint=f"use {', '.join(_PROVIDERS)}, or module:function",
            )
        CHECKPOINT_PROVIDER_PATH.required(self.properties)

    @property
    def source(self) -> str:
        """The last part of the source class. Raises: `ConfigInvalid` for an unknown class."""
        short = self.source_class.rpartition(".")[2].lower()
        found = next((name for name in SOURCES if name.lower() == short), None)
        if found is None:
            raise ConfigInvalid(
                f"unknown source class {self.source_class!r}",
                hint=f"use one of {', '.join(SOURCES)}",
            )
        return found

    @property
    def operation(self) -> str:
        """The write operation, in lower case."""
        return self.op.lower()

    def table_options(self) -> dict[str, object]:
        """Return the options of the target table, without those of the streamer.

        A merge-on-read table is compacted unless that is disabled: inline after a single sync, and
        in a background thread in continuous mode.
        """
        found: dict[str, object] = {
            name: value
            for name, value in self.properties.items()
            if name.startswith(_TABLES) and not is_streamer_key(name)
        }
        if self.target_table is not None:
            found.setdefault(TABLE_NAME.key, self.target_table)
        if self.source_ordering_field is not None:
            found[o.ORDERING.key] = self.source_ordering_field
        if self.table_type is not None:
            found[o.TABLE_TYPE.key] = self.table_type.upper()
        if self.filter_dupes:
            found[o.DROP_DUPLICATES.key] = True
        if self.disable_compaction:
            found |= {COMPACT_INLINE.key: False, COMPACT_ASYNC.key: False}
        elif self.continuous:
            found.setdefault(COMPACT_ASYNC.key, True)
        else:
            found.setdefault(COMPACT_INLINE.key, True)
        return found
