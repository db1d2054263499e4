"""`tl.Table`: a Hudi table, read without Spark. Writing is not part of it yet."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from types import TracebackType
from typing import Self

import pyarrow as pa

from tidelock.engine.local import LocalEngine, Scan
from tidelock.kernel.basefile import BATCH_ROWS
from tidelock.kernel.merge import Merger
from tidelock.lock.opening import refuse_unknown
from tidelock.operation.history import HistoryEntry, history
from tidelock.operation.query import (
    changes_scan,
    check_partitions,
    point_in_time,
    readable_schema,
    snapshot_scan,
)
from tidelock.store.uri import open_store
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.properties import TableProperties
from tidelock.table.schema.meta import without_meta
from tidelock.table.snapshot import TableSnapshot, open_table
from tidelock.table.timeline.instant import Instant


class Table:
    """A table as it was when it was opened.

    Guarantees: every read sees the same writes, those that had completed at `open`, and all of
    each. Does not guarantee: that old files stay; a cleaner may remove them meanwhile, and a read
    that needs one then raises `NotFound`. Open the table again to see later writes.
    """

    def __init__(
        self,
        snapshot: TableSnapshot,
        *,
        engine: LocalEngine | None = None,
        merger: Merger | None = None,
    ) -> None:
        """Wrap a snapshot; `open` makes one from a URI."""
        self._snapshot = snapshot
        self._engine = engine or LocalEngine()
        self._merger = merger

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        settings: Mapping[str, object] | None = None,
        merger: Merger | None = None,
        workers: int | None = None,
    ) -> Table:
        """Open the table whose base path is `uri`.

        `settings` are those of the store. `merger` is for tables that merge by a class of their
        own. `workers` is how many file slices are read at once.

            with tl.Table.open("s3://lake/orders") as orders:
                orders.read(columns=["id", "amount"])

        Raises: `NotFound` if there is no table, `Unsupported` for a table version before 8,
        `RecordFromFuture` for one after 9, `DataCorrupt`, `ResourceInvalid`, `ConfigInvalid`,
        `MissingExtra`.
        """
        chosen = dict(settings or {})
        refuse_unknown(chosen)
        store = open_store(uri, chosen)
        try:
            snapshot = open_table(store)
        except BaseException:
            store.close()
            raise
        engine = None if workers is None else LocalEngine(workers)
        return cls(snapshot, engine=engine, merger=merger)

    def close(self) -> None:
        """Give back the store's connections; closing twice is no error."""
        self._snapshot.store.close()

    def __enter__(self) -> Self:
        """Return the table."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Name the table and its place."""
        return f"Table({self.properties.name!r}, {self.uri!r})"

    @property
    def uri(self) -> str:
        """The table's base path."""
        return self._snapshot.store.uri

    @property
    def properties(self) -> TableProperties:
        """What the table is: type, version, keys, partitions, how it merges."""
        return self._snapshot.properties

    @property
    def schema(self) -> pa.Schema:
        """The user's columns, as `read` returns them."""
        return without_meta(readable_schema(self._snapshot))

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
        read_optimized: bool = False,
        meta_columns: bool = False,
    ) -> pa.Table:
        """Return the table's rows.

        `columns` are all of the user's if None. `partitions` are partition paths, as `files` shows
        them. `as_of` goes back in time: 17 or 14 digits, an ISO time (UTC unless it says
        otherwise) or a datetime, compared with the request times of writes. `read_optimized` reads
        base files only, so it misses what has not been compacted. `meta_columns` puts Hudi's five
        `_hoodie_*` columns in front.

        Raises: `InvalidInput`, `NotFound`, `DataCorrupt`, `Unsupported`.
        """
        scan = snapshot_scan(
            self._snapshot,
            columns=columns,
            partitions=partitions,
            as_of=as_of,
            read_optimized=read_optimized,
            meta_columns=meta_columns,
            merger=self._merger,
        )
        return self._whole(scan)

    def batches(
        self,
        columns: Sequence[str] | None = None,
        partitions: Collection[str] | None = None,
        as_of: str | datetime | None = None,
        *,
        read_optimized: bool = False,
        meta_columns: bool = False,
        batch_rows: int = BATCH_ROWS,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows that `read` returns, in the same order, a part at a time.

        Who stops before the end closes the generator (`contextlib.closing`) before the table.
        Errors in the arguments are raised here, before the first batch is asked for.
        """
        scan = snapshot_scan(
            self._snapshot,
            columns=columns,
            partitions=partitions,
            as_of=as_of,
            read_optimized=read_optimized,
            meta_columns=meta_columns,
            merger=self._merger,
            batch_rows=batch_rows,
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
        scan = changes_scan(
            self._snapshot,
            since,
            until,
            columns=columns,
            meta_columns=meta_columns,
            merger=self._merger,
        )
        return self._whole(scan)

    def history(self, limit: int | None = None) -> tuple[HistoryEntry, ...]:
        """Return the completed actions, newest first, archived ones included."""
        return history(self._snapshot, limit)

    def files(
        self,
        partitions: Collection[str] | None = None,
        as_of: str | datetime | None = None,
    ) -> tuple[FileSlice, ...]:
        """Return the file slices that hold the rows, by partition and file id."""
        check_partitions(self._snapshot, partitions)
        moment = None if as_of is None else point_in_time(as_of)
        return self._snapshot.slices(moment, partitions)

    def _parts(self, scan: Scan) -> Generator[pa.RecordBatch, None, None]:
        schema = _result_schema(scan)
        with closing(self._engine.batches(scan)) as parts:
            for rows in parts:
                yield from rows.cast(schema).to_batches()

    def _whole(self, scan: Scan) -> pa.Table:
        schema = _result_schema(scan)
        parts = [rows.cast(schema) for rows in self._engine.read(scan)]
        return pa.concat_tables([schema.empty_table(), *parts])


def _result_schema(scan: Scan) -> pa.Schema:
    return pa.schema([scan.schema.field(name) for name in scan.columns or scan.schema.names])
