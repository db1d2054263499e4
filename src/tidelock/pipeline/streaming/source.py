"""`spark.readStream.format("tidelock").load(uri)`: the changes of a table, commit after commit.

An offset is a completion time: everything that completed by then has been read. Writes appear on
the timeline in the order of their completion times (C29), so none is passed over, and each is in
exactly one micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidelock.base.errors import ConfigInvalid, InvalidInput
from tidelock.engine.spark.read import SliceReading, packed
from tidelock.operation.following import BEFORE_ALL, settled_writes
from tidelock.operation.query import changes_scan, point_in_time
from tidelock.operation.reads import snapshot_now
from tidelock.pipeline.streaming.options import BYTES_MAX, COMMITS_MAX, START
from tidelock.store.address import StoreAddress
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.instant import Instant

COMPLETION: Final = "completion"
TASKS_MIN: Final = 8
"""The cluster's cores are not known where a micro-batch is planned."""

Offset = dict[str, str]


class ChangeStream(DataSourceStreamReader):
    """The changes of one table, for one query.

    Guarantees: every write that completed after the first offset is in exactly one micro-batch, in
    the order of completion; within a micro-batch a row that changed several times comes once, as
    it was at its end. Does not guarantee: deleted rows, and files that a clean removed before they
    were read, which is an error and no gap.
    """

    def __init__(self, address: StoreAddress, options: Mapping[str, object], schema: StructType):
        """Read nothing yet."""
        self._address = address
        self._options = options
        self._names = schema.names
        self._began: str | None = None
        self._seen: str | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names
        """Return where a query begins that has no checkpoint."""
        # Spark asks for it after the first end, and `latest` must not have moved meanwhile.
        if self._began is None:
            self._began = self._first()
        return {COMPLETION: self._began}

    def latestOffset(self) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch: as many commits as one may have."""
        begin = self._seen or self.initialOffset()[COMPLETION]
        snapshot, writes = settled_writes(self._address.open(), begin)
        self._seen = end_of_batch(
            snapshot,
            writes,
            begin,
            commits_max=COMMITS_MAX.value(self._options),
            bytes_max=BYTES_MAX.value(self._options),
        )
        return {COMPLETION: self._seen}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return what reads the changes between two offsets, a part for each task."""
        begin, last = start[COMPLETION], end[COMPLETION]
        # A query that goes on after a restart says first how far it has come.
        self._seen = max(last, self._seen or last)
        if begin >= last:
            return []
        scan = changes_scan(snapshot_now(self._address.open()), begin, last)
        times = None if scan.commit_times is None else frozenset(scan.commit_times)
        return [
            InputPartition(
                SliceReading(
                    self._address,
                    (slices,),
                    scan.schema,
                    scan.rule,
                    tuple(self._names),
                    scan.as_of,
                    times,
                )
            )
            for slices in packed(scan.slices, tasks_min=TASKS_MIN)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part."""
        reading: SliceReading = partition.value
        yield from reading.rows(0)

    def _first(self) -> str:
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
                        f"{START.key} = {named} is not known",
                        hint="give earliest, latest, or a time as the timeline has them",
                    ) from error


def end_of_batch(
    snapshot: TableSnapshot,
    writes: Sequence[Instant],
    begin: str,
    *,
    commits_max: int | None = None,
    bytes_max: int | None = None,
) -> str:
    """Return the completion time that a micro-batch from `begin` ends at.

    `writes` are those since, in order. At least one is taken, however large it is.
    """
    for name, most in ((COMMITS_MAX.key, commits_max), (BYTES_MAX.key, bytes_max)):
        if most is not None and most < 1:
            raise ConfigInvalid(f"{name} = {most} lets nothing through", hint="give 1 or more")
    chosen = list(writes[:commits_max])
    if not chosen:
        return begin
    if bytes_max is None:
        return chosen[-1].completion
    size = _written_bytes(snapshot, chosen[0])
    for taken, following in pairwise(chosen):
        size += _written_bytes(snapshot, following)
        if size > bytes_max:
            return taken.completion
    return chosen[-1].completion


def _written_bytes(snapshot: TableSnapshot, write: Instant) -> int:
    by_partition: Mapping[str, Any] = snapshot.timeline.commit(write).partition_to_write_stats
    return sum(stat.total_write_bytes or 0 for stats in by_partition.values() for stat in stats)
