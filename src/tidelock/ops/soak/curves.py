"""What was measured over time. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

Line = list[tuple[float, float]]
"""Moments, in seconds, and values."""

REQUESTS_BIN_S: Final = 5
"""Requests are counted together for so long."""


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


class Written(NamedTuple):
    """One write: when it was acknowledged, and how long it, its commits and its waiting took."""

    at_s: float
    took_ms: float
    commit_ms: float = 0.0
    wait_ms: float = 0.0
    lock_ms: float = 0.0
    """The part of the waiting that was for the table's lock."""


@dataclass(slots=True)
class Curves:
    """Everything that was measured, in order of time."""

    samples: list[Sample] = field(default_factory=list)
    writes: list[Written] = field(default_factory=list)
    harms: list[tuple[float, str]] = field(default_factory=list)
    requests: dict[tuple[int, str], Counter[str]] = field(default_factory=dict)
    """How many requests of each verb programs of a role sent, by the number of the bin."""

    def asked(self, at_s: float, role: str, sent: Mapping[str, int]) -> None:
        """Count requests."""
        self.requests.setdefault((int(at_s // REQUESTS_BIN_S), role), Counter()).update(sent)

    def lives(self) -> Mapping[tuple[str, int], list[Sample]]:
        """Return the samples of each life of each program."""
        found: dict[tuple[str, int], list[Sample]] = {}
        for sample in self.samples:
            found.setdefault((sample.name, sample.life), []).append(sample)
        return found

    def commits_per_s(self, bin_s: float) -> Line:
        """Return how many writes landed in a second, for each stretch of time."""
        counted = Counter(int(write.at_s // bin_s) for write in self.writes)
        return [(n * bin_s, counted[n] / bin_s) for n in _bins(counted)]

    def times_ms(self, bin_s: float, quantile: float, of: Callable[[Written], float]) -> Line:
        """Return a quantile of how long something took, for each stretch of time."""
        binned: dict[int, list[float]] = {}
        for write in self.writes:
            binned.setdefault(int(write.at_s // bin_s), []).append(of(write))
        return [(n * bin_s, quantile_of(took, quantile)) for n, took in sorted(binned.items())]

    def requests_per_s(self, bin_s: float) -> dict[str, Line]:
        """Return how many requests of each verb were sent in a second."""
        size, counted = _whole(bin_s), Counter[tuple[str, int]]()
        for (at, _), sent in self.requests.items():
            for verb, count in sent.items():
                counted[verb, at // (size // REQUESTS_BIN_S)] += count
        bins = _bins(n for _, n in counted)
        verbs = sorted({verb for verb, _ in counted})
        return {verb: [(n * size, counted[verb, n] / size) for n in bins] for verb in verbs}

    def requests_per_commit(self, bin_s: float, roles: frozenset[str]) -> Line:
        """Return how many requests programs of these roles sent for each write that landed."""
        size = _whole(bin_s)
        sent = Counter[int]()
        for (at, role), counts in self.requests.items():
            sent[at // (size // REQUESTS_BIN_S)] += counts.total() if role in roles else 0
        landed = Counter(int(write.at_s // size) for write in self.writes)
        return [(n * size, sent[n] / landed[n]) for n in _bins(landed) if landed[n] and sent[n]]

    def requests_of(self, roles: frozenset[str] | None = None) -> Counter[str]:
        """Return how many requests of each verb were sent in all, by programs of these roles."""
        total = Counter[str]()
        for (_, role), sent in self.requests.items():
            if roles is None or role in roles:
                total.update(sent)
        return total


def quantile_of(values: Sequence[float], quantile: float) -> float:
    """Return the value that so large a share of the others does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] if ordered else 0.0


def _bins(numbers: Iterable[int]) -> range:
    return range(max(numbers, default=-1) + 1)


def _whole(bin_s: float) -> int:
    """Return the length of a stretch in which whole bins of requests fit."""
    return max(1, math.ceil(bin_s / REQUESTS_BIN_S)) * REQUESTS_BIN_S
