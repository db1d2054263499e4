"""Whether programs stay as small as they were: memory and handles after their warm-up."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelock.ops.fleet.verdict import Check
from tidelock.ops.soak.curves import Curves, Sample

MEMORY_MB_PER_MINUTE_MAX: Final = 1.0
HANDLES_MORE_MAX: Final = 8
JUDGED_FROM_S: Final = 1_200.0
"""A life must have lasted as long before its memory says anything: heaps fill for eight minutes."""

_WARM_UP: Final = 0.4
"""The share of a life that caches take to fill."""


@dataclass(frozen=True, slots=True)
class Leanness:
    """What one program needed in all its lives; None where no life was long enough to tell."""

    name: str
    lives: int
    longest_s: float
    peak_mb: float
    mb_per_minute: float | None
    handles_more: int | None


def leanness(curves: Curves) -> list[Leanness]:
    """Return what each program needed, the worst of its lives."""
    lives: dict[str, list[Sequence[Sample]]] = {}
    for (name, _), life in curves.lives().items():
        lives.setdefault(name, []).append(life)
    return [_of(name, held) for name, held in lives.items()]


def _of(name: str, lives: list[Sequence[Sample]]) -> Leanness:
    slopes = [slope for life in lives if (slope := slope_mb_per_minute(life)) is not None]
    handles = [more for life in lives if (more := handles_more(life)) is not None]
    return Leanness(
        name,
        max(life[-1].life for life in lives),
        max(life[-1].at_s - life[0].at_s for life in lives),
        max(sample.memory_mb for life in lives for sample in life),
        max(slopes, default=None),
        max(handles, default=None),
    )


def lean_checks(curves: Curves) -> list[Check]:
    """Judge memory and handles of each life that was long enough."""
    found = leanness(curves)
    slopes = {each.name: each.mb_per_minute for each in found if each.mb_per_minute is not None}
    handles = {each.name: each.handles_more for each in found if each.handles_more is not None}
    if not slopes or not handles:
        return [Check(None, f"memory and handles are judged from {JUDGED_FROM_S / 60:g} min on")]
    grew = ", ".join(f"{name} {slope:+.2f}" for name, slope in slopes.items())
    more = ", ".join(f"{name} {count:+d}" for name, count in handles.items())
    most_mb, most = max(slopes.values()), max(handles.values())
    return [
        Check(
            most_mb < MEMORY_MB_PER_MINUTE_MAX,
            f"memory grows by {most_mb:+.2f} MB a minute at most after the warm-up ({grew})",
        ),
        Check(most <= HANDLES_MORE_MAX, f"open handles differ by {most:+d} at most ({more})"),
    ]


def slope_mb_per_minute(samples: Sequence[Sample]) -> float | None:
    """Return how fast the memory of one life grows after its warm-up; None if it was too short."""
    if not samples or samples[-1].at_s - samples[0].at_s < JUDGED_FROM_S:
        return None
    warm_s = samples[0].at_s + _WARM_UP * (samples[-1].at_s - samples[0].at_s)
    warm = [(sample.at_s / 60, sample.memory_mb) for sample in samples if sample.at_s >= warm_s]
    minutes, memory = zip(*warm, strict=True)
    return statistics.linear_regression(minutes, memory).slope


def handles_more(samples: Sequence[Sample]) -> int | None:
    """Return how many more handles a life had at its end than after its warm-up."""
    if not samples or samples[-1].at_s - samples[0].at_s < JUDGED_FROM_S:
        return None
    third = len(samples) // 3
    early = statistics.median(sample.handles for sample in samples[third : 2 * third])
    late = statistics.median(sample.handles for sample in samples[2 * third :])
    return round(late - early)
