"""Reads of a table: snapshots, time travel, changes, history and files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import pyarrow as pa

from tidelock.core.clock import Clock
from tidelock.core.errors import Conflict, DataCorrupt, InvalidInput
from tidelock.core.system import SystemClock
from tidelock.execution.filegroup.merge import Merger
from tidelock.execution.filegroup.read import BATCH_ROWS
from tidelock.execution.local.read import LocalEngine, Scan
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.properties import TableProperties
from tidelock.hudi.schema import without_meta
from tidelock.hudi.snapshot import TableSnapshot, open_table
from tidelock.hudi.timeline.active import ActiveTimeline, load_timeline
from tidelock.hudi.timeline.history import Archive, ArchivedInstant
from tidelock.hudi.timeline.instant import Action, Instant, InstantState
from tidelock.hudi.timeline.metadata import CommitMetadata, ReplaceCommitMetadata, decode
from tidelock.operations.query import (
    Filter,
    changes_scan,
    check_partitions,
    check_partitions_exist,
    point_in_time,
    readable_schema,
    snapshot_scan,
)
from tidelock.operations.report import observe_read
from tidelock.storage.contract import ObjectStore
from tidelock.txn.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from tidelock.txn.entries import Commit
from tidelock.txn.heartbeats import HEARTBEAT_FOLDER
from tidelock.txn.ledger import Ledger
from tidelock.txn.ledger_io import load
from tidelock.txn.state import LedgerState, View

BEFORE_ALL = "00010101000000000"
"""A time before every completion time."""


def completed_writes(store: ObjectStore, after: str) -> tuple[TableSnapshot, tuple[Instant, ...]]:
    """Return a snapshot and its writes completed after `after`, by completion.

    No other write can appear before the last of them later.
    """
    snapshot = open_table(store)
    found = [each for each in snapshot.timeline.writes() if after < each.completion]
    return snapshot, tuple(sorted(found, key=lambda each: each.completion))


def _completions(snapshot: TableSnapshot, since: str) -> list[str]:
    """Return the completion times after `since` on the active timeline, in order.

    Archived writes are read together with the first one, because their files may have been cleaned
    separately.
    """
    return sorted(each.completion for each in snapshot.timeline.writes() if each.completion > since)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A completed action. Counts are those that its writer recorded; None if it wrote no data.

    `rows_written` counts all rows in the written files: a copy-on-write update also rewrites the
    unchanged rows of a file.
    """

    requested: str
    completion: str
    action: Action
    archived: bool = False
    operation: str | None = None
    files: int | None = None
    rows_written: int | None = None
    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    bytes_written: int | None = None


def history(snapshot: TableSnapshot, limit: int | None = None) -> tuple[HistoryEntry, ...]:
    """Return the last `limit` completed actions (all with None), newest request first.

    Raises: `InvalidInput`, `DataCorrupt`.
    """
    if limit is not None and limit < 0:
        raise InvalidInput(
            f"limit: expected 0 or more, got {limit!r}", hint="omit it to list every action"
        )
    return tuple(islice(_entries(snapshot), limit))


def _entries(snapshot: TableSnapshot) -> Iterator[HistoryEntry]:
    seen = set()
    for instant in reversed(snapshot.timeline.completed()):
        seen.add(instant.identity)
        entry = HistoryEntry(instant.requested, instant.completion, instant.action)
        writes = instant.action.writes_data
        yield _with_counts(entry, snapshot.timeline.commit(instant)) if writes else entry
    # The archived timeline is read only if the caller iterates that far. While an instant is being
    # archived it is on both timelines.
    for archived in reversed(snapshot.archive.instants()):
        requested, action = archived.requested, archived.action
        if (requested, action) not in seen:
            entry = HistoryEntry(requested, archived.completion, action, archived=True)
            writes = action.writes_data
            yield _with_counts(entry, _metadata(snapshot, archived)) if writes else entry


def _metadata(snapshot: TableSnapshot, archived: ArchivedInstant) -> CommitMetadata:
    kind = ReplaceCommitMetadata if archived.action is Action.REPLACE_COMMIT else CommitMetadata
    where = f"{snapshot.store.uri}/{snapshot.properties.history_folder} {archived.requested}"
    return decode(kind, archived.metadata, where=where)


