"""What the demo sets out to do: which programs, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelock.ops.fleet.member import Role

WITH_SPARK: Final = {
    "ada": Role.PYTHON,
    "ben": Role.SPARK,
    "cleo": Role.SPARK,
    "sql": Role.SQL,
    "keeper": Role.SERVICES,
    "reader": Role.READER,
}
WITHOUT_SPARK: Final = {
    "ada": Role.PYTHON,
    "ben": Role.PYTHON,
    "cleo": Role.PYTHON,
    "keeper": Role.SERVICES,
    "reader": Role.READER,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """One demo: `calm_s` of writing before a writer is killed, as much after it is back."""

    programs: dict[str, Role]
    calm_s: float = 25.0
    start_ms_max: int = 180_000
    recovery_ms_max: int = 60_000
    end_ms_max: int = 45_000

    @property
    def victims(self) -> tuple[str, ...]:
        """Who may be killed: a Spark writer if there is one."""
        for role in (Role.SPARK, Role.PYTHON):
            if found := tuple(name for name, has in self.programs.items() if has is role):
                return found
        return ()
