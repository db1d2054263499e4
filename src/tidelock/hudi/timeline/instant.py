"""Instants: an action on a table, its state, its times, and the name of its file. Pure.

Times are strings of digits, `yyyyMMddHHmmssSSS` in UTC, and are compared as strings; older tables
omit the milliseconds. An action is requested, inflight, then completed. Each state has its own
file, and earlier ones remain when a later one appears.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Final

from tidelock.core.errors import InvalidInput

_NAME: Final = re.compile(r"(\d+)(?:_(\d+))?\.(\w+)(?:\.(\w+))?", re.ASCII)
_TIME: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d{3})?", re.ASCII)
_DASHED: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{3}))?Z?)?", re.ASCII
)
_DAY_MS: Final = 86_400_000


class Action(StrEnum):
    """The actions on a table."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    CLUSTERING = "clustering"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"

    @property
    def completed(self) -> Action:
        """The action of the completed instant: a completed compaction is a commit."""
        return _COMPLETED.get(self, self)

    @property
    def writes_data(self) -> bool:
        """Whether its data files hold rows of the table."""
        return self.completed in _WRITES


_COMPLETED: Final = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}
_WRITES: Final = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})


class InstantState(IntEnum):
    """The states of an action, in order."""

    REQUESTED = 1
    INFLIGHT = 2
    COMPLETED = 3


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """An action in one of its states.

    `completion` is set for completed instants. Old versions wrote completed files without a
    completion time in the name; `instants_in_listing` takes the modification time instead.
    """

    requested: str
    action: Action
    state: InstantState
    completion: str = ""

    @property
    def identity(self) -> tuple[str, Action]:
        """What all state files of one action have in common."""
        return self.requested, self.action.completed

    @property
    def is_completed(self) -> bool:
        """Whether the action has completed."""
        return self.state is InstantState.COMPLETED

    @property
    def file_name(self) -> str:
        """The name of the file of this state."""
        match self.state:
            case InstantState.REQUESTED:
                return f"{self.requested}.{self.action}.requested"
            case InstantState.INFLIGHT if self.action is Action.COMMIT:
                # Hudi's original name for an inflight commit has no action: `<time>.inflight`.
                return f"{self.requested}.inflight"
            case InstantState.INFLIGHT:
                return f"{self.requested}.{self.action}.inflight"
            case InstantState.COMPLETED:
                return f"{self.requested}_{self.completion}.{self.action}"

    def started(self) -> Instant:
        """Return the inflight instant of this action."""
        return replace(self, state=InstantState.INFLIGHT, completion="")

    def done(self, completion: str) -> Instant:
        """Return the completed instant of this action."""
        return Instant(self.requested, self.action.completed, InstantState.COMPLETED, completion)


def parse_instant(name: str) -> Instant | None:
    """Parse the name of a timeline file; None if it is not an instant.

    A completed file without a completion time gives an empty one.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    requested, completion, first, second = found.groups()
    if second is None and first == "inflight":
        first, second = Action.COMMIT.value, "inflight"
    if first not in _ACTIONS:
        return None
    action = _ACTIONS[first]
    if second is None:
        # Plans have action names of their own; once completed, they are named as writes.
        if action in _COMPLETED:
            return None
        return Instant(requested, action, InstantState.COMPLETED, completion or "")
    state = _STATES.get(second)
    return None if state is None or completion else Instant(requested, action, state)


_ACTIONS: Final = {action.value: action for action in Action}
_STATES: Final = {"requested": InstantState.REQUESTED, "inflight": InstantState.INFLIGHT}


def latest_states(instants: Iterable[Instant]) -> tuple[Instant, ...]:
    """Return each action once, in its latest state, by request time.

    If an action was completed twice, the first completion counts: readers may have seen it.
    """
    best: dict[tuple[str, Action], Instant] = {}
    for instant in sorted(instants, key=lambda each: (-each.state, each.completion)):
        best.setdefault(instant.identity, instant)
    return tuple(sorted(best.values()))


def format_time(epoch_ms: int) -> str:
    """Format a time in milliseconds since the epoch as 17 digits in UTC."""
    days, ms = divmod(epoch_ms, _DAY_MS)
    year, month, day = _date_of_days(days)
    second, ms = divmod(ms, 1_000)
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return f"{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}{ms:03}"


def parse_time(time: str) -> int:
    """Return the milliseconds since the epoch of an instant's time.

    A time without milliseconds means the end of its second, as in Hudi.
    Raises: `InvalidInput`.
    """
    found = _TIME.fullmatch(time)
    if found is None:
        raise InvalidInput(f"invalid instant time {time!r}", hint="use yyyyMMddHHmmssSSS")
    year, month, day, hour, minute, second, ms = (int(part or 999) for part in found.groups())
    days = _days_of_date(year, month, day)
    if _date_of_days(days) != (year, month, day) or hour > 23 or minute > 59 or second > 59:
        raise InvalidInput(f"invalid instant time {time!r}: there is no such date or time")
    return days * _DAY_MS + ((hour * 60 + minute) * 60 + second) * 1_000 + ms


def query_time(text: str) -> str:
    """Convert a time given by a user to an instant's time: digits, or `2025-07-13 01:05:36.861`.

    Digits are used unchanged, since times are compared as strings. Raises: `InvalidInput`.
    """
    if re.fullmatch(r"\d{14}|\d{17}", text, re.ASCII):
        return text
    found = _DASHED.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(
            f"invalid time {text!r}",
            hint="use 14 or 17 digits (yyyyMMddHHmmssSSS), or '2025-07-13 01:05:36.861' in UTC",
        )
    year, month, day, *rest = (part or "" for part in found.groups())
    hour, minute, second, ms = rest
    digits = f"{year}{month}{day}{hour or '00'}{minute or '00'}{second or '00'}{ms or '000'}"
    return format_time(parse_time(digits))


def _date_of_days(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since the epoch (400-year cycle)."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def _days_of_date(year: int, month: int, day: int) -> int:
    """Return the number of days since the epoch: the inverse of `_date_of_days`."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return (
        era * 146_097
        + year_of_era * 365
        + year_of_era // 4
        - year_of_era // 100
        + (day_of_year - 719_468)
    )
