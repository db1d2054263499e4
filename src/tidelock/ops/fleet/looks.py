"""What a reader must see from one look at a table to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Seen(NamedTuple):
    """A row of one look: the time of the write that it comes from, and its amount."""

    time: str
    amount: int


Look = Mapping[int, Seen]
"""Rows by key."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How many keys are not as they must be after the look before."""

    back: int = 0
    """Rows of an older write than before."""
    lost: int = 0
    """Keys that are gone though nobody deletes."""
    missed: int = 0
    """Rows that are not what the look before and the changes since then make of them."""


def compared(before: Look, now: Look, changed: Look | None, *, deletes: bool) -> Faults:
    """Compare two looks; `changed` is what an incremental read between them gave, if there was one.

    `deletes` says that some program of the fleet deletes rows.
    """
    back = sum(key in before and row.time < before[key].time for key, row in now.items())
    lost = 0 if deletes else len(before.keys() - now.keys())
    missed = 0
    if changed is not None:
        # Every amount follows: what changed is as the changes say, everything else as it was.
        missed = sum(changed.get(key, before.get(key)) != row for key, row in now.items())
        missed += len(changed.keys() - now.keys())
    return Faults(back, lost, missed)
