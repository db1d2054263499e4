"""Footprints: what a commit read and wrote, as other writers need it for conflict checks. Pure.

The unit is the file group. Partitions count where a write replaces their content, keys where two
writes may insert the same row into different file groups.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any, Final, Generic, Self, TypeVar

from tidelock.core.errors import DataCorrupt, RecordFromFuture
from tidelock.hudi.file_groups import GroupId

NO_GROUPS: Final[frozenset[GroupId]] = frozenset()

BUCKET_DIGITS: Final = 8
"""With a bucket index, a file id starts with its bucket number in this many digits."""


class CommitKind(StrEnum):
    """The kinds of commits that the conflict rules distinguish."""

    UPSERT = "upsert"
    DELETE = "delete"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    READ_WRITE = "read-modify-write"
    OVERWRITE = "insert_overwrite"
    OVERWRITE_TABLE = "insert_overwrite_table"
    DELETE_PARTITION = "delete_partition"
    COMPACTION = "compaction"
    LOG_COMPACTION = "log_compaction"
    CLUSTERING = "clustering"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"


class Effect(Enum):
    """What a commit may do to a table or depend on. The conflict rules are derived from these."""

    BASE = "gives a file group a base file"
    LOG = "appends log files to a file group"
    REPLACE = "replaces file groups"
    PARTITION = "replaces the content of a partition"
    ADD = "adds keys"
    FIND = "depends on the location or absence of keys"
    READ = "depends on the rows of the table"
    SCHEMA = "carries a schema"


_WRITE: Final = frozenset({Effect.BASE, Effect.LOG, Effect.SCHEMA})
_OVERWRITE: Final = frozenset({Effect.BASE, Effect.REPLACE, Effect.PARTITION, Effect.SCHEMA})

EFFECTS: Final[Mapping[CommitKind, frozenset[Effect]]] = {
    CommitKind.UPSERT: _WRITE | {Effect.ADD, Effect.FIND},
    CommitKind.DELETE: _WRITE | {Effect.FIND},
    CommitKind.INSERT: _WRITE | {Effect.ADD},
    CommitKind.BULK_INSERT: _WRITE | {Effect.ADD},
    CommitKind.READ_WRITE: _WRITE | _OVERWRITE | {Effect.ADD, Effect.FIND, Effect.READ},
    CommitKind.OVERWRITE: _OVERWRITE | {Effect.ADD},
    CommitKind.OVERWRITE_TABLE: _OVERWRITE | {Effect.ADD},
    CommitKind.DELETE_PARTITION: _OVERWRITE,
    CommitKind.COMPACTION: frozenset({Effect.BASE, Effect.SCHEMA}),
    CommitKind.LOG_COMPACTION: frozenset({Effect.LOG, Effect.SCHEMA}),
    CommitKind.CLUSTERING: frozenset({Effect.BASE, Effect.REPLACE, Effect.SCHEMA}),
    CommitKind.CLEAN: frozenset(),
    CommitKind.ROLLBACK: frozenset(),
    CommitKind.SAVEPOINT: frozenset(),
    CommitKind.RESTORE: frozenset(),
}
"""The possible effects of each kind of commit. A footprint has the actual ones."""

SERVICES: Final = frozenset(
    {CommitKind.COMPACTION, CommitKind.LOG_COMPACTION, CommitKind.CLUSTERING}
)
"""Table services that rewrite file groups without changing rows."""

WRITERS: Final = frozenset(kind for kind in EFFECTS if EFFECTS[kind]) - SERVICES
"""Operations that change rows."""


def kinds_with(kinds: frozenset[CommitKind], *effects: Effect) -> frozenset[CommitKind]:
    """Return those of `kinds` that may have one of `effects`."""
    return frozenset(kind for kind in kinds if EFFECTS[kind].intersection(effects))


@dataclass(frozen=True, slots=True)
class NewKeys:
    """Record keys that a write looked up in a partition and did not find.

    An upsert inserts them; a delete has nothing to delete. `keys` is None if they are too many for
    an entry; `files` are then the data files that contain them, relative to the base path.
    """

    keys: frozenset[str] | None = frozenset()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one instant read and wrote.

    `touched` are existing file groups with a new version, `created` are new groups, `appended`
    those of both with only new log files, `replaced` are groups that are no longer visible.
    `intents` are partitions that were overwritten as a whole, None for the whole table.
    `nonblocking` marks log files written without reading their file group. `deletes` says that log
    files may contain deletes. `bucketed` says that file ids start with a bucket number.
    `everything` marks a write of unknown extent.
    """

    commit_kind: CommitKind
    touched: frozenset[GroupId] = NO_GROUPS
    appended: frozenset[GroupId] = NO_GROUPS
    created: frozenset[GroupId] = NO_GROUPS
    replaced: frozenset[GroupId] = NO_GROUPS
    intents: frozenset[str] | None = frozenset()
    inserts: Mapping[str, NewKeys] = field(default_factory=dict)
    nonblocking: bool = False
    bucketed: bool = False
    everything: bool = False
    deletes: bool = False

    @property
    def based(self) -> frozenset[GroupId]:
        """Groups with a new base file, which hides files with an earlier request time."""
        return self.written - self.appended

    @property
    def written(self) -> frozenset[GroupId]:
        """Groups with a file of this write."""
        return self.touched | self.created

    def overwrites(self, partition: str) -> bool:
        """Return whether the write replaced the content of `partition`."""
        return self.intents is None or partition in self.intents


