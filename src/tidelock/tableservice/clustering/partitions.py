"""Which partitions are clustered: all, the latest, a range, named ones, an hour's share. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_HOURS: Final = 24


class Mode(StrEnum):
    """Hudi's ways to choose partitions."""

    NONE = "NONE"
    RECENT_DAYS = "RECENT_DAYS"
    SELECTED_PARTITIONS = "SELECTED_PARTITIONS"
    DAY_ROLLING = "DAY_ROLLING"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which partitions a plan takes.

    The last `recent` by name after the last `skipped`; those from `begin` to `end`, either of
    which may be empty; or every twenty-fourth, by the `hour` of the day. Before that only those
    named in `selected`, or that the whole of `pattern` matches, where these are given.
    """

    mode: Mode = Mode.NONE
    recent: int = 2
    skipped: int = 0
    begin: str = ""
    end: str = ""
    hour: int = 0
    selected: frozenset[str] = frozenset()
    pattern: str = ""

    def of(self, partitions: Iterable[str]) -> frozenset[str]:
        """Return the chosen ones of the partitions that a table has."""
        known = [each for each in sorted(set(partitions), reverse=True) if self._named(each)]
        match self.mode:
            case Mode.NONE:
                return frozenset(known)
            case Mode.RECENT_DAYS:
                last = self.skipped + self.recent if self.recent > 0 else None
                return frozenset(known[self.skipped : last])
            case Mode.SELECTED_PARTITIONS:
                return frozenset(
                    each
                    for each in known
                    if (not self.begin or each >= self.begin) and (not self.end or each <= self.end)
                )
            case Mode.DAY_ROLLING:
                ordered = sorted(known)
                mine = range(self.hour % _HOURS, len(ordered), _HOURS)
                return frozenset(ordered[place] for place in mine)

    def _named(self, partition: str) -> bool:
        if self.selected and partition not in self.selected:
            return False
        return not self.pattern or re.fullmatch(self.pattern, partition) is not None
