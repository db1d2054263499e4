"""What a soak can be: which programs, how fast, and what is done to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tidelock.base.errors import InvalidInput
from tidelock.ops.fleet.member import Role


class Harm(Enum):
    """What is done to a program."""

    KILL = "kill"
    """SIGKILL; it starts again at once."""
    SLEEP = "sleep"
    """SIGSTOP for longer than a heartbeat may stay out."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of soak."""

    name: str
    says: str
    writers: Mapping[Role, int]
    services: int = 1
    readers: int = 1
    pause_ms: int = 0
    reader_pause_ms: int = 250
    """How long a reader rests between two looks."""
    rows: int = 40
    keys: int = 2_000
    table_type: str = "MERGE_ON_READ"
    harms: tuple[Harm, ...] = ()
    harm_every_s: float = 5.0
    store_faults: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def programs(self, writers: int | None) -> dict[str, Role]:
        """Return the programs by name; `writers` is how many of the first kind there are."""
        found: dict[str, Role] = {}
        for at, (role, count) in enumerate(self.writers.items()):
            wanted = count if writers is None or at > 0 else writers
            found.update({f"{role.value}-{n}": role for n in range(1, wanted + 1)})
        found.update({f"services-{n}": Role.SERVICES for n in range(1, self.services + 1)})
        found.update({f"reader-{n}": Role.READER for n in range(1, self.readers + 1)})
        return found


SCENARIOS: Final = {
    each.name: each
    for each in (
        Scenario(
            "high-frequency",
            "small writes as fast as they go, with every table service beside them",
            {Role.PYTHON: 4},
            reader_pause_ms=1_000,
            rows=1,
        ),
        Scenario(
            "mixed-sql",
            "UPDATE, DELETE and MERGE beside Spark and Python writers on the same rows",
            {Role.PYTHON: 2, Role.SPARK: 1, Role.SQL: 1},
            pause_ms=50,
        ),
        Scenario(
            "long-stream",
            "one steady stream of batches and a slow second one, for hours",
            {Role.PYTHON: 1, Role.SPARK: 1},
            pause_ms=500,
            rows=200,
            keys=20_000,
        ),
        Scenario(
            "chaos",
            "writers and services killed and put to sleep all the time, on a store that loses"
            " requests and replies where it can be made to",
            {Role.PYTHON: 4},
            services=2,
            harms=(Harm.KILL, Harm.SLEEP),
            harm_every_s=3.0,
            store_faults=True,
        ),
    )
}


def scenario(name: str) -> Scenario:
    """Return a scenario by its name. Raises: `InvalidInput`."""
    if name not in SCENARIOS:
        raise InvalidInput(
            f"there is no scenario {name!r}", hint=f"use one of {', '.join(SCENARIOS)}"
        )
    return SCENARIOS[name]
