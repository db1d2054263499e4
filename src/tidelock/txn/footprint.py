"""What a commit did to a table, as far as another writer must know it to judge its own. Pure.

File groups are the grain; partitions where a write replaces whatever is in them; keys where two
writes may insert the same row into file groups of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
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

    `touched` are file groups that existed and have a new version; `appended` those of them that
    only got log files. `created` are groups it began, `replaced` groups nobody sees any more.
    `intents` are partitions that it overwrote whatever was in them, None for all of the table.
    `nonblocking` marks log files written without having read the group they belong to. `bucketed`
    says that file ids begin with the number of a bucket. `everything` stands for a write whose
    extent is not known.
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

    @property
    def merged(self) -> frozenset[GroupId]:
        """Existing groups whose base file was written anew."""
        return self.touched - self.appended

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
