"""Instants: one action on a table, its state, its times, and the file that says so. Pure.

Times are strings of digits, `yyyyMMddHHmmssSSS` in UTC, and are compared as strings; Hudi's older
tables have them without the milliseconds. An action is requested, inflight, completed; each state
has a file of its own, and the earlier ones stay when a later one appears.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Final

from tidelock.base.errors import InvalidInput

_NAME: Final = re.compile(r"(\d+)(?:_(\d+))?\.(\w+)(?:\.(\w+))?", re.ASCII)
_TIME: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d{3})?", re.ASCII)
_DASHED: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{3}))?Z?)?", re.ASCII
)
_DAY_MS: Final = 86_400_000


class Action(StrEnum):
    """What is done to a table."""

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
        """The action's name once it is complete: a finished compaction is a commit."""
        return _COMPLETED.get(self, self)

    @property
    def writes_data(self) -> bool:
        """Tell whether its data files are rows of the table."""
        return self.completed in _WRITES


_COMPLETED: Final = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}
_WRITES: Final = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})


class State(IntEnum):
    """How far an action has come."""

    REQUESTED = 1
    INFLIGHT = 2
    COMPLETED = 3


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """An action in one of its states.

    `completion` is set when completed. A completed file of a table that an old version wrote has
    no completion time in its name; whoever lists it fills in when the file was written.
    """

    requested: str
    action: Action
    state: State
    completion: str = ""

    @property
    def identity(self) -> tuple[str, Action]:
        """What the files of one action's states have in common."""
        return self.requested, self.action.completed

    @property
    def is_completed(self) -> bool:
        """Tell whether it happened."""
        return self.state is State.COMPLETED

    @property
    def file_name(self) -> str:
        """The name of the file that says that this action came to this state."""
        match self.state:
            case State.REQUESTED:
                return f"{self.requested}.{self.action}.requested"
            case State.INFLIGHT if self.action is Action.COMMIT:
                # The oldest action has the oldest name: `<time>.inflight`, without the action.
                return f"{self.requested}.inflight"
            case State.INFLIGHT:
                return f"{self.requested}.{self.action}.inflight"
            case State.COMPLETED:
                return f"{self.requested}_{self.completion}.{self.action}"

    def started(self) -> Instant:
        """Return this action, inflight."""
        return replace(self, state=State.INFLIGHT, completion="")

    def done(self, completion: str) -> Instant:
        """Return this action, completed at `completion`."""
        return Instant(self.requested, self.action.completed, State.COMPLETED, completion)


def parse_instant(name: str) -> Instant | None:
    """Return what a file of the timeline says by its name; None for a name that is no instant's.

    A completed file without a completion time comes back with an empty one.
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
        # The names of plans say what is to be done; what was done has the name of a write.
        if action in _COMPLETED:
            return None
        return Instant(requested, action, State.COMPLETED, completion or "")
    state = _STATES.get(second)
    return None if state is None or completion else Instant(requested, action, state)


_ACTIONS: Final = {action.value: action for action in Action}
_STATES: Final = {"requested": State.REQUESTED, "inflight": State.INFLIGHT}


def furthest(instants: Iterable[Instant]) -> tuple[Instant, ...]:
    """Return each action once, in the furthest state it has come to, by request time.

    Should an action have been completed twice, the first completion is the one that readers saw.
    """
    best: dict[tuple[str, Action], Instant] = {}
    for instant in sorted(instants, key=lambda each: (-each.state, each.completion)):
        best.setdefault(instant.identity, instant)
    return tuple(sorted(best.values()))


def format_time(epoch_ms: int) -> str:
    """Return the 17 digits of a moment in UTC."""
    days, ms = divmod(epoch_ms, _DAY_MS)
    year, month, day = _civil(days)
    second, ms = divmod(ms, 1_000)
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return f"{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}{ms:03}"


def parse_time(time: str) -> int:
    """Return the moment of an instant's time in milliseconds since the epoch.

    A time without milliseconds means the end of its second, as Hudi reads it.
    Raises: `InvalidInput`.
    """
    found = _TIME.fullmatch(time)
    if found is None:
        raise InvalidInput(f"{time!r} is no time of an instant", hint="use yyyyMMddHHmmssSSS")
    year, month, day, hour, minute, second, ms = (int(part or 999) for part in found.groups())
    days = _days(year, month, day)
    if _civil(days) != (year, month, day) or hour > 23 or minute > 59 or second > 59:
        raise InvalidInput(f"{time!r} is no time of an instant: no calendar has it")
    return days * _DAY_MS + ((hour * 60 + minute) * 60 + second) * 1_000 + ms


def query_time(text: str) -> str:
    """Return a time that a person wrote as an instant's: digits, or `2025-07-13 01:05:36.861`.

    Digits are taken as they are, since times are compared as strings. Raises: `InvalidInput`.
    """
    if re.fullmatch(r"\d{14}|\d{17}", text, re.ASCII):
        return text
    found = _DASHED.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(
            f"{text!r} is not a point in the table's history",
            hint="use 14 or 17 digits (yyyyMMddHHmmssSSS), or '2025-07-13 01:05:36.861' in UTC",
        )
    year, month, day, *rest = (part or "" for part in found.groups())
    hour, minute, second, ms = rest
    digits = f"{year}{month}{day}{hour or '00'}{minute or '00'}{second or '00'}{ms or '000'}"
    return format_time(parse_time(digits))


def _civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since the epoch, by the 400-year cycle."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def _days(year: int, month: int, day: int) -> int:
    """Return the number of days since the epoch: the inverse of `_civil`."""
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
