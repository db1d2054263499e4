"""The plan of a write: tasks on file groups, and the slot of each row. Pure.

Each task has a slot. A row goes to the slot of its file group. Inserts are distributed over the
slots of their partition by a hash of their key, in the shares given by the plan, so that every
engine sends the same row to the same file group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from tidelock.hudi.bucket_index import string_hashes
from tidelock.hudi.file_groups import FileSlice, GroupId
from tidelock.hudi.schema import PARTITION_PATH, RECORD_KEY, as_array, dictionary_encoded

FILE_ID: Final = "_tidelock_file_id"
"""The column of tagged rows with the id of their file group; null for inserts."""

SLOT: Final = "_tidelock_slot"
"""The column of routed rows with the number of their slot."""

TOMBSTONE: Final = "_tidelock_tombstone"
"""The column that marks deletes: true for a row of which only the key is used."""

SHARES: Final = 2**32
"""The total of the shares of a partition's inserts."""

_MIX: Final = 0x9E37_79B1

_LOW: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class InsertSlot:
    """A slot that takes the inserts with a share number below `below`, after those before it."""

    slot: int
    below: int


@dataclass(frozen=True, slots=True)
class Routes:
    """The slot of each file group, and the insert slots of each partition."""

    groups: Mapping[tuple[str, str], int] = field(default_factory=dict)
    inserts: Mapping[str, tuple[InsertSlot, ...]] = field(default_factory=dict)


def share_bounds(weights: Sequence[int]) -> tuple[int, ...]:
    """Return the end of each weight's share, out of `SHARES`; the last one ends there."""
    total, cumulative, ends = sum(weights), 0, []
    for weight in weights:
        cumulative += weight
        ends.append(SHARES * cumulative // total if total else SHARES)
    return (*ends[:-1], SHARES) if ends else ()


def share_numbers(keys: pa.Array) -> pa.Array:
    """Return a number below `SHARES` for each key: its Java hash, mixed."""
    mixed = pc.multiply(string_hashes(keys), pa.scalar(_MIX, pa.uint64()))
    return pc.bit_wise_and(pc.bit_wise_xor(mixed, pc.shift_right(mixed, _u64(15))), _u64(_LOW))


def group_codes(rows: pa.Table) -> tuple[pa.Array, list[tuple[str, str | None]]]:
    """Return the partition and file group (None for inserts) of each row, as codes and pairs.

    There are few pairs, so work per pair is done once.
    """
    paths = _column_codes(rows.column(PARTITION_PATH))
    groups = _column_codes(rows.column(FILE_ID))
    width = len(groups.dictionary) + 1
    number = pc.fill_null(groups.indices, width - 1)
    if len(paths.dictionary) > 1:
        number = pc.add(pc.multiply(paths.indices.cast(pa.int64()), width), number)
    codes = number.dictionary_encode()
    folders = paths.dictionary.to_pylist()
    names = [*groups.dictionary.to_pylist(), None]
    pairs = [divmod(each, width) for each in codes.dictionary.to_pylist()]
    return codes.indices, [(folders[path], names[group]) for path, group in pairs]


def assign_slots(rows: pa.Table, routes: Routes) -> pa.Array:
    """Return the slot of each tagged row; null where the plan has none."""
    found = pa.nulls(rows.num_rows, pa.int32())
    if routes.groups:
        at, pairs = group_codes(rows)
        known = routes.groups
        named = [None if group is None else known.get((path, group)) for path, group in pairs]
        found = pa.array(named, pa.int32()).take(at)
    if routes.inserts:
        inserts = as_array(rows.column(FILE_ID)).is_null()
        paths = as_array(rows.column(PARTITION_PATH))
        found = pc.if_else(inserts, _insert_slots(rows, paths, routes.inserts), found)
    return found


def _insert_slots(
    rows: pa.Table, paths: pa.Array, inserts: Mapping[str, tuple[InsertSlot, ...]]
) -> pa.Array:
    multiple = any(len(each) > 1 for each in inserts.values())
    names = pa.array(list(inserts), pa.string())
    at = pc.index_in(paths, value_set=names)
    firsts = pa.array([each[0].slot for each in inserts.values()], pa.int32())
    found = firsts.take(at)
    if not multiple:
        return found
    numbers = share_numbers(as_array(rows.column(RECORD_KEY)))
    for number in range(1, max(len(each) for each in inserts.values())):
        # A row moves to the next slot of its partition while its number exceeds the share.
        bounds = [
            each[number - 1].below if number < len(each) else SHARES for each in inserts.values()
        ]
        next_slots = [each[min(number, len(each) - 1)].slot for each in inserts.values()]
        exceeds = pc.greater_equal(numbers, pa.array(bounds, pa.uint64()).take(at))
        found = pc.if_else(exceeds, pa.array(next_slots, pa.int32()).take(at), found)
    return found


def _column_codes(column: pa.ChunkedArray) -> pa.DictionaryArray:
    found = as_array(column)
    return found if pt.is_dictionary(found.type) else dictionary_encoded(found)


def _u64(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())


@dataclass(frozen=True, slots=True)
class PartitionProfile:
    """The number of inserts in a partition, and of updates for each file group."""

    inserts: int = 0
    updates: Mapping[str, int] = field(default_factory=dict)


Profile = Mapping[str, PartitionProfile]
"""The counts of tagged rows by partition."""


class TaskKind(StrEnum):
    """The kind of work on a file group."""

    CREATE = "CREATE"  # create a group with its base file; may create more groups
    MERGE = "MERGE"  # write a new base file: the stored rows merged with the new ones
    APPEND = "APPEND"  # append a log file with the rows
    CONCAT = "CONCAT"  # write a new base file: the stored rows and all new ones, without merging
    REPLACE = "REPLACE"  # write a new base file with the new rows only, even if there are none


@dataclass(frozen=True, slots=True)
class GroupTask:
    """The work on one file group. `file_slice` is its current slice, None for a new group.

    `rows` is the expected number. With `deletes` the rows are keys to delete. `has_deletes` means
    that log files of the group delete keys of its base file: rows to append are then merged into a
    new base file if one of them is older than the deleted row of its key.
    """

    slot: int
    partition: str
    file_id: str
    kind: TaskKind
    file_slice: FileSlice | None = None
    rows: int = 0
    deletes: bool = False
    rolls_over: bool = True
    has_deletes: bool = False

    @property
    def group_id(self) -> GroupId:
        """Partition and file id."""
        return self.partition, self.file_id

    @property
    def runs_without_rows(self) -> bool:
        """Whether the task runs even if it has no rows."""
        return self.kind is TaskKind.REPLACE


@dataclass(frozen=True, slots=True)
class WritePlan:
    """All tasks of a write, by slot, and how rows are routed to them.

    `order_by` sorts the rows of each slot. With `ranged`, the inserts of a partition are sorted as
    a whole, and each insert slot takes a run of as many rows as its task expects.
    """

    tasks: tuple[GroupTask, ...]
    routes: Routes
    order_by: tuple[str, ...] = ()
    ranged: bool = False
