"""Whether all instants of a timeline are in one time zone. Pure.

Instants are digits without a zone. Hudi writes them in the writer's own zone unless the table says
UTC, and every reader compares them as text. So where two zones meet, what was written later may
count as older by hours, and be hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidelock.base.errors import InvalidInput
from tidelock.ops.validate.findings import Finding, problem, warning
from tidelock.ops.validate.timeline import TimelineFile
from tidelock.table.properties_file import KEY
from tidelock.table.timeline.instant import parse_time

CHECK = "time zone"

_STEP_MS: Final = 15 * 60_000
"""Time zones are apart by quarters of an hour."""
_EXACT_MS: Final = 10_000
"""An instant's file is written within so much of the time in its name."""
_APART_MAX_MS: Final = 26 * 3_600_000
"""No two time zones are further apart."""


def check_zones(
    files: Sequence[TimelineFile], *, is_utc: bool, has_ledger: bool
) -> Iterator[Finding]:
    """Look for instants of different time zones, by when their files were written."""
    if has_ledger and not is_utc:
        yield warning(
            CHECK,
            KEY,
            "the timeline is in local time (hoodie.table.timeline.timezone), and it has a ledger,"
            " whose times are UTC",
            "let every writer run in UTC, or set hoodie.table.timeline.timezone=UTC",
        )
    shifts = [(file, shift) for file in files if (shift := _shift(file)) is not None]
    exact = [file for file, shift in shifts if abs(shift) <= _EXACT_MS]
    first = min((file.modified_epoch_ms or 0 for file in exact), default=None)
    for file, shift in shifts:
        steps = round(shift / _STEP_MS)
        near = abs(shift - steps * _STEP_MS) <= _EXACT_MS and abs(shift) <= _APART_MAX_MS
        # A copy of a table has files that are younger than their names, all of one time. Only a
        # file that is younger than one that was written on time was written after it.
        late = first is not None and (file.modified_epoch_ms or 0) > first + _EXACT_MS
        if steps and near and (shift > 0 or late):
            # A clock that is wrong by hours does no harm while times follow the order of writing.
            told = problem if _is_out_of_order(file, files) else warning
            yield told(
                CHECK,
                file.key,
                f"its name is {abs(shift) / 3_600_000:g} hours"
                f" {'ahead of' if shift > 0 else 'behind'} the time when it was written, others of"
                " this timeline are not: writers in different time zones wrote to it",
                "let every writer run in UTC and set hoodie.table.timeline.timezone=UTC; then"
                " compare the rows of the writes around this one with their sources",
            )


def _is_out_of_order(file: TimelineFile, files: Sequence[TimelineFile]) -> bool:
    """Tell whether something written before a file counts as later, or the other way around."""
    mine = _times(file)
    if mine is None:
        return False
    for other in files:
        theirs = _times(other)
        if theirs is not None and (theirs[0] - mine[0]) * (theirs[1] - mine[1]) < 0:
            return True
    return False


def _times(file: TimelineFile) -> tuple[int, int] | None:
    """Return when a completed instant was written, and when by its name."""
    shift = _shift(file)
    written = file.modified_epoch_ms
    return None if shift is None or written is None else (written, written + shift)


def _shift(file: TimelineFile) -> int | None:
    """Return how far a completed instant's name is ahead of its file; None where it is unknown."""
    instant = file.instant
    if instant is None or not instant.completion or file.modified_epoch_ms is None:
        return None
    try:
        return parse_time(instant.completion) - file.modified_epoch_ms
    except InvalidInput:
        return None
