"""Samples, and the figures computed from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """The percentiles of some samples."""

    count: int
    p50_us: float
    p99_us: float

    @classmethod
    def of(cls, samples_ns: Sequence[int]) -> Latency:
        """Return the percentiles of at least one sample."""
        ordered = sorted(samples_ns)
        return cls(len(ordered), _at(ordered, 0.50) / 1_000, _at(ordered, 0.99) / 1_000)


def _at(ordered: Sequence[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def jain(grants: Sequence[int]) -> float:
    """Return Jain's fairness index: 1 if all have the same, 1/n if one has everything."""
    squares = sum(count * count for count in grants)
    return sum(grants) ** 2 / (len(grants) * squares) if squares else 0.0


def interleaved(
    actions: Mapping[str, Callable[[], object]],
    *,
    budget_s: float,
    rounds_least: int = 30,
    rounds_most: int = 3_000,
    warm_up: int = 10,
) -> dict[str, list[int]]:
    """Time all actions in turn until the budget is used up; return their samples.

    A round runs each action once, and each round starts with another one, so that other load on the
    machine affects all of them equally.
    """
    names = list(actions)
    samples: dict[str, list[int]] = {name: [] for name in names}
    for action in actions.values():
        for _ in range(warm_up):
            action()
    end = time.perf_counter() + budget_s
    for number in range(rounds_most):
        if number >= rounds_least and time.perf_counter() > end:
            break
        for offset in range(len(names)):
            name = names[(number + offset) % len(names)]
            began = time.perf_counter_ns()
            actions[name]()
            samples[name].append(time.perf_counter_ns() - began)
    return samples
