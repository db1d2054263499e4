"""`spark.readStream.format("tidelock").load(uri)`: the changes of a table, commit by commit.

An offset is a completion time: all commits completed by then have been read. Commits appear on the
timeline in order of completion time (C29), so none is skipped, and each is in exactly one
micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidelock.core.errors import ConfigInvalid, InvalidInput
from tidelock.execution.local.read import Scan
from tidelock.execution.spark.read import SliceScan, pack_tasks
from tidelock.hudi.file_groups import FileSlice
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.instant import Instant
from tidelock.operations.query import changes_scan, point_in_time
from tidelock.operations.read import BEFORE_ALL, completed_writes, snapshot_now
from tidelock.spark.options import BYTES_MAX, COMMITS_MAX, START
from tidelock.storage.uri import StoreAddress

COMPLETION: Final = "completion"
TASKS_MIN: Final = 8
"""Minimum number of tasks. A Python data source does not know the cores of the cluster."""

Offset = dict[str, str]


class ChangeStreamReader(DataSourceStreamReader):
    """Reads the changes of one table for one query.

    Guarantees: every commit completed after the first offset is in exactly one micro-batch, in
    order of completion. Within a micro-batch, a row that changed several times appears once, as of
    the end of the batch. Does not guarantee: deleted rows. Files that were cleaned before they were
    read are an error, not a gap.
    """

    def __init__(self, address: StoreAddress, options: Mapping[str, object], schema: StructType):
        """Create the reader without any I/O."""
        self._address = address
        self._options = options
        self._names = schema.names
        self._initial: str | None = None
        self._latest: str | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's API
        """Return the start of a query that has no checkpoint."""
        # Spark calls this after the first `latestOffset`; `latest` must not move in between.
        if self._initial is None:
            self._initial = self._configured_start()
        return {COMPLETION: self._initial}

    def latestOffset(self) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch, within the configured limits."""
        begin = self._latest or self.initialOffset()[COMPLETION]
        snapshot, writes = completed_writes(self._address.open(), begin)
        self._latest = end_of_batch(
            snapshot,
            writes,
            begin,
            commits_max=COMMITS_MAX.value(self._options),
            bytes_max=BYTES_MAX.value(self._options),
        )
        return {COMPLETION: self._latest}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return one partition per task for the changes between two offsets."""
        begin, last = start[COMPLETION], end[COMPLETION]
        # After a restart, Spark first plans the last known batch.
        self._latest = max(last, self._latest or last)
        if begin >= last:
            return []
        scan = changes_scan(snapshot_now(self._address.open()), begin, last)
        return [
            InputPartition(slice_reading(self._address, scan, (slices,), self._names))
            for slices in pack_tasks(scan.slices, tasks_min=TASKS_MIN)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        reading: SliceScan = partition.value
        yield from reading.rows(0)

    def _configured_start(self) -> str:
        named = START.required(self._options)
        match named.lower():
            case "earliest":
                return BEFORE_ALL
            case "latest":
                return snapshot_now(self._address.open()).latest_completion or BEFORE_ALL
            case _:
                try:
                    return point_in_time(named)
                except InvalidInput as error:
                    raise ConfigInvalid(
                        f"{START.key}: expected earliest, latest or an instant time, got {named!r}",
                        hint="use earliest, latest, or a time such as 20260131120000",
                    ) from error


def slice_reading(
    address: StoreAddress,
    scan: Scan,
    tasks: tuple[tuple[FileSlice, ...], ...],
    columns: Sequence[str],
) -> SliceScan:
    """Return the read of a scan's slices, for Python workers."""
    times = None if scan.commit_times is None else frozenset(scan.commit_times)
    return SliceScan(address, tasks, scan.schema, scan.rule, tuple(columns), scan.as_of, times)


def end_of_batch(
    snapshot: TableSnapshot,
    writes: Sequence[Instant],
    begin: str,
    *,
    commits_max: int | None = None,
    bytes_max: int | None = None,
) -> str:
    """Return the completion time at which a micro-batch from `begin` ends.

    `writes` are the commits after `begin`, in order. At least one is included, whatever its size.
    """
    for name, limit in ((COMMITS_MAX.key, commits_max), (BYTES_MAX.key, bytes_max)):
        if limit is not None and limit < 1:
            raise ConfigInvalid(
                f"{name}: expected 1 or more, got {limit}", hint=f"set {name} to 1 or more"
            )
    batch = list(writes[:commits_max])
    if not batch:
        return begin
    if bytes_max is None:
        return batch[-1].completion
    size = _written_bytes(snapshot, batch[0])
    for included, following in pairwise(batch):
        size += _written_bytes(snapshot, following)
        if size > bytes_max:
            return included.completion
    return batch[-1].completion


def _written_bytes(snapshot: TableSnapshot, write: Instant) -> int:
    by_partition: Mapping[str, Any] = snapshot.timeline.commit(write).partition_to_write_stats
    return sum(stat.total_write_bytes or 0 for stats in by_partition.values() for stat in stats)
