"""Write reports, and the metrics, events and spans of writes and reads."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tidelock.core.clock import Clock
from tidelock.core.telemetry import (
    PROCESS,
    EventName,
    MetricKind,
    MetricName,
    SpanName,
    log_event,
    span,
)
from tidelock.execution.filegroup.context import FileResult
from tidelock.txn.app_transactions import AppliedTransaction
from tidelock.txn.conflicts import Committed

logger = logging.getLogger(__name__)

_C, _T = MetricKind.COUNTER, MetricKind.TIMER

METRICS: Final = (
    MetricName("write.duration", _T, "how long a write took from its rows to its commit, in ms"),
    MetricName("write.success", _C, "a write returned a report"),
    MetricName("write.failure", _C, "a write raised an error"),
    MetricName("write.rows", _C, "rows inserted, updated and deleted by writes that succeeded"),
    MetricName("write.bytes", _C, "bytes of data files of writes that succeeded"),
    MetricName("write.files", _C, "data files of writes that succeeded"),
    MetricName("write.rebases", _C, "rebases of writes that succeeded"),
    MetricName("read.duration", _T, "how long a read of rows took, in ms"),
    MetricName("read.rows", _C, "rows that reads returned"),
)

WRITTEN = EventName(
    "write.done",
    logging.INFO,
    "a write returned a report",
    ("operation", "took_ms", "rows", "files", "rebases"),
)
EVENTS: Final = (WRITTEN,)

WRITE_SPAN = SpanName("tidelock.write", "a whole write: every attempt at it, files and commit")
READ_SPAN = SpanName("tidelock.read", "a read of rows")
SPANS: Final = (WRITE_SPAN, READ_SPAN)


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The result of a committed write. Row counts are those of the committed attempt.

    `instant` is the request time, `completion` the time at which the write became visible.
    `rows_ignored` counts rows that lost to a row with the same key and a larger ordering value. In
    a merge-on-read table that is decided when log files are merged: rows for existing keys count as
    `rows_updated`. `files_replaced` counts the file groups that an overwrite replaced. `rebases`
    counts the concurrent commits on which the write was merged again. `repeated` means that the
    batch of the `app_transaction` was applied before: nothing was written, and `instant` and
    `completion` are those of the application's last commit.
    """

    operation: str
    instant: str
    completion: str
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_ignored: int = 0
    files_written: int = 0
    files_replaced: int = 0
    bytes_written: int = 0
    rebases: int = 0
    repeated: bool = False


def repeated_report(operation: str, applied: AppliedTransaction) -> WriteReport:
    """Return the report of a batch that was applied before."""
    return WriteReport(operation, applied.instant, applied.completion, repeated=True)


def committed_report(
    operation: str,
    committed: Committed,
    results: Collection[FileResult],
    *,
    files_replaced: int,
    rebases: int,
) -> WriteReport:
    """Return the report of a commit, with counts summed over its files."""
    stats = [result.stat for result in results]
    return WriteReport(
        operation,
        committed.instant,
        committed.completion,
        rows_inserted=sum(stat.num_inserts or 0 for stat in stats),
        rows_updated=sum(stat.num_update_writes or 0 for stat in stats),
        rows_deleted=sum(stat.num_deletes or 0 for stat in stats),
        rows_ignored=sum(result.ignored for result in results),
        files_written=len(stats),
        files_replaced=files_replaced,
        bytes_written=sum(stat.total_write_bytes or 0 for stat in stats),
        rebases=rebases,
    )


@dataclass(slots=True)
class WriteObservation:
    """An observed write; the caller sets its report on success."""

    report: WriteReport | None = None


@contextmanager
def observe_write(
    clock: Clock, uri: str, operation: str, *, owner: str
) -> Iterator[WriteObservation]:
    """Record a write: its span, duration and counts."""
    observation, started_ms = WriteObservation(), clock.now().monotonic_ms
    try:
        with span(WRITE_SPAN, table=uri, operation=operation, writer=owner):
            yield observation
    finally:
        took_ms = clock.now().monotonic_ms - started_ms
        PROCESS.time("write.duration", took_ms)
        PROCESS.count("write.failure" if observation.report is None else "write.success")
    report = observation.report
    if report is None:
        return
    rows = report.rows_inserted + report.rows_updated + report.rows_deleted
    PROCESS.count("write.rows", rows)
    PROCESS.count("write.bytes", report.bytes_written)
    PROCESS.count("write.files", report.files_written)
    PROCESS.count("write.rebases", report.rebases)
    log_event(
        logger,
        WRITTEN,
        "%s %s committed",
        operation,
        report.instant,
        table=uri,
        writer=owner,
        instant=report.instant,
        operation=operation,
        took_ms=took_ms,
        rows=rows,
        files=report.files_written,
        rebases=report.rebases,
    )


@contextmanager
def observe_read(clock: Clock, uri: str) -> Iterator[list[int]]:
    """Record a read; the block appends its numbers of rows."""
    counts: list[int] = []
    started_ms = clock.now().monotonic_ms
    with span(READ_SPAN, table=uri):
        yield counts
    PROCESS.time("read.duration", clock.now().monotonic_ms - started_ms)
    PROCESS.count("read.rows", sum(counts))
