"""What was measured over time, and what it says of the end. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

MEMORY_MB_PER_MINUTE_MAX: Final = 1.0
HANDLES_MORE_MAX: Final = 8
JUDGED_FROM_S: Final = 480.0
"""A life must have lasted as long before its memory says anything."""

_WARM_UP: Final = 0.4
"""The share of a life that caches take to fill."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one program in one of its lives."""

    at_s: float
    name: str
    life: int
    memory_mb: float
    cpu_s: float
    threads: int
    handles: int


@dataclass(slots=True)
class Curves:
    """Everything that was measured, in order of time."""

    samples: list[Sample] = field(default_factory=list)
    latencies: list[tuple[float, float]] = field(default_factory=list)
    """When a write was acknowledged, in seconds, and how many milliseconds it had taken."""
    harms: list[tuple[float, str]] = field(default_factory=list)

    def lives(self) -> Mapping[tuple[str, int], list[Sample]]:
        """Return the samples of each life of each program."""
        found: dict[tuple[str, int], list[Sample]] = {}
        for sample in self.samples:
            found.setdefault((sample.name, sample.life), []).append(sample)
        return found

    def commits_per_s(self, bin_s: float) -> list[tuple[float, float]]:
        """Return how many writes landed in a second, for each stretch of time."""
        counted: dict[int, int] = {}
        for at_s, _ in self.latencies:
            counted[int(at_s // bin_s)] = counted.get(int(at_s // bin_s), 0) + 1
        last = max(counted, default=-1)
        return [(n * bin_s, counted.get(n, 0) / bin_s) for n in range(last + 1)]

    def latency_ms(self, bin_s: float, quantile: float) -> list[tuple[float, float]]:
        """Return a quantile of how long writes took, for each stretch of time."""
        binned: dict[int, list[float]] = {}
        for at_s, took_ms in self.latencies:
            binned.setdefault(int(at_s // bin_s), []).append(took_ms)
        return [(n * bin_s, quantile_of(took, quantile)) for n, took in sorted(binned.items())]


def quantile_of(values: Sequence[float], quantile: float) -> float:
    """Return the value that so large a share of the others does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] if ordered else 0.0


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
