"""Tasks: what is done with each file group of a write, as planners say it to engines. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidelock.kernel.route import Routes
from tidelock.table.filegroup.slice import FileSlice

GroupId = tuple[str, str]
"""Partition and file id."""


@dataclass(frozen=True, slots=True)
class PartitionProfile:
    """How many rows of a partition are inserts, and how many belong to each file group."""

    inserts: int = 0
    updates: Mapping[str, int] = field(default_factory=dict)


Profile = Mapping[str, PartitionProfile]
"""Counts of tagged rows by partition."""


class TaskKind(StrEnum):
    """What is done with one file group."""

    CREATE = "CREATE"  # base files of a group that does not exist; may fill several
    MERGE = "MERGE"  # a new base file: what the group has, and the rows on top
    APPEND = "APPEND"  # a log file with the rows
    CONCAT = "CONCAT"  # a new base file: what the group has, and the rows, duplicates and all
    REPLACE = "REPLACE"  # a new base file of an existing group, with the rows alone, even none


@dataclass(frozen=True, slots=True)
class GroupTask:
    """The work on one file group. `piece` is what the group has, None if it does not exist.

    `rows` is how many are expected. `deletes` says that the rows are keys to delete. With
    `has_deletes` log files of the group delete keys of its base file: rows to append are merged
    into a new base file if one of them is older than the row of its key that was deleted.
    """

    slot: int
    partition: str
    file_id: str
    kind: TaskKind
    piece: FileSlice | None = None
    rows: int = 0
    deletes: bool = False
    rolls_over: bool = True
    has_deletes: bool = False

    @property
    def group_id(self) -> GroupId:
        """Partition and file id."""
        return self.partition, self.file_id


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Every task of a write, by slot, and how rows are routed to them.

    `order_by` sorts the rows of each slot. With `ranged` the inserts of a partition are sorted by
    it as a whole, and each insert slot takes a run of them, as many as its task expects.
    """

    tasks: tuple[GroupTask, ...]
    routes: Routes
    order_by: tuple[str, ...] = ()
    ranged: bool = False
