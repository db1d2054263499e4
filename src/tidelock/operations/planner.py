"""Plans a write: one task per file group, from row counts and file sizes alone. Pure.

Inserts fill small base files before they start new file groups, as in Hudi's upsert partitioner.
The same counts, slices and ids give the same plan, whichever engine executes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelock.execution.write_plan import (
    GroupTask,
    InsertSlot,
    Profile,
    Routes,
    TaskKind,
    WritePlan,
    share_bounds,
)
from tidelock.hudi.file_groups import FileSlice, GroupId
from tidelock.hudi.file_groups import file_id as new_file_id

NewId = Callable[[], str]
"""Returns the unique part of a new file group's id."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Size limits: `file_rows` fit into a new group; files below `small_bytes` are small."""

    file_bytes: int
    small_bytes: int
    record_bytes: int
    file_rows: int
    small_candidates: int | None = None

    def room(self, base_bytes: int) -> int:
        """Return the number of rows that a base file of this size can still take."""
        return max(0, (self.file_bytes - base_bytes) // self.record_bytes)


@dataclass(frozen=True, slots=True)
class TableShape:
    """Properties of the table and the operation that a plan depends on.

    With `appends`, updates of existing groups go to log files; with `logs_inserts`, inserts do too.
    `fills_small` lets inserts go to small files; `concat` adds them even if their key exists.
    `busy` groups are in a pending plan of a table service: their base files are not rewritten.
    `deleting` groups have log files that delete keys of their base file.
    """

    appends: bool = False
    logs_inserts: bool = False
    fills_small: bool = True
    concat: bool = False
    deletes: bool = False
    busy: frozenset[GroupId] = frozenset()
    deleting: frozenset[GroupId] = frozenset()


def plan_write(
    profile: Profile,
    slices: Mapping[GroupId, FileSlice],
    shape: TableShape,
    capacity: Capacity,
    new_id: NewId,
) -> WritePlan:
    """Return the plan of an upsert, insert or delete."""
    tasks: list[GroupTask] = []
    inserts: dict[str, tuple[InsertSlot, ...]] = {}
    by_partition = _small_files(slices, shape, capacity) if shape.fills_small else {}
    for partition in sorted(profile):
        found = profile[partition]
        known: dict[str, GroupTask] = {}
        for file_id in sorted(found.updates):
            group = (partition, file_id)
            task = _update(len(tasks), group, slices.get(group), found.updates[file_id], shape)
            known[file_id] = task
            tasks.append(task)
        if found.inserts:
            filled = _fill_small(found.inserts, by_partition.get(partition, ()), capacity)
            slots = [_fill(tasks, known, piece, rows, shape) for piece, rows in filled]
            weights = [rows for _, rows in filled]
            for rows in _split(found.inserts - sum(weights), capacity.file_rows):
                slots.append(len(tasks))
                weights.append(rows)
                tasks.append(_create(len(tasks), partition, rows, new_id))
            inserts[partition] = tuple(map(InsertSlot, slots, share_bounds(weights)))
    groups = {task.group_id: task.slot for task in tasks}
    return WritePlan(tuple(tasks), Routes(groups, inserts))


def plan_bulk(
    profile: Profile,
    capacity: Capacity,
    new_id: NewId,
    *,
    slots_min: int = 0,
    order_by: Sequence[str] = (),
    ranged: bool = False,
) -> WritePlan:
    """Return the plan of a bulk insert: only new groups, as many as the rows need."""
    tasks: list[GroupTask] = []
    inserts: dict[str, tuple[InsertSlot, ...]] = {}
    for partition in sorted(profile):
        rows = profile[partition].inserts
        most = capacity.file_rows
        if slots_min and len(profile) == 1:
            most = min(most, max(1, -(-rows // slots_min)))
        sizes = _even(rows, -(-rows // most))
        ends = share_bounds(sizes)
        inserts[partition] = tuple(InsertSlot(len(tasks) + i, end) for i, end in enumerate(ends))
        for size in sizes:
            tasks.append(_create(len(tasks), partition, size, new_id))
    return WritePlan(tuple(tasks), Routes({}, inserts), tuple(order_by), ranged)


def plan_buckets(
    profile: Profile,
    slices: Mapping[GroupId, FileSlice],
    replaced: Collection[FileSlice] = (),
    *,
    order_by: Sequence[str] = (),
) -> WritePlan:
    """Return a plan with a base file for every bucket that has rows or is replaced.

    A bucket's file group keeps its id, so an overwrite cannot replace it by another group: it
    writes a version with only the incoming rows, which may be empty.
    """
    tasks: list[GroupTask] = []
    emptied = {(piece.partition, piece.file_id): piece for piece in replaced}
    filled = {
        (partition, file_id): rows
        for partition, found in profile.items()
        for file_id, rows in found.updates.items()
    }
    for group in sorted({*emptied, *filled}):
        piece = emptied.get(group) or slices.get(group)
        kind = TaskKind.CREATE if piece is None else TaskKind.MERGE
        if group in emptied:
            kind = TaskKind.REPLACE
        rows = filled.get(group, 0)
        tasks.append(GroupTask(len(tasks), *group, kind, piece, rows, rolls_over=False))
    groups = {task.group_id: task.slot for task in tasks}
    return WritePlan(tuple(tasks), Routes(groups, {}), tuple(order_by))


def _update(
    slot: int, group: GroupId, piece: FileSlice | None, rows: int, shape: TableShape
) -> GroupTask:
    """Return the task for the updates of a file group."""
    if shape.appends and (piece is not None or shape.logs_inserts):
        kind = TaskKind.APPEND
    elif piece is None:
        kind = TaskKind.CREATE
    else:
        kind = TaskKind.CONCAT if shape.concat else TaskKind.MERGE
    return GroupTask(
        slot,
        *group,
        kind,
        piece,
        rows,
        deletes=shape.deletes,
        rolls_over=False,
        has_deletes=kind is TaskKind.APPEND and group in shape.deleting,
    )


def _fill(
    tasks: list[GroupTask],
    known: Mapping[str, GroupTask],
    piece: FileSlice,
    rows: int,
    shape: TableShape,
) -> int:
    """Add inserts to a small file group, together with its updates; return its slot."""
    kind = TaskKind.CONCAT if shape.concat else TaskKind.MERGE
    task = known.get(piece.file_id)
    if task is None:
        slot = len(tasks)
        tasks.append(GroupTask(slot, piece.partition, piece.file_id, kind, piece, rows))
        return slot
    # Inserted keys must be in a base file to be found, so this group's updates go there too.
    tasks[task.slot] = replace(task, kind=kind, rows=task.rows + rows)
    return task.slot


def _create(slot: int, partition: str, rows: int, new_id: NewId) -> GroupTask:
    return GroupTask(slot, partition, new_file_id(new_id()), TaskKind.CREATE, None, rows)


def _small_files(
    slices: Mapping[GroupId, FileSlice], shape: TableShape, capacity: Capacity
) -> dict[str, tuple[FileSlice, ...]]:
    """Return the small slices of each partition that can take inserts, smallest first."""
    found: dict[str, list[FileSlice]] = {}
    for group in sorted(slices):
        piece = slices[group]
        if piece.base is None or piece.base.size_bytes >= capacity.small_bytes:
            continue
        # Rewriting a group that has log files would be a compaction.
        if (shape.appends and piece.logs) or group in shape.busy:
            continue
        found.setdefault(piece.partition, []).append(piece)
    most = capacity.small_candidates if shape.appends else None
    return {
        partition: tuple(sorted(pieces, key=lambda each: (_base_bytes(each), each.file_id))[:most])
        for partition, pieces in found.items()
    }


def _base_bytes(piece: FileSlice) -> int:
    return piece.base.size_bytes if piece.base else 0


def _fill_small(
    rows: int, small: Sequence[FileSlice], capacity: Capacity
) -> list[tuple[FileSlice, int]]:
    """Return the number of rows for each small file."""
    taken = []
    for piece in small:
        room = min(rows, capacity.room(_base_bytes(piece)))
        if room:
            taken.append((piece, room))
            rows -= room
    return taken


def _split(rows: int, most: int) -> list[int]:
    """Return the rows per group if all but the last are full."""
    full, rest = divmod(rows, most)
    return [most] * full + ([rest] if rest else [])


def _even(rows: int, groups: int) -> list[int]:
    """Return `rows` divided evenly over `groups`."""
    if not groups:
        return []
    least, more = divmod(rows, groups)
    return [least + 1] * more + [least] * (groups - more)
