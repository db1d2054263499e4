"""`hoodie.properties`: what a table is, as its creator decided it.

The text keeps every key, known here or not; `TableProperties` is a typed view of it. A wrong or
missing value that would make a reader guess is refused: Java takes a missing type for
copy-on-write, and a missing version for its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from tidelock.base.errors import DataCorrupt, InvalidInput, RecordFromFuture, Unsupported

NAME: Final = "hoodie.table.name"
DATABASE: Final = "hoodie.database.name"
TYPE: Final = "hoodie.table.type"
VERSION: Final = "hoodie.table.version"
INITIAL_VERSION: Final = "hoodie.table.initial.version"
LAYOUT: Final = "hoodie.timeline.layout.version"
CHECKSUM: Final = "hoodie.table.checksum"
RECORD_KEYS: Final = "hoodie.table.recordkey.fields"
PARTITION_FIELDS: Final = "hoodie.table.partition.fields"
ORDERING_FIELDS: Final = "hoodie.table.ordering.fields"
PRECOMBINE_FIELD: Final = "hoodie.table.precombine.field"
MERGE_MODE: Final = "hoodie.record.merge.mode"
MERGE_STRATEGY: Final = "hoodie.record.merge.strategy.id"
PAYLOAD_CLASS: Final = "hoodie.compaction.payload.class"
KEY_GENERATOR: Final = "hoodie.table.keygenerator.type"
HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
DROP_PARTITION_COLUMNS: Final = "hoodie.datasource.write.drop.partition.columns"
POPULATE_META_FIELDS: Final = "hoodie.populate.meta.fields"
TIMEZONE: Final = "hoodie.table.timeline.timezone"
TIMELINE_PATH: Final = "hoodie.timeline.path"
HISTORY_PATH: Final = "hoodie.timeline.history.path"
BASE_FORMAT: Final = "hoodie.table.base.file.format"
BOOTSTRAP_PATH: Final = "hoodie.bootstrap.base.path"
CREATE_SCHEMA: Final = "hoodie.table.create.schema"
METADATA_PARTITIONS: Final = "hoodie.table.metadata.partitions"
METADATA_INFLIGHT: Final = "hoodie.table.metadata.partitions.inflight"
METADATA_FOLDER: Final = ".hoodie/metadata"
"""The base path of Hudi's metadata table, below that of its table."""

MERGE_PREFIX: Final = "hoodie.record.merge.property."
"""Since version 9 settings of the merge are table properties below this prefix."""

_DECIDING: Final = (
    NAME,
    TYPE,
    VERSION,
    LAYOUT,
    RECORD_KEYS,
    PARTITION_FIELDS,
    ORDERING_FIELDS,
    PRECOMBINE_FIELD,
    MERGE_MODE,
    MERGE_STRATEGY,
    PAYLOAD_CLASS,
    KEY_GENERATOR,
    HIVE_STYLE,
    URL_ENCODE,
    DROP_PARTITION_COLUMNS,
    POPULATE_META_FIELDS,
    TIMELINE_PATH,
    HISTORY_PATH,
    BASE_FORMAT,
)
"""What decides how rows are written. A writer that has other values writes another table."""

VERSIONS: Final = (8, 9)
_LAYOUT_VERSION: Final = 2


