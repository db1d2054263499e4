"""Formatting of durations, times, counts and errors for output."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from tidelock.core.errors import TidelockError


def duration(duration_ms: float) -> str:
    """Return a duration for people: 340 ms, 12.3 s, 4 min 5 s, 2 h 3 min, 3 d 4 h."""
    left_ms = abs(duration_ms)
    if left_ms < 1000:
        return f"{left_ms:.0f} ms"
    if left_ms < 60_000:
        return f"{left_ms / 1000:.1f} s"
    seconds = round(left_ms / 1000)
    for size, unit, below, below_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            return f"{seconds // size:,} {unit} {seconds % size // below} {below_unit}"
    return f"{seconds} s"


def pluralize(count: int, thing: str) -> str:
    """Return a count with its noun: 1 file group, 2 file groups."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def alternatives(names: Iterable[str]) -> str:
    """Return names as a choice: `A`, `A or B`, `A, B or C`."""
    *head, last = names
    return f"{', '.join(head)} or {last}" if head else last


def format_epoch_ms(epoch_ms: int) -> str:
    """Return a wall time in UTC, or the plain number if it is outside the calendar's range."""
    try:
        at = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"epoch ms {epoch_ms}"
    return at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")


def error_facts(kind: str, message: str, hint: str = "") -> dict[str, object]:
    """Return an error as the fields of JSON output."""
    return {"error": {"kind": kind, "message": message, "hint": hint}}


def kind_of(error: TidelockError) -> str:
    """Return the kind of an error as named in JSON output."""
    return error.kind.name.lower()


def fields_of(value: object, *names: str) -> dict[str, object]:
    """Return attributes by their name, for output whose fields have the same names."""
    return {name: getattr(value, name) for name in names}
