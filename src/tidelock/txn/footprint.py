"""What a commit did to a table, as far as another writer must know it to judge its own. Pure.

File groups are the grain; partitions where a write replaces whatever is in them; keys where two
writes may insert the same row into file groups of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final

from tidelock.table.filegroup.view import GroupId

NO_GROUPS: Final[frozenset[GroupId]] = frozenset()

BUCKET_DIGITS: Final = 8
"""With a bucket index a file id begins with its bucket's number, in this many digits."""


class Deed(StrEnum):
    """What was done, as the conflict rules tell operations apart."""

    UPSERT = "upsert"
    DELETE = "delete"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    READ_WRITE = "read-dependent"
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
    """What a commit may do to a table, or depend on. Conflicts follow from these alone."""

    BASE = "gives a file group a base file"
    LOG = "appends log files to a file group"
    REPLACE = "replaces file groups"
    PARTITION = "replaces whatever is in a partition"
    ADD = "adds keys"
    FIND = "depends on where keys are, or that they are nowhere"
    READ = "depends on the rows of the table"
    SCHEMA = "carries a schema"


_WRITE: Final = frozenset({Effect.BASE, Effect.LOG, Effect.SCHEMA})
_OVERWRITE: Final = frozenset({Effect.BASE, Effect.REPLACE, Effect.PARTITION, Effect.SCHEMA})

EFFECTS: Final[Mapping[Deed, frozenset[Effect]]] = {
    Deed.UPSERT: _WRITE | {Effect.ADD, Effect.FIND},
    Deed.DELETE: _WRITE | {Effect.FIND},
    Deed.INSERT: _WRITE | {Effect.ADD},
    Deed.BULK_INSERT: _WRITE | {Effect.ADD},
    Deed.READ_WRITE: _WRITE | _OVERWRITE | {Effect.ADD, Effect.FIND, Effect.READ},
    Deed.OVERWRITE: _OVERWRITE | {Effect.ADD},
    Deed.OVERWRITE_TABLE: _OVERWRITE | {Effect.ADD},
    Deed.DELETE_PARTITION: _OVERWRITE,
    Deed.COMPACTION: frozenset({Effect.BASE, Effect.SCHEMA}),
    Deed.LOG_COMPACTION: frozenset({Effect.LOG, Effect.SCHEMA}),
    Deed.CLUSTERING: frozenset({Effect.BASE, Effect.REPLACE, Effect.SCHEMA}),
    Deed.CLEAN: frozenset(),
    Deed.ROLLBACK: frozenset(),
    Deed.SAVEPOINT: frozenset(),
    Deed.RESTORE: frozenset(),
}
"""What each kind of commit may do. Its footprint says what it did."""

SERVICES: Final = frozenset({Deed.COMPACTION, Deed.LOG_COMPACTION, Deed.CLUSTERING})
"""Table services that rewrite file groups and keep every row."""

WRITERS: Final = frozenset(deed for deed in EFFECTS if EFFECTS[deed]) - SERVICES
"""Operations that change rows."""


def having(deeds: frozenset[Deed], *effects: Effect) -> frozenset[Deed]:
    """Return those of `deeds` that may have one of `effects`."""
    return frozenset(deed for deed in deeds if EFFECTS[deed].intersection(effects))


@dataclass(frozen=True, slots=True)
class NewKeys:
    """Record keys that a write looked for in a partition and did not find.

    An upsert inserts them, a delete has nothing to delete. `keys` is None when they are too many
    to name; `files` then are the data files that hold them, relative to the base path.
    """

    keys: frozenset[str] | None = frozenset()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one instant read and wrote.

    `touched` are file groups that existed and have a new version, `created` groups it began;
    `appended` those of both that only got log files. `replaced` are groups nobody sees any more.
    `intents` are partitions that it overwrote whatever was in them, None for all of the table.
    `nonblocking` marks log files written without having read the group they belong to. `deletes`
    says that rows or keys in its log files may be deletes. `bucketed` says that file ids begin with
    the number of a bucket. `everything` stands for a write whose extent is not known.
    """

    deed: Deed
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
        """Groups that got a base file: it hides those with an earlier request time."""
        return self.written - self.appended

    @property
    def written(self) -> frozenset[GroupId]:
        """Groups that have a file of this write."""
        return self.touched | self.created

    def overwrites(self, partition: str) -> bool:
        """Tell whether the write replaced whatever was in `partition`."""
        return self.intents is None or partition in self.intents


def bucket_of(group: GroupId) -> tuple[str, str]:
    """Return the partition and the bucket of a file group with a bucket index."""
    partition, file_id = group
    return partition, file_id[:BUCKET_DIGITS]


@dataclass(frozen=True, slots=True)
class Reliance:
    """What the result of a write depends on, beyond what it wrote. Only its own judge needs it.

    `absent` are buckets without a file group that it found nothing to delete in, `empty`
    partitions of which all such buckets count. `rows` are partitions whose rows decided what it
    left out. With `anywhere` its keys were looked for in every partition; `looked_in` are those
    that there were.
    """

    absent: frozenset[GroupId] = NO_GROUPS
    empty: frozenset[str] = frozenset()
    rows: frozenset[str] = frozenset()
    anywhere: bool = False
    looked_in: frozenset[str] = frozenset()


NO_RELIANCE: Final = Reliance()
