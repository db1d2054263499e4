"""Which partitions have expired. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelock.table.timeline.instant import parse_time

_DAY_MS: Final = 86_400_000


class Measure(StrEnum):
    """What the age of a partition is counted from."""

    LAST_WRITE = "KEEP_BY_TIME"
    CREATION = "KEEP_BY_CREATION_TIME"


@dataclass(frozen=True, slots=True)
class Expiry:
    """How long partitions stay; with `selected` only those expire, at most `most` at a time."""

    measure: Measure = Measure.LAST_WRITE
    days: int = 30
    selected: frozenset[str] = frozenset()
    most: int = 1000


def expired(times: Mapping[str, str], expiry: Expiry, *, now_epoch_ms: int) -> tuple[str, ...]:
    """Return the partitions to delete, the oldest first, of those with a time to count from."""
    oldest = now_epoch_ms - expiry.days * _DAY_MS
    found = [
        (time, partition)
        for partition, time in times.items()
        if parse_time(time) < oldest and (not expiry.selected or partition in expiry.selected)
    ]
    return tuple(partition for _, partition in sorted(found)[: expiry.most])
