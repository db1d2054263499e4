"""Bounds of a search: the clients, the faults, and how many of each.

The clock has few instants, chosen for a validity of 2,000 ms so that they cross every threshold. A
write sent at 0 has its deadline at 1,800. It may be taken over after 2,000 by a contender whose
clock is ahead by the whole drift, and after 3,000 by one whose clock is behind by it. The grace is
0: a property that holds without grace also holds with it.
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
    """Limits of a search. Within them, all events are tried in every order.

    `operations` are per client (one number, or one for each); the other limits are per run. Wall
    clocks differ by `skew_ms`, and `clock_jumps` move one to the other end of that band. An
    operator action deletes, damages or forcibly releases the lock object.
    """

    clients: int = 2
    operations: int | tuple[int, ...] = 3
    faults: int = 1
    time_steps: int = 5
    java_writes: int = 0
    operator_actions: int = 0
    clock_jumps: int = 0
    skew_ms: int = DRIFT_MS
    starts: tuple[str, ...] = ("absent",)
    token_range: int = 2
    validity_ms: int = 2_000
    grace_ms: int = 0

    @property
    def lease(self) -> Lease:
        """The lease terms of the clients."""
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
        """Whether clocks stay within the drift, so that exclusion in time is guaranteed."""
        return self.skew_ms <= DRIFT_MS

    def skews_ms(self) -> list[tuple[int, ...]]:
        """Return the possible initial offsets of the wall clocks."""
        if not self.skew_ms:
            return [(0,) * self.clients]
        every = product((0, self.skew_ms), repeat=self.clients)
        # All clocks ahead is equivalent to none ahead, at a later time.
        return [skews for skews in every if not all(skews)]


SCENARIOS: dict[str, Bounds] = {
    # Two owners contend while time passes and any one request or reply is lost.
    "contention": Bounds(operations=2, faults=1, time_steps=4, skew_ms=0, starts=("free",)),
    # Two clients create a new lock: both reserve tokens.
    "creation": Bounds(operations=2, faults=1, time_steps=1, skew_ms=0),
    "two faults": Bounds(operations=2, faults=2, time_steps=0, skew_ms=0, starts=("free",)),
    # Long runs without faults: acquire and release, then again on the cached version.
    "long runs": Bounds(operations=4, faults=0, time_steps=0, skew_ms=0),
    # A holder dies or is slow, and is taken over by a client whose clock is ahead or behind.
    "takeover": Bounds(operations=2, faults=0, time_steps=4, starts=("free",)),
    # One owner renews repeatedly, with faults, until it ends or loses the lock.
    "renewals": Bounds(operations=(3, 1), faults=1, time_steps=2, skew_ms=0, starts=("free",)),
    "clock steps back": Bounds(
        clients=1, operations=2, faults=1, time_steps=3, clock_jumps=2, starts=("free",)
    ),
    "clocks jump": Bounds(operations=1, faults=1, time_steps=4, clock_jumps=1, starts=("held",)),
    # Clocks differ by more than the drift: holdings may overlap, tokens must not.
    "large skew": Bounds(operations=2, faults=0, time_steps=3, skew_ms=5_000, starts=("free",)),
    # A Hudi Java writer takes part; it knows three fields.
    "java": Bounds(
        operations=2, faults=0, time_steps=2, skew_ms=0, java_writes=2, starts=("free",)
    ),
    # An operator deletes, damages or forcibly releases the lock object.
    "operator": Bounds(operations=2, faults=0, time_steps=1, skew_ms=0, operator_actions=1),
    "operator and fault": Bounds(
        operations=2, faults=1, time_steps=0, skew_ms=0, operator_actions=1, starts=("free",)
    ),
    # The object is unreadable from the start (L8).
    "unreadable": Bounds(operations=3, faults=2, time_steps=3, starts=("unreadable",)),
}
"""The searches of the regular tests: each is complete within its bounds."""

DEEP: dict[str, Bounds] = {
    "three contend": Bounds(
        clients=3, operations=2, faults=1, time_steps=3, skew_ms=0, starts=("free",)
    ),
    "three create": Bounds(clients=3, operations=2, faults=1, time_steps=1, skew_ms=0),
    "three and Java": Bounds(
        clients=3, operations=2, faults=0, time_steps=2, java_writes=2, starts=("free",)
    ),
    "long contention": Bounds(operations=3, faults=2, time_steps=4),
}
"""Large searches, which run up to a limit of states."""