class TableType(StrEnum):
    """Whether updates rewrite base files or append log files."""

    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class MergeMode(StrEnum):
    """Which of two records with one key counts."""

    COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"
    EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class KeyGenerator(StrEnum):
    """How keys and partition paths are made of columns."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"
    OTHER = "OTHER"  # a class of the user's, or of the metadata table


_STRATEGY: Final = {
    MergeMode.EVENT_TIME_ORDERING: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    MergeMode.COMMIT_TIME_ORDERING: "ce9acb64-bde0-424c-9b91-f6ebba25356d",
}
_PAYLOAD: Final = {
    MergeMode.EVENT_TIME_ORDERING: "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    MergeMode.COMMIT_TIME_ORDERING: "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
}

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties of a table. `values` has them all as text; `where` names their file."""

    values: Mapping[str, str]
    where: str = "hoodie.properties"

    def __post_init__(self) -> None:
        """Refuse what would have to be guessed. Raises: `DataCorrupt`, `Unsupported`."""
        self._required(NAME)
        self._check_checksum()
        _ = self.type, self.merge_mode
        self._check_version()

    @property
    def name(self) -> str:
        """The table's name."""
        return self._required(NAME)

    @property
    def database(self) -> str:
        """The database's name; "" if it has none."""
        return self.values.get(DATABASE, "")

    @property
    def type(self) -> TableType:
        """Copy-on-write or merge-on-read."""
        return self._one_of(TableType.__members__, TYPE)

    @property
    def version(self) -> int:
        """The version of the table format."""
        return self._number(VERSION)

    @property
    def record_keys(self) -> tuple[str, ...]:
        """The columns of the record key; empty for a table without keys."""
        return self._list(RECORD_KEYS)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """The columns that partition the table, without the types a custom generator appends."""
        return tuple(field.partition(":")[0] for field in self._list(PARTITION_FIELDS))

    @property
    def is_partitioned(self) -> bool:
        """Tell whether rows lie in folders."""
        return bool(self.partition_fields) and (
            self.key_generator is not KeyGenerator.NON_PARTITION
        )

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """The columns whose larger value wins; version 8 has another name for them."""
        return self._list(ORDERING_FIELDS) or self._list(PRECOMBINE_FIELD)

    @property
    def merge_mode(self) -> MergeMode:
        """Which of two records with one key counts.

        A table that does not say is ordered by event time if it has an ordering column, unless it
        names a payload or strategy of another kind.
        """
        if self.values.get(MERGE_MODE):
            return self._one_of(MergeMode.__members__, MERGE_MODE)
        for mode in (MergeMode.COMMIT_TIME_ORDERING, MergeMode.EVENT_TIME_ORDERING):
            strategy, payload = self.values.get(MERGE_STRATEGY), self.values.get(PAYLOAD_CLASS)
            if strategy == _STRATEGY[mode] or (strategy is None and payload == _PAYLOAD[mode]):
                return mode
        if self.values.get(MERGE_STRATEGY) or self.values.get(PAYLOAD_CLASS):
            return MergeMode.CUSTOM
        if self.ordering_fields:
            return MergeMode.EVENT_TIME_ORDERING
        return MergeMode.COMMIT_TIME_ORDERING

    @property
    def key_generator(self) -> KeyGenerator:
        """How keys and partition paths are made, by Hudi's rule where the table does not say."""
        given = self.values.get(KEY_GENERATOR, "").upper().removesuffix("_AVRO")
        if given:
            return KeyGenerator.__members__.get(given, KeyGenerator.OTHER)
        return inferred_key_generator(self.record_keys, self._list(PARTITION_FIELDS))

    @property
    def hive_style(self) -> bool:
        """Tell whether partition folders are called `field=value`."""
        return self._flag(HIVE_STYLE)

    @property
    def url_encode(self) -> bool:
        """Tell whether partition values are escaped in folder names."""
        return self._flag(URL_ENCODE)

    @property
    def drops_partition_columns(self) -> bool:
        """Tell whether partition columns are missing from the data files."""
        return self._flag(DROP_PARTITION_COLUMNS)

    @property
    def populates_meta_fields(self) -> bool:
        """Tell whether rows carry their key and commit; without them a table is append-only."""
        return self._flag(POPULATE_META_FIELDS, default=True)

    @property
    def is_utc(self) -> bool:
        """Tell whether the timeline's times are said to be in UTC."""
        return self.values.get(TIMEZONE, "LOCAL").upper() == "UTC"

    @property
    def base_format(self) -> str:
        """The format of base files."""
        return self.values.get(BASE_FORMAT, "PARQUET").upper()

    @property
    def bootstrap_path(self) -> str:
        """Where the rows lie that the table took over without copying them; "" if it did not."""
        return self.values.get(BOOTSTRAP_PATH, "")

    @property
    def create_schema(self) -> str:
        """The schema the table was created with as Avro JSON; "" if it does not say."""
        return self.values.get(CREATE_SCHEMA, "")

    @property
    def timeline_folder(self) -> str:
        """Where the active timeline is, below the base path."""
        return f".hoodie/{self.values.get(TIMELINE_PATH, 'timeline')}"

    @property
    def history_folder(self) -> str:
        """Where the archived timeline is, below the base path."""
        return f"{self.timeline_folder}/{self.values.get(HISTORY_PATH, 'history')}"

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """The partitions of Hudi's metadata table that readers use."""
        return self._list(METADATA_PARTITIONS)

    @property
    def has_metadata_table(self) -> bool:
        """Tell whether Hudi's readers list files from the metadata table.

        Then a commit that does not update it is invisible to them.
        """
        return "files" in self.metadata_partitions or bool(self._list(METADATA_INFLIGHT))

    def decided_otherwise(self, other: TableProperties) -> tuple[str, ...]:
        """Return the keys that decide how rows are written, and have other values in `other`."""
        return tuple(
            key
            for key in _DECIDING
            if (self.values.get(key) or None) != (other.values.get(key) or None)
        )

    def merge_setting(self, key: str) -> str | None:
        """Return a setting of the merge, under its own name or, since version 9, a prefixed one."""
        return self.values.get(f"{MERGE_PREFIX}{key}", self.values.get(key))

    def changed(self, changes: Mapping[str, str | None]) -> TableProperties:
        """Return these properties with some set, or with None removed, and the right checksum."""
        values = {key: value for key, value in self.values.items() if key not in changes}
        values |= {key: value for key, value in changes.items() if value is not None}
        values[CHECKSUM] = str(checksum(values.get(DATABASE, ""), values.get(NAME, "")))
        return TableProperties(values, self.where)

    def _required(self, key: str) -> str:
        value = self.values.get(key, "")
        if not value:
            raise DataCorrupt(f"{self.where} has no {key}", hint="restore it from a copy")
        return value

    def _list(self, key: str) -> tuple[str, ...]:
        parts = (part.strip() for part in self.values.get(key, "").split(","))
        return tuple(part for part in parts if part)

    def _flag(self, key: str, *, default: bool = False) -> bool:
        value = self.values.get(key, "").strip().lower()
        return value == "true" if value else default

    def _number(self, key: str) -> int:
        text = self._required(key)
        if not (text.isascii() and text.isdecimal()):
            raise DataCorrupt(f"{self.where}: {key} = {text!r} is not a whole number")
        return int(text)

    def _one_of(self, known: Mapping[str, E], key: str) -> E:
        text = self._required(key)
        if text not in known:
            raise DataCorrupt(f"{self.where}: {key} = {text!r} is not one of {', '.join(known)}")
        return known[text]

    def _check_checksum(self) -> None:
        given = self.values.get(CHECKSUM)
        expected = str(checksum(self.database, self.name))
        if given is not None and given != expected:
            raise DataCorrupt(
                f"{self.where}: {CHECKSUM} = {given} does not fit the names in it, which give"
                f" {expected}",
                hint="it was cut short or edited by hand: restore the table's and database's name",
            )

    def _check_version(self) -> None:
        version, layout = self.version, self._number(LAYOUT)
        if version > VERSIONS[-1]:
            raise RecordFromFuture(
                f"{self.where} is of table version {version}; this release knows up to"
                f" {VERSIONS[-1]}",
                hint="use a newer release of tidelock",
            )
        if version not in VERSIONS or layout != _LAYOUT_VERSION:
            raise Unsupported(
                f"{self.where} is of table version {version} with timeline layout {layout}; only"
                f" {VERSIONS[0]} and {VERSIONS[-1]} with layout {_LAYOUT_VERSION} can be read",
                hint="upgrade the table with Apache Hudi 1.x",
            )


