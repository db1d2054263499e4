"""Reading a table: its rows now, as of a moment, or as they changed; its history and its files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

import pyarrow as pa

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import Conflict
from tidelock.engine.local import LocalEngine, Scan
from tidelock.kernel.basefile import BATCH_ROWS
from tidelock.kernel.merge import Merger
from tidelock.operation.filters import Filter
from tidelock.operation.following import changes_by_commit
from tidelock.operation.history import HistoryEntry, history
from tidelock.operation.observing import reading
from tidelock.operation.query import (
    changes_scan,
    check_known,
    check_partitions,
    point_in_time,
    readable_schema,
    snapshot_scan,
)
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.properties import TableProperties
from tidelock.table.schema.meta import without_meta
from tidelock.table.snapshot import TableSnapshot, open_table
from tidelock.table.timeline.active import ActiveTimeline
from tidelock.table.timeline.instant import Instant
from tidelock.txn.checkpoint import CHECKPOINT_KEY, decode
from tidelock.txn.fold import Fold
from tidelock.txn.published import check_published, unfinished_writes

R = TypeVar("R")

_ARCHIVED_TRIES: Final = 4


class TableReads:
    """What can be read of a table, as it was at one moment.

    Guarantees: every read sees the same writes until `refresh` or a write of one's own, and all
    of each. Does not guarantee: that old files stay; a cleaner may remove them meanwhile, and a
    read that needs one then raises `NotFound`.
    """

    def __init__(
        self,
        snapshot: TableSnapshot,
        *,
        engine: LocalEngine | None = None,
        merger: Merger | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Wrap a snapshot."""
        self._seen: TableSnapshot | None = snapshot
        self._last_timeline = snapshot.timeline
        self._named_by = snapshot.named_by
        self._store: ObjectStore = snapshot.store
        self._properties = snapshot.properties
        self._engine = engine or LocalEngine()
        self._merger = merger
        self._clock = clock or SystemClock()

    @property
    def _snapshot(self) -> TableSnapshot:
        if self._seen is None:
            found = snapshot_now(self._store, last=self._last_timeline)
            self._seen = replace(found, named_by=self._named_by)
            self._last_timeline = found.timeline
            self._properties = found.properties
        return self._seen

    def refresh(self) -> None:
        """See what has been written since."""
        self._seen = None

    @property
    def uri(self) -> str:
        """The table's base path."""
        return self._store.uri

    @property
    def properties(self) -> TableProperties:
        """What the table is: type, version, keys, partitions, how it merges."""
        return self._properties

    @property
    def schema(self) -> pa.Schema:
        """The user's columns, as `read` returns them."""
        return without_meta(self._scanned(readable_schema))

    @property
    def latest_completion(self) -> str | None:
        """The completion time of the last write seen here: the next `since`. None if empty."""
        return self._snapshot.latest_completion

    @property
    def timeline(self) -> tuple[Instant, ...]:
        """Each action on the active timeline in its furthest state, by request time."""
        return self._snapshot.timeline.instants

    def read(
        self,
        columns: Sequence[str] | None = None,
        partitions: Collection[str] | None = None,
        as_of: str | datetime | None = None,
        *,
        filter: Filter | None = None,  # noqa: A002 - the word that readers look for
        read_optimized: bool = False,
        meta_columns: bool = False,
    ) -> pa.Table:
        """Return the table's rows.

        `columns` are all of the user's if None. `partitions` are partition paths, as `files` shows
        them; one that the table does not have is refused. `as_of` goes back in time: 17 or 14
        digits, an ISO time (UTC unless it says otherwise) or a datetime. The request time of a
        write means the table as that write left it, any other time what had completed by then; so a
        moment always shows the same. `filter` is an Arrow expression, or conditions like
        `("amount", ">", 10)` that must all hold; partitions and row groups that it excludes are not
        fetched. `read_optimized` reads base files only, so it misses what has not been compacted.
        `meta_columns` puts Hudi's five `_hoodie_*` columns in front.

        Raises: `InvalidInput`, `NotFound`, `DataCorrupt`, `Unsupported`.
        """
        scan = self._scanned(
            lambda snapshot: snapshot_scan(
                snapshot,
                columns=columns,
                partitions=partitions,
                as_of=as_of,
                passing=filter,
                read_optimized=read_optimized,
                meta_columns=meta_columns,
                merger=self._merger,
            )
        )
        return self._whole(scan)

    def batches(
        self,
        columns: Sequence[str] | None = None,
        partitions: Collection[str] | None = None,
        as_of: str | datetime | None = None,
        *,
        filter: Filter | None = None,  # noqa: A002 - the word that readers look for
        read_optimized: bool = False,
        meta_columns: bool = False,
        batch_rows: int = BATCH_ROWS,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows that `read` returns, in the same order, a part at a time.

        Who stops before the end closes the generator (`contextlib.closing`) before the table.
        Errors in the arguments are raised here, before the first batch is asked for.
        """
        scan = self._scanned(
            lambda snapshot: snapshot_scan(
                snapshot,
                columns=columns,
                partitions=partitions,
                as_of=as_of,
                passing=filter,
                read_optimized=read_optimized,
                meta_columns=meta_columns,
                merger=self._merger,
                batch_rows=batch_rows,
            )
        )
        return self._parts(scan)

    def changes(
        self,
        since: str | datetime,
        until: str | datetime | None = None,
        *,
        columns: Sequence[str] | None = None,
        meta_columns: bool = False,
    ) -> pa.Table:
        """Return the rows that writes completed after `since`, up to `until`, inserted or updated.

        Both are completion times; without `until` up to the last write. Each row is returned once,
        as it was at the end of the range. Deleted rows are not returned. `latest_completion` is
        the `since` of the next call.

        Raises: `NotFound` if files of the range have been cleaned, and what `read` raises.
        """
        scan = self._scanned(
            lambda snapshot: changes_scan(
                snapshot,
                since,
                until,
                columns=columns,
                meta_columns=meta_columns,
                merger=self._merger,
            )
        )
        return self._whole(scan)

    def follow(
        self,
        since: str | datetime | None = None,
        *,
        poll_ms: int = 1_000,
        idle_ms: int | None = None,
        columns: Sequence[str] | None = None,
        meta_columns: bool = False,
    ) -> Generator[tuple[str, pa.Table], None, None]:
        """Yield what each write inserted or updated, with its completion time, as they complete.

        From after `since`, a completion time, or from the first write. It goes on for ever; with
        `idle_ms` it ends once nothing came for that long. Writes that changed no row are passed
        over. No write is left out or comes out of order: they become visible in this order.

            for completion, rows in orders.follow(since=checkpoint):
                ...

        Raises: what `changes` raises.
        """
        start = None if since is None else point_in_time(since)
        idle_since_ms = self._clock.now().monotonic_ms
        last: ActiveTimeline | None = None
        while True:
            snapshot = snapshot_now(self._store, last=last)
            last = snapshot.timeline
            for completion, scan in changes_by_commit(
                snapshot,
                start,
                columns=columns,
                meta_columns=meta_columns,
                merger=self._merger,
            ):
                start = completion
                rows = self._whole(scan)
                if rows.num_rows:
                    yield completion, rows
                    idle_since_ms = self._clock.now().monotonic_ms
            waited_ms = self._clock.now().monotonic_ms - idle_since_ms
            if idle_ms is not None and waited_ms >= idle_ms:
                return
            self._clock.sleep_ms(poll_ms if idle_ms is None else min(poll_ms, idle_ms - waited_ms))

    def history(self, limit: int | None = None) -> tuple[HistoryEntry, ...]:
        """Return the completed actions, newest first, archived ones included."""
        return history(self._snapshot, limit)

    def files(
        self,
        partitions: Collection[str] | None = None,
        as_of: str | datetime | None = None,
    ) -> tuple[FileSlice, ...]:
        """Return the file slices that hold the rows, by partition and file id.

        Raises: `InvalidInput` for a partition that the table does not have, `DataCorrupt`.
        """
        snapshot = self._snapshot
        check_partitions(snapshot, partitions)
        moment = None if as_of is None else point_in_time(as_of)
        found = snapshot.slices(moment, partitions)
        check_known(snapshot, partitions, {piece.partition for piece in found})
        return found

    def _scanned(self, make: Callable[[TableSnapshot], R]) -> R:
        """Return what is made of the snapshot; of a newer one if its timeline was archived."""
        for _ in range(_ARCHIVED_TRIES):
            try:
                return make(self._snapshot)
            except Conflict:
                # An instant that the snapshot has not looked at yet has left the timeline.
                self.refresh()
        return make(self._snapshot)

    def _parts(self, scan: Scan) -> Generator[pa.RecordBatch, None, None]:
        schema = _result_schema(scan)
        with closing(self._engine.batches(scan)) as parts:
            for rows in parts:
                yield from rows.cast(schema).to_batches()

    def _whole(self, scan: Scan) -> pa.Table:
        schema = _result_schema(scan)
        with reading(self._clock, self._store.uri) as counts:
            parts = [rows.cast(schema) for rows in self._engine.read(scan)]
            counts.extend(len(part) for part in parts)
        return pa.concat_tables([schema.empty_table(), *parts])


def snapshot_now(store: ObjectStore, *, last: ActiveTimeline | None = None) -> TableSnapshot:
    """Return the table as it is now, without what the ledger says will never be part of it.

    The checkpoint is read after the timeline: what the archive takes off the timeline is in it
    before. `last` is the timeline at an earlier look of the same process.

    Raises: what `open_table` raises, and `DataCorrupt` naming a completed instant that is lost.
    """
    snapshot = open_table(store)
    found = store.get(CHECKPOINT_KEY)
    where = f"{store.uri}/{CHECKPOINT_KEY}"
    fold = Fold() if found is None else decode(found.body, where=where).fold
    timeline = check_published(
        store,
        fold,
        snapshot.timeline,
        history=snapshot.properties.history_folder,
        unfinished=unfinished_writes(snapshot.timeline, last),
    )
    if found is None:
        return replace(snapshot, timeline=timeline)
    void = frozenset(fold.void)
    timeline = timeline.without_completed(void)
    # Java archives by a timeline of its own.
    settled = None if fold.foreign else fold.time
    return replace(
        snapshot,
        timeline=timeline,
        void=void,
        archived=fold.archived,
        settled=settled,
        forgotten=fold.forgotten,
    )


def _result_schema(scan: Scan) -> pa.Schema:
    return pa.schema([scan.schema.field(name) for name in scan.columns or scan.schema.names])