def bucket_of(group: GroupId) -> tuple[str, str]:
    """Return the partition and the bucket of a file group with a bucket index."""
    partition, file_id = group
    return partition, file_id[:BUCKET_DIGITS]


@dataclass(frozen=True, slots=True)
class ReadDependencies:
    """What the result of a write depends on, beyond its footprint. Used only in its own conflict
    check.

    `absent` are buckets without a file group in which it found nothing to delete, `empty`
    partitions in which all such buckets count. `rows` are partitions whose rows decided what it
    left out. With `anywhere`, its keys were looked up in all partitions, and `searched` are those
    that existed.
    """

    absent: frozenset[GroupId] = NO_GROUPS
    empty: frozenset[str] = frozenset()
    rows: frozenset[str] = frozenset()
    anywhere: bool = False
    searched: frozenset[str] = frozenset()


NO_DEPENDENCIES: Final = ReadDependencies()

_TIME: Final = re.compile(r"\d{14}(\d{3})?", re.ASCII)
_WHOLE_MAX: Final = 2**63 - 1


@dataclass(slots=True)
class Fields:
    """A JSON object and its location, for error messages. Raises (all methods): `DataCorrupt`."""

    values: Mapping[str, Any]
    where: str

    @classmethod
    def parse(cls, body: bytes, where: str) -> Self:
        """Return the JSON object in `body`."""
        try:
            values = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise DataCorrupt(f"{where} is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise DataCorrupt(f"{where} is not a JSON object")
        return cls(values, where)

    def raw(self, name: str) -> Any:
        """Return the value, None if absent."""
        return self.values.get(name)

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return value

    def time(self, name: str) -> str:
        value = self.text(name)
        if not _TIME.fullmatch(value):
            raise self._wrong(name, "an instant's time")
        return value

    def integer(self, name: str) -> int:
        """Return a non-negative integer."""
        value = self.values.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _WHOLE_MAX:
            raise self._wrong(name, "a non-negative integer")
        return value

    def flag(self, name: str) -> bool:
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "a boolean")
        return value

    def is_true(self, name: str) -> bool:
        """Return whether the value is true. Any other value counts as false."""
        return self.values.get(name) is True

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings, empty if absent."""
        value = self.values.get(name, [])
        # Checked by type: an entry may have thousands of keys, and every writer reads every entry.
        if not isinstance(value, list) or not {*map(type, value)} <= {str}:
            raise self._wrong(name, "a list of strings")
        return tuple(value)

    def text_set(self, name: str) -> frozenset[str]:
        """Return a set of strings, empty if absent."""
        return frozenset(self.texts(name))

    def times(self, name: str) -> tuple[str, ...]:
        """Return a list of instants' times, empty if absent."""
        value = self.texts(name)
        if not all(_TIME.fullmatch(each) for each in value):
            raise self._wrong(name, "a list of instants' times")
        return value

    def objects(self, name: str) -> list[Fields]:
        value = self.values.get(name)
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self._wrong(name, "a list of objects")
        return [Fields(each, f"{self.where}, {name}") for each in value]

    def nested(self, name: str) -> Fields:
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "an object")
        return Fields(value, f"{self.where}, {name}")

    def groups(self, name: str) -> frozenset[GroupId]:
        """Return file groups, empty if absent."""
        if name not in self.values:
            return frozenset()
        held = self.nested(name)
        return frozenset(
            (partition, file_id) for partition in held.values for file_id in held.texts(partition)
        )

    def footprint(self, name: str) -> Footprint:
        held = self.nested(name)
        commit_kind = held.text("deed")
        if commit_kind not in _COMMIT_KINDS:
            raise held.from_future(f"the commit kind {commit_kind!r} is not supported yet")
        inserts = held.nested("inserts") if "inserts" in held.values else Fields({}, held.where)
        return Footprint(
            commit_kind=_COMMIT_KINDS[commit_kind],
            touched=held.groups("touched"),
            appended=held.groups("appended"),
            created=held.groups("created"),
            replaced=held.groups("replaced"),
            intents=None if held.is_true("wholeTable") else held.text_set("intents"),
            inserts={p: _new_keys(inserts.nested(p)) for p in inserts.values},
            nonblocking=held.is_true("nonblocking"),
            # Older releases did not write this field and may have deleted with any operation.
            deletes="appended" in held.values and held.raw("deletes") is not False,
            bucketed=held.is_true("bucketed"),
            everything=held.is_true("everything"),
        )

    def from_future(self, problem: str) -> RecordFromFuture:
        """Return the error for an object that a newer release has written."""
        return RecordFromFuture(
            f"{self.where}: {problem}",
            hint="upgrade tidelock on this machine",
        )

    def newer_format(self, latest: int) -> RecordFromFuture:
        """Return the error for an object whose format is newer than `latest`."""
        found = self.integer("format")
        return self.from_future(f"format {found} is newer than {latest}, the latest supported one")

    def invalid(self, problem: str) -> DataCorrupt:
        """Return the error for an object with inconsistent fields."""
        return DataCorrupt(f"{self.where}: {problem}")

    def _wrong(self, name: str, expected: str) -> DataCorrupt:
        value = repr(self.values.get(name))
        return DataCorrupt(f"{self.where}: {name}: expected {expected}, got {value[:80]}")


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of a JSON object, and how it is read and written; without `write`, as it is.

    `attribute` is its name in the dataclass, if that is another one. An `optional` field is left
    out if it is empty, and has the default of the dataclass if it is absent.
    """

    name: str
    read: Callable[[Fields, str], Any]
    write: Callable[[Any], Any] | None = None
    attribute: str = ""
    optional: bool = False


class JsonRecord(Generic[T]):
    """A dataclass as a JSON object, with the fields in the order in which they are written."""

    def __init__(self, kind: type[T], *fields: JsonField) -> None:
        self.kind = kind
        # Plain tuples, since every writer reads every entry.
        self._fields = tuple(
            (each.attribute or each.name, each.name, each.read, each.write, each.optional)
            for each in fields
        )

    def encode(self, value: T) -> dict[str, Any]:
        """Return the JSON object of `value`."""
        found = {}
        for attribute, name, _, write, optional in self._fields:
            held = getattr(value, attribute)
            if held or not optional:
                found[name] = held if write is None else write(held)
        return found

    def decode(self, fields: Fields, **known: Any) -> T:
        """Return the value in `fields`, with further attributes `known`. Raises: `DataCorrupt`."""
        for attribute, name, read, _, optional in self._fields:
            if not optional or name in fields.values:
                known[attribute] = read(fields, name)
        return self.kind(**known)


def encode_groups(groups: Iterable[GroupId]) -> dict[str, list[str]]:
    """Return file groups as file ids by partition, sorted."""
    by_partition: defaultdict[str, list[str]] = defaultdict(list)
    for partition, file_id in sorted(groups):
        by_partition[partition].append(file_id)
    return dict(by_partition)


def encode_footprint(footprint: Footprint) -> dict[str, Any]:
    """Return the JSON fields of a footprint, without empty ones."""
    fields: dict[str, Any] = {"deed": footprint.commit_kind.value}
    for name in ("touched", "appended", "created", "replaced"):
        groups: frozenset[GroupId] = getattr(footprint, name)
        if groups:
            fields[name] = encode_groups(groups)
    if footprint.intents is None:
        fields["wholeTable"] = True
    elif footprint.intents:
        fields["intents"] = sorted(footprint.intents)
    if footprint.inserts:
        fields["inserts"] = {p: _key_fields(new) for p, new in sorted(footprint.inserts.items())}
    if footprint.appended:
        fields["deletes"] = footprint.deletes
    for name in ("nonblocking", "bucketed", "everything"):
        if getattr(footprint, name):
            fields[name] = True
    return fields


def _new_keys(fields: Fields) -> NewKeys:
    keys = None if fields.raw("keys") is None else fields.text_set("keys")
    return NewKeys(keys, fields.texts("files"))


def _key_fields(new: NewKeys) -> dict[str, Any]:
    keys = None if new.keys is None else sorted(new.keys)
    return {"keys": keys, "files": list(new.files)} if new.files else {"keys": keys}


_COMMIT_KINDS: Final[Mapping[str, CommitKind]] = {kind.value: kind for kind in CommitKind}


@lru_cache(maxsize=64)
def schema_id_of(schema_json: str) -> str:
    """Return a short hash of a schema, independent of its formatting; "" for none."""
    if not schema_json:
        return ""
    canonical = json.dumps(json.loads(schema_json), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def commit_kind_of(operation: str | None) -> CommitKind:
    """Return the kind of commit for a Hudi operation."""
    name = str(operation or "").removesuffix("_PREPPED")
    return _BY_OPERATION.get(name, CommitKind.UPSERT)


_BY_OPERATION = {
    "INSERT": CommitKind.INSERT,
    "BULK_INSERT": CommitKind.BULK_INSERT,
    "BOOTSTRAP": CommitKind.BULK_INSERT,
    "UPSERT": CommitKind.UPSERT,
    "DELETE": CommitKind.DELETE,
    "INSERT_OVERWRITE": CommitKind.OVERWRITE,
    "INSERT_OVERWRITE_TABLE": CommitKind.OVERWRITE_TABLE,
    "DELETE_PARTITION": CommitKind.DELETE_PARTITION,
    "BUCKET_RESCALE": CommitKind.OVERWRITE_TABLE,
    "CLUSTER": CommitKind.CLUSTERING,
    "COMPACT": CommitKind.COMPACTION,
    "LOG_COMPACT": CommitKind.LOG_COMPACTION,
}
