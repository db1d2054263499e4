"""Savepoints: protect the files and the instant of a commit from clean and archive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelock.core.errors import Conflict, NotFound
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.active import load_timeline
from tidelock.hudi.timeline.instant import Action, Instant
from tidelock.hudi.timeline.metadata import SavepointMetadata, SavepointPartition
from tidelock.operations.write import TableWriter
from tidelock.services.clean import Clean, files_in
from tidelock.services.config import CLEAN_COMMITS
from tidelock.services.rollback import lost_files, snapshot_at
from tidelock.txn.savepoints import release, save


def savepoint_of(
    slices: Iterable[FileSlice], *, by: str, comment: str, at_epoch_ms: int
) -> SavepointMetadata:
    """Return the metadata of a savepoint over file slices."""
    files: dict[str, list[str]] = {}
    for piece in slices:
        names = files.setdefault(piece.partition, [])
        names += [file.name for file in files_in(piece)]
    return SavepointMetadata(
        savepointed_by=by,
        savepointed_at=at_epoch_ms,
        comments=comment,
        partition_metadata={
            partition: SavepointPartition(partition, tuple(sorted(names)))
            for partition, names in sorted(files.items())
        },
    )


@dataclass(frozen=True, slots=True)
class SavepointInfo:
    """A savepoint: its commit, creation time, creator, comment and number of files."""

    instant: str
    completion: str
    by: str
    comment: str
    at_epoch_ms: int
    files: int


@dataclass(frozen=True, slots=True)
class Savepoints:
    """The savepoints of one table."""

    writer: TableWriter

    def create(
        self, instant: str | None = None, *, by: str = "", comment: str = ""
    ) -> SavepointInfo:
        """Create a savepoint at a commit, by default the last one.

        Pending cleans are executed first, because they may delete files of the savepoint.
        Raises: `NotFound` if there is no such commit, `Conflict` if it has a savepoint, if a clean
        has deleted files of it, or if another process executes a clean.
        """
        txns = self.writer.transactions
        snapshot_at(self.writer, txns.ledger.refresh())
        clean = Clean(self.writer)
        for planned in clean.pending():
            clean.execute(planned)
        state = txns.ledger.refresh()
        snapshot = snapshot_at(self.writer, state)
        target = self._target(snapshot, instant)
        if lost := lost_files(snapshot, target.completion):
            raise Conflict(
                f"{self.writer.store.uri}: no savepoint was created at {target.requested}: a clean"
                f" has deleted {lost[0]}",
                hint=f"create savepoints within {CLEAN_COMMITS.key} commits",
            )
        now_ms = txns.clock.now().wall_epoch_ms
        record = savepoint_of(
            snapshot.slices_until(target.completion), by=by, comment=comment, at_epoch_ms=now_ms
        )
        with txns.table_change() as check:
            steps = save(txns, target.requested, record, base=state.position)
            completion = txns.ledger.run(steps, check)
        return _info(target.requested, completion, record)

    def delete(self, instant: str) -> None:
        """Delete a savepoint; its commit can then be cleaned and archived. Raises: `NotFound`."""
        txns = self.writer.transactions
        txns.ledger.refresh()
        timeline = load_timeline(self.writer.store, self.writer.properties.timeline_folder)
        if instant not in txns.ledger.state.savepoints and not timeline.find(
            instant, Action.SAVEPOINT
        ):
            raise NotFound(
                f"{self.writer.store.uri} has no savepoint {instant}",
                hint="list savepoints with `tidelock savepoint URI list`",
            )
        with txns.table_change() as check:
            txns.ledger.run(release(txns, instant), check)

    def list(self) -> tuple[SavepointInfo, ...]:
        """Return the savepoints, oldest commit first."""
        timeline = load_timeline(self.writer.store, self.writer.properties.timeline_folder)
        return tuple(
            _info(each.requested, each.completion, timeline.read(SavepointMetadata, each))
            for each in timeline.completed(Action.SAVEPOINT)
        )

    def _target(self, snapshot: TableSnapshot, instant: str | None) -> Instant:
        writes = snapshot.timeline.writes()
        if instant is None:
            found = max(writes, key=lambda each: each.completion, default=None)
        else:
            found = next((each for each in writes if each.requested == instant), None)
        if found is None:
            raise NotFound(
                f"{self.writer.store.uri} has no completed commit {instant or ''} on its timeline",
                hint="list commits with `tidelock timeline show URI`",
            )
        if snapshot.timeline.find(found.requested, Action.SAVEPOINT):
            raise Conflict(
                f"{self.writer.store.uri}: the commit {found.requested} already has a savepoint",
                hint="delete it first with `tidelock savepoint URI delete INSTANT`",
            )
        return found


def _info(instant: str, completion: str, record: SavepointMetadata) -> SavepointInfo:
    files = sum(len(each.savepoint_data_file) for each in record.partition_metadata.values())
    return SavepointInfo(
        instant, completion, record.savepointed_by, record.comments, record.savepointed_at, files
    )
