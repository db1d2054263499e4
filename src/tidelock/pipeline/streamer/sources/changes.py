"""The changes of another table: what its writes inserted and updated, by time of completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tidelock.base.errors import NotFound
from tidelock.operation.following import BEFORE_ALL
from tidelock.operation.frames import scan_frame
from tidelock.operation.query import changes_scan, point_in_time, snapshot_scan
from tidelock.operation.reads import snapshot_now
from tidelock.pipeline.streamer import config as c
from tidelock.pipeline.streamer.sources.contract import Batch
from tidelock.store.address import StoreAddress
from tidelock.store.uri import canonical
from tidelock.table.snapshot import TableSnapshot
from tidelock.table.timeline.instant import parse_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class ChangesSource:
    """The rows of the writes that completed since; rows that were deleted are not among them."""

    spark: SparkSession
    settings: Mapping[str, object]

    @cached_property
    def root(self) -> str:
        """The table that is read."""
        return canonical(c.INCR_PATH.required(self.settings))

    @property
    def name(self) -> str:
        """The table that is read."""
        return f"table:{self.root}"

    @property
    def limit(self) -> int:
        """Commits of one batch."""
        return c.INCR_INSTANTS.required(self.settings)

    @property
    def least(self) -> int:
        """One commit."""
        return 1

    def next(self, since: str | None, limit: int) -> Batch | None:
        """Return the changes of the next commits; first of all the whole table, if asked."""
        options = {k: v for k, v in self.settings.items() if not c.is_streamers(k)}
        snapshot = snapshot_now(StoreAddress(self.root, options).open())
        ends = sorted(instant.completion for instant in snapshot.timeline.writes())
        if not ends:
            return None
        if since is None and self._missing() is c.Missing.READ_LATEST:
            since = ends[-2] if len(ends) > 1 else BEFORE_ALL
        if since is None:
            # Files of old commits may be cleaned, so the past is read as it is now.
            return self._batch(snapshot, None, ends[-1], len(ends), options)
        begin = _completion(since, snapshot)
        later = [end for end in ends if end > begin][:limit]
        if not later:
            return None
        return self._batch(snapshot, begin, later[-1], len(later), options)

    def hudi_place(self, at: str) -> str | None:
        """Times of completion are what Hudi's checkpoints have since version 8 of tables."""
        return at

    def done_with(self, at: str) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """The store is shared by the process."""

    def _missing(self) -> c.Missing:
        if c.INCR_LATEST.required(self.settings):
            return c.Missing.READ_LATEST
        if c.INCR_MISSING.value(self.settings) is None:
            return c.Missing.READ_UPTO_LATEST_COMMIT
        return c.member(c.Missing, c.INCR_MISSING, self.settings)

    def _batch(
        self,
        snapshot: TableSnapshot,
        begin: str | None,
        end: str,
        taken: int,
        options: Mapping[str, object],
    ) -> Batch:
        scan = snapshot_scan(snapshot) if begin is None else changes_scan(snapshot, begin, end)
        frame = scan_frame(self.spark, snapshot, scan, options)
        return Batch(frame, end, taken, None, parse_time(end))


def _completion(since: str, snapshot: TableSnapshot) -> str:
    """Return the time of completion that a checkpoint says, in Hudi's long forms as well."""
    how, _, time = since.rpartition(":")
    match how.strip().lower():
        case "resumefrominstantcompletiontime":
            return point_in_time(time.strip())
        case "resumefrominstantrequesttime":
            asked = time.strip()
            found = [each for each in snapshot.timeline.writes() if each.requested == asked]
            if not found:
                raise NotFound(
                    f"{snapshot.store.uri} has no write that began at {asked}",
                    hint="write resumeFromInstantCompletionTime: and a time of completion",
                )
            return found[0].completion
        case _:
            return point_in_time(since)
