"""Savepoints: a state of the table is kept from cleaning and archiving until it is given up."""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.base.errors import Conflict, NotFound
from tidelock.operation.writer import TableWriter
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.active import load_timeline
from tidelock.table.timeline.instant import Action, Instant
from tidelock.table.timeline.metadata import SavepointMetadata
from tidelock.tableservice.clean.execute import Clean
from tidelock.tableservice.savepoint.plan import savepoint_of
from tidelock.tableservice.undoing import snapshot_at
from tidelock.tableservice.wholeness import lost_files
from tidelock.txn.saving import release, save


@dataclass(frozen=True, slots=True)
class Saved:
    """A savepoint: the commit it keeps, since when, by whom, why, and how many files."""

    instant: str
    completion: str
    by: str
    comment: str
    at_epoch_ms: int
    files: int


@dataclass(frozen=True, slots=True)
class Savepoints:
    """The savepoints of the table of one writer."""

    writer: TableWriter

    def create(self, instant: str | None = None, *, by: str = "", comment: str = "") -> Saved:
        """Keep the state of the table as of a commit, the last one if none is named.

        A clean that is planned is carried out first: it may delete what is to be kept.
        Raises: `NotFound` if there is no such commit, `Conflict` if it has a savepoint, or a clean
        has deleted some of its files, or is being carried out by somebody else.
        """
        home = self.writer.transactions
        snapshot_at(self.writer, home.ledger.refresh())
        cleaning = Clean(self.writer)
        for planned in cleaning.pending():
            cleaning.execute(planned)
        fold = home.ledger.refresh()
        snapshot = snapshot_at(self.writer, fold)
        target = self._target(snapshot, instant)
        lost = lost_files(snapshot, target.completion)
        if lost:
            raise Conflict(
                f"{target.requested} cannot be kept: a clean has deleted {lost[0]} of it",
                hint="make savepoints before hoodie.clean.commits.retained commits have passed",
            )
        now_ms = home.clock.now().wall_epoch_ms
        record = savepoint_of(
            snapshot.slices_until(target.completion), by=by, comment=comment, at_epoch_ms=now_ms
        )
        with home.changing() as check:
            steps = save(home, target.requested, record, base=fold.position)
            completion = home.ledger.run(steps, check)
        return _saved(target.requested, completion, record)

    def delete(self, instant: str) -> None:
        """Give a savepoint up: its commit may be cleaned and archived again.

        Raises: `NotFound` if there is no such savepoint.
        """
        home = self.writer.transactions
        home.ledger.refresh()
        timeline = load_timeline(self.writer.store, self.writer.properties.timeline_folder)
        if instant not in home.ledger.fold.savepoints and not timeline.find(
            instant, Action.SAVEPOINT
        ):
            raise NotFound(
                f"{self.writer.store.uri} has no savepoint {instant}",
                hint="`tidelock savepoint TABLE list` shows them",
            )
        with home.changing() as check:
            home.ledger.run(release(home, instant), check)

    def found(self) -> tuple[Saved, ...]:
        """Return the savepoints, oldest commit first."""
        timeline = load_timeline(self.writer.store, self.writer.properties.timeline_folder)
        return tuple(
            _saved(each.requested, each.completion, timeline.read(SavepointMetadata, each))
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
                f"{self.writer.store.uri} has no completed commit {instant or ''} to keep",
                hint="`tidelock timeline show TABLE` shows them; what is archived cannot be kept",
            )
        if snapshot.timeline.find(found.requested, Action.SAVEPOINT):
            raise Conflict(f"{found.requested} has a savepoint already")
        return found


def _saved(instant: str, completion: str, record: SavepointMetadata) -> Saved:
    files = sum(len(each.savepoint_data_file) for each in record.partition_metadata.values())
    return Saved(
        instant,
        completion,
        record.savepointed_by,
        record.comments,
        record.savepointed_at,
        files,
    )
