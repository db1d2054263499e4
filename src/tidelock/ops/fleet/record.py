"""What a fleet's journals say: which steps landed, in which order.

A step counts as landed when its program was told so, or found it so after it was killed. The order
is that of the completion times, which the ledger gives out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tidelock.ops.fleet.journal import Noted
from tidelock.ops.fleet.steps import State, Step, replayed

_FAULTS: Final = ("twice", "back", "lost", "missed")


@dataclass(slots=True)
class Record:
    """Everything that was noted so far."""

    landed: dict[tuple[str, int], str] = field(default_factory=dict)
    """When each step of each program completed."""
    begun: dict[str, int] = field(default_factory=dict)
    """The last step that each program has begun."""
    resumed: dict[str, list[int]] = field(default_factory=dict)
    """Where each program went on after it was killed."""
    failures: list[Noted] = field(default_factory=list)
    wrote_ms: list[tuple[int, int]] = field(default_factory=list)
    """When a step was acknowledged, and how long it had taken."""
    rebases: int = 0
    served: Counter[str] = field(default_factory=Counter)
    gave_way: Counter[str] = field(default_factory=Counter)
    reads: int = 0
    summed: int = 0
    """Reads that were compared with the changes since the one before."""
    late: int = 0
    """Reads whose files a clean had removed meanwhile, as it may."""
    broken_reads: list[Noted] = field(default_factory=list)

    def take(self, noted: Noted) -> None:
        """Add one event."""
        facts = noted.facts
        match noted.did:
            case "begins":
                self.begun[noted.name] = facts["step"]
            case "wrote":
                self.landed[noted.name, facts["step"]] = facts["completion"]
                self.wrote_ms.append((noted.at_ms, facts["took_ms"]))
                self.rebases += facts["rebases"]
            case "resumes":
                self.landed[noted.name, facts["step"]] = facts["completion"]
                self.resumed.setdefault(noted.name, []).append(facts["step"])
            case "failed":
                self.failures.append(noted)
            case "served":
                self.served[facts["service"]] += facts["done"]
                self.gave_way[facts["service"]] += facts["gave_way"]
            case "read":
                self.reads += 1
                self.summed += facts["summed"]
                if any(facts[fault] for fault in _FAULTS):
                    self.broken_reads.append(noted)
            case "late":
                self.late += 1

    def steps_of(self, name: str) -> list[int]:
        """Return the steps of a program that landed, in their order."""
        return sorted(step for writer, step in self.landed if writer == name)

    def expected(self, step_of: Callable[[str, int], Step]) -> State:
        """Return what the table must hold if the steps happened one after the other."""
        order = sorted(self.landed, key=self.landed.__getitem__)
        return replayed(step_of(name, step) for name, step in order)

    def gaps(self) -> list[str]:
        """Return what is wrong with the steps themselves: some left out, or two at one time."""
        told = []
        for name in sorted({writer for writer, _ in self.landed}):
            steps = self.steps_of(name)
            # Streamers count from 0, as the versions of their marks do.
            first = min(steps[0], 1)
            if steps != list(range(first, first + len(steps))):
                told.append(f"{name} left out a step: {steps[-1]} is its last of {len(steps)}")
        times = Counter(self.landed.values())
        told.extend(f"{n} steps completed at {time}" for time, n in times.items() if n > 1)
        return told
