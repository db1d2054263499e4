"""`hoodie.properties`: the definition of a table.

`values` holds every key, known or not; `TableProperties` is a typed view of it. A missing or
invalid value that a reader would have to guess is rejected: if the type is missing, Java
assumes copy-on-write, and if the version is missing, its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from tidelock.core.errors import (
    Conflict,
    DataCorrupt,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    RecordFromFuture,
    Unavailable,
    Unsupported,
)
from tidelock.core.javaproperties import parse_properties, render_properties
from tidelock.core.outcome import Landed, NotLanded, Unknown
from tidelock.hudi.timeline.instant import format_time
from tidelock.storage.conditional import ReadbackPolicy, put_and_verify
from tidelock.storage.contract import Create, Match, ObjectStore, StoredObject

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
"""The path of Hudi's metadata table, relative to the table's base path."""

MERGE_PREFIX: Final = "hoodie.record.merge.property."
"""The prefix of merge settings in table properties since version 9."""

_WRITE_KEYS: Final = (
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
"""The keys that determine how rows are written. Writers must agree on their values."""

VERSIONS: Final = (8, 9)
_LAYOUT_VERSION: Final = 2


class TableType(StrEnum):
    """Whether updates rewrite base files or append log files."""

    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class MergeMode(StrEnum):
    """How two records with the same key are merged."""

    COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"
    EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class KeyGenerator(StrEnum):
    """How record keys and partition paths are derived from columns."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"
    OTHER = "OTHER"  # a user-defined class, or that of the metadata table


