"""Many schedules, over several processes: what failed, and what struck how often."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tidelock.testing.seeds import run_parts, worlds_collected
from tidelock.testing.sim.plan import Clocks, Fault
from tidelock.testing.sim.schedule import run_schedule

_CHUNK = 500
_WILD_EVERY = 5


@dataclass(frozen=True, slots=True)
class Campaign:
    """The seeds to run. Without `clocks` every fifth seed is in the wild world."""

    start: int
    schedules: int
    clocks: Clocks | None = None

    def clocks_of(self, seed: int) -> Clocks:
        """Return the world of `seed`."""
        if self.clocks is not None:
            return self.clocks
        return Clocks.WILD if seed % _WILD_EVERY == 0 else Clocks.PROMISED

    def chunks(self) -> Iterator[Campaign]:
        """Yield the campaign in parts that take about a second."""
        end = self.start + self.schedules
        for start in range(self.start, end, _CHUNK):
            yield Campaign(start, min(_CHUNK, end - start), self.clocks)


@dataclass(slots=True)
class Tally:
    """What a campaign came to."""

    schedules: int = 0
    events: int = 0
    grants: int = 0
    updates: int = 0
    canary_lost: int = 0
    took_s: float = 0.0
    fired: Counter[tuple[Fault, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another part."""
        self.schedules += other.schedules
        self.events += other.events
        self.grants += other.grants
        self.updates += other.updates
        self.canary_lost += other.canary_lost
        self.fired.update(other.fired)
        self.failures += other.failures

    def count(self, fault: Fault) -> int:
        """Return how often `fault` struck."""
        return sum(count for (struck, _), count in self.fired.items() if struck is fault)

    def table(self) -> str:
        """Return what struck where: a line for each fault, with the phases it struck in."""
        lines = []
        for fault in Fault:
            cells = {where: n for (struck, where), n in self.fired.items() if struck is fault}
            told = " ".join(f"{where}:{n}" for where, n in sorted(cells.items()))
            lines.append(f"{fault.value:<28} {sum(cells.values()):>9}  {told}")
        return "\n".join(lines)

    def summary(self) -> str:
        """Return the result in a line."""
        rate = self.schedules / self.took_s if self.took_s else 0.0
        return (
            f"{self.schedules} schedules, {self.events} events, {self.grants} grants,"
            f" {self.updates} fenced updates, {self.canary_lost} lost by the canary,"
            f" {len(self.failures)} failures, {self.took_s:.1f} s ({rate:.0f} schedules/s)"
        )


def run_part(campaign: Campaign) -> Tally:
    """Run the seeds of `campaign` in this process."""
    tally = Tally()
    with worlds_collected():
        for seed in range(campaign.start, campaign.start + campaign.schedules):
            outcome = run_schedule(seed, campaign.clocks_of(seed))
            tally.schedules += 1
            tally.events += outcome.events
            tally.grants += outcome.grants
            tally.updates += outcome.updates
            tally.canary_lost += outcome.canary_lost
            tally.fired.update(outcome.fired)
            if outcome.violations:
                told = f"{outcome.plan.replay}  # {outcome.violations[0]}"
                tally.failures.append(told)
            if seed % 64 == 0:
                gc.collect()
    return tally


def run_campaign(campaign: Campaign, *, processes: int, say: Callable[[str], None]) -> Tally:
    """Run `campaign` over several processes, telling `say` of failures and of progress."""
    parts = campaign.chunks()
    return run_parts(
        Tally(), campaign, parts, run_part, add=Tally.add, processes=processes, say=say
    )
