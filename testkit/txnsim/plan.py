"""The plan of one schedule, drawn from its seed: the jobs of each writer, and the faults.

Swarm testing: each schedule enables a random subset of the faults, so that rare combinations occur
as well.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Any

OLD_KEYS = ("k1", "k2", "k3")
"""Initial keys of the table: k1 and k2 in one file group, k3 in another."""

NEW_KEYS = ("n1", "n2")
KEYS = (*OLD_KEYS, *NEW_KEYS)

WRITERS = 3


class Kind(Enum):
    """What a write does: merge keys, append log files without reading, or replace the partition."""

    UPSERT = "upsert"
    APPEND = "append"
    OVERWRITE = "overwrite"
    CLEAR = "delete partition"

    @property
    def overwrites(self) -> bool:
        """Whether nothing of the previous content remains."""
        return self in (Kind.OVERWRITE, Kind.CLEAR)


class Fault(Enum):
    """All faults. A fault is covered only once it has been counted."""

    REPLY_LOST = "F1 reply lost"
    TWICE = "F1 412 after success"
    REQUEST_LOST = "F2 request lost"
    CONFLICT = "F3 409"
    THROTTLED = "F4 429"
    UNAVAILABLE = "F4 503"
    REFUSED = "F5 genuine 412"
    DELAYED = "F6 lands after the time-out"
    STALE = "F7 stale read"
    CLOCK = "F8 wall clock moved"
    PAUSE = "F9 pause"
    CRASH = "F11 killed"
    RESTART = "F11 restarted"
    TORN = "F12 upload broken off"
    ARCHIVE = "F28 entries deleted behind a boundary"
    GHOST = "F28 a deleted entry was created again"


ON_REQUESTS = (
    Fault.REPLY_LOST,
    Fault.TWICE,
    Fault.REQUEST_LOST,
    Fault.CONFLICT,
    Fault.THROTTLED,
    Fault.UNAVAILABLE,
    Fault.DELAYED,
    Fault.STALE,
    Fault.TORN,
)
"""Faults that are drawn per request."""

BY_NEMESIS = (Fault.CLOCK, Fault.CRASH)
_SWITCHES = (*ON_REQUESTS, *BY_NEMESIS, Fault.PAUSE, Fault.ARCHIVE)
_SHARE = {Fault.STALE: 0.1, Fault.PAUSE: 0.6, Fault.ARCHIVE: 0.4}
_USUAL_SHARE = 0.35
_MIXED_SHARE = 0.3
_LEASE_SHARE = 0.15

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of one schedule.

    `jobs` has the keys of each writer's writes, in order, and `kinds` what each write does; empty
    if all are upserts. With `lease_ms`, writers take a lock that expires after that time.
    """

    seed: int
    faults: tuple[Fault, ...]
    request_faults: tuple[tuple[float, Fault], ...]
    nemesis_every_ms: float
    pause_share: float
    latency_ms: float
    timeout_ms: float
    misses: int
    markers: bool
    checkpoint_every: int
    recovers: bool
    clock_offsets_ms: tuple[float, ...]
    jobs: tuple[tuple[tuple[str, ...], ...], ...]
    kinds: tuple[tuple[Kind, ...], ...]
    bucketed: bool
    lease_ms: float

    @property
    def replay(self) -> str:
        """The command line that replays this schedule with its trace."""
        return f"python -m testkit.txnsim --seed {self.seed}"


def draw(seed: int) -> tuple[Plan, random.Random]:
    """Return the plan of `seed`, and the random source for everything drawn afterwards."""
    rng = random.Random(seed)
    faults = _subset(rng)
    on_requests = [fault for fault in ON_REQUESTS if fault in faults]
    share = rng.choice((0.02, 0.06, 0.15, 0.25))
    weights = [rng.random() + 0.1 for _ in on_requests]
    scale = share / sum(weights) if weights else 0.0
    cumulated = accumulate(weight * scale for weight in weights)
    spread_ms = rng.choice((0, 200, 5_000, HOUR_MS)) if Fault.CLOCK in faults else 0
    plan = Plan(
        seed=seed,
        faults=faults,
        request_faults=tuple(zip(cumulated, on_requests, strict=True)),
        nemesis_every_ms=rng.choice((300.0, 1_000.0, 3_000.0)),
        pause_share=rng.choice((0.005, 0.02, 0.06)) if Fault.PAUSE in faults else 0.0,
        latency_ms=rng.choice((2.0, 10.0, 60.0)),
        timeout_ms=rng.choice((200.0, 1_000.0)),
        misses=rng.choice((1, 2)),
        markers=rng.random() < 0.5,
        checkpoint_every=rng.choice((1, 2, 4)),
        recovers=rng.random() < 0.5,
        clock_offsets_ms=tuple((2 * rng.random() - 1) * spread_ms for _ in range(WRITERS)),
        jobs=tuple(_jobs(rng) for _ in range(WRITERS)),
        **_mixture(seed),
    )
    return plan, rng


def _mixture(seed: int) -> dict[str, Any]:
    """Return a random source that is independent of the rest, so that a seed's faults stay the
    same."""
    rng = random.Random(f"mixture {seed}")
    mixed, bucketed = rng.random() < _MIXED_SHARE, rng.random() < 0.5
    usual = (Kind.UPSERT, Kind.UPSERT, Kind.OVERWRITE, Kind.CLEAR)
    drawn = (*usual, Kind.APPEND, Kind.APPEND, Kind.APPEND) if bucketed else usual
    kinds = tuple(tuple(rng.choice(drawn) for _ in range(2)) for _ in range(WRITERS))
    lease_ms = rng.choice((400.0, 2_000.0)) if rng.random() < _LEASE_SHARE else 0.0
    return {
        "kinds": kinds if mixed else (),
        "bucketed": mixed and bucketed,
        "lease_ms": lease_ms,
    }


def _jobs(rng: random.Random) -> tuple[tuple[str, ...], ...]:
    return tuple(_keys(rng) for _ in range(rng.choice((1, 1, 2))))


def _keys(rng: random.Random) -> tuple[str, ...]:
    """Return some keys that other writers are likely to write as well."""
    old = [key for key in OLD_KEYS if rng.random() < 0.4]
    new = [key for key in NEW_KEYS if rng.random() < 0.4]
    return tuple(old + new) or (rng.choice(OLD_KEYS),)


def _subset(rng: random.Random) -> tuple[Fault, ...]:
    """Return the faults of one schedule.

    Stale reads and deleted entries exclude each other: a process reads the boundary to learn that a
    key was deleted, and a stale boundary does not show it.
    """
    faults = [fault for fault in _SWITCHES if rng.random() < _SHARE.get(fault, _USUAL_SHARE)]
    if Fault.STALE in faults and Fault.ARCHIVE in faults:
        faults.remove(rng.choice((Fault.STALE, Fault.ARCHIVE)))
    return tuple(faults)
