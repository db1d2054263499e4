"""The contract of an engine that writes: prepare rows, find their places, write file groups.

What goes where is planned outside, from counts: an engine answers `tag` with a `Profile`, is given
a `WritePlan`, and carries it out. So every engine makes the same table of the same rows.

An engine must
  * prepare, look up and route by `kernel.prepare`, `kernel.lookup` and `kernel.route`;
  * run each task of a plan by `engine.task.run_task`, as often as it must, in any process: names of
    files follow from the task, so a second run finds the first one's file and lets it stand;
  * keep prepared and tagged rows usable until `release`: an overtaken write is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from tidelock.engine.plan import (
    GroupId,
    GroupTask,
    PartitionProfile,
    Profile,
    TaskKind,
    WritePlan,
)
from tidelock.kernel.context import WriteContext
from tidelock.kernel.lookup import BucketRule, IndexKind, Liveness
from tidelock.kernel.prepare import PrepareRule
from tidelock.kernel.results import FileResult
from tidelock.table.filegroup.slice import FileSlice


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows ready to be written. `rows` is the engine's own (an Arrow table, a data frame)."""

    rows: object
    count: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TagRule:
    """How rows find their file groups, and what becomes of those that do or do not.

    `slices` are those of the rows' partitions, and of all for keys that may be `anywhere`.
    `drop_found` leaves out rows whose key the table has; `drop_missing` those whose key it does
    not. Rows that say `_hoodie_is_deleted` (`deletes_by`) are always left out when there is
    nothing to delete.

    A key that log files deleted may come again where its base file still holds it. `live` is asked
    where that is not enough: for `drop_found`, and when several groups hold a key. A row goes to
    the groups where its key is alive, and to one of them if it is alive in none.
    """

    kind: IndexKind
    slices: tuple[FileSlice, ...]
    bucket: BucketRule | None = None
    drop_found: bool = False
    drop_missing: bool = False
    anywhere: bool = False
    deletes_by: str | None = None
    live: Liveness | None = None

    def logged(self, piece: FileSlice) -> FileSlice | None:
        """Return a slice with all of its log files; None if it has none, or nobody is to ask."""
        known = {} if self.live is None else self.live.logged
        return known.get((piece.partition, piece.file_id))

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that have slices."""
        return tuple(sorted({piece.partition for piece in self.slices}))


MISSING_KEYS_MAX: Final = 2_048
"""Keys that were not found are named up to this many in a partition."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """Prepared rows with the column `kernel.route.FILE_ID`, the engine's own, and their counts.

    `missing` has the keys by partition that were to be deleted and are not there; None for more
    than `MISSING_KEYS_MAX`. Should somebody else insert one meanwhile, it must be deleted after
    all.
    """

    rows: object
    profile: Profile
    missing: Mapping[str, frozenset[str] | None] = field(default_factory=dict)


Doomed = Callable[[], str | None]
"""Says why a running write cannot be committed any more; None while it can. For any thread."""


class WriteEngine(Protocol):
    """Runs the kernel over the rows of a write. It is made for one table's store."""

    @property
    def tries_twice(self) -> bool:
        """Whether a task may run more than once, and leave files that no result names."""
        ...

    def schema(self, data: object) -> pa.Schema:
        """Return the columns of a user's data, as Arrow sees them. Raises: `InvalidInput`."""
        ...

    def prepare(self, data: object, rule: PrepareRule) -> Prepared:
        """Return the data conformed, keyed and deduplicated. Raises: `InvalidInput`."""
        ...

    def tag(self, prepared: Prepared, rule: TagRule) -> Tagged:
        """Return the rows with their file groups, those left out that the rule drops."""
        ...

    def write(
        self,
        tagged: Tagged,
        plan: WritePlan,
        context: WriteContext,
        *,
        doomed: Doomed | None = None,
    ) -> tuple[FileResult, ...]:
        """Run every task that has rows, and those that need none; results are by slot.

        `doomed` is asked now and then. Raises: `Conflict` once it says why the write is in vain.
        """
        ...

    def release(self, prepared: Prepared) -> None:
        """Let go of what `prepare` kept for a write that is over."""
        ...


__all__ = [
    "MISSING_KEYS_MAX",
    "BucketRule",
    "Doomed",
    "GroupId",
    "GroupTask",
    "IndexKind",
    "PartitionProfile",
    "Prepared",
    "Profile",
    "TagRule",
    "Tagged",
    "TaskKind",
    "WriteEngine",
    "WritePlan",
]
