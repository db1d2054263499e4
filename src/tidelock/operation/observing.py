"""What writes and reads tell whoever watches: metrics, events and spans, by name."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tidelock.base.clock import Clock
from tidelock.base.metrics import PROCESS
from tidelock.base.telemetry import EventName, MetricKind, MetricName, SpanName, span, tell
from tidelock.operation.report import WriteReport

logger = logging.getLogger(__name__)

_C, _T = MetricKind.COUNTER, MetricKind.TIMER


def _ours(name: str, kind: MetricKind, doc: str) -> MetricName:
    return MetricName(name, kind, doc, is_hudis=False)


METRICS: Final = (
    _ours("write.duration", _T, "how long a write took from its rows to its commit, in ms"),
    _ours("write.success", _C, "a write returned a report"),
    _ours("write.failure", _C, "a write raised"),
    _ours("write.rows", _C, "rows inserted, updated and deleted by writes that succeeded"),
    _ours("write.bytes", _C, "bytes of data files of writes that succeeded"),
    _ours("write.files", _C, "data files of writes that succeeded"),
    _ours("write.rebases", _C, "how often writes that succeeded had been overtaken"),
    _ours("read.duration", _T, "how long a read of rows took, in ms"),
    _ours("read.rows", _C, "rows that reads returned"),
)

WRITTEN = EventName(
    "write.done",
    logging.INFO,
    "a write is through",
    ("operation", "took_ms", "rows", "files", "rebases"),
)
EVENTS: Final = (WRITTEN,)

WRITE_SPAN = SpanName("tidelock.write", "a whole write: every attempt at it, files and commit")
READ_SPAN = SpanName("tidelock.read", "a read of rows")
SPANS: Final = (WRITE_SPAN, READ_SPAN)


@dataclass(slots=True)
class Wrote:
    """A write under way, and its report once it is through."""

    report: WriteReport | None = None


@contextmanager
def writing(clock: Clock, uri: str, operation: str, *, owner: str) -> Iterator[Wrote]:
    """Watch over a write."""
    seen, started_ms = Wrote(), clock.now().monotonic_ms
    try:
        with span(WRITE_SPAN, table=uri, operation=operation, writer=owner):
            yield seen
    finally:
        took_ms = clock.now().monotonic_ms - started_ms
        PROCESS.time("write.duration", took_ms)
        PROCESS.count("write.failure" if seen.report is None else "write.success")
    report = seen.report
    if report is None:
        return
    rows = report.rows_inserted + report.rows_updated + report.rows_deleted
    PROCESS.count("write.rows", rows)
    PROCESS.count("write.bytes", report.bytes_written)
    PROCESS.count("write.files", report.files_written)
    PROCESS.count("write.rebases", report.rebases)
    tell(
        logger,
        WRITTEN,
        "%s %s is through",
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
def reading(clock: Clock, uri: str) -> Iterator[list[int]]:
    """Watch over a read; the block appends how many rows it returned."""
    counts: list[int] = []
    started_ms = clock.now().monotonic_ms
    with span(READ_SPAN, table=uri):
        yield counts
    PROCESS.time("read.duration", clock.now().monotonic_ms - started_ms)
    PROCESS.count("read.rows", sum(counts))