_MERGE_STRATEGIES: Final = {
    MergeMode.EVENT_TIME_ORDERING: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    MergeMode.COMMIT_TIME_ORDERING: "ce9acb64-bde0-424c-9b91-f6ebba25356d",
}
_PAYLOAD_CLASSES: Final = {
    MergeMode.EVENT_TIME_ORDERING: "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    MergeMode.COMMIT_TIME_ORDERING: "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
}

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties of a table: `values` as text, and `where` for error messages."""

    values: Mapping[str, str]
    where: str = "hoodie.properties"

    def __post_init__(self) -> None:
        """Validate the required values. Raises: `DataCorrupt`, `Unsupported`."""
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
        """The database name; "" if none."""
        return self.values.get(DATABASE, "")

    @property
    def type(self) -> TableType:
        """Copy-on-write or merge-on-read."""
        return self._enum(TableType.__members__, TYPE)

    @property
    def version(self) -> int:
        """The version of the table format."""
        return self._int(VERSION)

    @property
    def record_keys(self) -> tuple[str, ...]:
        """The record key fields; empty for a table without keys."""
        return self._list(RECORD_KEYS)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """The partition fields, without the types that a custom generator appends."""
        return tuple(field.partition(":")[0] for field in self._list(PARTITION_FIELDS))

    @property
    def is_partitioned(self) -> bool:
        """Whether the table is partitioned."""
        return bool(self.partition_fields) and (
            self.key_generator is not KeyGenerator.NON_PARTITION
        )

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """The ordering fields: the larger value wins. Version 8 uses another key for them."""
        return self._list(ORDERING_FIELDS) or self._list(PRECOMBINE_FIELD)

    @property
    def merge_mode(self) -> MergeMode:
        """How two records with the same key are merged.

        If not set: event time ordering if the table has an ordering field, unless it names a
        payload or strategy of another mode.
        """
        if self.values.get(MERGE_MODE):
            return self._enum(MergeMode.__members__, MERGE_MODE)
        for mode in (MergeMode.COMMIT_TIME_ORDERING, MergeMode.EVENT_TIME_ORDERING):
            strategy, payload = self.values.get(MERGE_STRATEGY), self.values.get(PAYLOAD_CLASS)
            if strategy == _MERGE_STRATEGIES[mode] or (
                strategy is None and payload == _PAYLOAD_CLASSES[mode]
            ):
                return mode
        if self.values.get(MERGE_STRATEGY) or self.values.get(PAYLOAD_CLASS):
            return MergeMode.CUSTOM
        if self.ordering_fields:
            return MergeMode.EVENT_TIME_ORDERING
        return MergeMode.COMMIT_TIME_ORDERING

    @property
    def key_generator(self) -> KeyGenerator:
        """The key generator; inferred by Hudi's rule if it is not set."""
        given = self.values.get(KEY_GENERATOR, "").upper().removesuffix("_AVRO")
        if given:
            return KeyGenerator.__members__.get(given, KeyGenerator.OTHER)
        return inferred_key_generator(self.record_keys, self._list(PARTITION_FIELDS))

    @property
    def hive_style(self) -> bool:
        """Whether partition folders are named `field=value`."""
        return self._bool(HIVE_STYLE)

    @property
    def url_encode(self) -> bool:
        """Whether partition values are escaped in folder names."""
        return self._bool(URL_ENCODE)

    @property
    def drops_partition_columns(self) -> bool:
        """Whether data files omit the partition columns."""
        return self._bool(DROP_PARTITION_COLUMNS)

    @property
    def populates_meta_fields(self) -> bool:
        """Whether rows carry their key and commit; a table without them is append-only."""
        return self._bool(POPULATE_META_FIELDS, default=True)

    @property
    def is_utc(self) -> bool:
        """Whether the times of the timeline are in UTC."""
        return self.values.get(TIMEZONE, "LOCAL").upper() == "UTC"

    @property
    def base_format(self) -> str:
        """The file format of base files."""
        return self.values.get(BASE_FORMAT, "PARQUET").upper()

    @property
    def bootstrap_path(self) -> str:
        """The source path of a bootstrapped table; "" for other tables."""
        return self.values.get(BOOTSTRAP_PATH, "")

    @property
    def create_schema(self) -> str:
        """The schema the table was created with, as Avro JSON; "" if not set."""
        return self.values.get(CREATE_SCHEMA, "")

    @property
    def timeline_folder(self) -> str:
        """The folder of the active timeline, relative to the base path."""
        return f".hoodie/{self.values.get(TIMELINE_PATH, 'timeline')}"

    @property
    def history_folder(self) -> str:
        """The folder of the archived timeline, relative to the base path."""
        return f"{self.timeline_folder}/{self.values.get(HISTORY_PATH, 'history')}"

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """The metadata table partitions that readers use."""
        return self._list(METADATA_PARTITIONS)

    @property
    def has_metadata_table(self) -> bool:
        """Whether Hudi's readers list files from the metadata table.

        They do not see commits that do not update it.
        """
        return "files" in self.metadata_partitions or bool(self._list(METADATA_INFLIGHT))

    def differing_keys(self, other: TableProperties) -> tuple[str, ...]:
        """Return the keys that determine how rows are written and differ in `other`."""
        return tuple(
            key
            for key in _WRITE_KEYS
            if (self.values.get(key) or None) != (other.values.get(key) or None)
        )

    def merge_setting(self, key: str) -> str | None:
        """Return a merge setting by its plain name or, since version 9, its prefixed name."""
        return self.values.get(f"{MERGE_PREFIX}{key}", self.values.get(key))

    def with_changes(self, changes: Mapping[str, str | None]) -> TableProperties:
        """Return a copy with some values set (None removes), and an updated checksum."""
        values = {key: value for key, value in self.values.items() if key not in changes}
        values |= {key: value for key, value in changes.items() if value is not None}
        values[CHECKSUM] = str(checksum(values.get(DATABASE, ""), values.get(NAME, "")))
        return TableProperties(values, self.where)

    def _required(self, key: str) -> str:
        value = self.values.get(key, "")
        if not value:
            raise DataCorrupt(
                f"{self.where}: {key} is not set", hint="restore the file from a copy"
            )
        return value

    def _list(self, key: str) -> tuple[str, ...]:
        parts = (part.strip() for part in self.values.get(key, "").split(","))
        return tuple(part for part in parts if part)

    def _bool(self, key: str, *, default: bool = False) -> bool:
        value = self.values.get(key, "").strip().lower()
        return value == "true" if value else default

    def _int(self, key: str) -> int:
        text = self._required(key)
        if not (text.isascii() and text.isdecimal()):
            raise DataCorrupt(f"{self.where}: {key}: expected an integer, got {text!r}")
        return int(text)

    def _enum(self, known: Mapping[str, E], key: str) -> E:
        text = self._required(key)
        if text not in known:
            raise DataCorrupt(
                f"{self.where}: {key}: expected one of {', '.join(known)}, got {text!r}"
            )
        return known[text]

    def _check_checksum(self) -> None:
        given = self.values.get(CHECKSUM)
        expected = str(checksum(self.database, self.name))
        if given is not None and given != expected:
            raise DataCorrupt(
                f"{self.where}: {CHECKSUM}: expected {expected} for the table and database name,"
                f" got {given}",
                hint="the file was truncated or edited: restore the table and database name",
            )

    def _check_version(self) -> None:
        version, layout = self.version, self._int(LAYOUT)
        if version > VERSIONS[-1]:
            raise RecordFromFuture(
                f"{self.where}: table version {version} is newer than {VERSIONS[-1]}, the latest"
                " supported one",
                hint="use a newer release of tidelock",
            )
        if version not in VERSIONS or layout != _LAYOUT_VERSION:
            raise Unsupported(
                f"{self.where}: expected table version {VERSIONS[0]} or {VERSIONS[-1]} with"
                f" timeline layout {_LAYOUT_VERSION}, found {version} with layout {layout}",
                hint="upgrade the table with Apache Hudi 1.x",
            )


