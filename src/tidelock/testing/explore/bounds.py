"""How far a search goes: who takes part, what may go wrong, and how often.

The lease is chosen so that a clock of few points crosses every threshold. With a validity of
2,000 ms and a grid of 800 ms a holder counted from its sending is before its deadline at 1,600 and
past it at 2,400; a taker whose clock is ahead by the whole drift may come at 2,400, one whose clock
is right or behind at 3,200. The grace is 0: whatever holds without it holds with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from tidelock.lock.lease import Lease

OWNERS = ("A", "B", "C")
DRIFT_MS = 500
MARGIN_MS = 200
GRID_MS = 800
EPOCH_MS = 100_000
"""The wall time at the start; skews are added to it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a search may do at most. Exceeding none of it, it does everything in every order.

    `operations` are of each client, everything else of a whole run. `clock_jumps` move a wall clock
    to another place in the band that the drift allows. `meddlings` are an operator's: the lock
    object is deleted, spoiled, or released by force.
    """

    clients: int = 2
    operations: int = 3
    faults: int = 1
    time_steps: int = 5
    java_writes: int = 0
    meddlings: int = 0
    clock_jumps: int = 0
    skewed: bool = True
    starts: tuple[str, ...] = ("absent",)
    token_range: int = 2
    validity_ms: int = 2_000
    grace_ms: int = 0

    @property
    def lease(self) -> Lease:
        """Return the terms the clients agree on."""
        return Lease(
            validity_ms=self.validity_ms,
            renew_ms=self.validity_ms // 10,
            drift_ms=DRIFT_MS,
            grace_ms=self.grace_ms,
        )

    def skews_ms(self) -> list[tuple[int, ...]]:
        """Return how the wall clocks may stand at the start: within the drift of each other."""
        if not self.skewed:
            return [(0,) * self.clients]
        every = product((0, DRIFT_MS), repeat=self.clients)
        # All ahead is the same as none ahead, some time later.
        return [skews for skews in every if not all(skews)]


SCENES: dict[str, Bounds] = {
    # Two owners take turns while requests and replies are delayed and lost.
    "contention": Bounds(operations=3, faults=2, time_steps=4),
    # The longest story: acquire, release, acquire on the cached version, release.
    "turns": Bounds(operations=4, faults=1, time_steps=3, skewed=False),
    # An owner dies, and is taken over.
    "takeover": Bounds(operations=2, faults=2, time_steps=6, starts=("free", "held")),
    # Wall clocks jump about within the drift.
    "clocks": Bounds(operations=2, faults=1, time_steps=5, clock_jumps=2, starts=("free", "held")),
    # A Hudi Java writer takes part; it knows three fields.
    "java": Bounds(operations=2, faults=1, time_steps=5, java_writes=2, starts=("free", "java")),
    # Somebody deletes, spoils or force-releases the lock object.
    "operator": Bounds(operations=2, faults=1, time_steps=3, meddlings=1, skewed=False),
    # The object was unreadable from the beginning (L8).
    "spoiled": Bounds(operations=3, faults=2, time_steps=3, starts=("spoiled",)),
}
