"""What one streamer is asked to do: the command line and the properties, put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelock.base.errors import ConfigInvalid
from tidelock.operation import options as o
from tidelock.pipeline.streamer import config as c
from tidelock.tableservice.beside import COMPACT_ASYNC
from tidelock.tableservice.config import COMPACT_INLINE

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
    "JsonKafkaSource": (c.KAFKA_TOPIC,),
    "AvroKafkaSource": (c.KAFKA_TOPIC,),
    "JsonDFSSource": (c.DFS_ROOT,),
    "CsvDFSSource": (c.DFS_ROOT,),
    "ParquetDFSSource": (c.DFS_ROOT,),
    "AvroDFSSource": (c.DFS_ROOT,),
    "ORCDFSSource": (c.DFS_ROOT,),
    "HoodieIncrSource": (c.INCR_PATH,),
    "JdbcSource": (c.JDBC_URL, c.JDBC_TABLE),
}
"""The sources by the last part of Hudi's class names, and what must be said about each."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A streamer's task. `properties` are those of the file, overlaid by single settings."""

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
        """Check what can be checked before Spark is started. Raises: `ConfigInvalid`."""
        for key in SOURCES[self.source]:
            key.required(self.properties)
        if self.op.upper() not in _OPERATIONS:
            raise ConfigInvalid(
                f"--op {self.op} is not known", hint=f"use {', '.join(_OPERATIONS)}"
            )
        if self.table_type is not None and self.table_type.upper() not in _TYPES:
            raise ConfigInvalid(
                f"--table-type {self.table_type} is not known", hint=f"use {', '.join(_TYPES)}"
            )
        if self.source_limit is not None and self.source_limit < 1:
            raise ConfigInvalid(f"--source-limit {self.source_limit} would read nothing")
        if self.filter_dupes and self.op.upper() not in _INSERTS:
            raise ConfigInvalid(
                f"--filter-dupes would leave out what --op {self.op} changes",
                hint=f"use --op {' or '.join(_INSERTS)} with it",
            )
        self._check_provider()
        self._check_names()

    def _check_provider(self) -> None:
        named = self.initial_checkpoint_provider
        if named is None or ":" in named:
            return
        if named.rpartition(".")[2].lower() not in {each.lower() for each in _PROVIDERS}:
            raise ConfigInvalid(
                f"the checkpoint provider {named} is not known",
                hint=f"use {', '.join(_PROVIDERS)}, or module:function",
            )
        c.CHECKPOINT_PROVIDER_PATH.required(self.properties)

    def _check_names(self) -> None:
        """Refuse settings of a streamer that are mistakes; those of the table are checked there."""
        prefixes = (*c.CSV_OPTIONS, *c.JDBC_OPTIONS)
        ours = {name: value for name, value in self.properties.items() if c.is_streamers(name)}
        o.check_options({k: v for k, v in ours.items() if not k.startswith(prefixes)})

    @property
    def source(self) -> str:
        """The last part of the source's class. Raises: `ConfigInvalid` if it is not known."""
        short = self.source_class.rpartition(".")[2].lower()
        found = next((name for name in SOURCES if name.lower() == short), None)
        if found is None:
            raise ConfigInvalid(
                f"the source {self.source_class} is not known",
                hint=f"use one of {', '.join(SOURCES)}",
            )
        return found

    @property
    def operation(self) -> str:
        """The operation as tables name it."""
        return self.op.lower()

    def table_options(self) -> dict[str, object]:
        """Return the options of the target table: what the streamer keeps to itself is left out.

        A merge-on-read table is compacted unless that is switched off: after a single sync, and in
        a thread beside continuous ones.
        """
        found: dict[str, object] = {
            name: value
            for name, value in self.properties.items()
            if name.startswith(_TABLES) and not c.is_streamers(name)
        }
        if self.target_table is not None:
            found.setdefault(o.TABLE_NAME.key, self.target_table)
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