def checksum(database: str, name: str) -> int:
    """Return the checksum of a table: it covers the database and table name only."""
    return zlib.crc32(f"{database}.{name}".encode())


def inferred_key_generator(keys: Sequence[str], partition_fields: Sequence[str]) -> KeyGenerator:
    """Return the key generator that Hudi infers when none is set."""
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
    """Return the properties of a new table, with times in UTC. Raises: `InvalidInput`."""
    if version not in VERSIONS:
        raise InvalidInput(f"cannot create a table of version {version}", hint="use 9 or 8")
    if not name or not name.isprintable():
        raise InvalidInput(
            f"invalid table name {name!r}", hint="use one or more printable characters"
        )
    if not database.isprintable():
        raise InvalidInput(f"invalid database name {database!r}", hint="use printable characters")
    if len(ordering_fields) > 1:
        raise InvalidInput(
            f"expected one ordering field, got {', '.join(ordering_fields)}",
            hint="use one: only Java readers support several",
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
    # An empty value differs from an absent key: `partition.fields=` is a field "".
    return TableProperties({key: value for key, value in values.items() if value})


def _merge_values(version: int, mode: MergeMode, ordering: Sequence[str]) -> dict[str, str]:
    if version >= 9:
        named = {"hoodie.table.format": "native", ORDERING_FIELDS: ",".join(ordering)}
    elif mode is MergeMode.CUSTOM:
        named = {PRECOMBINE_FIELD: ",".join(ordering)}
    else:
        # Writers of version 8 reject a table whose mode, strategy and payload do not agree.
        named = {
            PRECOMBINE_FIELD: ",".join(ordering),
            MERGE_STRATEGY: _MERGE_STRATEGIES[mode],
            PAYLOAD_CLASS: _PAYLOAD_CLASSES[mode],
        }
    return {MERGE_MODE: mode.value, **named}


KEY: Final = ".hoodie/hoodie.properties"
BACKUP_KEY: Final = ".hoodie/hoodie.properties.backup"

# Hadoop stores checksums next to local files. Java rejects a file with an outdated checksum, so
# checksums are deleted before the file changes.
_SIDE_FILES: Final = (".hoodie/.hoodie.properties.crc", ".hoodie/.hoodie.properties.backup.crc")


def load_properties(store: ObjectStore) -> TableProperties:
    """Load a table's properties; from the backup while a writer is replacing them.

    Raises: `NotFound` if there is no table, `DataCorrupt`, `Unsupported`.
    """
    steps = loading_steps(store.uri)
    key = next(steps)
    while True:
        try:
            key = steps.send(store.get(key))
        except StopIteration as end:
            found: TableProperties = end.value
            return found


def loading_steps(uri: str) -> Generator[str, StoredObject | None, TableProperties]:
    """Return the steps of `load_properties`: yields keys to get, receives the objects."""
    first_error: DataCorrupt | None = None
    incomplete: TableProperties | None = None
    # The backup is deleted only after the file is back. If neither was found, look again.
    for key in (KEY, BACKUP_KEY, KEY, BACKUP_KEY):
        found = yield key
        if found is None:
            continue
        try:
            properties = decode(found.body, where=f"{uri}/{key}")
        except RecordFromFuture:
            raise
        except DataCorrupt as error:
            first_error = first_error or error
            continue
        if key == BACKUP_KEY or _is_complete(found):
            return properties
        incomplete = properties
    if incomplete is not None:
        return incomplete
    if first_error is not None:
        raise first_error
    raise NotFound(
        f"{uri} is not a Hudi table: {KEY} does not exist",
        hint="use the table's base path, or create the table",
    )


def decode(body: bytes, *, where: str) -> TableProperties:
    """Parse the properties in `body`. Raises: `DataCorrupt` naming `where`, `Unsupported`."""
    try:
        values = parse_properties(body.decode("latin-1"))
    except ValueError as error:
        raise DataCorrupt(
            f"{where}: invalid properties: {error}", hint="restore the file from a copy"
        ) from error
    return TableProperties(values, where)


def create_properties(
    store: ObjectStore, properties: TableProperties, *, policy: ReadbackPolicy
) -> TableProperties:
    """Create a table by writing its properties. Raises: `Conflict` if it already exists."""
    body = _encode(properties, "Properties saved on", policy)
    outcome = put_and_verify(store, KEY, body, Create(), policy=policy)
    match outcome:
        case Landed():
            return load_properties(store)
        case NotLanded():
            raise Conflict(
                f"{store.uri} is already a Hudi table", hint="open it, or use another base path"
            )
        case Unknown(cause):
            raise OutcomeUnknown(f"{store.uri}/{KEY}: the outcome of the write is unknown: {cause}")


def update_properties(
    store: ObjectStore, changes: Mapping[str, str | None], *, policy: ReadbackPolicy
) -> TableProperties:
    """Set some properties (None removes). The caller must hold the table's lock.

    A crash at any point leaves the old or the new properties, and at most a backup, which the next
    update removes. Raises: `Conflict` after a concurrent change, `OutcomeUnknown`.
    """
    before = _recover(store, policy)
    after = decode(before.body, where=f"{store.uri}/{KEY}").with_changes(changes)
    for side_file in _SIDE_FILES:
        store.delete(side_file)
    _back_up(store, before.body, policy)
    body = _encode(after, "Updated at", policy)
    outcome = put_and_verify(store, KEY, body, Match(before.version), policy=policy)
    match outcome:
        case Landed():
            store.delete(BACKUP_KEY)
            return load_properties(store)
        case NotLanded():
            store.delete(BACKUP_KEY)
            raise Conflict(
                f"{store.uri}/{KEY} was changed concurrently",
                hint="acquire the table's lock before changing its properties, then retry",
            )
        case Unknown(cause):
            raise OutcomeUnknown(
                f"{store.uri}/{KEY}: the outcome of the update is unknown: {cause}",
                hint="check the table's properties before retrying",
            )


def _back_up(store: ObjectStore, body: bytes, policy: ReadbackPolicy) -> None:
    match put_and_verify(store, BACKUP_KEY, body, Create(), policy=policy):
        case Landed():
            return
        case NotLanded(reason):
            raise Conflict(
                f"{store.uri}/{BACKUP_KEY} was not written: {reason}",
                hint="another process is changing the table's properties: acquire the lock first",
            )
        case Unknown(cause):
            raise Unavailable(f"{store.uri}/{KEY} was not changed: its backup failed: {cause}")


def _recover(store: ObjectStore, policy: ReadbackPolicy) -> StoredObject:
    """Return the properties file, after cleaning up after an update that crashed."""
    found = store.get(KEY)
    readable = found is not None and _is_readable(found)
    if found is not None and readable and _is_complete(found):
        store.delete(BACKUP_KEY)
        return found
    backup = store.get(BACKUP_KEY)
    if backup is None:
        load_properties(store)
        if found is not None and readable:
            return found
        raise _concurrent_change(store)
    for side_file in _SIDE_FILES:
        store.delete(side_file)
    mode = Create() if found is None else Match(found.version)
    put_and_verify(store, KEY, backup.body, mode, policy=policy)
    restored = store.get(KEY)
    if restored is None or restored.body != backup.body:
        raise _concurrent_change(store)
    store.delete(BACKUP_KEY)
    return restored


def _concurrent_change(store: ObjectStore) -> Conflict:
    return Conflict(
        f"{store.uri}/{KEY} is being replaced concurrently", hint="acquire the table's lock first"
    )


def _is_readable(found: StoredObject) -> bool:
    try:
        decode(found.body, where=KEY)
    except RecordFromFuture:
        return True
    except DataCorrupt:
        return False
    return True


def _is_complete(found: StoredObject) -> bool:
    """Return whether a readable file is certainly not truncated.

    Java ends every line with a newline, and writes the checksum into every file.
    """
    return found.body.endswith(b"\n") and CHECKSUM.encode() in found.body


def _encode(properties: TableProperties, verb: str, policy: ReadbackPolicy) -> bytes:
    """Encode the file. Every write gives unique bytes, so that reading back can verify it."""
    time = format_time(policy.clock.now().wall_epoch_ms)
    day, clock = f"{time[:4]}-{time[4:6]}-{time[6:8]}", f"{time[8:10]}:{time[10:12]}:{time[12:14]}"
    comments = [f"{verb} {day}T{clock}.{time[14:]}Z", f"tidelock {policy.ids.uuid()}"]
    # The checksum goes last, so that a truncated file is not mistaken for a complete one.
    ordered = dict(sorted(properties.values.items(), key=lambda pair: (pair[0] == CHECKSUM, pair)))
    return render_properties(ordered, comments=comments).encode("ascii")
