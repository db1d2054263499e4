"""How far a search goes: who takes part, what may go wrong, and how often.

The clock has few instants, chosen for a validity of 2,000 ms so that they cross every threshold.
What is sent at 0 has its deadline at 1,800, may be taken over after 2,000 by a taker whose clock is
ahead by the whole drift, and after 3,000 by one whose clock is behind by it. The grace is 0:
whatever holds without it holds with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from tidelock.lock.lease import Lease

OWNERS = ("A", "B", "C")
DRIFT_MS = 500
MARGIN_MS = 200
INSTANTS_MS = (0, 1_600, 2_200, 3_200, 3_500, 4_700, 5_500, 6_400)
EPOCH_MS = 100_000
"""The wall time at the start; skews are added to it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a search may do at most. Exceeding none of it, it does everything in every order.

    `operations` are of each client (one number, or one for each), the rest of a whole run. Wall
    clocks stand `skew_ms` apart, and `clock_jumps` move one to the other end of that band.
    `meddlings` are an operator's: the lock object is deleted, spoiled, or released by force.
    """

    clients: int = 2
    operations: int | tuple[int, ...] = 3
    faults: int = 1
    time_steps: int = 5
    java_writes: int = 0
    meddlings: int = 0
    clock_jumps: int = 0
    skew_ms: int = DRIFT_MS
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

    def operations_of(self) -> tuple[int, ...]:
        """Return how many operations each client has."""
        if isinstance(self.operations, int):
            return (self.operations,) * self.clients
        return self.operations

    @property
    def exclusive(self) -> bool:
        """Tell whether clocks keep to the drift, so that exclusion in time is promised."""
        return self.skew_ms <= DRIFT_MS

    def skews_ms(self) -> list[tuple[int, ...]]:
        """Return how the wall clocks may stand at the start: within the drift of each other."""
        if not self.skew_ms:
            return [(0,) * self.clients]
        every = product((0, self.skew_ms), repeat=self.clients)
        # All ahead is the same as none ahead, some time later.
        return [skews for skews in every if not all(skews)]


SCENES: dict[str, Bounds] = {
    # Two owners contend while time passes and any one request or answer goes astray.
    "contention": Bounds(operations=2, faults=1, time_steps=4, skew_ms=0, starts=("free",)),
    # The first two owners of a lock that nobody ever held: both reserve tokens.
    "birth": Bounds(operations=2, faults=1, time_steps=1, skew_ms=0),
    "two faults": Bounds(operations=2, faults=2, time_steps=0, skew_ms=0, starts=("free",)),
    # Long stories without a fault: acquire and release, and again on the cached version.
    "turns": Bounds(operations=4, faults=0, time_steps=0, skew_ms=0),
    # A holder dies or dawdles, and is taken over by a clock that is ahead or behind.
    "takeover": Bounds(operations=2, faults=0, time_steps=4, starts=("free",)),
    # One owner renews and renews, through faults, until it ends or is overtaken.
    "keeping": Bounds(operations=(3, 1), faults=1, time_steps=2, skew_ms=0, starts=("free",)),
    "clock steps back": Bounds(
        clients=1, operations=2, faults=1, time_steps=3, clock_jumps=2, starts=("free",)
    ),
    "clocks jump": Bounds(operations=1, faults=1, time_steps=4, clock_jumps=1, starts=("held",)),
    # Clocks further apart than the drift: owners may overlap, tokens must not.
    "clocks lie": Bounds(operations=2, faults=0, time_steps=3, skew_ms=5_000, starts=("free",)),
    # A Hudi Java writer takes part; it knows three fields.
    "java": Bounds(
        operations=2, faults=0, time_steps=2, skew_ms=0, java_writes=2, starts=("free",)
    ),
    # Somebody deletes, spoils or force-releases the lock object.
    "operator": Bounds(operations=2, faults=0, time_steps=1, skew_ms=0, meddlings=1),
    "operator and fault": Bounds(
        operations=2, faults=1, time_steps=0, skew_ms=0, meddlings=1, starts=("free",)
    ),
    # The object was unreadable from the beginning (L8).
    "spoiled": Bounds(operations=3, faults=2, time_steps=3, starts=("spoiled",)),
}
"""The searches of the gate: each is complete within its bounds."""

DEEP: dict[str, Bounds] = {
    "three contend": Bounds(
        clients=3, operations=2, faults=1, time_steps=3, skew_ms=0, starts=("free",)
    ),
    "three are born": Bounds(clients=3, operations=2, faults=1, time_steps=1, skew_ms=0),
    "three and Java": Bounds(
        clients=3, operations=2, faults=0, time_steps=2, java_writes=2, starts=("free",)
    ),
    "long contention": Bounds(operations=3, faults=2, time_steps=4),
}
"""Searches that may not end in reasonable time; they go as far as they are let."""
