"""Plans that a writer without a ledger put on the timeline, and what they read (C99)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import DataCorrupt
from tidelock.store.contract import ObjectMeta, StoredObject
from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action, Instant, State, furthest, parse_instant
from tidelock.table.timeline.metadata import CompactionPlan, RequestedReplaceMetadata
from tidelock.txn.effects import Get, List, Steps
from tidelock.txn.fold import Fold

ADOPTED: Final = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)
"""Services whose plans are taken over."""


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """A file group of a plan, and the names of the files that the plan reads of it."""

    group: GroupId
    base: str
    logs: frozenset[str]


def planned_slices(action: Action, body: bytes, *, where: str) -> tuple[PlannedSlice, ...]:
    """Return what a plan reads, whoever made it. Raises: `DataCorrupt` if it cannot be read."""
    if action is not Action.CLUSTERING:
        operations = decode(CompactionPlan, body, where=where).operations or ()
        return tuple(
            _slice(each.partition_path, each.file_id, each.data_file_path, each.delta_file_paths)
            for each in operations
        )
    plan = decode(RequestedReplaceMetadata, body, where=where).clustering_plan
    if plan is None:
        raise DataCorrupt(f"{where} has no clustering plan")
    return tuple(
        _slice(each.partition_path, each.file_id, each.data_file_path, each.delta_file_paths)
        for group in plan.input_groups or ()
        for each in group.slices or ()
    )


def foreign_targets(fold: Fold, *, folder: str) -> Steps[frozenset[GroupId]]:
    """Return the file groups in pending plans that the ledger does not know.

    Under the lock that their writers take, too, none is overlooked.
    """
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/")
    names = (meta.key.removeprefix(f"{folder}/") for meta in listed)
    found: set[GroupId] = set()
    for instant in furthest(each for name in names if (each := parse_instant(name)) is not None):
        requested = instant.requested
        known = requested in fold.plans or fold.is_settled(requested)
        if instant.is_completed or instant.action not in ADOPTED or known:
            continue
        key = f"{folder}/{Instant(requested, instant.action, State.REQUESTED).file_name}"
        held: StoredObject | None = yield Get(key)
        if held is not None:
            pieces = planned_slices(instant.action, held.body, where=key)
            found.update(piece.group for piece in pieces)
    return frozenset(found)


def _slice(
    partition: str | None, file_id: str | None, base: str | None, logs: Iterable[str] | None
) -> PlannedSlice:
    group = (partition or "", file_id or "")
    return PlannedSlice(group, _name(base or ""), frozenset(map(_name, logs or ())))


def _name(path: str) -> str:
    """Return a file without its folders, which some plans name."""
    return path.rpartition("/")[2]