def _with_counts(entry: HistoryEntry, commit: CommitMetadata) -> HistoryEntry:
    stats = [stat for each in commit.partition_to_write_stats.values() for stat in each]
    return replace(
        entry,
        operation=commit.operation_type,
        files=len(stats),
        rows_written=sum(stat.num_writes or 0 for stat in stats),
        rows_inserted=sum(stat.num_inserts or 0 for stat in stats),
        rows_updated=sum(stat.num_update_writes or 0 for stat in stats),
        rows_deleted=sum(stat.num_deletes or 0 for stat in stats),
        bytes_written=sum(stat.total_write_bytes or 0 for stat in stats),
    )


def check_published(
    store: ObjectStore,
    state: LedgerState,
    timeline: ActiveTimeline,
    *,
    history: str,
    unfinished: Collection[str] = (),
) -> ActiveTimeline:
    """Return the timeline, reloaded if necessary, after checking it against the ledger.

    `state` is a fully published ledger state, from before or after the timeline was loaded. Later
    commits are in ledger entries, which are read only if one of the `unfinished` writes has no
    heartbeat: a running write has a heartbeat, a completed one has none. Tables with external
    writers are not checked, because those roll back commits without a ledger entry. Raises:
    `DataCorrupt` naming a completed instant that is missing.
    """
    if state.external:
        return timeline
    stopped = _without_heartbeat(store, unfinished)
    if stopped:
        # Most of them have completed since.
        timeline = load_timeline(store, timeline.folder)
        stopped &= unfinished_writes(timeline)
    if not stopped and not _missing(state, timeline):
        return timeline
    # An instant completed, was rolled back or was archived between the two reads; or it is lost.
    ledger = Ledger(store, timeline_folder=timeline.folder)
    known = ledger.run(load())
    timeline = load_timeline(store, timeline.folder)
    if known.state.external:
        return timeline
    lost = _expected(state, known, timeline) & _missing(known.state, timeline)
    if lost:
        lost &= _missing(ledger.run(load()).state, timeline)
        lost -= {requested for requested, _ in Archive(store, history).contains(lost)}
    if lost:
        raise DataCorrupt(
            f"{store.uri}/{timeline.folder}: the completed instant {min(lost)} is missing; it is"
            " committed in the ledger",
            hint="restore the file from a backup; `tidelock table validate` lists missing files",
        )
    return timeline


def unfinished_writes(timeline: ActiveTimeline, last: ActiveTimeline | None = None) -> set[str]:
    """Return the inflight writes that began before the last completion on the timeline.

    With `last`, an earlier timeline, only those that were on it too: most writes end between two
    reads, and listing heartbeats costs a request.
    """
    until = timeline.latest_completion
    found = {
        instant.requested
        for instant in timeline.pending()
        if instant.state is InstantState.INFLIGHT
        and instant.action.writes_data
        and instant.requested < until
    }
    return found if last is None else found & {instant.requested for instant in last.instants}


def _without_heartbeat(store: ObjectStore, unfinished: Collection[str]) -> set[str]:
    """Return the instants without a heartbeat."""
    prefix = f"{HEARTBEAT_FOLDER}/"
    listed = store.list(prefix) if unfinished else ()
    return set(unfinished) - {meta.key.removeprefix(prefix) for meta in listed}


def _expected(state: LedgerState, known: View, timeline: ActiveTimeline) -> set[str]:
    """Return the instants that must be, or have been, on a timeline loaded after `known`.

    C29: commits are published in ledger order, so all that completed before the last one on the
    timeline. Later ones may not be published yet.
    """
    until = timeline.latest_completion
    commits = (entry.fact for entry in known.tail if entry.time <= until)
    return {*state.committed, *(fact.instant for fact in commits if isinstance(fact, Commit))}


def _missing(state: LedgerState, timeline: ActiveTimeline) -> set[str]:
    """Return the instants that are committed in the ledger and not complete on the timeline."""
    shown = {instant.requested for instant in timeline.files if instant.is_completed}
    return {
        instant
        for instant in state.committed
        if instant not in shown and instant >= state.archived and instant not in state.aborted
    }


R = TypeVar("R")

_SNAPSHOT_RETRIES: Final = 4


