"""The plan of one schedule, drawn from its seed: clients, timing and faults.

Swarm testing: each schedule enables its own random subset of the faults, so that rare combinations
occur often enough.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate

from tidelock.core.retry import Backoff
from tidelock.lock.lease import Lease
from tidelock.lock.session import POLL


class Clocks(Enum):
    """How far wall clocks may differ: at most by the drift that the protocol allows, or further."""

    PROMISED = "promised"
    WILD = "wild"


class Fault(Enum):
    """All faults. A fault is covered only when it has been counted."""

    REPLY_LOST = "F1 reply lost"
    TWICE = "F1 412 after success"
    REQUEST_LOST = "F2 request lost"
    CONFLICT = "F3 409"
    THROTTLED = "F4 429"
    THROTTLED_ASKING = "F4 429 with Retry-After"
    UNAVAILABLE = "F4 503"
    UNAVAILABLE_ASKING = "F4 503 with Retry-After"
    REFUSED = "F5 genuine 412"
    DELAYED = "F6 lands after the time-out"
    SLOW = "F6 lands late"
    STALE = "F7 stale read"
    CLOCK = "F8 wall clock moved"
    PAUSE = "F9 pause"
    OWNER_DEATH = "F10 owner thread died"
    INTERRUPTED = "F10 interrupted"
    CRASH = "F10 killed"
    RESTART = "F10 restarted"
    GARBAGE = "F12 garbage record"
    BEAT_TWICE = "F13 two heartbeats"
    BEAT_LATE = "F13 late heartbeat"
    BEAT_STALE = "F13 stray heartbeat"
    PARTITION = "F14 partition"
    ONE_WAY = "F14 replies cut off"
    DENIED = "F16 403"
    FORCED = "F17 force-release"
    EDITED = "F17 edited by hand"
    DELETED = "F17 record deleted"
    JAVA = "F23 Java peer wrote"


ON_REQUESTS = (
    Fault.REPLY_LOST,
    Fault.TWICE,
    Fault.REQUEST_LOST,
    Fault.CONFLICT,
    Fault.THROTTLED,
    Fault.UNAVAILABLE,
    Fault.DELAYED,
    Fault.SLOW,
    Fault.STALE,
)
"""Faults drawn for each request."""

BY_NEMESIS = (
    Fault.CLOCK,
    Fault.OWNER_DEATH,
    Fault.CRASH,
    Fault.GARBAGE,
    Fault.PARTITION,
    Fault.ONE_WAY,
    Fault.DENIED,
    Fault.THROTTLED,
    Fault.FORCED,
    Fault.EDITED,
    Fault.DELETED,
)
"""Faults that occur from time to time and last."""

BY_OPERATOR = (Fault.GARBAGE, Fault.FORCED, Fault.EDITED, Fault.DELETED)
_SWITCHES = tuple(
    dict.fromkeys(
        (
            *ON_REQUESTS,
            *BY_NEMESIS,
            Fault.PAUSE,
            Fault.INTERRUPTED,
            Fault.BEAT_TWICE,
            Fault.BEAT_LATE,
            Fault.JAVA,
        )
    )
)
_SHARE = dict.fromkeys(BY_OPERATOR, 0.08) | {Fault.JAVA: 0.2, Fault.STALE: 0.15}
_USUAL_SHARE = 0.35


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of one schedule."""

    seed: int
    clocks: Clocks
    lease: Lease
    poll: Backoff
    clients: int
    java_peers: int
    faults: tuple[Fault, ...]
    request_faults: tuple[tuple[float, Fault], ...]
    nemesis_faults: tuple[Fault, ...]
    nemesis_every_ms: float
    pause_share: float
    latency_ms: float
    timeout_ms: float
    staleness_ms: float
    rounds: int
    quit_share: float
    events: int

    @property
    def replay(self) -> str:
        """The command that replays this schedule with its trace."""
        wild = " --world wild" if self.clocks is Clocks.WILD else ""
        return f"python -m testkit.sim --seed {self.seed}{wild}"


def draw(seed: int, clocks: Clocks) -> tuple[Plan, random.Random]:
    """Return the plan of `seed`, and the random source for the rest of the schedule."""
    rng = random.Random(2 * seed + (clocks is Clocks.WILD))
    validity_ms = rng.choice((1_000, 2_000, 4_000, 10_000))
    lease = Lease(validity_ms, validity_ms // rng.choice((10, 10, 10, 16)))
    faults = _subset(rng)
    on_requests = [fault for fault in ON_REQUESTS if fault in faults]
    share = rng.choice((0.02, 0.06, 0.15, 0.3))
    weights = [rng.random() + 0.1 for _ in on_requests]
    scale = share / sum(weights) if weights else 0.0
    cumulated = accumulate(weight * scale for weight in weights)
    plan = Plan(
        seed=seed,
        clocks=clocks,
        lease=lease,
        poll=rng.choice((POLL, Backoff(first_ms=validity_ms / 20, max_ms=validity_ms / 4))),
        clients=rng.choice((2, 2, 3, 3, 4, 5, 6, 8)),
        java_peers=rng.choice((1, 1, 2)) if Fault.JAVA in faults else 0,
        faults=faults,
        request_faults=tuple(zip(cumulated, on_requests, strict=True)),
        nemesis_faults=tuple(fault for fault in BY_NEMESIS if fault in faults),
        nemesis_every_ms=validity_ms * rng.choice((0.2, 0.5, 1.0)),
        pause_share=rng.choice((0.002, 0.01, 0.03)) if Fault.PAUSE in faults else 0.0,
        latency_ms=rng.choice((3.0, 20.0, 20.0, validity_ms / 20, validity_ms / 4)),
        timeout_ms=validity_ms * rng.choice((0.1, 0.3, 0.7, 1.5)),
        staleness_ms=validity_ms * rng.choice((0.1, 0.5, 1.5)),
        rounds=rng.choice((1, 2, 4)),
        quit_share=rng.choice((0.02, 0.1, 0.5)),
        events=rng.randint(200, 340),
    )
    return plan, rng


def _subset(rng: random.Random) -> tuple[Fault, ...]:
    """Return the faults of one schedule.

    Stale reads and deleted records are not combined: P7 reads the token counter to detect a
    deleted object, and a stale counter does not show it.
    """
    faults = [fault for fault in _SWITCHES if rng.random() < _SHARE.get(fault, _USUAL_SHARE)]
    if Fault.STALE in faults and Fault.DELETED in faults:
        faults.remove(rng.choice((Fault.STALE, Fault.DELETED)))
    return tuple(faults)
