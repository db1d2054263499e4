"""Where the rows of a write go: a task for each file group, from counts and sizes alone. Pure.

Inserts fill small base files before they begin new groups, as Hudi's upsert partitioner does it.
The same counts, slices and names give the same plan, whichever engine carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelock.engine.plan import (
    GroupId,
    GroupTask,
    PartitionProfile,
    Profile,
    TaskKind,
    WritePlan,
)
from tidelock.kernel.route import InsertSlot, Routes, shares
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.naming import file_id as numbered

Names = Callable[[], str]
"""Draws the unique part of a new file group's id."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many rows fit: `file_rows` in a new group, and which base files are small."""

    file_bytes: int
    small_bytes: int
    record_bytes: int
    file_rows: int
    small_candidates: int | None = None

    def room(self, base_bytes: int) -> int:
        """Return how many rows a base file of this size still takes."""
        return max(0, (self.file_bytes - base_bytes) // self.record_bytes)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a plan must know of the table and the operation.

    `appends` says that changes of existing groups go to log files, `logs_inserts` that inserts do
    too. `fills_small` lets inserts go to small files, `concat` adds them beside equal keys. `busy`
    groups wait for a table service: their base files are not rewritten here. `deleting` groups have
    log files that delete keys of their base file.
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
    shape: Shape,
    capacity: Capacity,
    names: Names,
) -> WritePlan:
    """Return the plan of an upsert, insert or delete."""
    tasks: list[GroupTask] = []
    inserts: dict[str, tuple[InsertSlot, ...]] = {}
    by_partition = _small_files(slices, shape, capacity) if shape.fills_small else {}
    for partition in sorted(profile):
        found = profile[partition]
        known: dict[str, GroupTask] = {}
        for file_id in sorted(found.updates):
            piece = slices.get((partition, file_id))
            task = _update(len(tasks), (partition, file_id), piece, found, shape)
            known[file_id] = task
            tasks.append(task)
        if found.inserts:
            small = by_partition.get(partition, ())
            filled = _filled(found.inserts, small, capacity)
            slots = []
            for piece, rows in filled:
                slots.append(_fill(tasks, known, piece, rows, shape))
            left = found.inserts - sum(rows for _, rows in filled)
            for rows in _split(left, capacity.file_rows):
                slots.append(len(tasks))
                tasks.append(_create(len(tasks), partition, rows, names))
            weights = [rows for _, rows in filled] + _split(left, capacity.file_rows)
            ends = shares(weights)
            inserts[partition] = tuple(map(InsertSlot, slots, ends))
    groups = {task.group_id: task.slot for task in tasks}
    return WritePlan(tuple(tasks), Routes(groups, inserts))


def plan_bulk(
    profile: Profile,
    capacity: Capacity,
    names: Names,
    *,
    slots_min: int = 0,
    order_by: Sequence[str] = (),
    ranged: bool = False,
) -> WritePlan:
    """Return the plan of a bulk insert: new groups alone, as many as the rows need."""
    tasks: list[GroupTask] = []
    inserts: dict[str, tuple[InsertSlot, ...]] = {}
    for partition in sorted(profile):
        rows = profile[partition].inserts
        most = capacity.file_rows
        if slots_min and len(profile) == 1:
            most = min(most, max(1, -(-rows // slots_min)))
        sizes = _even(rows, -(-rows // most))
        ends = shares(sizes)
        inserts[partition] = tuple(InsertSlot(len(tasks) + i, end) for i, end in enumerate(ends))
        for size in sizes:
            tasks.append(_create(len(tasks), partition, size, names))
    return WritePlan(tuple(tasks), Routes({}, inserts), tuple(order_by), ranged)


def plan_buckets(
    profile: Profile,
    slices: Mapping[GroupId, FileSlice],
    replaced: Collection[FileSlice] = (),
    *,
    kind: TaskKind = TaskKind.CREATE,
    order_by: Sequence[str] = (),
) -> WritePlan:
    """Return a plan that gives every bucket that has rows, or is replaced, a base file.

    A bucket's group keeps its id for ever, so an overwrite cannot replace it by another: it writes
    a version that has the incoming rows alone, and an empty one where none come.
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
        tasks.append(
            GroupTask(
                len(tasks),
                *group,
                TaskKind.REPLACE
                if group in emptied
                else (kind if piece is None else TaskKind.MERGE),
                piece,
                filled.get(group, 0),
                rolls_over=False,
            )
        )
    groups = {task.group_id: task.slot for task in tasks}
    return WritePlan(tuple(tasks), Routes(groups, {}), tuple(order_by))


def _update(
    slot: int,
    group: GroupId,
    piece: FileSlice | None,
    found: PartitionProfile,
    shape: Shape,
) -> GroupTask:
    """Return the task of a file group that rows belong to."""
    partition, file_id = group
    rows = found.updates[file_id]
    if shape.appends and (piece is not None or shape.logs_inserts):
        kind = TaskKind.APPEND
    elif piece is None:
        kind = TaskKind.CREATE
    else:
        kind = TaskKind.CONCAT if shape.concat else TaskKind.MERGE
    return GroupTask(
        slot,
        partition,
        file_id,
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
    shape: Shape,
) -> int:
    """Give inserts to a small file group, beside its updates if it has any; return its slot."""
    kind = TaskKind.CONCAT if shape.concat else TaskKind.MERGE
    task = known.get(piece.file_id)
    if task is None:
        slot = len(tasks)
        tasks.append(GroupTask(slot, piece.partition, piece.file_id, kind, piece, rows))
        return slot
    # Keys of inserts must be in a base file to be found, so this group's updates go there too.
    tasks[task.slot] = replace(task, kind=kind, rows=task.rows + rows)
    return task.slot


def _create(slot: int, partition: str, rows: int, names: Names) -> GroupTask:
    return GroupTask(slot, partition, numbered(names()), TaskKind.CREATE, None, rows)


def _small_files(
    slices: Mapping[GroupId, FileSlice], shape: Shape, capacity: Capacity
) -> dict[str, tuple[FileSlice, ...]]:
    """Return the slices of each partition that take inserts, smallest first."""
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
        partition: tuple(sorted(pieces, key=_by_size)[:most]) for partition, pieces in found.items()
    }


def _by_size(piece: FileSlice) -> tuple[int, str]:
    return (piece.base.size_bytes if piece.base else 0), piece.file_id


def _filled(
    rows: int, small: Sequence[FileSlice], capacity: Capacity
) -> list[tuple[FileSlice, int]]:
    """Return how many of the rows each small file takes."""
    taken = []
    for piece in small:
        room = min(rows, capacity.room(piece.base.size_bytes if piece.base else 0))
        if room:
            taken.append((piece, room))
            rows -= room
    return taken


def _split(rows: int, most: int) -> list[int]:
    """Return how many rows each group gets when all but the last are full."""
    full, rest = divmod(rows, most)
    return [most] * full + ([rest] if rest else [])


def _even(rows: int, groups: int) -> list[int]:
    """Return `rows` divided over `groups`, none more than one larger than another."""
    if not groups:
        return []
    least, more = divmod(rows, groups)
    return [least + 1] * more + [least] * (groups - more)
