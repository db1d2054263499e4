"""What cleans have deleted that a reader of an earlier moment may need.

A listing alone does not tell: where a clean was, only newer versions are listed, which such a
reader does not see, and it would return fewer rows. What cleans have deleted, or are about to,
their plans tell, on the timeline and in the history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tidelock.base.errors import Conflict, DataCorrupt, NotFound
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.filegroup.view import DataFile
from tidelock.table.naming import data_file
from tidelock.table.timeline.active import ActiveTimeline, load_timeline
from tidelock.table.timeline.archive import Archive, ArchivedInstant
from tidelock.table.timeline.container import decode
from tidelock.table.timeline.instant import Action, Instant, State
from tidelock.table.timeline.metadata import CleanerPlan, SavepointMetadata


@dataclass(frozen=True)
class Cleaned:
    """What was cleaned since a moment that a reader looks at.

    `timeline` is the reader's, and `archive` the history of its table. `moment` is the completion
    time of the last write that it sees, or, on a table of an old version, a request time. `as_of`
    is what it asked for; None if it reads its last state.
    """

    timeline: ActiveTimeline
    archive: Archive
    moment: str
    as_of: str | None = None
    partitions: Collection[str] | None = None

    @cached_property
    def _known(self) -> frozenset[str]:
        """The cleans of the reader's timeline, which took nothing of its last state."""
        if self.as_of is not None:
            return frozenset()
        return frozenset(i.requested for i in self.timeline.completed(Action.CLEAN))

    def deleted(self) -> dict[str, tuple[DataFile, Instant]]:
        """Return, by key, the files that such a reader may need, and the clean that deletes each.

        Raises: `NotFound` if it is not known any more what was deleted, and may be needed.
        """
        found: dict[str, tuple[DataFile, Instant]] = {}
        for clean, plan in self._plans():
            if not self._keeps_all(plan):
                self._check_reach(plan)
                found.update((file.key, (file, clean)) for file in self._files(plan))
        return found

    @cached_property
    def _now(self) -> ActiveTimeline:
        return load_timeline(self.timeline.store, self.timeline.folder)

    @cached_property
    def _history(self) -> tuple[ArchivedInstant, ...]:
        """What completed after the moment and has left the timeline since."""
        return () if self.timeline.legacy_names else self.archive.instants(after=self.moment)

    @property
    def _has_moved(self) -> bool:
        """Tell whether the timeline may lack cleans: they leave it with the writes before them."""
        start = self._now.start
        if self.as_of is None:
            return start != self.timeline.start
        return start is None or self.moment < start

    def _plans(self) -> Iterator[tuple[Instant, CleanerPlan]]:
        for clean in self._now.instants:
            if clean.action is Action.CLEAN and self._is_later(clean):
                try:
                    requested = Instant(clean.requested, Action.CLEAN, State.REQUESTED)
                    yield clean, self._now.read(CleanerPlan, requested)
                except (Conflict, DataCorrupt):
                    continue  # it is being written, or was archived just now
        for old in self._history if self._has_moved else ():
            if old.action is Action.CLEAN and old.requested not in self._known:
                clean = Instant(old.requested, Action.CLEAN, State.COMPLETED, old.completion)
                where = f"{self.timeline.store.uri}: the plan of {old.requested} in the history"
                yield clean, decode(CleanerPlan, old.plan, where=where)

    def _is_later(self, clean: Instant) -> bool:
        """Tell whether a clean may have been planned after the moment."""
        if clean.requested in self._known:
            return False
        if self.timeline.legacy_names:
            return self.as_of is None or clean.requested > self.moment
        return not clean.is_completed or clean.completion > self.moment

    def _keeps_all(self, plan: CleanerPlan) -> bool:
        """Tell whether a clean keeps everything that is visible at the moment.

        It keeps what somebody sees who sees the first write that it retains and every write that
        was requested before. None of those was pending when it was planned; still, one may have
        completed after the moment, and then a reader of the moment needs what it has superseded.
        """
        if plan.earliest_instant_to_retain is None:
            return False
        earliest = plan.earliest_instant_to_retain.timestamp
        if self.timeline.legacy_names:
            return self.moment >= earliest
        done = [(i.requested, i.completion) for i in self._now.writes()]
        done += [(i.requested, i.completion) for i in self._history if i.action.writes_data]
        return not any(asked <= earliest and since > self.moment for asked, since in done)

    def _check_reach(self, plan: CleanerPlan) -> None:
        """Judge by how far cleans went, where the plans of earlier ones are nowhere.

        The plans of a table of an old version go to a history that is not read here.
        """
        earliest, start = plan.earliest_instant_to_retain, self._now.start
        if not self.timeline.legacy_names or earliest is None or start is None:
            return
        if self.moment < start and self.moment < earliest.timestamp:
            shown = "that this reader has open" if self.as_of is None else f"as of {self.as_of}"
            raise NotFound(
                f"{self.timeline.store.uri}: the table {shown} was cleaned; what cleans have kept"
                f" begins at {earliest.timestamp}",
                hint=f"refresh the table, or read it as of {earliest.timestamp}, or later",
            )

    def _files(self, plan: CleanerPlan) -> Iterator[DataFile]:
        for partition, files in (plan.file_paths_to_be_deleted_per_partition or {}).items():
            if self.partitions is not None and partition not in self.partitions:
                continue
            for each in files:
                file = data_file(partition, (each.file_path or "").rpartition("/")[2], 0)
                if file is not None:
                    yield file


def is_kept(
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


def gone(where: str, clean: Instant, as_of: str | None) -> NotFound:
    """Return the error for a file that a clean deletes."""
    moment = "the moment that this table was opened at" if as_of is None else as_of
    return NotFound(
        f"{where} belongs to the table as of {moment}, and the clean {clean.requested} deletes it",
        hint="refresh the table, or read it as of a later time",
    )
