"""The settings of the streamer: Hudi's names, old and older, and ours where Hudi has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from tidelock.base.config import ConfigKey, boolean, declare
from tidelock.base.errors import ConfigInvalid
from tidelock.operation.options import comma_list

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

HUDI: Final = "hoodie.streamer."
HUDI_OLD: Final = "hoodie.deltastreamer."
OURS: Final = "tidelock.streamer."
_KEYS_OLD: Final = f"{HUDI_OLD}keygen."
CSV_OPTIONS: Final = (f"{HUDI}csv.", f"{HUDI_OLD}csv.")
JDBC_OPTIONS: Final = (f"{HUDI}jdbc.extra.options.", f"{HUDI_OLD}jdbc.extra.options.")
_GROUP: Final = "Streamer"


class OnMalformed(StrEnum):
    """What becomes of a batch with records that cannot be read."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


class Reset(StrEnum):
    """Where a topic is begun that was never read."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Missing(StrEnum):
    """Where another table is begun that was never read."""

    READ_LATEST = "read_latest"
    READ_UPTO_LATEST_COMMIT = "read_upto_latest_commit"


def _hudi(
    name: str, parse: Callable[[str], T], default: T | None, doc: str, *, secret: bool = False
) -> ConfigKey[T]:
    aliases = (f"{HUDI_OLD}{name}",)
    key = ConfigKey(f"{HUDI}{name}", parse, default, doc, aliases, secret=secret, group=_GROUP)
    return declare(key)


def _ours(
    name: str,
    parse: Callable[[str], T],
    default: T | None,
    doc: str,
    aliases: tuple[str, ...] = (),
) -> ConfigKey[T]:
    return declare(ConfigKey(f"{OURS}{name}", parse, default, doc, aliases, group=_GROUP))


def member(kind: type[E], key: ConfigKey[str], settings: Mapping[str, object]) -> E:
    """Return one of a few words that a setting may be. Raises: `ConfigInvalid`."""
    named = key.required(settings).lower()
    if named not in set(kind):
        raise ConfigInvalid(f"{key.key} = {named} is not known", hint=f"use {', '.join(kind)}")
    return kind(named)


WRITER_ID = _ours(
    "writer.id",
    str,
    None,
    "whose checkpoint this is: streamers of one id take turns, others do not see each other;"
    " default: by the source",
)
ON_MALFORMED = _ours(
    "malformed",
    str.lower,
    OnMalformed.FAIL.value,
    "records that cannot be read, and rows without a key: fail stops, quarantine puts them aside",
)
QUARANTINE_PATH = _ours(
    "quarantine.path",
    str,
    None,
    "folder for records that were put aside; default: .hoodie/.tidelock/quarantine of the table",
    ("hoodie.errortable.base.path",),
)
MALFORMED_MAX = _ours(
    "malformed.max",
    int,
    100_000,
    "records of one batch that are put aside; more of them stop the streamer",
)
BATCH_TARGET_S = _ours(
    "batch.target.s",
    float,
    60.0,
    "seconds that a batch should take: what is read at once shrinks and grows towards it; 0: never",
)
IDLE_POLL_MS = _ours(
    "idle.poll.ms", int, 1_000, "how often a source without news is looked at in continuous mode"
)
LOOKBACK_MS = _ours(
    "source.dfs.lookback.ms",
    int,
    0,
    "files may appear with a time of change that lies so far behind the newest that was read",
)
KAFKA_PARTITIONS = _ours(
    "source.kafka.partitions", comma_list, None, "partitions of the topic to read; default: all"
)

CHECKPOINT_PROVIDER_PATH = _hudi(
    "checkpoint.provider.path",
    str,
    None,
    "where --initial-checkpoint-provider looks: a table, or the folder of Kafka Connect",
)
DFS_ROOT = _hudi("source.dfs.root", str, None, "folder whose files are read")
KAFKA_TOPIC = _hudi("source.kafka.topic", str, None, "topic that is read")
KAFKA_EVENTS_MAX = _hudi(
    "kafka.source.maxEvents", int, 5_000_000, "records of a topic that one batch takes"
)
KAFKA_RESET = _hudi(
    "source.kafka.auto.reset.offsets",
    str.lower,
    Reset.LATEST.value,
    "where a topic is begun that was never read: latest or earliest",
)
KAFKA_FAIL_ON_LOSS = _hudi(
    "source.kafka.enable.failOnDataLoss",
    boolean,
    default=True,
    doc="stop when records were deleted before they were read, instead of going on behind the gap",
)
KAFKA_OFFSETS = _hudi(
    "source.kafka.append.offsets",
    boolean,
    default=False,
    doc="add the columns _hoodie_kafka_source_offset, _partition, _timestamp and _key",
)
KAFKA_TASKS_MIN = _hudi(
    "source.kafka.minPartitions", int, 0, "tasks that read a topic at least; 0: one per partition"
)
SOURCE_SCHEMA = _hudi("schemaprovider.source.schema.file", str, None, "Avro schema of what is read")
TARGET_SCHEMA = _hudi(
    "schemaprovider.target.schema.file",
    str,
    None,
    "Avro schema of a table that is to be created; default: that of the rows",
)
REGISTRY_URL = _hudi(
    "schemaprovider.registry.url",
    str,
    None,
    "URL of the schema in a registry, such as http://host:8081/subjects/orders-value/versions/latest",
)
REGISTRY_TARGET_URL = _hudi(
    "schemaprovider.registry.targetUrl", str, None, "likewise, of a table that is to be created"
)
TRANSFORMER_SQL = _hudi(
    "transformer.sql", str, None, "query that makes the rows; <SRC> stands for what was read"
)
TRANSFORMER_SQL_FILE = _hudi(
    "transformer.sql.file", str, None, "file with statements; the last one is the query"
)
INCR_PATH = _hudi("source.hoodieincr.path", str, None, "table whose changes are read")
INCR_INSTANTS = _hudi(
    "source.hoodieincr.num_instants", int, 5, "commits of another table that one batch takes"
)
INCR_MISSING = _hudi(
    "source.hoodieincr.missing.checkpoint.strategy",
    str.lower,
    None,
    "where a table is begun that was never read: read_latest or read_upto_latest_commit",
)
INCR_LATEST = _hudi(
    "source.hoodieincr.read_latest_on_missing_ckpt",
    boolean,
    default=False,
    doc="begin a table that was never read with its latest commit",
)
JDBC_URL = _hudi("jdbc.url", str, None, "URL of a database")
JDBC_USER = _hudi("jdbc.user", str, None, "user of the database")
JDBC_PASSWORD = _hudi("jdbc.password", str, None, "password of that user", secret=True)
JDBC_PASSWORD_FILE = _hudi("jdbc.password.file", str, None, "file with the password")
JDBC_DRIVER = _hudi("jdbc.driver.class", str, None, "Java class of the database's driver")
JDBC_TABLE = _hudi("jdbc.table.name", str, None, "table of the database")
JDBC_INCREMENTAL = _hudi(
    "jdbc.incr.pull", boolean, default=False, doc="read only rows with larger values than before"
)
JDBC_COLUMN = _hudi(
    "jdbc.table.incr.column.name", str, None, "column whose values grow with each row"
)

KAFKA_SERVERS: Final = "bootstrap.servers"
KAFKA_AUTO_RESET: Final = "auto.offset.reset"
"""Settings of Kafka's own clients stand in Hudi's properties under their own names."""


def is_streamers(name: str) -> bool:
    """Tell whether a setting is for the streamer, and nothing that a table would know."""
    if name.startswith(_KEYS_OLD):
        return False
    return name.startswith((HUDI, HUDI_OLD, OURS)) or name == QUARANTINE_PATH.aliases[0]


def by_prefix(settings: Mapping[str, object], prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return the settings below any of the prefixes, without them; the first prefix wins."""
    found: dict[str, str] = {}
    for prefix in reversed(prefixes):
        for name, value in settings.items():
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = str(value)
    return found
