"""One write that a user asks for, and what each operation is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelock.table.properties import TableType
from tidelock.table.timeline.instant import Action
from tidelock.table.timeline.metadata import OperationType
from tidelock.txn.mark import Mark

OVERWRITES: Final = frozenset(
    {
        OperationType.INSERT_OVERWRITE,
        OperationType.INSERT_OVERWRITE_TABLE,
        OperationType.DELETE_PARTITION,
    }
)
INSERTS: Final = frozenset({OperationType.INSERT, OperationType.BULK_INSERT})


@dataclass(frozen=True, slots=True)
class Job:
    """A write. `rows` is what the engine takes, None for a deletion of partitions.

    `anywhere` says that keys to delete come without their partition. `partitions` are those to
    delete. `metadata` goes into the commit, beside the schema. `reads` marks rows that were
    computed from the table. `mark` says which batch of which application it is.

    Rows that depend on the table come from `compute`, which is called with the table as it is
    before each attempt; `session` is the Spark session that its frames belong to. With
    `tombstones` some of the rows delete: those that say so in a column of that name.
    """

    operation: OperationType
    rows: object | None = None
    anywhere: bool = False
    partitions: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    reads: bool = False
    mark: Mark | None = None
    compute: Callable[..., object] | None = None
    session: object | None = None
    tombstones: bool = False

    @property
    def name(self) -> str:
        """The operation as users write it."""
        return self.operation.value.lower()

    @property
    def deletes(self) -> bool:
        """Tell whether the rows are keys to delete."""
        return self.operation is OperationType.DELETE

    @property
    def overwrites(self) -> bool:
        """Tell whether file groups are replaced."""
        return self.operation in OVERWRITES

    @property
    def inserts(self) -> bool:
        """Tell whether every row is taken for an insert."""
        return self.operation in INSERTS

    def action(self, table: TableType) -> Action:
        """Return what the write is on the timeline."""
        if self.overwrites:
            return Action.REPLACE_COMMIT
        if table is TableType.MERGE_ON_READ:
            return Action.DELTA_COMMIT
        return Action.COMMIT