def checksum(database: str, name: str) -> int:
    """Return the checksum of a table's names. It covers nothing else."""
    return zlib.crc32(f"{database}.{name}".encode())


def inferred_key_generator(keys: Sequence[str], partition_fields: Sequence[str]) -> KeyGenerator:
    """Return the key generator that Hudi takes when none is given."""
    if not partition_fields:
        return KeyGenerator.NON_PARTITION
    if len(partition_fields) == 1 and len(keys) == 1:
        return KeyGenerator.SIMPLE
    return KeyGenerator.COMPLEX


def new_properties(
    name: str,
    *,
    database: str = "default",
    table_type: TableType = TableType.COPY_ON_WRITE,
    version: int = VERSIONS[-1],
    record_keys: Sequence[str] = (),
    partition_fields: Sequence[str] = (),
    ordering_fields: Sequence[str] = (),
    merge_mode: MergeMode | None = None,
    key_generator: KeyGenerator | None = None,
    hive_style: bool = True,
    url_encode: bool = False,
    create_schema: str = "",
    others: Mapping[str, str] | None = None,
) -> TableProperties:
    """Return the properties of a table to create; its times are in UTC.

    Raises: `InvalidInput` for what no reader, or only some, could read.
    """
    if version not in VERSIONS:
        raise InvalidInput(f"tables of version {version} cannot be created", hint="use 9 or 8")
    if not name or not name.isprintable():
        raise InvalidInput(f"{name!r} cannot be the name of a table")
    if not database.isprintable():
        raise InvalidInput(f"{database!r} cannot be the name of a database")
    if len(ordering_fields) > 1:
        raise InvalidInput(
            f"{len(ordering_fields)} ordering fields: {', '.join(ordering_fields)}",
            hint="use one; readers other than Java's refuse a table with several",
        )
    by_event = MergeMode.EVENT_TIME_ORDERING if ordering_fields else MergeMode.COMMIT_TIME_ORDERING
    mode = merge_mode or by_event
    generator = key_generator or inferred_key_generator(record_keys, partition_fields)
    values = {
        NAME: name,
        DATABASE: database,
        TYPE: table_type.value,
        VERSION: str(version),
        INITIAL_VERSION: str(version),
        LAYOUT: str(_LAYOUT_VERSION),
        CHECKSUM: str(checksum(database, name)),
        RECORD_KEYS: ",".join(record_keys),
        PARTITION_FIELDS: ",".join(partition_fields),
        KEY_GENERATOR: generator.value,
        HIVE_STYLE: str(hive_style).lower(),
        URL_ENCODE: str(url_encode).lower(),
        DROP_PARTITION_COLUMNS: "false",
        TIMEZONE: "UTC",
        TIMELINE_PATH: "timeline",
        HISTORY_PATH: "history",
        "hoodie.archivelog.folder": "archived",
        CREATE_SCHEMA: create_schema,
        **_merge_values(version, mode, ordering_fields),
        **(others or {}),
    }
    # A key with an empty value is not the same as an absent one: `partition.fields=` is a field "".
    return TableProperties({key: value for key, value in values.items() if value})


def _merge_values(version: int, mode: MergeMode, ordering: Sequence[str]) -> dict[str, str]:
    if version >= 9:
        named = {"hoodie.table.format": "native", ORDERING_FIELDS: ",".join(ordering)}
    elif mode is MergeMode.CUSTOM:
        named = {PRECOMBINE_FIELD: ",".join(ordering)}
    else:
        # Version 8 writers refuse a table whose mode, strategy and payload do not agree.
        named = {
            PRECOMBINE_FIELD: ",".join(ordering),
            MERGE_STRATEGY: _STRATEGY[mode],
            PAYLOAD_CLASS: _PAYLOAD[mode],
        }
    return {MERGE_MODE: mode.value, **named}
