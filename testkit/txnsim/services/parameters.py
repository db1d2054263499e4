"""The parameters of a schedule with services, drawn from the same seed as the faults."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one schedule.

    `logs`: writers append log files, and compactions merge them. `turns` is how often each executor
    looks for work. `expires_min` is the age in minutes at which a clean removes a plan that was not
    started. With `java`, an external writer schedules, executes and rolls back concurrently, under
    one lock.
    """

    logs: bool
    jobs: int
    turns: int
    cleans: int
    archives: int
    retained: int
    expires_min: int
    kept_entries: int
    java: bool = False


def draw_parameters(rng: random.Random) -> Parameters:
    """Draw the parameters."""
    return Parameters(
        logs=rng.random() < 0.6,
        jobs=rng.choice((1, 2)),
        turns=rng.choice((1, 2)),
        cleans=rng.choice((0, 1, 1)),
        archives=rng.choice((0, 0, 0, 1)),
        retained=rng.choice((1, 2)),
        expires_min=rng.choice((0, 0, 60)),
        kept_entries=rng.choice((4, 512)),
    )
