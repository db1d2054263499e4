"""What a write did, as its caller is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

from tidelock.kernel.results import FileResult
from tidelock.txn.mark import Applied


@dataclass(frozen=True, slots=True)
class WriteReport:
    """A write that happened. The rows are those of the write that counted, not of overtaken ones.

    `instant` is its request time, `completion` when it became visible. `rows_ignored` counts the
    rows that changed nothing, because the table has one of a larger ordering value with their key.
    In a merge-on-read table that is found out when log files are merged: rows sent to existing ones
    count as `rows_updated` there, whether or not they win. `files_replaced` are file groups that an
    overwrite took away. `rebases` is how often others came between, and the write was merged again
    on top of theirs. `repeated` says that the batch of its mark was applied before: nothing was
    written now, and `instant` and `completion` are those of the last commit of its application.
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


def repeated_report(operation: str, applied: Applied) -> WriteReport:
    """Return the report of a write whose batch was applied before."""
    return WriteReport(operation, applied.instant, applied.completion, repeated=True)


class Counts(TypedDict):
    """The numbers of a report that files tell."""

    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    rows_ignored: int
    files_written: int
    bytes_written: int


def counted(results: Iterable[FileResult]) -> Counts:
    """Return the numbers of a report that files tell."""
    results = tuple(results)
    stats = [result.stat for result in results]
    return {
        "rows_inserted": sum(stat.num_inserts or 0 for stat in stats),
        "rows_updated": sum(stat.num_update_writes or 0 for stat in stats),
        "rows_deleted": sum(stat.num_deletes or 0 for stat in stats),
        "rows_ignored": sum(result.ignored for result in results),
        "bytes_written": sum(stat.total_write_bytes or 0 for stat in stats),
        "files_written": len(stats),
    }
