"""Incremental source: the rows that commits of another table inserted or updated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tidelock.core.errors import NotFound
from tidelock.hudi.snapshot import TableSnapshot
from tidelock.hudi.timeline.instant import parse_time
from tidelock.operations.query import changes_scan, point_in_time, snapshot_scan
from tidelock.operations.read import BEFORE_ALL, snapshot_now
from tidelock.operations.request import scan_frame
from tidelock.storage.uri import StoreAddress, canonical
from tidelock.streamer import config as c
from tidelock.streamer.sources.source import Batch, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class ChangesSource(Source):
    """Reads the rows of the commits since a completion time; deleted rows are not included.

    A position is a completion time, which is Hudi's checkpoint since table version 8.
    """

    spark: SparkSession
    settings: Mapping[str, object]

    @cached_property
    def root(self) -> str:
        return canonical(c.INCR_PATH.required(self.settings))

    @property
    def name(self) -> str:
        return f"table:{self.root}"

    @property
    def limit(self) -> int:
        return c.INCR_INSTANTS.required(self.settings)

    def next(self, since: str | None, limit: int) -> Batch | None:
        """Return the changes of the next commits; at first the whole table, if configured."""
        options = {k: v for k, v in self.settings.items() if not c.is_streamer_key(k)}
        snapshot = snapshot_now(StoreAddress(self.root, options).open())
        ends = sorted(instant.completion for instant in snapshot.timeline.writes())
        if not ends:
            return None
        if since is None and self._missing() is c.MissingCheckpoint.READ_LATEST:
            since = ends[-2] if len(ends) > 1 else BEFORE_ALL
        if since is None:
            # Files of old commits may be cleaned, so the first batch is the current snapshot.
            return self._batch(snapshot, None, ends[-1], len(ends), options)
        begin = _completion(since, snapshot)
        later = [end for end in ends if end > begin][:limit]
        if not later:
            return None
        return self._batch(snapshot, begin, later[-1], len(later), options)

    def _missing(self) -> c.MissingCheckpoint:
        if c.INCR_LATEST.required(self.settings):
            return c.MissingCheckpoint.READ_LATEST
        if c.INCR_MISSING.value(self.settings) is None:
            return c.MissingCheckpoint.READ_UPTO_LATEST_COMMIT
        return c.INCR_MISSING.member(c.MissingCheckpoint, self.settings)

    def _batch(
        self,
        snapshot: TableSnapshot,
        begin: str | None,
        end: str,
        commits: int,
        options: Mapping[str, object],
    ) -> Batch:
        scan = snapshot_scan(snapshot) if begin is None else changes_scan(snapshot, begin, end)
        frame = scan_frame(self.spark, snapshot, scan, options)
        return Batch(frame, end, commits, None, parse_time(end))


def _completion(since: str, snapshot: TableSnapshot) -> str:
    """Return the completion time of a checkpoint; accepts Hudi's prefixed forms as well."""
    prefix, _, time = since.rpartition(":")
    match prefix.strip().lower():
        case "resumefrominstantcompletiontime":
            return point_in_time(time.strip())
        case "resumefrominstantrequesttime":
            requested = time.strip()
            found = [each for each in snapshot.timeline.writes() if each.requested == requested]
            if not found:
                raise NotFound(
                    f"{snapshot.store.uri}: no commit with the request time {requested}",
                    hint="use resumeFromInstantCompletionTime: with a completion time",
                )
            return found[0].completion
        case _:
            return point_in_time(since)
