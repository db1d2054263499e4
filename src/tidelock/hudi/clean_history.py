"""Files deleted by cleans that a reader of an earlier version may need.

A listing alone is not enough: after a clean only newer versions are listed, which such a reader
does not see, so it would silently return fewer rows. The plans of cleans, on the timeline and in
the archive, tell which files were or will be deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tidelock.core.errors import Conflict, DataCorrupt, NotFound
from tidelock.hudi.file_groups import DataFile, FileSlice, data_file
from tidelock.hudi.timeline.active import ActiveTimeline, load_timeline
from tidelock.hudi.timeline.history import Archive, ArchivedInstant
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import CleanerPlan, SavepointMetadata, decode


@dataclass(frozen=True)
class CleanHistory:
    """The cleans since the version that a reader reads.

    `timeline` is the reader's, and `archive` that of its table. `until` is the completion time of
    the last write that the reader sees or, on a table of an old version, a request time. `as_of` is
    the requested version; None for the latest one.
    """

    timeline: ActiveTimeline
    archive: Archive
    until: str
    as_of: str | None = None
    partitions: Collection[str] | None = None

    @cached_property
    def _known_cleans(self) -> frozenset[str]:
        """The cleans on the reader's timeline, which deleted no file of its latest version."""
        if self.as_of is not None:
            return frozenset()
        return frozenset(i.requested for i in self.timeline.completed(Action.CLEAN))

    def deleted_files(self) -> dict[str, tuple[DataFile, Instant]]:
        """Return, by key, the files that such a reader may need, with the clean that deletes each.

        Raises: `NotFound` if it is no longer known what was deleted and may be needed.
        """
        found: dict[str, tuple[DataFile, Instant]] = {}
        for clean, plan in self._plans():
            if not self._retains_all(plan):
                self._check_retention(plan)
                found.update((file.key, (file, clean)) for file in self._deleted_by(plan))
        return found

    @cached_property
    def _current_timeline(self) -> ActiveTimeline:
        return load_timeline(self.timeline.store, self.timeline.folder)

    @cached_property
    def _history(self) -> tuple[ArchivedInstant, ...]:
        """The instants that completed after `until` and have been archived since."""
        return () if self.timeline.legacy_names else self.archive.instants(after=self.until)

    @property
    def _was_archived(self) -> bool:
        """Whether cleans may have left the timeline: they do with the writes before them."""
        start = self._current_timeline.start
        if self.as_of is None:
            return start != self.timeline.start
        return start is None or self.until < start

    def _plans(self) -> Iterator[tuple[Instant, CleanerPlan]]:
        for clean in self._current_timeline.instants:
            if clean.action is Action.CLEAN and self._is_later(clean):
                try:
                    requested = Instant(clean.requested, Action.CLEAN, InstantState.REQUESTED)
                    yield clean, self._current_timeline.read(CleanerPlan, requested)
                except (Conflict, DataCorrupt):
                    continue  # it is being written, or has just been archived
        for archived in self._history if self._was_archived else ():
            if archived.action is Action.CLEAN and archived.requested not in self._known_cleans:
                clean = Instant(
                    archived.requested, Action.CLEAN, InstantState.COMPLETED, archived.completion
                )
                where = (
                    f"{self.timeline.store.uri}: the archived plan of clean {archived.requested}"
                )
                yield clean, decode(CleanerPlan, archived.plan, where=where)

    def _is_later(self, clean: Instant) -> bool:
        """Return whether a clean may have been planned after `until`."""
        if clean.requested in self._known_cleans:
            return False
        if self.timeline.legacy_names:
            return self.as_of is None or clean.requested > self.until
        return not clean.is_completed or clean.completion > self.until

    def _retains_all(self, plan: CleanerPlan) -> bool:
        """Return whether a clean retains every file that is visible at `until`.

        It retains the files visible to a reader of its earliest retained write and of all writes
        requested before. None of those was pending when the clean was planned. One may still have
        completed after `until`; then a reader at `until` needs the files it superseded.
        """
        if plan.earliest_instant_to_retain is None:
            return False
        earliest = plan.earliest_instant_to_retain.timestamp
        if self.timeline.legacy_names:
            return self.until >= earliest
        done = [(i.requested, i.completion) for i in self._current_timeline.writes()]
        done += [(i.requested, i.completion) for i in self._history if i.action.writes_data]
        return not any(
            requested <= earliest and completed > self.until for requested, completed in done
        )

    def _check_retention(self, plan: CleanerPlan) -> None:
        """Check the retention of cleans where the plans of earlier ones are not available.

        Plans of a table of an old version go to an archive that is not read here.
        """
        earliest, start = plan.earliest_instant_to_retain, self._current_timeline.start
        if not self.timeline.legacy_names or earliest is None or start is None:
            return
        if self.until < start and self.until < earliest.timestamp:
            version = "opened by this reader" if self.as_of is None else f"as of {self.as_of}"
            raise NotFound(
                f"{self.timeline.store.uri}: the version {version} has been cleaned; the earliest"
                f" retained version is {earliest.timestamp}",
                hint=f"refresh the table, or read it as of {earliest.timestamp} or later",
            )

    def _deleted_by(self, plan: CleanerPlan) -> Iterator[DataFile]:
        for partition, files in (plan.file_paths_to_be_deleted_per_partition or {}).items():
            if self.partitions is not None and partition not in self.partitions:
                continue
            for each in files:
                file = data_file(partition, (each.file_path or "").rpartition("/")[2], 0)
                if file is not None:
                    yield file


def is_savepointed(
    timeline: ActiveTimeline,
    slices: Iterable[FileSlice],
    as_of: str,
    partitions: Collection[str] | None,
) -> bool:
    """Return whether a savepoint retains the table as of a write, and all its files were found.

    No clean deletes files of a savepoint, and the archive leaves its write on the timeline.
    """
    savepoint = next(
        (i for i in timeline.completed(Action.SAVEPOINT) if i.requested == as_of), None
    )
    if savepoint is None:
        return False
    present = {
        (file_slice.partition, file.name) for file_slice in slices for file in file_slice.files
    }
    retained = timeline.read(SavepointMetadata, savepoint).partition_metadata
    return all(
        (partition, name) in present
        for partition, each in retained.items()
        if partitions is None or partition in partitions
        for name in each.savepoint_data_file
    )


def oldest_needed_instant(timeline: ActiveTimeline) -> str:
    """Return the earliest instant whose files a reader of the latest version needs.

    A write that is pending during the read may later hide slices that the reader still needs.
    """
    latest = [each.requested for each in timeline.writes()[-1:]]
    return min([*timeline.pending_writes, *latest], default="")


def cleaned_error(where: str, clean: Instant, as_of: str | None) -> NotFound:
    """Return the error for a file that a clean deletes."""
    version = "the time it was opened" if as_of is None else as_of
    return NotFound(
        f"{where} belongs to the table as of {version}, and clean {clean.requested} deletes it",
        hint="refresh the table, or read it as of a later time",
    )
