"""Whether a clean has deleted what a reader of an earlier moment needs.

A listing alone does not tell: where a clean was, only newer versions are listed, which such a
reader does not see, and it would return fewer rows. What cleans have deleted, or are about to,
their plans tell; of plans that were archived, the last clean tells how far they went.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from tidelock.base.errors import Conflict, DataCorrupt, NotFound
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.filegroup.view import DataFile, Visibility
from tidelock.table.naming import data_file
from tidelock.table.timeline.active import ActiveTimeline, load_timeline
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import CleanerPlan, SavepointMetadata


def check_there(
    timeline: ActiveTimeline,
    seen: Visibility,
    found: Iterable[FileSlice],
    *,
    as_of: str | None,
    partitions: Collection[str] | None,
) -> None:
    """Raise `NotFound` if a clean has deleted a file that belongs to the slices of a moment.

    `timeline` is the reader's, `seen` what it says of files at the moment, `found` what it found of
    its slices, as of a time or of the last write that it knows.
    """
    if as_of is not None and _is_kept(timeline, found, as_of, partitions):
        return
    now = load_timeline(timeline.store, timeline.folder)
    known = {i.requested for i in timeline.completed(Action.CLEAN)} if as_of is None else set()
    cleans = [i for i in now.instants if i.action is Action.CLEAN and i.requested not in known]
    if as_of is not None:
        cleans = [clean for clean in cleans if clean.requested > as_of]
    if not cleans:
        return
    visible = {(piece.partition, piece.file_id): piece for piece in found}
    moment = as_of or needed_since(timeline)
    for clean in reversed(cleans):
        plan = _plan(now, clean)
        if plan is None:
            continue
        earliest = plan.earliest_instant_to_retain
        if earliest is not None and moment >= earliest.timestamp:
            continue  # it keeps all that was visible then
        _check_reach(plan, now, moment, as_of)
        for file in _deleted(plan, partitions):
            piece = visible.get((file.partition, file.file_id))
            if _is_needed(file, piece, seen, as_of if timeline.legacy_names else None):
                raise _gone(f"{timeline.store.uri}/{file.key}", clean, as_of)


def _is_kept(
    timeline: ActiveTimeline,
    found: Iterable[FileSlice],
    as_of: str,
    partitions: Collection[str] | None,
) -> bool:
    """Tell whether a savepoint keeps the table as of a write, and all that it names was found.

    No clean deletes what a savepoint names, and the archive leaves its write on the timeline.
    """
    saved = next((i for i in timeline.completed(Action.SAVEPOINT) if i.requested == as_of), None)
    if saved is None:
        return False
    there = {
        (piece.partition, file.name)
        for piece in found
        for file in (*((piece.base,) if piece.base else ()), *piece.logs)
    }
    kept = timeline.read(SavepointMetadata, saved).partition_metadata
    return all(
        (partition, name) in there
        for partition, each in kept.items()
        if partitions is None or partition in partitions
        for name in each.savepoint_data_file
    )


def needed_since(timeline: ActiveTimeline) -> str:
    """Return the instant from which on a reader of a timeline's last state needs files.

    A write that is pending while it reads may later hide slices that the reader still needs.
    """
    pending = [i.requested for i in timeline.pending() if i.action.writes_data]
    completed = [i.requested for i in timeline.writes()]
    return min([*pending, *completed[-1:]], default="")


def _is_needed(
    file: DataFile, piece: FileSlice | None, seen: Visibility, as_of: str | None
) -> bool:
    if seen.hides((file.partition, file.file_id), as_of):
        return False
    if seen.completion(file.instant) is None or (as_of is not None and file.instant > as_of):
        return False
    if piece is None:
        return True
    files = (*((piece.base,) if piece.base else ()), *piece.logs)
    # What is older than the slice that was found is of an earlier one.
    return file.instant >= piece.instant and file.key not in {each.key for each in files}


def _check_reach(plan: CleanerPlan, now: ActiveTimeline, moment: str, as_of: str | None) -> None:
    """Judge by how far cleans went, where the plans of earlier ones are not on the timeline.

    They may have left it since the reader looked: what counts is where it begins now.
    """
    earliest = plan.earliest_instant_to_retain
    start = now.start
    if earliest is None or start is None or moment >= start:
        return
    if moment < earliest.timestamp:
        shown = "that this reader has open" if as_of is None else f"as of {as_of}"
        raise NotFound(
            f"{now.store.uri}: the table {shown} was cleaned; what cleans have kept begins at"
            f" {earliest.timestamp}",
            hint=f"refresh the table, or read it as of {earliest.timestamp}, or later",
        )


def _plan(timeline: ActiveTimeline, clean: Instant) -> CleanerPlan | None:
    requested = Instant(clean.requested, Action.CLEAN, State.REQUESTED)
    try:
        return timeline.read(CleanerPlan, requested)
    except (Conflict, DataCorrupt):
        # It is being written, or was archived just now.
        return None


def _deleted(plan: CleanerPlan, partitions: Collection[str] | None) -> Iterator[DataFile]:
    for partition, files in (plan.file_paths_to_be_deleted_per_partition or {}).items():
        if partitions is not None and partition not in partitions:
            continue
        for each in files:
            file = data_file(partition, (each.file_path or "").rpartition("/")[2], 0)
            if file is not None:
                yield file


def _gone(where: str, clean: Instant, as_of: str | None) -> NotFound:
    moment = "the moment that this table was opened at" if as_of is None else as_of
    return NotFound(
        f"{where} belongs to the table as of {moment}, and the clean {clean.requested} deletes it",
        hint="refresh the table, or read it as of a later time",
    )
