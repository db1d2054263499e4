"""What a write did, as its caller is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelock.kernel.results import FileResult


@dataclass(frozen=True, slots=True)
class WriteReport:
    """A write that happened. The rows are those of the write that counted, not of overtaken ones.

    `instant` is its request time, `completion` when it became visible. `rows_updated` counts the
    rows sent to existing ones; in a merge-on-read table some of them may lose against what is
    there. `files_replaced` are file groups that an overwrite took away. `rebases` is how often
    others came between, and the write was merged again on top of theirs.
    """

    operation: str
    instant: str
    completion: str
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    files_written: int = 0
    files_replaced: int = 0
    bytes_written: int = 0
    rebases: int = 0


def counted(results: Iterable[FileResult]) -> dict[str, int]:
    """Return the numbers of a report that files tell."""
    stats = [result.stat for result in results]
    return {
        "rows_inserted": sum(stat.num_inserts or 0 for stat in stats),
        "rows_updated": sum(stat.num_update_writes or 0 for stat in stats),
        "rows_deleted": sum(stat.num_deletes or 0 for stat in stats),
        "bytes_written": sum(stat.total_write_bytes or 0 for stat in stats),
        "files_written": len(stats),
    }