class TableReader:
    """Reads of a table from one snapshot.

    Guarantees: every read sees the same commits, each as a whole, until `refresh` or an own write.
    Does not guarantee that old files stay: a clean may delete them, and a read that needs one then
    raises `NotFound`.
    """

    def __init__(
        self,
        snapshot: TableSnapshot,
        *,
        engine: LocalEngine | None = None,
        merger: Merger | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._seen: TableSnapshot | None = snapshot
        self._last_timeline = snapshot.timeline
        self._committed_files = snapshot.committed_files
        self._store: ObjectStore = snapshot.store
        self._properties = snapshot.properties
        self._engine = engine or LocalEngine()
        self._merger = merger
        self._clock = clock or SystemClock()

    @property
    def _snapshot(self) -> TableSnapshot:
        if self._seen is None:
            found = snapshot_now(self._store, last=self._last_timeline)
            self._seen = replace(found, committed_files=self._committed_files)
            self._last_timeline = found.timeline
            self._properties = found.properties
        return self._seen

    def refresh(self) -> None:
        """Make the next read use the current state of the table."""
        self._seen = None

    @property
    def uri(self) -> str:
        """The table's base path."""
        return self._store.uri

    @property
    def properties(self) -> TableProperties:
        """The table's properties: type, version, keys, partitions and merge mode."""
        return self._properties

    @property
    def schema(self) -> pa.Schema:
        """The table's columns without meta columns, as `read` returns them."""
        return without_meta(self._with_snapshot(readable_schema))

    @property
    def latest_completion(self) -> str | None:
        """The completion time of the last visible write, for the next `since`; None if empty."""
        return self._snapshot.latest_completion

    @property
    def timeline(self) -> tuple[Instant, ...]:
        """The instants of the active timeline, each in its latest state, by request time."""
        return self._snapshot.timeline.instants

    def read(
        self,
        columns: Sequence[str] | None = None,
        partitions: Collection[str] | None = None,
        as_of: str | datetime | None = None,
        *,
        filter: Filter | None = None,  # noqa: A002 - the usual name
        read_optimized: bool = False,
        meta_columns: bool = False,
    ) -> pa.Table:
        """Return the table's rows.

        `columns` defaults to all columns. `partitions` are partition paths, as `files` returns
        them; they must exist. `as_of` is an earlier time: 17 or 14 digits, an ISO time (UTC by
        default) or a datetime. The request time of a commit gives the state after that commit; any
        other time gives the commits completed by then. `filter` is an Arrow expression, or
        conditions like `("amount", ">", 10)` that must all hold; excluded partitions and row groups
        are not fetched. `read_optimized` reads base files only, without changes that are not
        compacted. `meta_columns` adds Hudi's five `_hoodie_*` columns in front. Raises:
        `InvalidInput`, `NotFound`, `DataCorrupt`, `Unsupported`.
        """
        scan = partial(
            snapshot_scan,
            columns=columns,
            partitions=partitions,
            as_of=as_of,
            filter=filter,
            read_optimized=read_optimized,
            meta_columns=meta_columns,
            merger=self._merger,
        )
        return self._read_table(self._with_snapshot(scan))

    def batches(
        self,
        columns: Sequence[str] | None = None,
        partitions: Collection[str] | None = None,
        as_of: str | datetime | None = None,
        *,
        filter: Filter | None = None,  # noqa: A002 - the usual name
        read_optimized: bool = False,
        meta_columns: bool = False,
        batch_rows: int = BATCH_ROWS,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Return an iterator over the rows of `read` as record batches, in the same order.

        Close the generator (`contextlib.closing`) before the table if you stop early. Invalid
        arguments raise here, before the first batch.
        """
        scan = partial(
            snapshot_scan,
            columns=columns,
            partitions=partitions,
            as_of=as_of,
            filter=filter,
            read_optimized=read_optimized,
            meta_columns=meta_columns,
            merger=self._merger,
            batch_rows=batch_rows,
        )
        return self._read_batches(self._with_snapshot(scan))

    def changes(
        self,
        since: str | datetime,
        until: str | datetime | None = None,
        *,
        columns: Sequence[str] | None = None,
        meta_columns: bool = False,
    ) -> pa.Table:
        """Return the rows that commits completed in (since, until] inserted or updated.

        Both are completion times; `until` defaults to the last commit. Each row is returned once,
        in its state at the end of the range. Deleted rows are not returned. Use `latest_completion`
        as the `since` of the next call. Raises: `NotFound` if files of the range have been cleaned,
        and the errors of `read`.
        """
        scan = partial(
            changes_scan,
            since=since,
            until=until,
            columns=columns,
            meta_columns=meta_columns,
            merger=self._merger,
        )
        return self._read_table(self._with_snapshot(scan))

    def follow(
        self,
        since: str | datetime | None = None,
        *,
        poll_ms: int = 1_000,
        idle_ms: int | None = None,
        columns: Sequence[str] | None = None,
        meta_columns: bool = False,
    ) -> Generator[tuple[str, pa.Table], None, None]:
        """Yield the completion time and the inserted or updated rows of each commit.

        Starts after the completion time `since`, or with the first commit. Runs until `idle_ms`
        have passed without a commit, by default forever. Commits without changed rows are skipped.
        No commit is missed or out of order: commits become visible in this order.

            for completion, rows in orders.follow(since=checkpoint):
                ...

        Raises: the errors of `changes`.
        """
        start = BEFORE_ALL if since is None else point_in_time(since)
        idle_since_ms = self._clock.now().monotonic_ms
        last: ActiveTimeline | None = None
        while True:
            snapshot = snapshot_now(self._store, last=last)
            last = snapshot.timeline
            for completion in _completions(snapshot, start):
                scan = changes_scan(
                    snapshot,
                    start,
                    completion,
                    columns=columns,
                    meta_columns=meta_columns,
                    merger=self._merger,
                )
                start = completion
                rows = self._read_table(scan)
                if rows.num_rows:
                    yield completion, rows
                    idle_since_ms = self._clock.now().monotonic_ms
            waited_ms = self._clock.now().monotonic_ms - idle_since_ms
            if idle_ms is not None and waited_ms >= idle_ms:
                return
            self._clock.sleep_ms(poll_ms if idle_ms is None else min(poll_ms, idle_ms - waited_ms))

    def history(self, limit: int | None = None) -> tuple[HistoryEntry, ...]:
        """Return the last `limit` completed actions, newest first, including archived ones."""
        return history(self._snapshot, limit)

    def files(
        self, partitions: Collection[str] | None = None, as_of: str | datetime | None = None
    ) -> tuple[FileSlice, ...]:
        """Return the file slices with the table's rows, by partition and file id.

        Raises: `InvalidInput` for an unknown partition, `DataCorrupt`.
        """
        snapshot = self._snapshot
        check_partitions(snapshot, partitions)
        time = None if as_of is None else point_in_time(as_of)
        found = snapshot.slices(time, partitions)
        check_partitions_exist(snapshot, partitions, {piece.partition for piece in found})
        return found

    def _with_snapshot(self, make: Callable[[TableSnapshot], R]) -> R:
        """Return `make(snapshot)`; retries with a new snapshot if instants were archived."""
        for _ in range(_SNAPSHOT_RETRIES):
            try:
                return make(self._snapshot)
            except Conflict:
                # An instant that the snapshot had not read yet was archived.
                self.refresh()
        return make(self._snapshot)

    def _read_batches(self, scan: Scan) -> Generator[pa.RecordBatch, None, None]:
        schema = _result_schema(scan)
        with closing(self._engine.batches(scan)) as parts:
            for rows in parts:
                yield from rows.cast(schema).to_batches()

    def _read_table(self, scan: Scan) -> pa.Table:
        schema = _result_schema(scan)
        with observe_read(self._clock, self._store.uri) as counts:
            parts = [rows.cast(schema) for rows in self._engine.read(scan)]
            counts.extend(len(part) for part in parts)
        return pa.concat_tables([schema.empty_table(), *parts])


def snapshot_now(store: ObjectStore, *, last: ActiveTimeline | None = None) -> TableSnapshot:
    """Return the current snapshot of a table, without instants that the ledger has aborted.

    The checkpoint is read after the timeline, because the archive updates it before it deletes
    instants from the timeline. `last` is an earlier timeline read by the same process. Raises: the
    errors of `open_table`, and `DataCorrupt` naming a missing completed instant.
    """
    snapshot = open_table(store)
    found = store.get(CHECKPOINT_KEY)
    where = f"{store.uri}/{CHECKPOINT_KEY}"
    state = LedgerState() if found is None else decode_checkpoint(found.body, where=where).state
    timeline = check_published(
        store,
        state,
        snapshot.timeline,
        history=snapshot.properties.history_folder,
        unfinished=unfinished_writes(snapshot.timeline, last),
    )
    if found is None:
        return replace(snapshot, timeline=timeline)
    aborted = frozenset(state.aborted)
    return replace(
        snapshot,
        timeline=timeline.without_completed(aborted),
        aborted=aborted,
        archived=state.archived,
        # Java writers archive independently of the ledger.
        archived_completion=None if state.external else state.time,
        forgotten=state.forgotten,
    )


def _result_schema(scan: Scan) -> pa.Schema:
    return pa.schema([scan.schema.field(name) for name in scan.columns or scan.schema.names])
